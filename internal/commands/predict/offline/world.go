package offline

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiadmission "k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/registry/rest"

	"github.com/gatehouse-dev/gatehouse/admission/plan"
	"github.com/gatehouse-dev/gatehouse/admission/registration"
	"github.com/gatehouse-dev/gatehouse/admission/snapshot"
	"github.com/gatehouse-dev/gatehouse/internal/engine/dispatch"
	"github.com/gatehouse-dev/gatehouse/internal/engine/initializers"
	"github.com/gatehouse-dev/gatehouse/internal/engine/objects"
	"github.com/gatehouse-dev/gatehouse/internal/kit/emulation"
	"github.com/gatehouse-dev/gatehouse/internal/server/api/catalog"
)

// World has the known objects of the cluster that would handle a request.
type World struct {
	Kinds *Kinds
	// Registrations must not be changed after the first plan.
	Registrations snapshot.Registrations
	// Tried are additional policies and bindings that plans treat as registered.
	Tried []runtime.Object
	// Hidden has, for each source, the reason why its entries cannot be seen.
	Hidden map[registration.Source]string
	// Namespace returns a namespace. Its error is plan.ErrUnknown if the namespace cannot be seen, and the API status
	// NotFound if it does not exist.
	Namespace func(ctx context.Context, name string) (*corev1.Namespace, error)
	// Params has the objects that policies refer to.
	Params plan.Params
	// Stored returns a stored object. Its error is an API status.
	Stored func(ctx context.Context, kind *Kind, namespace, name string) (*unstructured.Unstructured, error)
	// UserUnknown is the reason why an expression that uses the user cannot be evaluated, for requests without a user.
	// RightsUnknown is the reason for expressions that use the rights of the user.
	UserUnknown, RightsUnknown string
	// Fields are the fields in which the types of the cluster's release differ from the types of this program; nil if
	// none do.
	Fields *emulation.Fields
	// Registry returns the registry, without a server, of a request about a built-in kind; nil for other requests. If it
	// is set, plans prepare and validate objects between the passes, as a server does. It is not set if a server has
	// accepted the objects.
	Registry func(apiadmission.Attributes) (rest.Storage, error)
	// Builtins completes the links of the plugins that act on registrations with the links of built-in admission
	// plugins, in order; nil if their verdicts are not known.
	Builtins func(ctx context.Context, acting []plan.Link, a apiadmission.Attributes, o apiadmission.ObjectInterfaces) ([]plan.Link, error)
	// Notes describe facts that no plan of this World knows.
	Notes []string

	// Either files or cluster is set, depending on the source of the World.
	files   *files
	cluster *cluster

	// elsewhere are CRDs that are in no file and in no cluster, for lint rules.
	elsewhere []*unstructured.Unstructured

	// compile compiles the registrations when the first plan is made.
	compile  sync.Once
	compiled *snapshot.Snapshot
	// variants are the other variants of the files; see Variants.
	variants []*World
}

// Still returns a World with the same kinds and registrations that sends nothing to a cluster. namespace returns
// namespaces, as World.Namespace does. Params and stored objects are unknown.
func (w *World) Still(namespace func(ctx context.Context, name string) (*corev1.Namespace, error)) *World {
	return &World{
		Kinds: w.Kinds, Registrations: w.Registrations, Hidden: w.Hidden, Namespace: namespace, Params: noParams{},
		Stored: func(context.Context, *Kind, string, string) (*unstructured.Unstructured, error) {
			return nil, fmt.Errorf("%w: the stored object", plan.ErrUnknown)
		},
		UserUnknown: "the user is not known", RightsUnknown: "the rights of the user are not known",
	}
}

// noParams has only unknown params.
type noParams struct{}

var errNoParams = fmt.Errorf("%w: params are not read", plan.ErrUnknown)

func (noParams) Scope(context.Context, schema.GroupVersionKind) (namespaced, served bool, err error) {
	return false, false, errNoParams
}

func (noParams) Get(context.Context, schema.GroupVersionKind, string, string) (runtime.Object, error) {
	return nil, errNoParams
}

func (noParams) List(context.Context, schema.GroupVersionKind, string, labels.Selector) ([]runtime.Object, error) {
	return nil, errNoParams
}

// Request is a request that is planned and not made.
type Request struct {
	// Operation is CREATE, UPDATE, DELETE or CONNECT.
	Operation string
	// Kind is the kind of the objects; Subresource is the subresource that is written.
	Kind            *Kind
	Subresource     string
	Namespace, Name string
	// Object is the object sent, in any version; nil for DELETE and CONNECT. An UPDATE without an Object changes
	// nothing.
	Object *unstructured.Unstructured
	// Old is the stored object. If it is nil, World.Stored reads it.
	Old    *unstructured.Unstructured
	DryRun bool
	// Answered reports that a server has answered the request, so that its objects, which may be known in parts only, are
	// neither prepared nor validated, and the cluster's objects of today do not reject it.
	Answered bool
	// User may be nil. Access selects the user whose rights are checked.
	User   user.Info
	Access Access
	// All adds the steps that do not apply to the plan.
	All bool
}

// Plan plans the admission of a request. The error is about the request, or comes from World.Stored.
func (w *World) Plan(ctx context.Context, q *Request) (*plan.Plan, error) {
	p, _, err := w.Try(ctx, q)
	return p, err
}

// Try is Plan, and also returns the object after admission; nil if it is not known.
func (w *World) Try(ctx context.Context, q *Request) (*plan.Plan, *unstructured.Unstructured, error) {
	object, old, err := w.objects(ctx, q)
	if err != nil {
		return nil, nil, err
	}
	if w.cluster != nil && !catalog.Scheme.Recognizes(q.Kind.Kind) {
		w.cluster.define(ctx, q.Kind)
	}
	var strict error
	if q.Object != nil {
		strict = w.strict(q, object)
	}
	w.compile.Do(func() {
		if w.compiled = snapshot.Compile(w.Registrations); len(w.Tried) > 0 {
			w.compiled = w.compiled.With(w.Tried)
		}
		if note := Hardened(slices.Concat(w.Registrations.Objects, w.Tried)); note != "" && w.Registrations.Kubernetes {
			w.Notes = append(w.Notes, note)
		}
	})
	sent, notes := q.Kind.Takes(q.Subresource), slices.Clone(w.Notes)
	if sent.Empty() {
		sent = q.Kind.Kind
		if q.Object != nil {
			sent = q.Object.GroupVersionKind()
		}
		notes = append(notes, fmt.Sprintf("%s has no known subresource %s", q.Kind.Resource.Resource, q.Subresource))
	}
	if q.Kind.Guessed {
		notes = append(notes, fmt.Sprintf("the kind %s of %s is not known: assuming the namespaced resource %s. If an aggregated server has it, that server's own plugins decide, too",
			q.Kind.Kind.Kind, q.Kind.Kind.GroupVersion(), q.Kind.Resource.Resource))
	}
	attributes, err := w.decoded(q, sent, object, old)
	if err != nil {
		return nil, nil, err
	}
	prediction := dispatch.Predict(attributes, schemas{}, true, func(a apiadmission.Attributes) plan.Objects { return w.set(ctx, q, a, sent) })
	prediction.Request.Reviews = emulation.JudgesReviews()
	in := prediction.Input
	in.Params, in.RightsUnknown = w.Params, w.RightsUnknown
	if q.User == nil {
		in.UserUnknown = w.UserUnknown
	}
	compiled := w.compiled
	w.namespaces(ctx, in, compiled, &prediction.Request)
	links := w.links()
	if w.Builtins != nil {
		if links, err = w.Builtins(ctx, links, prediction.Attributes, builtins{catalog.Scheme, w.Kinds.equivalents}); err != nil {
			return nil, nil, err
		}
	}
	if in.Prepare, err = w.preparation(q, attributes); err != nil {
		return nil, nil, err
	}
	links = slices.Concat(w.before(ctx, q, old, strict), links, w.after(ctx, q, old))
	p := plan.New(ctx, links, compiled, &prediction.Request, w.Kinds.equivalents, in, q.All)
	if p.Notes = notes; w.cluster != nil {
		p.Notes = append(p.Notes, Missing(p)...)
	}
	for _, problem := range compiled.Problems {
		p.Notes = append(p.Notes, problem.Error())
	}
	w.annotate(ctx, p)
	made, err := written(in.Objects.Newest(), sent)
	return p, made, err
}

// written returns an object of a plan in the form that users write.
func written(object runtime.Object, kind schema.GroupVersionKind) (*unstructured.Unstructured, error) {
	switch o := object.(type) {
	case nil:
		return nil, nil
	case *unstructured.Unstructured:
		return o, nil
	}
	versioned, err := catalog.Scheme.ConvertToVersion(object, kind.GroupVersion())
	if err != nil {
		// The object has a kind that is not stored, such as the options of a CONNECT.
		return nil, nil
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(versioned)
	if err != nil {
		return nil, err
	}
	u := &unstructured.Unstructured{Object: content}
	u.SetGroupVersionKind(kind)
	return u, nil
}

// links describes the plugins that act on the cluster's registrations.
func (w *World) links() []plan.Link {
	var links []plan.Link
	for _, source := range registration.InOrder() {
		if w.cluster == nil && source == registration.MutatingPolicies && !emulation.JudgesByMutatingPolicies() {
			continue
		}
		if w.served(source.Descriptor()) {
			links = append(links, plan.Acting(source, w.Hidden))
		}
	}
	return links
}

// served reports whether the cluster has the registrations of a plugin.
func (w *World) served(d *registration.Descriptor) bool {
	_, ok := w.Kinds.Served(registration.GroupName, d.Resource)
	return ok || w.cluster == nil || w.Kinds.incomplete != ""
}

// annotate adds to the steps the position of their rules, and notes about the policies behind their webhooks.
func (w *World) annotate(ctx context.Context, p *plan.Plan) {
	for step := range p.Each() {
		switch {
		case step.Entry == nil:
		case w.files != nil:
			step.Location = w.files.Locate(step.Entry, step.Rule)
		case w.cluster != nil && step.Effect != plan.Skip:
			step.Notes = w.cluster.engines.notes(ctx, &p.Request, step)
		}
	}
}

// objects returns the new and the old object of a request.
func (w *World) objects(ctx context.Context, q *Request) (object, old *unstructured.Unstructured, err error) {
	if q.Object != nil {
		object = q.Object.DeepCopy()
	}
	switch {
	case q.Operation == "CREATE" && object == nil:
		return nil, nil, errNoObject
	case q.Operation == "CREATE" || q.Operation == "CONNECT":
		return object, nil, nil
	}
	if old = q.Old; old == nil {
		if old, err = w.Stored(ctx, q.Kind, q.Namespace, q.Name); err != nil {
			return nil, nil, err
		}
	}
	if q.Operation == "DELETE" {
		return nil, old, nil
	}
	if q.Subresource == "scale" {
		old = scaleOf(old)
	}
	if object == nil {
		object = old.DeepCopy()
	}
	return object, old, nil
}

// scaleOf returns the subresource scale of a stored object. For a kind whose replicas may not be in the usual place, it
// returns only the metadata.
func scaleOf(u *unstructured.Unstructured) *unstructured.Unstructured {
	if u.GetKind() == "Scale" {
		return u
	}
	scale := &unstructured.Unstructured{Object: map[string]any{"apiVersion": u.GetAPIVersion(), "kind": u.GetKind()}}
	for _, field := range []string{"name", "namespace", "uid", "resourceVersion", "creationTimestamp"} {
		if value, ok, _ := unstructured.NestedFieldCopy(u.Object, "metadata", field); ok {
			_ = unstructured.SetNestedField(scale.Object, value, "metadata", field)
		}
	}
	if !catalog.Scheme.Recognizes(u.GroupVersionKind()) {
		return scale
	}
	scale.SetAPIVersion("autoscaling/v1")
	scale.SetKind("Scale")
	wanted, ok, _ := unstructured.NestedInt64(u.Object, "spec", "replicas")
	if !ok {
		wanted = 1
	}
	actual, _, _ := unstructured.NestedInt64(u.Object, "status", "replicas")
	status := map[string]any{"replicas": actual}
	if content, ok, _ := unstructured.NestedMap(u.Object, "spec", "selector"); ok {
		status["selector"] = selectorText(content)
	}
	scale.Object["spec"], scale.Object["status"] = map[string]any{"replicas": wanted}, status
	return scale
}

// selectorText returns a label selector, or a map of labels, in one line.
func selectorText(content map[string]any) string {
	selector := &metav1.LabelSelector{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(content, selector); err == nil && (selector.MatchLabels != nil || selector.MatchExpressions != nil) {
		if s, err := metav1.LabelSelectorAsSelector(selector); err == nil {
			return s.String()
		}
		return ""
	}
	set := labels.Set{}
	for key, value := range content {
		if text, ok := value.(string); ok {
			set[key] = text
		}
	}
	return set.String()
}

// options returns the options of an operation, as webhooks get them.
func options(q *Request) runtime.Object {
	var dryRun []string
	if q.DryRun {
		dryRun = []string{metav1.DryRunAll}
	}
	kind := func(k string) metav1.TypeMeta { return metav1.TypeMeta{APIVersion: "meta.k8s.io/v1", Kind: k} }
	switch q.Operation {
	case "CREATE":
		return &metav1.CreateOptions{TypeMeta: kind("CreateOptions"), DryRun: dryRun}
	case "UPDATE":
		return &metav1.UpdateOptions{TypeMeta: kind("UpdateOptions"), DryRun: dryRun}
	case "DELETE":
		return &metav1.DeleteOptions{TypeMeta: kind("DeleteOptions"), DryRun: dryRun}
	}
	return nil
}

// decoded returns a request as admission would see it.
func (w *World) decoded(q *Request, sent schema.GroupVersionKind, object, old *unstructured.Unstructured) (apiadmission.Attributes, error) {
	if object != nil && q.Namespace != "" && q.Kind.Namespaced {
		object.SetNamespace(q.Namespace)
	}
	if q.Operation == "CONNECT" && catalog.Scheme.Recognizes(sent) {
		options, err := catalog.Scheme.New(sent)
		if err != nil {
			return nil, err
		}
		options.GetObjectKind().SetGroupVersionKind(sent)
		return w.attributes(q, sent, options, nil), nil
	}
	typedObject, err := w.decode(q, object)
	if err != nil {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("%s in version %q cannot be handled as a %s: %v", sent.Kind, sent.Version, sent.Kind, err))
	}
	typedOld, err := w.decode(q, old)
	if err != nil {
		return nil, fmt.Errorf("the stored object: %w", err)
	}
	return w.attributes(q, sent, typedObject, typedOld), nil
}

// set returns the objects of a request. Objects of built-in kinds can be converted.
func (w *World) set(ctx context.Context, q *Request, a apiadmission.Attributes, sent schema.GroupVersionKind) plan.Objects {
	_, unknown := a.GetOldObject().(*unstructured.Unstructured)
	if catalog.Scheme.Recognizes(sent) && !unknown {
		return objects.New(a, builtins{catalog.Scheme, w.Kinds.equivalents})
	}
	c := &custom{Objects: plan.AsWritten(a.GetObject(), a.GetOldObject()), kinds: w.Kinds, unchanged: q.Object == nil}
	if w.cluster != nil && q.Old == nil && q.Subresource != "scale" {
		// A cluster returns an object in any served version, independently of its stored version.
		c.stored = func(kind schema.GroupVersionKind) (*unstructured.Unstructured, error) {
			return w.Stored(ctx, w.Kinds.Of(kind), q.Namespace, q.Name)
		}
	}
	return c
}

func (w *World) attributes(q *Request, sent schema.GroupVersionKind, object, old runtime.Object) apiadmission.Attributes {
	name := q.Name
	namespace := q.Namespace
	if q.Kind.Resource.Resource == "namespaces" && q.Kind.Resource.Group == "" {
		// Requests about a Namespace have its name there (S2.9).
		namespace = name
	}
	return apiadmission.NewAttributesRecord(object, old, sent, namespace, name, q.Kind.Resource, q.Subresource,
		apiadmission.Operation(q.Operation), options(q), q.DryRun, q.User)
}

// decode returns the object of a request in the form of a server. A custom resource whose CRD is known follows its
// schema.
func (w *World) decode(q *Request, u *unstructured.Unstructured) (runtime.Object, error) {
	if rules := w.rules(q); rules != nil && u != nil {
		u = u.DeepCopy()
		if _, err := rules.Decode(u); err != nil {
			return nil, apierrors.NewBadRequest(err.Error())
		}
	}
	return Decode(u)
}

// Decode returns the server's form of an object: for built-in kinds the internal version, with defaults; other objects
// stay unchanged. A nil object stays nil.
func Decode(u *unstructured.Unstructured) (runtime.Object, error) {
	if u == nil {
		return nil, nil
	}
	content := runtime.DeepCopyJSON(u.Object)
	if _, err := initializers.Hide(content); err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	if !catalog.Scheme.Recognizes(u.GroupVersionKind()) {
		return &unstructured.Unstructured{Object: content}, nil
	}
	data, err := json.Marshal(content)
	if err != nil {
		return nil, err
	}
	return runtime.Decode(catalog.Codecs.UniversalDecoder(), data)
}

// builtins knows the built-in kinds as a server does.
type builtins struct {
	scheme      *runtime.Scheme
	equivalents runtime.EquivalentResourceMapper
}

func (b builtins) GetObjectCreater() runtime.ObjectCreater     { return b.scheme }
func (b builtins) GetObjectTyper() runtime.ObjectTyper         { return b.scheme }
func (b builtins) GetObjectDefaulter() runtime.ObjectDefaulter { return b.scheme }
func (b builtins) GetObjectConvertor() runtime.ObjectConvertor {
	return runtime.UnsafeObjectConvertor(b.scheme)
}

func (b builtins) GetEquivalentResourceMapper() runtime.EquivalentResourceMapper {
	return b.equivalents
}

// custom has the objects of a custom resource. If the versions in its CRD differ in name only, they are converted here.
// If a webhook converts them, the stored object is read from the cluster in the requested version, because a cluster
// converts only stored objects.
type custom struct {
	plan.Objects
	kinds *Kinds
	// stored returns the stored object in another version; nil without a cluster.
	stored func(schema.GroupVersionKind) (*unstructured.Unstructured, error)
	// unchanged reports whether the request changes nothing.
	unchanged bool
}

// Seen implements plan.Objects.
func (c *custom) Seen(kind schema.GroupVersionKind) (object, old runtime.Object, err error) {
	object, old, err = c.Objects.Seen(kind)
	switch {
	case !errors.Is(err, plan.ErrUnknown):
	case c.kinds.converts(kind.GroupKind()):
		object, old, err = c.Newest(), c.Old(), nil
	case c.stored != nil:
		object, old, err = c.converted(kind)
	}
	if err != nil {
		return nil, nil, err
	}
	if object, err = inVersion(object, kind); err != nil {
		return nil, nil, err
	}
	old, err = inVersion(old, kind)
	return object, old, err
}

// converted returns the objects as the cluster converts them.
func (c *custom) converted(kind schema.GroupVersionKind) (object, old runtime.Object, err error) {
	if c.Newest() != nil && !c.unchanged {
		return nil, nil, fmt.Errorf("%w: the object is converted to %s by a webhook of the cluster, which only converts stored objects", plan.ErrUnknown, kind.GroupVersion())
	}
	stored, err := c.stored(kind)
	if err != nil {
		return nil, nil, fmt.Errorf("%w: the stored object in %s: %w", plan.ErrUnknown, kind.GroupVersion(), err)
	}
	content := stored.DeepCopy()
	if _, err := initializers.Hide(content.Object); err != nil {
		return nil, nil, fmt.Errorf("%w: %w", plan.ErrUnknown, err)
	}
	if c.Newest() == nil {
		return nil, content, nil
	}
	return content.DeepCopy(), content, nil
}

// inVersion returns an object in another version, as users see it.
func inVersion(obj runtime.Object, kind schema.GroupVersionKind) (runtime.Object, error) {
	u, ok := obj.(*unstructured.Unstructured)
	if !ok {
		return obj, nil
	}
	u = u.DeepCopy()
	u.SetGroupVersionKind(kind)
	return u, initializers.Expose(u.Object)
}
