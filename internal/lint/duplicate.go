package lint

import (
	"encoding/json"
	"fmt"

	"github.com/gatehouse-dev/gatehouse/admission/registration"
	"github.com/gatehouse-dev/gatehouse/admission/snapshot"
)

var duplicate = &Rule{
	ID: "duplicate", Level: Warning, Advice: "design-admission-webhooks-low-latency",
	Title:  "The same thing is registered twice",
	Why:    "A webhook that is registered twice for the same requests is called twice for each, and often it is what remains of an older installation. Bindings that say the same do nothing more.",
	Fix:    "Delete one of the two.",
	Fails:  bundled("policies", lasting) + "---\n" + bundled("policies-old", lasting),
	Passes: bundled("policies", lasting) + "---\n" + hook(mutating, anyPod+outside+"failurePolicy: Ignore\n"),
	check: func(p *pass) {
		first := map[string]*snapshot.Entry{}
		for _, d := range registration.Sources() {
			for _, e := range p.Snapshot.Entries(d.Source) {
				key := essence(e)
				if key == "" {
					continue
				}
				other := first[key]
				if other == nil {
					first[key] = e
					continue
				}
				p.finds(at(e.Entry), "%s %s says the same as %s", kindOf(e), e, other)
			}
		}
	},
}

// kindOf returns a word for the kind of an entry.
func kindOf(e *snapshot.Entry) string {
	switch {
	case e.Binding != nil:
		return "the binding"
	case e.Entry.Policy != nil:
		return "the policy"
	case e.Initializer != nil:
		return "the initializer"
	}
	return "the webhook"
}

// essence returns a text of what an entry does and for which requests, without its name. It is
// empty for an entry that may exist twice.
func essence(e *snapshot.Entry) string {
	var does any
	switch {
	case e.Webhook != nil:
		does = e.ClientConfig
	case e.Binding != nil:
		does = e.Binding
	default:
		return ""
	}
	text, err := json.Marshal([]any{e.Match, does})
	if err != nil {
		return ""
	}
	return fmt.Sprintf("%d %s", e.Source, text)
}
