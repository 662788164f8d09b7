package lint

import corev1 "k8s.io/api/core/v1"

var serviceNoEndpoints = &Rule{
	ID: "service-no-endpoints", Level: Error,
	Reads: []Part{Services, Endpoints},
	Title: "No pod is ready behind the service of a webhook",
	Why:   "Each call of the webhook fails until one is. If it fails closed, what it intercepts is rejected now.",
	Fix:   "Look at the pods behind the service. To let requests through meanwhile, set failurePolicy to Ignore or delete the configuration.",
	Fails: hook(validating, anyPod+outside+"failurePolicy: Fail\n") + serviceWithPort("443") + `---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {namespace: policies, name: policies-1, labels: {kubernetes.io/service-name: policies}}
addressType: IPv4
endpoints:
- {addresses: [10.0.0.1], conditions: {ready: false}}
`,
	Passes: hook(validating, anyPod+outside+"failurePolicy: Fail\n") + serviceWithPort("443") + `---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {namespace: policies, name: policies-1, labels: {kubernetes.io/service-name: policies}}
addressType: IPv4
endpoints:
- {addresses: [10.0.0.1], conditions: {ready: true}}
`,
	check: func(p *pass) {
		if !p.sees(Endpoints) {
			return
		}
		for _, c := range p.clients() {
			name, inside := p.serviceOf(c.ClientConfig)
			s := p.Services[name]
			if !inside || s == nil || s.Spec.Type == corev1.ServiceTypeExternalName {
				continue
			}
			ready, known := p.Ready[name]
			if ready > 0 || !known && p.Partial {
				continue
			}
			level := Warning
			if c.closed {
				level = Error
			}
			c.finds(p, level, c.under(), name.String(), "%s calls service %s, which has no ready endpoint", c.what, name)
		}
	},
}
