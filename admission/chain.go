package admission

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/metrics"

	"github.com/gatehouse-dev/gatehouse/admission/plan"
	"github.com/gatehouse-dev/gatehouse/admission/registration"
	"github.com/gatehouse-dev/gatehouse/admission/trace"
	"github.com/gatehouse-dev/gatehouse/internal/engine/dispatch"
)

// Plugin is one link of a chain.
type Plugin struct {
	// Name identifies the plugin in metrics.
	Name string
	// Interface takes part in the passes whose interface it implements
	// (admission.MutationInterface, admission.ValidationInterface).
	Interface admission.Interface
}

// Chain joins plugins to the admission of a server, which runs for every write. It makes two passes
// over the list, in order. The first error ends a pass (S9.1). If a webhook or a policy changed the
// object and a plugin requests it, the mutating pass runs once more (S5.16). Metrics measure each
// pass and each plugin in it (S10).
//
// The result is safe for concurrent use if the plugins are.
func Chain(plugins ...Plugin) Passes {
	links := make([]admission.Interface, len(plugins))
	others := 0
	for i, p := range plugins {
		links[i] = metrics.WithControllerMetrics(p.Interface, p.Name)
		if ofEngine(p) {
			others++
		} else {
			links[i] = recorded{links[i], p, others, i+1 == len(plugins) || ofEngine(plugins[i+1])}
		}
	}
	return metrics.WithStepMetrics(&twice{admission.NewChainHandler(links...)}).(Passes)
}

// ofEngine reports whether a plugin is of an Engine: these plugins add their own steps to traces.
func ofEngine(p Plugin) bool {
	_, ok := p.Interface.(acting)
	return ok
}

// Passes is admission in both passes.
type Passes interface {
	admission.MutationInterface
	admission.ValidationInterface
}

// twice runs the mutating pass again if a plugin requested a second pass. There is never a third
// pass: a request in the second pass has no effect.
type twice struct {
	Passes
}

// Validate implements admission.ValidationInterface. The object now has its generated name and its
// uid.
func (t *twice) Validate(ctx context.Context, a admission.Attributes, o admission.ObjectInterfaces) error {
	note(ctx, a)
	return t.Passes.Validate(ctx, a, o)
}

// note sets the subject of the request's trace, if there is a trace.
func note(ctx context.Context, a admission.Attributes) {
	t := trace.FromContext(ctx)
	if t == nil {
		return
	}
	request := plan.NewRequest(a)
	s := trace.Subject{Request: dispatch.RequestOf(&request)}
	// The object of a subresource, such as a binding, has a name and no uid of its own.
	object := a.GetObject()
	if object == nil {
		object = a.GetOldObject()
	}
	if m, err := meta.Accessor(object); object != nil && err == nil {
		s.UID = m.GetUID()
		if s.Name == "" {
			s.Name = m.GetName()
		}
	}
	t.Note(s)
}

func (t *twice) Admit(ctx context.Context, a admission.Attributes, o admission.ObjectInterfaces) error {
	note(ctx, a)
	traced := trace.FromContext(ctx) != nil
	if traced {
		ctx = watching(ctx)
	}
	if err := t.Passes.Admit(ctx, a, o); err != nil {
		return err
	}
	again := a.GetReinvocationContext()
	if !again.ShouldReinvoke() {
		return nil
	}
	again.SetIsReinvoke()
	if traced {
		ctx = watching(ctx)
	}
	return t.Passes.Admit(ctx, a, o)
}

// recorded is a built-in admission plugin whose verdicts are added to the trace of the request. It
// takes part in the passes of the plugin.
type recorded struct {
	// Interface is the plugin with metrics.
	admission.Interface
	plugin Plugin
	// others is the number of plugins of an Engine before the plugin.
	others int
	// last reports whether a plugin of an Engine or no plugin follows.
	last bool
}

// Admit implements admission.MutationInterface.
func (r recorded) Admit(ctx context.Context, a admission.Attributes, o admission.ObjectInterfaces) error {
	err := r.admit(ctx, a, o)
	w, _ := ctx.Value(watchedKey{}).(*watched)
	if err != nil || !r.last || w == nil || !w.confined || w.since != r.others {
		return err
	}
	if c := w.changed(a, o); c != nil {
		r.plugin.Name = Undeclared
		r.record(ctx, a, trace.Step{Pass: registration.MutatingPass, Start: time.Now(), Change: c})
	}
	return nil
}

func (r recorded) admit(ctx context.Context, a admission.Attributes, o admission.ObjectInterfaces) error {
	if _, mutates := r.plugin.Interface.(admission.MutationInterface); !mutates {
		return nil
	}
	measured := r.Interface.(admission.MutationInterface)
	if !concerns(r.plugin.Interface, a) {
		return measured.Admit(ctx, a, o)
	}
	w, _ := ctx.Value(watchedKey{}).(*watched)
	if w != nil && mayChange(r.plugin.Interface, a) {
		w.remember(a, r.others)
	} else {
		w = nil
	}
	ctx, end := trace.StartStep(ctx, r.plugin.Name, registration.MutatingPass, roundOf(a))
	start := time.Now()
	err := measured.Admit(ctx, a, o)
	latency := time.Since(start)
	end(err)
	var change trace.Change
	if w != nil && err == nil {
		change = w.changedBy(r.plugin.Interface, a, o)
	}
	r.record(ctx, a, trace.Step{Pass: registration.MutatingPass, Start: start, Latency: latency, Change: change, Err: err})
	return err
}

// Validate implements admission.ValidationInterface.
func (r recorded) Validate(ctx context.Context, a admission.Attributes, o admission.ObjectInterfaces) error {
	if _, validates := r.plugin.Interface.(admission.ValidationInterface); !validates {
		return nil
	}
	measured := r.Interface.(admission.ValidationInterface)
	if !concerns(r.plugin.Interface, a) {
		return measured.Validate(ctx, a, o)
	}
	ctx, end := trace.StartStep(ctx, r.plugin.Name, registration.ValidatingPass, 0)
	start := time.Now()
	err := measured.Validate(ctx, a, o)
	latency := time.Since(start)
	end(err)
	r.record(ctx, a, trace.Step{Pass: registration.ValidatingPass, Start: start, Latency: latency, Err: err})
	return err
}

func (r recorded) record(ctx context.Context, a admission.Attributes, s trace.Step) {
	t := trace.FromContext(ctx)
	if t == nil {
		return
	}
	s.Plugin, s.Object = r.plugin.Name, types.NamespacedName{Namespace: a.GetNamespace(), Name: a.GetName()}
	if s.Pass == registration.MutatingPass {
		s.Round = roundOf(a)
	}
	t.Add(s)
}

// roundOf returns the round of the mutating pass: 1 if the pass is run again, and 0 otherwise.
func roundOf(a admission.Attributes) int {
	if a.GetReinvocationContext().IsReinvoke() {
		return 1
	}
	return 0
}
