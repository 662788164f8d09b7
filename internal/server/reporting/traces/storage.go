package traces

import (
	"context"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"

	"github.com/gatehouse-dev/gatehouse/admission/trace"
	"github.com/gatehouse-dev/gatehouse/internal/server/api/resources"
	"github.com/gatehouse-dev/gatehouse/internal/server/reporting/traces/v1alpha1"
)

// Resource is the plural under which traces are served.
const Resource = "admissiontraces"

// Storage is a storage of AdmissionTraces, which can be read only. It is safe for
// concurrent use.
type Storage struct {
	resources.Computed
	ring    *Ring
	peers   *Peers
	options trace.RecordOptions
}

// NewStorage returns a storage of the traces in a ring; a nil ring means that the server keeps no
// traces. When a client asks for a trace by its name and the ring does not have it, the storage
// asks peers.
func NewStorage(ring *Ring, peers *Peers, o trace.RecordOptions) *Storage {
	if ring == nil {
		ring = NewRing(0)
	}
	return &Storage{resources.Computed{
		Object:   func() runtime.Object { return &v1alpha1.AdmissionTrace{} },
		List:     func() runtime.Object { return &v1alpha1.AdmissionTraceList{} },
		Singular: "admissiontrace", Namespaced: true,
	}, ring, peers, o}
}

var (
	_ rest.Getter  = (*Storage)(nil)
	_ rest.Lister  = (*Storage)(nil)
	_ rest.Watcher = (*Storage)(nil)
)

// Unplaced marks a storage in which some objects are in no namespace, and all objects can be read
// by name without a namespace.
func (s *Storage) Unplaced() {}

// Get implements rest.Getter. Without a namespace in ctx, it finds the traces of all namespaces.
func (s *Storage) Get(ctx context.Context, name string, _ *metav1.GetOptions) (runtime.Object, error) {
	if k, ok := s.ring.get(name); ok {
		if t := s.convert(k, request.NamespaceValue(ctx), nil, nil); t != nil {
			return t, nil
		}
	}
	t, note := s.peers.find(ctx, name)
	if t != nil {
		return t, nil
	}
	err := apierrors.NewNotFound(v1alpha1.SchemeGroupVersion.WithResource(Resource).GroupResource(), name)
	if note != "" {
		err.ErrStatus.Message += ": " + note
	}
	return nil, err
}

// List implements rest.Lister.
func (s *Storage) List(ctx context.Context, o *metainternalversion.ListOptions) (runtime.Object, error) {
	all, version := s.ring.list()
	list := &v1alpha1.AdmissionTraceList{Items: []v1alpha1.AdmissionTrace{}}
	list.ResourceVersion = versionText(version)
	fields, labels := selectors(o)
	if fields != nil {
		if name, ok := fields.RequiresExactMatch("metadata.name"); ok {
			// Other traces need no records.
			all = slices.DeleteFunc(all, func(k kept) bool { return k.trace.ID != name })
		}
	}
	for _, k := range all {
		if t := s.convert(k, request.NamespaceValue(ctx), fields, labels); t != nil {
			list.Items = append(list.Items, *t)
		}
	}
	return list, nil
}

// Watch implements rest.Watcher. A trace that is removed to make room gets an event Deleted. If
// it is removed between a list and a watch from the list's version, the watch has no event for
// it.
func (s *Storage) Watch(ctx context.Context, o *metainternalversion.ListOptions) (watch.Interface, error) {
	var after int64
	bookmark := false
	if o != nil {
		var err error
		if after, err = parseVersion(o.ResourceVersion); err != nil {
			return nil, apierrors.NewBadRequest(err.Error())
		}
		latest := s.ring.version()
		if after > 0 && (after < s.ring.first || after > latest) {
			return nil, apierrors.NewResourceExpired("the resourceVersion is from another server, or from an earlier run of this one: list again, then watch")
		}
		if o.SendInitialEvents != nil {
			bookmark = *o.SendInitialEvents && o.AllowWatchBookmarks
			if *o.SendInitialEvents {
				after = 0
			} else if after == 0 {
				after = latest
			}
		}
	}
	namespace := request.NamespaceValue(ctx)
	fields, labels := selectors(o)
	return s.ring.watch(ctx, after, bookmark, func(k kept) *v1alpha1.AdmissionTrace {
		return s.convert(k, namespace, fields, labels)
	}), nil
}

func selectors(o *metainternalversion.ListOptions) (fields.Selector, labels.Selector) {
	if o == nil {
		return nil, nil
	}
	return o.FieldSelector, o.LabelSelector
}

// convert returns a trace as it is served, nil when it is not in the namespace or not selected. An
// empty namespace means all namespaces.
func (s *Storage) convert(k kept, namespace string, fields fields.Selector, selector labels.Selector) *v1alpha1.AdmissionTrace {
	subject := k.trace.Subject()
	own := subject.Namespace
	if subject.Resource.Group == "" && subject.Resource.Resource == "namespaces" {
		// Admission treats a namespace as an object in itself. Permission to read objects in a
		// namespace does not include permission to read the namespace.
		own = ""
	}
	if namespace != "" && own != namespace || selector != nil && !selector.Matches(labels.Set{}) {
		return nil
	}
	t := &v1alpha1.AdmissionTrace{Record: k.trace.Record(s.options)}
	t.Name, t.Namespace = t.ID, own
	t.ResourceVersion = versionText(k.version)
	t.CreationTimestamp = metav1.NewTime(t.Start.Truncate(time.Second))
	if fields != nil && !selects(fields, t) {
		return nil
	}
	return t
}

// selects reports whether a selector selects a trace.
func selects(s fields.Selector, t *v1alpha1.AdmissionTrace) bool {
	for _, r := range s.Requirements() {
		if slices.Contains(values(t, r.Field), r.Value) != (r.Operator != selection.NotEquals) {
			return false
		}
	}
	return true
}

// values returns the values of a field, as in trace.Fields.
func values(t *v1alpha1.AdmissionTrace, field string) []string {
	switch field {
	case "metadata.name":
		return []string{t.Name}
	case "metadata.namespace":
		return []string{t.Namespace}
	}
	return t.Field(field)
}

// ConvertToTable implements rest.TableConvertor.
func (s *Storage) ConvertToTable(_ context.Context, obj, _ runtime.Object) (*metav1.Table, error) {
	return resources.Table(obj, []metav1.TableColumnDefinition{
		{Name: "Name", Type: "string", Format: "name", Description: v1alpha1.FieldDocs()["AdmissionTrace"][""]},
		{Name: "Operation", Type: "string", Description: "The requested operation."},
		{Name: "Object", Type: "string", Description: "The resource, and the name as far as it was known."},
		{Name: "Outcome", Type: "string", Description: "The outcome of admission."},
		{Name: "Calls", Type: "integer", Description: "How many reviews the server delivered to webhooks."},
		{Name: "Total", Type: "string", Description: "How long the request took."},
		{Name: "Own", Type: "string", Description: "How long admission took without waiting for webhooks."},
		{Name: "Age", Type: "string", Description: "When the request arrived."},
		{Name: "Response", Type: "string", Description: "The status code of the response, and the reason of an error."},
		{Name: "User", Type: "string", Priority: 1, Description: "The user that made the request."},
	}, func(t *v1alpha1.AdmissionTrace, _ string) []any {
		response := ""
		if t.Response != nil {
			response = t.Response.String()
		}
		return []any{
			t.Name, t.Request.Operation, t.Request.Object(), string(t.Outcome), int64(t.Reviews()),
			micros(t.TotalMicros), micros(t.OwnMicros), duration.HumanDuration(time.Since(t.Start.Time)), response, t.Request.User,
		}
	})
}

func micros(n int64) string {
	return (time.Duration(n) * time.Microsecond).String()
}
