package call

import (
	"fmt"
	"net/http"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/gatehouse-dev/gatehouse/admission/registration"
)

// Class says at which step a webhook failed. It fixes the first words of the error
// and the code that metrics report (S7.4).
type Class uint8

const (
	// NoVersion: the hook lists no AdmissionReview version that is known here.
	NoVersion Class = iota + 1
	// Client: the hook cannot be called as it is configured, such as with a CA
	// bundle that is not PEM, or with credentials that cannot be used.
	Client
	// Transport: there is no complete answer, because there was no connection, the certificate
	// is not trusted, the call timed out, or the connection broke.
	Transport
	// HTTPStatus: the answer is an HTTP error, or a Status instead of a review.
	HTTPStatus
	// Answer: the answer is not an AdmissionReview of the version asked for.
	Answer
	// Invalid: the answer is a review that breaks one of S4.6 to S4.9.
	Invalid
	// PatchType: a v1 webhook returned a patch of an unknown type.
	PatchType
	// PatchUndecodable: the patch is not a JSON patch.
	PatchUndecodable
	// PatchFailed: the patch does not apply, or its result is not an object of the
	// kind (S5.6, S7.15).
	PatchFailed
	// SideEffects: the request is a dry run, and the hook does not declare whether it has side
	// effects.
	SideEffects
	// Panic: the code that called the webhook panicked (S7.12).
	Panic
	// CircuitOpen: the webhook server was not called, because it could not be
	// reached several times in a row.
	CircuitOpen
	// Busy: the webhook server was not called, because too many calls of it are
	// running.
	Busy
	// NoRoom: the answer or its patch was not used, because answers of webhooks take too much
	// memory already (S4.22).
	NoRoom
)

// classes holds what S7.4 fixes for each class.
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

// Error is the one type for a webhook that failed: it could not be called, did not
// answer, or gave an answer that cannot be used. A denial is not an Error. The
// hook's failure policy decides what becomes of the request (S7.1).
type Error struct {
	// Hook is the webhook that failed.
	Hook *registration.Entry
	Failure
}

// Failure says at which step a webhook of any kind failed, and how.
type Failure struct {
	// To is where the webhook is.
	To *registration.ClientConfig
	// Class is the step it failed at.
	Class Class
	// URL is the URL that was called, with its timeout parameter; empty when no URL was called.
	URL string
	// Endpoints are the addresses that were tried, in order; only for services
	// that a resolver knows.
	Endpoints []string
	// Cause is what happened.
	Cause error
	// Code is the code that metrics report, an HTTP status (last column of S7.4).
	Code int32
	// Elapsed is the time from the start of the call to its failure, and Limit
	// the time it was given; both zero when nothing was called.
	Elapsed, Limit time.Duration
	// RequestLimited reports whether Limit is the time that the API request had left, because
	// it was less than the hook's own timeout.
	RequestLimited bool
	// TimedOut reports whether Limit passed.
	TimedOut bool
	// ClientGone reports whether the API request was cancelled, so that the failure
	// says nothing about the webhook (S7.10).
	ClientGone bool
	// Dial reports whether no connection was made, hence nothing was sent.
	Dial bool
}

// Failed returns an Error of a hook that was not called, or failed after the call.
// The cause must not be nil.
func Failed(hook *registration.Entry, class Class, cause error) *Error {
	return &Error{Hook: hook, Failure: Failure{To: &hook.ClientConfig, Class: class, Cause: cause, Code: classes[class].code}}
}

// Unwrap returns the cause.
func (e *Failure) Unwrap() error { return e.Cause }

// Error returns what happened: the detail of S7.4, and then facts that the cause does not have.
// The text does not name the webhook; that of [Error.Status] does.
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

// maxText bounds, in bytes, what an error repeats of a cause: a webhook's server can
// put a megabyte into a status line or into the message of a Status.
const maxText = 2 << 10

// cut returns text, shortened to at most most bytes if it is longer.
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

// Status returns the rejection of an API request whose webhook failed and whose failure policy
// is Fail: code 500, reason InternalError, a message that names the webhook, its configuration
// and what to check (S7.2, S7.12, S7.15). With classes Busy and NoRoom, the status asks the client
// to retry. When the API request had no more time, the code is 504
// and the reason is Timeout (S7.8).
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

// busyRetrySeconds is after how many seconds a client may retry a request that was rejected
// because a webhook was busy.
const busyRetrySeconds = 1

// remedy says what an administrator can do next.
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
