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

// PatchTypeJSONPatch is the one patch type that webhooks may use (S4.9).
const PatchTypeJSONPatch = "JSONPatch"

// Choose returns the first of a webhook's admissionReviewVersions that is known
// here, and false when there is none (S3.6). V1alpha1 is the version of external hooks
// only; in a list it counts as unknown, as upstream has it.
func Choose(versions []string) (Version, bool) {
	for _, v := range versions {
		if v := Version(v); v == V1 || v == V1beta1 {
			return v, true
		}
	}
	return "", false
}

// Request is what a webhook receives about the API request, apart from the
// objects. It is the same for every hook that sees the request as the same
// kind; only the uid differs.
type Request struct {
	// Kind, Resource and Subresource are what the hook matched: those of the
	// request itself, or equivalents (S2.24).
	Kind        schema.GroupVersionKind
	Resource    schema.GroupVersionResource
	Subresource string

	// RequestKind, RequestResource and RequestSubresource are what the API
	// request was for. They are not sent in v1alpha1.
	RequestKind        schema.GroupVersionKind
	RequestResource    schema.GroupVersionResource
	RequestSubresource string

	// Name is empty while it is not known (S3.9).
	Name      string
	Namespace string
	// Operation is CREATE, UPDATE, DELETE or CONNECT.
	Operation string
	// User makes the API request; nil is sent as an empty userInfo.
	User user.Info
	// DryRun is not sent in v1alpha1.
	DryRun bool
}

// Payload holds the objects of a review, already encoded as JSON in the version
// the webhook wants. A nil member is sent as null. Payloads are shared between
// reviews and must not be changed once used.
type Payload struct {
	Object    []byte
	OldObject []byte
	// Options is not sent in v1alpha1.
	Options []byte
}

// Response is a webhook's answer, checked, and in the same form for all versions.
type Response struct {
	// UID is what the webhook returned; v1beta1 webhooks may return anything
	// (S4.7), v1alpha1 has none.
	UID     types.UID
	Allowed bool
	// Result is the status the webhook gave; nil when it gave none. It counts
	// only when Allowed is false (S4.15).
	Result *metav1.Status
	// Patch is the patch as the webhook wrote it; empty when there is none, and
	// for validating and v1alpha1 webhooks. See [DecodePatch].
	Patch []byte
	// PatchType is "JSONPatch" whenever a v1beta1 webhook returned a patch; a v1
	// webhook's own word otherwise (S4.9).
	PatchType        string
	Warnings         []string
	AuditAnnotations map[string]string
}
