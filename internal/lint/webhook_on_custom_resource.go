package lint

import (
	"slices"

	"github.com/gatehouse-dev/gatehouse/admission/registration"
	"github.com/gatehouse-dev/gatehouse/admission/snapshot"
)

var webhookOnCustomResource = &Rule{
	ID: "webhook-on-custom-resource", Level: Note, Advice: "no-crd-validation-defaulting",
	Reads:  []Part{Kinds},
	Title:  "A webhook validates or completes a custom resource",
	Why:    "A CustomResourceDefinition has validation rules and defaults of its own. The API server applies them without a call, and they hold while the webhook is down.",
	Fix:    "Move what can be said there into x-kubernetes-validations and default of the definition's schema.",
	Fails:  hook(validating, widgetRule+"failurePolicy: Fail\n") + widgets,
	Passes: hook(validating, anyPod+outside+"failurePolicy: Fail\n") + widgets,
	check: func(p *pass) {
		custom := map[string]bool{}
		for i := range p.Resources {
			if p.Resources[i].Custom {
				custom[p.Resources[i].Group] = true
			}
		}
		p.webhooks(func(e *snapshot.Entry) {
			only := len(e.Rules) > 0 && !slices.ContainsFunc(e.Rules, func(r registration.Rule) bool {
				return slices.ContainsFunc(r.APIGroups, func(g string) bool { return !custom[g] })
			})
			if only {
				p.findsCause(Note, at(e.Entry), e.Configuration, "the webhook "+e.Name, "the webhook %s is about %s only, whose definition can validate and complete them without a call", e.Name, few(e.Rules[0].Resources))
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
