package trace

import (
	"maps"
	"slices"
	"time"
)

// Known is the source of a fact in a Trace that was made from an audit log (S30.2). It is empty for
// a trace of this process.
type Known string

const (
	// Written: the audit log contains the fact.
	Written Known = "written"
	// Derived: the fact follows from the webhook configurations and policies that applied to the
	// request.
	Derived Known = "derived"
	// Unknown: the audit log does not contain the fact, and no known fact implies it.
	Unknown Known = "unknown"
)

// Audit is what an audit log says of a request as a whole.
type Audit struct {
	// Source names the log: the file and the line, or the API server that sent the event.
	Source string `json:"source"`
	// Level and Stage are those of the event. Truncated reports whether the API server took the
	// objects out of the event because it was too large.
	Level     string `json:"level"`
	Stage     string `json:"stage"`
	Truncated bool   `json:"truncated,omitempty"`
	// Code, Reason and Message are the status of the answer; Code is 0 if there was no answer.
	Code    int    `json:"code,omitempty"`
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
	// ImpersonatedBy is the user that made the request in the name of another one, the user of request.
	ImpersonatedBy string `json:"impersonatedBy,omitempty"`
	// RejectedBy names what rejected the request: an admission plugin, Authentication,
	// Authorization, Decoding, Validation or Storage, or unknown. It is absent if nothing did.
	RejectedBy string `json:"rejectedBy,omitempty"`
	// Annotations are the audit annotations that no step of the trace shows.
	Annotations map[string]string `json:"annotations,omitempty"`
	// Unknown says in sentences what the log does not say about the request.
	Unknown []string `json:"unknown,omitempty"`
}

// FromAudit returns a trace without steps for a request in an audit log.
func FromAudit(id string, start time.Time, latency time.Duration, about Subject, outcome Outcome, a *Audit) *Trace {
	t := &Trace{ID: id, Start: start, Audit: a}
	t.mu.about, t.mu.known, t.mu.latency, t.mu.outcome = about, true, latency, outcome
	return t
}

// shown returns the form of a in a Record; nil for a trace of this process.
func (a *Audit) shown(w writer) *Audit {
	if a == nil {
		return nil
	}
	out := *a
	out.Message, out.Annotations, out.Unknown = w.said(a.Message, false), maps.Clone(a.Annotations), slices.Clone(a.Unknown)
	for key, value := range out.Annotations {
		out.Annotations[key] = w.said(value, false)
	}
	return &out
}

// size estimates the memory use in bytes.
func (a *Audit) size() int {
	if a == nil {
		return 0
	}
	size := sizeOfError + len(a.Source) + len(a.Message) + len(a.ImpersonatedBy)
	for key, value := range a.Annotations {
		size += 2*sizeOfString + len(key) + len(value)
	}
	return size
}
