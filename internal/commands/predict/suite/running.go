package suite

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/gatehouse-dev/gatehouse/admission/trace"
	"github.com/gatehouse-dev/gatehouse/internal/kit/aliases"
	"github.com/gatehouse-dev/gatehouse/internal/kit/files"
	"github.com/gatehouse-dev/gatehouse/internal/readers/manifests"
)

// about interprets the responses of a running policy engine for one policy (S24.17).
type about struct {
	// name is the name of the policy in the engine's responses.
	name string
	// said returns the messages in a response about violations of the policy. named reports whether the response names
	// the policy at all.
	said func(*answered) (messages []string, named bool)
}

// answered is the response of one webhook.
type answered struct {
	// denial is the message of a denial; empty if there is none.
	denial   string
	warnings []string
}

// heard has the responses of all webhooks to a request.
type heard struct {
	answers []answered
	// failed are the failed calls, each with its error.
	failed []string
}

// heard reads the responses of webhooks from the trace of a request.
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

// uncalled is the skip reason if no webhook was called.
const uncalled = "no webhook is called for the request"

// heardOf returns the violations of a policy in the responses of webhooks. skip is the reason if there is no verdict.
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
		return nil, false, fmt.Sprintf("the API server rejects the request before all webhooks have answered (%s): %s", o.By[0].Plugin, o.Message)
	case len(h.answers) == 0:
		return nil, false, uncalled
	}
	return messages, named, ""
}

// registrations returns the webhook configurations in the named paths. Suites of other tools are evaluated by these
// webhooks if webhooks are called.
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

// running makes webhooks evaluate the tests of a suite. skip is the reason if that is not possible.
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

// noteContents notes the contents of a policy that a running engine must have under a name. Tests of policies with the same
// name and different contents are skipped in the end: a response does not distinguish such policies, and a cluster can
// have only one.
func (f *finder) noteContents(a *about, policy *manifests.Object) {
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

// gatekeeper interprets responses of Gatekeeper: lines of "[CONSTRAINT] message".
func gatekeeper(constraint string) *about {
	return &about{name: constraint, said: func(a *answered) (messages []string, named bool) {
		_, denial, _ := strings.Cut(a.denial, " denied the request: ")
		for _, text := range append([]string{denial}, a.warnings...) {
			// A message may have several lines.
			for i, part := range strings.Split("\n"+text, "\n[") {
				if name, message, ok := strings.Cut(part, "] "); ok && i > 0 && name == constraint {
					messages, named = append(messages, message), true
				}
			}
		}
		return messages, named
	}}
}

// enforcesSilently returns the reason why responses of Gatekeeper do not mention a constraint; empty if they do.
func enforcesSilently(constraint *manifests.Object) string {
	if action := at(constraint.Content, "spec", "enforcementAction"); action == "dryrun" {
		return "the constraint has enforcementAction dryrun, of which the answer of a webhook says nothing"
	}
	return ""
}

// kyvernoEngine interprets responses of Kyverno: a YAML list of policies and rules for its older kinds of policies, and
// "Policy NAME failed: message" for the newer ones.
func kyvernoEngine(policy, rule string) *about {
	name := strings.Trim(policy+"/"+rule, "/")
	ofRule := func(other string) bool {
		// Kyverno generates rules for the controllers of pods from rules for pods.
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
			// Warnings of the older kinds also mention rules that pass.
			if rest, ok := strings.CutPrefix(text, "policy "+policy+"."); ok {
				other, _, _ := strings.Cut(rest, ": ")
				named = named || ofRule(other)
			}
		}
		return messages, named
	}}
}

// acts returns the reason why responses of Kyverno do not mention a rule of one of Kyverno's own policies; empty if
// they do.
func acts(policy *manifests.Object, rule string) string {
	switch kind := at(policy.Content, "kind"); {
	case strings.HasSuffix(kind, "GeneratingPolicy"):
		return "the policy generates objects after the answer of the webhook"
	case strings.HasSuffix(kind, "DeletingPolicy"), strings.HasSuffix(kind, "CleanupPolicy"):
		return "the policy deletes objects on a schedule, and decides no request"
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
