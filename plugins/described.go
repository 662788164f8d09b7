package plugins

import (
	"context"

	"k8s.io/apimachinery/pkg/runtime/schema"
	apiadmission "k8s.io/apiserver/pkg/admission"

	"github.com/gatehouse-dev/gatehouse/admission"
	"github.com/gatehouse-dev/gatehouse/admission/registration"
)

// plugin is a compiled-in plugin, with the methods that plans and traces call.
type plugin struct {
	apiadmission.Interface
	// trial judges dry runs and predictions. It differs from the plugin if the plugin writes
	// something while it judges.
	trial apiadmission.Interface
	row   Plugin
	// stored maps resources that are other names to the stored resources, as in Options.
	stored map[schema.GroupVersionResource]schema.GroupVersionResource
}

type (
	mutating   struct{ *plugin }
	validating struct{ *plugin }
	both       struct{ *plugin }
)

var (
	_ admission.Described = (*plugin)(nil)
	_ admission.Predictor = (*plugin)(nil)
)

// wrap returns a plugin that takes part in the same passes as inner.
func wrap(row Plugin, inner, trial apiadmission.Interface, stored map[schema.GroupVersionResource]schema.GroupVersionResource) apiadmission.Interface {
	p := &plugin{inner, trial, row, stored}
	_, mutates := inner.(apiadmission.MutationInterface)
	_, validates := inner.(apiadmission.ValidationInterface)
	switch {
	case mutates && validates:
		return both{p}
	case mutates:
		return mutating{p}
	case validates:
		return validating{p}
	}
	panic("policies: plugin " + row.Name + " takes part in no pass")
}

// Concerns implements admission.Described.
func (p *plugin) Concerns(a apiadmission.Attributes) bool {
	return p.row.Concerns(asStored(a, p.stored))
}

// Changes implements admission.Described.
func (p *plugin) Changes() bool {
	_, mutates := p.Interface.(apiadmission.MutationInterface)
	return mutates && !p.row.onlyRefuses
}

// Reads implements admission.Described.
func (p *plugin) Reads(a apiadmission.Attributes) []admission.Read {
	if a == nil {
		return p.row.Reads
	}
	return p.row.ReadsFor(asStored(a, p.stored))
}

// DependsOnOthers implements admission.Described.
func (p *plugin) DependsOnOthers() bool { return p.row.place == last }

// Predict implements admission.Predictor.
func (p *plugin) Predict(ctx context.Context, pass registration.Pass, a apiadmission.Attributes, o apiadmission.ObjectInterfaces) error {
	a = asStored(a, p.stored)
	switch p.row.forecast {
	case never:
		return admission.ErrNotPredicted
	case dry:
		a = apiadmission.NewAttributesRecord(a.GetObject(), a.GetOldObject(), a.GetKind(), a.GetNamespace(), a.GetName(),
			a.GetResource(), a.GetSubresource(), a.GetOperation(), a.GetOperationOptions(), true, a.GetUserInfo())
	}
	if pass == registration.MutatingPass {
		return p.trial.(apiadmission.MutationInterface).Admit(ctx, a, o)
	}
	return p.trial.(apiadmission.ValidationInterface).Validate(ctx, a, o)
}

// judging returns the plugin that judges a request: trial for a dry run.
func (p *plugin) judging(a apiadmission.Attributes) apiadmission.Interface {
	if a.IsDryRun() {
		return p.trial
	}
	return p.Interface
}

func (p *plugin) admit(ctx context.Context, a apiadmission.Attributes, o apiadmission.ObjectInterfaces) error {
	return p.judging(a).(apiadmission.MutationInterface).Admit(ctx, asStored(a, p.stored), o)
}

func (p *plugin) validate(ctx context.Context, a apiadmission.Attributes, o apiadmission.ObjectInterfaces) error {
	return p.judging(a).(apiadmission.ValidationInterface).Validate(ctx, asStored(a, p.stored), o)
}

// Admit implements admission.MutationInterface.
func (p mutating) Admit(ctx context.Context, a apiadmission.Attributes, o apiadmission.ObjectInterfaces) error {
	return p.admit(ctx, a, o)
}

// Validate implements admission.ValidationInterface.
func (p validating) Validate(ctx context.Context, a apiadmission.Attributes, o apiadmission.ObjectInterfaces) error {
	return p.validate(ctx, a, o)
}

// Admit implements admission.MutationInterface.
func (p both) Admit(ctx context.Context, a apiadmission.Attributes, o apiadmission.ObjectInterfaces) error {
	return p.admit(ctx, a, o)
}

// Validate implements admission.ValidationInterface.
func (p both) Validate(ctx context.Context, a apiadmission.Attributes, o apiadmission.ObjectInterfaces) error {
	return p.validate(ctx, a, o)
}
