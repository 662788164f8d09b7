package admission

import (
	"context"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"

	"github.com/gatehouse-dev/gatehouse/admission/plan"
	"github.com/gatehouse-dev/gatehouse/admission/registration"
	"github.com/gatehouse-dev/gatehouse/admission/snapshot"
	"github.com/gatehouse-dev/gatehouse/admission/trace"
	"github.com/gatehouse-dev/gatehouse/internal/engine/dispatch"
	"github.com/gatehouse-dev/gatehouse/internal/engine/initializers"
	"github.com/gatehouse-dev/gatehouse/internal/engine/objects"
)

// initializerPlugin gives new objects their initializers, and controls later changes of the list.
// It is an initializers.Plugin that reads snapshots and records its steps in traces.
type initializerPlugin struct {
	*initializers.Plugin
	// verdicts evaluates requests like the plugin, but gives objects no initializers.
	verdicts  *initializers.Plugin
	snapshots Snapshots
	publisher *trace.Publisher
}

func newInitializerPlugin(o *Options, publisher *trace.Publisher) *initializerPlugin {
	p := &initializerPlugin{snapshots: o.Snapshots, publisher: publisher}
	options := initializers.Options{Pending: p.pending, Authorizer: o.Authorizer, Exempt: plan.Exempt}
	if o.Registrations != nil {
		options.Registered = func(ctx context.Context, source registration.Source) ([]*registration.Entry, error) {
			return registered(ctx, o.Registrations, source)
		}
	}
	p.Plugin = initializers.New(options)
	options.Pending = func(context.Context, admission.Attributes) ([]*registration.Entry, error) { return nil, nil }
	p.verdicts = initializers.New(options)
	return p
}

func (p *initializerPlugin) acts() *registration.Descriptor {
	return registration.Initializing.Descriptor()
}

// Predict implements Predictor. The initializers of a new object are predicted by the plan, not by
// Predict.
func (p *initializerPlugin) Predict(ctx context.Context, pass registration.Pass, a admission.Attributes, o admission.ObjectInterfaces) error {
	switch {
	case !p.Handles(a.GetOperation()):
		return nil
	case pass == registration.MutatingPass:
		return p.verdicts.Admit(ctx, a, o)
	}
	return p.verdicts.Validate(ctx, a, o)
}

// pending returns the initializers for the new object of a request.
func (p *initializerPlugin) pending(ctx context.Context, a admission.Attributes) ([]*registration.Entry, error) {
	s, err := acquire(ctx, p.snapshots, registration.Initializing, a, false)
	if s == nil {
		return nil, err
	}
	request := plan.NewRequest(a)
	start, chosen := time.Now(), plan.Initializers(s, &request, a.GetObject())
	if len(chosen) > 0 && chosen[0].Exclusion.Skips() {
		p.publisher.Publish(ctx, a, &trace.Run{
			Request: dispatch.RequestOf(&request), Source: registration.Initializing, Revision: s.Revision, ReadAt: s.ReadAt,
			Start: start, Latency: time.Since(start), Exclusions: []trace.Exclusion{dispatch.Skipped(chosen)},
		})
		return nil, nil
	}
	var given []*registration.Entry
	for _, c := range chosen {
		given = append(given, c.Entry.Entry)
	}
	return given, nil
}

// registered reads all current entries of a source.
func registered(ctx context.Context, reader snapshot.Reader, source registration.Source) ([]*registration.Entry, error) {
	found, err := reader.Read(ctx, "")
	if err != nil {
		return nil, apierrors.NewInternalError(fmt.Errorf("reading the registrations: %w", err))
	}
	compiled, err := new(snapshot.Compiler).CompileAll(ctx, found)
	if err != nil {
		return nil, apierrors.NewInternalError(fmt.Errorf("reading the registrations: %w", err))
	}
	var entries []*registration.Entry
	for _, e := range compiled.Entries(source) {
		entries = append(entries, e.Entry)
	}
	return entries, nil
}

// Admit implements admission.MutationInterface.
func (p *initializerPlugin) Admit(ctx context.Context, a admission.Attributes, o admission.ObjectInterfaces) error {
	start, had := time.Now(), a.GetObject() != nil && initializers.Has(a.GetObject())
	turn := p.turn(ctx, a, o)
	ctx, end := trace.StartStep(ctx, InitializersName, registration.MutatingPass, roundOf(a))
	err := p.Plugin.Admit(ctx, a, o)
	end(err)
	switch {
	case err != nil:
		p.record(ctx, a, start, err, nil)
	case turn != nil:
		turn.finish(a)
		p.record(ctx, a, start, nil, turn)
	case !had && a.GetObject() != nil && initializers.Has(a.GetObject()):
		p.record(ctx, a, start, nil, nil)
	}
	return err
}

// turn describes a write of an uninitialized object. The write is attributed to the initializers
// whose turn it is.
type turn struct {
	pending []initializers.Initializer
	written []byte
	edits   []trace.Edit
	// names are the initializers whose turn it is.
	names []string
}

// turn describes the change of an uninitialized object by a request. It returns nil for other
// requests, or if the trace has no observer.
func (p *initializerPlugin) turn(ctx context.Context, a admission.Attributes, o admission.ObjectInterfaces) *turn {
	if a.GetOperation() != admission.Update || a.GetSubresource() != "" || a.GetObject() == nil || a.GetOldObject() == nil ||
		!initializers.Has(a.GetOldObject()) || roundOf(a) > 0 || !p.publisher.Observed(ctx) {
		return nil
	}
	stored, err := initializers.Get(a.GetOldObject())
	if err != nil || stored == nil || len(stored.Pending) == 0 {
		return nil
	}
	before, after := bare(a.GetOldObject()), bare(a.GetObject())
	if before == nil || after == nil {
		return nil
	}
	t := &turn{pending: stored.Pending}
	// A difference that cannot be computed counts as no change, and does not fail the request.
	t.written, _ = objects.Difference(before, after, a.GetKind(), o)
	t.edits = objects.Edits(before, t.written, a.GetKind(), o)
	parallel := func(string) bool { return false }
	if s, err := acquire(ctx, p.snapshots, registration.Initializing, a, false); err == nil && s != nil {
		parallel = func(name string) bool {
			e := s.Initializer(name)
			return e != nil && e.Parallel
		}
	}
	for _, i := range initializers.Leading(stored.Pending, parallel) {
		t.names = append(t.names, i.Name)
	}
	return t
}

// finish sets names to the initializers that the request completed, if there are any.
func (t *turn) finish(a admission.Attributes) {
	left, err := initializers.Get(a.GetObject())
	if err != nil {
		return
	}
	var completed []string
	for _, i := range t.pending {
		if left == nil || !slices.Contains(left.Pending, i) {
			completed = append(completed, i.Name)
		}
	}
	if len(completed) > 0 {
		t.names = completed
	}
}

// bare returns a copy of an object without the metadata of the server and the initializers; nil for
// an object without metadata.
func bare(obj runtime.Object) runtime.Object {
	obj = obj.DeepCopyObject()
	m, err := meta.Accessor(obj)
	if err != nil {
		return nil
	}
	initializers.Set(obj, nil)
	m.SetManagedFields(nil)
	m.SetResourceVersion("")
	m.SetGeneration(0)
	return obj
}

// Validate implements admission.ValidationInterface.
func (p *initializerPlugin) Validate(ctx context.Context, a admission.Attributes, o admission.ObjectInterfaces) error {
	start := time.Now()
	ctx, end := trace.StartStep(ctx, InitializersName, registration.ValidatingPass, 0)
	err := p.Plugin.Validate(ctx, a, o)
	end(err)
	if err != nil {
		p.record(ctx, a, start, err, nil)
	}
	return err
}

// record publishes the step of the plugin. t is nil if the plugin gave the object its initializers,
// or rejected the request.
func (p *initializerPlugin) record(ctx context.Context, a admission.Attributes, start time.Time, err error, t *turn) {
	request := plan.NewRequest(a)
	run := &trace.Run{Request: dispatch.RequestOf(&request), Source: registration.Initializing, Start: start, Latency: time.Since(start), Err: err}
	switch {
	case t != nil:
		run.Initializing, run.Written, run.Edits = t.names, t.written, t.edits
	case err == nil:
		if list, err := initializers.Get(a.GetObject()); err == nil && list != nil {
			for _, i := range list.Pending {
				run.Pending = append(run.Pending, i.Name)
			}
		}
	}
	p.publisher.Publish(ctx, a, run)
}
