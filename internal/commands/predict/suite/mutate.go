package suite

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/gatehouse-dev/gatehouse/admission/registration"
	"github.com/gatehouse-dev/gatehouse/admission/snapshot"
	"github.com/gatehouse-dev/gatehouse/internal/commands/predict/stage"
	"github.com/gatehouse-dev/gatehouse/internal/commands/predict/suite/mutants"
	"github.com/gatehouse-dev/gatehouse/internal/kit/files"
	"github.com/gatehouse-dev/gatehouse/internal/readers/manifests"
)

const (
	// maxMutants bounds the mutants of a run.
	maxMutants = 20_000
	// mutantsAtOnce bounds the mutants with registrations in memory, and maxAttempts the queued tests of mutants.
	mutantsAtOnce = 128
	maxAttempts   = 20_000
)

// Mutants is the result of mutation testing. Its JSON is stable: fields are only ever added.
type Mutants struct {
	// Tried counts the mutants that the API server accepts, and Noticed the killed mutants among them, with which a
	// test does not pass. Left counts the mutants that were not tried, because there are too many.
	Tried   int `json:"tried"`
	Noticed int `json:"noticed"`
	Left    int `json:"left,omitempty"`
	// Unnoticed are the surviving mutants, in the order of the files and lines.
	Unnoticed []*mutants.Mutant `json:"unnoticed"`
}

// tried is one mutant, in all test environments that have its registration.
type tried struct {
	*mutants.Mutant
	taken, noticed atomic.Bool
}

// mutant is a mutant in one test environment. Requests are evaluated against the registrations of the environment with
// the changed one among them; the stored objects stay unchanged.
type mutant struct {
	*tried
	content map[string]any
	object  runtime.Object
	once    sync.Once
	with    *snapshot.Snapshot
}

// registrations returns the active registrations with the changed one. The active ones stay the same while mutants are
// tried.
func (m *mutant) registrations(inForce *snapshot.Snapshot) *snapshot.Snapshot {
	m.once.Do(func() { m.with = inForce.With([]runtime.Object{m.object}) })
	return m.with
}

// touched lists the registrations whose rules match the request. The value is false if selectors or conditions excluded
// the request.
func (o *Outcome) touched() map[string]bool {
	list := map[string]bool{}
	record := o.trace.Verdicts(false)
	for skip := range record.Skipped() {
		list[skip.Entry.Kind+" "+skip.Entry.Configuration] = false
	}
	for j := range record.Judged() {
		list[j.Policy.Kind+" "+j.Policy.Configuration] = true
	}
	for call := range record.Calls() {
		list[call.Webhook.Kind+" "+call.Webhook.Configuration] = true
	}
	return list
}

// mutate changes the registrations of a test environment, and runs for each mutant the passed tests that its
// registration touches, until one does not pass.
func (r *runner) mutate(ctx context.Context, p *venue, objects []*manifests.Object, results []*Result) error {
	list, err := r.mutantsOf(ctx, p.stage, objects)
	if err != nil {
		return err
	}
	for some := range slices.Chunk(list, mutantsAtOnce) {
		if err := r.attempts(ctx, p, some, results); err != nil {
			return err
		}
		for _, m := range some {
			m.with = nil
		}
	}
	return nil
}

// attempts runs tests with mutants: the first test of each mutant, then the second of each, because most mutants need
// no third. The remaining mutants need all tests, which are then run in growing batches.
func (r *runner) attempts(ctx context.Context, p *venue, list []*mutant, results []*Result) error {
	next := make([]int, len(list))
	for most := 1; ; most = max(1, min(2*most, maxAttempts/len(list))) {
		var attempts []*Result
		for i, m := range list {
			touching := touching(m.content)
			for n := 0; n < most && next[i] < len(results) && !m.noticed.Load(); next[i]++ {
				result := results[next[i]]
				if acted, touched := result.touched[touching]; result.Status == Passed && touched && (acted || m.Widens) {
					attempts = append(attempts, &Result{test: result.test, mutant: m})
					n++
				}
			}
		}
		if len(attempts) == 0 {
			return nil
		}
		r.mu.Lock()
		r.of += len(attempts)
		r.mu.Unlock()
		if err := r.runAll(ctx, p, attempts); err != nil {
			return err
		}
	}
}

// touching names the registration that decides whether an object touches a request: the object, or the policy of a
// binding.
func touching(content map[string]any) string {
	kind, name := at(content, "kind"), at(content, "metadata", "name")
	if policy, ok := strings.CutSuffix(kind, "Binding"); ok {
		kind, name = policy, at(content, "spec", "policyName")
	}
	return kind + " " + name
}

// mutantsOf returns the mutants of objects that the server accepts.
func (r *runner) mutantsOf(ctx context.Context, w *stage.Stage, objects []*manifests.Object) ([]*mutant, error) {
	var list []*mutant
	sources := map[string]string{}
	for i, o := range objects {
		last := math.MaxInt
		if i+1 < len(objects) && objects[i+1].File == o.File && objects[i+1].Line > o.Line {
			last = objects[i+1].Line - 1
		}
		if chosen, err := r.Mutate(o.File, o.Line, last); err != nil {
			return nil, err
		} else if !chosen {
			continue
		}
		if _, known := sources[o.File]; !known {
			data, _ := files.Read(o.File, files.Configuration)
			sources[o.File] = string(data)
		}
		for _, m := range mutants.Of(o, sources[o.File]) {
			if t := r.try(m); t != nil {
				list = append(list, &mutant{tried: t, content: m.Content})
			}
		}
	}
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(parallel)
	for _, m := range list {
		group.Go(func() (err error) {
			if m.object, err = storedForm(groupCtx, w, m.content); m.object != nil {
				m.taken.Store(true)
			}
			return err
		})
	}
	err := group.Wait()
	return slices.DeleteFunc(list, func(m *mutant) bool { return m.object == nil }), err
}

// try returns the entry that a mutant shares between all test environments; nil if there are too many.
func (r *runner) try(m *mutants.Mutant) *tried {
	key := fmt.Sprint(m.File, m.Line, m.Column, m.Object, m.Field, m.Was, m.Is, m.Notice)
	r.mu.Lock()
	defer r.mu.Unlock()
	known := r.mutants[key]
	switch {
	case known != nil:
	case len(r.mutants) >= maxMutants:
		r.left++
	default:
		known = &tried{Mutant: m}
		if r.mutants == nil {
			r.mutants = map[string]*tried{}
		}
		r.mutants[key] = known
	}
	return known
}

// storedForm returns a changed registration as the server would store it; nil if the server rejects it. The server stores
// nothing.
func storedForm(ctx context.Context, w *stage.Stage, content map[string]any) (runtime.Object, error) {
	u := &unstructured.Unstructured{Object: runtime.DeepCopyJSON(content)}
	kind := w.Kinds().Of(u.GroupVersionKind())
	stored, err := w.Get(ctx, kind, "", u.GetName())
	if err != nil || stored == nil {
		return nil, err
	}
	u.SetResourceVersion(stored.GetResourceVersion())
	q := stage.HTTPRequest{Method: http.MethodPut, Path: stage.Path(kind, "", u.GetName()), ContentType: stage.JSON, Body: stage.Encode(u.Object)}
	q.Query = map[string][]string{"dryRun": {metav1.DryRunAll}}
	a, err := w.Admin().Do(ctx, q)
	if err != nil || !a.OK() {
		return nil, err
	}
	if err := u.UnmarshalJSON(a.Body); err != nil {
		return nil, err
	}
	return registration.FromContent(u.Object)
}

// attempt runs a test again, with a mutant.
func (r *runner) attempt(ctx context.Context, w *stage.Stage, result *Result, calls *callers) error {
	m, t := result.mutant, result.test
	if m.noticed.Load() {
		return nil
	}
	calls.registrations = m.registrations
	o, err := t.judge(ctx, w, calls, nil)
	if err != nil {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		m.noticed.Store(true)
		return nil
	}
	if failures, skip := t.unmet(o); len(failures) > 0 || skip != "" {
		m.noticed.Store(true)
	}
	return nil
}

// countMutants reports the mutants.
func (r *runner) countMutants() {
	if r.Mutate == nil {
		return
	}
	out := &Mutants{Left: r.left, Unnoticed: []*mutants.Mutant{}}
	for _, t := range r.mutants {
		switch {
		case !t.taken.Load():
			continue
		case t.noticed.Load():
			out.Noticed++
		default:
			out.Unnoticed = append(out.Unnoticed, t.Mutant)
		}
		out.Tried++
	}
	slices.SortFunc(out.Unnoticed, func(a, b *mutants.Mutant) int {
		return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column), cmp.Compare(a.Field, b.Field), cmp.Compare(a.Notice, b.Notice))
	})
	r.report.Mutants = out
}
