package lint

import "time"

// soon is how long before its end a certificate is worth a warning.
const soon = 30 * 24 * time.Hour

var caBundleExpires = &Rule{
	ID: "ca-bundle-expires", Level: Warning,
	Title:  "The certificates of a caBundle expire within 30 days",
	Why:    "From then on, each call of the webhook fails.",
	Fix:    "Renew the certificate authority of the webhook, and find out why nothing did.",
	Fails:  bundled("policies", ending),
	Passes: bundled("policies", lasting),
	check: func(p *pass) {
		p.validities(func(c *client, from, to time.Time) {
			if !p.Now.Before(from) && p.Now.Before(to) && to.Sub(p.Now) < soon {
				c.finds(p, p.rule.Level, c.under("caBundle"), string(c.CABundle), "the caBundle of %s expires at %s", c.what, to.UTC().Format(time.RFC3339))
			}
		})
	},
}
