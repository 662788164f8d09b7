package lint

import (
	"bytes"
	"cmp"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gatehouse-dev/gatehouse/admission/registration"
	"github.com/gatehouse-dev/gatehouse/admission/snapshot"
	"github.com/gatehouse-dev/gatehouse/internal/readers/report"
)

// client is a webhook to which the API server connects.
type client struct {
	*registration.ClientConfig
	// what names the client.
	what string
	// closed is set if requests fail when the webhook cannot be reached.
	closed bool
	// at is the place of the clientConfig.
	at place
	// own is set if the client only concerns objects of its program: custom resources, and objects or namespaces with
	// an opt-in label, except the pods of namespaces; or only resources that are rarely written.
	own bool
	// promised is set if annotations request a caBundle from a controller.
	promised bool
}

// clients returns all webhooks for which findings are wanted, including conversion webhooks of
// custom resources.
func (p *pass) clients() []client {
	var list []client
	p.webhooks(func(e *snapshot.Entry) {
		where := at(e.Entry, "clientConfig")
		list = append(list, client{&e.ClientConfig, "the webhook " + e.Name, failsClosed(e), where, !p.isAbout(e.Rules) || optsIn(e.ObjectSelector) || optsIn(e.NamespaceSelector) && !aboutPods(e.Rules) || onlyRare(e.Rules), injected(p.Written[where.object])})
	})
	for i := range p.Conversions {
		c := &p.Conversions[i]
		if p.wanted(c.Object) {
			where := place{c.Object, []any{"spec", "conversion", "webhook", "clientConfig"}}
			list = append(list, client{&c.Client, "the conversion webhook of " + c.Name, true, where, true, injected(p.Written[c.Object])})
		}
	}
	return list
}

// finds adds a finding about the client. Clients with the same cause share one.
func (c *client) finds(p *pass, level report.Level, where place, cause, format string, args ...any) {
	p.findsCause(level, where, cause, c.what, format, args...)
}

// validities calls f with the validity of each caBundle. It skips unreadable caBundles, and
// caBundles that a program replaces.
func (p *pass) validities(f func(c *client, from, to time.Time)) {
	for _, c := range p.clients() {
		if list, err := bundle(c.CABundle); err == nil && !c.mayBeSet(p) {
			from, to := valid(list, p.Now)
			f(&c, from, to)
		}
	}
}

// mayBeSet reports whether a program that is not in the files may set the caBundle: annotations
// request it, or a role of the files allows it.
func (c *client) mayBeSet(p *pass) bool {
	return p.Partial && (c.promised || p.Injectors[c.at.object.Kind])
}

// blank reports whether the file has the field caBundle without a value, for a script or a patch.
func (c *client) blank(p *pass) bool {
	filled, written := p.Written[c.at.object].Fields[pathText(c.under("caBundle").path)]
	return written && !filled
}

// under returns a place in the clientConfig.
func (c *client) under(path ...any) place {
	return place{c.at.object, append(slices.Clone(c.at.path), path...)}
}

// injected reports whether annotations or labels request a caBundle from a controller: of cert-manager, of OpenShift, of
// the program itself, or OLM.
func injected(w Written) bool {
	if w.Labels["app.kubernetes.io/managed-by"] == "operator-lifecycle-manager" {
		return true
	}
	for _, metadata := range []map[string]string{w.Annotations, w.Labels} {
		for key := range metadata {
			if _, name, _ := strings.Cut(key, "/"); strings.Contains(name, "inject") && (strings.Contains(name, "ca") || strings.Contains(name, "cert")) {
				return true
			}
		}
	}
	return false
}

// bundle returns the certificates of a caBundle. It is an error if there are none, or if one cannot
// be read.
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

// valid returns the validity of a caBundle: the validity of its currently valid certificate that
// expires last, or, if none is valid now, of the certificate that expires last.
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

var caBundleInvalid = &Rule{
	ID: "ca-bundle-invalid", Level: Error, OnWrite: true,
	check: eachClient(func(p *pass, c *client) {
		if len(c.CABundle) == 0 || c.mayBeSet(p) {
			// A program replaces the placeholder in the files.
			return
		}
		if _, err := bundle(c.CABundle); err != nil {
			c.finds(p, p.rule.Level, c.under("caBundle"), string(c.CABundle), "the API server cannot connect to %s: its caBundle cannot be used: %v", c.what, err)
		}
	}),
}

var caBundleExpired = &Rule{
	ID: "ca-bundle-expired", Level: Error, OnWrite: true,
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

// soon is the remaining validity at which an expiring certificate is reported.
const soon = 30 * 24 * time.Hour

var caBundleExpires = &Rule{
	ID: "ca-bundle-expires", Level: Warning,
	check: func(p *pass) {
		p.validities(func(c *client, from, to time.Time) {
			if !p.Now.Before(from) && p.Now.Before(to) && to.Sub(p.Now) < soon {
				c.finds(p, p.rule.Level, c.under("caBundle"), string(c.CABundle), "the caBundle of %s expires at %s", c.what, to.UTC().Format(time.RFC3339))
			}
		})
	},
}

var caBundleMissing = &Rule{
	ID: "ca-bundle-missing", Level: Warning,
	Reads: []Part{Services, Workloads, Access},
	check: eachClient(func(p *pass, c *client) {
		if c.Service == nil || len(c.CABundle) > 0 || p.managed(c.at.object) || c.mayBeSet(p) || c.blank(p) {
			return
		}
		name := types.NamespacedName{Namespace: c.Service.Namespace, Name: c.Service.Name}
		if p.Partial && c.Service.Namespace == baseNamespace {
			p.misses("service %s has the namespace of a base: what a kustomization makes of it may set the caBundle (%s)", name, p.rule.ID)
			return
		}
		if p.Partial && (p.NoRoles || !p.certifies(name) || !slices.ContainsFunc(p.behind(name), (*Workload).mountsSecret)) {
			// The files have only a part of a program. The rest, or its role, may set the caBundle. A server that mounts
			// no certificate gets it from OLM, or makes it. Where no file has the certificate, its maker may set the caBundle.
			p.misses("what may set the caBundle for service %s is in no file: %s", name, p.rule.ID)
			return
		}
		c.finds(p, p.rule.Level, c.under(), name.String(), "%s calls service %s without a caBundle: the API server will not trust its certificate", c.what, name)
	}),
}

// managed reports whether OLM may install an object.
func (p *pass) managed(o Object) bool { return p.Managed != nil && p.Managed(o) }

// certifies reports whether the files have a certificate for a service, or request it.
func (p *pass) certifies(name types.NamespacedName) bool {
	if len(p.Issued) > 0 || p.Secrets {
		return true
	}
	s := p.Services[name]
	return s != nil && slices.ContainsFunc(slices.Collect(maps.Keys(s.Annotations)), func(key string) bool { return strings.HasSuffix(key, "/serving-cert-secret-name") })
}

// mountsSecret reports whether the pods of a workload mount a Secret, or have a volume that a driver fills.
func (w *Workload) mountsSecret() bool {
	return slices.ContainsFunc(w.Pods.Spec.Volumes, func(v corev1.Volume) bool {
		return v.Secret != nil || v.Projected != nil || v.CSI != nil
	})
}

// baseNamespace is the namespace in the bases that kubebuilder makes, for which a kustomization sets another.
const baseNamespace = "system"

// oldInjectCAFrom is the annotation of InjectCAFrom before v0.11 of cert-manager.
const oldInjectCAFrom = "certmanager.k8s.io/inject-ca-from"

// injectCAFromSecret names a Secret instead of a Certificate.
const injectCAFromSecret = "cert-manager.io/inject-ca-from-secret"

// needsBundle reports whether the webhooks of an object have no caBundle, and neither a controller of the project nor a
// current annotation of cert-manager sets one.
func (p *pass) needsBundle(o Object) bool {
	w := p.Written[o]
	for field, set := range w.Fields {
		if set && strings.HasSuffix(field, ".caBundle") {
			return false
		}
	}
	return !p.managed(o) && len(w.Fields) > 0 && w.Annotations[InjectCAFrom] == "" && w.Annotations[injectCAFromSecret] == ""
}

var caInjectionBroken = &Rule{
	ID: "ca-injection-broken", Level: Error,
	check: func(p *pass) {
		for _, o := range slices.SortedFunc(maps.Keys(p.Written), compareObjects) {
			from := p.Written[o].Injection
			where := place{o, []any{"metadata", "annotations", InjectCAFrom}}
			namespace, name, ok := strings.Cut(from, "/")
			switch {
			case from == "" && p.Written[o].Annotations[oldInjectCAFrom] != "" && p.needsBundle(o):
				p.findsCause(p.rule.Level, place{o, []any{"metadata", "annotations", oldInjectCAFrom}}, oldInjectCAFrom, o.String(), "cert-manager sets no caBundle in %s: since v0.11 it has not read the annotation %s; write %s", o, oldInjectCAFrom, InjectCAFrom)
			case from == "" || p.managed(o) || len(p.Written[o].Fields) == 0:
				// A patch of metadata, which has no webhooks, may be unused.
			case strings.Contains(from, "$("):
				p.findsCause(p.rule.Level, where, from, o.String(), "cert-manager sets no caBundle in %s: the annotation %s has the placeholder %s", o, InjectCAFrom, from)
			case !ok || namespace == "" || name == "":
				p.findsCause(p.rule.Level, where, from, o.String(), "cert-manager sets no caBundle in %s: the annotation %s is not NAMESPACE/NAME", o, InjectCAFrom)
			case p.Issued[types.NamespacedName{Namespace: namespace, Name: name}] == nil:
				if _, ok := p.Issued[types.NamespacedName{Name: name}]; ok {
					continue
				}
				for _, c := range slices.SortedFunc(maps.Keys(p.Issued), func(a, b types.NamespacedName) int { return cmp.Compare(a.String(), b.String()) }) {
					if c.Name == name && c.Namespace != baseNamespace {
						p.findsCause(p.rule.Level, where, from, o.String(), "cert-manager sets no caBundle in %s: the annotation %s names Certificate %s, and the files have %s", o, InjectCAFrom, from, c)
						break
					}
				}
			default:
				p.namesOther(o, where, from, p.Issued[types.NamespacedName{Namespace: namespace, Name: name}])
			}
		}
	},
}

// namesOther finds an object with a webhook behind a service that is none of the DNS names of its Certificate.
func (p *pass) namesOther(o Object, where place, certificate string, names []string) {
	for _, c := range p.clients() {
		if c.at.object != o || c.Service == nil || len(names) == 0 {
			continue
		}
		host := c.Service.Name + "." + c.Service.Namespace + ".svc"
		if _, domain, _ := strings.Cut(host, "."); !slices.Contains(names, host) && !slices.Contains(names, "*."+domain) {
			p.findsCause(p.rule.Level, where, certificate, o.String(), "the API server does not trust the webhooks of %s: Certificate %s, whose caBundle cert-manager sets, is for %s, and not for %s", o, certificate, few(names), host)
			return
		}
	}
}

var caBundleMismatch = &Rule{
	ID: "ca-bundle-mismatch", Level: Error,
	Reads: []Part{Certificates},
	check: eachClient(func(p *pass, c *client) {
		address := addressOf(c.ClientConfig)
		served, asked := p.Served[address]
		if !asked {
			return
		}
		if served.Untried {
			p.misses("%s presented no certificate: %v (%s)", address, served.Err, p.rule.ID)
		}
		if len(served.Chain) == 0 {
			return
		}
		if err := trust(c.ClientConfig, served.Chain, p.Now); err != nil {
			c.finds(p, p.rule.Level, c.under("caBundle"), address.String()+string(c.CABundle), "the API server does not trust the certificate of %s: %v", c.what, err)
		}
	}),
}

var certificateExpires = &Rule{
	ID: "certificate-expires", Level: Warning,
	Reads: []Part{Certificates},
	check: eachClient(func(p *pass, c *client) {
		address := addressOf(c.ClientConfig)
		chain := p.Served[address].Chain
		if len(chain) == 0 {
			return
		}
		// Certificates with a life of days are renewed automatically.
		left, life := chain[0].NotAfter.Sub(p.Now), chain[0].NotAfter.Sub(chain[0].NotBefore)
		if left > 0 && left < soon/2 && left < life/3 {
			c.finds(p, p.rule.Level, c.under(), address.String(), "the certificate that %s presents expires at %s", c.what, chain[0].NotAfter.UTC().Format(time.RFC3339))
		}
	}),
}

var webhookUnreachable = &Rule{
	ID: "webhook-unreachable", Level: Warning,
	Reads: []Part{Certificates},
	check: eachClient(func(p *pass, c *client) {
		address := addressOf(c.ClientConfig)
		if served := p.Served[address]; served.Err != nil && !served.Untried {
			c.finds(p, p.rule.Level, c.under(), address.String(), "%s presented no certificate at %s: %v", c.what, address, served.Err)
		}
	}),
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
