package lint

import (
	"github.com/gatehouse-dev/gatehouse/admission/registration"
	"github.com/gatehouse-dev/gatehouse/admission/snapshot"
	"k8s.io/apiserver/pkg/admission"
)

var notReinvoked = &Rule{
	ID: "not-reinvoked", Level: Note, Advice: "dont-rely-webhook-order",
	Reads: []Part{Kinds},
	Title: "A mutating webhook does not see what later ones change",
	Why: "Webhooks are called in the order of the names of their configurations. One with reinvocationPolicy Never sees neither the containers that a later one " +
		"adds nor the fields that a later one overwrites.",
	Fix: "Set reinvocationPolicy to IfNeeded if the webhook makes no change when its change is there already.",
	Fails: hook(mutating, anyPod+outside+"failurePolicy: Ignore\nreinvocationPolicy: Never\n") + "---\n" +
		later(hook(mutating, anyPod+outside+"failurePolicy: Ignore\nreinvocationPolicy: IfNeeded\n")),
	Passes: hook(mutating, anyPod+outside+"failurePolicy: Ignore\nreinvocationPolicy: IfNeeded\n") + "---\n" +
		later(hook(mutating, anyPod+outside+"failurePolicy: Ignore\nreinvocationPolicy: IfNeeded\n")),
	check: func(p *pass) {
		said := map[*snapshot.Entry]bool{}
		for _, r := range p.named() {
			q := request(admission.Create, target{r.Group, r.Version, r.Kind.Kind, r.Resource, "", p.someNamespace(&r), "one"}, somebody, nil)
			list := p.hits(q, mutates)
			for i, h := range list {
				if h.MayReinvoke || said[h.Entry] || i == len(list)-1 || !p.isWanted(h.Entry) || h.Source != registration.Mutating {
					continue
				}
				said[h.Entry] = true
				p.finds(at(h.Entry.Entry, "reinvocationPolicy"), "the webhook %s does not see what %s changes in %s, and is not called again", h.Name, list[len(list)-1].Name, r.GroupResource())
			}
		}
	},
}
