package plugins

import (
	"context"

	"k8s.io/apimachinery/pkg/runtime/schema"
	apiadmission "k8s.io/apiserver/pkg/admission"

	"github.com/gatehouse-dev/gatehouse/admission"
	"github.com/gatehouse-dev/gatehouse/admission/registration"
)

// plugin is a built-in admission plugin, with the methods that plans and traces call.
type plugin struct {
	apiadmission.Interface
	// trial handles dry runs and predictions. It differs from the plugin if the plugin writes objects during
	// admission.
	trial apiadmission.Interface
	row   Plugin
	// stored maps resources that are other names to the stored resources, as in Options.
	stored map[schema.GroupVersionResource]schema.GroupVersionResource
}

// The interfaces of a plugin that takes part in one pass only.
type (
	described interface {
		apiadmission.Interface
		admission.Described
		admission.Confined
		admission.Predictor
	}
	admitter interface {
		Admit(context.Context, apiadmission.Attributes, apiadmission.ObjectInterfaces) error
	}
	validator interface {
		Validate(context.Context, apiadmission.Attributes, apiadmission.ObjectInterfaces) error
	}
)

// wrap returns a plugin that takes part in the same passes as inner.
func wrap(row Plugin, inner, trial apiadmission.Interface, stored map[schema.GroupVersionResource]schema.GroupVersionResource) apiadmission.Interface {
	p := &plugin{inner, trial, row, stored}
	_, mutates := inner.(apiadmission.MutationInterface)
	_, validates := inner.(apiadmission.ValidationInterface)
	switch {
	case mutates && validates:
		return p
	case mutates:
		return struct {
			described
			admitter
		}{p, p}
	case validates:
		return struct {
			described
			validator
		}{p, p}
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

// Fields implements admission.Confined.
func (p *plugin) Fields() []string { return p.row.changes }

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

// judging returns the plugin that handles a request: trial for a dry run.
func (p *plugin) judging(a apiadmission.Attributes) apiadmission.Interface {
	if a.IsDryRun() {
		return p.trial
	}
	return p.Interface
}

// Admit implements admission.MutationInterface.
func (p *plugin) Admit(ctx context.Context, a apiadmission.Attributes, o apiadmission.ObjectInterfaces) error {
	return p.judging(a).(apiadmission.MutationInterface).Admit(ctx, asStored(a, p.stored), o)
}

// Validate implements admission.ValidationInterface.
func (p *plugin) Validate(ctx context.Context, a apiadmission.Attributes, o apiadmission.ObjectInterfaces) error {
	return p.judging(a).(apiadmission.ValidationInterface).Validate(ctx, asStored(a, p.stored), o)
}
