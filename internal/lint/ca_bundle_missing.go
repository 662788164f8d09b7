package lint

import "k8s.io/apimachinery/pkg/types"

var caBundleMissing = &Rule{
	ID: "ca-bundle-missing", Level: Warning,
	Reads: []Part{Services, Workloads, Access},
	Title: "A webhook behind a service has no caBundle",
	Why: "The API server trusts the authorities of its machine then, and none of them signs certificates for the name of a service, NAME.NAMESPACE.svc. " +
		"Unless something sets the caBundle later, each call fails.",
	Fix: "Set clientConfig.caBundle, or have a controller set it, such as cert-manager with the annotation cert-manager.io/inject-ca-from. Among files, the rule " +
		"is silent if a role allows somebody to change the configuration, and if the files do not have the server.",
	Fails:  hook(validating, anyPod+outside+"failurePolicy: Ignore\n") + serviceWithPort("443") + server("policies", 2),
	Passes: bundled("policies", lasting),
	check: func(p *pass) {
		for _, c := range p.clients() {
			if c.Service == nil || len(c.CABundle) > 0 || c.mayBeSet(p) {
				continue
			}
			name := types.NamespacedName{Namespace: c.Service.Namespace, Name: c.Service.Name}
			if p.Partial && len(p.behind(name)) == 0 {
				// The files have only a part of a program. The rest may set the caBundle.
				p.misses("what may set the caBundle for service %s is in no file: %s", name, p.rule.ID)
				continue
			}
			c.finds(p, p.rule.Level, c.under(), name.String(), "%s calls service %s without a caBundle: the API server will not trust its certificate", c.what, name)
		}
	},
}
