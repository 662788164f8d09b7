package check

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gatehouse-dev/gatehouse/internal/commands/predict/crdschema"
	"github.com/gatehouse-dev/gatehouse/internal/readers/report"
)

// definedElsewhere returns the CRDs of Options.Definitions for the kinds that nothing else defines.
func (r *run) definedElsewhere(ctx context.Context) ([]*unstructured.Unstructured, error) {
	if r.Definitions == nil {
		return nil, nil
	}
	written := slices.Concat(r.Set.Unstructured(), r.Old.Unstructured())
	found, err := r.Definitions.Find(ctx, r.stage.Undefined(slices.Concat(written, r.Snapshot.Objects())))
	if err != nil {
		return nil, err
	}
	r.guessed = map[schema.GroupKind]crdschema.Guess{}
	for _, g := range found.Guessed {
		r.guessed[g.Kind] = g
		r.report.Notes = append(r.report.Notes, g.Note())
	}
	r.report.Notes = append(r.report.Notes, found.Notes...)
	return found.Definitions, nil
}

// doubtGuesses makes the verdict on an object unknown if a registration matches its guessed resource by name or scope.
func (r *run) doubtGuesses(context.Context) error {
	for _, t := range slices.Concat(r.tasks, r.removed) {
		g, guessed := r.guessed[t.sent.GroupVersionKind().GroupKind()]
		if !guessed || t.skipped || t.result.Verdict == NotJudged {
			continue
		}
		doubtful := crdschema.Matching(slices.Concat(r.Snapshot.Objects(), r.Set.Unstructured()), g.Kind.Group)
		decided := func(c *report.Cause) bool {
			configuration, _, _ := strings.Cut(c.Webhook, "/")
			return slices.Contains(doubtful, c.Policy) || slices.Contains(doubtful, configuration)
		}
		if len(doubtful) == 0 || t.result.Verdict == Rejected && !decided(&t.result.Cause) {
			continue
		}
		r.report.Findings = slices.DeleteFunc(r.report.Findings, func(f report.Finding) bool {
			return f.File == t.object.File && f.Object == t.result.Title() && f.Level == report.Error && decided(&f.Cause)
		})
		t.result.Verdict = Unknown
		r.report.notChecked(t, fmt.Sprintf("the resource %s is a guess, so it is unknown whether %s applies: --schema-location with the CRD of %s has the resource", g.Plural, strings.Join(doubtful, ", "), g.Kind.Kind))
	}
	return nil
}
