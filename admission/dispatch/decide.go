package dispatch

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gatehouse-dev/gatehouse/admission/initializers"
	"github.com/gatehouse-dev/gatehouse/admission/plan"
	"github.com/gatehouse-dev/gatehouse/admission/registration"
	"github.com/gatehouse-dev/gatehouse/admission/trace"
)

// decision is whether a hook is called for the object as it is at one generation.
type decision struct {
	made       bool
	generation int
	applies    bool
	// err is an API status that the request is rejected with.
	err error
	// condition and skip are for the record.
	condition *trace.Condition
	skip      *trace.Skip
}

// decide decides whether the hook of a step is called. Match conditions that
// could not be evaluated obey the failure policy (S2.32); all other errors do not
// (S2.3).
func (r *run) decide(ctx context.Context, step *plan.Step) decision {
	r.input.Object = r.objects.newest()
	found := step.Decide(ctx, r.request, &r.input)
	d := decision{applies: found.Applies, err: found.Err}
	var forgiven error
	if failed := (*plan.ConditionError)(nil); errors.As(found.Err, &failed) && step.Hook.FailurePolicy == registration.Ignore {
		d.err, forgiven = nil, found.Err
	}
	if found.Evaluated {
		d.condition = &trace.Condition{
			Hook:     step.Hook.Hook,
			Latency:  found.Elapsed,
			Errors:   found.ConditionErrors,
			Excluded: !d.applies && d.err == nil,
			Err:      forgiven,
		}
	}
	if r.options.Skips && !d.applies && d.err == nil {
		d.skip = &trace.Skip{Hook: step.Hook.Hook, Reason: found.Reason.String()}
		if forgiven != nil {
			d.skip.Reason = fmt.Sprintf("its match conditions failed, and failurePolicy is Ignore: %v", forgiven)
		}
	}
	return d
}

// note puts a decision on record.
func (r *run) note(d *decision) {
	if d.condition != nil {
		r.trace.Conditions = append(r.trace.Conditions, *d.condition)
	}
	if d.skip != nil {
		r.trace.Skips = append(r.trace.Skips, *d.skip)
	}
}

// convert gives match conditions the objects in a kind.
func (r *run) convert(kind schema.GroupVersionKind) (object, old runtime.Object, err error) {
	f, err := r.objects.as(kind)
	if err != nil {
		return nil, nil, err
	}
	if object, err = asSeen(f.object); err != nil {
		return nil, nil, err
	}
	if old, err = asSeen(f.old); err != nil {
		return nil, nil, err
	}
	return object, old, nil
}

// asSeen returns an object as users see it: one that carries
// metadata.initializers in an annotation is shown with the field.
func asSeen(obj runtime.Object) (runtime.Object, error) {
	if obj == nil || !initializers.Has(obj) {
		return obj, nil
	}
	if u, ok := obj.(*unstructured.Unstructured); ok && initializers.Shows(u) {
		return obj, nil
	}
	content, err := exposed(obj)
	if err != nil {
		return nil, err
	}
	return &unstructured.Unstructured{Object: content}, nil
}
