package before

import (
	"encoding/json"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"

	"github.com/gatehouse-dev/gatehouse/internal/cli/command"

	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"github.com/gatehouse-dev/gatehouse/admission/plan"
	"github.com/gatehouse-dev/gatehouse/internal/credentials"
	"github.com/gatehouse-dev/gatehouse/internal/pages"
	"github.com/gatehouse-dev/gatehouse/internal/server/reporting/replicas/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/internal/terminal"
)

// printExplanations writes explanations for programs: one as it is, several as a List. The objects that were
// asked about lose their credentials.
func printExplanations(out io.Writer, format string, found []*v1alpha1.AdmissionExplanation) error {
	found = slices.Clone(found)
	for i, e := range found {
		if object := e.Spec.Object; object != nil {
			shown := *e
			raw, _ := credentials.Shown.Value("", object.Raw)
			shown.Spec.Object = &runtime.RawExtension{Raw: raw}
			found[i] = &shown
		}
	}
	var value any = map[string]any{"apiVersion": "v1", "kind": "List", "items": found}
	if len(found) == 1 {
		value = found[0]
	}
	var data []byte
	var err error
	if format == "yaml" {
		data, err = yaml.Marshal(value)
	} else if data, err = json.MarshalIndent(value, "", "    "); err == nil {
		data = append(data, '\n')
	}
	if err != nil {
		return err
	}
	_, err = terminal.Exact(out).Write(data)
	return err
}

// viewOf is the page of explanations, each with its heading.
func viewOf(found []*v1alpha1.AdmissionExplanation, headings []string) pages.View {
	list := make([]pages.Explained, len(found))
	for i, e := range found {
		list[i] = pages.Explained{Heading: headings[i], Asked: asked(e), Plan: e.Status.Plan}
		if e.Status.Error != nil {
			list[i].Error = e.Status.Error.Message
		}
		for _, t := range e.Status.Tried {
			tried := pages.Tried{Name: t.Kind + " " + t.Name, Problems: t.Problems}
			for _, c := range t.Costs {
				tried.Costs = append(tried.Costs, pages.NewCost(c.Field, c.WorstCase, c.Limit))
			}
			list[i].Tried = append(list[i].Tried, tried)
		}
	}
	return pages.OfPlans(list, pages.Links{})
}

// printAll writes explanations for people, each with its heading, and what holds for all of them.
func printAll(out io.Writer, as *command.Release, found []*v1alpha1.AdmissionExplanation, headings []string) error {
	b := terminal.NewPage(out)
	as.Print(b)
	var bad, common []string
	if len(found) > 1 {
		common = slices.DeleteFunc(slices.Clone(notesOf(found[0])), func(note string) bool {
			return slices.ContainsFunc(found, func(e *v1alpha1.AdmissionExplanation) bool { return !slices.Contains(notesOf(e), note) })
		})
	}
	for i, e := range found {
		if i > 0 {
			fmt.Fprintln(b)
		}
		if headings[i] != "" {
			terminal.Fprintf(b, "%s\n\n", headings[i])
		}
		printExplanation(b, e, slices.DeleteFunc(slices.Clone(notesOf(e)), func(note string) bool { return slices.Contains(common, note) }))
		switch {
		case !rejected(e):
		case e.Status.Plan == nil:
			bad = append(bad, asked(e))
		default:
			bad = append(bad, fmt.Sprintf("%s (%s)", pages.Subject(&e.Status.Plan.Request), e.Status.Plan.RejectedBy()))
		}
	}
	if len(found) > 1 {
		printNotes(b, "Unknown to these plans", common)
		if len(bad) > 0 {
			terminal.Fprintf(b, "\n%s: %s\n", terminal.Paint(terminal.Red, fmt.Sprintf("%d of %d requests would be rejected", len(bad), len(found))), strings.Join(bad, ", "))
		} else {
			terminal.Fprintf(b, "\nNone of the %d requests is rejected in its plan.\n", len(found))
		}
	}
	return b.Flush()
}

// notesOf are the notes of a plan.
func notesOf(e *v1alpha1.AdmissionExplanation) []string {
	if e.Status.Plan == nil {
		return nil
	}
	return e.Status.Plan.Notes
}

// rejected reports whether a request would be rejected, by admission or before.
func rejected(e *v1alpha1.AdmissionExplanation) bool {
	return e.Status.Plan == nil || e.Status.Plan.Verdict() == plan.VerdictRejected
}

// printExplanation writes an explanation for people, with some of the notes of its plan.
func printExplanation(b *terminal.Page, e *v1alpha1.AdmissionExplanation, notes []string) {
	p := e.Status.Plan
	if p == nil {
		terminal.Fprintf(b, "%s\n", asked(e))
		message := "the server gave no reason"
		if e.Status.Error != nil {
			message = e.Status.Error.Message
		}
		terminal.Fprintf(b, "%s: %s\n", terminal.Paint(terminal.Red, "Rejected before admission"), terminal.Indented(message, "  "))
		return
	}
	terminal.Fprintf(b, "%s\n", pages.About(&p.Request))
	fmt.Fprintln(b)
	printSteps(b, p)
	if p.WorstCaseSeconds > 0 {
		terminal.Fprintf(b, "\nIn the worst case webhooks and initializers take %s in total.\n", pages.Seconds(p.WorstCaseSeconds))
	}
	printNotes(b, "Unknown to this plan", notes)
	var problems []string
	for _, t := range e.Status.Tried {
		for _, problem := range t.Problems {
			problems = append(problems, fmt.Sprintf("%s %s: %s", t.Kind, t.Name, problem))
		}
	}
	printNotes(b, "Problems of what is not registered", problems)
	fmt.Fprintln(b)
	switch p.Verdict() {
	case plan.VerdictRejected:
		would := "The request would be rejected"
		if p.UpToMutation() {
			would += ", unless a mutating webhook changes the object"
		}
		terminal.Fprintf(b, "%s: %s\n", terminal.Paint(terminal.Red, would), terminal.Indented(p.Rejection, "  "))
	case plan.VerdictUnknown:
		fmt.Fprintln(b, "Nothing that can be seen rejects the request. Steps that are unknown can reject it.")
	case plan.VerdictWebhooks:
		fmt.Fprintln(b, "Nothing but webhooks can reject the request.")
	default:
		fmt.Fprintln(b, "Nothing in this plan rejects the request.")
	}
}

// printNotes writes what plans do not know.
func printNotes(b *terminal.Page, title string, notes []string) {
	for i, note := range notes {
		if i == 0 {
			terminal.Fprintf(b, "\n%s:\n", title)
		}
		terminal.Fprintf(b, "  - %s\n", note)
	}
}

// asked is the title of a request that has no plan.
func asked(e *v1alpha1.AdmissionExplanation) string {
	r := e.Spec.Resource
	resource := path.Join(r.Group, r.Version) + " " + path.Join(r.Resource, e.Spec.Subresource)
	return strings.TrimSpace(fmt.Sprintf("%s %s %s", e.Spec.Operation, resource, path.Join(e.Spec.Namespace, e.Spec.Name)))
}

// printSteps writes the table of what is done, in order.
func printSteps(b *terminal.Page, p *plan.Plan) {
	if len(p.Steps) == 0 {
		fmt.Fprintln(b, "Nothing applies.")
		return
	}
	columns := terminal.Titles("#", "PHASE", "EFFECT", "BY", "AS", "IF IT FAILS", "TIMEOUT")
	table := terminal.NewTable(append(columns, terminal.Column{Title: "REMARKS", Bare: true})...)
	table.Gap = 2
	acts := 0
	for s := range p.Each() {
		number, by, as, timeout := "", s.Plugin, "", ""
		switch s.Effect {
		case plan.Call, plan.Evaluate, plan.Pend, plan.Run:
			acts++
			number = fmt.Sprint(acts)
		}
		if s.Entry != nil {
			by = s.Entry.String()
		}
		if s.As != nil {
			as = s.As.APIVersion + " " + s.As.Kind
		}
		if s.TimeoutSeconds > 0 {
			timeout = pages.Seconds(s.TimeoutSeconds)
		}
		table.Row(number, s.Pass, s.Effect, by, as, s.FailurePolicy, timeout, strings.Join(pages.Remarks(s), "; "))
	}
	// A page takes everything.
	_ = table.Print(b)
}
