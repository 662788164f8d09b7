package lint

import (
	"k8s.io/apiserver/pkg/admission"

	"github.com/gatehouse-dev/gatehouse/admission/snapshot"
)

var mutatesMirrorPods = &Rule{
	ID: "mutates-mirror-pods", Level: Note, Advice: "dont-change-immutable-objects",
	Reads: []Part{Namespaces},
	Title: "A mutating webhook intercepts mirror pods and other pods of kube-system",
	Why: "A mirror pod shows a static pod that runs already. Changes of it never reach that pod, and a kubelet whose mirror pod is rejected or changed tries " +
		"again for ever.",
	Fix: "Exclude the namespaces in which static pods run, usually kube-system; or spare mirror pods with a match condition: " +
		"!('kubernetes.io/config.mirror' in object.metadata.?annotations.orValue({})).",
	Fails:  hook(mutating, anyPod+"failurePolicy: Ignore\n"),
	Passes: hook(mutating, anyPod+outside+"failurePolicy: Ignore\n"),
	check: func(p *pass) {
		mirror := request(admission.Create, target{"", "v1", "Pod", "pods", "", "kube-system", "kube-apiserver-node-1"}, node, map[string]any{
			"metadata": map[string]any{
				"labels":      map[string]any{"component": "kube-apiserver", "tier": "control-plane"},
				"annotations": map[string]any{"kubernetes.io/config.mirror": "0", "kubernetes.io/config.source": "file"},
			},
			"spec": map[string]any{"nodeName": "node-1", "containers": []any{map[string]any{"name": "kube-apiserver", "image": "kube-apiserver"}}},
		})
		// Rule control-plane-not-exempt says so of webhooks that fail closed, and wildcard-everything of
		// those that want everything.
		wanted := func(e *snapshot.Entry) bool { return mutates(e) && !failsClosed(e) && !hasWildcard(e) }
		for _, i := range p.interceptors([]*probe{mirror}, wanted) {
			p.finds(at(i.Entry.Entry), "the mutating webhook %s intercepts pods of kube-system, mirror pods of static pods among them, and delays each by up to %s when it cannot be reached%s",
				i.Name, i.Timeout, unless(i.unsure))
		}
	},
}
