package auditreport

import (
	"strconv"

	"github.com/gatehouse-dev/gatehouse/internal/commands/predict/requestlog"
	"github.com/gatehouse-dev/gatehouse/internal/readers/report"
)

// Result is the result of one policy for one object, as in a PolicyReport.
type Result string

// The results.
const (
	// Fails: the object would be rejected.
	Fails Result = "fail"
	// Warns: the object would be accepted, with a warning or an audit annotation.
	Warns Result = "warn"
	// Errs: the policy could not be evaluated, and its failure policy allows the object.
	Errs Result = "error"
	// ChangesIt: a mutating policy or webhook would change the object.
	ChangesIt Result = "change"
)

// Kind is the kind of a Report.
const Kind = "AuditReport"

// Report is the result of evaluating policies against the objects of a cluster. Its JSON is stable: fields are
// only ever added.
type Report struct {
	APIVersion        string           `json:"apiVersion"`
	Kind              string           `json:"kind"`
	KubernetesVersion string           `json:"kubernetesVersion"`
	Input             requestlog.Count `json:"input"`
	// VersionNote is set if objects are evaluated as by another release than the cluster's; empty otherwise.
	VersionNote string `json:"versionNote,omitempty"`
	// Judged is the number of objects evaluated, and Passed the number of objects among them without a violation.
	Judged int `json:"judged"`
	Passed int `json:"passed"`
	// Findings are sorted by policy and object. More counts the findings left out.
	Findings []*Finding `json:"findings"`
	More     int        `json:"more,omitempty"`
	// Webhooks lists the webhooks that would have been called.
	Webhooks []Share  `json:"webhooks,omitempty"`
	Notes    []string `json:"notes,omitempty"`
}

// Share is the number of requests or objects with the same name.
type Share struct {
	Name  string `json:"name"`
	Count int    `json:"count"`
}

// Finding is the result of one policy or webhook for one object.
type Finding struct {
	// Policy names the policy, or the webhook as CONFIGURATION/NAME. Binding and Validation, an index from 0, are set
	// for policies.
	Policy     string `json:"policy"`
	Webhook    bool   `json:"webhook,omitempty"`
	Binding    string `json:"binding,omitempty"`
	Validation *int   `json:"validation,omitempty"`
	// File and Line locate the policy.
	File string `json:"file,omitempty"`
	Line int    `json:"line,omitempty"`

	APIVersion string `json:"objectAPIVersion"`
	ObjectKind string `json:"objectKind"`
	Namespace  string `json:"namespace,omitempty"`
	Name       string `json:"name"`
	UID        string `json:"uid,omitempty"`

	Result  Result `json:"result"`
	Message string `json:"message,omitempty"`
}

// Title names the object.
func (f *Finding) Title() string { return report.Title(f.ObjectKind, f.Namespace, f.Name) }

// Level returns the severity of the finding.
func (f *Finding) Level() report.Level {
	switch f.Result {
	case Fails:
		return report.Error
	case ChangesIt:
		return report.Note
	}
	return report.Warning
}

// Resource converts the finding for a report about a cluster. Such reports have no result for changes, so changes
// become warnings.
func (f *Finding) Resource() report.Resource {
	r := report.Resource{APIVersion: f.APIVersion, Kind: f.ObjectKind, Namespace: f.Namespace, Name: f.Name, UID: f.UID, Policy: f.Policy, Result: string(f.Result), Message: f.Message}
	if f.Result == ChangesIt {
		r.Result = string(Warns)
	}
	if f.Validation != nil {
		r.Rule = strconv.Itoa(*f.Validation)
	}
	return r
}
