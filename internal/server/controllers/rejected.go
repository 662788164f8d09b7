package controllers

import (
	"io"
	"net/http"
	"path"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/lru"

	"github.com/gatehouse-dev/gatehouse/internal/server/handling/replies"
)

// pace is how long a controller waits after consecutive failures: first, then twice as long each
// time, and last at most.
type pace struct{ first, last time.Duration }

// usual is the pace of most of upstream's controllers.
var usual = pace{5 * time.Millisecond, 1000 * time.Second}

func (p pace) after(failures int) time.Duration {
	wait := p.first
	for range failures - 1 {
		if wait *= 2; wait >= p.last {
			return p.last
		}
	}
	return wait
}

const (
	// maxOwners bounds the recorded owners, and knownFor is how long a rejection is recorded:
	// longer than any controller waits.
	maxOwners, knownFor = 4096, time.Hour
	// verdict is how long a new object counts as neither rejected nor initialized. It is the
	// default time of an initializer.
	verdict = 5 * time.Second
)

// Rejections tracks the owners whose new objects initializers rejected. The creates of a controller
// of the server do not wait for initializers, so that the controller does not get the rejection: it
// would make the next object at once, for ever. A controller's next creates for such an owner fail
// with the error of the rejection, as if they had waited, until the controller's pace allows
// another one (S11.66). Rejections is safe for concurrent use.
type Rejections struct {
	mu sync.Mutex
	// owners has a *rejected for each maker, and objects the UIDs of objects that were counted.
	owners, objects *lru.Cache
}

// NewRejections returns Rejections without owners.
func NewRejections() *Rejections {
	return &Rejections{owners: lru.New(maxOwners), objects: lru.New(maxOwners)}
}

// maker identifies the owner of an object or, without an owner, the object's name.
type maker struct {
	resource        string
	owner           types.UID
	namespace, name string
}

func makerOf(resource string, object metav1.Object) maker {
	if owner := metav1.GetControllerOf(object); owner != nil {
		return maker{resource: resource, owner: owner.UID}
	}
	return maker{resource: resource, namespace: object.GetNamespace(), name: object.GetName()}
}

// rejected is the record of the rejections of one maker.
type rejected struct {
	// count is how many objects were rejected, each made after the previous rejection, and at is
	// the time of the last rejection.
	count int
	at    time.Time
	// tried is when another object was made after that; the zero time if none was.
	tried  time.Time
	status metav1.Status
}

// Seen notes that an initializer rejected an object. Only the first call for an object counts.
func (r *Rejections) Seen(resource schema.GroupResource, object metav1.Object, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, counted := r.objects.Get(object.GetUID()); counted {
		return
	}
	r.objects.Add(object.GetUID(), nil)
	m := makerOf(resource.Resource, object)
	one := r.of(m)
	if one == nil {
		one = &rejected{}
	}
	// Objects that were made before the first rejection was recorded do not count separately.
	if one.count == 0 || !one.tried.IsZero() {
		one.count, one.at, one.tried = one.count+1, time.Now(), time.Time{}
	}
	one.status = apierrors.NewInternalError(err).Status()
	if status, ok := err.(apierrors.APIStatus); ok {
		one.status = status.Status()
	}
	r.owners.Add(m, one)
}

// Initialized notes that an object is initialized, so that objects of its owner are no longer
// rejected.
func (r *Rejections) Initialized(resource schema.GroupResource, object metav1.Object) {
	r.owners.Remove(makerOf(resource.Resource, object))
}

func (r *Rejections) of(m maker) *rejected {
	known, _ := r.owners.Get(m)
	one, _ := known.(*rejected)
	return one
}

// refuses returns the error of the last rejection if a controller of a pace must not make another
// object now. Otherwise it returns nil, and the new object shows whether objects of the maker are
// still rejected.
func (r *Rejections) refuses(m maker, p pace) *metav1.Status {
	r.mu.Lock()
	defer r.mu.Unlock()
	one := r.of(m)
	if one == nil || time.Since(one.at) > knownFor {
		r.owners.Remove(m)
		return nil
	}
	now, next := time.Now(), one.at.Add(p.after(one.count))
	if !one.tried.IsZero() {
		next = one.tried.Add(verdict)
	}
	if now.Before(next) {
		status := one.status
		return &status
	}
	one.tried = now
	return nil
}

// answered records the response to a create that refuses allowed.
func (r *Rejections) answered(m maker, code int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	one := r.of(m)
	switch {
	case one == nil, code == http.StatusAccepted:
	case code < http.StatusMultipleChoices:
		// No initializer applies any more.
		r.owners.Remove(m)
	default:
		// There is no object.
		one.tried = time.Time{}
	}
}

// paced is the transport of a controller whose creates do not wait for initializers.
type paced struct {
	http.RoundTripper
	rejections *Rejections
	pace       pace
}

// RoundTrip implements http.RoundTripper.
func (p paced) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Method != http.MethodPost || p.rejections.owners.Len() == 0 {
		return p.RoundTripper.RoundTrip(req)
	}
	object := sent(req)
	if object == nil {
		return p.RoundTripper.RoundTrip(req)
	}
	m := makerOf(path.Base(req.URL.Path), object)
	if status := p.rejections.refuses(m, p.pace); status != nil {
		if req.Body != nil {
			req.Body.Close()
		}
		return answer(req, *status)
	}
	response, err := p.RoundTripper.RoundTrip(req)
	code := http.StatusServiceUnavailable
	if err == nil {
		code = response.StatusCode
	}
	p.rejections.answered(m, code)
	return response, err
}

// answer returns a response with a status.
func answer(req *http.Request, status metav1.Status) (*http.Response, error) {
	response := &http.Response{
		Status: http.StatusText(int(status.Code)), StatusCode: int(status.Code), Request: req, Header: http.Header{},
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
	}
	return replies.Say(response, &status)
}

// sent returns the metadata of the object in a request, nil when there is none.
func sent(req *http.Request) metav1.Object {
	if req.GetBody == nil {
		return nil
	}
	reader, err := req.GetBody()
	if err != nil {
		return nil
	}
	defer reader.Close()
	body, err := io.ReadAll(reader)
	if err != nil {
		return nil
	}
	// There is no object after an error.
	obj, _, _ := scheme.Codecs.UniversalDeserializer().Decode(body, nil, nil)
	object, _ := meta.Accessor(obj)
	return object
}
