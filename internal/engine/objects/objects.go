package objects

import (
	"encoding/json"
	"fmt"
	"reflect"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"

	"github.com/gatehouse-dev/gatehouse/admission/registration"
	"github.com/gatehouse-dev/gatehouse/internal/engine/initializers"
	"github.com/gatehouse-dev/gatehouse/internal/engine/review"
)

// Set holds the object and the old object of one request, in every kind that was used so far. The
// objects are converted and encoded once for each kind, until a webhook or policy changes the
// object (S5.3, S6.5).
//
// The request's own object is the hub object. Settle updates it, and so does a conversion to
// another kind after a change.
type Set struct {
	a     admission.Attributes
	o     admission.ObjectInterfaces
	forms []*Form
	// latest has the newest object if it is newer than the hub object; nil if the hub object is up
	// to date.
	latest *Form
	// generation counts the changes, including changes by conversion.
	generation int
	// options are the operation's options, encoded.
	options []byte
}

// Form has the objects in one kind. It is valid until the object changes.
type Form struct {
	kind schema.GroupVersionKind
	// object is nil if the request has none, or if stale.
	object runtime.Object
	stale  bool
	old    runtime.Object
	// oldJSON is the encoded old object, which never changes.
	oldJSON []byte
	// payload has the encoded objects; nil until Encode is called. After that it is never changed,
	// only replaced.
	payload *review.Payload
	// bodies are the reviews with the payload.
	bodies []knownBody
}

// knownBody is a review that can be sent to any number of webhooks.
type knownBody struct {
	version     review.Version
	resource    schema.GroupVersionResource
	subresource string
	body        *review.Body
}

// New returns the objects of a request.
func New(a admission.Attributes, o admission.ObjectInterfaces) *Set { return &Set{a: a, o: o} }

// Generation counts the changes of the object so far. A decision about the object is valid until
// the generation changes.
func (s *Set) Generation() int { return s.generation }

// Old returns the stored object, in any kind; nil when the request has none.
func (s *Set) Old() runtime.Object { return s.a.GetOldObject() }

// ConvertsTo reports whether As has to convert the object after a change by a webhook. The
// conversion may change it once more.
func (s *Set) ConvertsTo(kind schema.GroupVersionKind) bool {
	return s.latest != nil && s.latest.kind != kind
}

// Kind returns a kind in which the Set already has the objects; ok is false if there is none yet.
func (s *Set) Kind() (kind schema.GroupVersionKind, ok bool) {
	if len(s.forms) == 0 {
		return kind, false
	}
	return s.forms[0].kind, true
}

// Pend adds the initializers, in order, to the object's pending list.
func (s *Set) Pend(given []*registration.Entry) {
	object := s.a.GetObject()
	if object == nil {
		return
	}
	initializers.Give(object, given)
	s.Changed()
}

// Complete changes the metadata of the object, as a server does between the passes.
func (s *Set) Complete(change func(metav1.Object)) {
	if s.a.GetObject() == nil || s.Settle() != nil {
		return
	}
	if m, err := meta.Accessor(s.a.GetObject()); err == nil {
		change(m)
		s.Changed()
	}
}

// Changed records that the request's own object may have changed since New or the last call of
// Settle.
func (s *Set) Changed() {
	if s.a.GetObject() == nil {
		return
	}
	for _, f := range s.forms {
		f.drop()
	}
	s.generation++
}

// Newest returns the object with all changes so far, in any kind; nil if the request has none.
func (s *Set) Newest() runtime.Object {
	if s.latest != nil {
		return s.latest.object
	}
	return s.a.GetObject()
}

// As returns the objects in a kind.
func (s *Set) As(kind schema.GroupVersionKind) (*Form, error) {
	var f *Form
	for _, known := range s.forms {
		if known.kind == kind {
			f = known
			break
		}
	}
	if f == nil {
		f = &Form{kind: kind, stale: s.a.GetObject() != nil}
		if old := s.a.GetOldObject(); old != nil {
			var err error
			if f.old, err = s.convert(old, kind); err != nil {
				return nil, err
			}
		}
		s.forms = append(s.forms, f)
	}
	if f.stale {
		if err := s.Settle(); err != nil {
			return nil, err
		}
		object, err := s.convert(s.a.GetObject(), kind)
		if err != nil {
			return nil, err
		}
		f.object, f.stale = object, false
	}
	return f, nil
}

// convert returns obj in a kind: obj itself if it already has that kind (S2.28).
func (s *Set) convert(obj runtime.Object, kind schema.GroupVersionKind) (runtime.Object, error) {
	if obj.GetObjectKind().GroupVersionKind() == kind {
		return obj, nil
	}
	out, err := s.o.GetObjectCreater().New(kind)
	if err != nil {
		return nil, err
	}
	if err := s.o.GetObjectConvertor().Convert(obj, out, nil); err != nil {
		return nil, err
	}
	out.GetObjectKind().SetGroupVersionKind(kind)
	return out, nil
}

// Replace makes object, which has f's kind, the newest object.
func (s *Set) Replace(f *Form, object runtime.Object) {
	for _, other := range s.forms {
		other.drop()
	}
	f.object, f.stale = object, false
	s.latest = f
	s.generation++
}

// Fork returns a copy of the objects in a kind. Changes of the copy do not affect s, and the copy
// has no other kind. It is an error if the objects cannot be converted.
func (s *Set) Fork(kind schema.GroupVersionKind) (*Set, error) {
	f, err := s.As(kind)
	if err != nil {
		return nil, err
	}
	own := &Form{kind: kind, old: f.old, oldJSON: f.oldJSON}
	fork := &Set{a: s.a, o: s.o, forms: []*Form{own}, options: s.options}
	if f.object != nil {
		own.object = f.object.DeepCopyObject()
		fork.latest = own
	}
	return fork, nil
}

// Settle updates the hub object (S5.11).
func (s *Set) Settle() error {
	if s.latest == nil {
		return nil
	}
	f, hub := s.latest, s.a.GetObject()
	from := f.object
	s.latest = nil
	if u, ok := from.(*unstructured.Unstructured); ok {
		if h, ok := hub.(*unstructured.Unstructured); ok && h.GroupVersionKind() == u.GroupVersionKind() {
			h.Object = u.Object
			return nil
		}
	} else if reflect.TypeOf(from) == reflect.TypeOf(hub) {
		kind := hub.GetObjectKind().GroupVersionKind()
		reflect.ValueOf(hub).Elem().Set(reflect.ValueOf(from).Elem())
		hub.GetObjectKind().SetGroupVersionKind(kind)
		return nil
	}
	// From now on the hub object is the newest, with all changes by the conversion.
	f.drop()
	s.generation++
	return s.o.GetObjectConvertor().Convert(from, hub, nil)
}

// Seen returns both objects in a kind, as users see them: an object with metadata.initializers in
// an annotation has the field instead. Match conditions use these objects. The caller must not
// change them.
func (s *Set) Seen(kind schema.GroupVersionKind) (object, old runtime.Object, err error) {
	f, err := s.As(kind)
	if err != nil {
		return nil, nil, err
	}
	if object, err = asSeen(f.object); err != nil {
		return nil, nil, err
	}
	if old, err = asSeen(f.old); err != nil {
		return nil, nil, err
	}
	return object, old, nil
}

// HasObject reports whether the request has an object.
func (f *Form) HasObject() bool { return f.object != nil }

// drop discards the object, which is no longer the newest.
func (f *Form) drop() {
	f.object, f.stale = nil, true
	f.payload, f.bodies = nil, nil
}

// Encode returns the objects of f in JSON, with the operation's options.
func (s *Set) Encode(f *Form) (*review.Payload, error) {
	if f.payload != nil {
		return f.payload, nil
	}
	var err error
	if options := s.a.GetOperationOptions(); options != nil && s.options == nil {
		if s.options, err = json.Marshal(options); err != nil {
			return nil, fmt.Errorf("encoding the options: %w", err)
		}
	}
	if f.old != nil && f.oldJSON == nil {
		if f.oldJSON, err = encodeObject(f.old); err != nil {
			return nil, fmt.Errorf("encoding the old object: %w", err)
		}
	}
	p := &review.Payload{OldObject: f.oldJSON, Options: s.options}
	if f.object != nil {
		if p.Object, err = encodeObject(f.object); err != nil {
			return nil, fmt.Errorf("encoding the object: %w", err)
		}
	}
	f.payload = p
	return p, nil
}

// Body returns the review of a version for f, with a resource and subresource, that NewBody
// returned since the object changed; nil if there is none.
func (f *Form) Body(version review.Version, resource schema.GroupVersionResource, subresource string) *review.Body {
	for _, b := range f.bodies {
		if b.version == version && b.resource == resource && b.subresource == subresource {
			return b.body
		}
	}
	return nil
}

// NewBody returns the review of a version for f, which can be sent to any number of webhooks. The
// error names the object that cannot be encoded.
func (s *Set) NewBody(f *Form, version review.Version, request *review.Header) (*review.Body, error) {
	payload, err := s.Encode(f)
	if err != nil {
		return nil, err
	}
	body := review.NewBody(version, request, payload)
	f.bodies = append(f.bodies, knownBody{version, request.Resource, request.Subresource, body})
	return body, nil
}
