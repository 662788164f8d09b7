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

// The format, as docs/recorded.schema.json describes it.
const (
	APIVersion = "gatehouse.dev/v1alpha1"
	Kind       = "RecordedRequest"
)

// The operations.
const (
	Create  = "CREATE"
	Update  = "UPDATE"
	Delete  = "DELETE"
	Connect = "CONNECT"
)

// Request is a request that was made to a cluster. Its JSON is the format of recorded requests, one
// a line.
type Request struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	// ID names the request where it was recorded.
	ID string `json:"id,omitempty"`
	// Time is when the request came; zero when that is not known.
	Time time.Time `json:"time,omitzero"`
	// Operation is CREATE, UPDATE, DELETE or CONNECT.
	Operation   string                      `json:"operation"`
	Resource    metav1.GroupVersionResource `json:"resource"`
	Subresource string                      `json:"subresource,omitempty"`
	Namespace   string                      `json:"namespace,omitempty"`
	// Name is empty for a create whose name the server makes.
	Name string `json:"name,omitempty"`
	// NamespaceLabels are those of the namespace when the request came; absent when they are not known.
	NamespaceLabels map[string]string `json:"namespaceLabels,omitempty"`
	// User made the request.
	User   authenticationv1.UserInfo `json:"user"`
	DryRun bool                      `json:"dryRun,omitempty"`
	// Object is what was sent, or what an earlier patch made of it; absent for DELETE.
	Object json.RawMessage `json:"object,omitempty"`
	// OldObject is what was stored; absent for CREATE and CONNECT.
	OldObject json.RawMessage `json:"oldObject,omitempty"`
	// Apply is a configuration of server-side apply, in place of Object.
	Apply *Apply `json:"apply,omitempty"`
	// Response is what came of the request; nil when that is not known.
	Response *Response `json:"response,omitempty"`
	// Removed names what the recorder took out of the objects.
	Removed []string `json:"removed,omitempty"`

	// Place is where the request was read, as FILE:LINE.
	Place string `json:"-"`
	// Stored is the object that a request for a subresource finds, as a log shows it, where OldObject is of
	// another kind, or not known.
	Stored json.RawMessage `json:"-"`
	// Patch is a merge patch of a scale, in place of Object.
	Patch json.RawMessage `json:"-"`
	// Or are what the request may have been, too: a log does not say of which kind a patch is.
	Or []*Request `json:"-"`
}

// Apply is a server-side apply.
type Apply struct {
	Configuration json.RawMessage `json:"configuration"`
	FieldManager  string          `json:"fieldManager"`
	Force         bool            `json:"force,omitempty"`
}

// Response is what came of a request.
type Response struct {
	Allowed bool   `json:"allowed"`
	Code    int    `json:"code,omitempty"`
	Message string `json:"message,omitempty"`
}

// GVR is the resource.
func (r *Request) GVR() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: r.Resource.Group, Version: r.Resource.Version, Resource: r.Resource.Resource}
}

// Key names an object, whatever version it is in.
type Key struct {
	Resource        schema.GroupResource
	Namespace, Name string
}

// Key names the object of the request.
func (r *Request) Key() Key { return Key{r.GVR().GroupResource(), r.Namespace, r.Name} }

// outside takes a request for a namespace out of the namespace: events, reviews and traces name it twice.
func (r *Request) outside() {
	if r.Resource.Group == "" && r.Resource.Resource == "namespaces" {
		r.Namespace = ""
	}
}

// Title describes the request in one line.
func (r *Request) Title() string {
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

// wrong says why a request cannot be judged; empty when it can.
func (r *Request) wrong() string {
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

// noOld is why most updates of an audit log cannot be judged.
const noOld = "the object before the request is not known"

func isObject(data json.RawMessage) bool { return len(data) > 1 && data[0] == '{' }
