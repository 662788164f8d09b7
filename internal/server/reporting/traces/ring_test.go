package traces

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"

	engine "github.com/gatehouse-dev/gatehouse/admission"
	"github.com/gatehouse-dev/gatehouse/admission/registration"
	"github.com/gatehouse-dev/gatehouse/admission/trace"
	"github.com/gatehouse-dev/gatehouse/internal/server/reporting/traces/v1alpha1"
)

// made returns a trace about an object, with a patch of some bytes.
func made(name string, patch int, call trace.Call) *trace.Trace {
	t := trace.New()
	request := trace.Request{Operation: "CREATE", Namespace: "shop", Name: name, Resource: schema.GroupVersionResource{Version: "v1", Resource: "pods"}}
	t.Note(trace.Subject{Request: request})
	call.Patch = fmt.Appendf(nil, `[{"op":"add","path":"/x","value":%q}]`, strings.Repeat("x", patch))
	t.Add((&trace.Run{Request: request, Source: registration.Mutating, Calls: []trace.Call{call}}).Step())
	t.Finish()
	return t
}

func (r *Ring) objects() []string {
	list, _ := r.list()
	found := []string{}
	for _, k := range list {
		found = append(found, k.trace.Subject().Name)
	}
	return found
}

func TestARingStaysWithinItsBound(t *testing.T) {
	const bound = 1 << 20
	r := NewRing(bound)
	random := rand.New(rand.NewPCG(1, 2))
	most := 0
	for i := range 20_000 {
		call := trace.Call{Verdict: trace.Failed, Ignored: random.IntN(4) == 0}
		late := made(fmt.Sprint(i), random.IntN(2000), call)
		r.Add(late)
		if random.IntN(10) == 0 {
			late.Add((&trace.Run{Source: registration.Validating, Calls: make([]trace.Call, random.IntN(5))}).Step())
		}
		most = max(most, r.Bytes())
	}
	if most > bound || most < bound/2 {
		t.Errorf("the ring had up to %d bytes, its bound is %d", most, bound)
	}
	if n := len(r.mu.byID); n != len(r.mu.plain.entries)+len(r.mu.notable.entries) || n == 0 {
		t.Errorf("%d traces by ID, %d and %d in the queues", n, len(r.mu.plain.entries), len(r.mu.notable.entries))
	}
	sum := 0
	for _, e := range r.mu.byID {
		sum += e.trace.Size()
	}
	if sum != r.Bytes() {
		t.Errorf("the traces have %d bytes, the ring counts %d", sum, r.Bytes())
	}
	r.Add(made("too big", bound+1, trace.Call{}))
	if slices.Contains(r.objects(), "too big") {
		t.Error("the ring holds a trace that is bigger than its bound")
	}
}

// The counted size of a trace is its real size, within a factor of two.
func TestTheBytesOfARingAreThoseOfItsMemory(t *testing.T) {
	heap := func() int {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int(m.HeapAlloc)
	}
	for _, patch := range []int{0, 300, 5000} {
		r := NewRing(8 << 20)
		before := heap()
		for i := range 20_000 {
			r.Add(made(fmt.Sprint(i), patch, trace.Call{}))
		}
		taken, counted := heap()-before, r.Bytes()
		t.Logf("patches of %d bytes: %d traces counted as %d bytes take %d", patch, len(r.mu.byID), counted, taken)
		if taken > 2*counted || counted > 2*taken {
			t.Errorf("patches of %d bytes: counted %d bytes, they take %d", patch, counted, taken)
		}
		runtime.KeepAlive(r)
	}
}

func TestRejectionsAndFailuresAreKeptLonger(t *testing.T) {
	size := made("x", 0, trace.Call{}).Size()
	r := NewRing(10 * size)
	notable := trace.Call{Ignored: true}
	r.Add(made("n", 0, notable))
	for range 100 {
		r.Add(made("p", 0, trace.Call{}))
	}
	if got := r.objects(); !slices.Contains(got, "n") || len(got) != 10 {
		t.Errorf("after 100 plain ones, there are %v", got)
	}
	for range 100 {
		r.Add(made("n", 0, notable))
	}
	if got := r.objects(); !slices.Contains(got, "p") || !slices.Contains(got, "n") {
		t.Errorf("100 notable ones leave no room for plain ones: %v", got)
	}
}

func TestLateStepsAreCounted(t *testing.T) {
	r := NewRing(1 << 20)
	late := made("late", 0, trace.Call{})
	r.Add(late)
	r.Add(made("other", 0, trace.Call{}))
	before := r.Bytes()
	late.Add((&trace.Run{Source: registration.Validating, Calls: []trace.Call{{Ignored: true}}}).Step())
	if r.Bytes() <= before {
		t.Error("a late step takes no bytes")
	}
	if got := r.objects(); !slices.Equal(got, []string{"other", "late"}) {
		t.Errorf("got %v: a trace that has grown is the newest", got)
	}
	if len(r.mu.notable.entries) != 1 {
		t.Error("a trace that failed open late is not notable")
	}
}

func TestManyMayUseARing(t *testing.T) {
	r := NewRing(100 << 10)
	s := NewStorage(r, nil, trace.RecordOptions{})
	w, err := s.Watch(t.Context(), &metainternalversion.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	var group sync.WaitGroup
	for i := range 4 {
		group.Go(func() {
			for k := range 500 {
				late := made(fmt.Sprint(i, k), 100, trace.Call{})
				group.Go(func() { late.Add(trace.Step{}) })
				r.Add(late)
				if k%100 == 0 {
					if _, err := s.List(t.Context(), &metainternalversion.ListOptions{}); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	group.Wait()
	if r.Bytes() > 100<<10 {
		t.Errorf("the ring has %d bytes", r.Bytes())
	}
}

// A response is selected by its code, its class and its reason, and has a column of its own.
func TestResponsesAreSelected(t *testing.T) {
	r := NewRing(1 << 20)
	s := NewStorage(r, nil, trace.RecordOptions{})
	for name, response := range map[string]*trace.Response{
		"created": {Code: 201}, "invalid": {Code: 422, Reason: "Invalid", Message: "no"}, "there": {Code: 409, Reason: "AlreadyExists"}, "open": nil,
	} {
		one := made(name, 0, trace.Call{})
		if response != nil {
			one.Respond(*response)
		}
		r.Add(one)
	}
	for selector, want := range map[string]string{
		"response=422": "invalid", "response=4xx": "invalid there", "response=Invalid": "invalid", "response=2xx": "created", "response=500": "",
		"response!=4xx": "created open", "response=4xx,outcome=Allowed": "invalid there", "response=AlreadyExists": "there",
	} {
		list, err := s.List(t.Context(), &metainternalversion.ListOptions{FieldSelector: fields.ParseSelectorOrDie(selector)})
		if err != nil {
			t.Fatal(err)
		}
		names := []string{}
		for _, item := range list.(*v1alpha1.AdmissionTraceList).Items {
			names = append(names, item.Request.Name)
		}
		slices.Sort(names)
		if got := strings.Join(names, " "); got != want {
			t.Errorf("%s: got %q, want %q", selector, got, want)
		}
		if selector != "response=422" {
			continue
		}
		table, err := s.ConvertToTable(t.Context(), list, nil)
		if err != nil {
			t.Fatal(err)
		}
		column := slices.IndexFunc(table.ColumnDefinitions, func(c metav1.TableColumnDefinition) bool { return c.Name == "Response" })
		if column < 0 || table.Rows[0].Cells[column] != "422 Invalid" {
			t.Errorf("the table is %+v", table)
		}
	}
}

func TestWatchersSeeWhatComesAndGoes(t *testing.T) {
	r := NewRing(2 * made("before", 0, trace.Call{}).Size())
	s := NewStorage(r, nil, trace.RecordOptions{})
	r.Add(made("before", 0, trace.Call{}))
	w, err := s.Watch(t.Context(), &metainternalversion.ListOptions{FieldSelector: fields.ParseSelectorOrDie("name!=other")})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	next := func(want watch.EventType, name string) {
		t.Helper()
		e := <-w.ResultChan()
		if got, ok := e.Object.(*v1alpha1.AdmissionTrace); !ok || e.Type != want || got.Request.Name != name {
			t.Fatalf("got %s %+v, want %s %s", e.Type, e.Object, want, name)
		}
	}
	next(watch.Added, "before")
	r.Add(made("other", 0, trace.Call{}))
	r.Add(made("after", 0, trace.Call{}))
	next(watch.Added, "after")
	next(watch.Deleted, "before")
}

func TestAWatcherThatIsFarBehindEnds(t *testing.T) {
	r := NewRing(1 << 20)
	s := NewStorage(r, nil, trace.RecordOptions{})
	w, err := s.Watch(t.Context(), &metainternalversion.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 2 * maxBehind {
		r.Add(made(fmt.Sprint(i), 100, trace.Call{}))
	}
	last := watch.Event{}
	for e := range w.ResultChan() {
		last = e
		if e.Type == watch.Error {
			break
		}
	}
	if last.Type != watch.Error {
		t.Errorf("the last event is %v", last)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.mu.watchers) != 0 {
		t.Error("the ring still knows the watcher")
	}
}

// BenchmarkTracing measures how much time a request takes longer because its trace is written and
// kept. Batches with and without traces take turns, and the benchmark reports the difference of
// their medians. The request is a create that goes through both passes, with a built-in admission
// plugin and, in the second case, the run of one webhook.
func BenchmarkTracing(b *testing.B) {
	for _, calls := range []int{0, 1} {
		b.Run(fmt.Sprintf("calls=%d", calls), func(b *testing.B) {
			r := NewRing(8 << 20)
			publisher := &trace.Publisher{}
			pods := schema.GroupVersionResource{Version: "v1", Resource: "pods"}
			chain := engine.Chain(engine.Plugin{Name: "Benchmarked", Interface: nothing{}})
			plain := http.Handler(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
				pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web"}}
				a := admission.NewAttributesRecord(pod, nil, schema.GroupVersionKind{Version: "v1", Kind: "Pod"}, "shop", "web", pods, "",
					admission.Create, nil, false, &user.DefaultInfo{Name: "jane"})
				if err := chain.Admit(req.Context(), a, nil); err != nil {
					b.Fatal(err)
				}
				for range calls {
					publisher.Publish(req.Context(), a, &trace.Run{Source: registration.Mutating, Calls: []trace.Call{{Code: 200}}})
				}
				if err := chain.Validate(req.Context(), a, nil); err != nil {
					b.Fatal(err)
				}
				w.WriteHeader(http.StatusCreated)
			}))
			traced := engine.Traced(plain, r.Add)
			const batch = 200
			var times [2][]float64
			for b.Loop() {
				for i, h := range []http.Handler{plain, traced} {
					began := time.Now()
					for range batch {
						h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("POST", "/", nil))
					}
					times[i] = append(times[i], float64(time.Since(began))/batch)
				}
			}
			if len(r.mu.byID) == 0 || r.Bytes() > 8<<20 {
				b.Fatalf("%d traces in %d bytes", len(r.mu.byID), r.Bytes())
			}
			slices.Sort(times[0])
			slices.Sort(times[1])
			without, with := times[0][len(times[0])/2], times[1][len(times[1])/2]
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(with-without, "ns-added/request")
		})
	}
}

// nothing is a plugin that allows everything.
type nothing struct{}

func (nothing) Handles(admission.Operation) bool { return true }

func (nothing) Admit(context.Context, admission.Attributes, admission.ObjectInterfaces) error {
	return nil
}

func (nothing) Validate(context.Context, admission.Attributes, admission.ObjectInterfaces) error {
	return nil
}
