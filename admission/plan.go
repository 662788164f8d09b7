package admission

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/gatehouse-dev/gatehouse/admission/plan"
	"github.com/gatehouse-dev/gatehouse/admission/registration"
	"github.com/gatehouse-dev/gatehouse/admission/snapshot"
	"github.com/gatehouse-dev/gatehouse/internal/engine/dispatch"
	"github.com/gatehouse-dev/gatehouse/internal/engine/objects"
)

// PlanOptions select the content of a plan, and the rights of its caller.
type PlanOptions struct {
	// All adds the entries that do not apply to the request, each with the reason.
	All bool
	// Hidden has the sources whose entries the caller may not see, each with the reason. The plan
	// has the reason instead of these entries.
	Hidden map[registration.Source]string
	// NamespaceHidden, if set, is the reason why the caller may not see the request's namespace:
	// tests that depend on the namespace's labels are then unknown, and the plan does not ask
	// built-in admission plugins.
	NamespaceHidden string
	// Unread, if set, has the names of the built-in admission plugins that read objects that the
	// caller may not see, each with the reason. The plan does not ask these plugins.
	Unread map[string]string
	// Prepares reports whether the server prepares an object between the passes, as servers with
	// storage do. Such a server generates the name.
	Prepares bool
	// Prepare, if set, changes the object between the passes as its registry does, and returns the
	// validation error of the result.
	Prepare func(ctx context.Context, object runtime.Object) error
	// Before and After are parts of the server before and after the chain.
	Before, After []plan.Link
	// ParamHidden, if set, returns the reason why the caller may not see the params of policies, or
	// "" if the caller may. The name is empty for params found by a selector. Verdicts of policies
	// with hidden params are unknown.
	ParamHidden func(kind schema.GroupVersionKind, namespace, name string) string
	// Registrations are policies and bindings that the plan treats as stored, in addition to the
	// stored ones.
	Registrations []runtime.Object
}

// Hide hides objects that the caller may not read from plans. may authorizes a request of the
// caller. namespace is the namespace of the request.
func (o *PlanOptions) Hide(chain []Plugin, namespace string, may func(authorizer.AttributesRecord) (bool, error)) error {
	o.Hidden = map[registration.Source]string{}
	for _, d := range registration.Sources() {
		ok, err := may(authorizer.AttributesRecord{Verb: "list", APIGroup: registration.GroupName, APIVersion: d.Versions[0], Resource: d.Resource})
		if err != nil {
			return err
		}
		if !ok {
			o.Hidden[d.Source] = "may not list " + d.Resource
		}
	}
	o.Unread = map[string]string{}
	for _, p := range chain {
		described, ok := p.Interface.(Described)
		if !ok {
			continue
		}
		for _, r := range described.Reads(nil) {
			if r.Group == "" && r.Resource == "namespaces" {
				// These are handled below.
				continue
			}
			in := ""
			if r.Namespaced {
				in = namespace
			}
			ok, err := may(authorizer.AttributesRecord{Verb: "list", APIGroup: r.Group, APIVersion: "v1", Resource: r.Resource, Namespace: in})
			if err != nil {
				return err
			}
			if !ok {
				o.Unread[p.Name] = "may not list " + r.String()
			}
		}
	}
	o.ParamHidden = func(kind schema.GroupVersionKind, namespace, name string) string {
		// The name of the resource is a guess. If the guess is wrong, too much is hidden, never too
		// little.
		resource, _ := meta.UnsafeGuessKindToResource(kind)
		verb := "get"
		if name == "" {
			verb = "list"
		}
		ok, err := may(authorizer.AttributesRecord{Verb: verb, APIGroup: kind.Group, APIVersion: kind.Version, Resource: resource.Resource, Namespace: namespace, Name: name})
		if err != nil {
			return err.Error()
		}
		if !ok {
			return fmt.Sprintf("may not %s %s", verb, strings.TrimSuffix(resource.Resource+" "+path.Join(namespace, name), " "))
		}
		return ""
	}
	if namespace == "" {
		return nil
	}
	ok, err := may(authorizer.AttributesRecord{Verb: "get", APIVersion: "v1", Resource: "namespaces", Namespace: namespace, Name: namespace})
	if err == nil && !ok {
		o.NamespaceHidden = "may not get namespace " + namespace
	}
	return err
}

// hiddenParams hides the params that the caller may not see: for them it returns plan.ErrUnknown.
type hiddenParams struct {
	Params
	hidden func(kind schema.GroupVersionKind, namespace, name string) string
}

func (p hiddenParams) Get(ctx context.Context, kind schema.GroupVersionKind, namespace, name string) (runtime.Object, error) {
	if why := p.hidden(kind, namespace, name); why != "" {
		return nil, fmt.Errorf("%w: %s", plan.ErrUnknown, why)
	}
	return p.Params.Get(ctx, kind, namespace, name)
}

func (p hiddenParams) List(ctx context.Context, kind schema.GroupVersionKind, namespace string, selector labels.Selector) ([]runtime.Object, error) {
	if why := p.hidden(kind, namespace, ""); why != "" {
		return nil, fmt.Errorf("%w: %s", plan.ErrUnknown, why)
	}
	return p.Params.List(ctx, kind, namespace, selector)
}

// Plan predicts how a chain of plugins handles a request, with the current webhook configurations
// and policies. It calls no webhook, and does not change the objects of the attributes. The error
// comes from Snapshots.Acquire.
func (e *Engine) Plan(ctx context.Context, chain []Plugin, a admission.Attributes, o admission.ObjectInterfaces, options PlanOptions) (*plan.Plan, error) {
	s, err := e.options.Snapshots.Acquire(ctx, snapshot.Subject{
		Source: registration.Mutating, Resource: a.GetResource().GroupResource(), Operation: a.GetOperation(),
	})
	if err != nil {
		return nil, err
	}
	if len(options.Registrations) > 0 {
		s = s.With(options.Registrations)
	}
	return e.PlanWith(ctx, s, chain, a, o, options), nil
}

// PlanWith is like Plan, with a given snapshot.
func (e *Engine) PlanWith(ctx context.Context, s *snapshot.Snapshot, chain []Plugin, a admission.Attributes, o admission.ObjectInterfaces, options PlanOptions) *plan.Plan {
	p := dispatch.Predict(a, e.options.Schemas, options.Prepares, func(a admission.Attributes) plan.Objects { return objects.New(a, o) })
	p.Request.Reviews = e.options.Reviews
	in := p.Input
	in.NamespaceLabels, in.Namespace, in.Params, in.Authorizer = e.namespaceLabels, e.namespace, e.options.Params, e.options.Authorizer
	in.InitializerTimeout, in.Prepare = e.options.InitializerTimeout, options.Prepare
	if options.NamespaceHidden != "" {
		in.NamespaceLabels = func(context.Context, string) (map[string]string, error) {
			return nil, fmt.Errorf("%w: %s", plan.ErrUnknown, options.NamespaceHidden)
		}
		in.Namespace = func(context.Context, string) (*corev1.Namespace, error) {
			return nil, fmt.Errorf("%w: %s", plan.ErrUnknown, options.NamespaceHidden)
		}
	}
	if options.ParamHidden != nil && in.Params != nil {
		in.Params = hiddenParams{in.Params, options.ParamHidden}
	}
	links := slices.Concat(options.Before, Links(chain, p.Attributes, o, &options), options.After)
	return plan.New(ctx, links, s, &p.Request, o.GetEquivalentResourceMapper(), in, options.All)
}

// Links describes the plugins of a chain for a plan of a request: the plugins of an Engine, and the
// built-in admission plugins that the request concerns. A plan with these links changes the object
// of the attributes, and has no other effect.
func Links(chain []Plugin, a admission.Attributes, o admission.ObjectInterfaces, options *PlanOptions) []plan.Link {
	list := make([]plan.Link, 0, len(chain))
	for _, p := range chain {
		l := plan.Link{Plugin: p.Name}
		act, acts := p.Interface.(acting)
		if acts {
			l = plan.Acting(act.acts().Source, options.Hidden)
			l.Plugin = p.Name
		} else if !p.Interface.Handles(a.GetOperation()) || !concerns(p.Interface, a) {
			continue
		}
		_, l.Mutates = p.Interface.(admission.MutationInterface)
		_, l.Validates = p.Interface.(admission.ValidationInterface)
		described, ok := p.Interface.(Described)
		if ok {
			l.Changes, l.DependsOnOthers = described.Changes(), described.DependsOnOthers()
		}
		if predictor, predicts := p.Interface.(Predictor); predicts {
			if !acts && (!ok || len(described.Reads(a)) > 0) {
				l.Hidden = options.Unread[p.Name]
			}
			if acts || options.NamespaceHidden == "" {
				l.Judge = judge(p.Interface, predictor, a, o)
			}
		}
		list = append(list, l)
	}
	return list
}

// completed returns the attributes of a request in a pass. In the validating pass they have the
// generated name.
func completed(a admission.Attributes, pass registration.Pass) admission.Attributes {
	if pass != registration.ValidatingPass || a.GetName() != "" || a.GetObject() == nil {
		return a
	}
	m, err := meta.Accessor(a.GetObject())
	if err != nil || m.GetName() == "" {
		return a
	}
	return admission.NewAttributesRecord(a.GetObject(), a.GetOldObject(), a.GetKind(), a.GetNamespace(), m.GetName(), a.GetResource(),
		a.GetSubresource(), a.GetOperation(), a.GetOperationOptions(), a.IsDryRun(), a.GetUserInfo())
}

// judge returns a function that predicts the verdict of a plugin for a request, and its patch.
func judge(p admission.Interface, predictor Predictor, a admission.Attributes, o admission.ObjectInterfaces) func(context.Context, registration.Pass) ([]byte, error) {
	watch := mayChange(p, a)
	return func(ctx context.Context, pass registration.Pass) ([]byte, error) {
		var w watched
		watch := watch && pass == registration.MutatingPass
		if watch {
			w.remember(a, 0)
		}
		err := predictor.Predict(ctx, pass, completed(a, pass), o)
		switch {
		case errors.Is(err, ErrNotPredicted):
			return nil, nil
		case err != nil || !watch:
			return nil, err
		}
		if c := w.changed(a, o); c != nil {
			return c.Patch(), nil
		}
		return nil, nil
	}
}
