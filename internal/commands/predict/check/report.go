package check

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gatehouse-dev/gatehouse/internal/commands/predict/rejection"
	"github.com/gatehouse-dev/gatehouse/internal/kit/emulation"
	"github.com/gatehouse-dev/gatehouse/internal/readers/manifests"
	"github.com/gatehouse-dev/gatehouse/internal/readers/report"
	"github.com/gatehouse-dev/gatehouse/internal/server/api/builtin"
)

// Report is the result of a check. Its JSON is stable: fields are only ever added.
type Report struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	// KubernetesVersion is the release that the check emulates, and Cluster the release of the snapshot's cluster.
	KubernetesVersion string `json:"kubernetesVersion"`
	Cluster           string `json:"cluster,omitempty"`
	// VersionNote is a sentence if objects are checked as by another release than the cluster's; empty otherwise.
	VersionNote string  `json:"versionNote,omitempty"`
	Summary     Summary `json:"summary"`
	// Findings are in the order of the files and lines.
	Findings []report.Finding `json:"findings"`
	Objects  []*Object        `json:"objects"`
	// Webhooks lists the webhooks that would be called, and were not.
	Webhooks []Webhook `json:"webhooks,omitempty"`
	// Skipped lists documents that are not objects.
	Skipped []manifests.Note `json:"skipped,omitempty"`
	// Unseen lists the parts of the cluster that were not read.
	Unseen []*Unseen `json:"unseen,omitempty"`
	// Suppressed are accepted findings. They do not count.
	Suppressed []report.Suppressed `json:"suppressed,omitempty"`
	// Notes are sentences about the limits of the check.
	Notes []string `json:"notes,omitempty"`

	// order is the position of each file in the set.
	order map[string]int
}

// Summary counts objects and findings.
type Summary struct {
	Files    int `json:"files"`
	Objects  int `json:"objects"`
	Accepted int `json:"accepted"`
	Rejected int `json:"rejected"`
	// Unknown objects could not be checked.
	Unknown  int `json:"unknown"`
	Errors   int `json:"errors"`
	Warnings int `json:"warnings"`
	// Skipped objects were excluded from the check, Suppressed findings are accepted.
	Skipped    int `json:"skipped,omitempty"`
	Suppressed int `json:"suppressed,omitempty"`
	// Created, Updated, Unchanged and Deleted count objects if there is a version before.
	Created   int `json:"created,omitempty"`
	Updated   int `json:"updated,omitempty"`
	Unchanged int `json:"unchanged,omitempty"`
	Deleted   int `json:"deleted,omitempty"`
	// StartSeconds is the time to start the server, CheckSeconds the time of the check.
	StartSeconds float64 `json:"startSeconds"`
	CheckSeconds float64 `json:"checkSeconds"`
}

// Verdict is the result of the check for an object.
type Verdict string

// The verdicts.
const (
	Accepted Verdict = "accepted"
	Rejected Verdict = "rejected"
	Unknown  Verdict = "unknown"
	// NotJudged objects have a kind that is excluded from the check.
	NotJudged Verdict = "skipped"
)

// Object is one object of the set.
type Object struct {
	File       string  `json:"file"`
	Line       int     `json:"line"`
	APIVersion string  `json:"apiVersion"`
	Kind       string  `json:"kind"`
	Namespace  string  `json:"namespace,omitempty"`
	Name       string  `json:"name,omitempty"`
	Verdict    Verdict `json:"verdict"`
	// Operation is create, update, delete or unchanged, if there is a version before.
	Operation string `json:"operation,omitempty"`
	// Code, Reason and Message describe the rejection. Warnings are the server's warnings.
	Code     int32    `json:"code,omitempty"`
	Reason   string   `json:"reason,omitempty"`
	Message  string   `json:"message,omitempty"`
	Warnings []string `json:"warnings,omitempty"`
	// Cause is the policy, webhook or plugin that denied the object.
	Cause report.Cause `json:"cause,omitzero"`
	// Webhooks would be called, and were not.
	Webhooks []Call `json:"webhooks,omitempty"`
	// Diff is a unified diff of the server's changes to the object, and Changes lists the admission steps with the
	// fields they changed. Changes in the diff alone are defaults.
	Diff    string   `json:"diff,omitempty"`
	Changes []Change `json:"changes,omitempty"`
}

// Title names the object in messages: Deployment shop/web.
func (o *Object) Title() string {
	name := o.Name
	if name == "" {
		name = "(no name)"
	}
	return report.Title(o.Kind, o.Namespace, name)
}

// Call is a webhook or an initializer that would process an object.
type Call struct {
	// Webhook is CONFIGURATION/NAME. Plugin is the admission plugin that calls it.
	Webhook string `json:"webhook"`
	Plugin  string `json:"plugin"`
	// FailurePolicy is Fail or Ignore.
	FailurePolicy string `json:"failurePolicy,omitempty"`
	// Unknown is the reason if it is unknown whether the webhook would be called; empty if it would.
	Unknown string `json:"unknown,omitempty"`
}

// Webhook is a webhook that was not called.
type Webhook struct {
	Call
	// Objects is the number of objects for which it would be called.
	Objects int `json:"objects"`
}

// Change lists the fields changed by one step of admission.
type Change struct {
	By    string   `json:"by"`
	Paths []string `json:"paths"`
}

func newReport(o *Options) *Report {
	r := &Report{
		APIVersion: "gatehouse.dev/v1alpha1", Kind: "CheckReport", KubernetesVersion: emulation.Behaves("v" + emulation.Release), VersionNote: o.VersionNote, Skipped: o.Set.Notes,
		Findings: []report.Finding{}, Objects: []*Object{}, order: map[string]int{},
	}
	place := func(file string) {
		if _, ok := r.order[file]; !ok {
			r.order[file] = len(r.order)
		}
	}
	for _, file := range o.Set.Files {
		place(file)
	}
	for _, p := range o.Set.Problems {
		place(p.File)
		f := report.Finding{Level: report.Error, Rule: ruleUnreadable, File: p.File, Line: p.Line, Message: p.Message}
		if p.Line > 0 {
			f.Column = 1
		}
		if p.Warning {
			f.Level, f.Rule = report.Warning, ruleDuplicateKey
		}
		r.Findings = append(r.Findings, f)
	}
	if o.Old != nil {
		for _, file := range o.Old.Files {
			place(file)
		}
	}
	r.Summary.Files = len(o.Set.Files)
	if o.Snapshot != nil {
		r.Cluster = o.Snapshot.Cluster.KubernetesVersion
	}
	return r
}

// add adds an object to the report, without a verdict.
func (r *Report) add(t *task) *Object {
	o := &Object{
		File: t.object.File, Line: t.object.Line, APIVersion: text(t.object.Content, "apiVersion"), Kind: text(t.object.Content, "kind"),
		Namespace: t.namespace, Name: t.name, Verdict: Unknown,
	}
	r.Objects = append(r.Objects, o)
	return o
}

// addFinding adds a finding about an object.
func (r *Report) addFinding(t *task, level report.Level, rule, field, message string) {
	line, column := t.object.Place(field)
	r.Findings = append(r.Findings, report.Finding{
		Level: level, Rule: rule, File: t.object.File, Line: line, Column: column, Object: t.result.Title(), Field: field, Message: message,
	})
}

// addFindingWithCause adds a finding with its cause.
func (r *Report) addFindingWithCause(t *task, level report.Level, rule, field, message string, cause report.Cause) {
	r.addFinding(t, level, rule, field, message)
	r.Findings[len(r.Findings)-1].Cause = cause
}

func (r *Report) warn(t *task, rule, field, message string) {
	r.addFinding(t, report.Warning, rule, field, message)
}

// refuse rejects an object that was not sent to the server.
func (r *Report) refuse(t *task, rule, field, message string) {
	t.result.Verdict, t.result.Message = Rejected, message
	r.addFinding(t, report.Error, rule, field, message)
}

// missingKind treats an object whose kind is not defined as MissingDefinitions requires.
func (r *run) missingKind(t *task, elsewhere ...string) {
	switch {
	case len(elsewhere) > 0 || r.stage.Kinds().Meant(t.sent.GroupVersionKind()) != "" || r.MissingDefinitions == "" || r.MissingDefinitions == MissingIsError:
		r.noKind(t, "", elsewhere...)
	case r.MissingDefinitions == MissingIsWarning:
		gvk := t.sent.GroupVersionKind()
		r.report.notChecked(t, fmt.Sprintf("no matches for kind %q in version %q: its definition is not there", gvk.Kind, gvk.GroupVersion()))
	default:
		t.result.Verdict, t.result.Message = NotJudged, "the definition of its kind is not there"
	}
}

// noKind rejects an object of a kind that is not served, with the message of kubectl. elsewhere lists versions that
// have a kind of the same name.
func (r *run) noKind(t *task, why string, elsewhere ...string) {
	gvk := t.sent.GroupVersionKind()
	message := fmt.Sprintf("no matches for kind %q in version %q", gvk.Kind, gvk.GroupVersion())
	meant := ""
	if len(elsewhere) == 0 {
		meant = r.stage.Kinds().Meant(gvk)
	}
	switch {
	case why != "":
		why += meant
	case meant != "":
		why = meant
	case len(elsewhere) > 0:
		why = "it is served in " + strings.Join(elsewhere, ", ")
	default:
		why = "ensure CRDs are installed first: add the definition to the files, or name a cluster that has it with --from-cluster or --snapshot"
	}
	field, text := "apiVersion", message+": "+why
	if meant != "" {
		field = "kind"
	}
	if why == meant {
		text = message + meant
	}
	r.report.refuse(t, ruleUnknownKind, field, text)
	t.result.Message = message
}

// notChecked leaves the verdict of an object unknown.
func (r *Report) notChecked(t *task, why string) {
	t.result.Message = why
	r.warn(t, ruleNotChecked, "", why)
}

// duplicate warns about an object that occurs twice in the files.
func (r *Report) duplicate(t, first *task) {
	r.warn(t, ruleDuplicate, "metadata.name", fmt.Sprintf("the same object is at %s:%d, too: each was checked alone, and the last applied one wins", first.object.File, first.object.Line))
}

// judged adds the server's response to an object to the report.
func (r *Report) judged(t *task) {
	a := t.answer
	if a == nil {
		return
	}
	for _, w := range a.Warnings {
		if w == builtin.NotEnforced(t.kind.Resource.Resource) {
			// The plugins of this server do not enforce the registration; the plugins of the cluster do.
			continue
		}
		t.result.Warnings = append(t.result.Warnings, w)
		rule, field := ruleWarning, ""
		if strings.Contains(w, "deprecated") {
			rule = ruleDeprecated
			if strings.HasPrefix(w, t.result.APIVersion+" ") {
				field = "apiVersion"
			}
		}
		if before, _, ok := strings.Cut(w, ": "); ok && field == "" && !strings.Contains(before, " ") {
			field = before
		}
		cause := a.warningCause(w)
		r.addFindingWithCause(t, report.Warning, cause.Description(rule), field, w, cause)
	}
	if a.OK() {
		if t.result.Verdict == Unknown {
			t.result.Verdict = Accepted
		}
		return
	}
	s := a.Status
	t.result.Verdict, t.result.Code, t.result.Reason, t.result.Message = Rejected, s.Code, string(s.Reason), s.Message
	if len(a.denials) > 0 {
		for i := range a.denials {
			d := &a.denials[i]
			r.addFindingWithCause(t, report.Error, deniedRule(a, d), "", d.message, d.Cause)
		}
		t.result.Cause = a.denials[0].Cause
		return
	}
	rule, unread := a.rule(), false
	for _, f := range rejection.Faults(s, t.object.Content) {
		unread = unread || f.Unread
		switch {
		case !f.Unread || !slices.Contains(t.later, f.Field):
		case f.Field == initializersField:
			f.Message += ", which only Gatehouse has"
		default:
			f.Message += ", which came after this release of Kubernetes"
		}
		r.addFinding(t, report.Error, rule, f.Place, f.Message)
		r.Findings[len(r.Findings)-1].Field = f.Field
	}
	if unread && t.lenient != nil {
		// The lenient response contains the further errors.
		first := *t.result
		rest := *t
		rest.answer, rest.lenient = t.lenient, nil
		r.judged(&rest)
		t.result.Verdict, t.result.Code, t.result.Reason, t.result.Message = first.Verdict, first.Code, first.Reason, first.Message
	}
}

// rule returns the rule of a rejection. Only the message tells which requests have unknown fields.
func (a *answer) rule() string {
	s := a.Status
	switch {
	case strings.Contains(s.Message, rejection.StrictDecoding):
		return ruleUnknownField
	case s.Reason == metav1.StatusReasonInvalid || s.Reason == metav1.StatusReasonBadRequest:
		return ruleInvalid
	case s.Reason == metav1.StatusReasonForbidden && !a.judged:
		return ruleForbidden
	case s.Reason == metav1.StatusReasonForbidden:
		return ruleDenied
	case s.Reason == metav1.StatusReasonNotFound && s.Details != nil && s.Details.Kind == "namespaces":
		return ruleNamespace
	}
	return ruleRejected
}

// sort sorts the findings and removes duplicates.
func (r *Report) sort() {
	slices.SortStableFunc(r.Findings, func(a, b report.Finding) int {
		return cmp.Or(cmp.Compare(r.order[a.File], r.order[b.File]), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column), cmp.Compare(a.Level, b.Level))
	})
	r.Findings = slices.Compact(r.Findings)
}

// count fills in the Summary.
func (r *Report) count() {
	s := &r.Summary
	s.Suppressed = len(r.Suppressed)
	s.Objects = len(r.Objects)
	verdicts := map[Verdict]*int{Accepted: &s.Accepted, Rejected: &s.Rejected, Unknown: &s.Unknown, NotJudged: &s.Skipped}
	operations := map[string]*int{created: &s.Created, updated: &s.Updated, unchanged: &s.Unchanged, deleted: &s.Deleted, "": new(int)}
	for _, o := range r.Objects {
		*verdicts[o.Verdict]++
		*operations[o.Operation]++
	}
	levels := map[report.Level]*int{report.Error: &s.Errors, report.Warning: &s.Warnings}
	for _, f := range r.Findings {
		*levels[f.Level]++
	}
}
