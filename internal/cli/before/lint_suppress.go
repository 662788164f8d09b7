package before

import (
	"fmt"
	"strings"

	"github.com/gatehouse-dev/gatehouse/internal/lint"
	"github.com/gatehouse-dev/gatehouse/internal/manifests"
)

// suppressedFinding is a finding that somebody accepted.
type suppressedFinding struct {
	finding lint.Fault
	reason  string
	// by is where it was accepted: FILE:LINE, the configuration, or a flag.
	by string
}

// suppress takes out of the report what the command line, the configuration and comments of the
// files accept.
func (r *lintReport) suppress(o *lintOptions, comments []manifests.Acceptance) {
	used := map[int]bool{}
	kept := r.Findings[:0]
	for _, f := range r.Findings {
		reason, by := o.accepts(r, &f)
		at, _ := r.locate(f.Object, f.Path)
		first, _ := r.locate(f.Object, nil)
		for i := range comments {
			c := &comments[i]
			// A comment at the object is about all of its fields.
			if c.File == at.File && c.Rule == f.Rule.ID && c.Reason != "" && (c.Covers(at.Line) || c.Covers(first.Line)) {
				used[i] = true
				reason, by = c.Reason, fmt.Sprintf("%s:%d", c.File, c.Line)
			}
		}
		if by == "" {
			kept = append(kept, f)
			continue
		}
		r.suppressed = append(r.suppressed, suppressedFinding{f, reason, by})
	}
	r.Findings = kept
	for i := range comments {
		c := &comments[i]
		switch {
		case used[i] || lint.Find(c.Rule) == nil:
			// Other commands have rules, too.
		case c.Reason == "":
			r.idle = append(r.idle, fmt.Sprintf("%s:%d: the acceptance of %s has no reason: write '# gatehouse: accept %s: REASON'", c.File, c.Line, c.Rule, c.Rule))
		default:
			r.idle = append(r.idle, fmt.Sprintf("%s:%d: nothing of the rule %s is found here", c.File, c.Line, c.Rule))
		}
	}
}

// accepts returns why a finding is accepted, and where that is said; empty when it is not.
func (o *lintOptions) accepts(r *lintReport, f *lint.Fault) (reason, by string) {
	for _, one := range o.skip {
		kind, name, named := strings.Cut(one, "/")
		if strings.EqualFold(kind, f.Object.Kind) && (!named || one[len(kind):] == f.Object.String()[len(f.Object.Kind):] || name == f.Object.Name) {
			return "the object is skipped", "--skip=" + one
		}
	}
	at, _ := r.locate(f.Object, f.Path)
	for i := range o.accepted {
		if a := &o.accepted[i]; a.Accepts(f.Rule.ID, at.File, f.Object.String()) {
			return a.Reason, o.configured.File
		}
	}
	return "", ""
}
