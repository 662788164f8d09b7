package recorded

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
)

// event is an event of an audit log.
type event struct {
	Level            auditv1.Level             `json:"level"`
	AuditID          string                    `json:"auditID"`
	Stage            auditv1.Stage             `json:"stage"`
	RequestURI       string                    `json:"requestURI"`
	Verb             string                    `json:"verb"`
	User             authenticationv1.UserInfo `json:"user"`
	ImpersonatedUser *struct {
		authenticationv1.UserInfo
	} `json:"impersonatedUser"`
	ObjectRef                *auditv1.ObjectReference `json:"objectRef"`
	ResponseStatus           *metav1.Status           `json:"responseStatus"`
	RequestObject            json.RawMessage          `json:"requestObject"`
	ResponseObject           json.RawMessage          `json:"responseObject"`
	RequestReceivedTimestamp metav1.MicroTime         `json:"requestReceivedTimestamp"`
	Annotations              map[string]string        `json:"annotations"`
}

// connecting are the subresources that are connections.
var connecting = []string{"exec", "attach", "portforward", "proxy"}

// unjudged are the codes of requests that were refused outside of admission.
var unjudged = []int32{http.StatusUnauthorized, http.StatusNotFound, http.StatusMethodNotAllowed, http.StatusConflict, http.StatusGone,
	http.StatusRequestEntityTooLarge, http.StatusUnsupportedMediaType, http.StatusTooManyRequests}

// decided is the annotation of an event with the decision of authorization.
const decided = "authorization.k8s.io/decision"

// event reads an event. The text says why there is no request; other reports whether none was to
// be expected.
func (r *Reader) event(data []byte) (q *Request, why string, other bool) {
	e := &event{}
	rest, objects := apart(data, "requestObject", "responseObject")
	if rest == nil || json.Unmarshal(rest, e) != nil {
		return nil, notReadable, false
	}
	e.RequestObject, e.ResponseObject = objects[0], objects[1]
	switch {
	case e.Stage != auditv1.StageResponseComplete:
		return nil, "an event of another stage than ResponseComplete", true
	case e.ObjectRef == nil || e.ObjectRef.Resource == "":
		return nil, "a request for no resource", true
	}
	ref := e.ObjectRef
	q = &Request{
		APIVersion: APIVersion, Kind: Kind, ID: e.AuditID, Time: e.RequestReceivedTimestamp.Time,
		Resource:    metav1.GroupVersionResource{Group: ref.APIGroup, Version: ref.APIVersion, Resource: ref.Resource},
		Subresource: ref.Subresource, Namespace: ref.Namespace, Name: ref.Name, User: e.User,
	}
	if e.ImpersonatedUser != nil {
		q.User = e.ImpersonatedUser.UserInfo
	}
	code := int32(0)
	if s := e.ResponseStatus; s != nil {
		code = s.Code
		q.Response = &Response{Allowed: code >= 200 && code < 300, Code: int(code), Message: s.Message}
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
		if q.Response != nil {
			// A connection that was made ends with 101.
			q.Response.Allowed = success || code == http.StatusSwitchingProtocols
		}
		return q.unless(e, code)
	case verb == "get" || verb == "list" || verb == "watch":
		return nil, "a read", true
	case verb == "create":
		q.Operation, q.Object = Create, e.RequestObject
	case verb == "update":
		q.Operation, q.Object = Update, e.RequestObject
	case verb == "patch" || verb == "apply":
		q.Operation = Update
	case verb == "delete":
		q.Operation = Delete
	case verb == "deletecollection":
		r.forget()
		return nil, "the deletion of a collection does not name its objects", false
	default:
		return nil, "a request with another verb", true
	}
	at := e.RequestReceivedTimestamp.Time
	key := q.Key()
	old, when := r.state.find(key)
	if success && !q.DryRun {
		defer r.remember(q, e, at)
	}
	if why := refusedElsewhere(e, code); why != "" {
		return nil, why, false
	}
	whole := q.Subresource == "" || q.Subresource == "status"
	switch {
	case q.Operation == Delete || e.Level != auditv1.LevelMetadata && e.Level != auditv1.LevelNone:
	default:
		return nil, fmt.Sprintf("an event of level %s has no objects", e.Level), false
	}
	if old != nil && !at.IsZero() && at.Before(when) {
		return nil, "the events of an object are not in the order of time", false
	}
	switch {
	case e.Verb == "patch" || e.Verb == "apply":
		if why := q.patch(e, old, query, whole); why != "" {
			return nil, why, false
		}
	case q.Operation == Update && old != nil:
		if v, had := revisionOf(q.Object), revisionOf(old); v != "" && had != "" && v != had {
			return nil, "the log does not have the version of the object that the request changes", false
		}
	}
	if q.Operation != Create && whole {
		q.OldObject = old
	}
	if q.Operation == Create && q.Name == "" && q.Subresource == "" {
		q.Name = nameOf(q.Object)
	}
	return q, q.wrong(), false
}

// unless returns the request unless it was rejected before admission.
func (r *Request) unless(e *event, code int32) (*Request, string, bool) {
	if why := refusedElsewhere(e, code); why != "" {
		return nil, why, false
	}
	return r, r.wrong(), false
}

// refusedElsewhere says which other step than admission rejected a request; empty when none did.
func refusedElsewhere(e *event, code int32) string {
	switch {
	case e.Annotations[decided] == "forbid":
		return "authorization rejected the request"
	case slices.Contains(unjudged, code):
		return fmt.Sprintf("the answer was %d, which is not of admission", code)
	}
	return ""
}

// patch computes the object of a request that is a patch.
func (r *Request) patch(e *event, old json.RawMessage, query url.Values, whole bool) string {
	var of struct{ APIVersion, Kind string }
	if manager := query.Get("fieldManager"); manager != "" && json.Unmarshal(e.RequestObject, &of) == nil && of.APIVersion != "" && of.Kind != "" && query.Has("force") {
		r.Apply = &Apply{Configuration: e.RequestObject, FieldManager: manager, Force: query.Get("force") == "true"}
		return ""
	}
	switch {
	case len(e.RequestObject) == 0:
		return "the event has no objects"
	case old == nil || !whole:
		return noOld
	}
	object, err := patched(old, e.RequestObject)
	switch {
	case errors.Is(err, errPatchKind), errors.Is(err, errNotPatchable):
		return err.Error()
	case err != nil:
		return notReadable
	}
	r.Object = object
	return ""
}

// remember notes the object that a request has stored.
func (r *Reader) remember(q *Request, e *event, at time.Time) {
	switch {
	case q.Operation == Delete:
		r.state.put(q.Key(), nil, at)
	case q.Subresource != "" && q.Subresource != "status":
		if q.Subresource != "scale" && q.Subresource != "token" {
			r.state.put(q.Key(), nil, at)
		}
	case isObject(e.ResponseObject) && kindOf(e.ResponseObject) != "Status":
		key := q.Key()
		key.Name = nameOf(e.ResponseObject)
		r.state.put(key, e.ResponseObject, at)
	case q.Name != "":
		r.state.put(q.Key(), nil, at)
	}
}

// forget drops the noted objects. It is called after requests that changed objects without naming
// them.
func (r *Reader) forget() { r.state = state{known: r.state.known} }

func nameOf(data json.RawMessage) string     { m, _ := MetaOf(data); return m.Name }
func revisionOf(data json.RawMessage) string { m, _ := MetaOf(data); return m.ResourceVersion }
func kindOf(data json.RawMessage) string     { m, _ := MetaOf(data); return m.Kind }
