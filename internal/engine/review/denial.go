package review

import (
	"fmt"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Denial returns the API error of a response that is not allowed: the webhook's own status,
// unchanged except that the code is at least 400 and the message names the webhook (S4.11, S4.12).
// Codes of 1000 and more cannot be sent over HTTP and become 500 (S4.14). The response is not
// changed.
func Denial(hookName string, r *Response) *apierrors.StatusError {
	status := metav1.Status{}
	if r.Result != nil {
		status = *r.Result
	}
	switch {
	case status.Code < http.StatusBadRequest:
		status.Code = http.StatusBadRequest
	case status.Code > 999:
		status.Code = http.StatusInternalServerError
	}
	if status.Status == "" || status.Status == metav1.StatusSuccess {
		status.Status = metav1.StatusFailure
	}
	switch {
	case status.Message != "":
		status.Message = fmt.Sprintf("admission webhook %q denied the request: %s", hookName, status.Message)
	case status.Reason != "":
		status.Message = fmt.Sprintf("admission webhook %q denied the request: %s", hookName, status.Reason)
	default:
		status.Message = fmt.Sprintf("admission webhook %q denied the request without explanation", hookName)
	}
	return &apierrors.StatusError{ErrStatus: status}
}
