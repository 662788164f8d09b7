package watch

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"unicode"

	"github.com/gatehouse-dev/gatehouse/internal/commands/predict/auditreport"
	"github.com/gatehouse-dev/gatehouse/internal/readers/lint"
	"github.com/gatehouse-dev/gatehouse/internal/readers/report"
)

// finding is a problem of one object.
type finding struct {
	report.Resource
	// rule is the lint rule, or the policy. level is the severity.
	rule  string
	level report.Level
}

// maxMessage bounds the message of a result, in bytes.
const maxMessage = 800

// ofFault converts a lint finding. Its identity does not depend on its message, which may change.
func ofFault(w *lint.Input, f *lint.Finding) finding {
	r := report.Resource{
		APIVersion: apiVersionOf(w, f.Object.Kind), Kind: f.Object.Kind, Namespace: f.Object.Namespace, Name: f.Object.Name, UID: string(w.Written[f.Object].UID),
		Policy: "gatehouse-lint", Rule: f.Rule.ID, Message: plain(f.Message),
		ID: idOf(f.Rule.ID, f.Object.String(), f.Field()),
	}
	switch f.Level {
	case lint.Error:
		r.Result, r.Severity = "fail", "high"
	case lint.Warning:
		r.Result, r.Severity = "warn", "medium"
	default:
		r.Result, r.Severity = "warn", "info"
	}
	return finding{r, f.Rule.ID, f.Level}
}

// apiVersionOf returns the apiVersion of a kind that rules know, in the first group of the cluster that has it.
func apiVersionOf(w *lint.Input, kind string) string {
	for _, r := range w.Resources {
		if r.Kind.Kind == kind {
			return r.Kind.GroupVersion().String()
		}
	}
	return ""
}

// ofAuditFinding converts an audit finding.
func ofAuditFinding(f *auditreport.Finding) finding {
	r := f.Resource()
	r.Message = plain(r.Message)
	if f.Result == auditreport.ChangesIt {
		r.Severity = "info"
	}
	r.ID = idOf(f.Policy, f.Binding, r.Rule, f.ObjectKind, f.Namespace, f.Name, f.UID)
	return finding{r, f.Policy, f.Level()}
}

// idOf returns the ID of a finding, a hash of its identifying parts.
func idOf(parts ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(parts, "\x00")))
	return hex.EncodeToString(sum[:10])
}

// plain puts a text of another author on one line, without control characters.
func plain(text string) string {
	text = strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return ' '
	}, text)
	text = strings.Join(strings.Fields(text), " ")
	if len(text) > maxMessage {
		text = strings.ToValidUTF8(text[:maxMessage], "") + " ..."
	}
	return text
}

// sentence returns the message of the event for a finding.
func (f *finding) sentence(of source) string {
	if of == ofLint {
		return fmt.Sprintf("%s: %s. 'gatehouse lint --explain %s' says more.", f.rule, f.Message, f.rule)
	}
	return fmt.Sprintf("The policy %s: %s", f.rule, f.Message)
}
