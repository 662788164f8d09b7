package call

import (
	"fmt"
	"net/http"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/gatehouse-dev/gatehouse/admission/registration"
)

// Class is the step at which a webhook failed. It determines the first words of the error and the
// code in metrics (S7.4).
type Class uint8

const (
	// NoVersion: the webhook lists no supported AdmissionReview version.
	NoVersion Class = iota + 1
	// Client: the configuration of the webhook is unusable, such as a CA bundle that is not PEM, or
	// unusable credentials.
	Client
	// Transport: there is no complete answer, because there was no connection, the certificate is
	// not trusted, the call timed out, or the connection broke.
	Transport
	// HTTPStatus: the answer is an HTTP error, or a Status instead of a review.
	HTTPStatus
	// Answer: the answer is not an AdmissionReview of the requested version.
	Answer
	// Invalid: the answer is a review that violates one of S4.6 to S4.9.
	Invalid
	// PatchType: a v1 webhook returned a patch of an unknown type.
	PatchType
	// PatchUndecodable: the patch is not a JSON patch.
	PatchUndecodable
	// PatchFailed: the patch does not apply, or its result is not an object of the kind (S5.6,
	// S7.15).
	PatchFailed
	// SideEffects: the request is a dry run, and the webhook does not declare whether it has side
	// effects.
	SideEffects
	// Panic: the code that called the webhook panicked (S7.12).
	Panic
	// CircuitOpen: the webhook server was not called, because it had been unreachable several times
	// in a row.
	CircuitOpen
	// Busy: the webhook server was not called, because too many calls of it are running.
	Busy
	// NoRoom: the answer or its patch was not used, because answers of webhooks already take too
	// much memory (S4.22).
	NoRoom
)

// classes has the properties of each class in S7.4.
var classes = [...]struct {
	name    string
	opening string
	code    int32
}{
	NoVersion:        {"NoVersion", "could not create admission objects: ", http.StatusBadRequest},
	Client:           {"Client", "could not get REST client: ", http.StatusInternalServerError},
	Transport:        {"Transport", "failed to call webhook: ", http.StatusServiceUnavailable},
	HTTPStatus:       {"HTTPStatus", "failed to call webhook: ", http.StatusInternalServerError},
	Answer:           {"Answer", "failed to call webhook: ", http.StatusServiceUnavailable},
	Invalid:          {"Invalid", "received invalid webhook response: ", http.StatusServiceUnavailable},
	PatchType:        {"PatchType", "", http.StatusBadRequest},
	PatchUndecodable: {"PatchUndecodable", "received undecodable patch in webhook response: ", http.StatusServiceUnavailable},
	PatchFailed:      {"PatchFailed", "", http.StatusServiceUnavailable},
	SideEffects:      {"SideEffects", "", http.StatusBadRequest},
	Panic:            {"Panic", "", http.StatusInternalServerError},
	CircuitOpen:      {"CircuitOpen", "not called: ", http.StatusServiceUnavailable},
	Busy:             {"Busy", "not called: ", http.StatusServiceUnavailable},
	NoRoom:           {"NoRoom", "there is no memory for the answer: ", http.StatusServiceUnavailable},
}

// String returns the name of the constant.
func (c Class) String() string { return classes[c].name }

// Error is the one type for a webhook that failed: it could not be called, did not answer, or gave
// an unusable answer. A denial is not an Error. The webhook's failure policy determines the effect
// on the request (S7.1).
type Error struct {
	// Hook is the webhook that failed.
	Hook *registration.Entry
	Failure
}

// Failure describes the failure of a webhook of any kind.
type Failure struct {
	// To is the address of the webhook.
	To *registration.ClientConfig
	// Class is the step at which the webhook failed.
	Class Class
	// URL is the called URL, with its timeout parameter; empty if no URL was called.
	URL string
	// Endpoints are the addresses that were tried, in order; only for services known to a resolver.
	Endpoints []string
	// Cause is the underlying error.
	Cause error
	// Code is the HTTP status in metrics (last column of S7.4).
	Code int32
	// Elapsed is the time from the start of the call to its failure, and Limit the time limit; both
	// are zero if no call was made.
	Elapsed, Limit time.Duration
	// RequestLimited reports whether Limit is the remaining time of the API request, because it was
	// less than the webhook's own timeout.
	RequestLimited bool
	// TimedOut reports whether the call exceeded Limit.
	TimedOut bool
	// ClientGone reports whether the API request was cancelled, so that the webhook is not the
	// cause of the failure (S7.10).
	ClientGone bool
	// Dial reports whether no connection was made, and therefore nothing was sent.
	Dial bool
}

// Failed returns an Error of a webhook that was not called, or failed after the call. The cause
// must not be nil.
func Failed(hook *registration.Entry, class Class, cause error) *Error {
	return &Error{Hook: hook, Failure: Failure{To: &hook.ClientConfig, Class: class, Cause: cause, Code: classes[class].code}}
}

// Unwrap returns the cause.
func (e *Failure) Unwrap() error { return e.Cause }

// Error returns the detail of S7.4, and then facts that the cause does not contain. The text does
// not name the webhook; the text of [Error.Status] does.
func (e *Failure) Error() string {
	var b strings.Builder
	b.WriteString(classes[e.Class].opening)
	if e.URL != "" && e.Class == Transport {
		fmt.Fprintf(&b, "Post %q: ", e.URL)
	}
	e.explain(&b)
	return b.String()
}

// reason returns the text of Error from the cause on.
func (e *Failure) reason() string {
	var b strings.Builder
	e.explain(&b)
	return b.String()
}

func (e *Failure) explain(b *strings.Builder) {
	b.WriteString(cut(e.Cause.Error(), maxText))
	switch {
	case e.ClientGone:
		b.WriteString("; the API request was cancelled by its client")
	case e.TimedOut:
		what, which := "answer", "timeoutSeconds of the webhook"
		switch {
		case e.Dial:
			what = "connection"
		case e.Class == PatchFailed:
			what = "result"
		}
		if e.RequestLimited {
			which = "the time that the API request had left"
		}
		fmt.Fprintf(b, "; no %s within %s, %s", what, e.Limit.Round(time.Millisecond), which)
	case e.Class == Transport && isCertificateError(e.Cause):
		fmt.Fprintf(b, "; the certificate must be valid for %s and signed by %s", serverName(e.To), roots(e.To))
	}
	switch len(e.Endpoints) {
	case 0:
	case 1:
		fmt.Fprintf(b, "; endpoint %s", e.Endpoints[0])
	default:
		fmt.Fprintf(b, "; endpoints tried: %s", strings.Join(e.Endpoints, ", "))
	}
}

// maxText bounds, in bytes, the quoted part of a cause: a webhook server can put a megabyte into a
// status line or into the message of a Status.
const maxText = 2 << 10

// cut truncates text to at most most bytes.
func cut(text string, most int) string {
	if len(text) <= most {
		return text
	}
	const more = "..."
	return strings.ToValidUTF8(text[:most-len(more)], "") + more
}

func roots(to *registration.ClientConfig) string {
	if len(to.CABundle) > 0 {
		return "clientConfig.caBundle"
	}
	return "a root of the system, since clientConfig.caBundle is empty"
}

// Status returns the rejection of an API request whose webhook failed and whose failure policy is
// Fail: code 500, reason InternalError, and a message with the webhook, its configuration and a
// remedy (S7.2, S7.12, S7.15). With classes Busy and NoRoom, the status asks the client to retry.
// If the API request had no more time, the code is 504 and the reason is Timeout (S7.8).
func (e *Error) Status() *apierrors.StatusError {
	h := e.Hook
	opening := fmt.Sprintf("failed calling webhook %q: ", h.Name)
	switch e.Class {
	case PatchFailed:
		opening = fmt.Sprintf("admission webhook %q returned a patch that could not be applied: ", h.Name)
	case Panic:
		opening = fmt.Sprintf("%s/%s has panicked: ", h.Source.Descriptor().Plugin, h.Name)
	}
	failure := fmt.Errorf("%s%w; %s %q, webhook %d; failurePolicy is %s: the request was rejected%s",
		opening, e, h.Source, h.Configuration, h.Index+1, h.FailurePolicy, e.remedy())
	if e.RequestLimited && e.TimedOut && !e.ClientGone {
		return apierrors.NewTimeoutError("request did not complete within the allotted timeout: "+failure.Error(), 0)
	}
	status := apierrors.NewInternalError(failure)
	if e.Class == Busy || e.Class == NoRoom {
		status.ErrStatus.Details.RetryAfterSeconds = busyRetrySeconds
	}
	return status
}

// busyRetrySeconds is the number of seconds after which a client may retry a request that was
// rejected because a webhook was busy.
const busyRetrySeconds = 1

// remedy returns advice for the administrator.
func (e *Error) remedy() string {
	switch e.Class {
	case NoVersion:
		return `; add "v1" or "v1beta1" to admissionReviewVersions`
	case Client:
		return "; correct clientConfig or the credentials for it"
	case SideEffects:
		return "; set sideEffects of the webhook"
	case Busy:
		return "; the webhook is too slow for its load: add replicas or shorten timeoutSeconds"
	case Transport, CircuitOpen:
		if isCertificateError(e.Cause) {
			return "; renew the certificate or correct clientConfig.caBundle"
		}
		if s := e.Hook.ClientConfig.Service; s != nil {
			return fmt.Sprintf("; check the pods behind service %s/%s", s.Namespace, s.Name)
		}
		return "; check that a server answers at that URL"
	case NoRoom:
		return "; the webhook should answer less, such as only the changes of the object"
	case Panic:
		return ""
	}
	return "; the log of the webhook may say more"
}
