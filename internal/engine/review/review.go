package review

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authentication/user"
)

// Version is a version of the AdmissionReview wire format.
type Version string

const (
	V1       Version = "v1"
	V1beta1  Version = "v1beta1"
	V1alpha1 Version = "v1alpha1"
)

// Group is the API group of AdmissionReview.
const Group = "admission.k8s.io"

// PatchTypeJSONPatch is the only patch type of webhooks (S4.9).
const PatchTypeJSONPatch = "JSONPatch"

// Choose returns the first supported version in a webhook's admissionReviewVersions, and false if
// there is none (S3.6). V1alpha1 is for external hooks only; in a list it counts as unknown, as in
// k8s.io/apiserver.
func Choose(versions []string) (Version, bool) {
	for _, v := range versions {
		if v := Version(v); v == V1 || v == V1beta1 {
			return v, true
		}
	}
	return "", false
}

// Header is the description of the API request for a webhook, without the objects. It is the same
// for every webhook that gets the request in the same kind; only the uid differs.
type Header struct {
	// Kind, Resource and Subresource are the values that the webhook's rules matched: the request's
	// own, or equivalents (S2.24).
	Kind        schema.GroupVersionKind
	Resource    schema.GroupVersionResource
	Subresource string

	// RequestKind, RequestResource and RequestSubresource are the API request's own values. They
	// are not sent in v1alpha1.
	RequestKind        schema.GroupVersionKind
	RequestResource    schema.GroupVersionResource
	RequestSubresource string

	// Name is empty while it is unknown (S3.9).
	Name      string
	Namespace string
	// Operation is CREATE, UPDATE, DELETE or CONNECT.
	Operation string
	// User is the user of the API request; nil is sent as an empty userInfo.
	User user.Info
	// DryRun is not sent in v1alpha1.
	DryRun bool
}

// Payload has the objects of a review, already encoded as JSON in the version for the webhook. A
// nil member is sent as null. Payloads are shared between reviews and must not be changed after
// use.
type Payload struct {
	Object    []byte
	OldObject []byte
	// Options is not sent in v1alpha1.
	Options []byte
}

// Response is a webhook's checked answer, in the same form for all versions.
type Response struct {
	// UID is the uid in the answer; v1beta1 webhooks may return any uid (S4.7), v1alpha1 has none.
	UID     types.UID
	Allowed bool
	// Result is the status in the answer; nil if there is none. It is used only if Allowed is false
	// (S4.15).
	Result *metav1.Status
	// Patch is the unparsed patch; empty if there is none, and for validating and v1alpha1
	// webhooks. See [DecodePatch].
	Patch []byte
	// PatchType is "JSONPatch" if a v1beta1 webhook returned a patch; for v1 it is copied from the
	// answer (S4.9).
	PatchType        string
	Warnings         []string
	AuditAnnotations map[string]string
}
