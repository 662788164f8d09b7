package suite

import (
	"context"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gatehouse-dev/gatehouse/internal/commands/predict/crdschema"
	"github.com/gatehouse-dev/gatehouse/internal/commands/predict/stage"
)

// doubts are the kinds of a test environment whose resource is a guess, with the registrations that depend on it.
type doubts map[schema.GroupKind]doubt

type doubt struct {
	guess crdschema.Guess
	names []string
}

// definedElsewhere loads the CRDs of Options.Definitions for the kinds of tests and of their environment that nothing
// else defines. The notes are sentences about them.
func (r *runner) definedElsewhere(ctx context.Context, p *venue, set *worldSet, judged []*Result) (doubts, []string, error) {
	if r.Definitions == nil {
		return nil, nil, nil
	}
	written := set.Unstructured()
	needed := slices.Clone(written)
	for _, result := range judged {
		for _, kind := range result.test.kinds() {
			u := &unstructured.Unstructured{Object: map[string]any{}}
			u.SetGroupVersionKind(kind)
			needed = append(needed, u)
		}
	}
	found, err := r.Definitions.Find(ctx, p.stage.Undefined(needed))
	if err != nil {
		return nil, nil, err
	}
	refused, _, err := p.stage.Load(ctx, metav1.FieldValidationIgnore, found.Definitions)
	if err != nil {
		return nil, nil, err
	}
	made, notes := doubts{}, found.Notes
	for i := range refused {
		left := stage.LeftOut(&refused[i])
		notes = append(notes, left.Text())
	}
	for _, g := range found.Guessed {
		notes = append(notes, g.Note())
		if names := crdschema.Matching(written, g.Kind.Group); len(names) > 0 {
			made[g.Kind] = doubt{g, names}
		}
	}
	return made, notes, nil
}

// of returns the error of a test whose result depends on a guess; nil if it does not.
func (d doubts) of(t *Test) error {
	for _, kind := range t.kinds() {
		if one, ok := d[kind.GroupKind()]; ok {
			return fmt.Errorf("the resource %s of %s is a guess, so it is unknown whether %s applies: add the CRD", one.guess.Plural, kind.Kind, strings.Join(one.names, ", "))
		}
	}
	return nil
}

// kinds returns the kinds of the objects of a request.
func (t *Test) kinds() (list []schema.GroupVersionKind) {
	q := &t.request
	add := func(apiVersion, kind string) {
		gvk := schema.FromAPIVersionAndKind(apiVersion, kind)
		if apiVersion != "" && kind != "" && !slices.Contains(list, gvk) {
			list = append(list, gvk)
		}
	}
	add(q.apiVersion, q.kind)
	for _, content := range []map[string]any{q.object, q.old} {
		u := &unstructured.Unstructured{Object: content}
		add(u.GetAPIVersion(), u.GetKind())
	}
	return list
}
