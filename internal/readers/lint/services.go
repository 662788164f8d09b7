package lint

import (
	"cmp"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gatehouse-dev/gatehouse/admission/registration"
)

var serviceMissing = &Rule{
	ID: "service-missing", Level: Error,
	Reads: []Part{Services},
	check: eachClient(func(p *pass, c *client) {
		if !p.sees(Services) {
			return
		}
		name, inside := p.serviceOf(c.ClientConfig)
		if !inside || p.service(name) != nil {
			return
		}
		switch {
		case !p.Partial && c.closed:
			c.finds(p, p.rule.Level, c.under(), name.String(), "%s calls service %s, which does not exist, and fails closed: the requests that it intercepts are rejected", c.what, name)
		case !p.Partial:
			c.finds(p, Warning, c.under(), name.String(), "%s calls service %s, which does not exist", c.what, name)
		case p.hasServices(name):
			c.finds(p, Warning, c.under(), name.String(), "%s calls service %s; the files have other services of namespace %s, and not this one", c.what, name, name.Namespace)
		case name.Namespace == baseNamespace && p.Kustomized:
			p.misses("service %s has the namespace of a base: a kustomization may set another (%s)", name, p.rule.ID)
		case p.elsewhere(name) != "":
			c.finds(p, Warning, c.under(), name.String(), "%s calls service %s; the files have a service of that name in namespace %s, and none in %s", c.what, name, p.elsewhere(name), name.Namespace)
		default:
			p.misses("service %s, which webhooks call, is in no file", name)
		}
	}),
}

// service returns a service; nil if it is not known.
func (p *pass) service(name types.NamespacedName) *corev1.Service {
	if s := p.Services[name]; s != nil {
		return s
	}
	return p.Services[types.NamespacedName{Name: name.Name}]
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

// elsewhere returns the only other namespace with a service of the same name; empty if there is none.
func (p *pass) elsewhere(name types.NamespacedName) string {
	found := ""
	for other := range p.Services {
		if other.Name == name.Name {
			if found != "" {
				return ""
			}
			found = other.Namespace
		}
	}
	return found
}

var servicePortMissing = &Rule{
	ID: "service-port-missing", Level: Error,
	Reads: []Part{Services},
	check: eachClient(func(p *pass, c *client) {
		if c.Service == nil || c.Service.Port == 0 {
			// A webhook without a port in its service is omitted.
			return
		}
		name, inside := p.serviceOf(c.ClientConfig)
		s := p.service(name)
		if !inside || s == nil || s.Spec.Type == corev1.ServiceTypeExternalName {
			return
		}
		if slices.ContainsFunc(s.Spec.Ports, func(port corev1.ServicePort) bool { return port.Port == c.Service.Port }) {
			return
		}
		var ports []string
		for _, port := range s.Spec.Ports {
			ports = append(ports, fmt.Sprint(port.Port))
		}
		c.finds(p, p.rule.Level, c.under("service"), addressOf(c.ClientConfig).String(), "%s calls port %d of service %s, which has only %s", c.what, c.Service.Port, name, cmp.Or(and(ports), "no port"))
	}),
}

var serviceNoEndpoints = &Rule{
	ID: "service-no-endpoints", Level: Error,
	Reads: []Part{Services, Endpoints},
	check: eachClient(func(p *pass, c *client) {
		if !p.sees(Endpoints) {
			return
		}
		name, inside := p.serviceOf(c.ClientConfig)
		s := p.service(name)
		if !inside || s == nil || s.Spec.Type == corev1.ServiceTypeExternalName {
			return
		}
		ready, known := p.Ready[name]
		if ready > 0 || !known && p.Partial {
			return
		}
		level := Warning
		if c.closed {
			level = Error
		}
		c.finds(p, level, c.under(), name.String(), "%s calls service %s, which has no ready endpoint", c.what, name)
	}),
}

var serviceSelectsNothing = &Rule{
	ID: "service-selects-nothing", Level: Warning,
	Reads: []Part{Services, Workloads},
	check: eachClient(func(p *pass, c *client) {
		if !p.sees(Services) || !p.sees(Workloads) {
			return
		}
		name, inside := p.serviceOf(c.ClientConfig)
		s := p.service(name)
		if !inside || s == nil || len(s.Spec.Selector) == 0 || len(p.behind(name)) > 0 {
			return
		}
		// A repository need not have the workload. If it has any workload in the same namespace, it
		// should have this one.
		if p.Ready[name] > 0 || !p.hasWorkloads(name.Namespace) {
			return
		}
		c.finds(p, p.rule.Level, c.under(), name.String(), "%s calls service %s, whose selector matches none of the workloads in namespace %s", c.what, name, name.Namespace)
	}),
}

func (p *pass) hasWorkloads(namespace string) bool {
	return slices.ContainsFunc(p.Workloads, func(w Workload) bool { return w.Namespace == namespace && !w.Anywhere })
}

// rare are resources that an installation writes, and hardly anything later.
var rare = []string{"storageclasses", "volumeattributesclasses", "csidrivers", "priorityclasses", "runtimeclasses", "ingressclasses"}

// onlyRare reports whether rules are only about resources in rare.
func onlyRare(rules []registration.Rule) bool {
	return !slices.ContainsFunc(rules, func(r registration.Rule) bool {
		return slices.ContainsFunc(r.Resources, func(resource string) bool { return !slices.Contains(rare, resource) })
	})
}

// aboutPods reports whether a rule is about pods: the pods of namespaces that opt in include pods of any program.
func aboutPods(rules []registration.Rule) bool {
	return slices.ContainsFunc(rules, func(r registration.Rule) bool {
		return slices.Contains(r.Resources, "pods") || slices.Contains(r.Resources, "*") || slices.Contains(r.Resources, "*/*")
	})
}

var singleReplica = &Rule{
	ID: "single-replica", Level: Warning, Advice: "load-balancer-webhook",
	Reads: []Part{Services, Workloads},
	check: eachClient(func(p *pass, c *client) {
		name, inside := p.serviceOf(c.ClientConfig)
		if !inside || !c.closed || c.own {
			return
		}
		total, nodes := 0, false
		behind := p.behind(name)
		for _, w := range behind {
			total += max(w.Replicas, 0)
			nodes = nodes || w.Replicas < 0 || w.Recreated
		}
		if len(behind) > 0 && !nodes && total < 2 {
			c.finds(p, p.rule.Level, c.under(), name.String(), "%s fails closed, and service %s has %d replica behind it (%s)", c.what, name, total, behind[0])
		}
	}),
}
