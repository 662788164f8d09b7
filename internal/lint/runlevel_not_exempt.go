package lint

import (
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/gatehouse-dev/gatehouse/admission/snapshot"
)

var runlevelNotExempt = &Rule{
	ID: "runlevel-not-exempt", Level: Error, Advice: "webhook-limit-scope",
	Reads: []Part{Namespaces},
	Title: "A webhook intercepts pods of namespaces with run level 0 or 1",
	Why: "The labels runlevel and openshift.io/run-level mark the namespaces that start before all others. Their pods must not wait " +
		"for a webhook that starts later.",
	Fix: "Exclude these namespaces with a namespaceSelector: runlevel NotIn [\"0\", \"1\"].",
	Fails: hook(validating, anyPod+"failurePolicy: Fail\n"+outside) + `---
apiVersion: v1
kind: Namespace
metadata: {name: storage, labels: {runlevel: "1"}}
`,
	Passes: hook(validating, anyPod+`failurePolicy: Fail
namespaceSelector:
  matchExpressions:
  - {key: kubernetes.io/metadata.name, operator: NotIn, values: [kube-system, policies]}
  - {key: runlevel, operator: NotIn, values: ["0", "1"]}
`) + `---
apiVersion: v1
kind: Namespace
metadata: {name: storage, labels: {runlevel: "1"}}
`,
	check: func(p *pass) {
		found := map[*snapshot.Entry][]string{}
		var order []hit
		for _, name := range slices.Sorted(maps.Keys(p.Namespaces)) {
			label := runlevel(p.Namespaces[name])
			if label == "" || name == "kube-system" {
				continue
			}
			q := pod(name, "one", "", &corev1.PodTemplateSpec{})
			for _, h := range p.hits(q, func(e *snapshot.Entry) bool { return p.isWanted(e) && failsClosed(e) }) {
				if found[h.Entry] == nil {
					order = append(order, h)
				}
				found[h.Entry] = append(found[h.Entry], fmt.Sprintf("%s (%s)", name, label))
			}
		}
		for _, h := range order {
			p.findsAs(p.levelOf(h), at(h.Entry.Entry), "the webhook %s intercepts pods of namespace %s, %s%s",
				h.Name, few(found[h.Entry]), p.consequence(h.Entry), unless(h.unsure))
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
