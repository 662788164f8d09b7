package lint

import "slices"

var serviceSelectsNothing = &Rule{
	ID: "service-selects-nothing", Level: Warning,
	Reads:  []Part{Services, Workloads},
	Title:  "The service of a webhook selects no workload",
	Why:    "No pod will ever be behind the service, and each call of the webhook fails.",
	Fix:    "Make the selector of the service match the labels of the pods' template.",
	Fails:  hook(validating, anyPod+outside+"failurePolicy: Fail\n") + serviceWithPort("443") + server("polices", 2),
	Passes: hook(validating, anyPod+outside+"failurePolicy: Fail\n") + serviceWithPort("443") + server("policies", 2),
	check: func(p *pass) {
		if !p.sees(Services) || !p.sees(Workloads) {
			return
		}
		for _, c := range p.clients() {
			name, inside := p.serviceOf(c.ClientConfig)
			s := p.Services[name]
			if !inside || s == nil || len(s.Spec.Selector) == 0 || len(p.behind(name)) > 0 {
				continue
			}
			// A repository need not have the workload. If it has any workload in the same
			// namespace, it should have this one.
			if p.Ready[name] > 0 || !p.hasWorkloads(name.Namespace) {
				continue
			}
			c.finds(p, p.rule.Level, c.under(), name.String(), "%s calls service %s, whose selector matches none of the workloads in namespace %s", c.what, name, name.Namespace)
		}
	},
}

func (p *pass) hasWorkloads(namespace string) bool {
	return slices.ContainsFunc(p.Workloads, func(w Workload) bool { return w.Namespace == namespace })
}

// server returns the Deployment of the examples, whose pods have the label app.
func server(app string, replicas int) string {
	return `---
apiVersion: apps/v1
kind: Deployment
metadata: {namespace: policies, name: policies}
spec:
  replicas: ` + string(rune('0'+replicas)) + `
  selector: {matchLabels: {app: ` + app + `}}
  template:
    metadata: {labels: {app: ` + app + `}}
    spec: {containers: [{name: server, image: registry.example.com/policies}]}
`
}
