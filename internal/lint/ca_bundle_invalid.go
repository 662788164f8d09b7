package lint

import "bytes"

var caBundleInvalid = &Rule{
	ID: "ca-bundle-invalid", Level: Error, OnWrite: true,
	Title:  "A caBundle cannot be read",
	Why:    "The API server trusts nobody then: each call of the webhook fails before it is made.",
	Fix:    "Put the certificate of the authority that signed the server's certificate there, as PEM, not the certificate's key.",
	Fails:  bundled("policies", publicKey),
	Passes: bundled("policies", lasting),
	check: func(p *pass) {
		for _, c := range p.clients() {
			if len(c.CABundle) == 0 || len(bytes.TrimSpace(c.CABundle)) == 0 && c.mayBeSet(p) {
				continue
			}
			if _, err := bundle(c.CABundle); err != nil {
				c.finds(p, p.rule.Level, c.under("caBundle"), string(c.CABundle), "the API server cannot connect to %s: its caBundle cannot be used: %v", c.what, err)
			}
		}
	},
}
