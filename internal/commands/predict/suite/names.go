package suite

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gatehouse-dev/gatehouse/internal/kit/nearest"
	"github.com/gatehouse-dev/gatehouse/internal/readers/manifests"
)

// names are the names in the registrations of a test environment that tests can refer to.
type names struct{ webhooks, policies, bindings []string }

func namesIn(objects []*manifests.Object) *names {
	n := &names{}
	for _, o := range objects {
		if !strings.HasPrefix(at(o.Content, "apiVersion"), "admissionregistration.k8s.io/") {
			continue
		}
		kind, name := at(o.Content, "kind"), at(o.Content, "metadata", "name")
		switch {
		case isPolicy(kind):
			n.policies = append(n.policies, name)
		case strings.HasSuffix(kind, "PolicyBinding"):
			n.bindings = append(n.bindings, name)
		}
		hooks, _ := o.Content["webhooks"].([]any)
		n.hooks(name, hooks)
	}
	return n
}

// hooks adds the webhooks of a configuration.
func (n *names) hooks(configuration string, hooks []any) {
	for _, h := range hooks {
		hook, _ := h.(map[string]any)
		n.webhooks = append(n.webhooks, configuration, at(hook, "name"), configuration+"/"+at(hook, "name"))
	}
}

// strange reports a name in a test that no registration of its environment has; nil if all exist (S24.24). An
// expectation about a misspelled name could never fail.
func (n *names) strange(t *Test) error {
	var wrong error
	check := func(line int, what, kind, name string, known []string) {
		if wrong == nil && name != "" && !slices.Contains(known, name) {
			wrong = &FileError{t.Suite.File, line, fmt.Sprintf("%s: the test environment has no %s %q%s", what, kind, name, nearest.Suggestion("", name, known))}
		}
	}
	for _, a := range slices.Concat(t.request.answers, t.Suite.answers) {
		check(a.line, "webhooks", "webhook", a.webhook, n.webhooks)
	}
	e := &t.expect
	for _, name := range e.called {
		check(e.at("called"), "called", "webhook", name, n.webhooks)
	}
	for _, name := range e.notCalled {
		check(e.at("notCalled"), "notCalled", "webhook", name, n.webhooks)
	}
	if e.by != nil {
		check(e.at("by"), "by", "webhook", e.by.Webhook, n.webhooks)
		check(e.at("by"), "by", "policy", e.by.Policy, n.policies)
		check(e.at("by"), "by", "binding", e.by.Binding, n.bindings)
	}
	return wrong
}
