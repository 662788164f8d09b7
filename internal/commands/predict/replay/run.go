package replay

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"
	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gatehouse-dev/gatehouse/internal/commands/predict/requestlog"
	"github.com/gatehouse-dev/gatehouse/internal/commands/predict/stage"
	"github.com/gatehouse-dev/gatehouse/internal/readers/manifests"
	"github.com/gatehouse-dev/gatehouse/internal/readers/report"
)

// Source provides requests in order. It can be read any number of times.
type Source interface {
	Read(ctx context.Context, take func(*requestlog.Entry) error) (*requestlog.Count, error)
}

// Judging configures the evaluation of requests or objects.
type Judging struct {
	// Call enables calls of webhooks, at most CallsPerSecond. Otherwise webhooks are assumed to allow every request.
	// ServiceAddresses are the addresses of webhooks that name a service.
	Call             bool
	CallsPerSecond   float64
	ServiceAddresses []string
	// Progress, if set, is called with the number of requests done, and their total.
	Progress func(done, of int)
	// VersionNote is copied to the report.
	VersionNote string
}

// limiter returns a function that waits for a call's turn; nil if no webhook is called.
func (j *Judging) limiter() func(context.Context) error {
	if !j.Call {
		return nil
	}
	return rate.NewLimiter(rate.Limit(j.CallsPerSecond), callsAhead).Wait
}

// workers is the number of requests evaluated concurrently.
func (j *Judging) workers() int {
	if j.Call {
		return 16
	}
	return 2 * runtime.GOMAXPROCS(0)
}

// Options configure a replay.
type Options struct {
	Judging
	Source Source
	// Baseline is the cluster as it was when the requests were made, and With is the cluster with the change.
	Baseline, With *Cluster
	// Examples is the number of examples per group; 0 means three. All groups together have at most maxAllExamples.
	Examples int
	// Each, if set, is called with each changed request, in order.
	Each func(*Judged)

	// plain sends every request through the whole API server, on both sides.
	plain bool
	// judged, if set, is called with each request, in order; twice reports whether it was evaluated on both sides.
	judged func(q *requestlog.Entry, twice bool)
}

// callsAhead is the burst of webhook calls allowed after a pause.
const callsAhead = 10

// Run evaluates each request against the baseline and with the change. The error reports that the replay failed.
func Run(ctx context.Context, o Options) (*Report, error) {
	r := &runner{Options: o, gathering: newGathering(&o)}
	defer r.close()
	if err := r.open(ctx); err != nil {
		return nil, err
	}
	count, err := r.evaluateAll(ctx)
	if err != nil {
		return nil, err
	}
	return r.finish(count), nil
}

type runner struct {
	Options
	*gathering
	worlds    []*stage.Stage
	concerned *concerned
	// unlabelled finds policies and webhooks that select by unknown labels.
	unlabelled *unlabelled
	of         int
	call       func(context.Context) error
}

func (r *runner) close() {
	for _, w := range r.worlds {
		w.Close()
	}
}

// open starts the stages. It first reads all requests to learn which namespaces and service accounts they need.
func (r *runner) open(ctx context.Context) error {
	n, count, err := needsOf(ctx, r.Source)
	if err != nil {
		return err
	}
	r.of = count.Requests
	if r.of == 0 {
		return nil
	}
	var sides [2][]*unstructured.Unstructured
	var files [2]map[string]*manifests.Object
	clusters := [2]*Cluster{r.Baseline, r.With}
	for i, c := range clusters {
		sides[i], files[i] = c.objects()
	}
	var made []string
	var unknown [2]map[string]bool
	for i := range sides {
		sides[i], made, unknown[i] = n.furnished(sides[i])
	}
	if len(made) > 0 && r.With.Snapshot != nil {
		r.Notes = append(r.Notes, fmt.Sprintf("%d namespaces of requests are not in the cluster and were made, with the labels that the requests show: %s", len(made), report.Some(made, 10)))
	}
	r.worlds = make([]*stage.Stage, 2)
	var notes [2][]string
	// The stages end with their context, so the context of the group would end them too early.
	var group errgroup.Group
	for i, c := range clusters {
		group.Go(func() (err error) {
			r.worlds[i], notes[i], err = open(ctx, c, sides[i], files[i], r.ServiceAddresses)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		r.worlds = slices.DeleteFunc(r.worlds, func(w *stage.Stage) bool { return w == nil })
		return err
	}
	r.unlabelled = newUnlabelled(r.worlds, unknown, sides)
	r.Notes = append(r.Notes, notes[1]...)
	r.concerned = &concerned{changed: changes(sides[0], sides[1]), worlds: r.worlds}
	r.call = r.limiter()
	return nil
}

// ahead bounds the requests evaluated ahead of the one whose verdict is awaited.
const ahead = 64

// job is one request with its result.
type job[V any] struct {
	request *requestlog.Entry
	done    chan struct{}
	said    V
	err     error
}

// judgedInOrder evaluates the requests of a source concurrently, and calls take with the results in the order of the
// source. A request that cannot be evaluated is counted with the reason, and the others continue. of is the total
// number of requests.
func judgedInOrder[V any](ctx context.Context, source Source, how *Judging, of int, judge func(context.Context, *requestlog.Entry) (V, error), take func(*requestlog.Entry, V)) (*requestlog.Count, error) {
	jobs, order := make(chan *job[V]), make(chan *job[V], ahead)
	group, ctx := errgroup.WithContext(ctx)
	var count *requestlog.Count
	var left requestlog.Count
	group.Go(func() (err error) {
		defer close(jobs)
		defer close(order)
		count, err = source.Read(ctx, func(q *requestlog.Entry) error {
			j := &job[V]{request: q, done: make(chan struct{})}
			for _, to := range []chan *job[V]{order, jobs} {
				select {
				case to <- j:
				case <-ctx.Done():
					return context.Cause(ctx)
				}
			}
			return nil
		})
		return err
	})
	for range how.workers() {
		group.Go(func() error {
			for j := range jobs {
				j.said, j.err = judge(ctx, j.request)
				close(j.done)
			}
			return nil
		})
	}
	group.Go(func() error {
		done := 0
		for j := range order {
			select {
			case <-j.done:
			case <-ctx.Done():
				return context.Cause(ctx)
			}
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			var why unjudged
			switch {
			case errors.As(j.err, &why):
				left.LeaveOut(string(why), j.request.Place)
			case j.err != nil:
				left.LeaveOut("it could not be decided: "+strings.Join(strings.Fields(j.err.Error()), " "), j.request.Place)
			default:
				take(j.request, j.said)
			}
			if done++; how.Progress != nil {
				how.Progress(done, of)
			}
		}
		return nil
	})
	if err := group.Wait(); err != nil {
		return nil, err
	}
	count.LeftOut = append(count.LeftOut, left.LeftOut...)
	return count, nil
}

// pair has the verdicts on a request from both sides, and their difference.
type pair struct {
	before, after *verdict
	difference    *difference
	// twice reports whether the request was evaluated on both sides. unknown names policies and webhooks that select by
	// unknown labels.
	twice   bool
	unknown []string
}

// evaluateAll evaluates the requests, and gathers the verdicts in order.
func (r *runner) evaluateAll(ctx context.Context) (*requestlog.Count, error) {
	if r.of == 0 {
		return r.Source.Read(ctx, func(*requestlog.Entry) error { return nil })
	}
	return judgedInOrder(ctx, r.Source, &r.Judging, r.of, r.evaluateRequest, func(q *requestlog.Entry, p *pair) {
		if r.judged != nil {
			r.judged(q, p.twice)
		}
		r.add(q, p.before, p.after, p.difference)
		r.addUnknown(q, p.unknown)
	})
}

// evaluateRequest evaluates a request with its alternatives. Alternatives for which the baseline contradicts the recorded response
// are dropped, and the others must agree.
func (r *runner) evaluateRequest(ctx context.Context, q *requestlog.Entry) (*pair, error) {
	said, err := r.only(ctx, q)
	if len(q.Or) == 0 {
		return said, err
	}
	list := []*pair{said}
	for _, other := range q.Or {
		another, wrong := r.only(ctx, other)
		list, err = append(list, another), cmp.Or(err, wrong)
	}
	list = slices.DeleteFunc(list, func(p *pair) bool { return p == nil })
	if len(list) == 0 {
		return nil, err
	}
	asRecorded := func(p *pair) bool { return q.Response == nil || p.before.allowed == q.Response.Allowed }
	if slices.ContainsFunc(list, asRecorded) {
		list = slices.DeleteFunc(list, func(p *pair) bool { return !asRecorded(p) })
	}
	for _, p := range list[1:] {
		if !p.like(list[0]) {
			return nil, unjudged("the log does not say what kind of patch it is, and the kinds are decided differently")
		}
	}
	return list[0], nil
}

// like reports whether two pairs have the same verdicts and the same difference.
func (p *pair) like(o *pair) bool {
	if p.before.allowed != o.before.allowed || p.after.allowed != o.after.allowed || (p.difference == nil) != (o.difference == nil) {
		return false
	}
	return p.difference == nil || p.difference.change == o.difference.change && slices.Equal(p.difference.by, o.difference.by)
}

// only evaluates a request without its alternatives.
func (r *runner) only(ctx context.Context, q *requestlog.Entry) (*pair, error) {
	p, err := prepare(q)
	if err != nil {
		return nil, err
	}
	said := &pair{twice: r.plain || r.Call || r.concerned.by(ctx, q), unknown: r.unlabelled.by(ctx, q)}
	if said.before, err = (&judge{world: r.worlds[0], call: r.call, plain: r.plain}).of(ctx, p); err != nil {
		return nil, err
	}
	said.after = said.before
	if said.twice {
		if said.after, err = (&judge{world: r.worlds[1], call: r.call, plain: r.plain}).of(ctx, p); err != nil {
			return nil, err
		}
		if said.difference, err = differ(p, said.before, said.after); err != nil {
			return nil, err
		}
	}
	for _, v := range []*verdict{said.before, said.after} {
		v.answer, v.trace = nil, nil
	}
	return said, nil
}
