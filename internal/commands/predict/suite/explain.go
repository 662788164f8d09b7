package suite

import (
	"bytes"
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/google/cel-go/common/types/ref"
	"github.com/rogpeppe/go-internal/diff"
	"sigs.k8s.io/yaml"

	"github.com/gatehouse-dev/gatehouse/admission/plan"
	"github.com/gatehouse-dev/gatehouse/admission/trace"
	"github.com/gatehouse-dev/gatehouse/internal/commands/predict/stage"
	"github.com/gatehouse-dev/gatehouse/internal/engine/expression"
	"github.com/gatehouse-dev/gatehouse/internal/readers/view"
)

// maxNearest bounds the registrations in an explanation that did not apply.
const maxNearest = 5

// explain explains a failed test: the act of each step, the values of the parts of expressions, and the registrations
// that nearly applied. It evaluates the request once more.
func (r *runner) explain(ctx context.Context, w *stage.Stage, result *Result, calls *callers) {
	t, o := result.test, result.Outcome
	watch := &watcher{}
	if again, err := t.judge(ctx, w, calls, watch.saw); err == nil {
		o = again
	}
	result.Repeat = r.repeat(t)
	result.Explanation = append(o.happened(watch), r.nearly(ctx, w, o)...)
	result.Diff = t.difference(result.Outcome)
}

// repeat returns the command that repeats a test.
func (r *runner) repeat(t *Test) string {
	if r.Repeat == "" {
		return ""
	}
	return fmt.Sprintf("%s --run '%s'", r.Repeat, strings.ReplaceAll("^"+regexp.QuoteMeta(t.Name)+"$", "'", `'\''`))
}

// happened describes the acts of the request's steps.
func (o *Outcome) happened(watch *watcher) []string {
	var lines []string
	for s := range o.trace.Verdicts(true).Each() {
		for act := range s.Acts() {
			switch {
			case act.Kind != trace.ByPlugin:
			case act.Deed == trace.Rejects:
				lines = append(lines, fmt.Sprintf("%s rejected the request: %s", s.Plugin, act.Message))
			default:
				lines = append(lines, fmt.Sprintf("%s changed %s", s.Plugin, paths(act.Patch)))
			}
		}
		for part := range s.Parts() {
			switch j, c := part.Judgement, part.Call; {
			case j != nil:
				lines = append(lines, fmt.Sprintf("%s: %s: %s", s.Plugin, &j.Policy, view.Judged(s, j).Text))
				for act := range s.Acts() {
					if act.Entry == &j.Policy && len(act.Patch) > 0 {
						lines = append(lines, fmt.Sprintf("    binding %s: mutation %d %s the object", act.Binding, *act.Index+1, act.Deed))
						for i := range act.Patch {
							lines = append(lines, shorten(fmt.Sprintf("        %s = %s", act.Patch[i].Path, act.Patch[i].Value)))
						}
					}
				}
				for i := range j.Consequences {
					lines = append(lines, "    "+view.Consequence(&j.Consequences[i]).Text)
				}
				lines = append(lines, watch.values(j.Policy.Configuration)...)
			case part.Unused == "":
				line := fmt.Sprintf("%s: %s: %s", s.Plugin, &c.Webhook, c.Verdict)
				if c.Error != "" {
					line += ": " + c.Error
				}
				if c.Ignored {
					line += " (" + view.Ignored + ")"
				}
				if len(c.Patch) > 0 {
					line += ": changed " + paths(c.Patch)
				}
				lines = append(lines, line)
			}
		}
	}
	if len(lines) == 0 {
		lines = append(lines, "no plugin changed or rejected the request, and no policy or webhook applied")
	}
	return lines
}

// paths returns the paths that a JSON patch changes.
func paths(patch []trace.PatchOperation) string {
	var list []string
	for i := range patch {
		if p := &patch[i]; p.Op != "test" && !slices.Contains(list, p.Path) {
			list = append(list, p.Path)
		}
	}
	return shorten(strings.Join(list, ", "))
}

// values lists the values of the parts of a policy's expressions.
func (w *watcher) values(policy string) []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var lines []string
	for i := range w.list {
		j := &w.list[i]
		if j.entry.Configuration != policy || j.seen.AST == nil {
			continue
		}
		lines = append(lines, fmt.Sprintf("    %s = %s", oneLine(j.e.Text()), valueOf(j.seen.Value, j.seen.Err)))
		for _, v := range j.seen.Values(nil) {
			lines = append(lines, fmt.Sprintf("        %s = %s", v.Expression, v.Value))
		}
	}
	return lines
}

func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }

// valueOf formats a CEL value.
func valueOf(v ref.Val, err error) string {
	if err != nil {
		return "error: " + err.Error()
	}
	return expression.ValueText(v)
}

// nearly lists the registrations that did not apply, nearest first.
func (r *runner) nearly(ctx context.Context, w *stage.Stage, o *Outcome) []string {
	p, err := w.Plan(ctx, o.plan)
	if err != nil {
		return []string{"what did not apply is not known: " + err.Error()}
	}
	var lines []string
	more := 0
	for s := range p.Each() {
		if s.Effect != plan.Skip || s.Entry == nil || s.Reason == nil {
			continue
		}
		if len(lines) >= maxNearest {
			more++
			continue
		}
		lines = append(lines, fmt.Sprintf("%s: %s did not apply: %s", s.Plugin, s.Entry, s.Reason.Message))
	}
	if more > 0 {
		lines = append(lines, fmt.Sprintf("%d more policies and webhooks did not apply", more))
	}
	return lines
}

// difference returns the diff between the expected and the actual object.
func (t *Test) difference(o *Outcome) string {
	if !t.expect.has("object") || o.Object == nil {
		return ""
	}
	want, err := yaml.Marshal(t.expect.object)
	if err != nil {
		return ""
	}
	got, err := yaml.Marshal(like(t.expect.object, o.Object))
	if err != nil || bytes.Equal(want, got) {
		return ""
	}
	text := string(diff.Diff("expected", want, "real", got))
	_, text, _ = strings.Cut(text, "\n")
	return text
}

// like reduces an object to the parts that an expectation covers. A list without an expected element stays whole.
func like(want, got any) any {
	switch want := want.(type) {
	case map[string]any:
		in, ok := got.(map[string]any)
		if !ok {
			return got
		}
		out := map[string]any{}
		for key, value := range want {
			if real, ok := in[key]; ok {
				out[key] = like(value, real)
			}
		}
		return out
	case []any:
		in, ok := got.([]any)
		if !ok {
			return got
		}
		if names, ok := named(want); ok {
			have, _ := named(in)
			out := []any{}
			for i, name := range names {
				k := slices.Index(have, name)
				if k < 0 {
					return got
				}
				out = append(out, like(want[i], in[k]))
			}
			return out
		}
		if len(want) != len(in) {
			return got
		}
		out := make([]any, len(in))
		for i := range in {
			out[i] = like(want[i], in[i])
		}
		return out
	}
	return got
}
