package before

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/gatehouse-dev/gatehouse/admission/registration"
	"github.com/gatehouse-dev/gatehouse/internal/cli/command"
	"github.com/gatehouse-dev/gatehouse/internal/lint"
	"github.com/gatehouse-dev/gatehouse/internal/manifests"
	"github.com/gatehouse-dev/gatehouse/internal/predict/check"
	"github.com/gatehouse-dev/gatehouse/internal/report"
	"github.com/gatehouse-dev/gatehouse/internal/terminal"
)

// checkTypes finds out what the expressions of policies get wrong about types: what 'gatehouse
// check' says of them. about, which may be nil, says which policies matter.
func checkTypes(ctx context.Context, w *lint.World, about func(lint.Object) bool, shown *terminal.Progress) error {
	set, policies := &manifests.Set{}, 0
	for _, u := range w.Typed {
		if u.GetKind() == registration.ValidatingPolicyKind {
			if about != nil && !about(lint.Object{Kind: u.GetKind(), Name: u.GetName()}) {
				continue
			}
			policies++
		}
		set.Objects = append(set.Objects, &manifests.Object{Content: u.Object})
	}
	if policies == 0 {
		return nil
	}
	if err := command.DiscardLogs(ctx); err != nil {
		return err
	}
	shown.Set("Checking the types of " + report.Count(policies, "policy"))
	// A definition may be too large for the annotation of a client-side apply.
	found, err := check.Run(ctx, check.Options{Set: set, Namespace: "default", ServerSide: true})
	if err != nil {
		return fmt.Errorf("checking the types of expressions: %w", err)
	}
	var not []string
	for _, o := range found.Objects {
		if o.Verdict != check.Accepted {
			not = append(not, o.Title()+": "+o.Message)
		}
	}
	if not = append(not, found.Notes...); len(not) > 0 {
		w.Unseen[lint.Types] = strings.Join(not, "; ")
	}
	for i := range found.Findings {
		f := &found.Findings[i]
		if f.Rule != check.RuleTypes {
			continue
		}
		_, name, _ := strings.Cut(f.Object, " ")
		w.Types = append(w.Types, lint.TypeError{Policy: name, Path: fieldPath(f.Field), Message: typeErrors(f.Message)})
	}
	return nil
}

// step is a step of the path of a field.
var step = regexp.MustCompile(`[^.\[\]]+`)

// fieldPath takes the path of a field apart, as spec.validations[0].expression.
func fieldPath(text string) []any {
	var path []any
	for _, s := range step.FindAllString(text, -1) {
		if i, err := strconv.Atoi(s); err == nil {
			path = append(path, i)
		} else {
			path = append(path, s)
		}
	}
	return path
}

// typeError is a line of a warning about types: the kind, if it begins what is about a kind, the
// line and column in the expression, and what is wrong.
var typeError = regexp.MustCompile(`^(?:(.*?): )?ERROR: <input>:(\d+):(\d+): (.*)$`)

// typeErrors puts a warning about types into one line, without the drawing of the expression.
func typeErrors(warning string) string {
	var list []string
	kind := ""
	for line := range strings.Lines(warning) {
		m := typeError.FindStringSubmatch(strings.TrimRight(line, "\n"))
		if m == nil {
			continue
		}
		if m[1] != "" {
			kind = m[1] + ": "
		}
		if text := fmt.Sprintf("%s%s at %s:%s of the expression", kind, m[4], m[2], m[3]); !slices.Contains(list, text) {
			list = append(list, text)
		}
	}
	if len(list) == 0 {
		return strings.Join(strings.Fields(warning), " ")
	}
	return strings.Join(list, "; ")
}
