package lint

import (
	"crypto/x509"
	"net"
	"time"

	"github.com/gatehouse-dev/gatehouse/admission/registration"
)

var caBundleMismatch = &Rule{
	ID: "ca-bundle-mismatch", Level: Error,
	Reads: []Part{Certificates},
	Title: "A webhook presents a certificate that the API server does not trust",
	Why: "The certificate is signed by somebody else than its caBundle says, or names another host than the one that is called. Each call of the webhook fails. " +
		"The rule needs --connect: the command then connects to each webhook from where it runs, and sends no request.",
	Fix:    "Renew the certificate of the server and the caBundle together. The certificate must name the host of the URL, or NAME.NAMESPACE.svc.",
	Fails:  bundled("policies", lasting),
	Passes: bundled("policies", own),
	check: func(p *pass) {
		for _, c := range p.clients() {
			address := addressOf(c.ClientConfig)
			served, asked := p.Served[address]
			if !asked {
				continue
			}
			if served.Err != nil {
				p.misses("%s presented no certificate: %v (%s)", address, served.Err, p.rule.ID)
				continue
			}
			if err := trust(c.ClientConfig, served.Chain, p.Now); err != nil {
				c.finds(p, p.rule.Level, c.under("caBundle"), address.String()+string(c.CABundle), "the API server does not trust the certificate of %s: %v", c.what, err)
			}
		}
	},
}

// trust verifies the certificates that a webhook presents, as the API server does.
func trust(c *registration.ClientConfig, chain []*x509.Certificate, now time.Time) error {
	o := x509.VerifyOptions{CurrentTime: now, Intermediates: x509.NewCertPool()}
	if len(c.CABundle) > 0 {
		list, err := bundle(c.CABundle)
		if err != nil {
			// Another rule reports this.
			return nil
		}
		o.Roots = x509.NewCertPool()
		for _, ca := range list {
			o.Roots.AddCert(ca)
		}
	}
	for _, between := range chain[1:] {
		o.Intermediates.AddCert(between)
	}
	host := addressOf(c).Host
	if net.ParseIP(host) != nil {
		host = "[" + host + "]"
	}
	o.DNSName = host
	_, err := chain[0].Verify(o)
	return err
}
