package before

import (
	"fmt"
	"strings"

	"github.com/gatehouse-dev/gatehouse/internal/readers/lint"
	"github.com/gatehouse-dev/gatehouse/internal/readers/manifests"
)

// suppressedFinding is an accepted finding.
type suppressedFinding struct {
	finding lint.Finding
	reason  string
	// by is the place of the acceptance: FILE:LINE, the configuration file, or a flag.
	by string
}

// suppress moves the findings that the command line, the configuration file or a comment accepts to
// r.suppressed.
func (r *lintReport) suppress(o *lintOptions, comments []manifests.Acceptance) {
	used := map[int]bool{}
	kept := r.Findings[:0]
	for _, f := range r.Findings {
		reason, by := o.accepts(r, &f)
		at, _ := r.locate(&f, f.Path)
		first, _ := r.locate(&f, nil)
		for i := range comments {
			c := &comments[i]
			// A comment at the object covers all of its fields.
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
			// The rule may belong to another command.
		case c.Reason == "":
			r.idle = append(r.idle, fmt.Sprintf("%s:%d: the acceptance of %s has no reason: write '# gatehouse: accept %s: REASON'", c.File, c.Line, c.Rule, c.Rule))
		default:
			r.idle = append(r.idle, fmt.Sprintf("%s:%d: nothing of the rule %s is found here", c.File, c.Line, c.Rule))
		}
	}
}

// accepts returns the reason of the acceptance of a finding, and its place; empty if it is not accepted.
func (o *lintOptions) accepts(r *lintReport, f *lint.Finding) (reason, by string) {
	for _, one := range o.skip {
		kind, name, named := strings.Cut(one, "/")
		if strings.EqualFold(kind, f.Object.Kind) && (!named || one[len(kind):] == f.Object.String()[len(f.Object.Kind):] || name == f.Object.Name) {
			return "the object is skipped", "--skip=" + one
		}
	}
	at, _ := r.locate(f, f.Path)
	for i := range o.accepted {
		if a := &o.accepted[i]; a.Accepts(f.Rule.ID, at.File, f.Object.String()) {
			return a.Reason, o.configured.File
		}
	}
	return "", ""
}
