package dispatch

import (
	"bytes"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/admission"

	"github.com/gatehouse-dev/gatehouse/admission/plan"
	"github.com/gatehouse-dev/gatehouse/admission/registration"
	"github.com/gatehouse-dev/gatehouse/admission/trace"
	"github.com/gatehouse-dev/gatehouse/test/hooktest"
)

// hasty makes a dispatcher expect that no webhook changes anything, and that discarded calls cost
// nothing: every call that may go ahead does.
func hasty(d *Dispatcher, steps []plan.Candidate, a admission.Attributes) {
	r := run{Dispatcher: d, request: requestOf(a)}
	d.forecast.mu.habits = map[habit]float64{}
	for i := range steps {
		d.forecast.mu.habits[r.habit(&steps[i])] = 0
	}
	d.forecast.mu.credit = 1e6
}

// whim is a webhook whose answer depends only on the object that it receives: it may allow, deny,
// fail, or increment one of three fields.
func whim(seed uint32) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var review admissionv1.AdmissionReview
		if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
			http.Error(w, err.Error(), 400)
			return
		}
		var object struct {
			A, B, C, Lost int
		}
		if err := json.Unmarshal(review.Request.Object.Raw, &object); err != nil {
			http.Error(w, err.Error(), 400)
			return
		}
		h := fnv.New32a()
		fmt.Fprint(h, seed, object)
		response := &admissionv1.AdmissionResponse{UID: review.Request.UID, Allowed: true}
		switch n := h.Sum32() % 16; {
		case n == 0:
			response.Allowed, response.Result = false, &metav1.Status{Message: fmt.Sprint(object)}
		case n == 1:
			http.Error(w, "whim", 500)
			return
		case n < 6:
			kind := admissionv1.PatchTypeJSONPatch
			field := []string{"a", "b", "c"}[n%3]
			value := map[string]int{"a": object.A, "b": object.B, "c": object.C}[field] + 1
			response.PatchType = &kind
			response.Patch = fmt.Appendf(nil, `[{"op":"replace","path":"/%s","value":%d},{"op":"add","path":"/metadata/labels","value":{"%s":"%d"}},{"op":"add","path":"/lost","value":%d}]`, field, value, field, value, n)
		default:
			response.Warnings = []string{fmt.Sprint(seed, object)}
		}
		review.Request, review.Response = nil, response
		json.NewEncoder(w).Encode(&review)
	}
}

// TestAheadOfTurnMakesNoDifference runs random chains of webhooks with calls ahead of turn and
// without: the object, the error and the traces must be the same (S5.28).
func TestAheadOfTurnMakesNoDifference(t *testing.T) {
	f := newFixture(t)
	const whims = 12
	// received has the uid of every review that a webhook received; known has the fate of each
	// according to the traces.
	var received sync.Map
	known := map[types.UID]trace.Fate{}
	for i := range whims {
		f.Serve(fmt.Sprintf("w%d", i), func(w http.ResponseWriter, r *http.Request) {
			body, err := io.ReadAll(r.Body)
			var asked admissionv1.AdmissionReview
			if err != nil || json.Unmarshal(body, &asked) != nil {
				// A call that was cancelled while it was sent.
				return
			}
			received.Store(asked.Request.UID, true)
			r.Body = io.NopCloser(bytes.NewReader(body))
			whim(uint32(i))(w, r)
		})
	}
	serial := f.dispatcher(t, registration.Mutating, func(o *Options) { o.Serial = true })
	ahead := f.dispatcher(t, registration.Mutating)
	random := rand.New(rand.NewPCG(1, 2))
	turns := map[trace.Turn]int{}
	for range 300 {
		steps := randomSteps(f, random, whims)
		start := fmt.Sprintf(`"a":%d,"b":%d,"c":%d`, random.IntN(3), random.IntN(3), random.IntN(3))

		type outcome struct {
			Object map[string]any
			Error  string
			Traces []string
		}
		pass := func(d *Dispatcher) outcome {
			f.traces = nil
			object := widget(t, start)
			a := attributes(admission.Create, object, nil, false)
			if d == ahead {
				hasty(d, steps, a)
			}
			err := f.run(t.Context(), d, a, steps)
			again := a.GetReinvocationContext()
			if err == nil && again.ShouldReinvoke() {
				again.SetIsReinvoke()
				err = f.run(t.Context(), d, a, steps)
			}
			var o outcome
			if err != nil {
				o.Error = err.Error()
			} else {
				o.Object = object.Object
			}
			for _, tr := range f.traces {
				// Discarded calls occur only if webhooks are called ahead.
				used := *tr
				used.Discarded, used.Calls = nil, slices.Clone(tr.Calls)
				for i := range used.Calls {
					used.Calls[i].Turn = trace.InTurn
				}
				text := withoutTimes(&used)
				for i := range tr.Calls {
					c := &tr.Calls[i]
					text += fmt.Sprint(c.Matched, c.Warnings, "\n")
					if d == ahead {
						turns[c.Turn]++
					}
				}
				o.Traces = append(o.Traces, text)
				for _, calls := range [][]trace.Call{tr.Calls, tr.Discarded} {
					for i := range calls {
						c := &calls[i]
						if _, twice := known[c.UID]; twice {
							t.Errorf("review %s is there twice", c.UID)
						}
						known[c.UID] = c.Fate
						if _, ok := received.Load(c.UID); !ok && c.Verdict == trace.Allowed {
							t.Errorf("%s allowed what it did not receive", &c.Entry)
						}
					}
				}
			}
			return o
		}
		if diff := cmp.Diff(pass(serial), pass(ahead)); diff != "" {
			t.Fatalf("ahead of turn, the outcome is another (-serial +ahead):\n%s", diff)
		}
	}
	received.Range(func(uid, _ any) bool {
		if _, ok := known[uid.(types.UID)]; !ok {
			t.Errorf("a webhook received review %s, which is in no trace", uid)
		}
		return true
	})
	fates := map[trace.Fate]int{}
	for _, fate := range known {
		fates[fate]++
	}
	if fates[trace.Superseded] == 0 || fates[trace.NotReached] == 0 {
		t.Errorf("the chains do not cover all fates: %v", fates)
	}
	if turns[trace.Ahead] == 0 || turns[trace.Again] == 0 || turns[trace.InTurn] == 0 {
		t.Errorf("the chains do not cover all cases: %v", turns)
	}
}

func randomSteps(f *fixture, random *rand.Rand, whims int) []plan.Candidate {
	var steps []plan.Candidate
	for i := range 2 + random.IntN(6) {
		s := f.hook(registration.Mutating, fmt.Sprintf("w%d.x.y%d", random.IntN(whims), i))
		if random.IntN(4) > 0 {
			ifNeeded(s.Entry.Entry)
		}
		if random.IntN(3) == 0 {
			ignore(s.Entry.Entry)
		}
		if random.IntN(5) == 0 {
			s.Entry.SideEffects = "NoneOnDryRun"
		}
		if random.IntN(3) == 0 {
			s.Kind = widgetV2
		}
		if random.IntN(3) == 0 {
			s.Entry.ObjectSelector = labels.SelectorFromSet(labels.Set{"a": "1"})
		}
		steps = append(steps, s)
	}
	return numbered(steps...)
}

func TestQuietHooksAreCalledTogether(t *testing.T) {
	f := newFixture(t)
	const hooks = 12
	var steps []plan.Candidate
	for i := range hooks {
		name := string(rune('a' + i))
		f.Answer(name, hooktest.Allow)
		steps = append(steps, f.hook(registration.Mutating, name+".x.y", ifNeeded))
	}
	numbered(steps...)
	d := f.dispatcher(t, registration.Mutating)
	for range 100 {
		if err := f.run(t.Context(), d, attributes(admission.Create, widget(t, ""), nil, false), steps); err != nil {
			t.Fatal(err)
		}
	}
	// By now they are known to be quiet. None answers before all were called.
	var all sync.WaitGroup
	all.Add(hooks)
	for i := range hooks {
		f.Answer(string(rune('a'+i)), func(*http.Request, *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
			all.Done()
			all.Wait()
			return &admissionv1.AdmissionResponse{Allowed: true}
		})
	}
	if err := f.run(t.Context(), d, attributes(admission.Create, widget(t, ""), nil, false), steps); err != nil {
		t.Fatal(err)
	}
}

// TestOnlyHarmlessHooksGoAhead proves which webhooks may be called ahead of turn (S5.28).
func TestOnlyHarmlessHooksGoAhead(t *testing.T) {
	for name, edit := range map[string]func(*registration.Entry){
		"side effects":  func(h *registration.Entry) { h.MayReinvoke, h.SideEffects = true, "NoneOnDryRun" },
		"no reinvoking": func(h *registration.Entry) { h.MayReinvoke = false },
		"turned off":    ifNeeded,
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			f.Answer("a", hooktest.Allow)
			d := f.dispatcher(t, registration.Mutating, func(o *Options) { o.Serial = name == "turned off" })
			steps := numbered(f.hook(registration.Mutating, "a.x.y", edit), f.hook(registration.Mutating, "a.x.z", edit))
			a := attributes(admission.Create, widget(t, ""), nil, false)
			hasty(d, steps, a)
			if err := f.run(t.Context(), d, a, steps); err != nil {
				t.Fatal(err)
			}
			for _, c := range f.traces[0].Calls {
				if c.Turn != trace.InTurn {
					t.Errorf("%s was called ahead", &c.Entry)
				}
			}
		})
	}
}

// The effect of a webhook with few observations is unknown: later webhooks wait.
func TestNothingGoesAheadOfAHookThatMayChangeTheObject(t *testing.T) {
	f := newFixture(t)
	f.Answer("a", hooktest.Allow)
	f.Answer("b", hooktest.Allow)
	d := f.dispatcher(t, registration.Mutating)
	for i := range 40 {
		d.forecast.mu.Lock()
		d.forecast.mu.credit = maxCredit
		d.forecast.mu.Unlock()
		steps := numbered(f.hook(registration.Mutating, "a.x.y", ifNeeded), f.hook(registration.Mutating, "b.x.y", ifNeeded))
		if err := f.run(t.Context(), d, attributes(admission.Create, widget(t, ""), nil, false), steps); err != nil {
			t.Fatal(err)
		}
		// Each quiet call removes a sixteenth from a doubt of a half: 25 of them leave less than a
		// tenth.
		if got, want := f.traces[i].Calls[1].Turn == trace.Ahead, i >= 25; got != want {
			t.Errorf("call %d, ahead of its turn: %v", i, got)
		}
	}
}

// No webhook is called ahead of its turn after a webhook that is certain to reject the request
// (S5.28).
func TestNothingGoesAheadOfACertainRejection(t *testing.T) {
	for name, edit := range map[string]func(*registration.Entry){
		"S7.6 no dry run":            sideEffects("Some"),
		"S7.4 side effects unknown":  sideEffects(""),
		"S3.6 no version of reviews": func(h *registration.Entry) { h.ReviewVersions = []string{"v7"} },
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			f.Answer("a", hooktest.Allow)
			f.Answer("c", hooktest.Allow)
			d := f.dispatcher(t, registration.Mutating)
			steps := numbered(f.hook(registration.Mutating, "a.x.y"), f.hook(registration.Mutating, "b.x.y", edit), f.hook(registration.Mutating, "c.x.y", ifNeeded))
			a := attributes(admission.Create, widget(t, ""), nil, true)
			hasty(d, steps, a)
			if err := f.run(t.Context(), d, a, steps); err == nil {
				t.Fatal("the request was not rejected")
			}
			if n := len(f.traces[0].Discarded); n != 0 {
				t.Errorf("%d webhooks were called whose turn could not come", n)
			}
		})
	}
}

func TestFewCallsAreWasted(t *testing.T) {
	f := newFixture(t)
	random := rand.New(rand.NewPCG(3, 4))
	var mu sync.Mutex
	// sometimes changes the object in one of n requests.
	sometimes := func(n int) hooktest.Answer {
		return func(r *http.Request, req *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
			mu.Lock()
			hit := random.IntN(n) == 0
			mu.Unlock()
			u := &unstructured.Unstructured{}
			if err := u.UnmarshalJSON(req.Object.Raw); err == nil && hit {
				size, _, _ := unstructured.NestedInt64(u.Object, "size")
				return hooktest.Patch(fmt.Sprintf(`[{"op":"add","path":"/size","value":%d}]`, size+1))(r, req)
			}
			return hooktest.Allow(r, req)
		}
	}
	for _, n := range []int{1, 2, 8, 15, 40} {
		t.Run(fmt.Sprintf("one in %d", n), func(t *testing.T) {
			f.Answer("a", sometimes(n))
			f.Answer("b", hooktest.Allow)
			f.Answer("c", hooktest.Allow)
			steps := numbered(f.hook(registration.Mutating, "a.x.y", ifNeeded), f.hook(registration.Mutating, "b.x.y", ifNeeded), f.hook(registration.Mutating, "c.x.y", ifNeeded))
			d := f.dispatcher(t, registration.Mutating)
			f.traces = nil
			for range 300 {
				if err := f.run(t.Context(), d, attributes(admission.Create, widget(t, ""), nil, false), steps); err != nil {
					t.Fatal(err)
				}
			}
			calls, ahead, wasted := 0, 0, 0
			for _, tr := range f.traces {
				for _, c := range tr.Calls {
					calls++
					switch c.Turn {
					case trace.Ahead:
						ahead++
					case trace.Again:
						wasted++
					}
				}
			}
			if wasted*10 > calls {
				t.Errorf("%d of %d calls were wasted", wasted, calls)
			}
			if n == 40 && ahead*2 < calls {
				t.Errorf("only %d of %d calls went ahead, of hooks that hardly ever change anything", ahead, calls)
			}
			t.Logf("%d calls, %d ahead, %d wasted", calls, ahead, wasted)
		})
	}
}

func TestARejectionLeavesNothingUnderWay(t *testing.T) {
	f := newFixture(t)
	started := make(chan struct{})
	f.Answer("a", func(*http.Request, *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
		<-started
		return &admissionv1.AdmissionResponse{}
	})
	f.Answer("b", func(r *http.Request, _ *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
		close(started)
		<-r.Context().Done()
		return &admissionv1.AdmissionResponse{Allowed: true}
	})
	steps := numbered(f.hook(registration.Mutating, "a.x.y"), f.hook(registration.Mutating, "b.x.y", ifNeeded))
	d := f.dispatcher(t, registration.Mutating)
	a := attributes(admission.Create, widget(t, ""), nil, false)
	hasty(d, steps, a)
	err := f.run(t.Context(), d, a, steps)
	if s := status(err); s == nil || !strings.Contains(s.Message, `"a.x.y" denied`) {
		t.Errorf("got %v", err)
	}
	if got := len(f.traces[0].Calls); got != 1 {
		t.Errorf("%d calls are on record, want 1", got)
	}
}

// withoutTimes returns the record of a run as JSON, without times and UIDs, so that two equal runs
// have the same text.
func withoutTimes(run *trace.Run) string {
	var followed trace.Trace
	followed.Add(run.Step())
	step := followed.Record(trace.RecordOptions{}).Steps[0]
	step.Start, step.Micros, step.ReadAt = trace.Time{}, 0, nil
	for i := range step.Calls {
		c := &step.Calls[i]
		c.Start, c.Micros, c.UID = trace.Time{}, 0, ""
	}
	for i := range step.Conditions {
		step.Conditions[i].Micros = 0
	}
	text, err := json.Marshal(step)
	if err != nil {
		panic(err)
	}
	return string(text)
}
