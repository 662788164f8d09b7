package requestlog

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
)

// connecting lists the subresources that open connections.
var connecting = []string{"exec", "attach", "portforward", "proxy"}

// unjudged lists the status codes of requests that were rejected outside of admission.
var unjudged = []int32{http.StatusUnauthorized, http.StatusNotFound, http.StatusMethodNotAllowed, http.StatusConflict, http.StatusGone,
	http.StatusRequestEntityTooLarge, http.StatusUnsupportedMediaType, http.StatusTooManyRequests}

// decided is the annotation of an event with the decision of authorization.
const decided = "authorization.k8s.io/decision"

// event reads an event. why is the reason if there is no request; other reports whether no request was to be expected.
func (r *Reader) event(data []byte) (q *Entry, why string, other bool) {
	e := &auditv1.Event{}
	if !Decode(data, e, Lenient) {
		return nil, notReadable, false
	}
	sent, answer := rawOf(e.RequestObject), rawOf(e.ResponseObject)
	switch {
	case e.Stage != auditv1.StageResponseComplete:
		return nil, "an event of another stage than ResponseComplete", true
	case e.ObjectRef == nil || e.ObjectRef.Resource == "":
		return nil, "a request for no resource", true
	}
	ref := e.ObjectRef
	q = &Entry{
		APIVersion: APIVersion, Kind: Kind, ID: string(e.AuditID), Time: e.RequestReceivedTimestamp.Time,
		Resource:    metav1.GroupVersionResource{Group: ref.APIGroup, Version: ref.APIVersion, Resource: ref.Resource},
		Subresource: ref.Subresource, Namespace: ref.Namespace, Name: ref.Name, User: e.User,
	}
	q.outside()
	if e.ImpersonatedUser != nil {
		q.User = *e.ImpersonatedUser
	}
	code := int32(0)
	if q.Response = responseOf(e); q.Response != nil {
		code = int32(q.Response.Code)
	}
	query := url.Values{}
	if u, err := url.ParseRequestURI(e.RequestURI); err == nil {
		query = u.Query()
	}
	q.DryRun = slices.Contains(query["dryRun"], metav1.DryRunAll)
	success := q.Response != nil && q.Response.Allowed
	switch verb := e.Verb; {
	case slices.Contains(connecting, ref.Subresource):
		q.Operation = Connect
		if r.answers.recorded(e) {
			return nil, recorded, true
		}
		return q.unless(e, code)
	case verb == "get" || verb == "list" || verb == "watch":
		if success {
			r.saw(q, answer)
		}
		return nil, "a read", true
	case verb == "create":
		q.Operation, q.Object = Create, sent
	case verb == "update":
		q.Operation, q.Object = Update, sent
	case verb == "patch" || verb == "apply":
		q.Operation = Update
	case verb == "delete":
		q.Operation = Delete
	case verb == "deletecollection":
		r.state.forget(q.GVR().GroupResource(), q.Namespace)
		return nil, "the deletion of a collection does not name its objects", false
	default:
		return nil, "a request with another verb", true
	}
	at := e.RequestReceivedTimestamp.Time
	key := q.Key()
	old, when := r.state.find(key)
	if success && !q.DryRun {
		defer r.remember(q, answer, at)
	}
	if r.answers.recorded(e) {
		return nil, recorded, true
	}
	if why := refusedElsewhere(e, code); why != "" {
		return nil, why, false
	}
	switch {
	case q.Operation == Delete || e.Level != auditv1.LevelMetadata && e.Level != auditv1.LevelNone:
	default:
		return nil, fmt.Sprintf("an event of level %s has no objects", e.Level), false
	}
	if old != nil && !at.IsZero() && at.Before(when) {
		return nil, "the events of an object are not in the order of time", false
	}
	switch {
	case q.Operation == Create:
		if q.Name == "" && q.Subresource == "" {
			q.Name = nameOf(q.Object)
		}
	case q.ofAnotherKind():
		q.Stored = old
	default:
		q.OldObject = old
	}
	switch {
	case e.Verb == "patch" || e.Verb == "apply":
		if why := q.patch(sent, old, answer, query); why != "" {
			return nil, why, false
		}
	case q.Operation == Update && old != nil:
		if v, had := revisionOf(q.Object), revisionOf(old); v != "" && had != "" && v != had {
			return nil, "the log does not have the version of the object that the request changes", false
		}
	}
	return q, q.wrong(), false
}

// responseOf returns the response in an event; nil if there is none.
func responseOf(e *auditv1.Event) *Response {
	s := e.ResponseStatus
	if s == nil {
		return nil
	}
	allowed := s.Code >= 200 && s.Code < 300
	if e.ObjectRef != nil && slices.Contains(connecting, e.ObjectRef.Subresource) {
		// An upgraded connection ends with 101.
		allowed = allowed || s.Code == http.StatusSwitchingProtocols
	}
	return &Response{Allowed: allowed, Code: int(s.Code), Message: s.Message}
}

// separate lists the subresources whose objects have a kind of their own, different from the kind of the resource.
var separate = []string{"scale", "binding", "eviction", "token"}

// ofAnotherKind reports whether the object of the request has another kind than the resource.
func (r *Entry) ofAnotherKind() bool { return slices.Contains(separate, r.Subresource) }

// unless returns the request, or nothing if it was rejected outside of admission.
func (r *Entry) unless(e *auditv1.Event, code int32) (*Entry, string, bool) {
	if why := refusedElsewhere(e, code); why != "" {
		return nil, why, false
	}
	return r, r.wrong(), false
}

// refusedElsewhere returns the step other than admission that rejected a request, or "" if there is none.
func refusedElsewhere(e *auditv1.Event, code int32) string {
	switch {
	case e.Annotations[decided] == "forbid":
		return "authorization rejected the request"
	case slices.Contains(unjudged, code):
		return fmt.Sprintf("the answer was %d, which is not of admission", code)
	}
	return ""
}

// patch computes the object of a request that is a patch. If the patch can be of several kinds and the response does
// not show which, the request gets an alternative for each.
func (r *Entry) patch(sent, old, answer json.RawMessage, query url.Values) string {
	of, _ := headerOf(sent)
	manager := query.Get("fieldManager")
	mayApply := manager != "" && of.APIVersion != "" && of.Kind != ""
	if mayApply && query.Has("force") {
		r.Apply = &Apply{Configuration: sent, FieldManager: manager, Force: query.Get("force") == "true"}
		return ""
	}
	switch {
	case len(sent) == 0:
		return "the event has no objects"
	case old == nil:
		return noOld
	case r.Subresource == "scale" && isObject(sent):
		// A scale has no lists, so every kind of patch has the effect of a merge patch.
		r.Patch = sent
		return ""
	case r.ofAnotherKind():
		return noOld
	}
	objects, err := patched(old, sent)
	if err != nil {
		return err.Error()
	}
	if r.Response != nil && r.Response.Allowed {
		objects = agreeing(objects, answer)
	}
	r.Object = objects[0]
	for _, object := range objects[1:] {
		other := *r
		other.Object = object
		r.Or = append(r.Or, &other)
	}
	if mayApply {
		other := *r
		other.Object, other.Apply = nil, &Apply{Configuration: sent, FieldManager: manager}
		r.Or = append(r.Or, &other)
	}
	return ""
}

// saw notes the objects in the response to a read.
func (r *Reader) saw(q *Entry, answer json.RawMessage) {
	if q.Subresource != "" || !isObject(answer) {
		return
	}
	note := func(object json.RawMessage) {
		m, ok := MetaOf(object)
		if key := q.Key(); ok && m.Name != "" {
			key.Namespace, key.Name = m.Namespace, m.Name
			r.state.see(key, object)
		}
	}
	of, ok := headerOf(answer)
	kind, isList := strings.CutSuffix(of.Kind, "List")
	switch {
	case !ok || of.Kind == "Status" || of.Kind == "Table" || strings.HasPrefix(of.Kind, "PartialObjectMetadata"):
	case !isList:
		note(answer)
	default:
		var list struct {
			Items []json.RawMessage `json:"items"`
		}
		if json.Unmarshal(answer, &list) == nil {
			for _, item := range list.Items {
				if about, ok := headerOf(item); ok && about.Kind == "" {
					item = withKind(item, metav1.TypeMeta{APIVersion: of.APIVersion, Kind: kind})
				}
				note(item)
			}
		}
	}
}

// remember notes the object stored by a request.
func (r *Reader) remember(q *Entry, answer json.RawMessage, at time.Time) {
	kind := kindOf(answer)
	switch {
	case q.Subresource == "token":
	case q.Subresource == "scale":
		old, _ := r.state.find(q.Key())
		r.state.put(q.Key(), scaledTo(old, answer), at)
	case !q.ofAnotherKind() && isObject(answer) && kind != "Status":
		// A deleted object can remain for a while: it has a grace period, or finalizers.
		key := q.Key()
		key.Name = nameOf(answer)
		r.state.put(key, answer, at)
	case q.Name != "":
		r.state.put(q.Key(), nil, at)
	}
}

// scaledTo returns an object of a built-in kind after a change of its scale; scale is the response to that change. It
// returns nil if the resulting object is not known.
func scaledTo(object, scale json.RawMessage) json.RawMessage {
	var to struct {
		Kind     string `json:"kind"`
		Metadata struct {
			ResourceVersion string `json:"resourceVersion"`
		} `json:"metadata"`
		Spec struct {
			Replicas int64 `json:"replicas"`
		} `json:"spec"`
	}
	of, ok := headerOf(object)
	if !ok || !slices.Contains([]string{"v1", "apps/v1"}, of.APIVersion) || json.Unmarshal(scale, &to) != nil || to.Kind != "Scale" || to.Metadata.ResourceVersion == "" {
		return nil
	}
	to.Kind = of.Kind
	change, err := json.Marshal(to)
	if err != nil {
		return nil
	}
	if object, err = jsonpatch.MergePatch(object, change); err != nil {
		return nil
	}
	return object
}

func nameOf(data json.RawMessage) string     { m, _ := MetaOf(data); return m.Name }
func revisionOf(data json.RawMessage) string { m, _ := MetaOf(data); return m.ResourceVersion }
func kindOf(data json.RawMessage) string     { m, _ := MetaOf(data); return m.Kind }
