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

	"github.com/gatehouse-dev/gatehouse/internal/manifests"
	"github.com/gatehouse-dev/gatehouse/internal/predict/requestlog"
	"github.com/gatehouse-dev/gatehouse/internal/predict/stage"
	"github.com/gatehouse-dev/gatehouse/internal/report"
)

// Source gives requests, in order, any number of times.
type Source interface {
	Read(ctx context.Context, take func(*requestlog.Request) error) (*requestlog.Count, error)
}

// Judging says how requests, or objects, are judged.
type Judging struct {
	// Call has webhooks called, CallsPerSecond at most. Otherwise all let everything pass.
	// ServiceAddresses say where those are that name a service.
	Call             bool
	CallsPerSecond   float64
	ServiceAddresses []string
	// Progress, if it is set, is called with how many are judged, and of how many.
	Progress func(done, of int)
	// VersionNote is that of the report.
	VersionNote string
}

// limiter waits for the turn of a call; nil if none is made.
func (j *Judging) limiter() func(context.Context) error {
	if !j.Call {
		return nil
	}
	return rate.NewLimiter(rate.Limit(j.CallsPerSecond), callsAhead).Wait
}

// workers is how many requests are judged at the same time.
func (j *Judging) workers() int {
	if j.Call {
		return 16
	}
	return 2 * runtime.GOMAXPROCS(0)
}

// Options say what is replayed, and how.
type Options struct {
	Judging
	Source Source
	// Baseline is what requests were judged by, and With what they are judged by with the change.
	Baseline, With *Cluster
	// Examples is how many examples a group has; 0 means three. All groups have maxAllExamples at most.
	Examples int
	// Each, if it is set, is called with each request that is judged otherwise, in order.
	Each func(*Judged)

	// plain takes every request through the whole API server, and twice.
	plain bool
	// judged, if set, is called with each request in order, and whether it was judged twice.
	judged func(q *requestlog.Request, twice bool)
}

// callsAhead is how many calls may be made at once when none were made for a while.
const callsAhead = 10

// Run judges each request twice. The error says that this could not be done.
func Run(ctx context.Context, o Options) (*Report, error) {
	r := &runner{Options: o, gathering: newGathering(&o)}
	defer r.close()
	if err := r.open(ctx); err != nil {
		return nil, err
	}
	count, err := r.all(ctx)
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
	// unlabelled finds out who asks for labels that are not known.
	unlabelled *unlabelled
	of         int
	call       func(context.Context) error
}

func (r *runner) close() {
	for _, w := range r.worlds {
		w.Close()
	}
}

// open makes the worlds. The requests are read once before, to know what they need.
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
	// A world ends with the context that it was opened with.
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

// ahead is how many requests are judged ahead of the one whose verdict is awaited.
const ahead = 64

// job is one request, and what was said to it.
type job[V any] struct {
	request *requestlog.Request
	done    chan struct{}
	said    V
	err     error
}

// judgedInOrder judges the requests of a source, several at the same time, and gives what was said to take, in
// the order of the source. A request that cannot be judged is left out, with the reason, and ends nothing.
// of is how many requests there are.
func judgedInOrder[V any](ctx context.Context, source Source, how *Judging, of int, judge func(context.Context, *requestlog.Request) (V, error), take func(*requestlog.Request, V)) (*requestlog.Count, error) {
	jobs, order := make(chan *job[V]), make(chan *job[V], ahead)
	group, ctx := errgroup.WithContext(ctx)
	var count *requestlog.Count
	var left requestlog.Count
	group.Go(func() (err error) {
		defer close(jobs)
		defer close(order)
		count, err = source.Read(ctx, func(q *requestlog.Request) error {
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
				left.LeaveOut("it could not be judged: "+strings.Join(strings.Fields(j.err.Error()), " "), j.request.Place)
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

// pair are the verdicts of both worlds on a request, and how they differ.
type pair struct {
	before, after *verdict
	difference    *difference
	// twice reports whether the request was judged by both. unknown are those who ask for labels that are not known.
	twice   bool
	unknown []string
}

// all judges the requests, and gathers the verdicts in their order.
func (r *runner) all(ctx context.Context) (*requestlog.Count, error) {
	if r.of == 0 {
		return r.Source.Read(ctx, func(*requestlog.Request) error { return nil })
	}
	return judgedInOrder(ctx, r.Source, &r.Judging, r.of, r.one, func(q *requestlog.Request, p *pair) {
		if r.judged != nil {
			r.judged(q, p.twice)
		}
		r.add(q, p.before, p.after, p.difference)
		r.addUnknown(q, p.unknown)
	})
}

// one judges one request, or what it may have been: those that the baseline does not judge as recorded were not
// made, and the others must be judged alike.
func (r *runner) one(ctx context.Context, q *requestlog.Request) (*pair, error) {
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
			return nil, unjudged("the log does not say what kind of patch it is, and the kinds are judged differently")
		}
	}
	return list[0], nil
}

// like reports whether two requests are judged alike.
func (p *pair) like(o *pair) bool {
	if p.before.allowed != o.before.allowed || p.after.allowed != o.after.allowed || (p.difference == nil) != (o.difference == nil) {
		return false
	}
	return p.difference == nil || p.difference.change == o.difference.change && slices.Equal(p.difference.by, o.difference.by)
}

// only judges a request as it is.
func (r *runner) only(ctx context.Context, q *requestlog.Request) (*pair, error) {
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
