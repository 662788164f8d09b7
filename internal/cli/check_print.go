package cli

import (
	"cmp"
	"encoding/xml"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/gatehouse-dev/gatehouse/internal/pages"
	"github.com/gatehouse-dev/gatehouse/internal/predict/check"
	"github.com/gatehouse-dev/gatehouse/internal/sarif"
	"github.com/gatehouse-dev/gatehouse/internal/terminal"
)

// print writes a report in the format that was asked for.
func (o *checkOptions) print(out io.Writer, r *check.Report) error {
	switch o.output {
	case "json":
		data, err := r.JSON()
		if err != nil {
			return err
		}
		_, err = terminal.Exact(out).Write(data)
		return err
	case "html", "markdown":
		return checkView(r).Format(terminal.Exact(out), o.output)
	case "sarif":
		return printSARIF(terminal.Exact(out), r)
	case "junit":
		return printJUnit(terminal.Exact(out), r)
	case "github":
		return printGitHub(terminal.Exact(out), annotationsOf(r))
	case "gitlab":
		elsewhere := o.snapshot
		if elsewhere == "" && len(r.Objects) > 0 {
			elsewhere = r.Objects[0].File
		}
		return printGitLab(terminal.Exact(out), annotationsOf(r), elsewhere)
	}
	return o.printText(out, r)
}

// placeOf is the place of a finding; what is in no file is in the cluster.
func placeOf(f *check.Finding) string {
	if f.File == "" {
		return "cluster"
	}
	return place(f.File, f.Line, f.Column)
}

// annotationsOf are the findings for code hosts.
func annotationsOf(r *check.Report) []annotation {
	list := make([]annotation, len(r.Findings))
	for i := range r.Findings {
		f := &r.Findings[i]
		list[i] = annotation{level: string(f.Level), rule: f.Rule, object: f.Object, message: f.Text(), file: f.File, line: f.Line, column: f.Column}
	}
	return list
}

// place writes a place as compilers do.
func place(file string, line, column int) string {
	switch {
	case line == 0:
		return file
	case column == 0:
		return fmt.Sprintf("%s:%d", file, line)
	}
	return fmt.Sprintf("%s:%d:%d", file, line, column)
}

// counted writes a number of things.
func counted(n int, one string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %ss", n, one)
}

// checkView is the page of a report.
func checkView(r *check.Report) pages.View {
	s := &r.Summary
	f := pages.Findings{
		Title: fmt.Sprintf("Check of %s in %s", counted(s.Objects, "object"), counted(s.Files, "file")),
		Sums:  []pages.Sum{{Name: "accepted", N: s.Accepted}, {Name: "rejected", N: s.Rejected}, {Name: "errors", N: s.Errors}, {Name: "warnings", N: s.Warnings}},
		Foot:  "By Kubernetes " + r.KubernetesVersion + ".",
	}
	for _, more := range []pages.Sum{{Name: "not checked", N: s.Unknown}, {Name: "skipped", N: s.Skipped}, {Name: "suppressed", N: s.Suppressed}} {
		if more.N > 0 {
			f.Sums = append(f.Sums, more)
		}
	}
	for i := range r.Findings {
		one := &r.Findings[i]
		f.Findings = append(f.Findings, pages.Finding{Level: string(one.Level), Rule: one.Rule, Object: one.Object, Place: placeOf(one), Text: one.Text()})
	}
	for _, object := range r.Objects {
		if object.Diff == "" {
			continue
		}
		d := pages.Difference{Heading: object.Title(), Diff: object.Diff}
		for _, c := range object.Changes {
			d.Notes = append(d.Notes, "set by "+c.By+": "+strings.Join(c.Paths, ", "))
		}
		f.Changes = append(f.Changes, d)
	}
	var uncalled, skipped []string
	for _, w := range r.Webhooks {
		policy := ""
		if w.FailurePolicy != "" {
			policy = ", failure policy " + w.FailurePolicy
		}
		uncalled = append(uncalled, fmt.Sprintf("%s of %s, for %s%s", w.Webhook, w.Plugin, counted(w.Objects, "object"), policy))
	}
	for _, k := range r.Skipped {
		skipped = append(skipped, place(k.File, k.Line, 0)+": "+k.Message)
	}
	f.Parts = []pages.Part{{Heading: "Not called", Items: uncalled}, {Heading: "Not seen", Items: notSeen(r)}, {Heading: "Skipped", Items: skipped}}
	return pages.OfFindings(f)
}

// notSeen says what a check did not see.
func notSeen(r *check.Report) []string {
	notes := slices.Clone(r.Notes)
	for _, u := range r.Unseen {
		// The others are findings.
		if u.Objects == 0 || u.Allowed {
			notes = append(notes, u.Text())
		}
	}
	return notes
}

// printText writes a report for people: a line for each finding, then what was not seen,
// then the sum.
func (o *checkOptions) printText(out io.Writer, r *check.Report) error {
	b := terminal.NewPage(out)
	o.release.print(b)
	for _, object := range r.Objects {
		if object.Diff == "" {
			continue
		}
		terminal.Fprintf(b, "%s: %s\n", place(object.File, object.Line, 0), object.Title())
		for line := range strings.Lines(object.Diff) {
			terminal.Fprintf(b, "    %s\n", diffPainted(strings.TrimSuffix(line, "\n")))
		}
		for _, c := range object.Changes {
			terminal.Fprintf(b, "    set by %s: %s\n", c.By, strings.Join(c.Paths, ", "))
		}
		terminal.Fprintf(b, "\n")
	}
	for i := range r.Findings {
		f := &r.Findings[i]
		about := ""
		if f.Object != "" {
			about = f.Object + ": "
		}
		terminal.Fprintf(b, "%s: %s: %s%s %s\n", placeOf(f), levelPainted(string(f.Level)), about, terminal.Indented(f.Text(), "    "), terminal.Paint(terminal.Faint, "["+f.Rule+"]"))
	}
	if len(r.Findings) > 0 {
		terminal.Fprintf(b, "\n")
	}
	for i, w := range r.Webhooks {
		if i == 0 {
			fmt.Fprintln(b, "Not called (--call calls webhooks):")
		}
		policy := ""
		if w.FailurePolicy != "" {
			policy = ", failure policy " + w.FailurePolicy
		}
		terminal.Fprintf(b, "  - %s of %s, for %s%s\n", w.Webhook, w.Plugin, counted(w.Objects, "object"), policy)
	}
	if o.log.verbosity >= 1 {
		for i, s := range r.Skipped {
			if i == 0 {
				fmt.Fprintln(b, "Skipped:")
			}
			terminal.Fprintf(b, "  - %s: %s\n", place(s.File, s.Line, 0), s.Message)
		}
	} else {
		hints(b, r)
	}
	for i, note := range notSeen(r) {
		if i == 0 {
			terminal.Fprintf(b, "Not seen:\n")
		}
		terminal.Fprintf(b, "%s", b.Item(note))
	}
	s := &r.Summary
	if len(o.old) > 0 {
		terminal.Fprintf(b, "Since the version before: %d created, %d updated, %d deleted, %d unchanged.\n", s.Created, s.Updated, s.Deleted, s.Unchanged)
	}
	terminal.Fprintf(b, "%s in %s: %d accepted, %d rejected", counted(s.Objects, "object"), counted(s.Files, "file"), s.Accepted, s.Rejected)
	if s.Unknown > 0 {
		terminal.Fprintf(b, ", %d not checked", s.Unknown)
	}
	if s.Skipped > 0 {
		terminal.Fprintf(b, ", %d skipped", s.Skipped)
	}
	terminal.Fprintf(b, "; %s, %s", counted(s.Errors, "error"), counted(s.Warnings, "warning"))
	if s.Suppressed > 0 {
		terminal.Fprintf(b, ", %d suppressed", s.Suppressed)
	}
	terminal.Fprintf(b, "; by Kubernetes %s\n", r.KubernetesVersion)
	return b.Flush()
}

// noObjects counts what was read and is not an object.
func noObjects(n int) string {
	if n == 1 {
		return "1 document that is not a Kubernetes object"
	}
	return fmt.Sprintf("%d documents that are not Kubernetes objects", n)
}

// hints writes what was skipped in short: what can be checked in another way, and how much
// else there was.
func hints(b *terminal.Page, r *check.Report) {
	other, title := 0, false
	for _, s := range r.Skipped {
		if !strings.Contains(s.Message, "gatehouse check -") {
			other++
			continue
		}
		if !title {
			fmt.Fprintln(b, "Skipped:")
			title = true
		}
		terminal.Fprintf(b, "  - %s: %s\n", place(s.File, s.Line, 0), s.Message)
	}
	if other > 0 && !title {
		terminal.Fprintf(b, "Skipped %s (-v 1 lists them).\n", noObjects(other))
	} else if other > 0 {
		terminal.Fprintf(b, "  - %s (-v 1 lists them)\n", noObjects(other))
	}
}

// diffPainted is a line of a diff.
func diffPainted(line string) any {
	for begin, colour := range map[string]terminal.Colour{"+": terminal.Green, "-": terminal.Red, "@": terminal.Cyan} {
		if strings.HasPrefix(line, begin) {
			return terminal.Paint(colour, line)
		}
	}
	return line
}

// printSARIF writes the findings for code hosts.
func printSARIF(out io.Writer, r *check.Report) error {
	run := &sarif.Run{Tool: "gatehouse check", URI: "https://github.com/gatehouse-dev/gatehouse", Notes: versionAnd(r.VersionNote, r.Notes)}
	known := map[string]bool{}
	add := func(rule *check.Rule) {
		if !known[rule.ID] {
			known[rule.ID] = true
			run.Rules = append(run.Rules, sarif.Rule{ID: rule.ID, Level: sarif.Level(rule.Level), Title: rule.Title + ".", Fix: rule.Help})
		}
	}
	for _, rule := range check.Rules() {
		add(&rule)
	}
	find := func(f *check.Finding, accepted string) {
		message := f.Text()
		if f.Object != "" {
			message = f.Object + ": " + message
		}
		add(check.FindRule(f.Rule))
		run.Findings = append(run.Findings, sarif.Finding{
			Rule: f.Rule, Level: sarif.Level(f.Level), Message: message, File: f.File, Line: f.Line, Object: f.Object, Accepted: accepted,
		})
	}
	for i := range r.Findings {
		find(&r.Findings[i], "")
	}
	for i := range r.Suppressed {
		find(&r.Suppressed[i].Finding, r.Suppressed[i].Reason)
	}
	return sarif.Write(out, run)
}

// versionAnd puts what is to know of the release in front of other notes.
func versionAnd(line string, notes []string) []string {
	if line == "" {
		return notes
	}
	return append([]string{line}, notes...)
}

// The parts of a JUnit report that CI systems read.
type (
	junitSuites struct {
		XMLName  xml.Name     `xml:"testsuites"`
		Name     string       `xml:"name,attr"`
		Tests    int          `xml:"tests,attr"`
		Failures int          `xml:"failures,attr"`
		Suites   []junitSuite `xml:"testsuite"`
	}
	junitSuite struct {
		Name     string `xml:"name,attr"`
		Tests    int    `xml:"tests,attr"`
		Failures int    `xml:"failures,attr"`
		Skipped  int    `xml:"skipped,attr"`
		// Properties are the release that objects are judged as, and what is to know of it.
		Properties *junitProperties `xml:"properties"`
		Cases      []junitCase      `xml:"testcase"`
	}
	junitCase struct {
		Name    string        `xml:"name,attr"`
		Class   string        `xml:"classname,attr"`
		File    string        `xml:"file,attr"`
		Line    int           `xml:"line,attr,omitempty"`
		Failure *junitFailure `xml:"failure"`
		Skipped *junitSkipped `xml:"skipped"`
		Output  string        `xml:"system-out,omitempty"`
	}
	junitFailure struct {
		Type    string `xml:"type,attr"`
		Message string `xml:"message,attr"`
		Text    string `xml:",chardata"`
	}
	junitProperties struct {
		List []junitProperty `xml:"property"`
	}
	junitProperty struct {
		Name  string `xml:"name,attr"`
		Value string `xml:"value,attr"`
	}
	junitSkipped struct {
		Message string `xml:"message,attr"`
	}
)

// releaseProperties say as which release objects were judged.
func releaseProperties(version, line string) *junitProperties {
	p := &junitProperties{List: []junitProperty{{"kubernetesVersion", version}}}
	if line != "" {
		p.List = append(p.List, junitProperty{"versionNote", line})
	}
	return p
}

// printJUnit writes a test case for each object, and one for each file that cannot be read.
func printJUnit(out io.Writer, r *check.Report) error {
	all := junitSuites{Name: "gatehouse check"}
	properties := releaseProperties(r.KubernetesVersion, r.VersionNote)
	places := map[string]int{}
	suite := func(file string) *junitSuite {
		i, ok := places[file]
		if !ok {
			i = len(all.Suites)
			places[file] = i
			all.Suites = append(all.Suites, junitSuite{Name: file, Properties: properties})
		}
		return &all.Suites[i]
	}
	add := func(c junitCase) {
		s := suite(c.File)
		s.Tests++
		all.Tests++
		switch {
		case c.Failure != nil:
			s.Failures++
			all.Failures++
		case c.Skipped != nil:
			s.Skipped++
		}
		s.Cases = append(s.Cases, c)
	}
	// The rule of an object is that of its first error.
	rules, accepted := map[string]string{}, map[string]string{}
	key := func(file, title string) string { return file + "\x00" + title }
	for _, f := range r.Findings {
		if k := key(f.File, f.Object); rules[k] == "" && f.Level == check.LevelError {
			rules[k] = f.Rule
		}
	}
	for _, f := range r.Suppressed {
		accepted[key(f.File, f.Object)] = f.Reason
	}
	for _, object := range r.Objects {
		k := key(object.File, object.Title())
		c := junitCase{Name: object.Title(), Class: object.APIVersion, File: object.File, Line: object.Line, Output: strings.Join(object.Warnings, "\n")}
		switch object.Verdict {
		case check.Rejected:
			if reason, ok := accepted[k]; ok && rules[k] == "" {
				c.Skipped = &junitSkipped{Message: "accepted: " + reason + ": " + object.Message}
				break
			}
			c.Failure = &junitFailure{Type: rules[k], Message: object.Message, Text: place(object.File, object.Line, 0) + ": " + object.Message}
		case check.Unknown, check.NotJudged:
			c.Skipped = &junitSkipped{Message: object.Message}
		}
		add(c)
	}
	for _, f := range r.Findings {
		if f.Object == "" && f.Level == check.LevelError {
			add(junitCase{Name: place(cmp.Or(f.File, "cluster"), f.Line, 0), File: f.File, Line: f.Line, Failure: &junitFailure{Type: f.Rule, Message: f.Message, Text: place(f.File, f.Line, f.Column) + ": " + f.Message}})
		}
	}
	if _, err := io.WriteString(out, xml.Header); err != nil {
		return err
	}
	encoder := xml.NewEncoder(out)
	encoder.Indent("", "  ")
	if err := encoder.Encode(all); err != nil {
		return err
	}
	_, err := io.WriteString(out, "\n")
	return err
}
