package trace

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gatehouse-dev/gatehouse/admission/registration"
	"github.com/gatehouse-dev/gatehouse/internal/engine/exclusion"
	"github.com/gatehouse-dev/gatehouse/internal/engine/review"
)

// Request describes the API request, without its objects.
type Request struct {
	Operation   string
	Resource    schema.GroupVersionResource
	Subresource string
	Kind        schema.GroupVersionKind
	Namespace   string
	Name        string
	User        string
	DryRun      bool
}

// Trace records admission of one API request: every step of both passes and of all rounds, ordered
// by their end. A request about several objects, such as the deletion of a collection, has the
// steps of all objects.
//
// A Trace is safe for concurrent use. A run is read only once it was added, and refers to no data
// outside of the trace.
type Trace struct {
	// ID is the ID of the trace, and Start the arrival time of the request.
	ID    string
	Start time.Time
	// AuditID is the ID of the request in the audit log and in the log; empty if it has none. It is
	// set before the trace is shared.
	AuditID string
	// Audit is the audit log's information about the request; nil for a request to this process. It
	// is set before the trace is shared.
	Audit *Audit

	mu struct {
		sync.Mutex
		about   Subject
		known   bool
		several bool
		steps   []Step
		latency time.Duration
		late    func()
		// response is nil until the server has responded.
		response *Response
		// outcome is the outcome of a trace that was made from an audit log.
		outcome Outcome
	}
}

// Subject describes the API request as a whole.
type Subject struct {
	Request
	// UID is the uid of the object; empty if it is unknown, or for a request about several objects.
	UID types.UID
}

// Step is the work of one plugin in one pass.
type Step struct {
	Plugin string
	Pass   registration.Pass
	// Round is 0, or 1 when the mutating plugins run again (S5.16).
	Round int
	// Object is the namespace and name of the step's object.
	Object  types.NamespacedName
	Start   time.Time
	Latency time.Duration
	// Err is the error with which the plugin rejected the request; nil if the plugin allowed it.
	Err error
	// Change is the change of the object by a built-in admission plugin; nil if there was none.
	Change Change
	// Run is the run of a plugin for webhooks, policies or initializers; nil for a built-in
	// admission plugin.
	Run *Run
	// Known is the source of the step. An Unknown step belongs to the mutating or to the validating
	// webhook plugin.
	Known Known
}

// Change is the change of an object by a built-in admission plugin. Most changes are never read, so
// the request only copies the object, and the patch is computed when it is read.
type Change interface {
	// Patch returns the change as a JSON patch of the request's kind; nil if nothing changed.
	Patch() []byte
	// Edits returns the fields and the earlier values for the operations of that patch.
	Edits(patch []byte) []Edit
	// Size estimates the memory, in bytes, that the change keeps from being freed.
	Size() int
}

// Edit names the field that an operation of a patch changed, and its earlier value.
type Edit = review.Edit

// Patch returns the change by a built-in admission plugin as a JSON patch of the request's kind;
// nil if nothing changed.
func (s *Step) Patch() []byte {
	if s.Change == nil {
		return nil
	}
	return s.Change.Patch()
}

// New starts the trace of a request.
func New() *Trace {
	var random [8]byte
	binary.BigEndian.PutUint64(random[:], rand.Uint64())
	return &Trace{ID: hex.EncodeToString(random[:]), Start: time.Now()}
}

type contextKey struct{}

// NewContext returns a context that carries the trace of a request.
func NewContext(ctx context.Context, t *Trace) context.Context {
	return context.WithValue(ctx, contextKey{}, t)
}

// FromContext returns the trace in ctx; nil if there is none.
func FromContext(ctx context.Context) *Trace {
	t, _ := ctx.Value(contextKey{}).(*Trace)
	return t
}

// fewSteps is the number of steps of a request about a simple object. usualSteps is enough for most
// requests, including requests about pods.
const fewSteps, usualSteps = 2, 16

// Add adds a step.
func (t *Trace) Add(s Step) {
	t.mu.Lock()
	switch len(t.mu.steps) {
	case 0:
		t.mu.steps = make([]Step, 0, fewSteps)
	case fewSteps:
		t.mu.steps = slices.Grow(t.mu.steps, usualSteps-fewSteps)
	}
	t.mu.steps = append(t.mu.steps, s)
	late := t.mu.late
	t.mu.Unlock()
	if late != nil {
		late()
	}
}

// Note sets the subject of the trace. Only the first call sets it; later calls add facts that were
// unknown before, such as a generated name. If a later call has another object, the trace loses its
// name and uid.
func (t *Trace) Note(s Subject) {
	t.mu.Lock()
	defer t.mu.Unlock()
	about := &t.mu.about
	switch {
	case !t.mu.known:
		*about, t.mu.known = s, true
	case t.mu.several || about.Name != "" && s.Name != about.Name:
		t.mu.several, about.Name, about.UID = true, "", ""
	default:
		about.Name, about.UID = s.Name, s.UID
	}
}

// Subject returns a description of the request.
func (t *Trace) Subject() Subject {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.mu.known {
		// Note was not called: use the subject of a run.
		for i := range t.mu.steps {
			if run := t.mu.steps[i].Run; run != nil {
				return Subject{Request: run.Request}
			}
		}
	}
	return t.mu.about
}

// Late makes the trace call f after each step added from now on. Steps may still be added after the
// server answered a request because of its timeout.
func (t *Trace) Late(f func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.mu.late = f
}

// Len returns the number of steps so far.
func (t *Trace) Len() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.mu.steps)
}

// Judged reports whether admission of the request has begun. If nothing applied to the request, it
// has no steps.
func (t *Trace) Judged() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.mu.known || len(t.mu.steps) > 0
}

// Steps returns the steps so far.
func (t *Trace) Steps() []Step {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.mu.steps)
}

// Response is the response of the server to a request.
type Response struct {
	// Code is the HTTP status code.
	Code int
	// Reason and Message are copied from the Status of an error.
	Reason, Message string
}

// Respond sets the response to the request. Reason and message are truncated to MaxText bytes.
func (t *Trace) Respond(r Response) {
	r.Reason, r.Message = Cut(r.Reason, MaxText), Cut(r.Message, MaxText)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.mu.response = &r
}

// Response returns the response to the request; nil if it is unknown.
func (t *Trace) Response() *Response {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.mu.response
}

// Finish records the end of the request.
func (t *Trace) Finish() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.mu.latency = time.Since(t.Start)
}

// Latency returns the duration of the request; zero before Finish.
func (t *Trace) Latency() time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.mu.latency
}

// Own returns the duration of admission itself: the time of all steps, without the time spent
// waiting for webhooks.
func (t *Trace) Own() time.Duration {
	var own time.Duration
	for _, s := range t.Steps() {
		own += s.Latency
		if s.Run != nil {
			own -= s.Run.waiting()
		}
	}
	return max(own, 0)
}

// Run records one pass of a plugin for webhooks, policies or initializers over one object.
type Run struct {
	Request Request
	// Source is the source of the entries. It also determines the plugin and the pass.
	Source registration.Source
	// Round is 0, or 1 when the mutating plugins run again (S5.16).
	Round int
	// Revision and ReadAt identify the snapshot: the storage revision of the webhook configurations
	// and policies, and the time when reading them began.
	Revision string
	ReadAt   time.Time
	// Start and Latency cover the whole run.
	Start   time.Time
	Latency time.Duration

	// Calls are the selected webhooks, in the order in which their answers count. They include
	// webhooks whose call was refused beforehand.
	Calls []Call
	// Discarded are the calls that were made ahead of turn and whose answers were not used.
	Discarded []Call
	// Judgements are the results of policies, in order.
	Judgements []Judgement
	// Pending are the names of the initializers that were given to the object.
	Pending []string
	// Initializing are the names of the initializers whose turn it was when the request wrote an
	// uninitialized object: the completed initializers, or else the first ones. Written is the
	// change by the request as a JSON patch of the request's kind; nil if nothing changed. Edits
	// are the fields and earlier values for the operations of Written.
	Initializing []string
	Written      []byte
	Edits        []Edit
	// Conditions are the match conditions that were evaluated, in order.
	Conditions []Condition
	// Skips are the entries that were considered and did not apply, with the reason; nil unless
	// Options.Skips of package admission is set.
	Skips []Skip
	// Exclusions are the effects of the administrator's exclusion rules (S23.9).
	Exclusions []Exclusion
	// Err is the error that the plugin returned; nil if the plugin allowed the request.
	Err error
}

// Step returns the run as a step of a trace.
func (r *Run) Step() Step {
	d := r.Source.Descriptor()
	return Step{
		Plugin: d.Plugin, Pass: d.Pass, Round: r.Round, Start: r.Start, Latency: r.Latency, Err: r.Err, Run: r,
		Object: types.NamespacedName{Namespace: r.Request.Namespace, Name: r.Request.Name},
	}
}

// waiting returns the time during which at least one webhook call was running.
func (r *Run) waiting() time.Duration {
	calls := make([]*Call, 0, len(r.Calls))
	for i := range r.Calls {
		if c := &r.Calls[i]; c.UID != "" {
			calls = append(calls, c)
		}
	}
	slices.SortFunc(calls, func(a, b *Call) int { return a.Start.Compare(b.Start) })
	var sum time.Duration
	// A call ahead of turn may have begun before the run considered it.
	until := r.Start
	for _, c := range calls {
		begin, end := c.Start, c.Start.Add(c.Latency)
		if begin.Before(until) {
			begin = until
		}
		if end.After(begin) {
			sum += end.Sub(begin)
			until = end
		}
	}
	return sum
}

// Verdict is the result of a call.
type Verdict uint8

const (
	// Allowed: the webhook allowed the request.
	Allowed Verdict = iota
	// Denied: the webhook denied the request (S4.11).
	Denied
	// Failed: the webhook could not be called, or its answer was unusable. The failure policy
	// applies to this verdict only (S7.1).
	Failed
	// Refused: this server rejected the request for a reason of its own, such as a dry run that the
	// webhook does not support (S7.6). The failure policy does not apply.
	Refused
	// Unheard: the audit log does not contain the webhook's answer.
	Unheard
)

// String returns the verdict in lower case.
func (v Verdict) String() string {
	switch v {
	case Allowed:
		return "allowed"
	case Denied:
		return "denied"
	case Failed:
		return "failed"
	case Refused:
		return "refused"
	case Unheard:
		return "unknown"
	}
	panic(fmt.Sprintf("unknown verdict %d", v))
}

// Turn is the time of a webhook call relative to its turn in the order of webhooks.
type Turn uint8

const (
	// InTurn: called after all earlier webhooks and policies had answered.
	InTurn Turn = iota
	// Ahead: called before its turn, with the object that it would have received in turn.
	Ahead
	// Again: called before its turn, and once more in turn, because the object had changed in
	// between. The first answer was discarded.
	Again
)

// String names the turn.
func (t Turn) String() string { return [...]string{"InTurn", "Ahead", "Again"}[t] }

// Fate is the use of a call's answer.
type Fate uint8

const (
	// Used: the answer was used.
	Used Fate = iota
	// Superseded: the webhook was called ahead of its turn, and the object changed before the turn
	// came.
	Superseded
	// NotReached: the webhook was called ahead of its turn, and the request was rejected before the
	// turn came, or no longer needed the webhook.
	NotReached
)

// String names the fate.
func (f Fate) String() string { return [...]string{"Used", "Superseded", "NotReached"}[f] }

// Call is one call of one webhook.
type Call struct {
	// Known is the source of the call.
	Known Known
	// EntryKnown is the source of the webhook configuration in Entry, if it differs from Known.
	EntryKnown Known
	// Entry is the webhook, and FailurePolicy its failure policy.
	Entry         registration.Origin
	FailurePolicy registration.FailurePolicy
	// Position is the webhook's index among all webhooks of its source; Matched is its index among
	// the webhooks that matched the request.
	Position int
	Matched  int
	// Rule is the index of the rule that matched. Kind, Resource and Subresource are copied from
	// the review; Equivalent reports whether they differ from the request's own (S2.24).
	Rule        int
	Kind        schema.GroupVersionKind
	Resource    schema.GroupVersionResource
	Subresource string
	Equivalent  bool

	// ReviewVersion is the version of the AdmissionReview that was sent, and UID the uid of the
	// review; both are empty if no review was sent.
	ReviewVersion string
	UID           types.UID
	Start         time.Time
	Latency       time.Duration
	Turn          Turn
	// Sent reports whether the whole review was written to a connection.
	Sent bool
	// Fate is the use of the answer.
	Fate Fate
	// Host is the host for which the webhook's certificate must be valid; empty if no certificate
	// was seen. Deprecated lists the deprecated properties of the certificate.
	Host       string
	Deprecated []string

	Verdict Verdict
	// Code is the HTTP status code of the outcome: 200 when allowed, the code of the denial
	// when denied, the code of the cause when the call failed, and 0 when refused (S10.2).
	Code int
	// Err is the reason of any verdict except Allowed.
	Err error
	// Ignored reports whether the call failed and the request continued without it.
	Ignored bool
	// Enforcement is the enforcement of the webhook.
	Enforcement Enforcement
	// ClientGone reports whether the call failed because the client closed the request (S7.10).
	ClientGone bool
	// Skipped reports whether the webhook was not called because its server had been unreachable
	// several times in a row.
	Skipped bool
	// Class is the step at which a call failed, such as "Transport". Reason is the Code of package
	// plan for the failure, if there is one.
	Class  string
	Reason string
	// Panic is the value of a panic in the call, and Stack the stack of the panic; nil if the call
	// did not panic.
	Panic any
	Stack []byte

	// Patch is the JSON patch that was applied; nil if there was none, or it was empty. Mutated
	// reports whether the patch changed the object (S5.5); if so, Edits are the fields and earlier
	// values for its operations.
	Patch   []byte
	Edits   []Edit
	Mutated bool
	// WouldPatch is the JSON patch with which a webhook that is not enforced would have changed the
	// object, and Edits are the fields and earlier values for its operations; nil if there was
	// none. The patch was not applied (S28.7).
	WouldPatch []byte
	// Warnings and AuditAnnotations are copied from the webhook's answer.
	Warnings         []string
	AuditAnnotations map[string]string
}

// Rejected reports whether the plugin rejected the request because of the call.
func (c *Call) Rejected() bool {
	return c.Verdict != Allowed && c.Verdict != Unheard && !c.Ignored && !c.Enforcement.Mode.Soft()
}

// Spared reports whether the plugin would have rejected the request because of the call if the
// webhook were enforced.
func (c *Call) Spared() bool {
	return c.Verdict != Allowed && !c.Ignored && c.Enforcement.Mode.Soft()
}

// sparedBefore reports whether a webhook that is not enforced was not called because one of its
// tests failed with an error. An enforced webhook in this case is not among the calls.
func (c *Call) sparedBefore() bool {
	return c.UID == "" && c.Class == "" && c.Reason == "" && c.Spared()
}

// Condition is one evaluation of a webhook's match conditions.
type Condition struct {
	// Known is the source of the evaluation.
	Known Known
	Entry registration.Origin
	// Latency is the duration of the evaluation.
	Latency time.Duration
	// Errors counts the expressions that failed (S2.33).
	Errors int
	// Excluded reports whether the webhook was not called because of its conditions: a condition
	// was false, or the conditions failed with Err and the failure policy is Ignore (S2.32).
	Excluded bool
	Err      error
}

// Skip is an entry that did not apply.
type Skip struct {
	Entry registration.Origin
	// Code is the name of the test that the entry failed, a Code of package plan.
	Code string
	// Reason is a sentence for people.
	Reason string
}

// Exclusion is the effect of one exclusion rule of the administrator.
type Exclusion struct {
	// Rule is the name of the rule, and Effect its effect: skip, ignoreFailures or
	// capTimeout.
	Rule, Effect string
	// Entries are the entries that were skipped, whose failures were ignored, or whose timeouts
	// were shortened.
	Entries []registration.Origin
}

// Did describes the effect of the rule, for people.
func (x *Exclusion) Did() string {
	switch exclusion.Effect(x.Effect) {
	case exclusion.Skip:
		return "skipped"
	case exclusion.IgnoreFailures:
		return "ignored the failure of"
	}
	return "cut the time of"
}

// DeniedCause is the type of a rejection's causes; there is one for each further webhook that
// rejects the same request (S6.4).
const DeniedCause metav1.CauseType = "AdmissionWebhookDenied"
