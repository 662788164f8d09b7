package resources

import (
	"context"
	"errors"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"
)

// Trial is a write that is evaluated and not made.
type Trial struct {
	Resource    schema.GroupVersionResource
	Subresource string
	// Operation is Create, Update or Delete.
	Operation admission.Operation
	// Namespace and Name are the namespace and the name in the URL. A Create may have no name.
	Namespace, Name string
	// Body is the sent object, in JSON; a deletion has none. Made is the object instead of Body, in the version of the
	// resource. The trial changes it.
	Body []byte
	Made runtime.Object
	// Invalid allows a Create whose object the validation of its kind would reject.
	Invalid bool
	// Strict leaves a Create to its handler if the object has unknown fields or exists, or if the kind has warnings.
	Strict bool
}

// Tried is the object of a trial after admission.
type Tried struct {
	// Object is in the version that the server works with, and belongs to the caller; it is nil
	// after a deletion.
	Object runtime.Object
	// Encode returns an object of this kind in JSON, in the version of the request.
	Encode func(runtime.Object) ([]byte, error)
}

// ErrOnlyServed means that a write can only be evaluated by serving a request for it.
var ErrOnlyServed = errors.New("only a request can try this")

// errLetPass ends a write that passed admission.
var errLetPass = errors.New("admission let the write pass")

const jsonMediaType = "application/json"

// Try runs a write as the handler of its request does, from the decoded object to the end of the
// validating pass: without filters, managed fields, a response, and etcd. The context has the user
// and the request info. The error is the error of the request, or ErrOnlyServed if the write was
// not evaluated.
func (h *Handler) Try(ctx context.Context, t *Trial) (*Tried, error) {
	e, done := h.bound(ctx, t.Resource, t.Subresource)
	defer done()
	if e == nil || e.Discovery.Namespaced != (t.Namespace != "") {
		return nil, ErrOnlyServed
	}
	admit := h.Admission
	if e.Admit != nil {
		admit = e.Admit(admit)
	}
	if t.Subresource != "" {
		admit = keeping(admit, false)
	}
	passes, ok := admit.(interface {
		admission.MutationInterface
		admission.ValidationInterface
	})
	if !ok {
		return nil, ErrOnlyServed
	}
	who, _ := request.UserFrom(ctx)
	w := &trying{Endpoint: e, Trial: t, passes: passes, attributes: func(obj, old runtime.Object, namespace, name string, options runtime.Object) admission.Attributes {
		return admission.NewAttributesRecord(obj, old, e.Scope.Kind, namespace, name, e.Scope.Resource, e.Scope.Subresource, t.Operation, options, true, who)
	}}
	var err error
	switch t.Operation {
	case admission.Create:
		err = w.create(ctx)
	case admission.Update:
		err = w.update(ctx)
	case admission.Delete:
		err = w.delete(ctx)
	default:
		return nil, ErrOnlyServed
	}
	switch {
	case errors.Is(err, errLetPass):
		return &Tried{Object: w.object, Encode: w.encode}, nil
	case err == nil:
		// The storage did not call admission.
		return nil, ErrOnlyServed
	}
	return nil, err
}

// bound returns the endpoint of a resource, nil if it is not served, with the scope of one request. The caller must
// call done when it no longer needs the endpoint.
func (h *Handler) bound(ctx context.Context, resource schema.GroupVersionResource, sub string) (e *Endpoint, done func()) {
	e, done = h.lookup(resource, sub)
	if e != nil && e.Bind != nil {
		bound := *e
		bound.Scope = e.Bind(ctx)
		e = &bound
	}
	if done == nil {
		done = func() {}
	}
	return e, done
}

// trying is a trial at its endpoint.
type trying struct {
	*Endpoint
	*Trial
	passes interface {
		admission.MutationInterface
		admission.ValidationInterface
	}
	attributes func(obj, old runtime.Object, namespace, name string, options runtime.Object) admission.Attributes
	// object is the object after admission.
	object runtime.Object
}

func (w *trying) codec() (runtime.SerializerInfo, bool) {
	return runtime.SerializerInfoForMediaType(w.Scope.Serializer.SupportedMediaTypes(), jsonMediaType)
}

// decode returns the sent object. It leaves to the handler a body that cannot be decoded, for its
// error, and an object with several owners, because the handler may remove some of them.
func (w *trying) decode(into runtime.Object) (runtime.Object, metav1.Object, error) {
	info, ok := w.codec()
	if !ok {
		return nil, nil, ErrOnlyServed
	}
	kind, serializer := w.Scope.Kind, info.Serializer
	if w.Strict {
		serializer = info.StrictSerializer
	}
	var obj runtime.Object
	var err error
	gvk := &kind
	if w.Made != nil {
		w.Scope.Defaulter.Default(w.Made)
		obj, err = w.Scope.Convertor.ConvertToVersion(w.Made, w.Scope.HubGroupVersion)
	} else {
		obj, gvk, err = w.Scope.Serializer.DecoderToVersion(serializer, w.Scope.HubGroupVersion).Decode(w.Body, &kind, into)
	}
	if err != nil || !w.Scope.AcceptsGroupVersion(gvk.GroupVersion()) {
		return nil, nil, ErrOnlyServed
	}
	m, err := meta.Accessor(obj)
	if err != nil || len(m.GetOwnerReferences()) > 1 {
		return nil, nil, ErrOnlyServed
	}
	return obj, m, nil
}

func (w *trying) encode(obj runtime.Object) ([]byte, error) {
	info, ok := w.codec()
	if !ok {
		return nil, ErrOnlyServed
	}
	return runtime.Encode(w.Scope.Serializer.EncoderForVersion(info.Serializer, w.Scope.Kind.GroupVersion()), obj)
}

func (w *trying) create(ctx context.Context) error {
	creater, ok := w.Storage.(rest.Creater)
	if _, named := w.Storage.(rest.NamedCreater); !ok || named || w.Subresource != "" || !is[rest.Getter](w.Storage) {
		return ErrOnlyServed
	}
	obj, m, err := w.decode(creater.New())
	if err != nil {
		return err
	}
	namespace, name := w.Namespace, m.GetName()
	if namespace == "" && w.Resource.Group == "" && w.Resource.Resource == "namespaces" {
		namespace = name
	}
	ctx = request.WithNamespace(ctx, namespace)
	if w.Strict {
		if _, err := w.Storage.(rest.Getter).Get(ctx, name, &metav1.GetOptions{}); !apierrors.IsNotFound(err) || len(w.Warnings) > 0 {
			return ErrOnlyServed
		}
	}
	rest.WipeObjectMetaSystemFields(m)
	if err := rest.EnsureObjectNamespaceMatchesRequestNamespace(rest.ExpectedNamespaceForResource(namespace, w.Resource), m); err != nil {
		return err
	}
	options := &metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}
	options.SetGroupVersionKind(metav1.SchemeGroupVersion.WithKind("CreateOptions"))
	a := w.attributes(obj, nil, namespace, name, options)
	if w.passes.Handles(admission.Create) {
		if err := w.passes.Admit(ctx, a, w.Scope); err != nil {
			return err
		}
	}
	validate := rest.AdmissionToValidateObjectFunc(w.passes, a, w.Scope)
	judge := func(ctx context.Context, obj runtime.Object) error {
		if err := validate(ctx, obj); err != nil {
			return err
		}
		w.object = obj
		return errLetPass
	}
	if w.Invalid {
		return judge(ctx, obj)
	}
	_, err = creater.Create(ctx, obj, judge, options)
	return explain(w.Kind, "", err)
}

func (w *trying) update(ctx context.Context) error {
	storage, ok := w.Storage.(rest.Updater)
	if !ok || w.Name == "" {
		return ErrOnlyServed
	}
	obj, m, err := w.decode(storage.New())
	if err != nil {
		return err
	}
	ctx = request.WithNamespace(ctx, w.Namespace)
	if err := rest.EnsureObjectNamespaceMatchesRequestNamespace(rest.ExpectedNamespaceForResource(w.Namespace, w.Resource), m); err != nil {
		return err
	}
	if m.GetName() != w.Name {
		return ErrOnlyServed
	}
	options := &metav1.UpdateOptions{DryRun: []string{metav1.DryRunAll}}
	options.SetGroupVersionKind(metav1.SchemeGroupVersion.WithKind("UpdateOptions"))
	mutate := func(ctx context.Context, obj, old runtime.Object) (runtime.Object, error) {
		if !w.passes.Handles(admission.Update) {
			return obj, nil
		}
		return obj, w.passes.Admit(ctx, w.attributes(obj, old, w.Namespace, w.Name, options), w.Scope)
	}
	validate := rest.AdmissionToValidateObjectUpdateFunc(w.passes, w.attributes(nil, nil, w.Namespace, w.Name, options), w.Scope)
	_, _, err = storage.Update(ctx, w.Name, rest.DefaultUpdatedObjectInfo(obj, mutate), func(context.Context, runtime.Object) error {
		return ErrOnlyServed
	}, func(ctx context.Context, obj, old runtime.Object) error {
		if err := validate(ctx, obj, old); err != nil {
			return err
		}
		w.object = obj
		return errLetPass
	}, false, options)
	return explain(w.Kind, w.Name, err)
}

func (w *trying) delete(ctx context.Context) error {
	storage, ok := w.Storage.(rest.GracefulDeleter)
	if !ok || w.Name == "" || w.Subresource != "" {
		return ErrOnlyServed
	}
	ctx = request.WithNamespace(ctx, w.Namespace)
	options := &metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}}
	options.SetGroupVersionKind(metav1.SchemeGroupVersion.WithKind("DeleteOptions"))
	validate := rest.AdmissionToValidateObjectDeleteFunc(w.passes, w.attributes(nil, nil, w.Namespace, w.Name, options), w.Scope)
	_, _, err := storage.Delete(ctx, w.Name, func(ctx context.Context, obj runtime.Object) error {
		if err := validate(ctx, obj); err != nil {
			return err
		}
		return errLetPass
	}, options)
	return err
}

// AsStored returns an object in JSON as a create would have stored it: with the defaults of its kind, and with the
// changes of the kind's strategy, but without validation and admission. The error is ErrOnlyServed for a resource that
// is not served.
func (h *Handler) AsStored(ctx context.Context, resource schema.GroupVersionResource, namespace string, body []byte) ([]byte, error) {
	e, done := h.bound(ctx, resource, "")
	defer done()
	if e == nil {
		return nil, ErrOnlyServed
	}
	w := &trying{Endpoint: e}
	info, ok := w.codec()
	if !ok {
		return nil, ErrOnlyServed
	}
	kind := e.Scope.Kind
	obj, _, err := e.Scope.Serializer.DecoderToVersion(info.Serializer, e.Scope.HubGroupVersion).Decode(body, &kind, e.Storage.New())
	if err != nil {
		return nil, err
	}
	if storage, ok := e.Storage.(registry.GenericStore); ok {
		if strategy := storage.GetCreateStrategy(); strategy != nil {
			strategy.PrepareForCreate(request.WithNamespace(ctx, namespace), obj)
		}
	}
	return w.encode(obj)
}
