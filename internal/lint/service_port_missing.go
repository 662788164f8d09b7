package lint

import (
	"cmp"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

var servicePortMissing = &Rule{
	ID: "service-port-missing", Level: Error,
	Reads:  []Part{Services},
	Title:  "A webhook calls a port that its service does not have",
	Why:    "Each call of the webhook fails.",
	Fix:    "Set clientConfig.service.port to a port of the service; the default is 443. It is the port of the service, not that of the pods.",
	Fails:  hook(validating, anyPod+outside+"failurePolicy: Fail\n") + serviceWithPort("8443"),
	Passes: hook(validating, anyPod+outside+"failurePolicy: Fail\n") + serviceWithPort("443"),
	check: func(p *pass) {
		for _, c := range p.clients() {
			if c.Service == nil || c.Service.Port == 0 {
				// A webhook without a port in its service is left out.
				continue
			}
			name, inside := p.serviceOf(c.ClientConfig)
			s := p.Services[name]
			if !inside || s == nil || s.Spec.Type == corev1.ServiceTypeExternalName {
				continue
			}
			if slices.ContainsFunc(s.Spec.Ports, func(port corev1.ServicePort) bool { return port.Port == c.Service.Port }) {
				continue
			}
			var ports []string
			for _, port := range s.Spec.Ports {
				ports = append(ports, fmt.Sprint(port.Port))
			}
			c.finds(p, p.rule.Level, c.under("service"), addressOf(c.ClientConfig).String(), "%s calls port %d of service %s, which has only %s", c.what, c.Service.Port, name, cmp.Or(and(ports), "no port"))
		}
	},
}

func serviceWithPort(port string) string {
	return `---
apiVersion: v1
kind: Service
metadata: {namespace: policies, name: policies}
spec: {selector: {app: policies}, ports: [{port: ` + port + `}]}
`
}
