package before

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/gatehouse-dev/gatehouse/internal/commands/predict/check"
	"github.com/gatehouse-dev/gatehouse/internal/readers/manifests"
	"github.com/gatehouse-dev/gatehouse/internal/readers/report"
	"github.com/gatehouse-dev/gatehouse/internal/readers/view"
)

// print writes a report in the format of --output.
func (o *checkOptions) print(out io.Writer, r *check.Report) error {
	found := checkReport(r)
	if o.snapshot != "" {
		found.Elsewhere = o.snapshot
	}
	if report.ForPeople(o.output.Name) && o.log.Verbosity == 0 || o.output.Name == "github" {
		// Annotations of GitHub are limited in number.
		found.Findings = report.Grouped(found.Findings)
	}
	return o.output.Write(out, found, func(out io.Writer) error { return o.printText(out, r, found) })
}

// checkReport converts the result of a check to the report of all formats.
func checkReport(r *check.Report) *report.Document {
	s := &r.Summary
	f := &report.Document{
		Tool:  "gatehouse check",
		Title: fmt.Sprintf("Check of %s in %s", report.Count(s.Objects, "object"), report.Count(s.Files, "file")),
		Rules: check.Rules(), Findings: r.Findings, Suppressed: r.Suppressed, Cases: checkCases(r),
		Sums:       []report.Sum{{Name: "accepted", N: s.Accepted}, {Name: "rejected", N: s.Rejected}, {Name: "errors", N: s.Errors}, {Name: "warnings", N: s.Warnings}},
		Kubernetes: r.KubernetesVersion, VersionNote: r.VersionNote, Notes: r.Notes, Data: r,
	}
	known := map[string]bool{}
	for i := range f.Rules {
		known[f.Rules[i].ID] = true
	}
	add := func(id string) {
		if !known[id] {
			known[id] = true
			f.Rules = append(f.Rules, *check.FindRule(id))
		}
	}
	for i := range r.Findings {
		add(r.Findings[i].Rule)
	}
	for i := range r.Suppressed {
		add(r.Suppressed[i].Rule)
	}
	for _, more := range []report.Sum{{Name: "not checked", N: s.Unknown}, {Name: "skipped", N: s.Skipped}, {Name: "suppressed", N: s.Suppressed}} {
		if more.N > 0 {
			f.Sums = append(f.Sums, more)
		}
	}
	for i, object := range r.Objects {
		if i == 0 {
			f.Elsewhere = object.File
		}
		if object.Diff == "" {
			continue
		}
		d := report.Difference{Heading: report.Place(object.File, object.Line, 0) + ": " + object.Title(), Diff: object.Diff}
		for _, c := range object.Changes {
			d.Notes = append(d.Notes, "set by "+c.By+": "+strings.Join(c.Paths, ", "))
		}
		f.Changes = append(f.Changes, d)
	}
	var uncalled, skipped []string
	for i := range r.Webhooks {
		uncalled = append(uncalled, notCalled(&r.Webhooks[i]))
	}
	for _, k := range r.Skipped {
		skipped = append(skipped, report.Place(k.File, k.Line, 0)+": "+k.Message)
	}
	f.Parts = []report.Part{{Heading: "Not called", Items: uncalled}, {Heading: "Not seen", Items: notSeen(r)}, {Heading: "Skipped", Items: skipped}}
	return f
}

// notCalled describes a webhook that was not called.
func notCalled(w *check.Webhook) string {
	text := fmt.Sprintf("%s of %s, for %s", w.Webhook, w.Plugin, report.Count(w.Objects, "object"))
	if w.FailurePolicy != "" {
		text += ", failure policy " + w.FailurePolicy
	}
	return text
}

// checkCases has a case for each object, and one for each file that cannot be read.
func checkCases(r *check.Report) []report.Case {
	cases := []report.Case{}
	// Each case has the rule of the object's first error.
	rules, accepted := map[string]string{}, map[string]string{}
	key := func(file, title string) string { return file + "\x00" + title }
	for i := range r.Findings {
		f := &r.Findings[i]
		if k := key(f.File, f.Object); rules[k] == "" && f.Level == report.Error {
			rules[k] = f.Rule
		}
	}
	for i := range r.Suppressed {
		f := &r.Suppressed[i]
		accepted[key(f.File, f.Object)] = f.Reason
	}
	for _, object := range r.Objects {
		k := key(object.File, object.Title())
		c := report.Case{Name: object.Title(), Class: object.APIVersion, File: object.File, Line: object.Line, Output: strings.Join(object.Warnings, "\n")}
		switch object.Verdict {
		case check.Rejected:
			if reason, ok := accepted[k]; ok && rules[k] == "" {
				c.Skipped = "accepted: " + reason + ": " + object.Message
				break
			}
			c.Rule, c.Failure, c.Details = rules[k], object.Message, report.Place(object.File, object.Line, 0)+": "+object.Message
		case check.Unknown, check.NotJudged:
			c.Skipped = object.Message
		}
		cases = append(cases, c)
	}
	for i := range r.Findings {
		f := &r.Findings[i]
		if f.Object == "" && f.Level == report.Error {
			cases = append(cases, report.Case{
				Name: report.Place(cmp.Or(f.File, "cluster"), f.Line, 0), File: f.File, Line: f.Line,
				Rule: f.Rule, Failure: f.Message, Details: f.Place() + ": " + f.Message,
			})
		}
	}
	return cases
}

// notSeen lists the resources of the cluster that could not be read.
func notSeen(r *check.Report) []string {
	notes := slices.Clone(r.Notes)
	for _, u := range r.Unseen {
		// Other unread resources have findings.
		if u.Objects == 0 || u.Allowed {
			notes = append(notes, u.Text())
		}
	}
	return notes
}

// printText writes a report for people: changes of objects, a line for each finding, unread resources, and the
// sums.
func (o *checkOptions) printText(out io.Writer, r *check.Report, found *report.Document) error {
	o.release.Print(out)
	d := &view.Document{}
	for _, c := range found.Changes {
		d.Blocks = append(d.Blocks, view.Diff(c))
	}
	d.Blocks = append(d.Blocks, view.FindingsOf(found))
	uncalled := found.Parts[0].Items
	skipped, other := o.skipped(r)
	end := view.Together{view.List{Heading: "Not called (--call calls webhooks)", Items: uncalled}, view.List{Heading: "Skipped", Items: skipped}}
	if other != "" {
		end = append(end, view.Note("%s", other))
	}
	end = append(end, view.List{Heading: "Not seen", Items: notSeen(r)})
	s := &r.Summary
	if len(o.old) > 0 {
		end = append(end, view.Note("Since the version before: %d created, %d updated, %d deleted, %d unchanged.", s.Created, s.Updated, s.Deleted, s.Unchanged))
	}
	sum := fmt.Sprintf("%s in %s: %d accepted, %d rejected", report.Count(s.Objects, "object"), report.Count(s.Files, "file"), s.Accepted, s.Rejected)
	if s.Unknown > 0 {
		sum += fmt.Sprintf(", %d not checked", s.Unknown)
	}
	if s.Skipped > 0 {
		sum += fmt.Sprintf(", %d skipped", s.Skipped)
	}
	sum += fmt.Sprintf("; %s, %s", report.Count(s.Errors, "error"), report.Count(s.Warnings, "warning"))
	if s.Suppressed > 0 {
		sum += fmt.Sprintf(", %d suppressed", s.Suppressed)
	}
	d.Blocks = append(d.Blocks, append(end, view.Note("%s; by Kubernetes %s", sum, r.KubernetesVersion)))
	return d.Format(out, "text")
}

// skipped lists the skipped objects. Without -v, the list has only the objects that can be checked in another
// way, and the number of the rest. If there are no such objects, others is a sentence with that number.
func (o *checkOptions) skipped(r *check.Report) (list []string, others string) {
	n := 0
	for _, s := range r.Skipped {
		if o.log.Verbosity >= 1 || strings.Contains(s.Message, manifests.MadeByOthers) {
			list = append(list, report.Place(s.File, s.Line, 0)+": "+s.Message)
		} else {
			n++
		}
	}
	what := fmt.Sprintf("%d documents that are not Kubernetes objects (-v 1 lists them)", n)
	if n == 1 {
		what = "1 document that is not a Kubernetes object (-v 1 lists them)"
	}
	switch {
	case n == 0:
		return list, ""
	case len(list) == 0:
		return nil, "Skipped " + what + "."
	}
	return append(list, what), ""
}
