package review

import (
	"errors"
	"fmt"
	"mime"
	"net/http"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	kjson "sigs.k8s.io/json"
)

// InvalidError is the error of an answer that is an AdmissionReview of the requested version, but
// violates one of the rules S4.6 to S4.9.
type InvalidError struct {
	// Problem describes the violated rule.
	Problem string
}

func (e *InvalidError) Error() string { return e.Problem }

func invalid(format string, args ...any) error {
	return &InvalidError{Problem: fmt.Sprintf(format, args...)}
}

var errAbsent = &InvalidError{Problem: "webhook response was absent"}

// typeMeta is decoded separately if the whole answer cannot be decoded.
type typeMeta struct {
	Kind       string `json:"kind"`
	APIVersion string `json:"apiVersion"`
}

// answer is a v1 or v1beta1 AdmissionReview from a webhook. A request in the answer is ignored
// (S4.2).
type answer struct {
	typeMeta `json:",inline"`
	Response *struct {
		UID              types.UID         `json:"uid"`
		Allowed          bool              `json:"allowed"`
		Result           *metav1.Status    `json:"status"`
		Patch            []byte            `json:"patch"`
		PatchType        *string           `json:"patchType"`
		AuditAnnotations map[string]string `json:"auditAnnotations"`
		Warnings         []string          `json:"warnings"`
	} `json:"response"`
}

// answerAlpha is a v1alpha1 AdmissionReview from a webhook.
type answerAlpha struct {
	typeMeta `json:",inline"`
	Status   struct {
		Allowed bool           `json:"allowed"`
		Result  *metav1.Status `json:"status"`
	} `json:"status"`
}

// Decode checks and decodes a webhook's answer to a review of version v with the uid sent: an HTTP
// status, the value of the Content-Type header, and the body. mutating reports whether the webhook
// may return a patch. The Response does not refer to body, which the caller may reuse.
//
// Any error means that the webhook failed to answer, not that it denied the request. It is a
// *[InvalidError] if a rule of S4.6 to S4.9 is violated; an *apierrors.StatusError if the HTTP
// status is not 200 to 206 (S4.1) or the body is a Status object instead of a review; and any other
// error if the body is not an AdmissionReview of that version (S4.2 to S4.5).
func Decode(v Version, mutating bool, sent types.UID, status int, contentType string, body []byte) (*Response, error) {
	media := ""
	if contentType != "" {
		m, _, err := mime.ParseMediaType(contentType)
		if err != nil {
			return nil, fmt.Errorf("content type %q of the answer: %w", contentType, err)
		}
		media = m
	}
	if status < 200 || status > 206 {
		return nil, httpError(status, media, body)
	}
	if len(body) == 0 {
		return nil, fmt.Errorf("0-length response with status code: %d and content type: %s", status, contentType)
	}
	if v == V1alpha1 {
		return decodeAlpha(body)
	}

	var a answer
	if err := kjson.UnmarshalCaseSensitivePreserveInts(body, &a); err != nil {
		return nil, undecodable(v, body, err)
	}
	if err := checkKind(v, a.typeMeta, body); err != nil {
		return nil, err
	}
	r := a.Response
	if r == nil {
		return nil, errAbsent
	}
	out := &Response{
		UID:              r.UID,
		Allowed:          r.Allowed,
		Result:           r.Result,
		Warnings:         r.Warnings,
		AuditAnnotations: r.AuditAnnotations,
	}
	if v == V1beta1 {
		if mutating && len(r.Patch) > 0 {
			out.Patch, out.PatchType = r.Patch, PatchTypeJSONPatch
		}
		return out, nil
	}

	if r.UID != sent {
		return nil, invalid("expected response.uid=%q, got %q", sent, r.UID)
	}
	if want := gvk(v); a.Kind != want.Kind || a.APIVersion != want.GroupVersion().String() {
		return nil, invalid("expected webhook response of %v, got %v", want, schema.FromAPIVersionAndKind(a.APIVersion, a.Kind))
	}
	if err := checkPatch(mutating, r.Patch, r.PatchType); err != nil {
		return nil, err
	}
	out.Patch = r.Patch
	if r.PatchType != nil {
		out.PatchType = *r.PatchType
	}
	return out, nil
}

// checkPatch checks a v1 answer by S4.9.
func checkPatch(mutating bool, patch []byte, patchType *string) error {
	switch {
	case !mutating && len(patch) > 0:
		return invalid("validating webhook may not return response.patch")
	case !mutating && patchType != nil:
		return invalid("validating webhook may not return response.patchType")
	case len(patch) > 0 && patchType == nil:
		return invalid("webhook returned response.patch but not response.patchType")
	case len(patch) == 0 && patchType != nil:
		return invalid("webhook returned response.patchType but not response.patch")
	case patchType != nil && *patchType == "":
		return invalid("webhook returned invalid response.patchType of %q", *patchType)
	}
	return nil
}

// decodeAlpha implements S12.5 to S12.8: a missing field gets no default, and a missing verdict
// does not allow the request.
func decodeAlpha(body []byte) (*Response, error) {
	var a answerAlpha
	if err := kjson.UnmarshalCaseSensitivePreserveInts(body, &a); err != nil {
		return nil, undecodable(V1alpha1, body, err)
	}
	if err := checkKind(V1alpha1, a.typeMeta, body); err != nil {
		return nil, err
	}
	return &Response{Allowed: a.Status.Allowed, Result: a.Status.Result}, nil
}

func gvk(v Version) schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: Group, Version: string(v), Kind: "AdmissionReview"}
}

// checkKind rejects answers with a kind or version other than AdmissionReview of version v. It
// accepts answers without kind or version (S4.5, S12.6).
func checkKind(v Version, m typeMeta, body []byte) error {
	want := gvk(v)
	got, err := schema.ParseGroupVersion(m.APIVersion)
	if err != nil {
		return err
	}
	if m.APIVersion == "" {
		got = want.GroupVersion()
	}
	kind := m.Kind
	if kind == "" {
		kind = want.Kind
	}
	switch {
	case kind == "Status":
		return statusInstead(body)
	case kind == want.Kind && got == want.GroupVersion():
		return nil
	case kind == want.Kind && got.Group == Group && isKnown(got.Version):
		return fmt.Errorf("converting (%s.AdmissionReview) to (%s.AdmissionReview): unknown conversion", got.Version, v)
	}
	return fmt.Errorf("no kind %q is registered for version %q: asked for an AdmissionReview of %s", kind, got.String(), want.GroupVersion())
}

func isKnown(version string) bool {
	_, ok := Choose([]string{version})
	return ok
}

// undecodable returns the error for a body that is not an answer: the wrong kind, if it has one, or
// else cause.
func undecodable(v Version, body []byte, cause error) error {
	var m typeMeta
	if kjson.UnmarshalCaseSensitivePreserveInts(body, &m) == nil {
		if err := checkKind(v, m, body); err != nil {
			return err
		}
	}
	return fmt.Errorf("the answer is not an AdmissionReview of %s/%s: %w", Group, v, cause)
}

// statusInstead decodes a Status object that was sent instead of a review.
func statusInstead(body []byte) error {
	s, err := decodeStatus(body, http.StatusInternalServerError)
	if err != nil {
		return fmt.Errorf("the answer is a Status that does not decode: %w", err)
	}
	if s.Status == metav1.StatusSuccess {
		return errAbsent
	}
	if s.Message == "" {
		s.Message = "the answer is a Status without a message, not an AdmissionReview"
	}
	return &apierrors.StatusError{ErrStatus: *s}
}

// decodeStatus decodes a Status; code is the default for its code.
func decodeStatus(body []byte, code int32) (*metav1.Status, error) {
	var s metav1.Status
	if err := kjson.UnmarshalCaseSensitivePreserveInts(body, &s); err != nil {
		return nil, err
	}
	if s.Kind != "" && s.Kind != "Status" {
		return nil, errors.New("kind is not Status")
	}
	if s.Code == 0 {
		s.Code = code
	}
	return &s, nil
}

// maxText bounds, in bytes, the part of a webhook's text answer that an error quotes.
const maxText = 2048

// httpError returns the error for an unexpected HTTP status: the message of a Status in the body,
// or else the default message of client-go (S7.4, S7.5).
func httpError(status int, media string, body []byte) error {
	if s, err := decodeStatus(body, int32(status)); err == nil && s.Status == metav1.StatusFailure && s.Message != "" {
		return &apierrors.StatusError{ErrStatus: *s}
	}
	text := "unknown"
	if media == "" || strings.HasPrefix(media, "text/") {
		if len(body) > maxText {
			body = body[:maxText]
		}
		text = strings.TrimSpace(string(body))
	}
	err := apierrors.NewGenericServerResponse(status, http.MethodPost, schema.GroupResource{}, "", text, 0, true)
	if status >= 300 && status < 400 {
		err.ErrStatus.Message = fmt.Sprintf("the server responded with the status code %d: redirects are not followed", status)
	}
	if err.ErrStatus.Message == "" {
		err.ErrStatus.Message = fmt.Sprintf("the server responded with the status code %d but did not return more information", status)
	}
	return err
}
