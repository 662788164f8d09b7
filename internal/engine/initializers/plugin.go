package initializers

import (
	"context"
	"fmt"
	"reflect"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/gatehouse-dev/gatehouse/admission/registration"
	"github.com/gatehouse-dev/gatehouse/internal/kit/upstream"
)

// Verb is the permission required to write an uninitialized object, in addition to the verb of the
// request.
const Verb = "initialize"

// Options configure a Plugin. All fields except Registered must be set.
type Options struct {
	// Pending returns the initializers that apply to the new object of a request, in order. Its
	// error rejects the request. While the initializers are unknown, it must be the retryable error
	// of S11.11.
	Pending func(context.Context, admission.Attributes) ([]*registration.Entry, error)
	// Authorizer authorizes writes of uninitialized objects; if it is nil, no user may write them.
	Authorizer upstream.Authorizer
	// Exempt reports whether a kind has no initializers: the kinds that configure admission
	// (S2.39).
	Exempt func(schema.GroupVersionKind, schema.GroupResource) bool
	// Registered returns every entry of a source, in order of configuration name. The plugin calls
	// it if a client writes an InitializerConfiguration, or a webhook configuration or policy with
	// order annotations: the new entries and the existing ones together must have an order. Nil
	// means that no other entries exist. Its error rejects the request.
	Registered func(context.Context, registration.Source) ([]*registration.Entry, error)
}

// Plugin gives new objects their pending initializers and authorizes changes of the list, in the
// mutating pass. In the validating pass it checks the changes of the list by later plugins, and the
// order of a client's entries. It is safe for concurrent use.
type Plugin struct{ options Options }

// New returns a Plugin.
func New(o Options) *Plugin { return &Plugin{options: o} }

// Handles implements admission.Interface (S9.5).
func (p *Plugin) Handles(operation admission.Operation) bool {
	return operation == admission.Create || operation == admission.Update
}

// Admit implements admission.MutationInterface. Its errors are 403 for callers without the verb
// initialize, 422 for invalid changes of the field, and errors of Options.Pending.
func (p *Plugin) Admit(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if a.GetSubresource() != "" || a.GetObject() == nil {
		return nil
	}
	// In the second pass the object has the list from the first pass, which the client did not
	// send (S11.21).
	if a.GetReinvocationContext().IsReinvoke() {
		return nil
	}
	if _, err := meta.Accessor(a.GetObject()); err != nil {
		return nil
	}
	if p.exempt(a) {
		Set(a.GetObject(), nil)
		return nil
	}
	current, err := Get(a.GetObject())
	if err != nil {
		return invalid(a, field.Invalid(path, "", err.Error()))
	}
	if a.GetOperation() == admission.Create {
		return p.create(ctx, a, current)
	}
	return p.update(ctx, a, current)
}

func (p *Plugin) create(ctx context.Context, a admission.Attributes, sent *Initializers) error {
	if sent == nil {
		given, err := p.options.Pending(ctx, a)
		if err != nil || len(given) == 0 {
			return err
		}
		if len(given) > MaxPending {
			return apierrors.NewForbidden(a.GetResource().GroupResource(), a.GetName(), fmt.Errorf(
				"%d registered initializers apply to the object, more than the limit of %d: remove some from the InitializerConfigurations", len(given), MaxPending))
		}
		Give(a.GetObject(), given)
		return nil
	}
	if err := p.authorize(ctx, a, "create with initializers denied"); err != nil {
		return err
	}
	if errs := Validate(sent); len(errs) > 0 {
		return invalid(a, errs...)
	}
	switch {
	case sent.Empty():
		Set(a.GetObject(), nil)
	case len(sent.Paired) > 0:
		// A client's list in a new object adds no finalizers (S11.18, S11.54).
		sent.Paired = nil
		Set(a.GetObject(), sent)
	}
	return nil
}

func (p *Plugin) update(ctx context.Context, a admission.Attributes, sent *Initializers) error {
	stored, err := Get(a.GetOldObject())
	if err != nil {
		return apierrors.NewInternalError(err)
	}
	if sent != nil && sent.Empty() {
		Set(a.GetObject(), nil)
		sent = nil
	}
	if sent == nil && stored == nil {
		return nil
	}
	if stored == nil {
		return invalid(a, immutable(sent))
	}
	if err := p.authorize(ctx, a, "update to uninitialized resource denied"); err != nil {
		return err
	}
	return transition(a, stored, sent)
}

// transition checks the change of an uninitialized object (S11.39).
func transition(a admission.Attributes, stored, sent *Initializers) error {
	if sent == nil {
		return nil
	}
	// An object that has more names than the bound, because it is older than the bound, can
	// still lose its names.
	if errs := validate(sent, max(MaxPending, len(stored.Pending))); len(errs) > 0 {
		return invalid(a, errs...)
	}
	if stored.Result != nil && !equality.Semantic.DeepEqual(stored.Result, sent.Result) {
		return invalid(a, field.Invalid(path.Child("result"), "", "field is immutable once it is set"))
	}
	return nil
}

// Validate implements admission.ValidationInterface. Its errors are 422.
func (p *Plugin) Validate(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if a.GetSubresource() != "" || a.GetObject() == nil {
		return nil
	}
	if err := p.ordered(ctx, a); err != nil || p.exempt(a) {
		return err
	}
	if !Has(a.GetObject()) {
		return nil
	}
	sent, err := Get(a.GetObject())
	if err != nil {
		return invalid(a, field.Invalid(path, "", err.Error()))
	}
	if a.GetOperation() == admission.Create {
		if errs := Validate(sent); len(errs) > 0 {
			return invalid(a, errs...)
		}
		return nil
	}
	stored, err := Get(a.GetOldObject())
	if err != nil {
		return apierrors.NewInternalError(err)
	}
	if stored == nil && !sent.Empty() {
		return invalid(a, immutable(sent))
	}
	if stored == nil {
		return nil
	}
	return transition(a, stored, sent)
}

// ordered rejects an object if its entries and the existing ones together have no order. It checks
// all initializers, and webhooks and policies if the object has order annotations (S5.30).
func (p *Plugin) ordered(ctx context.Context, a admission.Attributes) error {
	own := registration.Ordered(a.GetResource().GroupResource(), a.GetObject())
	if len(own) == 0 {
		return nil
	}
	wishes := own[0].Source != registration.Initializing
	if wishes && orderKept(registration.Ordered(a.GetResource().GroupResource(), a.GetOldObject()), own) {
		return nil
	}
	all := own
	if p.options.Registered != nil {
		registered, err := p.options.Registered(ctx, own[0].Source)
		if err != nil {
			return err
		}
		for _, i := range registered {
			if i.Configuration != own[0].Configuration && !i.Static() {
				all = append(all, i)
			}
		}
	}
	if wishes {
		all = withAbsent(all)
	}
	if err := CheckOrder(all); err != nil {
		path := field.NewPath("metadata", "annotations")
		if !wishes {
			path = field.NewPath("initializers")
		}
		return invalid(a, field.Invalid(path, "", err.Error()))
	}
	return nil
}

// orderKept reports whether the stored object has the same order annotations.
func orderKept(before, now []*registration.Entry) bool {
	return len(before) > 0 && reflect.DeepEqual(before[0].Order, now[0].Order)
}

// withAbsent adds objects that others name and that do not exist. The creation of such an object is
// not checked if it has no order annotations itself, so its name is checked here.
func withAbsent(list []*registration.Entry) []*registration.Entry {
	known := map[string]bool{}
	for _, e := range list {
		known[e.Place()] = true
	}
	all := slices.Clone(list)
	for _, e := range list {
		if e.Order == nil {
			continue
		}
		for _, name := range slices.Concat(e.Order.After, e.Order.Before) {
			if !known[name] {
				known[name] = true
				all = append(all, &registration.Entry{Origin: registration.Origin{Source: e.Source, Configuration: name}})
			}
		}
	}
	return all
}

func immutable(sent *Initializers) *field.Error {
	return field.Invalid(path, names(sent), "field is immutable once initialization has completed")
}

func (p *Plugin) exempt(a admission.Attributes) bool {
	// The resource of a review is exempt, too, but its object is not stored and cannot have the
	// field.
	return p.options.Exempt(a.GetKind(), schema.GroupResource{Group: a.GetKind().Group})
}

func (p *Plugin) authorize(ctx context.Context, a admission.Attributes, denied string) error {
	if p.options.Authorizer == nil {
		return apierrors.NewForbidden(a.GetResource().GroupResource(), a.GetName(), fmt.Errorf("%s: this server has no authorizer to allow it", denied))
	}
	decision, reason, err := p.options.Authorizer.Authorize(ctx, authorizer.AttributesRecord{
		User:            a.GetUserInfo(),
		Verb:            Verb,
		Namespace:       a.GetNamespace(),
		Name:            a.GetName(),
		APIGroup:        a.GetResource().Group,
		APIVersion:      a.GetResource().Version,
		Resource:        a.GetResource().Resource,
		ResourceRequest: true,
	})
	if decision == authorizer.DecisionAllow {
		return nil
	}
	if err != nil {
		return err
	}
	if reason == "" {
		// RBAC returns no reason.
		reason = fmt.Sprintf("user %q needs the verb %q", a.GetUserInfo().GetName(), Verb)
	}
	return apierrors.NewForbidden(a.GetResource().GroupResource(), a.GetName(), fmt.Errorf("%s: %s", denied, reason))
}

func invalid(a admission.Attributes, errs ...*field.Error) error {
	return apierrors.NewInvalid(a.GetKind().GroupKind(), a.GetName(), errs)
}

func names(i *Initializers) []string {
	list := make([]string, len(i.Pending))
	for n, p := range i.Pending {
		list[n] = p.Name
	}
	return list
}
