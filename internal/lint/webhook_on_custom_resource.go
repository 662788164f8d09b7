package lint

import (
	"slices"
	"strings"

	"k8s.io/apiserver/pkg/admission"

	"github.com/gatehouse-dev/gatehouse/admission/plan"
	"github.com/gatehouse-dev/gatehouse/admission/snapshot"
)

var webhookOnCustomResource = &Rule{
	ID: "webhook-on-custom-resource", Level: Note, Advice: "no-crd-validation-defaulting",
	Reads: []Part{Kinds},
	Title: "A webhook that may be skipped is all that validates a custom resource",
	Why: "The webhook has failurePolicy Ignore, and the CustomResourceDefinition has no validation rules of its own. The API server applies such rules without a call, and " +
		"they hold while the webhook is down.",
	Fix:    "Move what can be said there into x-kubernetes-validations of the definition's schema.",
	Fails:  hook(validating, widgetRule+"failurePolicy: Ignore\n") + widgets,
	Passes: hook(validating, widgetRule+"failurePolicy: Ignore\n") + strings.Replace(widgets, "type: object,", "type: object, x-kubernetes-validations: [{rule: \"has(self.spec)\"}],", 1),
	check: func(p *pass) {
		builtin := p.builtin()
		p.webhooks(func(e *snapshot.Entry) {
			if failsClosed(e) || mutates(e) || isAbout(e, builtin) {
				return
			}
			var names []string
			for i := range p.Resources {
				r := &p.Resources[i]
				if !r.Custom || r.Ruled || slices.Contains(names, r.Resource) {
					continue
				}
				q := plan.Request{Operation: admission.Create, Resource: r.GroupVersionResource, Kind: r.Kind, Namespace: p.someNamespace(r), Name: "one"}
				if matchesAny(e.Rules, &q) {
					names = append(names, r.Resource)
				}
			}
			if len(names) > 0 {
				p.findsCause(Note, at(e.Entry), e.Configuration, "the webhook "+e.Name, "the webhook %s may be skipped, and is all that validates %s: no definition of them has rules", e.Name, few(names))
			}
		})
	},
}

const widgetRule = "rules:\n- {apiGroups: [example.com], apiVersions: [v1], operations: [CREATE], resources: [widgets]}\n"

const widgets = `---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {kind: Widget, plural: widgets}
  versions:
  - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}
`
