package lint

import "time"

var caBundleExpired = &Rule{
	ID: "ca-bundle-expired", Level: Error, OnWrite: true,
	Title:  "The certificates of a caBundle have expired, or are not valid yet",
	Why:    "The API server trusts no certificate that they signed: each call of the webhook fails.",
	Fix:    "Renew the certificate authority of the webhook, and the certificate of its server.",
	Fails:  bundled("policies", expired),
	Passes: bundled("policies", lasting),
	check: func(p *pass) {
		p.validities(func(c *client, from, to time.Time) {
			switch {
			case !p.Now.Before(to):
				c.finds(p, p.rule.Level, c.under("caBundle"), string(c.CABundle), "the caBundle of %s expired at %s", c.what, to.UTC().Format(time.RFC3339))
			case p.Now.Before(from):
				c.finds(p, p.rule.Level, c.under("caBundle"), string(c.CABundle), "the caBundle of %s is not valid before %s", c.what, from.UTC().Format(time.RFC3339))
			}
		})
	},
}
