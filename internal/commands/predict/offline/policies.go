package offline

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"sync"

	v1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/kubernetes/pkg/apis/admissionregistration"
	"k8s.io/kubernetes/pkg/apis/admissionregistration/validation"

	"github.com/gatehouse-dev/gatehouse/admission/plan"
	"github.com/gatehouse-dev/gatehouse/admission/registration"
	"github.com/gatehouse-dev/gatehouse/admission/snapshot"
	"github.com/gatehouse-dev/gatehouse/internal/commands/predict/clustersnapshot"
	"github.com/gatehouse-dev/gatehouse/internal/engine/initializers"
	"github.com/gatehouse-dev/gatehouse/internal/server/api/catalog"
	"github.com/gatehouse-dev/gatehouse/internal/server/api/openapi"
)

// namespaces lets the Input of a plan read namespaces, each once. If there are policies, which may use the namespace of
// the request, it reads that namespace now.
func (w *World) namespaces(ctx context.Context, in *plan.Input, s *snapshot.Snapshot, r *plan.Request) {
	type answer struct {
		namespace *corev1.Namespace
		err       error
	}
	known := map[string]answer{}
	in.Namespace = func(ctx context.Context, name string) (*corev1.Namespace, error) {
		a, ok := known[name]
		if !ok {
			a.namespace, a.err = w.Namespace(ctx, name)
			known[name] = a
		}
		return a.namespace, a.err
	}
	in.NamespaceLabels = func(ctx context.Context, name string) (map[string]string, error) {
		namespace, err := in.Namespace(ctx, name)
		if err != nil {
			return nil, err
		}
		return namespace.Labels, nil
	}
	policies := len(s.Entries(registration.MutatingPolicies)) + len(s.Entries(registration.ValidatingPolicies))
	if policies == 0 || r.Namespace == "" || r.Kind.GroupKind() == (schema.GroupKind{Kind: "Namespace"}) {
		return
	}
	if _, err := in.Namespace(ctx, r.Namespace); errors.Is(err, plan.ErrUnknown) {
		in.NamespaceUnknown = strings.TrimPrefix(err.Error(), plan.ErrUnknown.Error()+": ")
	}
}

// schemas has the schemas of the built-in kinds, as the server has them.
type schemas struct{}

var models = sync.OnceValue(func() *openapi.Models { return openapi.NewModels(nil, catalog.Scheme) })

// TypeConverter implements mutation.Schemas.
func (schemas) TypeConverter(kind schema.GroupVersionKind) managedfields.TypeConverter {
	converter, err := models().TypeConverter(catalog.Scheme, []schema.GroupVersionKind{kind})
	if err != nil {
		return nil
	}
	return converter
}

// clusterParams reads params of policies from a cluster.
type clusterParams struct{ *cluster }

// Scope implements plan.Params.
func (c clusterParams) Scope(_ context.Context, kind schema.GroupVersionKind) (namespaced, served bool, err error) {
	k := c.kinds.Of(kind)
	if k.Guessed && c.kinds.incomplete != "" {
		return false, false, fmt.Errorf("%w: some kinds are not known: %s", plan.ErrUnknown, c.kinds.incomplete)
	}
	return k.Namespaced, !k.Guessed, nil
}

// Get implements plan.Params.
func (c clusterParams) Get(ctx context.Context, kind schema.GroupVersionKind, namespace, name string) (runtime.Object, error) {
	k := c.kinds.Of(kind)
	u, err := c.stored(ctx, k, namespace, name)
	switch {
	case err == nil:
		return u, nil
	case apierrors.IsNotFound(err):
		return nil, err
	case apierrors.IsForbidden(err):
		return nil, fmt.Errorf("%w: may not get %s %s", plan.ErrUnknown, k.Resource.Resource, path.Join(namespace, name))
	}
	return nil, fmt.Errorf("%w: getting %s %s: %w", plan.ErrUnknown, k.Resource.Resource, path.Join(namespace, name), err)
}

// List implements plan.Params.
func (c clusterParams) List(ctx context.Context, kind schema.GroupVersionKind, namespace string, selector labels.Selector) ([]runtime.Object, error) {
	k := c.kinds.Of(kind)
	found, err := clustersnapshot.All(ctx, c.objects.Resource(k.Resource).Namespace(namespace), metav1.ListOptions{LabelSelector: selector.String()})
	switch {
	case apierrors.IsForbidden(err):
		return nil, fmt.Errorf("%w: may not list %s", plan.ErrUnknown, strings.TrimSuffix(k.Resource.Resource+" "+namespace, " "))
	case err != nil:
		return nil, fmt.Errorf("%w: listing %s: %w", plan.ErrUnknown, k.Resource.Resource, err)
	}
	return byName(found), nil
}

// byName sorts params in the order in which policies are evaluated with them.
func byName(found []*unstructured.Unstructured) []runtime.Object {
	slices.SortFunc(found, func(a, b *unstructured.Unstructured) int {
		return cmp.Or(cmp.Compare(a.GetNamespace(), b.GetNamespace()), cmp.Compare(a.GetName(), b.GetName()))
	})
	objects := make([]runtime.Object, len(found))
	for i, u := range found {
		objects[i] = u
	}
	return objects
}

// Scope implements plan.Params. A kind that no file defines may still exist.
func (f *files) Scope(_ context.Context, kind schema.GroupVersionKind) (namespaced, served bool, err error) {
	k := f.kinds.Of(kind)
	if k.Guessed {
		return false, false, fmt.Errorf("%w: no file defines the kind %s of %s", plan.ErrUnknown, kind.Kind, kind.GroupVersion())
	}
	return k.Namespaced, true, nil
}

// Get implements plan.Params.
func (f *files) Get(_ context.Context, kind schema.GroupVersionKind, namespace, name string) (runtime.Object, error) {
	found, err := f.params(kind, namespace, func(u *unstructured.Unstructured) bool { return u.GetName() == name })
	if err != nil {
		return nil, err
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("%w: no file has %s %s", plan.ErrUnknown, kind.Kind, path.Join(namespace, name))
	}
	return found[0], nil
}

// List implements plan.Params.
func (f *files) List(_ context.Context, kind schema.GroupVersionKind, namespace string, selector labels.Selector) ([]runtime.Object, error) {
	found, err := f.params(kind, namespace, func(u *unstructured.Unstructured) bool { return selector.Matches(labels.Set(u.GetLabels())) })
	if err != nil {
		return nil, err
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("%w: no file has a %s that the binding selects", plan.ErrUnknown, kind.Kind)
	}
	return byName(found), nil
}

// params returns the objects of the files for which meant is true, as a server returns them in a kind.
func (f *files) params(kind schema.GroupVersionKind, namespace string, meant func(*unstructured.Unstructured) bool) ([]*unstructured.Unstructured, error) {
	var found []*unstructured.Unstructured
	for _, d := range f.stored {
		u := d.Unstructured()
		in := u.GetNamespace()
		if in == "" && f.kinds.Of(kind).Namespaced {
			in = metav1.NamespaceDefault
		}
		if u.GroupVersionKind().GroupKind() != kind.GroupKind() || in != namespace || !meant(u) {
			continue
		}
		param, err := f.servedAs(u, kind)
		if err != nil {
			return nil, fmt.Errorf("%w: %s: %w", plan.ErrUnknown, d.At(), err)
		}
		param.SetNamespace(in)
		found = append(found, param)
	}
	return found, nil
}

// servedAs returns an object of a file as a server returns it in a kind.
func (f *files) servedAs(u *unstructured.Unstructured, kind schema.GroupVersionKind) (*unstructured.Unstructured, error) {
	if !catalog.Scheme.Recognizes(kind) {
		if u.GroupVersionKind() != kind && !f.kinds.converts(kind.GroupKind()) {
			return nil, fmt.Errorf("%s %q cannot be converted to %s here", u.GetKind(), u.GetName(), kind.GroupVersion())
		}
		u = u.DeepCopy()
		u.SetGroupVersionKind(kind)
		return u, nil
	}
	obj, err := catalog.Scheme.New(kind)
	if err != nil {
		return nil, err
	}
	if err := as(u, obj); err != nil {
		return nil, err
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
	if err != nil {
		return nil, err
	}
	shown := &unstructured.Unstructured{Object: content}
	shown.SetGroupVersionKind(kind)
	return shown, initializers.Expose(shown.Object)
}

// as converts an object of a built-in kind to the version of obj, with the defaults.
func as(u *unstructured.Unstructured, obj runtime.Object) error {
	internal, err := Decode(u)
	if err != nil {
		return err
	}
	return catalog.Scheme.Convert(internal, obj, nil)
}

// parse reads a registration in any version that the server accepts, and returns the errors in it.
func parse(u *unstructured.Unstructured) (runtime.Object, field.ErrorList, error) {
	if u.GetNamespace() != "" {
		// An API server clears the namespace of a cluster-scoped object.
		u = u.DeepCopy()
		u.SetNamespace("")
	}
	var out runtime.Object
	switch u.GetKind() {
	case registration.ValidatingPolicyKind:
		out = &v1.ValidatingAdmissionPolicy{}
	case registration.ValidatingBindingKind:
		out = &v1.ValidatingAdmissionPolicyBinding{}
	case registration.MutatingPolicyKind:
		out = &v1.MutatingAdmissionPolicy{}
	case registration.MutatingBindingKind:
		out = &v1.MutatingAdmissionPolicyBinding{}
	default:
		// Parse drops unknown fields; a copy keeps the document complete.
		obj, err := registration.Parse(runtime.DeepCopyJSON(u.Object))
		if err != nil {
			return nil, nil, err
		}
		return obj, registration.Validate(obj), nil
	}
	if !catalog.Scheme.Recognizes(u.GroupVersionKind()) {
		return nil, nil, fmt.Errorf("%s has no kind %s", u.GetAPIVersion(), u.GetKind())
	}
	internal, err := Decode(u)
	if err != nil {
		return nil, nil, err
	}
	var errs field.ErrorList
	switch p := internal.(type) {
	case *admissionregistration.ValidatingAdmissionPolicy:
		errs = validation.ValidateValidatingAdmissionPolicy(p)
	case *admissionregistration.ValidatingAdmissionPolicyBinding:
		errs = validation.ValidateValidatingAdmissionPolicyBinding(p)
	case *admissionregistration.MutatingAdmissionPolicy:
		errs = validation.ValidateMutatingAdmissionPolicy(p)
	case *admissionregistration.MutatingAdmissionPolicyBinding:
		errs = validation.ValidateMutatingAdmissionPolicyBinding(p)
	}
	return out, errs, catalog.Scheme.Convert(internal, out, nil)
}
