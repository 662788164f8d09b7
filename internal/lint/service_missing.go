package lint

import (
	"k8s.io/apimachinery/pkg/types"
)

var serviceMissing = &Rule{
	ID: "service-missing", Level: Error,
	Reads: []Part{Services},
	Title: "A webhook calls a service that does not exist",
	Why:   "Each call of the webhook fails. It is often what remains of a program that was removed.",
	Fix:   "Delete the configuration, or create the service. Among files, a service that is missing is no more than a warning.",
	Fails: hook(validating, anyPod+outside+"failurePolicy: Fail\n") + `---
apiVersion: v1
kind: Service
metadata: {namespace: policies, name: polices}
spec: {selector: {app: policies}, ports: [{port: 443}]}
`,
	Passes: hook(validating, anyPod+outside+"failurePolicy: Fail\n") + `---
apiVersion: v1
kind: Service
metadata: {namespace: policies, name: policies}
spec: {selector: {app: policies}, ports: [{port: 443}]}
`,
	check: func(p *pass) {
		if !p.sees(Services) {
			return
		}
		for _, c := range p.clients() {
			name, inside := p.serviceOf(c.ClientConfig)
			if !inside || p.Services[name] != nil {
				continue
			}
			switch {
			case !p.Partial && c.closed:
				c.finds(p, p.rule.Level, c.under(), name.String(), "%s calls service %s, which does not exist, and fails closed: the requests that it intercepts are rejected", c.what, name)
			case !p.Partial:
				c.finds(p, Warning, c.under(), name.String(), "%s calls service %s, which does not exist", c.what, name)
			case p.hasServices(name):
				c.finds(p, Warning, c.under(), name.String(), "%s calls service %s; the files have other services of namespace %s, and not this one", c.what, name, name.Namespace)
			default:
				p.misses("service %s, which webhooks call, is in no file", name)
			}
		}
	},
}

// hasServices reports whether services of the same namespace are known.
func (p *pass) hasServices(name types.NamespacedName) bool {
	for other := range p.Services {
		if other.Namespace == name.Namespace {
			return true
		}
	}
	return false
}
