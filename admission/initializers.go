package admission

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/admission"

	"github.com/gatehouse-dev/gatehouse/admission/dispatch"
	"github.com/gatehouse-dev/gatehouse/admission/initializers"
	"github.com/gatehouse-dev/gatehouse/admission/plan"
	"github.com/gatehouse-dev/gatehouse/admission/registration"
	"github.com/gatehouse-dev/gatehouse/admission/snapshot"
	"github.com/gatehouse-dev/gatehouse/admission/trace"
)

// initializerPlugin gives new objects their initializers, and decides who may change them
// later. It is initializers.Plugin, fed by snapshots, with a record.
type initializerPlugin struct {
	*initializers.Plugin
	// verdicts judges as the plugin does, and gives objects no initializers.
	verdicts  *initializers.Plugin
	snapshots Snapshots
	publisher *trace.Publisher
}

func newInitializerPlugin(o *Options, publisher *trace.Publisher) *initializerPlugin {
	p := &initializerPlugin{snapshots: o.Snapshots, publisher: publisher}
	options := initializers.Options{Pending: p.pending, Authorizer: o.Authorizer, Exempt: plan.Exempt}
	if o.Registrations != nil {
		options.Registered = func(ctx context.Context) ([]*registration.Entry, error) { return registered(ctx, o.Registrations) }
	}
	p.Plugin = initializers.New(options)
	options.Pending = func(context.Context, admission.Attributes) ([]string, error) { return nil, nil }
	p.verdicts = initializers.New(options)
	return p
}

func (p *initializerPlugin) acts() *registration.Descriptor {
	return registration.Initializing.Descriptor()
}

// Predict implements Predictor. Which initializers a new object gets is up to the plan.
func (p *initializerPlugin) Predict(ctx context.Context, pass registration.Pass, a admission.Attributes, o admission.ObjectInterfaces) error {
	switch {
	case !p.Handles(a.GetOperation()):
		return nil
	case pass == registration.MutatingPass:
		return p.verdicts.Admit(ctx, a, o)
	}
	return p.verdicts.Validate(ctx, a, o)
}

// pending names the initializers that the new object of a request must wait for.
func (p *initializerPlugin) pending(ctx context.Context, a admission.Attributes) ([]string, error) {
	s, err := acquire(ctx, p.snapshots, registration.Initializing, a)
	if s == nil {
		return nil, err
	}
	request := plan.NewRequest(a)
	var names []string
	for _, c := range plan.Initializers(s, &request, a.GetObject()) {
		names = append(names, c.Entry.Name)
	}
	return names, nil
}

// registered reads every initializer as it is registered now.
func registered(ctx context.Context, reader snapshot.Reader) ([]*registration.Entry, error) {
	found, err := reader.Read(ctx, "")
	if err != nil {
		return nil, apierrors.NewInternalError(fmt.Errorf("reading the registered initializers: %w", err))
	}
	var entries []*registration.Entry
	for _, e := range snapshot.Compile(found).Entries(registration.Initializing) {
		entries = append(entries, e.Entry)
	}
	return entries, nil
}

// Admit implements admission.MutationInterface.
func (p *initializerPlugin) Admit(ctx context.Context, a admission.Attributes, o admission.ObjectInterfaces) error {
	start, had := time.Now(), a.GetObject() != nil && initializers.Has(a.GetObject())
	ctx, end := trace.StartStep(ctx, InitializersName, registration.MutatingPass)
	err := p.Plugin.Admit(ctx, a, o)
	end(err)
	if err != nil || !had && a.GetObject() != nil && initializers.Has(a.GetObject()) {
		p.record(ctx, a, start, err)
	}
	return err
}

// Validate implements admission.ValidationInterface.
func (p *initializerPlugin) Validate(ctx context.Context, a admission.Attributes, o admission.ObjectInterfaces) error {
	start := time.Now()
	ctx, end := trace.StartStep(ctx, InitializersName, registration.ValidatingPass)
	err := p.Plugin.Validate(ctx, a, o)
	end(err)
	if err != nil {
		p.record(ctx, a, start, err)
	}
	return err
}

// record publishes what the plugin did.
func (p *initializerPlugin) record(ctx context.Context, a admission.Attributes, start time.Time, err error) {
	request := plan.NewRequest(a)
	run := &trace.Run{Request: dispatch.RequestOf(&request), Source: registration.Initializing, Start: start, Latency: time.Since(start), Err: err}
	if err == nil {
		if list, err := initializers.Get(a.GetObject()); err == nil && list != nil {
			for _, i := range list.Pending {
				run.Pending = append(run.Pending, i.Name)
			}
		}
	}
	p.publisher.Publish(ctx, a, run)
}
