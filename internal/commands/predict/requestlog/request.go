package requestlog

import (
	"cmp"
	"encoding/json"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apimachinery/pkg/api/validate/content"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
)

// The format, described by docs/recorded.schema.json.
const (
	APIVersion = "gatehouse.dev/v1alpha1"
	Kind       = "RecordedRequest"
)

// AuditKey is the key of the audit annotation with the ID of a recorded request, below the name of the recorder's webhook:
// a kube-apiserver does not send the audit ID to webhooks.
const AuditKey = "recorded-request"

// The operations.
const (
	Create  = "CREATE"
	Update  = "UPDATE"
	Delete  = "DELETE"
	Connect = "CONNECT"
)

// Entry is a request that was made to a cluster. Its JSON is the format of recorded requests, one per line.
type Entry struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	// ID identifies the request in its source: it is the audit ID, or the uid of a review.
	ID string `json:"id,omitempty"`
	// Time is the time when the request arrived; zero if unknown.
	Time time.Time `json:"time,omitzero"`
	// Operation is CREATE, UPDATE, DELETE or CONNECT.
	Operation   string                      `json:"operation"`
	Resource    metav1.GroupVersionResource `json:"resource"`
	Subresource string                      `json:"subresource,omitempty"`
	Namespace   string                      `json:"namespace,omitempty"`
	// Name is empty for a create with a server-generated name.
	Name string `json:"name,omitempty"`
	// NamespaceLabels are the labels of the namespace when the request arrived; absent if unknown.
	NamespaceLabels map[string]string `json:"namespaceLabels,omitempty"`
	// User made the request.
	User   authenticationv1.UserInfo `json:"user"`
	DryRun bool                      `json:"dryRun,omitempty"`
	// Object is the object sent, or the object after earlier patches; absent for DELETE.
	Object json.RawMessage `json:"object,omitempty"`
	// OldObject is the stored object; absent for CREATE and CONNECT.
	OldObject json.RawMessage `json:"oldObject,omitempty"`
	// Apply is the configuration of a server-side apply, instead of Object.
	Apply *Apply `json:"apply,omitempty"`
	// Response is the response to the request; nil if unknown.
	Response *Response `json:"response,omitempty"`
	// Removed names the parts that the recorder redacted from the objects.
	Removed []string `json:"removed,omitempty"`

	// Place is the position of the request in its source, as FILE:LINE.
	Place string `json:"-"`
	// Stored is the parent object of a request for a subresource, as a log shows it, if OldObject has another kind or
	// is not known.
	Stored json.RawMessage `json:"-"`
	// Patch is a merge patch of a scale, instead of Object.
	Patch json.RawMessage `json:"-"`
	// Or lists alternative readings of the request, because a log does not record the kind of a patch.
	Or []*Entry `json:"-"`
}

// Apply is a server-side apply.
type Apply struct {
	Configuration json.RawMessage `json:"configuration"`
	FieldManager  string          `json:"fieldManager"`
	Force         bool            `json:"force,omitempty"`
}

// Response is the response to a request.
type Response struct {
	Allowed bool   `json:"allowed"`
	Code    int    `json:"code,omitempty"`
	Message string `json:"message,omitempty"`
}

// GVR returns the resource of the request.
func (r *Entry) GVR() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: r.Resource.Group, Version: r.Resource.Version, Resource: r.Resource.Resource}
}

// Key identifies an object independently of its version.
type Key struct {
	Resource        schema.GroupResource
	Namespace, Name string
}

// Key returns the key of the request's object.
func (r *Entry) Key() Key { return Key{r.GVR().GroupResource(), r.Namespace, r.Name} }

// outside clears the namespace of a request for a Namespace object: events, reviews and traces repeat the name there.
func (r *Entry) outside() {
	if r.Resource.Group == "" && r.Resource.Resource == "namespaces" {
		r.Namespace = ""
	}
}

// Title describes the request in one line.
func (r *Entry) Title() string {
	resource := r.Resource.Resource
	if r.Subresource != "" {
		resource += "/" + r.Subresource
	}
	if r.Resource.Group != "" {
		resource += "." + r.Resource.Group
	}
	name := strings.TrimPrefix(r.Namespace+"/"+cmp.Or(r.Name, "(no name)"), "/")
	return r.Operation + " " + resource + " " + name + " by " + cmp.Or(r.User.Username, "(no user)")
}

// wrong returns the reason why a request cannot be evaluated, or "".
func (r *Entry) wrong() string {
	switch {
	case r.Resource.Resource == "" || r.Resource.Version == "":
		return "the request names no resource"
	case r.Namespace != "" && len(validation.IsDNS1123Label(r.Namespace)) > 0:
		return "the namespace of the request is not the name of a namespace"
	case len(content.IsPathSegmentName(r.Name)) > 0:
		return "the name of the request is not the name of an object"
	case r.Apply != nil && !isObject(r.Apply.Configuration):
		return "the request has no object"
	case r.Apply != nil || r.Patch != nil:
	case r.Operation == Create && !isObject(r.Object), r.Operation == Update && !isObject(r.Object):
		return "the request has no object"
	}
	switch r.Operation {
	case Create, Connect:
	case Update, Delete:
		if !isObject(r.OldObject) && r.Stored == nil && r.Apply == nil {
			return noOld
		}
		if r.Name == "" {
			return "the request names no object"
		}
	default:
		return "the operation is none of CREATE, UPDATE, DELETE and CONNECT"
	}
	return ""
}

// noOld is the reason why most updates of an audit log cannot be evaluated.
const noOld = "the object before the request is not known"

func isObject(data json.RawMessage) bool { return len(data) > 1 && data[0] == '{' }
