package registrations

import (
	"context"
	"fmt"
	"reflect"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	admissionregistrationv1beta1 "k8s.io/api/admissionregistration/v1beta1"
	"k8s.io/apimachinery/pkg/api/meta"
	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/conversion"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/json"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/apiserver/pkg/warning"

	admissionregistration "github.com/gatehouse-dev/gatehouse/admission/registration"
	"github.com/gatehouse-dev/gatehouse/admission/registration/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/initialization"
	"github.com/gatehouse-dev/gatehouse/internal/server/api/resources"
	"github.com/gatehouse-dev/gatehouse/internal/server/storage"
)

// Group is the API group of all kinds here.
const Group = admissionregistration.GroupName

// Scheme has the kinds in all their versions, with defaults and conversion. It is read only.
var Scheme = newScheme()

// Codecs reads and writes the kinds.
var Codecs = initialization.Codecs(Scheme)

// kinds are the sources whose objects this package serves. Tables show the number of elements of a field of an
// object in a column.
var kinds = []kind{
	{admissionregistration.Mutating, "Webhooks", "Webhooks"},
	{admissionregistration.Validating, "Webhooks", "Webhooks"},
	{admissionregistration.Initializing, "Initializers", "Initializers"},
	{admissionregistration.External, "ExternalAdmissionHooks", "Hooks"},
}

type kind struct {
	admissionregistration.Source
	field, heading string
}

// hub is the stored version, which is the preferred one.
func (k kind) hub() schema.GroupVersion {
	return schema.GroupVersion{Group: Group, Version: k.Descriptor().Versions[0]}
}

// make returns a function that makes an empty object, or with the suffix List an empty list.
func (k kind) make(suffix string) func() runtime.Object {
	return func() runtime.Object {
		obj, err := Scheme.New(k.hub().WithKind(k.Descriptor().Kind + suffix))
		utilruntime.Must(err)
		return obj
	}
}

// Hub returns the version that objects of a served version have in memory.
func Hub(gv schema.GroupVersion) schema.GroupVersion {
	if gv.Version == "v1beta1" {
		return admissionregistrationv1.SchemeGroupVersion
	}
	return gv
}

// Hold is called with the context of a write, before the write is done. It returns the context
// for the write, and a function to call when the write was done or has failed. The write is
// answered when that function has returned.
type Hold func(ctx context.Context) (writing context.Context, done func())

// Storage opens the stores of the kinds. The result maps a served version to its
// resources; the versions of one kind share a store.
//
// warn returns, for a resource, the function that returns the warnings for its writers; it may
// return nil.
func Storage(factory *storage.Factory, config storagebackend.Config, hold Hold, warn func(resource string) Warn) (map[string]map[string]rest.Storage, error) {
	versions := map[string]map[string]rest.Storage{}
	for _, k := range kinds {
		d := k.Descriptor()
		resource := schema.GroupResource{Group: Group, Resource: d.Resource}
		config.Codec = storageCodec(k.hub())
		config.EncodeVersioner = k.hub()
		s := strategy{ObjectTyper: Scheme}
		store := &registry.Store{
			NewFunc: k.make(""), NewListFunc: k.make("List"),
			DefaultQualifiedResource:  resource,
			SingularQualifiedResource: schema.GroupResource{Group: Group, Resource: strings.ToLower(d.Kind)},
			CreateStrategy:            s, UpdateStrategy: s, DeleteStrategy: s,
			TableConvertor: table{k},
		}
		options := &generic.StoreOptions{RESTOptions: factory.For(config.ForResource(resource), d.Resource)}
		if err := store.CompleteWithOptions(options); err != nil {
			return nil, fmt.Errorf("storage of %s: %w", resource, err)
		}
		for _, version := range d.Versions {
			if versions[version] == nil {
				versions[version] = map[string]rest.Storage{}
			}
			one := served{Store: store, hold: hold}
			if warn != nil {
				one.warn = warn(d.Resource)
			}
			versions[version][d.Resource] = one
		}
	}
	return versions, nil
}

// Warn returns the warnings for the writer of an object, once the object is active.
type Warn func(ctx context.Context, name string) []string

// served is a store whose writes wait for the Hold. It also has the names of the kind for
// discovery.
type served struct {
	*registry.Store
	hold Hold
	// warn may be nil.
	warn Warn
}

// warnWriter warns the writer of an object if it was stored. The write is active by then.
func (s served) warnWriter(ctx context.Context, obj runtime.Object, err error, dryRun []string) {
	if s.warn == nil || err != nil || len(dryRun) > 0 {
		return
	}
	m, failure := meta.Accessor(obj)
	if failure != nil {
		return
	}
	for _, text := range s.warn(ctx, m.GetName()) {
		warning.AddWarning(ctx, "", text)
	}
}

// Create implements rest.Creater.
func (s served) Create(ctx context.Context, obj runtime.Object, validate rest.ValidateObjectFunc, o *metav1.CreateOptions) (runtime.Object, error) {
	writing, done := s.hold(ctx)
	created, err := s.Store.Create(writing, obj, validate, o)
	done()
	s.warnWriter(ctx, created, err, o.DryRun)
	return created, err
}

// Update implements rest.Updater.
func (s served) Update(ctx context.Context, name string, info rest.UpdatedObjectInfo, create rest.ValidateObjectFunc, update rest.ValidateObjectUpdateFunc, force bool, o *metav1.UpdateOptions) (runtime.Object, bool, error) {
	writing, done := s.hold(ctx)
	updated, made, err := s.Store.Update(writing, name, info, create, update, force, o)
	done()
	s.warnWriter(ctx, updated, err, o.DryRun)
	return updated, made, err
}

// Delete implements rest.GracefulDeleter.
func (s served) Delete(ctx context.Context, name string, validate rest.ValidateObjectFunc, o *metav1.DeleteOptions) (runtime.Object, bool, error) {
	writing, done := s.hold(ctx)
	defer done()
	return s.Store.Delete(writing, name, validate, o)
}

// DeleteCollection implements rest.CollectionDeleter.
func (s served) DeleteCollection(ctx context.Context, validate rest.ValidateObjectFunc, o *metav1.DeleteOptions, list *metainternalversion.ListOptions) (runtime.Object, error) {
	writing, done := s.hold(ctx)
	defer done()
	return s.Store.DeleteCollection(writing, validate, o, list)
}

// Categories implements rest.CategoriesProvider.
func (served) Categories() []string { return []string{"api-extensions"} }

// storageCodec writes JSON, which people can read: there are never many of these objects. It also reads
// protobuf, in which kube-apiserver stores them (S29.1).
func storageCodec(hub schema.GroupVersion) runtime.Codec {
	s := json.NewSerializerWithOptions(json.DefaultMetaFactory, Scheme, Scheme, json.SerializerOptions{})
	return Codecs.CodecForVersions(s, Codecs.UniversalDeserializer(), hub, hub)
}

func newScheme() *runtime.Scheme {
	s := runtime.NewScheme()
	utilruntime.Must(admissionregistration.AddToScheme(s))
	s.AddUnversionedTypes(schema.GroupVersion{Version: "v1"}, &metav1.Status{}, &metav1.APIVersions{}, &metav1.APIGroupList{}, &metav1.APIGroup{}, &metav1.APIResourceList{})
	for _, obj := range []runtime.Object{
		&admissionregistrationv1.MutatingWebhookConfiguration{}, &admissionregistrationv1.ValidatingWebhookConfiguration{},
		&admissionregistrationv1beta1.MutatingWebhookConfiguration{}, &admissionregistrationv1beta1.ValidatingWebhookConfiguration{},
		&v1alpha1.InitializerConfiguration{}, &v1alpha1.ExternalAdmissionHookConfiguration{},
	} {
		s.AddTypeDefaultingFunc(obj, func(obj any) { admissionregistration.Default(obj.(runtime.Object)) })
	}
	addConversions(s)
	return s
}

// addConversions registers the conversions between v1beta1 and v1, of objects
// and of lists.
func addConversions(s *runtime.Scheme) {
	stable, beta := admissionregistrationv1.SchemeGroupVersion, admissionregistrationv1beta1.SchemeGroupVersion
	for _, kind := range []string{admissionregistration.MutatingKind, admissionregistration.ValidatingKind} {
		for _, suffix := range []string{"", "List"} {
			for _, pair := range [][2]schema.GroupVersion{{stable, beta}, {beta, stable}} {
				from, err := s.New(pair[0].WithKind(kind + suffix))
				utilruntime.Must(err)
				to, err := s.New(pair[1].WithKind(kind + suffix))
				utilruntime.Must(err)
				convert := func(in, out any, _ conversion.Scope) error {
					return convertInto(in.(runtime.Object), out.(runtime.Object), pair[1].Version)
				}
				utilruntime.Must(s.AddConversionFunc(from, to, convert))
			}
		}
	}
}

// convertInto fills out with the content of in, converted to version.
func convertInto(in, out runtime.Object, version string) error {
	converted, err := admissionregistration.Convert(in, version)
	if err != nil {
		return err
	}
	to, err := conversion.EnforcePtr(out)
	if err != nil {
		return err
	}
	to.Set(reflect.ValueOf(converted).Elem())
	return nil
}

// Codec returns the serializer that reads and writes the kinds on the wire.
func Codec() runtime.NegotiatedSerializer { return initialization.NewCodec(Codecs) }

// table makes the tables that kubectl get shows.
type table struct{ kind }

func (t table) ConvertToTable(_ context.Context, obj, _ runtime.Object) (*metav1.Table, error) {
	docs := metav1.ObjectMeta{}.SwaggerDoc()
	return resources.Table(obj, []metav1.TableColumnDefinition{
		{Name: "Name", Type: "string", Format: "name", Description: docs["name"]},
		{Name: t.heading, Type: "integer", Description: t.heading + " in this configuration."},
		{Name: "Age", Type: "string", Description: docs["creationTimestamp"]},
	}, func(o metav1.Object, age string) []any {
		return []any{o.GetName(), reflect.ValueOf(o).Elem().FieldByName(t.field).Len(), age}
	})
}
