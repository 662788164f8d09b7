package lint

var caBundleMissing = &Rule{
	ID: "ca-bundle-missing", Level: Warning,
	Title: "A webhook behind a service has no caBundle",
	Why: "The API server trusts the authorities of its machine then, and none of them signs certificates for the name of a service, NAME.NAMESPACE.svc. " +
		"Unless something sets the caBundle later, each call fails.",
	Fix:    "Set clientConfig.caBundle, or have a controller set it, such as cert-manager with the annotation cert-manager.io/inject-ca-from.",
	Fails:  hook(validating, anyPod+outside+"failurePolicy: Ignore\n"),
	Passes: bundled("policies", lasting),
	check: func(p *pass) {
		for _, c := range p.clients() {
			if c.Service == nil || len(c.CABundle) > 0 || c.promised && p.Partial {
				continue
			}
			p.finds(c.under(), "%s calls service %s/%s without a caBundle: the API server will not trust its certificate", c.what, c.Service.Namespace, c.Service.Name)
		}
	},
}
