package webhook

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"

	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiadmission "k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/metrics"
	auditinternal "k8s.io/apiserver/pkg/apis/audit"
	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/warning"
	"k8s.io/kubernetes/pkg/api/legacyscheme"

	// The kinds that plugins handle, as internal types.
	_ "k8s.io/kubernetes/pkg/apis/apps/install"
	_ "k8s.io/kubernetes/pkg/apis/authentication/install"
	_ "k8s.io/kubernetes/pkg/apis/autoscaling/install"
	_ "k8s.io/kubernetes/pkg/apis/batch/install"
	_ "k8s.io/kubernetes/pkg/apis/certificates/install"
	_ "k8s.io/kubernetes/pkg/apis/coordination/install"
	_ "k8s.io/kubernetes/pkg/apis/core/install"
	_ "k8s.io/kubernetes/pkg/apis/events/install"
	_ "k8s.io/kubernetes/pkg/apis/networking/install"
	_ "k8s.io/kubernetes/pkg/apis/node/install"
	_ "k8s.io/kubernetes/pkg/apis/policy/install"
	_ "k8s.io/kubernetes/pkg/apis/rbac/install"
	_ "k8s.io/kubernetes/pkg/apis/resource/install"
	_ "k8s.io/kubernetes/pkg/apis/scheduling/install"
	_ "k8s.io/kubernetes/pkg/apis/storage/install"

	"github.com/gatehouse-dev/gatehouse/internal/engine/objects"
)

// interfaces convert between the versions of built-in kinds.
var interfaces = apiadmission.NewObjectInterfacesFromScheme(legacyscheme.Scheme)

// reviewer serves the reviews of one pass of a plugin.
type reviewer struct {
	judge func(context.Context, apiadmission.Attributes) error
	// changes reports whether the plugin may change objects.
	changes bool
}

func newReviewer(p *served, pass string) http.Handler {
	measured := metrics.WithControllerMetrics(p.Interface, p.Name)
	if pass == mutating {
		plugin := measured.(apiadmission.MutationInterface)
		return reviewer{func(ctx context.Context, a apiadmission.Attributes) error { return plugin.Admit(ctx, a, interfaces) }, true}
	}
	plugin := measured.(apiadmission.ValidationInterface)
	return reviewer{func(ctx context.Context, a apiadmission.Attributes) error { return plugin.Validate(ctx, a, interfaces) }, false}
}

// ServeHTTP implements http.Handler.
func (r reviewer) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, req.Body, maxReview))
	if err != nil {
		http.Error(w, fmt.Sprintf("reading the review: %v", err), http.StatusBadRequest)
		return
	}
	var review admissionv1.AdmissionReview
	if err := json.Unmarshal(body, &review); err != nil || review.Request == nil || review.APIVersion != admissionv1.SchemeGroupVersion.String() {
		http.Error(w, "the body is not an AdmissionReview of admission.k8s.io/v1 with a request", http.StatusBadRequest)
		return
	}
	review.Response = r.answer(req.Context(), review.Request)
	review.Response.UID = review.Request.UID
	review.Request = nil
	w.Header().Set("Content-Type", "application/json")
	// An error means that the client has disconnected.
	_ = json.NewEncoder(w).Encode(&review)
}

// answer calls the plugin for a request, and returns the response.
func (r reviewer) answer(ctx context.Context, q *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
	out := &admissionv1.AdmissionResponse{}
	a, err := attributes(q)
	if err != nil {
		return refuse(out, apierrors.NewBadRequest(err.Error()))
	}
	notes := &notes{Attributes: a}
	// Plugins add annotations to the request, or, like PodSecurity, to its audit event.
	ctx = audit.WithAuditContext(warning.WithWarningRecorder(ctx, notes))
	var before runtime.Object
	if r.changes && a.GetObject() != nil {
		before = a.GetObject().DeepCopyObject()
	}
	err = r.judge(ctx, notes)
	for key, value := range audit.AuditContextFrom(ctx).GetEventAnnotations() {
		// AddAnnotation of notes never fails.
		_ = notes.AddAnnotation(key, value)
	}
	notes.copyTo(out)
	if err != nil {
		return refuse(out, err)
	}
	out.Allowed = true
	if before == nil {
		return out
	}
	patch, err := objects.Difference(before, a.GetObject(), a.GetKind(), interfaces)
	if err != nil {
		return refuse(out, apierrors.NewInternalError(err))
	}
	if patch != nil {
		kind := admissionv1.PatchTypeJSONPatch
		out.Patch, out.PatchType = patch, &kind
	}
	return out
}

// refuse sets a denial with the status of an error.
func refuse(out *admissionv1.AdmissionResponse, err error) *admissionv1.AdmissionResponse {
	out.Allowed = false
	var status apierrors.APIStatus
	if errors.As(err, &status) {
		result := status.Status()
		out.Result = &result
		return out
	}
	out.Result = &metav1.Status{Status: metav1.StatusFailure, Message: err.Error(), Reason: metav1.StatusReasonForbidden, Code: http.StatusForbidden}
	return out
}

// attributes converts the request of a review to the attributes that plugins get.
func attributes(q *admissionv1.AdmissionRequest) (apiadmission.Attributes, error) {
	kind := schema.GroupVersionKind(q.Kind)
	object, err := decode(q.Object.Raw, kind)
	if err != nil {
		return nil, fmt.Errorf("the object: %w", err)
	}
	old, err := decode(q.OldObject.Raw, kind)
	if err != nil {
		return nil, fmt.Errorf("the old object: %w", err)
	}
	return apiadmission.NewAttributesRecord(object, old, kind, q.Namespace, q.Name, schema.GroupVersionResource(q.Resource), q.SubResource,
		apiadmission.Operation(q.Operation), nil, q.DryRun != nil && *q.DryRun, caller(&q.UserInfo)), nil
}

// decode reads an object: a built-in kind as its internal type, and any other kind as
// unstructured content.
func decode(raw []byte, kind schema.GroupVersionKind) (runtime.Object, error) {
	if len(raw) == 0 || string(raw) == "null" {
		return nil, nil
	}
	if !legacyscheme.Scheme.Recognizes(kind) {
		u := &unstructured.Unstructured{}
		if err := u.UnmarshalJSON(raw); err != nil {
			return nil, err
		}
		return u, nil
	}
	object, _, err := legacyscheme.Codecs.UniversalDeserializer().Decode(raw, &kind, nil)
	if err != nil {
		return nil, err
	}
	return legacyscheme.Scheme.UnsafeConvertToVersion(object, schema.GroupVersion{Group: kind.Group, Version: runtime.APIVersionInternal})
}

func caller(u *authenticationv1.UserInfo) user.Info {
	info := &user.DefaultInfo{Name: u.Username, UID: u.UID, Groups: u.Groups}
	for key, values := range u.Extra {
		if info.Extra == nil {
			info.Extra = map[string][]string{}
		}
		info.Extra[key] = values
	}
	return info
}

// notes are the warnings and annotations that a plugin adds to its verdict.
type notes struct {
	apiadmission.Attributes

	mu struct {
		sync.Mutex
		warnings    []string
		annotations map[string]string
	}
}

// AddWarning implements warning.Recorder.
func (n *notes) AddWarning(_, text string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.mu.warnings = append(n.mu.warnings, text)
}

// AddAnnotation implements admission.Attributes.
func (n *notes) AddAnnotation(key, value string) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.mu.annotations == nil {
		n.mu.annotations = map[string]string{}
	}
	// The API server prefixes keys with the webhook's name, and a key has only one slash.
	n.mu.annotations[key[strings.LastIndex(key, "/")+1:]] = value
	return nil
}

// AddAnnotationWithLevel implements admission.Attributes.
func (n *notes) AddAnnotationWithLevel(key, value string, _ auditinternal.Level) error {
	return n.AddAnnotation(key, value)
}

func (n *notes) copyTo(out *admissionv1.AdmissionResponse) {
	n.mu.Lock()
	defer n.mu.Unlock()
	out.Warnings, out.AuditAnnotations = n.mu.warnings, n.mu.annotations
}
