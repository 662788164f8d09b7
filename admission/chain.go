package admission

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/metrics"

	"github.com/gatehouse-dev/gatehouse/admission/registration"
	"github.com/gatehouse-dev/gatehouse/admission/trace"
)

// Plugin is one link of a chain.
type Plugin struct {
	// Name identifies the plugin in metrics.
	Name string
	// Interface takes part in the passes whose interface it implements
	// (admission.MutationInterface, admission.ValidationInterface).
	Interface admission.Interface
}

// Chain joins plugins to the admission that a server runs for every write. It makes two passes
// over the list, in order. The first error ends a pass (S9.1). The mutating pass runs once more
// when a plugin asks for it because a webhook or a policy changed the object (S5.16). Metrics
// measure each pass and each plugin in it (S10).
//
// The result is safe for concurrent use if the plugins are.
func Chain(plugins ...Plugin) Passes {
	links := make([]admission.Interface, len(plugins))
	others := 0
	for i, p := range plugins {
		if _, ok := p.Interface.(acting); ok {
			others++
		}
		links[i] = metrics.WithControllerMetrics(recording(p, others), p.Name)
	}
	return metrics.WithStepMetrics(&twice{admission.NewChainHandler(links...)}).(Passes)
}

// Passes is admission in both passes.
type Passes interface {
	admission.MutationInterface
	admission.ValidationInterface
}

// twice runs the mutating pass again when a plugin asked for a second pass. There is never a
// third one: asking again in the second pass has no effect.
type twice struct {
	Passes
}

// Validate implements admission.ValidationInterface. The object has its generated name
// and its uid by now.
func (t *twice) Validate(ctx context.Context, a admission.Attributes, o admission.ObjectInterfaces) error {
	note(ctx, a)
	return t.Passes.Validate(ctx, a, o)
}

// note writes into the trace of the request, if it has one, what the request is about.
func note(ctx context.Context, a admission.Attributes) {
	t := trace.FromContext(ctx)
	if t == nil {
		return
	}
	s := trace.Subject{Request: trace.Request{
		Operation: string(a.GetOperation()), Resource: a.GetResource(), Subresource: a.GetSubresource(), Kind: a.GetKind(),
		Namespace: a.GetNamespace(), Name: a.GetName(), DryRun: a.IsDryRun(),
	}}
	if user := a.GetUserInfo(); user != nil {
		s.User = user.GetName()
	}
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

// recording returns a plugin that does what p does, in the same passes, and adds its verdicts
// to the trace of the request, if the request has one. The plugins of an Engine add their own
// steps to the trace, so recording returns them as they are. others is how many plugins of an
// Engine stand before p.
func recording(p Plugin, others int) admission.Interface {
	if _, ok := p.Interface.(acting); ok {
		return p.Interface
	}
	r := recorded{p.Interface, p.Name, others}
	_, mutates := p.Interface.(admission.MutationInterface)
	_, validates := p.Interface.(admission.ValidationInterface)
	switch {
	case mutates && validates:
		return recordedBoth{r}
	case mutates:
		return recordedMutation{r}
	case validates:
		return recordedValidation{r}
	}
	return p.Interface
}

// recorded is a compiled-in plugin whose verdicts are added to traces.
type recorded struct {
	admission.Interface
	name   string
	others int
}

type (
	recordedMutation   struct{ recorded }
	recordedValidation struct{ recorded }
	recordedBoth       struct{ recorded }
)

func (r recordedMutation) Admit(ctx context.Context, a admission.Attributes, o admission.ObjectInterfaces) error {
	return r.admit(ctx, a, o)
}

func (r recordedValidation) Validate(ctx context.Context, a admission.Attributes, o admission.ObjectInterfaces) error {
	return r.validate(ctx, a, o)
}

func (r recordedBoth) Admit(ctx context.Context, a admission.Attributes, o admission.ObjectInterfaces) error {
	return r.admit(ctx, a, o)
}

func (r recordedBoth) Validate(ctx context.Context, a admission.Attributes, o admission.ObjectInterfaces) error {
	return r.validate(ctx, a, o)
}

func (r recorded) admit(ctx context.Context, a admission.Attributes, o admission.ObjectInterfaces) error {
	plugin := r.Interface.(admission.MutationInterface)
	if !concerns(plugin, a) {
		return plugin.Admit(ctx, a, o)
	}
	w, _ := ctx.Value(watchedKey{}).(*watched)
	if w != nil && mayChange(plugin, a) {
		w.remember(a, r.others)
	} else {
		w = nil
	}
	ctx, end := trace.StartStep(ctx, r.name, registration.MutatingPass, roundOf(a))
	start := time.Now()
	err := plugin.Admit(ctx, a, o)
	latency := time.Since(start)
	end(err)
	var change trace.Change
	if w != nil && err == nil {
		change = w.changed(a, o)
	}
	r.record(ctx, a, trace.Step{Pass: registration.MutatingPass, Start: start, Latency: latency, Change: change, Err: err})
	return err
}

func (r recorded) validate(ctx context.Context, a admission.Attributes, o admission.ObjectInterfaces) error {
	plugin := r.Interface.(admission.ValidationInterface)
	if !concerns(plugin, a) {
		return plugin.Validate(ctx, a, o)
	}
	ctx, end := trace.StartStep(ctx, r.name, registration.ValidatingPass, 0)
	start := time.Now()
	err := plugin.Validate(ctx, a, o)
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
	s.Plugin, s.Object = r.name, types.NamespacedName{Namespace: a.GetNamespace(), Name: a.GetName()}
	if s.Pass == registration.MutatingPass {
		s.Round = roundOf(a)
	}
	t.Add(s)
}

// roundOf is the round of the mutating pass: 1 when the pass is run again, and 0 otherwise.
func roundOf(a admission.Attributes) int {
	if a.GetReinvocationContext().IsReinvoke() {
		return 1
	}
	return 0
}
