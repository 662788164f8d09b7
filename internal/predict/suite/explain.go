package suite

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/google/cel-go/common/types/ref"
	"github.com/rogpeppe/go-internal/diff"
	"sigs.k8s.io/yaml"

	"github.com/gatehouse-dev/gatehouse/admission/plan"
	"github.com/gatehouse-dev/gatehouse/internal/engine/expression"
	"github.com/gatehouse-dev/gatehouse/internal/predict/check"
)

// maxNearest is how much an explanation says of what did not apply.
const maxNearest = 5

// explain says why a test failed: what each step did, what the parts of expressions were, and what
// nearly applied. The request is judged once more for it.
func (r *runner) explain(ctx context.Context, w *check.World, result *Result, calls *callers) {
	t, o := result.test, result.Outcome
	watch := &watcher{}
	if again, err := t.judge(ctx, w, calls, watch.saw); err == nil {
		o = again
	}
	result.Repeat = r.repeat(t)
	result.Explanation = append(o.happened(watch), r.nearly(ctx, w, o)...)
	result.Diff = t.difference(result.Outcome)
}

// repeat is the command that repeats a test.
func (r *runner) repeat(t *Test) string {
	if r.Repeat == "" {
		return ""
	}
	return fmt.Sprintf("%s --run '%s'", r.Repeat, strings.ReplaceAll("^"+regexp.QuoteMeta(t.Name)+"$", "'", `'\''`))
}

// happened says what the steps of the request did.
func (o *Outcome) happened(watch *watcher) []string {
	var lines []string
	for _, s := range o.trace.Steps() {
		switch {
		case s.Run == nil && s.Err != nil:
			lines = append(lines, fmt.Sprintf("%s rejected the request: %v", s.Plugin, s.Err))
		case s.Run == nil && s.Patch() != nil:
			lines = append(lines, fmt.Sprintf("%s changed %s", s.Plugin, paths(s.Patch())))
		case s.Run != nil:
			for i := range s.Run.Judgements {
				j := &s.Run.Judgements[i]
				lines = append(lines, strings.Split(fmt.Sprintf("%s: %s", s.Plugin, j.String()), "\n")...)
				lines = append(lines, watch.values(j.Policy.Configuration)...)
			}
			for i := range s.Run.Calls {
				c := &s.Run.Calls[i]
				line := fmt.Sprintf("%s: %s/%s: %s", s.Plugin, c.Entry.Configuration, c.Entry.Name, c.Verdict)
				if c.Err != nil {
					line += ": " + c.Err.Error()
				}
				if c.Ignored {
					line += " (ignored: failurePolicy is Ignore)"
				}
				if len(c.Patch) > 0 {
					line += ": changed the object: " + shorten(string(c.Patch))
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

// paths are the places that a JSON patch changes.
func paths(patch []byte) string {
	var operations []struct {
		Op   string `json:"op"`
		Path string `json:"path"`
	}
	if json.Unmarshal(patch, &operations) != nil {
		return "the object"
	}
	var list []string
	for _, o := range operations {
		if o.Op != "test" && !slices.Contains(list, o.Path) {
			list = append(list, o.Path)
		}
	}
	return shorten(strings.Join(list, ", "))
}

// values are what the parts of the expressions of a policy were.
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

// valueOf shows a value of CEL.
func valueOf(v ref.Val, err error) string {
	if err != nil {
		return "error: " + err.Error()
	}
	return expression.ValueText(v)
}

// nearly says what did not apply, the nearest first.
func (r *runner) nearly(ctx context.Context, w *check.World, o *Outcome) []string {
	p, err := w.Plan(ctx, o.plan)
	if err != nil {
		return []string{"what did not apply is not known: " + err.Error()}
	}
	var lines []string
	more := 0
	for i := range p.Steps {
		s := &p.Steps[i]
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

// difference is that between the object that is expected and the one that came.
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

// like is the part of an object that an expectation is about.
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
				if k := slices.Index(have, name); k >= 0 {
					out = append(out, like(want[i], in[k]))
				}
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
