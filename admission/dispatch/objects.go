package dispatch

import (
	"encoding/json"
	"fmt"
	"reflect"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"

	"github.com/gatehouse-dev/gatehouse/admission/review"
)

// objects holds the object and the old object of one request, in every kind
// that a hook wanted them in so far. Each kind is converted and encoded once,
// however many hooks want it, until a hook changes the object (S5.3, S6.5).
//
// The request's own object, the hub object, is brought up to date when another
// kind is needed after a change, and by settle.
type objects struct {
	a     admission.Attributes
	o     admission.ObjectInterfaces
	forms []*form
	// latest has the object as a hook changed it, while the hub object does
	// not; nil when the hub object is up to date.
	latest *form
	// generation counts the changes, those by conversion included.
	generation int
	// options are the operation's options, encoded.
	options []byte
}

// form is the objects in one kind.
type form struct {
	kind schema.GroupVersionKind
	// object is nil when the request has none, or when stale.
	object runtime.Object
	stale  bool
	old    runtime.Object
	// oldJSON is old encoded; an old object never changes.
	oldJSON []byte
	// payload is the objects encoded; nil until somebody needs it. Once handed
	// out it is never changed, only replaced.
	payload *review.Payload
	// bodies are the reviews made of the payload.
	bodies []knownBody
}

// knownBody is a review that any number of hooks can be sent.
type knownBody struct {
	version     review.Version
	resource    schema.GroupVersionResource
	subresource string
	body        *review.Body
}

// newest returns the object as the hooks so far left it, in whatever kind; nil
// when the request has none.
func (s *objects) newest() runtime.Object {
	if s.latest != nil {
		return s.latest.object
	}
	return s.a.GetObject()
}

// as returns the objects in a kind.
func (s *objects) as(kind schema.GroupVersionKind) (*form, error) {
	var f *form
	for _, known := range s.forms {
		if known.kind == kind {
			f = known
			break
		}
	}
	if f == nil {
		f = &form{kind: kind, stale: s.a.GetObject() != nil}
		if old := s.a.GetOldObject(); old != nil {
			var err error
			if f.old, err = s.convert(old, kind); err != nil {
				return nil, err
			}
		}
		s.forms = append(s.forms, f)
	}
	if f.stale {
		if err := s.settle(); err != nil {
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

// convert returns obj in a kind: itself if it has that kind already (S2.28).
func (s *objects) convert(obj runtime.Object, kind schema.GroupVersionKind) (runtime.Object, error) {
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

// replace makes object, which has f's kind, the newest.
func (s *objects) replace(f *form, object runtime.Object) {
	for _, other := range s.forms {
		other.drop()
	}
	f.object, f.stale = object, false
	s.latest = f
	s.generation++
}

// settle brings the hub object up to date (S5.11).
func (s *objects) settle() error {
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
	// From now on the hub object is what counts, with whatever the conversion
	// made of it.
	f.drop()
	s.generation++
	return s.o.GetObjectConvertor().Convert(from, hub, nil)
}

// drop forgets the object, which is not the newest any more.
func (f *form) drop() {
	f.object, f.stale = nil, true
	f.payload, f.bodies = nil, nil
}

// encode returns the objects of f in JSON, with the operation's options.
func (s *objects) encode(f *form) (*review.Payload, error) {
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
