package plan

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	v1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"

	"github.com/gatehouse-dev/gatehouse/admission/registration"
	"github.com/gatehouse-dev/gatehouse/admission/registration/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/admission/snapshot"
	"github.com/gatehouse-dev/gatehouse/test/speed"
)

// The twin decides as slowly and as literally as possible: it expands each rule to its places in a
// list of all places.

type place struct {
	operation                     string
	group, version, resource, sub string
	scope                         string
}

// stands returns the places that a rule covers.
func stands(r registration.Rule) map[place]bool {
	out := map[place]bool{}
	for _, o := range operationWords {
		for _, g := range groupWords {
			for _, v := range versionWords {
				for _, res := range resourceWords {
					for _, sub := range subresourceWords {
						for _, scope := range []string{"Cluster", "Namespaced"} {
							if has(r.Operations, o) && has(r.APIGroups, g) && has(r.APIVersions, v) && (r.Scope == "*" || r.Scope == scope) && hasResource(r.Resources, res, sub) {
								out[place{o, g, v, res, sub, scope}] = true
							}
						}
					}
				}
			}
		}
	}
	return out
}

func has(list []string, s string) bool {
	for _, l := range list {
		if l == "*" || l == s {
			return true
		}
	}
	return false
}

func hasResource(entries []string, resource, sub string) bool {
	for _, e := range entries {
		all := []string{resource + "/" + sub, "*/" + sub, resource + "/*", "*/*"}
		if sub == "" {
			all = []string{resource, "*", resource + "/*", "*/*"}
		}
		for _, a := range all {
			if e == a {
				return true
			}
		}
	}
	return false
}

var (
	operationWords   = []string{"CREATE", "UPDATE", "DELETE", "CONNECT"}
	groupWords       = []string{"", "apps", "extensions"}
	versionWords     = []string{"v1", "v2"}
	resourceWords    = []string{"pods", "deployments", "namespaces"}
	subresourceWords = []string{"", "status", "scale"}
)

// twin is a slow equivalent of Candidates, for one webhook: the rule that matches, -1 for none, and
// the resource it matches.
func twin(h *registration.Entry, r *Request, equivalents []schema.GroupVersionResource) (int, schema.GroupVersionResource) {
	at := func(gvr schema.GroupVersionResource) place {
		scope := "Namespaced"
		if r.Namespace == "" || gvr.Group == "" && gvr.Version == "v1" && gvr.Resource == "namespaces" {
			scope = "Cluster"
		}
		return place{string(r.Operation), gvr.Group, gvr.Version, gvr.Resource, r.Subresource, scope}
	}
	for i, rule := range h.Rules {
		if stands(rule)[at(r.Resource)] {
			return i, r.Resource
		}
	}
	if h.Equivalent {
		for i, rule := range h.Rules {
			for _, e := range equivalents {
				if e != r.Resource && stands(rule)[at(e)] {
					return i, e
				}
			}
		}
	}
	return -1, schema.GroupVersionResource{}
}

// fixed are equivalents of every resource.
type fixed []schema.GroupVersionResource

func (f fixed) EquivalentResourcesFor(schema.GroupVersionResource, string) []schema.GroupVersionResource {
	return f
}

func (f fixed) KindFor(r schema.GroupVersionResource, sub string) schema.GroupVersionKind {
	return r.GroupVersion().WithKind("Kind of " + r.Resource + "/" + sub)
}

// random generates webhooks and requests.
type random struct{ *rand.Rand }

func (r random) pick(words []string) string { return words[r.IntN(len(words))] }

// some picks one to three words, sometimes a wildcard.
func some[T ~string](r random, words []string) []T {
	if r.IntN(4) == 0 {
		return []T{"*"}
	}
	var out []T
	for range 1 + r.IntN(3) {
		out = append(out, T(r.pick(words)))
	}
	return out
}

func (r random) rule() v1.RuleWithOperations {
	scope := v1.ScopeType(r.pick([]string{"*", "*", "Cluster", "Namespaced"}))
	entries := []string{
		"*", "*/*", "pods", "pods/*", "pods/status", "*/status", "*/scale",
		"deployments", "deployments/scale", "deployments/*", "namespaces", "namespaces/status",
	}
	var resources []string
	for range 1 + r.IntN(3) {
		resources = append(resources, r.pick(entries))
	}
	return v1.RuleWithOperations{
		Operations: some[v1.OperationType](r, operationWords),
		Rule: v1.Rule{
			APIGroups: some[string](r, groupWords), APIVersions: some[string](r, versionWords),
			Resources: resources, Scope: &scope,
		},
	}
}

func (r random) configuration(name string, hooks int) *v1.ValidatingWebhookConfiguration {
	c := &v1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: name}}
	for i := range hooks {
		policy := v1.MatchPolicyType(r.pick([]string{"Exact", "Equivalent"}))
		w := v1.ValidatingWebhook{Name: fmt.Sprintf("h%d.example.com", i), MatchPolicy: &policy, AdmissionReviewVersions: []string{"v1"}}
		for range r.IntN(4) {
			w.Rules = append(w.Rules, r.rule())
		}
		c.Webhooks = append(c.Webhooks, w)
	}
	return c
}

func (r random) resource() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: r.pick(groupWords), Version: r.pick(versionWords), Resource: r.pick(resourceWords)}
}

func (r random) request() *Request {
	return &Request{
		Operation:   admission.Operation(r.pick(operationWords)),
		Resource:    r.resource(),
		Subresource: r.pick(subresourceWords),
		Namespace:   r.pick([]string{"", "shop"}),
		Kind:        schema.GroupVersionKind{Group: "g", Version: "v", Kind: "Own"},
	}
}

// S2.1 to S2.8, S2.22 to S2.24, S5.1: for all webhooks and requests, Candidates finds the same
// webhooks, rules and resources as the twin.
func TestForFindsWhatTheTwinFinds(t *testing.T) {
	for seed := range uint64(speed.Of(40, 150)) {
		r := random{rand.New(rand.NewPCG(seed, 1))}
		s := snapshot.Compile(snapshot.Registrations{Objects: objects(r.configuration("b", 6), r.configuration("a", 6))})
		for range 20 {
			compareWithTwin(t, s, r, seed)
		}
	}
}

func FuzzFor(f *testing.F) {
	f.Add(uint64(1), uint8(3))
	f.Fuzz(func(t *testing.T, seed uint64, hooks uint8) {
		r := random{rand.New(rand.NewPCG(seed, 2))}
		s := snapshot.Compile(snapshot.Registrations{Objects: objects(r.configuration("b", int(hooks%80)), r.configuration("a", 2))})
		compareWithTwin(t, s, r, seed)
	})
}

func compareWithTwin(t *testing.T, s *snapshot.Snapshot, r random, seed uint64) {
	t.Helper()
	req := r.request()
	equivalents := fixed{req.Resource, r.resource(), r.resource()}
	var want []Candidate
	for i, h := range s.Entries(registration.Validating) {
		if h.Position != i {
			t.Fatalf("hook %s has position %d, want %d", h, h.Position, i)
		}
		rule, resource := twin(h.Entry, req, equivalents)
		if rule < 0 {
			continue
		}
		step := Candidate{Entry: h, Rule: rule, Resource: resource, Subresource: req.Subresource, Kind: req.Kind}
		if resource != req.Resource {
			step.Equivalent, step.Kind = true, equivalents.KindFor(resource, req.Subresource)
		}
		want = append(want, step)
	}
	got := Candidates(s, registration.Validating, req, equivalents)
	same := cmp.Comparer(func(a, b *snapshot.Entry) bool { return a == b })
	if diff := cmp.Diff(want, got, same, cmpopts.EquateEmpty()); diff != "" {
		t.Fatalf("seed %d, request %+v, equivalents %v (-want +got):\n%s", seed, req, equivalents, diff)
	}
	explained := New(t.Context(), chain(registration.Validating), s, req, equivalents, given{}.input(), true)
	if len(explained.Steps) != len(s.Entries(registration.Validating)) {
		t.Fatalf("seed %d: %d steps of %d hooks", seed, len(explained.Steps), len(s.Entries(registration.Validating)))
	}
	for i, step := range explained.Steps {
		matched := slices.ContainsFunc(want, func(c Candidate) bool { return c.Entry == s.Entries(registration.Validating)[i] })
		if matched != (step.Rule != nil) || !matched && (step.Reason.Code != NoRule.String() || step.Reason.Message == "") {
			t.Fatalf("seed %d: step %+v, matched %v", seed, step, matched)
		}
	}
}

// S11.5 to S11.7: Initializers finds the same as a scan of all initializers.
func TestInitializersFindsWhatAScanFinds(t *testing.T) {
	for seed := range uint64(300) {
		r := random{rand.New(rand.NewPCG(seed, 3))}
		var all []runtimeObject
		for _, name := range []string{"b", "a"} {
			c := &v1alpha1.InitializerConfiguration{ObjectMeta: metav1.ObjectMeta{Name: name}}
			for range 6 {
				in := v1alpha1.Initializer{Name: fmt.Sprintf("i%d.example.com", r.IntN(8))}
				for range r.IntN(3) {
					rule := r.rule()
					in.Rules = append(in.Rules, v1alpha1.Rule{APIGroups: rule.APIGroups, APIVersions: rule.APIVersions, Resources: rule.Resources})
				}
				c.Initializers = append(c.Initializers, in)
			}
			all = append(all, c)
		}
		s := snapshot.Compile(snapshot.Registrations{Objects: objects(all...)})
		resource := r.resource()
		var want []string
		for _, e := range s.Entries(registration.Initializing) {
			for _, rule := range e.Rules {
				main := has(rule.Resources, resource.Resource)
				if has(rule.APIGroups, resource.Group) && has(rule.APIVersions, resource.Version) && main && !slices.Contains(want, e.Name) {
					want = append(want, e.Name)
				}
			}
		}
		var got []string
		request := &Request{Operation: admission.Create, Kind: schema.GroupVersionKind{Kind: "Pod"}, Resource: resource, Namespace: "shop"}
		for _, c := range Initializers(s, request, nil) {
			got = append(got, c.Entry.Name)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("seed %d, resource %v (-want +got):\n%s", seed, resource, diff)
		}
	}
}
