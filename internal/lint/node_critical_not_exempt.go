package lint

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gatehouse-dev/gatehouse/admission/snapshot"
)

var nodeCriticalNotExempt = &Rule{
	ID: "node-critical-not-exempt", Level: Error, Advice: "avoid-dependency-loops",
	Reads: []Part{Namespaces, Workloads},
	Title: "A webhook intercepts pods that nodes need to become ready",
	Why: "A network plugin that runs in a namespace of its own is as necessary as one in kube-system. When its pods are lost, the webhook " +
		"cannot be reached; while the webhook cannot be reached and fails closed, its pods cannot be replaced. Admission judges pods in the " +
		"host's network, too.",
	Fix:   "Exclude the namespaces of network and storage plugins with a namespaceSelector.",
	Fails: hook(validating, anyPod+"failurePolicy: Fail\n"+outside) + "---\n" + networkPlugin,
	Passes: hook(validating, anyPod+"failurePolicy: Fail\n"+`namespaceSelector:
  matchExpressions:
  - {key: kubernetes.io/metadata.name, operator: NotIn, values: [kube-system, policies, network]}
`) + "---\n" + networkPlugin,
	check: func(p *pass) {
		found := map[*snapshot.Entry][]string{}
		var order []hit
		for i := range p.Workloads {
			w := &p.Workloads[i]
			if !w.nodeCritical() || w.Namespace == "kube-system" {
				continue
			}
			for _, h := range p.hits(pod(w.Namespace, w.Name, w.Kind, &w.Pods), func(e *snapshot.Entry) bool { return p.isWanted(e) && failsClosed(e) }) {
				if p.standsBehind(w, h.Entry) {
					continue
				}
				if found[h.Entry] == nil {
					order = append(order, h)
				}
				found[h.Entry] = append(found[h.Entry], fmt.Sprintf("%s %s/%s", w.Kind, w.Namespace, w.Name))
			}
		}
		for _, h := range order {
			p.findsAs(p.levelOf(h), at(h.Entry.Entry), "the webhook %s intercepts the pods of %s, which nodes need, %s%s",
				h.Name, few(found[h.Entry]), p.consequence(h.Entry), unless(h.unsure))
		}
	},
}

// nodeCritical reports whether nodes need the pods of a workload: they run on each node, and
// are declared critical for it, or write the configuration of its network.
func (w *Workload) nodeCritical() bool {
	spec := &w.Pods.Spec
	return w.Kind == "DaemonSet" && (spec.PriorityClassName == "system-node-critical" ||
		slices.ContainsFunc(spec.Volumes, func(v corev1.Volume) bool { return v.HostPath != nil && strings.Contains(v.HostPath.Path, "/cni") }))
}

// standsBehind reports whether a workload is the server of a webhook.
func (p *pass) standsBehind(w *Workload, e *snapshot.Entry) bool {
	name, inside := p.serviceOf(&e.ClientConfig)
	if !inside || name.Namespace != w.Namespace {
		return false
	}
	return slices.Contains(p.behind(name), w)
}

// behind returns the workloads whose pods a service selects.
func (p *pass) behind(service types.NamespacedName) []*Workload {
	s, ok := p.Services[service]
	if !ok || len(s.Spec.Selector) == 0 {
		return nil
	}
	var list []*Workload
	for i := range p.Workloads {
		if w := &p.Workloads[i]; w.Namespace == service.Namespace && selects(s.Spec.Selector, w.Pods.Labels) {
			list = append(list, w)
		}
	}
	return list
}

// selects reports whether a service selects pods with some labels.
func selects(selector, labels map[string]string) bool {
	for key, value := range selector {
		if labels[key] != value {
			return false
		}
	}
	return true
}

const networkPlugin = `apiVersion: apps/v1
kind: DaemonSet
metadata: {namespace: network, name: cni}
spec:
  selector: {matchLabels: {app: cni}}
  template:
    metadata: {labels: {app: cni}}
    spec:
      hostNetwork: true
      priorityClassName: system-node-critical
      containers: [{name: cni, image: registry.example.com/cni}]
`
