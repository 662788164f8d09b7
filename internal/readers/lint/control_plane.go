package lint

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/gatehouse-dev/gatehouse/admission/registration"
	"github.com/gatehouse-dev/gatehouse/admission/snapshot"
	"github.com/gatehouse-dev/gatehouse/internal/readers/report"
)

// intercepted is a webhook and the probes to which it applies.
type intercepted struct {
	hit
	// probes describe the intercepted requests, each once.
	probes []string
}

// interceptors returns the webhooks that satisfy want and apply to any of the probes. A webhook that the workload
// of a probe serves does not count for that probe.
func (p *pass) interceptors(probes []*probe, want func(*snapshot.Entry) bool) []*intercepted {
	var list []*intercepted
	of := map[*snapshot.Entry]*intercepted{}
	for _, q := range probes {
		for _, h := range p.hits(q, func(e *snapshot.Entry) bool {
			return p.isWanted(e) && want(e) && (q.workload == nil || !p.standsBehind(q.workload, e))
		}) {
			i := of[h.Entry]
			if i == nil {
				i = &intercepted{hit: h}
				of[h.Entry] = i
				list = append(list, i)
			}
			if h.unsure == "" {
				// One probe to which the webhook certainly applies is enough.
				i.unsure = ""
			}
			if !slices.Contains(i.probes, q.what) {
				i.probes = append(i.probes, q.what)
			}
		}
	}
	return list
}

// closed returns a level for webhooks that fail closed. It is not Error if the hit depends on a part that cannot be
// seen.
func closed(h hit, level report.Level) report.Level {
	if h.unsure != "" && level == Error {
		return Warning
	}
	return level
}

func mutates(e *snapshot.Entry) bool { return e.Source == registration.Mutating }

var controlPlaneNotExempt = &Rule{
	ID: "control-plane-not-exempt", Level: Error, Advice: "webhook-limit-scope", OnWrite: true,
	Reads: []Part{Namespaces},
	check: func(p *pass) {
		q := pod("kube-system", "network", "DaemonSet", &corev1.PodTemplateSpec{})
		for _, h := range p.hits(q, p.isWanted) {
			// Rules wildcard-everything and mutates-mirror-pods report webhooks that fail open.
			if !failsClosed(h.Entry) && (hasWildcard(h.Entry) || mutates(h.Entry) || h.Timeout <= longTimeout) {
				continue
			}
			p.findsAs(p.levelOf(h), at(h.Entry.Entry), "the webhook %s intercepts the %s, %s%s", h.Name, q.what, p.consequence(h.Entry), unless(h.unsure))
		}
	},
}

// levelOf returns the level of the finding that a webhook intercepts a request that the cluster needs. Only a
// webhook that runs in the cluster and fails closed blocks its own recovery.
func (p *pass) levelOf(h hit) report.Level {
	_, inside := p.serviceOf(&h.ClientConfig)
	switch {
	case !failsClosed(h.Entry):
		return Note
	case !inside || h.unsure != "":
		return Warning
	}
	return Error
}

// consequence describes the effect on an intercepted request when the webhook is down.
func (p *pass) consequence(e *snapshot.Entry) string {
	_, inside := p.serviceOf(&e.ClientConfig)
	switch {
	case e.FailurePolicy != registration.Fail:
		return fmt.Sprintf("and delays it by up to %s when it cannot be reached", e.Timeout)
	case inside:
		return "fails closed and runs in the cluster: while it cannot be reached, these pods cannot be replaced"
	}
	return "and fails closed: while it cannot be reached, these pods cannot be replaced"
}

var nodeCriticalNotExempt = &Rule{
	ID: "node-critical-not-exempt", Level: Error, Advice: "avoid-dependency-loops",
	Reads: []Part{Namespaces, Workloads},
	check: func(p *pass) {
		var probes []*probe
		for i := range p.Workloads {
			if w := &p.Workloads[i]; w.nodeCritical() && w.Namespace != "kube-system" {
				q := pod(w.Namespace, w.Name, w.Kind, &w.Pods)
				q.what, q.workload = fmt.Sprintf("%s %s/%s", w.Kind, w.Namespace, w.Name), w
				probes = append(probes, q)
			}
		}
		for _, i := range p.interceptors(probes, failsClosed) {
			p.findsAs(p.levelOf(i.hit), at(i.Entry.Entry), "the webhook %s intercepts the pods of %s, which nodes need, %s%s",
				i.Name, few(i.probes), p.consequence(i.Entry), unless(i.unsure))
		}
	},
}

// nodeCritical reports whether nodes need the pods of a workload: they run on each node, and are declared critical
// for it, or write the configuration of its network.
func (w *Workload) nodeCritical() bool {
	spec := &w.Pods.Spec
	return w.Kind == "DaemonSet" && (spec.PriorityClassName == "system-node-critical" ||
		slices.ContainsFunc(spec.Volumes, func(v corev1.Volume) bool { return v.HostPath != nil && strings.Contains(v.HostPath.Path, "/cni") }))
}

// standsBehind reports whether a workload serves a webhook.
func (p *pass) standsBehind(w *Workload, e *snapshot.Entry) bool {
	name, inside := p.serviceOf(&e.ClientConfig)
	if !inside || !w.isIn(name.Namespace) {
		return false
	}
	return slices.Contains(p.behind(name), w)
}

// behind returns the workloads whose pods a service selects.
func (p *pass) behind(service types.NamespacedName) []*Workload {
	s := p.service(service)
	if s == nil || len(s.Spec.Selector) == 0 {
		return nil
	}
	var list []*Workload
	for i := range p.Workloads {
		if w := &p.Workloads[i]; w.isIn(service.Namespace) && selects(s.Spec.Selector, w.Pods.Labels) {
			list = append(list, w)
		}
	}
	return list
}

// isIn reports whether a workload may be in a namespace.
func (w *Workload) isIn(namespace string) bool { return w.Anywhere || w.Namespace == namespace }

// selects reports whether a service selects pods with some labels.
func selects(selector, labels map[string]string) bool {
	for key, value := range selector {
		if labels[key] != value {
			return false
		}
	}
	return true
}

var runlevelNotExempt = &Rule{
	ID: "runlevel-not-exempt", Level: Error, Advice: "webhook-limit-scope",
	Reads: []Part{Namespaces},
	check: func(p *pass) {
		var probes []*probe
		for _, name := range slices.Sorted(maps.Keys(p.Namespaces)) {
			if label := runlevel(p.Namespaces[name]); label != "" && name != "kube-system" {
				q := pod(name, "one", "", &corev1.PodTemplateSpec{})
				q.what = fmt.Sprintf("%s (%s)", name, label)
				probes = append(probes, q)
			}
		}
		for _, i := range p.interceptors(probes, failsClosed) {
			p.findsAs(p.levelOf(i.hit), at(i.Entry.Entry), "the webhook %s intercepts pods of namespace %s, %s%s",
				i.Name, few(i.probes), p.consequence(i.Entry), unless(i.unsure))
		}
	},
}

// runlevel returns the label of a namespace whose pods start first, as key=value.
func runlevel(labels map[string]string) string {
	for _, key := range []string{"runlevel", "openshift.io/run-level"} {
		if value := labels[key]; value == "0" || value == "1" {
			return key + "=" + value
		}
	}
	return ""
}

var failOnNodes = &Rule{
	ID: "fail-on-nodes", Level: Error, Advice: "webhook-limit-scope", OnWrite: true,
	check: func(p *pass) {
		of := func(sub string) target {
			return target{version: "v1", kind: "Node", resource: "nodes", sub: sub, name: "node-1"}
		}
		csr := func(sub string) target {
			return target{group: "certificates.k8s.io", version: "v1", kind: "CertificateSigningRequest", resource: "certificatesigningrequests", sub: sub, name: "node-csr-1"}
		}
		content := map[string]any{"metadata": map[string]any{"labels": map[string]any{"kubernetes.io/hostname": "node-1"}}}
		probes := []*probe{
			request(admission.Create, of(""), node, content),
			request(admission.Update, of(""), node, content),
			request(admission.Update, of("status"), node, content),
			request(admission.Create, csr(""), bootstrapping, nil),
			request(admission.Update, csr("approval"), controller("certificate-controller"), nil),
			request(admission.Update, csr("status"), controller("certificate-controller"), nil),
		}
		for _, i := range p.interceptors(probes, failsClosed) {
			level := Warning
			if _, inside := p.serviceOf(&i.ClientConfig); inside {
				level = Error
			}
			p.findsAs(closed(i.hit, level), at(i.Entry.Entry), "the webhook %s fails closed and intercepts the %s: while it cannot be reached, nodes cannot do this%s",
				i.Name, few(i.probes), unless(i.unsure))
		}
	},
}

// patience is the time that the controller manager and the scheduler wait for the renewal of their leases.
const patience = 5 * time.Second

var failOnLeases = &Rule{
	ID: "fail-on-leases", Level: Error, Advice: "webhook-limit-scope", OnWrite: true,
	Reads: []Part{Namespaces},
	check: func(p *pass) {
		lease := func(o admission.Operation, namespace, name string, by user.Info) *probe {
			return request(o, target{"coordination.k8s.io", "v1", "Lease", "leases", "", namespace, name}, by, nil)
		}
		probes := []*probe{
			lease(admission.Create, "kube-node-lease", "node-1", node),
			lease(admission.Update, "kube-node-lease", "node-1", node),
			lease(admission.Update, "kube-system", "kube-controller-manager", manager),
			lease(admission.Update, "kube-system", "kube-scheduler", scheduler),
			lease(admission.Update, "kube-system", "apiserver-1", apiServer),
		}
		for _, i := range p.interceptors(probes, func(e *snapshot.Entry) bool { return true }) {
			level, consequence := Error, "fails closed: while it cannot be reached, nodes are lost and the control plane stops"
			switch {
			case failsClosed(i.Entry):
			case i.Timeout >= patience:
				level, consequence = Warning, "and may take "+i.Timeout.String()+", which is longer than a renewal may take"
			case mutates(i.Entry):
				level, consequence = Warning, "and may change it; leases of nodes must not be changed"
			case hasWildcard(i.Entry):
				// Rule wildcard-everything reports this for all resources.
				continue
			default:
				level, consequence = Note, "and delays it when it cannot be reached"
			}
			p.findsAs(closed(i.hit, level), at(i.Entry.Entry), "the webhook %s intercepts the %s, %s%s", i.Name, few(i.probes), consequence, unless(i.unsure))
		}
	},
}

var apiServerStart = &Rule{
	ID: "api-server-start", Level: Warning,
	Reads: []Part{Namespaces},
	check: func(p *pass) {
		var probes []*probe
		const rbac = "rbac.authorization.k8s.io"
		const flow = "flowcontrol.apiserver.k8s.io"
		for _, t := range []target{
			{rbac, "v1", "ClusterRole", "clusterroles", "", "", "cluster-admin"},
			{rbac, "v1", "ClusterRoleBinding", "clusterrolebindings", "", "", "cluster-admin"},
			{rbac, "v1", "Role", "roles", "", "kube-system", "extension-apiserver-authentication-reader"},
			{rbac, "v1", "RoleBinding", "rolebindings", "", "kube-system", "system:extension-apiserver-authentication-reader"},
			{"scheduling.k8s.io", "v1", "PriorityClass", "priorityclasses", "", "", "system-node-critical"},
			{flow, "v1", "FlowSchema", "flowschemas", "", "", "system-nodes"},
			{flow, "v1", "PriorityLevelConfiguration", "prioritylevelconfigurations", "", "", "node-high"},
		} {
			probes = append(probes, request(admission.Create, t, apiServer, nil), request(admission.Update, t, apiServer, nil))
		}
		for _, i := range p.interceptors(probes, failsClosed) {
			p.finds(at(i.Entry.Entry), "the webhook %s fails closed and intercepts the %s by the API server itself: while it cannot be reached, an API server that has to do so, such as one of a new release, does not become ready%s",
				i.Name, few(i.probes), unless(i.unsure))
		}
	},
}

var mutatesMirrorPods = &Rule{
	ID: "mutates-mirror-pods", Level: Note, Advice: "dont-change-immutable-objects",
	Reads: []Part{Namespaces},
	check: func(p *pass) {
		mirror := request(admission.Create, target{"", "v1", "Pod", "pods", "", "kube-system", "kube-apiserver-node-1"}, node, map[string]any{
			"metadata": map[string]any{
				"labels":      map[string]any{"component": "kube-apiserver", "tier": "control-plane"},
				"annotations": map[string]any{"kubernetes.io/config.mirror": "0", "kubernetes.io/config.source": "file"},
			},
			"spec": map[string]any{"nodeName": "node-1", "containers": []any{map[string]any{"name": "kube-apiserver", "image": "kube-apiserver"}}},
		})
		// Rule control-plane-not-exempt reports webhooks that fail closed, and wildcard-everything reports webhooks
		// that match everything.
		wanted := func(e *snapshot.Entry) bool {
			return mutates(e) && !failsClosed(e) && !hasWildcard(e) && e.Timeout > longTimeout
		}
		for _, i := range p.interceptors([]*probe{mirror}, wanted) {
			p.finds(at(i.Entry.Entry), "the mutating webhook %s intercepts pods of kube-system, mirror pods of static pods among them, and delays each by up to %s when it cannot be reached%s",
				i.Name, i.Timeout, unless(i.unsure))
		}
	},
}
