package trace

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"net/http"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gatehouse-dev/gatehouse/admission/registration"
	"github.com/gatehouse-dev/gatehouse/internal/engine/deepcopy"
	"github.com/gatehouse-dev/gatehouse/internal/engine/review"
	"github.com/gatehouse-dev/gatehouse/internal/kit/credentials"
)

// MaxText bounds, in bytes, the part of a webhook's text or of an error in a Record.
const MaxText = 2 << 10

// Outcome is the result of admission for a request.
type Outcome string

// The outcomes.
const (
	// OutcomeAllowed: admission allowed the request, and every webhook and policy gave a verdict.
	OutcomeAllowed Outcome = "Allowed"
	// OutcomeFailedOpen: admission allowed the request, and ignored the failure of at least one
	// webhook or policy.
	OutcomeFailedOpen Outcome = "FailedOpen"
	// OutcomeDenied: a webhook, a policy or a plugin rejected the request.
	OutcomeDenied Outcome = "Denied"
	// OutcomeFailed: the request was rejected because a webhook, a policy or a plugin failed.
	OutcomeFailed Outcome = "Failed"
	// OutcomeRejected: the request was rejected outside of admission, for example by authorization
	// or validation. Only traces of audit logs have this outcome.
	OutcomeRejected Outcome = "Rejected"
	// OutcomeUnknown: the audit log does not contain the outcome of admission.
	OutcomeUnknown Outcome = "Unknown"
)

// Outcomes are all values of Outcome.
var Outcomes = []Outcome{OutcomeAllowed, OutcomeFailedOpen, OutcomeDenied, OutcomeFailed, OutcomeRejected, OutcomeUnknown}

// Outcome returns the result of admission so far.
func (t *Trace) Outcome() Outcome {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.Audit != nil {
		return t.mu.outcome
	}
	outcome := OutcomeAllowed
	for i := range t.mu.steps {
		s := &t.mu.steps[i]
		if s.Err != nil {
			return rejection(s)
		}
		if s.Run != nil && (slices.ContainsFunc(s.Run.Calls, func(c Call) bool { return c.Ignored }) ||
			slices.ContainsFunc(s.Run.Judgements, func(j Judgement) bool { return j.Forgiven() })) {
			outcome = OutcomeFailedOpen
		}
	}
	return outcome
}

func rejection(s *Step) Outcome {
	if s.Run != nil {
		for i := range s.Run.Calls {
			if c := &s.Run.Calls[i]; c.Rejected() {
				if c.Verdict == Failed {
					return OutcomeFailed
				}
				return OutcomeDenied
			}
		}
		for i := range s.Run.Judgements {
			if j := &s.Run.Judgements[i]; j.Denied() {
				if j.failedToJudge() {
					return OutcomeFailed
				}
				return OutcomeDenied
			}
		}
	}
	var status apierrors.APIStatus
	if errors.As(s.Err, &status) && status.Status().Code < http.StatusInternalServerError {
		return OutcomeDenied
	}
	return OutcomeFailed
}

// Record is a Trace in its stable form for JSON. Fields are only ever added. It shares
// nothing with the Trace.
//
// Times are in RFC 3339 with microseconds, durations are in microseconds.
type Record struct {
	// ID names the trace.
	ID string `json:"id"`
	// AuditID identifies the request in the audit log, in the server's log, and in the header
	// Audit-Id of the response and of calls of webhooks.
	AuditID string `json:"auditID,omitempty"`
	// Start is the time at which the request arrived.
	Start Time `json:"start"`
	// Outcome is the result of admission.
	Outcome Outcome `json:"outcome"`
	// Response is the response of the server to the request. It may be an error although admission
	// allowed the request, for example an error of validation or of the storage. It is absent if it
	// is not known.
	Response *ResponseRecord `json:"response,omitempty"`
	// Request describes the request.
	Request RequestRecord `json:"request"`
	// Revision is the storage revision of the registrations that the request was evaluated against.
	// It is the oldest revision if there were several, and absent if no registration was needed.
	Revision string `json:"revision,omitempty"`
	// TotalMicros is the duration of the request. OwnMicros is the duration of admission without
	// the time spent waiting for webhooks; it is 0 in a trace of an audit log, which does not
	// contain it.
	TotalMicros int64 `json:"totalMicros"`
	OwnMicros   int64 `json:"ownMicros"`
	// Redacted reports whether contents are left out: the values of patches, and, for a request
	// about secrets, all texts from webhooks. Without it, [removed] replaces credentials only.
	Redacted bool `json:"redacted,omitempty"`
	// Audit is present if the trace was made from the audit log of a cluster. The steps, calls and
	// policy results of such a trace have the field known. They have no times, rule indexes or review
	// kinds, except derived ones.
	Audit *Audit `json:"audit,omitempty"`
	// Steps are the steps of the plugins, in the order in which they ended.
	Steps []StepRecord `json:"steps"`
}

// ResponseRecord is the response of a server to a request.
type ResponseRecord struct {
	// Code is the HTTP status code.
	Code int `json:"code"`
	// Reason, such as AlreadyExists, and Message come from the Status of an error. A trace of an
	// audit log has the message in audit instead.
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
}

// String returns the code and the reason, as in 422 Invalid.
func (r *ResponseRecord) String() string {
	return strings.TrimSpace(fmt.Sprint(r.Code, " ", r.Reason))
}

// Refused reports whether the response is an error although admission allowed the request.
func (r *Record) Refused() bool {
	return r.Response != nil && r.Response.Code >= http.StatusBadRequest && (r.Outcome == OutcomeAllowed || r.Outcome == OutcomeFailedOpen)
}

// responses returns the names by which a response is selected: its code, the class of the code such
// as 4xx, and its reason. It returns nil if the response is not known.
func (r *Record) responses() []string {
	if r.Response == nil {
		return nil
	}
	return []string{fmt.Sprint(r.Response.Code), fmt.Sprintf("%dxx", r.Response.Code/100), r.Response.Reason}
}

// RequestRecord describes an API request.
type RequestRecord struct {
	// Operation is CREATE, UPDATE, DELETE or CONNECT.
	Operation string `json:"operation"`
	// Resource is the resource of the URL, Subresource its subresource.
	Resource    ResourceRecord `json:"resource"`
	Subresource string         `json:"subresource,omitempty"`
	// Kind is the kind of the request's object.
	Kind KindRecord `json:"kind"`
	// Namespace, Name and UID identify the object. Name and UID are absent if they were not known,
	// or if the request was about several objects.
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name,omitempty"`
	UID       string `json:"uid,omitempty"`
	// User is the name of the user.
	User string `json:"user,omitempty"`
	// DryRun reports whether the request was a dry run, which stores no object.
	DryRun bool `json:"dryRun,omitempty"`
}

// ResourceRecord names a resource.
type ResourceRecord struct {
	// Group is empty for the core group.
	Group string `json:"group,omitempty"`
	// Version is the version of the group.
	Version string `json:"version"`
	// Resource is the plural.
	Resource string `json:"resource"`
}

// KindRecord names a kind.
type KindRecord struct {
	// Group is empty for the core group.
	Group string `json:"group,omitempty"`
	// Version is the version of the group.
	Version string `json:"version"`
	// Kind is the kind's name.
	Kind string `json:"kind"`
}

// Object returns the resource and the object for people, such as pods/exec web or deployments.apps
// web.
func (r *RequestRecord) Object() string {
	text := r.Resource.Resource
	if r.Resource.Group != "" {
		text += "." + r.Resource.Group
	}
	if r.Subresource != "" {
		text += "/" + r.Subresource
	}
	if r.Name != "" {
		text += " " + r.Name
	}
	return text
}

// StepRecord is the step of one plugin in one pass.
type StepRecord struct {
	// Plugin is the name of the admission plugin.
	Plugin string `json:"plugin"`
	// Pass is mutating or validating, or unknown.
	Pass string `json:"pass"`
	// Known is written, derived or unknown; it is absent if a server of Gatehouse made the trace.
	Known Known `json:"known,omitempty"`
	// Round is 0, or 1 when the mutating plugins run again.
	Round int `json:"round"`
	// Namespace and Name identify the step's object, as far as they were known.
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name,omitempty"`
	// Start is when the step began, Micros how long it took.
	Start  Time  `json:"start"`
	Micros int64 `json:"micros"`
	// Allowed reports whether the plugin allowed the request. Error is the reason if it did not.
	Allowed bool   `json:"allowed"`
	Error   string `json:"error,omitempty"`
	// Revision is the storage revision of the registrations in use. ReadAt is the start of the read
	// that returned them.
	Revision string `json:"revision,omitempty"`
	ReadAt   *Time  `json:"readAt,omitempty"`
	// Patch is the change that a built-in admission plugin made to the object, as a JSON patch of
	// the request's kind.
	Patch []PatchOperation `json:"patch,omitempty"`
	// Pending are the initializers that were added to the object.
	Pending []string `json:"pending,omitempty"`
	// Initializing are the initializers whose turn it was when the request wrote an uninitialized
	// object. Written is the change that the request made to the object, as a JSON patch.
	Initializing []string         `json:"initializing,omitempty"`
	Written      []PatchOperation `json:"written,omitempty"`
	// Judgements are the results of admission policies, in order.
	Judgements []JudgementRecord `json:"judgements,omitempty"`
	// Calls are the calls of the selected webhooks, in the order in which their answers count.
	Calls []CallRecord `json:"calls,omitempty"`
	// Discarded are calls that were made ahead of turn and whose answers were not used.
	Discarded []CallRecord `json:"discarded,omitempty"`
	// Conditions are the match conditions that were evaluated.
	Conditions []ConditionRecord `json:"conditions,omitempty"`
	// Skips are the examined entries that did not apply.
	Skips []SkipRecord `json:"skips,omitempty"`
	// Exclusions are the effects of the server's exclusion rules.
	Exclusions []ExclusionRecord `json:"exclusions,omitempty"`
}

// ExclusionRecord is the effect of one of the server's exclusion rules.
type ExclusionRecord struct {
	// Rule is the name of the rule, Effect is skip, ignoreFailures or capTimeout.
	Rule   string `json:"rule"`
	Effect string `json:"effect"`
	// Entries are the first 100 entries that were skipped, whose failures were ignored, or whose
	// webhooks had less time. More counts the others.
	Entries []EntryRecord `json:"entries"`
	More    int           `json:"more,omitempty"`
}

// EntryRecord names an entry of a registration.
type EntryRecord struct {
	// Kind is the kind of the registration object, Configuration its name.
	Kind          string `json:"kind"`
	Configuration string `json:"configuration"`
	// Index is the position of the entry in the object, from 0; -1 if an audit log does not contain
	// it.
	Index int `json:"index"`
	// Name is the name of the entry.
	Name string `json:"name"`
	// Source is static for an entry of a manifest file, and absent for one of the API.
	Source string `json:"source,omitempty"`
}

// CallRecord is one call of one webhook.
type CallRecord struct {
	// Known is written, derived or unknown; it is absent if a server of Gatehouse made the trace.
	Known Known `json:"known,omitempty"`
	// WebhookKnown is the source of the configuration of webhook, with the values of known. It is
	// absent if known applies to the configuration, too.
	WebhookKnown Known `json:"webhookKnown,omitempty"`
	// Webhook is the called webhook, FailurePolicy its failure policy.
	Webhook       EntryRecord `json:"webhook"`
	FailurePolicy string      `json:"failurePolicy,omitempty"`
	// Rule is the index of the rule that matched.
	Rule int `json:"rule"`
	// Kind, Resource and Subresource are the kind, resource and subresource in the review.
	// Equivalent reports whether they differ from the request's own.
	Kind        KindRecord     `json:"kind"`
	Resource    ResourceRecord `json:"resource"`
	Subresource string         `json:"subresource,omitempty"`
	Equivalent  bool           `json:"equivalent,omitempty"`
	// ReviewVersion is the version of the review, and UID its uid; both are absent if no review was
	// made.
	ReviewVersion string `json:"reviewVersion,omitempty"`
	UID           string `json:"uid,omitempty"`
	// Start is when the call began, Micros how long it took.
	Start  Time  `json:"start"`
	Micros int64 `json:"micros"`
	// Turn is InTurn, Ahead or Again.
	Turn string `json:"turn"`
	// Sent reports whether the whole review was delivered. Fate is the use of the answer: Used,
	// Superseded or NotReached.
	Sent bool   `json:"sent"`
	Fate string `json:"fate"`
	// Verdict is allowed, denied, failed, refused or unknown. Code is the HTTP status code for it.
	Verdict string `json:"verdict"`
	Code    int    `json:"code,omitempty"`
	// Error is the reason for any verdict except allowed.
	Error string `json:"error,omitempty"`
	// Class is the step at which the call failed. Reason is the code of the reason why the webhook
	// could not be called.
	Class  string `json:"class,omitempty"`
	Reason string `json:"reason,omitempty"`
	// Ignored reports whether the call failed and the failure was ignored.
	Ignored bool `json:"ignored,omitempty"`
	// ClientGone reports whether the call failed because the client closed the request.
	ClientGone bool `json:"clientGone,omitempty"`
	// Deprecated lists the deprecated properties of the webhook's certificate.
	Deprecated []string `json:"deprecated,omitempty"`
	// Mutated reports whether the call changed the object. Patch is the JSON patch of the change.
	Mutated bool             `json:"mutated,omitempty"`
	Patch   []PatchOperation `json:"patch,omitempty"`
	// Enforcement is present if the webhook is not enforced: the request continues whatever the
	// verdict is. WouldPatch is the JSON patch that would have changed the object if the webhook
	// were enforced.
	Enforcement *Enforcement     `json:"enforcement,omitempty"`
	WouldPatch  []PatchOperation `json:"wouldPatch,omitempty"`
	// Warnings and AuditAnnotations are the webhook's.
	Warnings         []string          `json:"warnings,omitempty"`
	AuditAnnotations map[string]string `json:"auditAnnotations,omitempty"`
}

// PatchOperation is an operation of a JSON patch.
type PatchOperation struct {
	// Op is add, remove, replace, move, copy or test; or merge for a field of an apply
	// configuration.
	Op string `json:"op"`
	// Path is a JSON pointer, and so is From.
	Path string `json:"path"`
	From string `json:"from,omitempty"`
	// Value is absent when the operation has none, and when the record is redacted.
	Value json.RawMessage `json:"value,omitempty"`
	// Field is the path, with the elements of lists by name, as in spec.containers[name=web].image.
	// Was is the value that the operation replaced or removed, and WasBytes its size in bytes. A
	// value of more than 16384 bytes is left out, and its WasBytes is 16385. The three fields are
	// absent for operations after the 64th, and when the record is redacted. Was and WasBytes are
	// absent for the fields of an apply configuration.
	Field    string          `json:"field,omitempty"`
	Was      json.RawMessage `json:"was,omitempty"`
	WasBytes int             `json:"wasBytes,omitempty"`
}

// ConditionRecord is one evaluation of the match conditions of an entry.
type ConditionRecord struct {
	// Known is written, derived or unknown; it is absent if a server of Gatehouse made the trace.
	Known Known `json:"known,omitempty"`
	// Entry has the conditions.
	Entry EntryRecord `json:"entry"`
	// Micros is how long it took.
	Micros int64 `json:"micros"`
	// Errors counts the expressions that failed.
	Errors int `json:"errors,omitempty"`
	// Excluded reports whether the webhook was not called because of its conditions. Error is the
	// error of the conditions, if they failed.
	Excluded bool   `json:"excluded,omitempty"`
	Error    string `json:"error,omitempty"`
}

// SkipRecord is an entry that did not apply.
type SkipRecord struct {
	// Entry is the entry, Code names the test that it failed, and Reason explains it in a sentence.
	Entry  EntryRecord `json:"entry"`
	Code   string      `json:"code"`
	Reason string      `json:"reason"`
}

// Time is a time in a Record.
type Time = metav1.MicroTime

func at(t time.Time) Time { return Time{Time: t.UTC()} }

// DeepCopyInto copies the record to out.
func (r *Record) DeepCopyInto(out *Record) { deepcopy.Into(r, out) }

// RecordOptions are options of Trace.Record.
type RecordOptions struct {
	// RedactPatches leaves out the values of all patches. The values of patches of secrets are
	// always left out.
	RedactPatches bool
}

// Record returns the stable form of the trace.
//
// A record of a request about secrets (Secret, TokenReview, TokenRequest) has no contents: no
// values of patches, only the first element of patch paths outside of metadata, and no texts from
// webhooks, which could quote the secret. Anything that looks like a credential is removed from the
// values and texts of every record.
func (t *Trace) Record(o RecordOptions) Record {
	subject := t.Subject()
	w := writer{secret: credentials.Whole(subject.Resource.GroupResource(), subject.Subresource), changes: true, most: MaxText, consequences: maxConsequences}
	w.redact = o.RedactPatches || w.secret
	return t.record(w, &subject)
}

// Verdicts returns the trace as a Record for the caller alone: texts of policies and webhooks are
// neither withheld nor truncated. The record has no field names and earlier values of patches. It
// has the changes by built-in admission plugins only if changes is set, which takes time.
func (t *Trace) Verdicts(changes bool) *Record {
	subject := t.Subject()
	r := t.record(writer{changes: changes, plain: true, most: math.MaxInt, consequences: math.MaxInt}, &subject)
	return &r
}

func (t *Trace) record(w writer, subject *Subject) Record {
	steps := t.Steps()
	r := Record{
		ID: t.ID, AuditID: t.AuditID, Start: at(t.Start), Outcome: t.Outcome(), Redacted: w.redact,
		Request: RequestRecord{
			Operation: subject.Operation, Resource: resourceRecord(subject.Resource), Subresource: subject.Subresource,
			Kind: kindRecord(subject.Kind), Namespace: subject.Namespace, Name: subject.Name, UID: string(subject.UID),
			User: subject.User, DryRun: subject.DryRun,
		},
		TotalMicros: t.Latency().Microseconds(), OwnMicros: t.Own().Microseconds(),
		Audit: t.Audit.forRecord(w), Steps: make([]StepRecord, len(steps)),
	}
	switch response, a := t.Response(), t.Audit; {
	case response != nil:
		r.Response = &ResponseRecord{response.Code, response.Reason, w.orWithheld(response.Message, false)}
	case a != nil && a.Code != 0:
		r.Response = &ResponseRecord{Code: a.Code, Reason: a.Reason}
	}
	for i := range steps {
		r.Steps[i] = w.step(&steps[i])
		r.Revision = cmp.Or(r.Revision, r.Steps[i].Revision)
	}
	return r
}

// writer makes the parts of a Record.
type writer struct {
	// redact leaves out the values of patches. secret leaves out all texts that may come from the
	// object.
	redact, secret bool
	// changes includes the changes by built-in admission plugins. plain leaves out the edits of
	// patches.
	changes, plain bool
	// most bounds the bytes of a text, and consequences the number of consequences of a policy.
	most, consequences int
}

// withheld replaces a text that could quote a secret.
const withheld = "(not shown: the request was about secrets)"

func (w writer) step(s *Step) StepRecord {
	out := StepRecord{
		Plugin: s.Plugin, Pass: s.Pass.String(), Round: s.Round, Namespace: s.Object.Namespace, Name: s.Object.Name,
		Start: at(s.Start), Micros: s.Latency.Microseconds(), Allowed: s.Err == nil, Error: w.text(s.Err), Known: s.Known,
	}
	if s.Known == Unknown {
		out.Plugin, out.Pass = registration.MutatingPlugin+" or "+registration.ValidatingPlugin, string(Unknown)
	}
	if w.changes && s.Change != nil {
		if patch := s.Patch(); patch != nil {
			out.Patch = w.patch(patch, w.edits(s.Change, patch))
		}
	}
	run := s.Run
	if run == nil {
		return out
	}
	out.Revision, out.Pending = run.Revision, slices.Clone(run.Pending)
	out.Initializing, out.Written = slices.Clone(run.Initializing), w.patch(run.Written, run.Edits)
	if !run.ReadAt.IsZero() {
		read := at(run.ReadAt)
		out.ReadAt = &read
	}
	if w.secret && s.Err != nil && slices.ContainsFunc(run.Calls, func(c Call) bool { return (c.UID != "" || c.Known != "") && c.Rejected() }) {
		out.Error = withheld
	}
	if w.secret && s.Err != nil && slices.ContainsFunc(run.Judgements, func(j Judgement) bool { return j.Denied() }) {
		out.Error = withheld
	}
	out.Judgements, out.Calls, out.Discarded = records(run.Judgements, w.judgement), records(run.Calls, w.call), records(run.Discarded, w.call)
	out.Conditions = records(run.Conditions, func(c *Condition) ConditionRecord {
		condition := ConditionRecord{Known: c.Known, Entry: entryRecord(&c.Entry), Micros: c.Latency.Microseconds(), Errors: c.Errors, Excluded: c.Excluded, Error: w.text(c.Err)}
		if w.secret && c.Err != nil {
			condition.Error = withheld
		}
		return condition
	})
	out.Skips = records(run.Skips, func(k *Skip) SkipRecord {
		return SkipRecord{Entry: entryRecord(&k.Entry), Code: k.Code, Reason: w.cut(k.Reason)}
	})
	out.Exclusions = records(run.Exclusions, func(x *Exclusion) ExclusionRecord {
		listed := x.Entries[:min(len(x.Entries), maxExcluded)]
		return ExclusionRecord{
			Rule: x.Rule, Effect: x.Effect, Entries: append([]EntryRecord{}, records(listed, entryRecord)...), More: len(x.Entries) - len(listed),
		}
	})
	return out
}

// records converts the elements of a list; nil for an empty list.
func records[From, To any](list []From, record func(*From) To) (out []To) {
	for i := range list {
		out = append(out, record(&list[i]))
	}
	return out
}

func (w writer) call(c *Call) CallRecord {
	out := CallRecord{
		Known: c.Known, WebhookKnown: c.EntryKnown, Webhook: entryRecord(&c.Entry), FailurePolicy: string(c.FailurePolicy), Rule: c.Rule,
		Kind: kindRecord(c.Kind), Resource: resourceRecord(c.Resource), Subresource: c.Subresource, Equivalent: c.Equivalent,
		ReviewVersion: c.ReviewVersion, UID: string(c.UID), Start: at(c.Start), Micros: c.Latency.Microseconds(),
		Turn: c.Turn.String(), Sent: c.Sent, Fate: c.Fate.String(), Verdict: c.Verdict.String(), Code: c.Code,
		Error: w.text(c.Err), Class: c.Class, Reason: c.Reason, Ignored: c.Ignored, ClientGone: c.ClientGone,
		Deprecated: slices.Clone(c.Deprecated), Mutated: c.Mutated, Patch: w.patch(c.Patch, c.Edits),
		AuditAnnotations: maps.Clone(c.AuditAnnotations), Enforcement: c.Enforcement.record(),
	}
	if len(c.WouldPatch) > 0 {
		out.WouldPatch = w.patch(c.WouldPatch, c.Edits)
	}
	for _, warning := range c.Warnings {
		out.Warnings = append(out.Warnings, w.redacted(warning))
	}
	for key, value := range out.AuditAnnotations {
		out.AuditAnnotations[key] = w.without(value)
	}
	if !w.secret {
		return out
	}
	// The webhook received the secret, so any text of the webhook may contain it.
	if c.Err != nil && (c.UID != "" || c.Known != "") {
		out.Error = withheld
	}
	for i := range out.Warnings {
		out.Warnings[i] = withheld
	}
	for key := range out.AuditAnnotations {
		out.AuditAnnotations[key] = withheld
	}
	return out
}

// edits returns the edits of a change, unless they are redacted.
func (w writer) edits(c Change, patch []byte) []Edit {
	if w.redact || w.plain {
		return nil
	}
	return c.Edits(patch)
}

// patch returns the operations of a patch, each with its edit. The patch was applied, so its syntax
// is valid.
func (w writer) patch(data []byte, edits []Edit) []PatchOperation {
	if len(data) == 0 {
		return nil
	}
	var list []PatchOperation
	if err := json.Unmarshal(data, &list); err != nil {
		// Keep the rest of the record if the standard library cannot read a patch that the patch
		// library could.
		return []PatchOperation{{Op: "unknown", Path: "", Value: json.RawMessage(`"` + fmt.Sprint(len(data)) + ` bytes"`)}}
	}
	for i := range list {
		p := &list[i]
		// The patch of a webhook may have members with these names.
		p.Field, p.Was, p.WasBytes = "", nil, 0
		switch {
		case w.redact:
			p.Value = nil
		case w.plain:
		case i < len(edits):
			p.Field, p.Was, p.WasBytes = edits[i].Field, edits[i].Was, edits[i].WasBytes
		case p.Op == "merge":
			p.Field = review.Field(p.Path)
		}
		if w.secret {
			p.Path, p.From = member(p.Path), member(p.From)
		}
		if w.plain {
			continue
		}
		at := cmp.Or(p.Field, p.Path)
		p.Value, _ = credentials.Shown.Value(at, p.Value)
		p.Was, _ = credentials.Shown.Value(at, p.Was)
	}
	return list
}

// member shortens a path to its first element, the name of a member of the object: deeper paths
// contain the keys of a secret. Paths in metadata stay whole.
func member(path string) string {
	if strings.HasPrefix(path, "/metadata/") || !strings.HasPrefix(path, "/") {
		return path
	}
	name, _, _ := strings.Cut(path[1:], "/")
	return "/" + name
}

// text returns the message of an error for the record.
func (w writer) text(err error) string {
	if err == nil {
		return ""
	}
	return w.redacted(err.Error())
}

// redacted removes credentials from a text and truncates it.
func (w writer) redacted(s string) string { return w.cut(w.without(s)) }

// without removes credentials from a text, unless the record is for its caller alone.
func (w writer) without(s string) string {
	if w.plain {
		return s
	}
	return credentials.Text(s)
}

func (w writer) cut(s string) string { return Cut(s, w.most) }

// Cut truncates a text to most bytes and marks the end if it does.
func Cut(s string, most int) string {
	const mark = " [...]"
	if len(s) <= most {
		return s
	}
	end := most - len(mark)
	for end > 0 && !utf8.RuneStart(s[end]) {
		end--
	}
	return s[:end] + mark
}

func entryRecord(o *registration.Origin) EntryRecord {
	r := EntryRecord{Kind: o.Source.String(), Configuration: o.Configuration, Index: o.Index, Name: o.Name}
	if o.Static() {
		r.Source = "static"
	}
	return r
}

func resourceRecord(r schema.GroupVersionResource) ResourceRecord {
	return ResourceRecord{Group: r.Group, Version: r.Version, Resource: r.Resource}
}

func kindRecord(k schema.GroupVersionKind) KindRecord {
	return KindRecord{Group: k.Group, Version: k.Version, Kind: k.Kind}
}
