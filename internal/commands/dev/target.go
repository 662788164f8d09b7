package dev

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/gatehouse-dev/gatehouse/internal/commands/dev/container"
)

// target is a program as the manifests describe it.
type target struct {
	// services are the services of the program. Their webhooks are called at port; 0 means that the program serves none.
	services []types.NamespacedName
	port     int
	// workload creates the pods behind the services, from template, with the program in container. All are nil if the
	// manifests have no such workload.
	workload  *unstructured.Unstructured
	template  *corev1.PodTemplateSpec
	container *corev1.Container
}

// name returns a short name for the program in messages.
func (t *target) name() string {
	switch {
	case t.workload != nil:
		return t.workload.GetName()
	case len(t.services) > 0:
		return t.services[0].Name
	}
	return "program"
}

// namespace returns the namespace of the program's pod.
func (t *target) namespace() string {
	switch {
	case t.workload != nil:
		return nameOf(t.workload).Namespace
	case len(t.services) > 0:
		return t.services[0].Namespace
	}
	return metav1.NamespaceDefault
}

// choose finds the programs: the workloads behind the services of the registrations. named and port come from the command
// line; zero values mean not given. alone requires that there is a single program.
func (p *project) choose(named string, port int, alone bool) error {
	var found []types.NamespacedName
	here := 0
	for _, u := range p.objects {
		for _, c := range clients(u) {
			at, ok := c.localPort()
			switch service := c.service(); {
			case ok:
				here = cmp.Or(here, at)
			case service.Name != "" && !slices.Contains(found, service):
				found = append(found, service)
			}
		}
	}
	if named != "" {
		namespace, name, ok := strings.Cut(named, "/")
		if !ok {
			return fmt.Errorf("--service %q is not of the form NAMESPACE/NAME", named)
		}
		found = []types.NamespacedName{{Namespace: namespace, Name: name}}
	}
	p.targets = nil
	if len(found) == 0 && here == 0 {
		// The program registers its webhooks itself, or has none.
		found = p.only()
	}
	for _, service := range found {
		if err := p.add(service); err != nil {
			return err
		}
	}
	unknown := slices.ContainsFunc(p.targets, func(t *target) bool { return t.workload == nil })
	if len(p.targets) > 1 && (alone || unknown || port != 0) {
		names := make([]string, len(found))
		for i := range found {
			names[i] = found[i].String()
		}
		return fmt.Errorf("the registrations name several services (%s): say with --service which one the program replaces", strings.Join(names, ", "))
	}
	if len(p.targets) == 0 {
		p.targets = []*target{{}}
	}
	first := p.targets[0]
	if port = cmp.Or(port, here); port != 0 && len(p.targets) == 1 {
		first.port = port
	} else if len(found) > 0 {
		for _, t := range p.targets {
			t.port = cmp.Or(t.port, defaultPort)
		}
	}
	return nil
}

// add adds a service to the program of its workload, or a new program.
func (p *project) add(service types.NamespacedName) error {
	t := &target{services: []types.NamespacedName{service}}
	for _, u := range p.objects {
		if u.GetKind() != "Service" || nameOf(u) != service {
			continue
		}
		for _, w := range p.objects {
			template, err := behind(u, w)
			if err != nil {
				return err
			}
			if template != nil {
				t.workload, t.template = w, template
				break
			}
		}
		if t.workload != nil && t.workload.GetNamespace() == "" {
			p.place(service.Namespace)
		}
		at := targetPort(u)
		t.port = int(at.IntVal)
		if t.template == nil {
			break
		}
		t.container = container.Behind(t.template, at)
		if at.Type == intstr.String && t.container != nil {
			for _, port := range t.container.Ports {
				if port.Name == at.StrVal {
					t.port = int(port.ContainerPort)
				}
			}
		}
	}
	for _, other := range p.targets {
		if t.workload != nil && other.workload == t.workload {
			other.services = append(other.services, service)
			return nil
		}
	}
	p.targets = append(p.targets, t)
	return nil
}

// leave removes the programs of services.
func (p *project) leave(services []types.NamespacedName) {
	p.targets = slices.DeleteFunc(p.targets, func(t *target) bool {
		return slices.ContainsFunc(t.services, func(service types.NamespacedName) bool { return slices.Contains(services, service) })
	})
}

// placed are the kinds of objects that belong to a workload.
var placed = []string{"Deployment", "StatefulSet", "DaemonSet", "ReplicaSet", "Pod", "Service", "ServiceAccount", "ConfigMap", "Secret", "Role", "RoleBinding"}

// place puts the objects without a namespace into a namespace, as people apply them there.
func (p *project) place(namespace string) {
	for _, u := range p.objects {
		if u.GetNamespace() == "" && slices.Contains(placed, u.GetKind()) {
			u.SetNamespace(namespace)
		}
	}
}

// ofWebhooks reports whether a port of a service may be the one for webhooks.
func ofWebhooks(port any) bool {
	at := number(port, "port")
	return at == 443 || at == defaultPort
}

// only returns the services with a port for webhooks of the only workload; none if there are several workloads.
func (p *project) only() (found []types.NamespacedName) {
	var only *unstructured.Unstructured
	for _, u := range p.objects {
		if u.GetKind() != "Service" || !slices.ContainsFunc(list(u.Object, "spec", "ports"), ofWebhooks) {
			continue
		}
		for _, w := range p.objects {
			template, err := behind(u, w)
			switch {
			case err != nil || template == nil:
			case only != nil && only != w:
				return nil
			default:
				only, found = w, append(found, nameOf(u))
			}
		}
	}
	return found
}

// targetPort returns the port of the pods behind a service: of its port for webhooks, or of its only port.
func targetPort(service *unstructured.Unstructured) intstr.IntOrString {
	ports := list(service.Object, "spec", "ports")
	for _, port := range ports {
		if !ofWebhooks(port) && len(ports) > 1 {
			continue
		}
		if name := text(port, "targetPort"); name != "" {
			return intstr.Parse(name)
		}
		return intstr.FromInt32(int32(cmp.Or(number(port, "targetPort"), number(port, "port"))))
	}
	return intstr.IntOrString{}
}

// behind returns the pod template of an object that creates the pods of a service; nil for other objects.
func behind(service, u *unstructured.Unstructured) (*corev1.PodTemplateSpec, error) {
	selector, _, _ := unstructured.NestedStringMap(service.Object, "spec", "selector")
	if len(selector) == 0 || u.GetNamespace() != "" && u.GetNamespace() != nameOf(service).Namespace {
		return nil, nil
	}
	template, err := container.Template(u)
	if err != nil || template == nil || !labels.SelectorFromSet(selector).Matches(labels.Set(template.Labels)) {
		return nil, err
	}
	return template, nil
}
