package snapshot

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/admission"

	"github.com/gatehouse-dev/gatehouse/admission/registration"
	"github.com/gatehouse-dev/gatehouse/admission/registration/v1alpha1"
)

// configuration returns validating webhooks for the creation of pods.
func configuration(name, uid, version string, webhooks ...string) *v1.ValidatingWebhookConfiguration {
	c := &v1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(uid), ResourceVersion: version}}
	for _, w := range webhooks {
		c.Webhooks = append(c.Webhooks, v1.ValidatingWebhook{Name: w, Rules: []v1.RuleWithOperations{{
			Operations: []v1.OperationType{"CREATE"},
			Rule:       v1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods"}},
		}}})
	}
	registration.Default(c)
	return c
}

func names(hooks []*Entry) []string {
	var out []string
	for i, h := range hooks {
		if h.Position != i {
			out = append(out, fmt.Sprintf("%s has position %d", h, h.Position))
			continue
		}
		out = append(out, h.String())
	}
	return out
}

func TestCompileOrdersHooks(t *testing.T) {
	s := Compile(Registrations{Revision: "9", Disabled: []string{"X"}, Objects: []runtime.Object{
		configuration("b", "", "", "z", "a"), configuration("a", "", "", "m"), configuration("B", "", "", "c"),
		&v1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "m"}, Webhooks: []v1.MutatingWebhook{{Name: "own"}}},
	}})
	if diff := cmp.Diff([]string{"B/c", "a/m", "b/z", "b/a"}, names(s.Entries(registration.Validating))); diff != "" {
		t.Errorf("S5.1 validating (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"m/own"}, names(s.Entries(registration.Mutating))); diff != "" {
		t.Errorf("S5.1 mutating (-want +got):\n%s", diff)
	}
	if s.Revision != "9" || !slices.Equal(s.Disabled, []string{"X"}) || len(s.Problems) > 0 {
		t.Errorf("got %+v", s)
	}
}

// S5.29, S18.33: annotations order configurations and policies; a policy is still found by its
// name.
func TestCompileOrdersByAnnotations(t *testing.T) {
	after := func(name, others string) metav1.ObjectMeta {
		m := metav1.ObjectMeta{Name: name}
		if others != "" {
			m.Annotations = map[string]string{registration.AfterAnnotation: others}
		}
		return m
	}
	policy := func(name, others string) *v1.MutatingAdmissionPolicy {
		return &v1.MutatingAdmissionPolicy{ObjectMeta: after(name, others)}
	}
	binding := &v1.MutatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: "bound"}, Spec: v1.MutatingAdmissionPolicyBindingSpec{PolicyName: "a"}}
	r := Registrations{Objects: []runtime.Object{
		&v1.MutatingWebhookConfiguration{ObjectMeta: after("m", "z"), Webhooks: []v1.MutatingWebhook{{Name: "1"}, {Name: "2"}}},
		&v1.MutatingWebhookConfiguration{ObjectMeta: after("z", ""), Webhooks: []v1.MutatingWebhook{{Name: "3"}}},
		policy("a", "b"), policy("b", "c"), policy("c", ""), binding,
	}}
	var c Compiler
	s := c.Compile(r)
	if diff := cmp.Diff([]string{"z/3", "m/1", "m/2"}, names(s.Entries(registration.Mutating))); diff != "" {
		t.Errorf("webhooks (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"c", "b", "a"}, names(s.Entries(registration.MutatingPolicies))); diff != "" {
		t.Errorf("policies (-want +got):\n%s", diff)
	}
	if p := s.Bound(s.Entries(registration.MutatingBindings)[0]); p == nil || p.Configuration != "a" || s.Table(registration.MutatingPolicies).Configuration("a") != p {
		t.Errorf("the binding binds %v", p)
	}
	if n := len(s.Constraints(registration.MutatingPolicies)); n != 2 {
		t.Errorf("%d constraints, want 2", n)
	}
	// Without the annotation of b, names determine the order again.
	s = c.Change(Registrations{Partial: true, Changes: []Change{{Source: registration.MutatingPolicies, Name: "b", Object: policy("b", "")}}})
	if diff := cmp.Diff([]string{"b", "a", "c"}, names(s.Entries(registration.MutatingPolicies))); diff != "" {
		t.Errorf("after a change (-want +got):\n%s", diff)
	}
	r.Kubernetes = true
	s = Compile(r)
	if diff := cmp.Diff([]string{"m/1", "m/2", "z/3"}, names(s.Entries(registration.Mutating))); diff != "" || s.Constraints(registration.Mutating) != nil {
		t.Errorf("of a kube-apiserver (-want +got):\n%s", diff)
	}
}

// S28.11: a kube-apiserver ignores the annotation that weakens the enforcement of a webhook, a
// policy or a binding.
func TestCompileForAKubeAPIServer(t *testing.T) {
	soft := func(name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Name: name, Annotations: map[string]string{registration.EnforcementAnnotation: "Audit"}}
	}
	objects := []runtime.Object{
		&v1.ValidatingWebhookConfiguration{ObjectMeta: soft("w"), Webhooks: []v1.ValidatingWebhook{{Name: "1"}}},
		&v1.ValidatingAdmissionPolicy{ObjectMeta: soft("p")}, &v1.MutatingAdmissionPolicy{ObjectMeta: soft("m")},
		&v1.ValidatingAdmissionPolicyBinding{ObjectMeta: soft("b"), Spec: v1.ValidatingAdmissionPolicyBindingSpec{PolicyName: "p"}},
	}
	for _, kubernetes := range []bool{false, true} {
		var c Compiler
		s := c.Compile(Registrations{Objects: objects, Kubernetes: kubernetes})
		changed := c.Change(Registrations{Partial: true, Kubernetes: kubernetes, Changes: []Change{{registration.Validating, "w", objects[0]}}})
		for _, source := range []registration.Source{registration.Validating, registration.ValidatingPolicies, registration.MutatingPolicies, registration.ValidatingBindings} {
			for _, s := range []*Snapshot{s, changed, s.With(objects)} {
				if e := s.Entries(source)[0]; (e.Enforcement == nil) != kubernetes {
					t.Errorf("%s of a kube-apiserver: %v, and its enforcement is %+v", e, kubernetes, e.Enforcement)
				}
			}
		}
	}
}

func TestCompileReportsWhatItCannotRead(t *testing.T) {
	broken := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
		"metadata": map[string]any{"name": "broken"}, "webhooks": "none",
	}}
	s := Compile(Registrations{Objects: []runtime.Object{broken, configuration("a", "", "", "m")}})
	if len(s.Problems) != 1 || !strings.Contains(s.Problems[0].Error(), `registration "broken"`) {
		t.Errorf("problems: %v", s.Problems)
	}
	if diff := cmp.Diff([]string{"a/m"}, names(s.Entries(registration.Validating))); diff != "" {
		t.Errorf("the others are gone (-want +got):\n%s", diff)
	}
}

func TestCompileKeepsSelectorErrors(t *testing.T) {
	c := configuration("a", "", "", "m", "n")
	c.Webhooks[0].NamespaceSelector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Like"}}}
	c.Webhooks[1].ObjectSelector = nil
	hooks := Compile(Registrations{Objects: []runtime.Object{c}}).Entries(registration.Validating)
	if h := hooks[0]; h.NamespaceSelector != nil || h.ObjectSelector == nil || h.NamespaceSelectorError == nil {
		t.Errorf("S2.2 %+v", h)
	}
	if h := hooks[1]; h.ObjectSelectorError != nil || h.ObjectSelector.Empty() {
		t.Errorf("S1.3 an absent selector selects something: %+v", h)
	}
}

func TestCompilerReusesWhatHasNotChanged(t *testing.T) {
	first := func(s *Snapshot) *registration.Entry { return s.Entries(registration.Validating)[0].Entry }
	for _, tt := range []struct {
		name   string
		before *v1.ValidatingWebhookConfiguration
		after  *v1.ValidatingWebhookConfiguration
		reused bool
	}{
		{"S2.37 the same", configuration("a", "u", "1", "m"), configuration("a", "u", "1", "m"), true},
		{"S2.37 another version", configuration("a", "u", "1", "m"), configuration("a", "u", "2", "m"), false},
		{"S2.37 another object of that name", configuration("a", "u", "1", "m"), configuration("a", "w", "1", "m"), false},
		{"S2.37 from a file", configuration("a", "", "", "m"), configuration("a", "", "", "m"), false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var c Compiler
			before := c.Compile(Registrations{Objects: []runtime.Object{tt.before}})
			// An earlier webhook changes its position, and leaves the old snapshot unchanged.
			after := c.Compile(Registrations{Objects: []runtime.Object{configuration("Z", "x", "1", "early"), tt.after}})
			moved := after.Entries(registration.Validating)[1]
			if (first(before) == moved.Entry) != tt.reused {
				t.Errorf("reused: %v, want %v", !tt.reused, tt.reused)
			}
			if before.Entries(registration.Validating)[0].Position != 0 || moved.Position != 1 {
				t.Error("positions are wrong")
			}
		})
	}
}

// The index may find too much, but never too little; for requests within its vocabulary it finds
// exactly the same as a scan of the rules.
func TestCandidatesAreWhatAScanFinds(t *testing.T) {
	words := func(r *rand.Rand, list ...string) []string {
		return []string{list[r.IntN(len(list))], list[r.IntN(len(list))]}
	}
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 0))
		var x index
		var rules []registration.Rule
		for i := range 30 {
			rule := registration.Rule{
				Operations: words(r, "CREATE", "UPDATE", "*"), APIGroups: words(r, "", "apps", "*"), APIVersions: words(r, "v1", "v2", "*"),
				Resources: words(r, "pods", "pods/*", "pods/log", "*/log", "*", "*/*"), Scope: words(r, "*", "Cluster", "Namespaced")[0],
			}
			rules = append(rules, rule)
			x.add(int32(i), []registration.Rule{rule})
		}
		for range 50 {
			target := Target{
				Operation:   admission.Operation(words(r, "CREATE", "UPDATE", "DELETE", "CONNECT")[0]),
				Resource:    schema.GroupVersionResource{Group: words(r, "", "apps", "x")[0], Version: words(r, "v1", "v2", "v3")[0], Resource: words(r, "pods", "nodes")[0]},
				Subresource: words(r, "", "log", "exec")[0],
				Namespaced:  r.IntN(2) == 0,
			}
			var want []int32
			for i := range rules {
				if scan(&rules[i], &target) {
					want = append(want, int32(i))
				}
			}
			if got := x.candidates(nil, &target); !slices.Equal(want, got) {
				t.Fatalf("seed %d, %+v: got %v, want %v", seed, target, got, want)
			}
		}
	}
}

func scan(r *registration.Rule, t *Target) bool {
	one := func(list []string, s string) bool { return slices.Contains(list, s) || slices.Contains(list, "*") }
	resource := slices.ContainsFunc(r.Resources, func(e string) bool {
		name, sub, _ := strings.Cut(e, "/")
		return (name == "*" || name == t.Resource.Resource) && (sub == "*" || sub == t.Subresource)
	})
	scope := "Cluster"
	if t.Namespaced {
		scope = "Namespaced"
	}
	return one(r.Operations, string(t.Operation)) && one(r.APIGroups, t.Resource.Group) && one(r.APIVersions, t.Resource.Version) &&
		resource && (r.Scope == "*" || r.Scope == scope)
}

func TestInitializersOfAllConfigurationsFormOneList(t *testing.T) {
	configuration := func(name string, initializers ...string) *v1alpha1.InitializerConfiguration {
		c := &v1alpha1.InitializerConfiguration{ObjectMeta: metav1.ObjectMeta{Name: name}}
		for _, i := range initializers {
			c.Initializers = append(c.Initializers, v1alpha1.Initializer{Name: i})
		}
		return c
	}
	s := Compile(Registrations{Objects: []runtime.Object{configuration("b", "x", "y"), configuration("a", "z", "x")}})
	var got []string
	for _, i := range s.Entries(registration.Initializing) {
		got = append(got, i.String())
	}
	if diff := cmp.Diff([]string{"a/z", "a/x", "b/x", "b/y"}, got); diff != "" {
		t.Errorf("S11.5 (-want +got):\n%s", diff)
	}
}

func BenchmarkCompile(b *testing.B) {
	for _, changed := range []bool{false, true} {
		b.Run(fmt.Sprintf("hooks=10000/changed=%v", changed), func(b *testing.B) {
			var objects []runtime.Object
			for i := range 1000 {
				var webhooks []string
				for j := range 10 {
					webhooks = append(webhooks, fmt.Sprintf("h%d.example.com", j))
				}
				objects = append(objects, configuration(fmt.Sprintf("c%d", i), fmt.Sprint(i), "1", webhooks...))
			}
			var c Compiler
			c.Compile(Registrations{Objects: objects})
			b.ReportAllocs()
			for b.Loop() {
				if changed {
					c = Compiler{}
				}
				if s := c.Compile(Registrations{Objects: objects}); len(s.Entries(registration.Validating)) != 10000 {
					b.Fatal("hooks are missing")
				}
			}
		})
	}
}
