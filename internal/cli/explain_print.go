package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"path"
	"strings"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/gatehouse-dev/gatehouse/admission/plan"
	"github.com/gatehouse-dev/gatehouse/admission/trace"
	"github.com/gatehouse-dev/gatehouse/internal/server/reporting/replicas/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/internal/terminal"
)

// printExplanations writes explanations for programs: one as it is, several as a List.
func printExplanations(out io.Writer, format string, found []*v1alpha1.AdmissionExplanation) error {
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

// printExplanation writes an explanation for people.
func printExplanation(out io.Writer, e *v1alpha1.AdmissionExplanation) error {
	b := terminal.NewPage(out)
	p := e.Status.Plan
	if p == nil {
		terminal.Fprintf(b, "%s\n", asked(e))
		message := "the server gave no reason"
		if e.Status.Error != nil {
			message = e.Status.Error.Message
		}
		terminal.Fprintf(b, "Rejected before admission: %s\n", terminal.Indented(message, "  "))
		return b.Flush()
	}
	terminal.Fprintf(b, "%s\n", title(&p.Request))
	fmt.Fprintln(b)
	printSteps(b, p)
	if p.WorstCaseSeconds > 0 {
		terminal.Fprintf(b, "\nIn the worst case the webhooks take %s in total.\n", seconds(p.WorstCaseSeconds))
	}
	if p.Rejection != "" {
		terminal.Fprintf(b, "\n%s: %s\n", terminal.Paint(terminal.Red, "The request would be rejected"), terminal.Indented(p.Rejection, "  "))
	}
	for i, note := range p.Notes {
		if i == 0 {
			terminal.Fprintf(b, "\nUnknown to this plan:\n")
		}
		terminal.Fprintf(b, "  - %s\n", note)
	}
	return b.Flush()
}

// title says what a request is about: CREATE Deployment shop/web (apps/v1 deployments),
// by alice.
func title(r *plan.About) string {
	resource := r.Resource
	if r.Subresource != "" {
		resource += "/" + r.Subresource
	}
	name := r.Name
	if name == "" {
		name = "(no name yet)"
	}
	if r.Namespace != "" && r.Resource != "namespaces" {
		name = path.Join(r.Namespace, name)
	}
	s := fmt.Sprintf("%s %s %s (%s %s)", r.Operation, r.Kind, name, r.APIVersion, resource)
	if r.User != "" {
		s += ", by " + r.User
	}
	if r.DryRun {
		s += ", as a dry run"
	}
	return s
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
	for i := range p.Steps {
		s := &p.Steps[i]
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
			timeout = seconds(s.TimeoutSeconds)
		}
		table.Row(number, s.Pass, s.Effect, by, as, s.FailurePolicy, timeout, strings.Join(remarks(s), "; "))
	}
	// A page takes everything.
	_ = table.Print(b)
}

// remarks say why a step is what it is.
func remarks(s *plan.Step) []string {
	var list []string
	if s.Reason != nil {
		list = append(list, s.Reason.Message)
	} else if summary := s.Summary(); summary != "" {
		list = append(list, summary)
	}
	if len(s.Patch) > 0 {
		list = append(list, "changes "+strings.Join(changedFields(s.Patch), ", "))
	}
	list = append(list, s.Details()...)
	rule := ""
	if s.Rule != nil {
		rule = fmt.Sprintf("rule %d", *s.Rule+1)
	}
	if s.Location != nil {
		rule = strings.TrimSpace(rule + " at " + s.Location.String())
	}
	if rule != "" {
		list = append(list, rule)
	}
	if s.As != nil && s.As.Equivalent {
		list = append(list, "converted: the rule is about an equivalent resource")
	}
	if s.MayGoAhead {
		list = append(list, "may be called ahead of its turn")
	}
	if s.MayReinvoke {
		list = append(list, "may be called again")
	}
	return append(list, s.Notes...)
}

// changedFields lists the paths of a patch.
func changedFields(patch json.RawMessage) []string {
	var operations []trace.PatchOperation
	if err := json.Unmarshal(patch, &operations); err != nil {
		return []string{"the object"}
	}
	paths := make([]string, len(operations))
	for i := range operations {
		paths[i] = operations[i].Path
	}
	return paths
}

// seconds writes a number of seconds as a duration.
func seconds(n float64) string { return (time.Duration(n * float64(time.Second))).String() }
