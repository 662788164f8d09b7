package lint

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/gatehouse-dev/gatehouse/admission/registration"
	"github.com/gatehouse-dev/gatehouse/admission/snapshot"
	"github.com/gatehouse-dev/gatehouse/internal/report"
)

// client is a webhook to which the API server connects.
type client struct {
	*registration.ClientConfig
	// what names the client.
	what string
	// closed reports whether requests fail when the webhook cannot be reached.
	closed bool
	// at is the place of the clientConfig.
	at place
	// own reports whether the client is only about objects of its program: custom resources, and
	// objects with a label for it.
	own bool
	// promised reports whether annotations say that a controller sets the caBundle.
	promised bool
}

// clients returns all webhooks about which findings are wanted, including those that convert
// custom resources.
func (p *pass) clients() []client {
	var list []client
	builtin := p.builtin()
	p.webhooks(func(e *snapshot.Entry) {
		where := at(e.Entry, "clientConfig")
		list = append(list, client{&e.ClientConfig, "the webhook " + e.Name, failsClosed(e), where, !isAbout(e, builtin) || optsIn(e.ObjectSelector), injected(p.Written[where.object].Annotations)})
	})
	for i := range p.Conversions {
		c := &p.Conversions[i]
		if p.wanted(c.Object) {
			where := place{c.Object, []any{"spec", "conversion", "webhook", "clientConfig"}}
			list = append(list, client{&c.Client, "the conversion webhook of " + c.Name, true, where, true, injected(p.Written[c.Object].Annotations)})
		}
	}
	return list
}

// finds adds a finding about the client. Clients with the same cause share one.
func (c *client) finds(p *pass, level report.Level, where place, cause, format string, args ...any) {
	p.findsCause(level, where, cause, c.what, format, args...)
}

// validities calls f with the time in which each caBundle can be used. It leaves out caBundles that
// cannot be read, and those that a program replaces.
func (p *pass) validities(f func(c *client, from, to time.Time)) {
	for _, c := range p.clients() {
		if list, err := bundle(c.CABundle); err == nil && !c.mayBeSet(p) {
			from, to := valid(list, p.Now)
			f(&c, from, to)
		}
	}
}

// mayBeSet reports whether a program that is not in the files may set the caBundle: annotations
// say so, or a role of the files allows it.
func (c *client) mayBeSet(p *pass) bool {
	return p.Partial && (c.promised || p.Injectors[c.at.object.Kind])
}

// under returns a place in the clientConfig.
func (c *client) under(path ...any) place {
	return place{c.at.object, append(slices.Clone(c.at.path), path...)}
}

// injected reports whether annotations say that a controller sets the caBundle.
func injected(annotations map[string]string) bool {
	for key := range annotations {
		if strings.HasPrefix(key, "cert-manager.io/inject-ca-from") || strings.HasSuffix(key, ".openshift.io/inject-cabundle") {
			return true
		}
	}
	return false
}

// bundle returns the certificates of a caBundle. The error says that there are none, or
// which one cannot be read.
func bundle(data []byte) ([]*x509.Certificate, error) {
	var list []*x509.Certificate
	var others []string
	rest := data
	for {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		if block.Type != "CERTIFICATE" || len(block.Headers) > 0 {
			others = append(others, block.Type)
			continue
		}
		c, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("certificate %d cannot be read: %w", len(list)+1, err)
		}
		list = append(list, c)
	}
	switch {
	case len(list) > 0:
		return list, nil
	case len(others) > 0:
		return nil, fmt.Errorf("it has no certificate, but %s", and(others))
	case len(bytes.TrimSpace(data)) == 0:
		return nil, fmt.Errorf("it has only white space")
	}
	return nil, fmt.Errorf("it is not PEM")
}

// valid returns the time in which a caBundle can be used. Of the certificates that are valid now,
// this is the time of the one that lasts longest. If none is valid now, it is the time of the
// last one.
func valid(list []*x509.Certificate, now time.Time) (from, to time.Time) {
	for _, c := range list {
		current := !now.Before(c.NotBefore) && now.Before(c.NotAfter)
		better := !now.Before(from) && now.Before(to)
		switch {
		case to.IsZero(), current && !better, current == better && c.NotAfter.After(to):
			from, to = c.NotBefore, c.NotAfter
		}
	}
	return from, to
}
