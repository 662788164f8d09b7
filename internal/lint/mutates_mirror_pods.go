package lint

import (
	"k8s.io/apiserver/pkg/admission"
)

var mutatesMirrorPods = &Rule{
	ID: "mutates-mirror-pods", Level: Note, Advice: "dont-change-immutable-objects",
	Reads: []Part{Namespaces},
	Title: "A mutating webhook intercepts mirror pods",
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
		for _, i := range p.interceptors([]*probe{mirror}, mutates) {
			p.finds(at(i.Entry.Entry), "the mutating webhook %s intercepts mirror pods of static pods in kube-system%s", i.Name, unless(i.unsure))
		}
	},
}
