package plan

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/gatehouse-dev/gatehouse/admission/registration"
	"github.com/gatehouse-dev/gatehouse/admission/registration/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/admission/snapshot"
	"github.com/gatehouse-dev/gatehouse/internal/engine/expression"
)

type runtimeObject = runtime.Object

// objects converts a list to runtime.Object.
func objects[T runtime.Object](list ...T) []runtime.Object {
	out := make([]runtime.Object, len(list))
	for i, o := range list {
		out[i] = o
	}
	return out
}

var (
	pods    = schema.GroupVersionResource{Version: "v1", Resource: "pods"}
	podKind = schema.GroupVersionKind{Version: "v1", Kind: "Pod"}
)

func labelled(pairs ...string) *unstructured.Unstructured {
	labels := map[string]any{}
	for i := 0; i < len(pairs); i += 2 {
		labels[pairs[i]] = pairs[i+1]
	}
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Pod", "metadata": map[string]any{"name": "web", "labels": labels},
	}}
}

// given has the data of a request for an Input.
type given struct {
	Object, OldObject runtime.Object
	NamespaceLabels   func(context.Context, string) (map[string]string, error)
	// Convert replaces the conversion of the objects; nil leaves them unchanged.
	Convert func(schema.GroupVersionKind) (runtime.Object, runtime.Object, error)
}

func (g given) input() *Input {
	in := &Input{Objects: AsWritten(g.Object, g.OldObject), NamespaceLabels: g.NamespaceLabels}
	if g.Convert != nil {
		in.Objects = converting{in.Objects, g.Convert}
	}
	return in
}

type converting struct {
	Objects
	convert func(schema.GroupVersionKind) (runtime.Object, runtime.Object, error)
}

func (c converting) Seen(kind schema.GroupVersionKind) (object, old runtime.Object, err error) {
	return c.convert(kind)
}

// chain returns a chain of the plugins of these sources.
func chain(sources ...registration.Source) []Link {
	var links []Link
	for _, s := range sources {
		d := s.Descriptor()
		links = append(links, Link{Plugin: d.Plugin, Source: d})
	}
	return links
}

// step returns a candidate for a webhook that matches everything, and its request.
func step(t testing.TB, r *Request, edit func(*v1.ValidatingWebhook)) *Candidate {
	t.Helper()
	w := v1.ValidatingWebhook{Name: "h.example.com", Rules: []v1.RuleWithOperations{{
		Operations: []v1.OperationType{"*"},
		Rule:       v1.Rule{APIGroups: []string{"*"}, APIVersions: []string{"*"}, Resources: []string{"*/*"}},
	}}}
	c := &v1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "c"}, Webhooks: []v1.ValidatingWebhook{w}}
	registration.Default(c)
	edit(&c.Webhooks[0])
	steps := Candidates(snapshot.Compile(snapshot.Registrations{Objects: objects(c)}), registration.Validating, r, nil)
	if len(steps) != 1 {
		t.Fatalf("%d steps, want 1", len(steps))
	}
	return &steps[0]
}

// red selects objects with the label team=red; bad cannot be parsed.
var (
	red = &metav1.LabelSelector{MatchLabels: map[string]string{"team": "red"}}
	bad = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "team", Operator: "Like"}}}
)

func TestDecide(t *testing.T) {
	unreachable := errors.New("etcd is away")
	noKind := apierrors.NewInternalError(errors.New("no kind"))
	for _, tt := range []struct {
		name    string
		request func(*Request)
		hook    func(*v1.ValidatingWebhook)
		step    func(*Candidate)
		in      given
		// want is "call", the reason, or the error.
		want string
		code int32
	}{
		{name: "S2.11 empty selectors ask for no namespace", want: "call"},
		{
			name: "S2.1 the namespaceSelector comes before the objectSelector",
			hook: func(w *v1.ValidatingWebhook) { w.NamespaceSelector, w.ObjectSelector = red, red },
			in:   given{Object: labelled("team", "green"), NamespaceLabels: namespaces("shop", "team", "blue")},
			want: "namespaceSelector team=red does not match team=blue",
		},
		{
			name: "S2.1 match conditions come last: these could not be evaluated",
			hook: func(w *v1.ValidatingWebhook) {
				w.ObjectSelector = red
				w.MatchConditions = []v1.MatchCondition{{Name: "c", Expression: "object.absent == 1"}}
			},
			in:   given{Object: labelled("team", "blue")},
			want: "objectSelector team=red does not match team=blue",
		},
		{
			name: "S2.12 a Namespace that is updated has its new labels",
			request: func(r *Request) {
				r.Resource, r.Operation = schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}, admission.Update
			},
			hook: func(w *v1.ValidatingWebhook) { w.NamespaceSelector = red },
			in:   given{Object: labelled("team", "red"), OldObject: labelled("team", "blue")},
			want: "call",
		},
		{
			name: "S2.16 only the labels matter, not the phase",
			request: func(r *Request) {
				r.Resource = schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}
			},
			hook: func(w *v1.ValidatingWebhook) { w.NamespaceSelector = red },
			in: given{Object: &corev1.Namespace{
				ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"team": "red"}},
				Status:     corev1.NamespaceStatus{Phase: corev1.NamespaceTerminating},
			}},
			want: "call",
		},
		{
			name: "S2.12 typed objects have labels, too",
			request: func(r *Request) {
				r.Resource = schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}
			},
			hook: func(w *v1.ValidatingWebhook) { w.NamespaceSelector = red },
			in:   given{Object: &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"team": "blue"}}}},
			want: "namespaceSelector team=red does not match team=blue",
		},
		{
			name: "S2.13 a Namespace that is deleted, and unknown, has its stored labels",
			request: func(r *Request) {
				r.Resource, r.Operation = schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}, admission.Delete
			},
			hook: func(w *v1.ValidatingWebhook) { w.NamespaceSelector = red },
			in:   given{OldObject: labelled("team", "red")},
			want: "call",
		},
		{
			name: "S2.13 the status of a Namespace goes by the stored labels",
			request: func(r *Request) {
				r.Resource, r.Operation = schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}, admission.Update
				r.Subresource = "status"
			},
			hook: func(w *v1.ValidatingWebhook) { w.NamespaceSelector = red },
			in:   given{Object: labelled("team", "red"), NamespaceLabels: namespaces("shop", "team", "blue")},
			want: "namespaceSelector team=red does not match team=blue",
		},
		{
			name: "S2.10 namespaces of another group are no namespaces",
			request: func(r *Request) {
				r.Resource, r.Namespace = schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "namespaces"}, ""
			},
			hook: func(w *v1.ValidatingWebhook) { w.NamespaceSelector = red },
			in:   given{Object: labelled("team", "blue")},
			want: "call",
		},
		{
			name: "S2.10 a custom resource that is called namespaces has no namespace of its own name",
			request: func(r *Request) {
				*r = NewRequest(admission.NewAttributesRecord(labelled("team", "blue"), nil, schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Namespace"},
					"web", "web", schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "namespaces"}, "", admission.Update, nil, false, r.User))
			},
			hook: func(w *v1.ValidatingWebhook) { w.NamespaceSelector = red },
			in:   given{Object: labelled("team", "blue")},
			want: "call",
		},
		{
			name: "S2.14 labels of the namespace",
			hook: func(w *v1.ValidatingWebhook) { w.NamespaceSelector = red },
			in:   given{NamespaceLabels: namespaces("shop", "team", "red")},
			want: "call",
		},
		{
			name: "S2.15 no such namespace",
			hook: func(w *v1.ValidatingWebhook) { w.NamespaceSelector = red },
			in:   given{NamespaceLabels: namespaces("other")},
			want: `error: namespaces "shop" not found`, code: http.StatusNotFound,
		},
		{
			name: "S2.17 no source of namespaces",
			hook: func(w *v1.ValidatingWebhook) { w.NamespaceSelector = red },
			want: `error: namespaces "shop" not found`, code: http.StatusNotFound,
		},
		{
			name: "S2.15 other errors are internal",
			hook: func(w *v1.ValidatingWebhook) { w.NamespaceSelector = red },
			in:   given{NamespaceLabels: func(context.Context, string) (map[string]string, error) { return nil, unreachable }},
			want: "error: Internal error occurred: etcd is away", code: http.StatusInternalServerError,
		},
		{
			name: "S25.16 labels that nobody knows",
			hook: func(w *v1.ValidatingWebhook) { w.NamespaceSelector = red },
			in:   given{NamespaceLabels: func(context.Context, string) (map[string]string, error) { return nil, ErrUnknown }},
			want: "unknown",
		},
		{
			name: "S25.16 the label with the name is always known",
			hook: func(w *v1.ValidatingWebhook) {
				w.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: "shop"}}
			},
			in:   given{NamespaceLabels: func(context.Context, string) (map[string]string, error) { return nil, ErrUnknown }},
			want: "call",
		},
		{
			name: "S2.2 the other selector outweighs an error",
			hook: func(w *v1.ValidatingWebhook) { w.NamespaceSelector, w.ObjectSelector = red, red },
			in:   given{Object: labelled("team", "blue")},
			want: "objectSelector team=red does not match team=blue",
		},
		{
			name: "S2.2 an error in the objectSelector is final",
			hook: func(w *v1.ValidatingWebhook) { w.ObjectSelector = bad },
			want: `error: Internal error occurred: objectSelector: "Like" is not a valid label selector operator`, code: http.StatusInternalServerError,
		},
		{
			name:    "S2.10 an error in a namespaceSelector that does not matter",
			request: func(r *Request) { r.Namespace = "" },
			hook:    func(w *v1.ValidatingWebhook) { w.NamespaceSelector = bad },
			want:    "call",
		},
		{
			name: "S1.3 no selector selects nothing",
			hook: func(w *v1.ValidatingWebhook) { w.ObjectSelector = nil },
			in:   given{Object: labelled()},
			want: "objectSelector is absent, which selects nothing",
		},
		{
			name: "S2.18 what has no metadata has no labels",
			hook: func(w *v1.ValidatingWebhook) { w.ObjectSelector = red },
			in:   given{Object: &corev1.PodExecOptions{}},
			want: "objectSelector team=red does not match a request without an object that has labels",
		},
		{
			name: "S2.18 the old object is selected",
			hook: func(w *v1.ValidatingWebhook) { w.ObjectSelector = red },
			in:   given{Object: labelled(), OldObject: labelled("team", "red")},
			want: "call",
		},
		{
			name: "S2.3 an unknown kind comes before a held error",
			hook: func(w *v1.ValidatingWebhook) { w.NamespaceSelector = red },
			step: func(s *Candidate) { s.Err = noKind },
			want: "error: Internal error occurred: no kind", code: http.StatusInternalServerError,
		},
		{
			name: "S2.27 conversion fails",
			hook: func(w *v1.ValidatingWebhook) {
				w.MatchConditions = []v1.MatchCondition{{Name: "c", Expression: "true"}}
			},
			in: given{Convert: func(schema.GroupVersionKind) (runtime.Object, runtime.Object, error) {
				return nil, nil, errors.New("no way")
			}},
			want: "error: Internal error occurred: no way", code: http.StatusInternalServerError,
		},
		{
			name: "S2.29 conditions see the converted objects",
			hook: func(w *v1.ValidatingWebhook) {
				w.MatchConditions = []v1.MatchCondition{{Name: "c", Expression: "object.metadata.labels.team == 'red' && oldObject == null"}}
			},
			in: given{Object: labelled(), OldObject: labelled(), Convert: func(kind schema.GroupVersionKind) (runtime.Object, runtime.Object, error) {
				if kind != podKind {
					return nil, nil, fmt.Errorf("asked for %v", kind)
				}
				return labelled("team", "red"), nil, nil
			}},
			want: "call",
		},
		{
			name: "S2.32 an error in a condition",
			hook: func(w *v1.ValidatingWebhook) {
				w.MatchConditions = []v1.MatchCondition{{Name: "c", Expression: "object.spec.x == 1"}}
			},
			in:   given{Object: labelled()},
			want: `error: pods "web" is forbidden: expression 'object.spec.x == 1' resulted in error: no such key: spec`,
			code: http.StatusForbidden,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := &Request{Operation: admission.Create, Resource: pods, Kind: podKind, Namespace: "shop", Name: "web", User: &user.DefaultInfo{Name: "ada"}}
			if tt.request != nil {
				tt.request(r)
			}
			s := step(t, r, func(w *v1.ValidatingWebhook) {
				if tt.hook != nil {
					tt.hook(w)
				}
			})
			if tt.step != nil {
				tt.step(s)
			}
			d := s.Decide(t.Context(), r, tt.in.input())
			got := d.Reason.String()
			switch {
			case d.Applies:
				got = "call" + got
			case d.Err != nil:
				got = "error: " + d.Err.Error()
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("decision (-want +got):\n%s", diff)
			}
			var status apierrors.APIStatus
			if d.Err != nil && (!errors.As(d.Err, &status) || status.Status().Code != tt.code) {
				t.Errorf("error %#v is not a status with code %d", d.Err, tt.code)
			}
		})
	}
}

// namespaces returns a source of one namespace.
func namespaces(name string, pairs ...string) func(context.Context, string) (map[string]string, error) {
	return func(_ context.Context, asked string) (map[string]string, error) {
		if asked != name {
			return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "namespaces"}, asked)
		}
		return map[string]string{pairs[0]: pairs[1]}, nil
	}
}

func TestConditionErrorHasTheFacts(t *testing.T) {
	costly := "[1,2,3,4,5,6,7,8,9,10].all(a, [1,2,3,4,5,6,7,8,9,10].all(b, [1,2,3,4,5,6,7,8,9,10].all(c, [1,2,3,4,5,6,7,8,9,10].all(d, [1,2,3,4,5,6].all(e, a+b+c+d+e>0)))))"
	r := &Request{Operation: admission.Create, Resource: pods, Kind: podKind, Name: "web"}
	s := step(t, r, func(w *v1.ValidatingWebhook) {
		w.MatchConditions = []v1.MatchCondition{{Name: "a", Expression: "object.x"}}
		for i := range 5 {
			w.MatchConditions = append(w.MatchConditions, v1.MatchCondition{Name: fmt.Sprint("c", i), Expression: costly})
		}
	})
	d := s.Decide(t.Context(), r, given{Object: labelled()}.input())
	var e *ConditionError
	if !errors.As(d.Err, &e) || !errors.Is(d.Err, expression.ErrOutOfBudget) {
		t.Fatalf("got %v", d.Err)
	}
	if e.Entry != s.Entry.Entry || !d.Evaluated || d.ConditionErrors != 1 || d.Elapsed <= 0 {
		t.Errorf("facts are missing: %+v", d)
	}
	if status := e.Status(); status.Reason != metav1.StatusReasonForbidden || status.Message != d.Err.Error() {
		t.Errorf("status is %+v", status)
	}
}

func TestExempt(t *testing.T) {
	for _, tt := range []struct {
		name, group, kind, resourceGroup, resource string
		want                                       bool
	}{
		{"S2.38 mutating", "admissionregistration.k8s.io", "MutatingWebhookConfiguration", "", "", true},
		{"S2.38 policy", "admissionregistration.k8s.io", "ValidatingAdmissionPolicyBinding", "", "", true},
		{"S2.39 initializers", "admissionregistration.k8s.io", "InitializerConfiguration", "", "", true},
		{"S2.39 external hooks", "admissionregistration.k8s.io", "ExternalAdmissionHookConfiguration", "", "", true},
		{"S2.38 the kind in another group", "example.com", "MutatingWebhookConfiguration", "example.com", "x", false},
		{"S2.38 another kind of the group", "admissionregistration.k8s.io", "Scale", "", "", false},
		{"S2.41 token reviews", "authentication.k8s.io", "TokenReview", "authentication.k8s.io", "tokenreviews", true},
		{"S2.41 reviews elsewhere", "", "", "example.com", "tokenreviews", false},
		{"S2.38 pods", "", "Pod", "", "pods", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			kind := schema.GroupVersionKind{Group: tt.group, Version: "v9", Kind: tt.kind}
			resource := schema.GroupResource{Group: tt.resourceGroup, Resource: tt.resource}
			if got := Exempt(kind, resource); got != tt.want {
				t.Errorf("got %v", got)
			}
		})
	}
}

// S26.4 is about the reviews of Kubernetes: before 1.37 webhooks are called for them.
func TestVirtualResourcesAreOutOfReach_S2_41(t *testing.T) {
	all := registration.VirtualResources()
	if len(all) < 10 {
		t.Fatalf("only %v are virtual", all)
	}
	for _, resource := range all {
		kind := schema.GroupVersionKind{Group: resource.Group, Version: "v1alpha1", Kind: "Any"}
		for _, d := range registration.Sources() {
			if got := ReachOf(d.Source, kind, resource, false); got != Nothing {
				t.Errorf("%s, %s: %v", d.Plugin, resource, got)
			}
			want := Nothing
			if resource.Group != "gatehouse.dev" && slices.Contains(hooks, d.Source) {
				want = Everything
			}
			if got := ReachOf(d.Source, kind, resource, true); got != want {
				t.Errorf("%s, %s before 1.37: %v, want %v", d.Plugin, resource, got, want)
			}
		}
	}
}

func TestNewRequestHasWhatTheAttributesSay(t *testing.T) {
	u := &user.DefaultInfo{Name: "ada"}
	options := &metav1.UpdateOptions{}
	a := admission.NewAttributesRecord(labelled(), nil, podKind, "shop", "web", pods, "status", admission.Update, options, true, u)
	want := Request{admission.Update, pods, "status", podKind, "shop", "web", options, u, true, false, false}
	if diff := cmp.Diff(want, NewRequest(a)); diff != "" {
		t.Errorf("request (-want +got):\n%s", diff)
	}
}

// many returns webhooks that do not match, for every possible reason, and some that do.
func many(hooks, matching int) *snapshot.Snapshot {
	c := &v1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "many"}}
	for i := range hooks {
		w := v1.ValidatingWebhook{Name: fmt.Sprintf("h%d.example.com", i)}
		rule := v1.RuleWithOperations{
			Operations: []v1.OperationType{"CREATE"},
			Rule:       v1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods"}},
		}
		if i >= matching {
			scope := v1.ClusterScope
			switch i % 6 {
			case 0:
				rule.Operations = []v1.OperationType{"UPDATE", "DELETE"}
			case 1:
				rule.Resources = []string{"*/status", "pods/exec"}
			case 2:
				rule.APIVersions = []string{"v2"}
			case 3:
				rule.APIGroups = []string{"apps"}
			case 4:
				rule.APIGroups, rule.Resources, rule.Scope = []string{"*"}, []string{"*/*"}, &scope
			case 5:
				rule.Resources = []string{fmt.Sprintf("things%d", i)}
			}
		}
		w.Rules = []v1.RuleWithOperations{rule}
		c.Webhooks = append(c.Webhooks, w)
	}
	registration.Default(c)
	return snapshot.Compile(snapshot.Registrations{Objects: objects(c)})
}

// S5.31: a create waits for its initializers, each for its whole timeout, and adjacent parallel
// ones together.
func TestInitializersCountInTheWorstCase(t *testing.T) {
	rules := []v1alpha1.Rule{{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods"}}}
	chain := []Link{Acting(registration.Initializing, nil)}
	for _, c := range []struct {
		name string
		// parallel has an entry for each initializer.
		parallel []bool
		timeout  time.Duration
		want     float64
	}{
		{"none", nil, 0, 0},
		{"one, with the default", []bool{false}, 0, 5},
		{"two", []bool{false, false}, 2 * time.Second, 4},
		{"parallel neighbours share a turn", []bool{true, true, true}, 2 * time.Second, 2},
		{"one between them", []bool{true, true, false, true}, 2 * time.Second, 6},
	} {
		t.Run(c.name, func(t *testing.T) {
			configuration := &v1alpha1.InitializerConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "c"}}
			for i, parallel := range c.parallel {
				configuration.Initializers = append(configuration.Initializers, v1alpha1.Initializer{Name: fmt.Sprintf("i%d.example.com", i), Rules: rules, Parallel: parallel})
			}
			s := snapshot.Compile(snapshot.Registrations{Objects: objects(configuration)})
			r := &Request{Operation: admission.Create, Resource: pods, Kind: podKind, Namespace: "shop", Name: "web"}
			in := &Input{Objects: AsWritten(labelled(), nil), InitializerTimeout: c.timeout}
			if got := New(t.Context(), chain, s, r, nil, in, false); got.WorstCaseSeconds != c.want || len(got.Steps) != len(c.parallel) {
				t.Errorf("S5.31 %v s, want %v, of %d steps", got.WorstCaseSeconds, c.want, len(got.Steps))
			}
		})
	}
}

var sink []Candidate

func TestRequestsThatNothingMatchesAllocateNothing(t *testing.T) {
	s := many(1000, 0)
	var e Equivalents = fixed{pods, {Group: "legacy", Version: "v1", Resource: "pods"}}
	r := &Request{Operation: admission.Create, Resource: pods, Kind: podKind, Namespace: "shop", Name: "web"}
	if n := testing.AllocsPerRun(100, func() { sink = Candidates(s, registration.Validating, r, e) }); n > 0 || sink != nil {
		t.Errorf("%v allocations, %d steps", n, len(sink))
	}
	if n := testing.AllocsPerRun(100, func() { Initializers(s, r, nil) }); n > 0 {
		t.Errorf("%v allocations for initializers", n)
	}
}

func TestDecideAllocatesNothingForSelectors(t *testing.T) {
	r := &Request{Operation: admission.Create, Resource: pods, Kind: podKind, Namespace: "shop", Name: "web"}
	s := step(t, r, func(w *v1.ValidatingWebhook) { w.NamespaceSelector, w.ObjectSelector = red, red })
	found := map[string]string{"team": "red"}
	in := given{
		Object:          labelled("team", "blue"),
		NamespaceLabels: func(context.Context, string) (map[string]string, error) { return found, nil },
	}.input()
	if n := testing.AllocsPerRun(100, func() {
		if d := s.Decide(t.Context(), r, in); d.Reason.Code != ObjectNotSelected {
			t.Error(d)
		}
	}); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkPlan(b *testing.B) {
	for _, bb := range []struct{ hooks, matching int }{{0, 0}, {10, 0}, {10000, 0}, {10, 3}, {10000, 3}, {10000, 100}} {
		b.Run(fmt.Sprintf("hooks=%d/matching=%d", bb.hooks, bb.matching), func(b *testing.B) {
			s := many(bb.hooks, bb.matching)
			var e Equivalents = fixed{pods, {Group: "legacy", Version: "v1", Resource: "pods"}}
			r := &Request{Operation: admission.Create, Resource: pods, Kind: podKind, Namespace: "shop", Name: "web"}
			b.ReportAllocs()
			for b.Loop() {
				if got := Candidates(s, registration.Validating, r, e); len(got) != bb.matching {
					b.Fatalf("%d steps", len(got))
				}
			}
		})
	}
}

func BenchmarkDecide(b *testing.B) {
	r := &Request{Operation: admission.Create, Resource: pods, Kind: podKind, Namespace: "shop", Name: "web"}
	s := step(b, r, func(w *v1.ValidatingWebhook) { w.NamespaceSelector, w.ObjectSelector = red, red })
	found := map[string]string{"team": "red"}
	in := given{
		Object:          labelled("team", "red"),
		NamespaceLabels: func(context.Context, string) (map[string]string, error) { return found, nil },
	}.input()
	b.ReportAllocs()
	for b.Loop() {
		if d := s.Decide(b.Context(), r, in); !d.Applies {
			b.Fatal(d)
		}
	}
}

func Example() {
	content := map[string]any{
		"apiVersion": "admissionregistration.k8s.io/v1",
		"kind":       "ValidatingWebhookConfiguration",
		"metadata":   map[string]any{"name": "billing"},
		"webhooks": []any{map[string]any{
			"name":           "quota.example.com",
			"objectSelector": map[string]any{"matchLabels": map[string]any{"team": "red"}},
			"rules": []any{map[string]any{
				"operations": []any{"CREATE"}, "apiGroups": []any{""}, "apiVersions": []any{"v1"}, "resources": []any{"pods"},
			}},
		}},
	}
	obj, err := registration.Parse(content)
	if err != nil {
		fmt.Println(err)
		return
	}
	s := snapshot.Compile(snapshot.Registrations{Objects: []runtime.Object{obj}})
	r := &Request{Operation: admission.Create, Resource: pods, Kind: podKind, Namespace: "shop", Name: "web"}
	var b strings.Builder
	p := New(context.Background(), chain(registration.Validating), s, r, nil, given{Object: labelled("team", "blue")}.input(), true)
	p.Print(&b)
	fmt.Print(b.String())
	// Output:
	//    skip  billing/quota.example.com  objectSelector team=red does not match team=blue
}
