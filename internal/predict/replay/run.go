package replay

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"

	"golang.org/x/sync/errgroup"
	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gatehouse-dev/gatehouse/internal/manifests"
	"github.com/gatehouse-dev/gatehouse/internal/predict/check"
	"github.com/gatehouse-dev/gatehouse/internal/predict/recorded"
)

// Source gives requests, in order, any number of times.
type Source interface {
	Read(ctx context.Context, take func(*recorded.Request) error) (*recorded.Count, error)
}

// Options say what is replayed, and how.
type Options struct {
	Source Source
	// Baseline is what requests were judged by, and With what they are judged by with the change.
	Baseline, With *Cluster
	// Call has webhooks called, CallsPerSecond at most. Otherwise all let everything pass.
	// ServiceAddresses say where those are that name a service.
	Call             bool
	CallsPerSecond   float64
	ServiceAddresses []string
	// Progress, if it is set, is called with how many requests are judged, and of how many.
	Progress func(done, of int)
	// VersionNote is that of the report.
	VersionNote string

	// plain takes every request through the whole API server, and twice.
	plain bool
	// reads, if set, is called with each request before it is judged, and whether it is judged twice.
	reads func(q *recorded.Request, twice bool)
}

// callsAhead is how many calls may be made at once when none were made for a while.
const callsAhead = 10

// Run judges each request twice. The error says that this could not be done.
func Run(ctx context.Context, o Options) (*Report, error) {
	r := &runner{Options: o, gathering: newGathering(o.VersionNote)}
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
	worlds    []*check.World
	concerned *concerned
	of        int
	call      func(context.Context) error
}

func (r *runner) close() {
	for _, w := range r.worlds {
		w.Close()
	}
}

// open makes the worlds. The requests are read once before, to know what they need.
func (r *runner) open(ctx context.Context) error {
	n := needs{namespaces: map[string]map[string]string{}, accounts: map[string]bool{}}
	count, err := r.Source.Read(ctx, func(q *recorded.Request) error {
		n.see(q)
		return nil
	})
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
	for i := range sides {
		sides[i], made = n.furnished(sides[i])
	}
	if len(made) > 0 && r.With.Snapshot != nil {
		r.Notes = append(r.Notes, fmt.Sprintf("%d namespaces of requests are not in the cluster and were made, with the labels that a request shows: %s", len(made), some(made)))
	}
	r.worlds = make([]*check.World, 2)
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
		r.worlds = compact(r.worlds)
		return err
	}
	r.Notes = append(r.Notes, notes[1]...)
	r.concerned = &concerned{changed: changes(sides[0], sides[1]), worlds: r.worlds, known: map[concern]bool{}}
	if r.Call {
		limiter := rate.NewLimiter(rate.Limit(r.CallsPerSecond), callsAhead)
		r.call = limiter.Wait
	}
	return nil
}

func compact(list []*check.World) []*check.World {
	var out []*check.World
	for _, w := range list {
		if w != nil {
			out = append(out, w)
		}
	}
	return out
}

// some are the first names of a list.
func some(names []string) string {
	const most = 10
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
}

// ahead is how many requests are judged ahead of the one whose verdict is awaited.
const ahead = 64

// job is one request.
type job struct {
	request *recorded.Request
	twice   bool
	done    chan struct{}

	before, after *verdict
	difference    *difference
	err           error
}

// all judges the requests, several at the same time, and gathers the verdicts in their order.
func (r *runner) all(ctx context.Context) (*recorded.Count, error) {
	if r.of == 0 {
		return r.Source.Read(ctx, func(*recorded.Request) error { return nil })
	}
	workers := 2 * runtime.GOMAXPROCS(0)
	if r.Call {
		workers = 16
	}
	jobs, order := make(chan *job), make(chan *job, ahead)
	group, ctx := errgroup.WithContext(ctx)
	var count *recorded.Count
	group.Go(func() (err error) {
		defer close(jobs)
		defer close(order)
		count, err = r.Source.Read(ctx, func(q *recorded.Request) error {
			j := &job{request: q, done: make(chan struct{}), twice: r.plain || r.Call || r.concerned.by(ctx, q)}
			if r.reads != nil {
				r.reads(q, j.twice)
			}
			for _, to := range []chan *job{order, jobs} {
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
	for range workers {
		group.Go(func() error {
			for j := range jobs {
				r.one(ctx, j)
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
			done++
			var why unjudged
			switch {
			case errors.As(j.err, &why):
				r.Input.LeaveOut(string(why), j.request.Place)
			case ctx.Err() != nil:
				return context.Cause(ctx)
			case j.err != nil:
				return fmt.Errorf("%s: %w", j.request.Place, j.err)
			default:
				r.add(j.request, j.before, j.after, j.difference)
			}
			if r.Progress != nil {
				r.Progress(done, r.of)
			}
		}
		return nil
	})
	if err := group.Wait(); err != nil {
		return nil, err
	}
	return count, nil
}

// one judges one request.
func (r *runner) one(ctx context.Context, j *job) {
	p, err := prepare(j.request)
	if err != nil {
		j.err = err
		return
	}
	if j.before, j.err = (&judge{world: r.worlds[0], call: r.call, plain: r.plain}).of(ctx, p); j.err != nil {
		var why unjudged
		if !errors.As(j.err, &why) || !j.twice {
			return
		}
	}
	if !j.twice {
		// No rule of what changed matches the request.
		j.after = j.before
		j.before.answer, j.before.trace = nil, nil
		return
	}
	if j.after, err = (&judge{world: r.worlds[1], call: r.call, plain: r.plain}).of(ctx, p); err != nil {
		j.err = err
		return
	}
	if j.err != nil {
		return
	}
	j.difference, j.err = differ(p, j.before, j.after)
	for _, v := range []*verdict{j.before, j.after} {
		v.answer, v.trace = nil, nil
	}
}
