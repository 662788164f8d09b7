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

// Request says what the API request was about. It holds no objects.
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

// Trace is what admission did with one API request: every step of both passes and of
// all rounds, in the order in which they ended. A request about several objects, such
// as the deletion of a collection, has the steps of all of them.
//
// A Trace is safe for concurrent use. A run is read-only once it was added, and refers to
// nothing outside of the trace.
type Trace struct {
	// ID names the trace, Start is when the request came.
	ID    string
	Start time.Time
	// AuditID is the ID that the request has in the audit log and in the log; empty if it has
	// none. It is set before the trace is shared.
	AuditID string
	// Audit is what an audit log says of the request; nil for a request that this process judged.
	// It is set before the trace is shared.
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
		// outcome is that of a trace that was made of an audit log.
		outcome Outcome
	}
}

// Subject is what an API request was about, as a whole.
type Subject struct {
	Request
	// UID is the uid of the object; empty when it is not known, or when the request was
	// about several objects.
	UID types.UID
}

// Step is what one plugin did in one pass.
type Step struct {
	Plugin string
	Pass   registration.Pass
	// Round is 0, or 1 when the mutating plugins are run again (S5.16).
	Round int
	// Object is the namespace and name of the object that the step was about.
	Object  types.NamespacedName
	Start   time.Time
	Latency time.Duration
	// Err is the error with which the plugin rejected the request; nil means that the request
	// may go on.
	Err error
	// Change is what a compiled-in plugin changed in the object; nil if it changed nothing.
	Change Change
	// Run is what a plugin that acts on registrations did; nil for a compiled-in plugin.
	Run *Run
	// Known says how the step is known. A step that is Unknown was taken by the mutating or by the
	// validating webhook plugin.
	Known Known
}

// Change is what a compiled-in plugin changed in an object. Most changes are never read. So the
// request only copies the object, and the patch is computed when it is read.
type Change interface {
	// Patch returns the change as a JSON patch of the request's kind; nil if nothing changed.
	Patch() []byte
	// Edits describes the operations of that patch, with the fields and the earlier values.
	Edits(patch []byte) []Edit
	// Size returns about how many bytes of memory the change keeps from being freed.
	Size() int
}

// Edit names the field that an operation of a patch changed, and its earlier value.
type Edit = review.Edit

// Patch returns what a compiled-in plugin changed in the object, as a JSON patch of the
// request's kind; nil if it changed nothing.
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

// FromContext returns the trace that ctx carries, nil if it carries none.
func FromContext(ctx context.Context) *Trace {
	t, _ := ctx.Value(contextKey{}).(*Trace)
	return t
}

// fewSteps is the number of steps of a request about a simple object. usualSteps is enough for
// most requests, also those about pods.
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

// Note sets the subject of the trace. The first call counts. A later call adds what was not
// known before, such as a generated name. If a later call is about another object, the trace
// has no name and no uid.
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

// Subject returns what the request was about.
func (t *Trace) Subject() Subject {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.mu.known {
		// Note was not called: take the subject of a run.
		for i := range t.mu.steps {
			if run := t.mu.steps[i].Run; run != nil {
				return Subject{Request: run.Request}
			}
		}
	}
	return t.mu.about
}

// Late makes the trace call f after each step that is added from now on. Steps may still be
// added when the server answered a request because its time was over.
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

// Judged reports whether admission has begun to judge the request. A judged request has no
// steps when nothing applies to it.
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
	// Reason and Message are those of the Status of an error.
	Reason, Message string
}

// Respond sets the response to the request. The message is cut to MaxText bytes.
func (t *Trace) Respond(r Response) {
	r.Reason, r.Message = Cut(r.Reason, MaxText), Cut(r.Message, MaxText)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.mu.response = &r
}

// Response returns the response to the request; nil if it is not known.
func (t *Trace) Response() *Response {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.mu.response
}

// Finish notes that the request was answered.
func (t *Trace) Finish() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.mu.latency = time.Since(t.Start)
}

// Latency is how long the request took in all; zero before Finish.
func (t *Trace) Latency() time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.mu.latency
}

// Own returns how long admission itself took: the time of all steps, without the time in which
// it waited for a webhook's answer.
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

// Run is what a plugin that acts on registrations did in one pass over one object.
type Run struct {
	Request Request
	// Source is the source of the entries that acted. It also determines the plugin and the
	// pass.
	Source registration.Source
	// Round is 0, or 1 when the mutating plugins are run again (S5.16).
	Round int
	// Revision and ReadAt identify the snapshot that was used: the storage revision of the
	// registrations, and when their read began.
	Revision string
	ReadAt   time.Time
	// Start and Latency cover the whole run.
	Start   time.Time
	Latency time.Duration

	// Calls are the webhooks that were selected, in the order in which their answers count.
	// Webhooks whose call was refused beforehand are among them.
	Calls []Call
	// Discarded are the calls that were made ahead of turn and whose answers were not
	// used.
	Discarded []Call
	// Judgements are what policies did, in order.
	Judgements []Judgement
	// Pending are the names of the initializers that the object got.
	Pending []string
	// Initializing are the names of the initializers whose turn it was when the request wrote
	// an uninitialized object: those that it completed, or else the first ones. Written is what
	// the request changed in the object, as a JSON patch of the request's kind; nil if it
	// changed nothing. Edits describe the operations of Written.
	Initializing []string
	Written      []byte
	Edits        []Edit
	// Conditions are the match conditions that were evaluated, in order.
	Conditions []Condition
	// Skips are the entries that were looked at and did not apply, with the reason, if
	// Options.Skips of package admission is set; otherwise nil.
	Skips []Skip
	// Exclusions are what the administrator's rules did (S23.9).
	Exclusions []Exclusion
	// Err is the error that the plugin returned; nil means that the request may go on.
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

// waiting returns for how long at least one call of a webhook was running.
func (r *Run) waiting() time.Duration {
	calls := make([]*Call, 0, len(r.Calls))
	for i := range r.Calls {
		if c := &r.Calls[i]; c.UID != "" {
			calls = append(calls, c)
		}
	}
	slices.SortFunc(calls, func(a, b *Call) int { return a.Start.Compare(b.Start) })
	var sum time.Duration
	// A call that was made ahead of its turn may have begun before the run looked at it.
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
	// Allowed: the webhook answered and has no objection.
	Allowed Verdict = iota
	// Denied: the webhook answered and objects (S4.11).
	Denied
	// Failed: the webhook could not be called, or its answer cannot be used. The failure policy
	// applies to this verdict only (S7.1).
	Failed
	// Refused: the request is rejected for a reason of this server's own, such
	// as a dry run that the webhook does not support (S7.6). The failure policy
	// does not apply.
	Refused
	// Unheard: an audit log does not say what the webhook answered.
	Unheard
)

// String names the verdict in lower case.
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

// Turn says when a hook was called, relative to its turn in the order of hooks.
type Turn uint8

const (
	// InTurn: called when everything before it had answered.
	InTurn Turn = iota
	// Ahead: called before its turn, with the object that it would have got.
	Ahead
	// Again: called before its turn, and once more in turn, because the object had changed in
	// between. The first answer was discarded.
	Again
)

// String names the turn.
func (t Turn) String() string { return [...]string{"InTurn", "Ahead", "Again"}[t] }

// Fate is what became of the answer of a call.
type Fate uint8

const (
	// Used: the answer counts.
	Used Fate = iota
	// Superseded: the webhook was called ahead of its turn, and the object changed
	// before the turn came.
	Superseded
	// NotReached: the webhook was called ahead of its turn, and the request was rejected
	// before the turn came, or did not need the webhook any more.
	NotReached
)

// String names the fate.
func (f Fate) String() string { return [...]string{"Used", "Superseded", "NotReached"}[f] }

// Call is one call of one webhook.
type Call struct {
	// Known says how the call is known.
	Known Known
	// EntryKnown says how the configuration of Entry is known, if otherwise than the call.
	EntryKnown Known
	// Entry is the webhook, FailurePolicy its policy.
	Entry         registration.Origin
	FailurePolicy registration.FailurePolicy
	// Position is the hook's place among all hooks of its source, from 0;
	// Matched is its place among those that matched this request.
	Position int
	Matched  int
	// Rule is the index of the rule that matched. Kind, Resource and
	// Subresource are what the review said the request is about; Equivalent
	// reports whether this differs from the request's own (S2.24).
	Rule        int
	Kind        schema.GroupVersionKind
	Resource    schema.GroupVersionResource
	Subresource string
	Equivalent  bool

	// ReviewVersion is the version of the AdmissionReview that was sent, and UID the review's
	// uid; both are empty when no review was sent.
	ReviewVersion string
	UID           types.UID
	Start         time.Time
	Latency       time.Duration
	Turn          Turn
	// Sent reports whether the whole review was written to a connection.
	Sent bool
	// Fate says whether the answer was used.
	Fate Fate
	// Host is the host that the webhook's certificate has to be valid for; empty when the
	// certificate was not seen. Deprecated names what is deprecated about the certificate.
	Host       string
	Deprecated []string

	Verdict Verdict
	// Code is the HTTP status code of the outcome: 200 when allowed, the code of the denial
	// when denied, the code of the cause when the call failed, and 0 when refused (S10.2).
	Code int
	// Err is why the call did not end as allowed.
	Err error
	// Ignored reports whether the call failed and the request went on without it.
	Ignored bool
	// Enforcement says how hard the webhook was.
	Enforcement Enforcement
	// ClientGone reports whether the call failed because the client no longer waited for the
	// request (S7.10).
	ClientGone bool
	// Skipped reports whether the webhook was not called because its server could not be
	// reached several times in a row.
	Skipped bool
	// Class names the step at which a call failed, such as "Transport". Reason is the Code of
	// package plan for the failure, if there is one.
	Class  string
	Reason string
	// Panic is the value that the call panicked with, and Stack the stack of the panic; nil
	// when the call did not panic.
	Panic any
	Stack []byte

	// Patch is the JSON patch that was applied; nil when there was none, or it was empty.
	// Mutated reports whether the patch changed the object (S5.5); if so, Edits describe its
	// operations.
	Patch   []byte
	Edits   []Edit
	Mutated bool
	// WouldPatch is the JSON patch with which a soft webhook would have changed the object, and
	// Edits describe its operations; nil when there was none. The patch was not applied
	// (S28.7).
	WouldPatch []byte
	// Warnings and AuditAnnotations are those of the webhook's answer, unchanged.
	Warnings         []string
	AuditAnnotations map[string]string
}

// Rejected reports whether the call made the plugin reject the request.
func (c *Call) Rejected() bool {
	return c.Verdict != Allowed && c.Verdict != Unheard && !c.Ignored && !c.Enforcement.Mode.Soft()
}

// Spared reports whether the plugin would have rejected the request because of the call if the
// webhook were hard.
func (c *Call) Spared() bool {
	return c.Verdict != Allowed && !c.Ignored && c.Enforcement.Mode.Soft()
}

// sparedBefore reports whether a soft webhook was not called because one of its tests could not
// be made. A hard webhook in this case is not among the calls.
func (c *Call) sparedBefore() bool {
	return c.UID == "" && c.Class == "" && c.Reason == "" && c.Spared()
}

// Condition is one evaluation of a hook's match conditions.
type Condition struct {
	// Known says how the evaluation is known.
	Known Known
	Entry registration.Origin
	// Latency is how long the evaluation took.
	Latency time.Duration
	// Errors counts the expressions that failed (S2.33).
	Errors int
	// Excluded reports whether the hook was not called because of its conditions:
	// one was false, or they failed and the failure policy is Ignore (S2.32). In
	// the latter case, Err is how.
	Excluded bool
	Err      error
}

// Skip is an entry that does not apply.
type Skip struct {
	Entry registration.Origin
	// Code names the test that the entry failed, as package plan does.
	Code string
	// Reason is a sentence for people.
	Reason string
}

// Exclusion is what an exclusion rule of the administrator did to entries.
type Exclusion struct {
	// Rule is the name of the rule, and Effect its effect: skip, ignoreFailures or
	// capTimeout.
	Rule, Effect string
	// Entries are the entries that were skipped, whose failures were ignored, or whose webhooks
	// had less time than they ask for.
	Entries []registration.Origin
}

// Did says what the rule did, for people.
func (x *Exclusion) Did() string {
	switch exclusion.Effect(x.Effect) {
	case exclusion.Skip:
		return "skipped"
	case exclusion.IgnoreFailures:
		return "ignored the failure of"
	}
	return "cut the time of"
}

// DeniedCause is the type of the causes of a rejection; there is one for each further webhook
// that rejects the same request (S6.4).
const DeniedCause metav1.CauseType = "AdmissionWebhookDenied"
