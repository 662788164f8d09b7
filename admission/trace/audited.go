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

// Audit is the part of a trace that comes from the event of an audit log and concerns the whole
// request.
type Audit struct {
	// Source names the log: the file and the line, or the API server that sent the event.
	Source string `json:"source"`
	// Level and Stage are the level and the stage of the event. Truncated reports whether the API
	// server removed the objects from the event because the event was too large.
	Level     string `json:"level"`
	Stage     string `json:"stage"`
	Truncated bool   `json:"truncated,omitempty"`
	// Code, Reason and Message are the status of the answer; Code is 0 if there was no answer.
	Code    int    `json:"code,omitempty"`
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
	// ImpersonatedBy is the user that sent the request and impersonated another user, the user in
	// request.
	ImpersonatedBy string `json:"impersonatedBy,omitempty"`
	// RejectedBy is the origin of the rejection: an admission plugin, Authentication,
	// Authorization, Decoding, Validation or Storage, or unknown. It is absent if the request was
	// not rejected.
	RejectedBy string `json:"rejectedBy,omitempty"`
	// Annotations are the audit annotations that no step of the trace includes.
	Annotations map[string]string `json:"annotations,omitempty"`
	// Unknown lists, in sentences, the facts about the request that the log does not contain.
	Unknown []string `json:"unknown,omitempty"`
}

// FromAudit returns a trace without steps for a request in an audit log.
func FromAudit(id string, start time.Time, latency time.Duration, about Subject, outcome Outcome, a *Audit) *Trace {
	t := &Trace{ID: id, Start: start, Audit: a}
	t.mu.about, t.mu.known, t.mu.latency, t.mu.outcome = about, true, latency, outcome
	return t
}

// forRecord returns the form of a in a Record; nil for a trace of this process.
func (a *Audit) forRecord(w writer) *Audit {
	if a == nil {
		return nil
	}
	out := *a
	out.Message, out.Annotations, out.Unknown = w.orWithheld(a.Message, false), maps.Clone(a.Annotations), slices.Clone(a.Unknown)
	for key, value := range out.Annotations {
		out.Annotations[key] = w.orWithheld(value, false)
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
