package lint

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gatehouse-dev/gatehouse/internal/readers/report"
)

// The levels of rules and findings.
const (
	Error   = report.Error
	Warning = report.Warning
	Note    = report.Note
)

// Rule finds one kind of fault.
type Rule struct {
	// ID names the rule. It does not change.
	ID string
	// Level is the level of its most severe findings.
	Level report.Level
	// Title describes the fault in one sentence, Why its consequences, and Fix the remedy. The
	// texts and the examples are in a file of the directory rules.
	Title, Why, Fix string
	// Advice is the anchor of the section of the Kubernetes page "Admission Webhook Good Practices"
	// that the rule checks; empty if the page does not have it.
	Advice string
	// Reads are the parts of the Input that the rule reads in addition to the registrations.
	Reads []Part
	// Fails is an example file that breaks the rule, and Passes an example without findings.
	Fails, Passes string
	// OnWrite is set if a server can check the rule cheaply with data that it has: a client that
	// writes a registration gets the errors as warnings.
	OnWrite bool
	// Upgrade is set if the rule runs only with an Upgrade in the Input.
	Upgrade bool

	check func(*pass)
}

// Object identifies the object of a finding.
type Object struct {
	Kind, Namespace, Name string
	// At is the position of the document in its file, if several documents can have the kind and name; otherwise empty.
	At string
}

// String returns KIND/NAME or KIND/NAMESPACE/NAME.
func (o Object) String() string {
	if o.Namespace == "" {
		return o.Kind + "/" + o.Name
	}
	return o.Kind + "/" + o.Namespace + "/" + o.Name
}

// Finding is one place where a rule is broken.
type Finding struct {
	Rule  *Rule
	Level report.Level
	// Message is one sentence or two, without a full stop at the end.
	Message string
	// Object is the object with the fault. Path is the place in it: names of fields and indexes of
	// lists.
	Object Object
	Path   []any

	// Variant is the index of the Input with the fault; see Merge.
	Variant int

	// cause, if set, is the common cause of several findings. They are merged into one finding that
	// lists the who of the others.
	cause, who string
	// others are the who of the merged findings, and said is the Message without them.
	others []string
	said   string
}

// add adds the who of findings with the same cause.
func (f *Finding) add(others ...string) {
	for _, who := range others {
		if !slices.Contains(f.others, who) && who != f.who {
			f.others = append(f.others, who)
		}
	}
	if f.Message = f.said; len(f.others) > 0 {
		f.Message += "; the same holds for " + few(f.others)
	}
}

// At returns the finding of a report: the fault, at a place of a file. The place is empty if the
// object is in no file.
func (f *Finding) At(file string, line, column int) report.Finding {
	return report.Finding{
		Level: f.Level, Rule: f.Rule.ID, Object: f.Object.String(), Field: f.Field(), Message: f.Message + ".",
		File: file, Line: line, Column: column,
	}
}

// Field returns the path in the form webhooks[0].rules[1].
func (f *Finding) Field() string { return pathText(f.Path) }

func pathText(path []any) string {
	var b strings.Builder
	for _, step := range path {
		switch step := step.(type) {
		case int:
			fmt.Fprintf(&b, "[%d]", step)
		default:
			if b.Len() > 0 {
				b.WriteByte('.')
			}
			fmt.Fprint(&b, step)
		}
	}
	return b.String()
}

// Rules returns all rules, in the order of the documentation. The caller must not change them.
func Rules() []*Rule {
	describe()
	return rules
}

// RulesOnWrite returns the rules that are marked OnWrite.
func RulesOnWrite() []*Rule {
	return slices.DeleteFunc(slices.Clone(Rules()), func(r *Rule) bool { return !r.OnWrite })
}

// Find returns a rule by its ID, nil if there is none.
func Find(id string) *Rule {
	for _, r := range Rules() {
		if r.ID == id {
			return r
		}
	}
	return nil
}
