package dispatch

import (
	"encoding/json"
	"net/http"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apiserver/pkg/admission"

	"github.com/gatehouse-dev/gatehouse/admission/plan"
	"github.com/gatehouse-dev/gatehouse/admission/registration"
	"github.com/gatehouse-dev/gatehouse/internal/engine/condition"
	"github.com/gatehouse-dev/gatehouse/internal/engine/expression"
	"github.com/gatehouse-dev/gatehouse/test/hooktest"
)

// once sets a field in the first call, then allows.
func once(operations string) hooktest.Answer {
	done := false
	return func(r *http.Request, req *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
		if done {
			return hooktest.Allow(r, req)
		}
		done = true
		return hooktest.Patch(operations)(r, req)
	}
}

// sets sets the field size if it has no value.
func sets(value int) hooktest.Answer {
	return func(r *http.Request, req *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
		var object struct{ Size int }
		if json.Unmarshal(req.Object.Raw, &object) == nil && object.Size == value {
			return hooktest.Allow(r, req)
		}
		data, _ := json.Marshal([]map[string]any{{"op": "add", "path": "/size", "value": value}})
		return hooktest.Patch(string(data))(r, req)
	}
}

func TestReinvocation(t *testing.T) {
	never := func(h *registration.Entry) { h.MayReinvoke = false }
	second := func(n int) func(pass int, u *unstructured.Unstructured) {
		return func(pass int, u *unstructured.Unstructured) {
			if pass <= n {
				unstructured.SetNestedField(u.Object, int64(pass), "tree")
			}
		}
	}
	tests := []struct {
		name string
		// hooks returns the answers of a, b, ...; nil is a webhook that fails.
		hooks func() []hooktest.Answer
		edit  map[int]func(*registration.Entry)
		// only limits hook 0 to objects with the label l.
		only bool
		// tree is a built-in admission plugin, run before the webhooks in every pass.
		tree   func(pass int, u *unstructured.Unstructured)
		passes int
		calls  []int
	}{
		{name: "S5.23 A changes nothing", hooks: func() []hooktest.Answer { return []hooktest.Answer{hooktest.Allow} }, passes: 1, calls: []int{1}},
		{name: "S5.16 a built-in mutator alone never causes a second pass", hooks: func() []hooktest.Answer { return []hooktest.Answer{hooktest.Allow} }, tree: second(2), passes: 1, calls: []int{1}},
		{name: "S5.23 A changes, in-tree idle in pass 2", hooks: func() []hooktest.Answer { return []hooktest.Answer{sets(1)} }, tree: second(1), passes: 2, calls: []int{1}},
		{name: "S5.20 S5.23 A changes, in-tree changes again in pass 2", hooks: func() []hooktest.Answer { return []hooktest.Answer{sets(1)} }, tree: second(2), passes: 2, calls: []int{2}},
		{
			name: "S5.18 S5.23 A changes, B changes, pass 2: A changes nothing",
			hooks: func() []hooktest.Answer {
				return []hooktest.Answer{once(`[{"op":"add","path":"/a","value":1}]`), once(`[{"op":"add","path":"/b","value":1}]`)}
			},
			passes: 2, calls: []int{2, 1},
		},
		{
			name:   "S5.22 S5.23 A sets x, B sets y over it, always fighting; there is no third pass",
			hooks:  func() []hooktest.Answer { return []hooktest.Answer{sets(1), sets(2)} },
			passes: 2, calls: []int{2, 2},
		},
		{
			name: "S5.21 S5.23 A skipped in pass 1, B adds the label",
			hooks: func() []hooktest.Answer {
				return []hooktest.Answer{hooktest.Allow, once(`[{"op":"add","path":"/metadata/labels","value":{"l":"1"}}]`)}
			},
			only:   true,
			passes: 2, calls: []int{0, 1},
		},
		{
			name: "S5.23 A, B Never, B changes",
			hooks: func() []hooktest.Answer {
				return []hooktest.Answer{hooktest.Allow, once(`[{"op":"add","path":"/b","value":1}]`)}
			},
			edit:   map[int]func(*registration.Entry){0: never, 1: never},
			passes: 2, calls: []int{1, 1},
		},
		{
			name:   "S5.19 a hook that failed open is called again",
			hooks:  func() []hooktest.Answer { return []hooktest.Answer{nil, once(`[{"op":"add","path":"/b","value":1}]`)} },
			edit:   map[int]func(*registration.Entry){0: ignore},
			passes: 2, calls: []int{2, 1},
		},
		{
			name: "S5.22 a later hook is marked by an earlier one's change in pass 2",
			// A changes the object after B has: in pass 2, which marks B.
			hooks: func() []hooktest.Answer {
				return []hooktest.Answer{
					func(r *http.Request, req *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
						var object struct{ B, N int }
						json.Unmarshal(req.Object.Raw, &object)
						if object.B == 0 || object.N > 1 {
							return hooktest.Allow(r, req)
						}
						return hooktest.Patch(`[{"op":"add","path":"/n","value":2}]`)(r, req)
					},
					once(`[{"op":"add","path":"/b","value":1}]`),
				}
			},
			passes: 2, calls: []int{2, 2},
		},
	}
	for _, tt := range tests {
		for _, serial := range []bool{true, false} {
			name := tt.name
			if !serial {
				name += ", ahead of turn"
			}
			t.Run(name, func(t *testing.T) {
				f := newFixture(t)
				var steps []plan.Candidate
				hooks := tt.hooks()
				for i, a := range hooks {
					path := string(rune('a' + i))
					if a == nil {
						a = func(*http.Request, *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
							panic(http.ErrAbortHandler)
						}
					}
					f.Answer(path, a)
					edit := []func(*registration.Entry){ifNeeded}
					if e := tt.edit[i]; e != nil {
						edit = append(edit, e)
					}
					s := f.hook(registration.Mutating, path+".x.y", edit...)
					if tt.only && i == 0 {
						s.Entry.ObjectSelector = labels.SelectorFromSet(labels.Set{"l": "1"})
					}
					steps = append(steps, s)
				}
				numbered(steps...)
				object := widget(t, "")
				a := attributes(admission.Create, object, nil, false)
				d := f.dispatcher(t, registration.Mutating, func(o *Options) { o.Serial = serial })
				passes := 0
				for passes < 2 {
					if tt.tree != nil {
						tt.tree(passes+1, object)
					}
					if err := f.run(t.Context(), d, a, steps); err != nil {
						t.Fatal(err)
					}
					passes++
					if !a.GetReinvocationContext().ShouldReinvoke() {
						break
					}
					a.GetReinvocationContext().SetIsReinvoke()
				}
				if passes != tt.passes {
					t.Errorf("got %d passes, want %d", passes, tt.passes)
				}
				calls := make([]int, len(hooks))
				for i := range calls {
					calls[i] = len(f.Requests(string(rune('a' + i))))
				}
				if diff := cmp.Diff(tt.calls, calls); diff != "" {
					t.Errorf("calls (-want +got):\n%s", diff)
				}
				for i, tr := range f.traces {
					if tr.Round != i {
						t.Errorf("pass %d is on record as round %d", i, tr.Round)
					}
				}
			})
		}
	}
}

func TestDuplicateNamesAreDistinct(t *testing.T) {
	f := newFixture(t)
	f.Answer("a", hooktest.Allow)
	f.Answer("b", sets(1))
	first := f.hook(registration.Mutating, "a.x.y", ifNeeded)
	middle := f.hook(registration.Mutating, "b.x.y")
	last := f.hook(registration.Mutating, "a.x.y", ifNeeded, func(h *registration.Entry) { h.Ordinal = 1 })
	steps := numbered(first, middle, last)
	a := attributes(admission.Create, widget(t, ""), nil, false)
	d := f.dispatcher(t, registration.Mutating)
	for range 2 {
		if err := f.run(t.Context(), d, a, steps); err != nil {
			t.Fatal(err)
		}
		a.GetReinvocationContext().SetIsReinvoke()
	}
	// Of the two webhooks with one name, only the first is called again.
	if got := len(f.Requests("a")); got != 3 {
		t.Errorf("S5.2 got %d calls, want 3", got)
	}
	if got := f.traces[1].Calls; len(got) != 1 || got[0].Position != 0 {
		t.Errorf("S5.2 the second pass called %v", got)
	}
}

func TestWhatAConversionChangesIsNoReasonToReinvoke(t *testing.T) {
	f := newFixture(t)
	f.Answer("a", hooktest.Patch(`[{"op":"add","path":"/lost","value":1},{"op":"add","path":"/big","value":1}]`))
	step := f.hook(registration.Mutating, "a.x.y", ifNeeded)
	step.Kind = widgetV2
	a := attributes(admission.Create, widget(t, ""), nil, false)
	d := f.dispatcher(t, registration.Mutating)
	for range 2 {
		if err := f.run(t.Context(), d, a, numbered(step)); err != nil {
			t.Fatal(err)
		}
		a.GetReinvocationContext().SetIsReinvoke()
	}
	if got := len(f.Requests("a")); got != 1 {
		t.Errorf("S5.20 got %d calls, want 1: nothing changed the object between the passes", got)
	}
}

// A webhook that is not to be called again is still decided about in the second pass: a condition
// that cannot be evaluated then rejects the request, as in k8s.io/apiserver (S2.32, S2.36).
func TestConditionsAreEvaluatedInTheSecondPass(t *testing.T) {
	f := newFixture(t)
	f.Answer("a", hooktest.Allow)
	f.Answer("b", once(`[{"op":"remove","path":"/metadata/labels"}]`))
	d := f.dispatcher(t, registration.Mutating)
	steps := numbered(
		f.hook(registration.Mutating, "a.x.y"),
		f.hook(registration.Mutating, "b.x.y", ifNeeded),
	)
	steps[0].Entry.Conditions = condition.Compile(&expression.Cache{}, expression.Scope{Authorizer: true}, []registration.MatchCondition{{Name: "c", Expression: "object.metadata.labels.l == '1'"}})
	object := widget(t, "")
	object.SetLabels(map[string]string{"l": "1"})
	a := attributes(admission.Create, object, nil, false)
	if err := f.run(t.Context(), d, a, steps); err != nil {
		t.Fatal(err)
	}
	again := a.GetReinvocationContext()
	if !again.ShouldReinvoke() {
		t.Fatal("the change asks for no second pass")
	}
	again.SetIsReinvoke()
	if err := f.run(t.Context(), d, a, steps); !apierrors.IsForbidden(err) {
		t.Errorf("the second pass gives %v", err)
	}
}
