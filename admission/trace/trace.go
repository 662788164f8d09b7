package trace

import (
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gatehouse-dev/gatehouse/admission/registration"
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

// Trace is what happened in one pass of one webhook plugin over one request.
type Trace struct {
	Request Request
	// Source says which hooks were run, and with them the pass.
	Source registration.Source
	// Round is 0, or 1 when the mutating plugins are run again (S5.16).
	Round int
	// Revision and ReadAt tell the snapshot that was used: the storage revision
	// of the registrations, and when the read that gave them began.
	Revision string
	ReadAt   time.Time
	// Start and Latency are of the whole pass.
	Start   time.Time
	Latency time.Duration

	// Calls are the hooks that were selected, in the order in which their
	// answers count. A hook whose call was refused beforehand is among them.
	Calls []Call
	// Conditions are the match conditions that were evaluated, in order.
	Conditions []Condition
	// Skips are the hooks that were looked at and not called, with the reason,
	// when the trace was asked for them; otherwise nil.
	Skips []Skip
	// Err is what the plugin returned; nil means the request may go on.
	Err error
}

// Verdict is what came of a call.
type Verdict uint8

const (
	// Allowed: the webhook was asked and has no objection.
	Allowed Verdict = iota
	// Denied: the webhook was asked and objects (S4.11).
	Denied
	// Failed: the webhook could not be asked, or gave an answer that cannot be
	// used. This, and only this, is what the failure policy is about (S7.1).
	Failed
	// Refused: the request is rejected for a reason of this server's own, such
	// as a dry run that the webhook does not support (S7.6). The failure policy
	// does not apply.
	Refused
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
	}
	panic(fmt.Sprintf("unknown verdict %d", v))
}

// Turn tells when a hook was called, relative to its place in the order.
type Turn uint8

const (
	// InTurn: called when everything before it had answered.
	InTurn Turn = iota
	// Ahead: called before its turn, with the object that it would have got.
	Ahead
	// Again: called before its turn, and once more in turn, because the object
	// had changed in between. The first answer was thrown away.
	Again
)

// Call is one call of one webhook.
type Call struct {
	Hook *registration.Hook
	// Position is the hook's place among all hooks of its source, from 0;
	// Matched is its place among those that matched this request.
	Position int
	Matched  int
	// Rule is the index of the rule that matched. Kind, Resource and
	// Subresource are what the hook was told the request is about; Equivalent
	// tells that this differs from the request's own (S2.24).
	Rule        int
	Kind        schema.GroupVersionKind
	Resource    schema.GroupVersionResource
	Subresource string
	Equivalent  bool

	// ReviewVersion is the version of the AdmissionReview that was sent, and
	// UID the review's uid; both are empty when none was sent.
	ReviewVersion string
	UID           types.UID
	Start         time.Time
	Latency       time.Duration
	Turn          Turn

	Verdict Verdict
	// Code is the HTTP status code that stands for the outcome: 200 when
	// allowed, the denial's own, the cause's when the call failed, 0 when
	// refused (S10.2).
	Code int
	// Err is why the call did not end as allowed.
	Err error
	// Ignored tells that the call failed and the request went on without it.
	Ignored bool
	// ClientGone tells that the call failed because nobody waits for the
	// request any more (S7.10).
	ClientGone bool
	// Skipped tells that nothing was called, because the webhook's server could
	// not be reached several times in a row.
	Skipped bool
	// Class names the step at which a call failed, such as "Transport".
	Class string
	// Panic is what the call panicked with, and Stack where; nil when it did
	// not.
	Panic any
	Stack []byte

	// Patch is the JSON patch that was applied; nil when there was none, or it
	// was empty. Mutated tells that it changed the object (S5.5).
	Patch   []byte
	Mutated bool
	// Warnings and AuditAnnotations are the webhook's, as sent.
	Warnings         []string
	AuditAnnotations map[string]string
}

// Rejected tells whether the call made the plugin reject the request.
func (c *Call) Rejected() bool {
	return c.Verdict != Allowed && !c.Ignored
}

// Condition is one evaluation of a hook's match conditions.
type Condition struct {
	Hook *registration.Hook
	// Latency is how long it took.
	Latency time.Duration
	// Errors counts the expressions that failed (S2.33).
	Errors int
	// Excluded tells that the hook was not called because of its conditions:
	// one was false, or they failed and the failure policy is Ignore (S2.32). In
	// the latter case, Err is how.
	Excluded bool
	Err      error
}

// Skip is a hook that was not called.
type Skip struct {
	Hook *registration.Hook
	// Reason is a sentence for people.
	Reason string
}

// String describes the trace for people, one line per call. Times are left out:
// two traces of the same events have the same text.
func (t *Trace) String() string {
	var b strings.Builder
	r := &t.Request
	fmt.Fprintf(&b, "%s %s", r.Operation, r.Resource.GroupVersion().WithResource(r.Resource.Resource))
	if r.Subresource != "" {
		fmt.Fprintf(&b, "/%s", r.Subresource)
	}
	fmt.Fprintf(&b, " %q: %s, round %d\n", r.Namespace+"/"+r.Name, t.Source.Kind(), t.Round)
	for i := range t.Calls {
		fmt.Fprintf(&b, "  %s\n", t.Calls[i].String())
	}
	for _, s := range t.Skips {
		fmt.Fprintf(&b, "  %s skipped: %s\n", s.Hook, s.Reason)
	}
	if t.Err != nil {
		fmt.Fprintf(&b, "  rejected: %v\n", t.Err)
	}
	return b.String()
}

// String describes the call on one line, without times.
func (c *Call) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d. %s as %s: %s", c.Position, c.Hook, c.Kind.Kind, c.Verdict)
	if c.Verdict != Allowed {
		fmt.Fprintf(&b, " (%d): %v", c.Code, c.Err)
	}
	if c.Ignored {
		b.WriteString(", ignored")
	}
	if c.Mutated {
		b.WriteString(", mutated")
	}
	if len(c.Patch) > 0 {
		fmt.Fprintf(&b, ", patch %s", c.Patch)
	}
	return b.String()
}
