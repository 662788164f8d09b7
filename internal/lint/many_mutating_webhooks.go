package lint

import (
	"strings"

	"k8s.io/apiserver/pkg/admission"
)

// manyMutating is how many webhooks for one request are worth a note.
const manyMutating = 5

var manyMutatingWebhooks = &Rule{
	ID: "many-mutating-webhooks", Level: Note, Advice: "design-admission-webhooks-low-latency",
	Reads:  []Part{Kinds},
	Title:  "Many mutating webhooks are called for one request",
	Why:    "They are called one after the other, some of them twice. Their times add up, and the chance grows that two of them undo each other's changes for ever.",
	Fix:    "Put webhooks that do similar things into one server and one configuration, and narrow their rules and match conditions.",
	Fails:  manyHooks(manyMutating + 1),
	Passes: hook(mutating, anyPod+outside+"failurePolicy: Ignore\n"),
	check: func(p *pass) {
		for _, r := range p.named() {
			q := request(admission.Create, target{r.Group, r.Version, r.Kind.Kind, r.Resource, "", p.someNamespace(&r), "one"}, somebody, nil)
			list := p.hits(q, mutates)
			if len(list) <= manyMutating {
				continue
			}
			var names []string
			where := at(list[0].Entry.Entry)
			for _, h := range list {
				names = append(names, h.Name)
				if p.isWanted(h.Entry) && !p.wanted(where.object) {
					where = at(h.Entry.Entry)
				}
			}
			p.finds(where, "%d mutating webhooks are called one after the other for a new object of %s: %s", len(list), r.GroupResource(), few(names))
		}
	},
}

func manyHooks(n int) string {
	var list []string
	for i := range n {
		letter := string(rune('a' + i))
		list = append(list, strings.ReplaceAll(hook(mutating, anyPod+outside+"failurePolicy: Ignore\n"), "name: policies}\nwebhooks", "name: policies-"+letter+"}\nwebhooks"))
	}
	return strings.Join(list, "---\n")
}

// later returns an example with another name, which comes later in the order.
func later(example string) string {
	return strings.NewReplacer("metadata: {name: policies}", "metadata: {name: sidecars}", "check.policies", "inject.sidecars").Replace(example)
}
