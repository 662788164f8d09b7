package auditlog

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"github.com/gatehouse-dev/gatehouse/admission/trace"
	"github.com/gatehouse-dev/gatehouse/internal/commands/predict/requestlog"
	"github.com/gatehouse-dev/gatehouse/internal/engine/review"
)

// event is an event of an audit log.
type event struct {
	auditv1.Event
	// source is the file or client that the event was read from.
	source string
	// sent is the object of the request, and answer the object of the response; nil if the event lacks it. The body
	// of a patch is not an object.
	sent, answer *shown
}

// shown is an object of an event. Most traces need its head only.
type shown struct {
	metav1.TypeMeta
	Metadata struct {
		Name string    `json:"name"`
		UID  types.UID `json:"uid"`
	}
	raw []byte
}

// object returns the whole object, nil if there is none.
func (s *shown) object() *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	if s == nil || u.UnmarshalJSON(s.raw) != nil || u.IsList() {
		return nil
	}
	return u
}

// before returns the members of the object that a patch reads and writes; nil if there are none.
func (s *shown) before(patch review.Patch) map[string]any {
	if s == nil || len(patch) == 0 {
		return nil
	}
	names, ok := patch.Members()
	if !ok {
		if u := s.object(); u != nil {
			return u.Object
		}
		return nil
	}
	object := map[string]any{}
	wanted, raw := map[string]any{}, make([]jsontext.Value, len(names))
	for i, name := range names {
		wanted[name] = &raw[i]
	}
	if !members(s.raw, wanted) {
		return nil
	}
	for i, name := range names {
		var value any
		if len(raw[i]) == 0 {
			continue
		}
		if utiljson.Unmarshal(raw[i], &value) != nil {
			return nil
		}
		object[name] = value
	}
	return object
}

// maxName bounds the names in events, in bytes.
const maxName = 1 << 10

// truncated is the annotation of an event whose objects were omitted.
const truncated = "audit.k8s.io/truncated"

// decode reads an event. It returns nil for a request that does not pass admission, and nil with the reason for an
// unreadable event.
func decode(data []byte, source string) (e *event, why string) {
	e = &event{source: source}
	if !requestlog.Decode(data, &e.Event, requestlog.Lenient) {
		return nil, "not readable as an event of audit.k8s.io/v1"
	}
	if e.ObjectRef == nil || e.ObjectRef.Resource == "" || e.operation() == "" {
		return nil, ""
	}
	if e.Verb != "patch" && e.Verb != "apply" {
		e.sent = head(e.RequestObject)
	}
	e.answer = head(e.ResponseObject)
	return e, ""
}

// head decodes the head of an object of an event; nil if the event has no object.
func head(raw *runtime.Unknown) *shown {
	if raw == nil || len(raw.Raw) < 3 {
		return nil
	}
	s := &shown{raw: raw.Raw}
	if !members(raw.Raw, map[string]any{"kind": &s.Kind, "apiVersion": &s.APIVersion, "metadata": &s.Metadata}) {
		return nil
	}
	switch {
	case s.Kind == "" || s.Kind == "Status" || s.Kind == "DeleteOptions" || strings.HasPrefix(s.Kind, "PartialObjectMetadata"):
		return nil
	case strings.HasSuffix(s.Kind, "List") && s.object() == nil:
		return nil
	}
	return s
}

// members decodes some members of an object into the given values, and stops after the last of them. It reports
// whether the input was an object so far.
func members(raw []byte, wanted map[string]any) bool {
	d := jsontext.NewDecoder(bytes.NewBuffer(raw), requestlog.Lenient)
	if begin, err := d.ReadToken(); err != nil || begin.Kind() != '{' {
		return false
	}
	for len(wanted) > 0 && d.PeekKind() == '"' {
		name, err := d.ReadToken()
		if err != nil {
			return false
		}
		into, ok := wanted[name.String()]
		if delete(wanted, name.String()); !ok {
			err = d.SkipValue()
		} else {
			err = json.UnmarshalDecode(d, into, requestlog.Lenient)
		}
		if err != nil {
			return false
		}
	}
	if len(wanted) == 0 {
		return true
	}
	end, err := d.ReadToken()
	return err == nil && end.Kind() == '}'
}

// requestID identifies a request.
type requestID [8]byte

func (id requestID) String() string { return hex.EncodeToString(id[:]) }

// id identifies the request of the event. The audit ID alone is not unique: clients may choose it, and an
// aggregated server writes an event with the ID of the main server.
func (e *event) id() requestID {
	sum := sha256.Sum256([]byte(strings.Join([]string{string(e.AuditID), e.RequestURI, e.Verb, e.User.Username, strconv.FormatInt(e.RequestReceivedTimestamp.UnixMicro(), 10)}, "\x00")))
	return requestID(sum[:8])
}

// rank orders the events of a request by completeness.
type rank struct {
	// class is higher for a later stage, then for a level with more data, then for an event that is not truncated.
	class int
	// size and sum order events of the same class, so that the order of arrival does not matter.
	size int
	sum  [8]byte
}

func (e *event) rank(data []byte) rank {
	stage := slices.Index([]auditv1.Stage{auditv1.StageRequestReceived, auditv1.StageResponseStarted, auditv1.StageResponseComplete, auditv1.StagePanic}, e.Stage)
	level := slices.Index([]auditv1.Level{auditv1.LevelMetadata, auditv1.LevelRequest, auditv1.LevelRequestResponse}, e.Level)
	class := (stage+1)*100 + (level+1)*10
	if e.Annotations[truncated] == "" {
		class++
	}
	sum := sha256.Sum256(data)
	return rank{class, len(data), [8]byte(sum[:8])}
}

// compare returns a number above 0 if r is more complete than o.
func (r rank) compare(o rank) int {
	return cmp.Or(cmp.Compare(r.class, o.class), cmp.Compare(r.size, o.size), bytes.Compare(r.sum[:], o.sum[:]))
}

// connecting are the subresources that open connections.
var connecting = []string{"exec", "attach", "portforward", "proxy"}

// operation returns the admission operation of the request; empty if the request does not pass admission.
func (e *event) operation() string {
	switch e.Verb {
	case "update", "patch", "apply":
		if e.ResponseStatus != nil && e.ResponseStatus.Code == http.StatusCreated {
			return "CREATE"
		}
		return "UPDATE"
	case "delete", "deletecollection":
		return "DELETE"
	case "create", "get":
		if slices.Contains(connecting, e.ObjectRef.Subresource) {
			return "CONNECT"
		}
		if e.Verb == "create" {
			return "CREATE"
		}
	}
	return ""
}

// subject returns the object of the request. kind returns the kind of a resource.
func (e *event) subject(kind func(schema.GroupVersionResource) schema.GroupVersionKind) trace.Subject {
	ref := e.ObjectRef
	resource := schema.GroupVersionResource{Group: name(ref.APIGroup), Version: name(ref.APIVersion), Resource: name(ref.Resource)}
	s := trace.Subject{Request: trace.Request{
		Operation: e.operation(), Resource: resource, Subresource: name(ref.Subresource),
		Namespace: name(ref.Namespace), Name: name(ref.Name), User: name(e.User.Username),
	}, UID: types.UID(name(string(ref.UID)))}
	if e.ImpersonatedUser != nil {
		s.User = name(e.ImpersonatedUser.Username)
	}
	if u, err := url.ParseRequestURI(e.RequestURI); err == nil {
		s.DryRun = slices.Contains(u.Query()["dryRun"], metav1.DryRunAll)
	}
	for _, u := range []*shown{e.answer, e.sent} {
		if u == nil {
			continue
		}
		if s.Kind == (schema.GroupVersionKind{}) && (s.Subresource == "" || s.Subresource == "status" || u == e.sent) {
			s.Kind = u.TypeMeta.GroupVersionKind()
		}
		s.Name = cmp.Or(s.Name, name(u.Metadata.Name))
		if s.Subresource == "" {
			s.UID = cmp.Or(s.UID, types.UID(name(string(u.Metadata.UID))))
		}
	}
	if s.Kind == (schema.GroupVersionKind{}) && s.Subresource == "" && kind != nil {
		s.Kind = kind(resource)
	}
	if resource.Group == "" && resource.Resource == "namespaces" {
		// In admission, the namespace of a Namespace is its own name.
		s.Namespace = s.Name
	}
	return s
}

// name shortens a name.
func name(s string) string { return trace.Cut(s, maxName) }

// latency returns the duration of the request.
func (e *event) latency() time.Duration {
	return max(e.StageTimestamp.Sub(e.RequestReceivedTimestamp.Time), 0)
}
