package dispatch

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"

	"github.com/gatehouse-dev/gatehouse/admission/plan"
	"github.com/gatehouse-dev/gatehouse/admission/snapshot"
	"github.com/gatehouse-dev/gatehouse/admission/trace"
	"github.com/gatehouse-dev/gatehouse/internal/engine/mutation"
	"github.com/gatehouse-dev/gatehouse/internal/engine/objects"
	"github.com/gatehouse-dev/gatehouse/internal/engine/policy"
)

// Mutate evaluates the candidate policies of a request, and applies their changes to the request's
// object. It returns nil, or the API status that rejects the request. req must be plan.NewRequest
// of the attributes. After an error the content of the object is undefined.
func (p *Policies) Mutate(ctx context.Context, a admission.Attributes, o admission.ObjectInterfaces, snap *snapshot.Snapshot, req *plan.Request, steps []plan.Candidate) error {
	set := objects.New(a, o)
	in := p.input(set)
	in.Change, in.Fork = changer(set, p.options.Schemas), forker(set, p.options.Schemas)
	again := a.GetReinvocationContext()
	r := &round{memory: remembered(again, p.options.Source.Descriptor().Plugin), second: again.IsReinvoke()}
	number := 0
	if r.second {
		number = 1
	}
	return p.run(ctx, a, snap, req, number, func(ctx context.Context) ([]plan.Judgement, error) {
		judgements, err := p.mutate(ctx, o, req, steps, in, set, r)
		if r.changed {
			again.SetShouldReinvoke()
		}
		return judgements, err
	})
}

// changer returns a Changer for the objects of a request with the schemas of kinds.
func changer(set *objects.Set, schemas mutation.Schemas) plan.Changer {
	return func(ctx context.Context, kind schema.GroupVersionKind, change *mutation.Change) (bool, error) {
		f, err := set.As(kind)
		if err != nil {
			return false, err
		}
		return set.Mutate(ctx, f, change, schemas)
	}
}

// forker returns a function for plan.Input.Fork: it copies the objects of a request, and
// returns a Changer for the copy.
func forker(set *objects.Set, schemas mutation.Schemas) func(schema.GroupVersionKind) (plan.Objects, plan.Changer, error) {
	return func(kind schema.GroupVersionKind) (plan.Objects, plan.Changer, error) {
		fork, err := set.Fork(kind)
		if err != nil {
			return nil, nil, err
		}
		return fork, changer(fork, schemas), nil
	}
}

func (p *Policies) mutate(ctx context.Context, o admission.ObjectInterfaces, req *plan.Request, steps []plan.Candidate, in *plan.Input, set *objects.Set, r *round) ([]plan.Judgement, error) {
	if r.second {
		if err := r.memory.resume(set); err != nil {
			return nil, apierrors.NewInternalError(err)
		}
	}
	judgements, err := plan.Mutate(ctx, steps, req, o.GetEquivalentResourceMapper(), in, r, false)
	if err != nil {
		return judgements, err
	}
	if texts, reason := plan.Refused(judgements); texts != nil {
		return judgements, req.MutationDenial(in.Objects.Newest(), reason, texts)
	}
	if r.changed {
		// The evaluation that made the last change may be repeated, too (S18.28, D53, D54).
		r.memory.markInvoked()
	}
	if !r.second {
		if err := r.memory.keep(set); err != nil {
			return judgements, apierrors.NewInternalError(err)
		}
	}
	return judgements, nil
}

// mutated adds the mutations of an evaluation to its trace.
func mutated(out *trace.Evaluation, e *plan.Evaluation, p *policy.Policy) {
	out.Spared, out.Err, out.Enforcement = e.Spared, e.Failure, trace.Enforcement(e.Enforced)
	if len(e.Mutations) > 0 {
		out.Mutations = make([]trace.Mutation, len(e.Mutations))
	}
	for i := range e.Mutations {
		m := &e.Mutations[i]
		out.Mutations[i] = trace.Mutation{Index: m.Index, Type: string(p.Mutations[m.Index].Type()), Err: m.Err, Cost: m.Cost, Latency: m.Elapsed}
		if m.Changed && e.Enforced.Mode.Soft() {
			out.Mutations[i].WouldPatch = m.Patch()
		} else {
			out.Mutations[i].Changed, out.Mutations[i].Patch = m.Changed, m.Patch()
		}
		if m.Change != nil {
			out.Mutations[i].Edits = m.Change.Edits
		}
	}
	if e.Condition.Err != nil && out.Err == nil {
		out.Err = e.Condition.Err
	}
}

// round implements plan.Round for one of the two mutating passes over a request.
type round struct {
	memory  *memory
	second  bool
	changed bool
}

// Wanted implements plan.Round.
func (r *round) Wanted(i plan.Invocation) bool {
	return !r.second || r.memory.isMarked(identity{invocation: i})
}

// Repeats implements plan.Round.
func (r *round) Repeats() bool { return r.second }

// Invoked implements plan.Round.
func (r *round) Invoked(i plan.Invocation, repeats, changed bool) {
	r.changed = r.changed || changed
	r.memory.called(identity{invocation: i}, repeats, changed)
}
