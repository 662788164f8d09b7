package suite

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/gatehouse-dev/gatehouse/admission/trace"
	"github.com/gatehouse-dev/gatehouse/internal/aliases"
	"github.com/gatehouse-dev/gatehouse/internal/files"
	"github.com/gatehouse-dev/gatehouse/internal/manifests"
)

// about is what the answers of a running policy engine say of one policy (S24.17).
type about struct {
	// name is what the answers of the engine call the policy.
	name string
	// said returns what an answer says against the object because of the policy. named reports
	// whether it names the policy at all.
	said func(*answered) (messages []string, named bool)
}

// answered is what one webhook answered.
type answered struct {
	// denial is the message of a denial; empty when there is none.
	denial   string
	warnings []string
}

// heard is what all webhooks answered to a request.
type heard struct {
	answers []answered
	// failed are the calls that failed, each with its error.
	failed []string
}

// heard reads the answers of webhooks from the trace of a request.
func (o *Outcome) heard() heard {
	var h heard
	for c := range o.trace.Verdicts(false).Calls() {
		switch c.Verdict {
		case trace.Allowed.String():
			h.answers = append(h.answers, answered{warnings: c.Warnings})
		case trace.Denied.String():
			h.answers = append(h.answers, answered{denial: c.Error, warnings: c.Warnings})
		default:
			h.failed = append(h.failed, c.Webhook.Name+": "+c.Error)
		}
	}
	return h
}

// uncalled is why the answers of webhooks say nothing when there are none.
const uncalled = "no webhook is called for the request"

// heardOf returns what the answers of webhooks say against an object because of a policy. skip says
// why they say nothing.
func (a *about) heardOf(o *Outcome) (messages []string, named bool, skip string) {
	h := o.heard()
	for i := range h.answers {
		more, ok := a.said(&h.answers[i])
		messages, named = append(messages, more...), named || ok
	}
	switch {
	case named:
	case len(h.failed) > 0:
		return nil, false, "a webhook could not be called: " + strings.Join(h.failed, "; ")
	case !o.Allowed && len(o.By) > 0 && o.By[0].Webhook == "":
		return nil, false, fmt.Sprintf("the API server rejects the request before all webhooks have judged it (%s): %s", o.By[0].Plugin, o.Message)
	case len(h.answers) == 0:
		return nil, false, uncalled
	}
	return messages, named, ""
}

// registrations are the registrations of webhooks in the paths that were named, which suites of
// other tools are judged through when webhooks are called.
func (f *finder) registrations() []*manifests.Object {
	if f.hooks != nil {
		return *f.hooks
	}
	f.hooks = &[]*manifests.Object{}
	set, err := manifests.Read(f.worldOf(), nil)
	if err != nil {
		f.set.Errors = append(f.set.Errors, &FileError{File: strings.Join(f.roots, " "), Message: err.Error()})
		return nil
	}
	for _, o := range set.Objects {
		group, _, _ := strings.Cut(at(o.Content, "apiVersion"), "/")
		if group == "admissionregistration.k8s.io" && strings.HasSuffix(at(o.Content, "kind"), "WebhookConfiguration") {
			*f.hooks = append(*f.hooks, o)
		}
	}
	return *f.hooks
}

// running has the tests of a suite judged by webhooks. skip says why that cannot be.
func (f *finder) running(s *foreign) (skip string) {
	hooks := f.registrations()
	if len(hooks) == 0 {
		return "the paths have no registration of a webhook to call: name the directory that has it"
	}
	for _, o := range hooks {
		if !slices.ContainsFunc(s.objects, func(other *manifests.Object) bool {
			return filepath.Clean(o.File) == filepath.Clean(other.File) && o.Line == other.Line
		}) {
			s.objects = append(s.objects, o)
		}
	}
	return ""
}

// same notes what an engine that runs has under a name. Tests of one name with other contents are
// skipped in the end: an answer does not tell such policies apart, and a cluster has one of a kind.
func (f *finder) same(a *about, policy *manifests.Object) {
	content, err := json.Marshal([]any{policy.Content["kind"], policy.Content["spec"]})
	if err != nil {
		panic(fmt.Sprintf("suite: a policy that was read: %v", err))
	}
	if f.contents == nil {
		f.contents = map[string]map[string]bool{}
	}
	if f.contents[a.name] == nil {
		f.contents[a.name] = map[string]bool{}
	}
	f.contents[a.name][string(content)] = true
}

// ambiguous skips the tests of policies that share a name.
func (f *finder) ambiguous() {
	for _, s := range f.set.Suites {
		for _, t := range s.Tests {
			if t.running != nil && t.Skip == "" && len(f.contents[t.running.name]) > 1 {
				t.Skip = fmt.Sprintf("the suites have %d different policies called %s, which answers do not tell apart: run their suites one by one, each with its own in the cluster", len(f.contents[t.running.name]), t.running.name)
			}
		}
	}
}

// gatekeeper reads answers of Gatekeeper: lines of "[CONSTRAINT] message".
func gatekeeper(constraint string) *about {
	return &about{name: constraint, said: func(a *answered) (messages []string, named bool) {
		_, denial, _ := strings.Cut(a.denial, " denied the request: ")
		for _, text := range append([]string{denial}, a.warnings...) {
			// A message may have lines of its own.
			for i, part := range strings.Split("\n"+text, "\n[") {
				if name, message, ok := strings.Cut(part, "] "); ok && i > 0 && name == constraint {
					messages, named = append(messages, message), true
				}
			}
		}
		return messages, named
	}}
}

// enforcesSilently says why the answers of Gatekeeper have nothing of a constraint; empty if they
// have.
func enforcesSilently(constraint *manifests.Object) string {
	if action := at(constraint.Content, "spec", "enforcementAction"); action == "dryrun" {
		return "the constraint has enforcementAction dryrun, of which the answer of a webhook says nothing"
	}
	return ""
}

// kyvernoEngine reads answers of Kyverno: a list of policies and rules in YAML for its first kinds of
// policies, and "Policy NAME failed: message" for the later ones.
func kyvernoEngine(policy, rule string) *about {
	name := strings.Trim(policy+"/"+rule, "/")
	ofRule := func(other string) bool {
		// Kyverno makes rules for the controllers of pods out of those for pods.
		return rule == "" || other == rule || other == "autogen-"+rule || other == "autogen-cronjob-"+rule
	}
	return &about{name: name, said: func(a *answered) (messages []string, named bool) {
		if _, list, ok := strings.Cut(a.denial, "due to the following policies"); ok {
			policies := map[string]map[string]string{}
			if aliases.Check([]byte(list), files.Configuration) == nil && yaml.Unmarshal([]byte(list), &policies) == nil {
				for other, message := range policies[policy] {
					if ofRule(other) {
						messages, named = append(messages, message), true
					}
				}
			}
		}
		slices.Sort(messages)
		_, denial, _ := strings.Cut(a.denial, " denied the request: ")
		for _, text := range append(strings.Split(denial, "; "), a.warnings...) {
			for _, result := range []string{"failed", "error"} {
				if message, ok := strings.CutPrefix(text, "Policy "+policy+" "+result+": "); ok {
					messages, named = append(messages, message), true
				}
			}
			// Warnings of the first kinds are also of rules that hold.
			if rest, ok := strings.CutPrefix(text, "policy "+policy+"."); ok {
				other, _, _ := strings.Cut(rest, ": ")
				named = named || ofRule(other)
			}
		}
		return messages, named
	}}
}

// acts says why the answer of Kyverno has nothing of a rule; empty if it has. The policy is one of
// Kyverno's own.
func acts(policy *manifests.Object, rule string) string {
	switch kind := at(policy.Content, "kind"); {
	case strings.HasSuffix(kind, "GeneratingPolicy"):
		return "the policy generates objects after the answer of the webhook"
	case strings.HasSuffix(kind, "DeletingPolicy"), strings.HasSuffix(kind, "CleanupPolicy"):
		return "the policy deletes objects at times, and judges no request"
	}
	rules, _ := walk(policy.Content, "spec", "rules").([]any)
	for _, r := range rules {
		m, _ := r.(map[string]any)
		if name := at(m, "name"); rule != "" && name != rule && name != strings.TrimPrefix(strings.TrimPrefix(rule, "autogen-"), "cronjob-") {
			continue
		}
		if _, ok := m["generate"]; ok {
			return "the rule generates objects after the answer of the webhook"
		}
	}
	return ""
}
