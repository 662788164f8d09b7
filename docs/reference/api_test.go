package reference

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"k8s.io/kube-openapi/pkg/spec3"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"github.com/gatehouse-dev/gatehouse/test/harness"
	"github.com/gatehouse-dev/gatehouse/test/pagetest"
)

// docs/reference/api.md has the kinds of gatehouse.dev and their fields, as the server
// describes them to clients.
func TestTheReferenceHasTheAPI(t *testing.T) {
	s := harness.Start(t, "--controllers", "-*")
	var document spec3.OpenAPI
	if err := json.Unmarshal(s.HTTP(t, nil).Get("/openapi/v3/apis/gatehouse.dev/v1alpha1").Raw, &document); err != nil {
		t.Fatal(err)
	}
	p := &page{schemas: document.Components.Schemas}
	fmt.Fprintf(&p.text, "The kinds of `gatehouse.dev/v1alpha1`. `gatehouse kubectl explain KIND` prints the same. Servers compute these objects when\nthey are read or created; they store none of them.\n\n| path | verbs |\n|---|---|\n")
	for _, path := range slices.Sorted(maps.Keys(document.Paths.Paths)) {
		fmt.Fprintf(&p.text, "| `%s` | %s |\n", path, strings.Join(verbs(document.Paths.Paths[path]), ", "))
	}
	kinds := 0
	for _, name := range slices.Sorted(maps.Keys(p.schemas)) {
		if kind := kindOfGatehouse(p.schemas[name]); kind == last(name) && !strings.HasSuffix(kind, "List") && strings.Contains(name, "gatehouse") {
			kinds++
			p.describe(name)
		}
	}
	if kinds == 0 {
		t.Fatal("the document has no kinds")
	}
	for len(p.later) > 0 {
		name := p.later[0]
		p.later = p.later[1:]
		p.describe(name)
	}
	for _, name := range p.silent {
		t.Errorf("the field %s has no description", name)
	}
	check(t, "api.md", "The API gatehouse.dev", p.text.String())
}

func verbs(p *spec3.Path) []string {
	var found []string
	for _, o := range []*spec3.Operation{p.Get, p.Post, p.Put, p.Patch, p.Delete} {
		if o == nil {
			continue
		}
		if verb, ok := o.Extensions.GetString("x-kubernetes-action"); ok {
			found = append(found, verb)
		}
	}
	return found
}

// kindOfGatehouse is the kind that a schema is, if it is one of gatehouse.dev.
func kindOfGatehouse(s *spec.Schema) string {
	list, _ := s.Extensions["x-kubernetes-group-version-kind"].([]any)
	for _, one := range list {
		if of, ok := one.(map[string]any); ok && of["group"] == "gatehouse.dev" {
			kind, _ := of["kind"].(string)
			return kind
		}
	}
	return ""
}

// page is the description of kinds, and of the schemas that they use.
type page struct {
	schemas map[string]*spec.Schema
	text    strings.Builder
	// seen are the described and the queued schemas, later the queue.
	seen, later []string
	// silent are fields without a description.
	silent []string
}

func (p *page) describe(name string) {
	if !slices.Contains(p.seen, name) {
		p.seen = append(p.seen, name)
	}
	s, short := p.schemas[name], last(name)
	fmt.Fprintf(&p.text, "\n## %s\n\n%s\n\n| field | type | |\n|---|---|---|\n", short, s.Description)
	for _, field := range slices.Sorted(maps.Keys(s.Properties)) {
		schema := s.Properties[field]
		text := schema.Description
		switch {
		case text == "":
			p.silent = append(p.silent, short+"."+field)
		case field == "apiVersion" || field == "kind" || field == "metadata":
			text = "As in every object."
		}
		name := "`" + field + "`"
		if slices.Contains(s.Required, field) {
			name += ", required"
		}
		fmt.Fprintf(&p.text, "| %s | %s | %s |\n", name, p.typeOf(&schema), pagetest.Cell(text))
	}
}

// typeOf names a type, and has its schema described when it is Gatehouse's own.
func (p *page) typeOf(s *spec.Schema) string {
	ref := s.Ref.String()
	if ref == "" && len(s.AllOf) == 1 {
		ref = s.AllOf[0].Ref.String()
	}
	if ref != "" {
		name := ref[strings.LastIndex(ref, "/")+1:]
		if !strings.Contains(name, "gatehouse") {
			return last(name)
		}
		if !slices.Contains(p.seen, name) {
			p.seen, p.later = append(p.seen, name), append(p.later, name)
		}
		return fmt.Sprintf("[%s](#%s)", last(name), strings.ToLower(last(name)))
	}
	switch {
	case len(s.Type) == 0:
		return "any"
	case s.Type[0] == "array":
		return "list of " + p.typeOf(s.Items.Schema)
	case s.Type[0] == "object" && s.AdditionalProperties != nil && s.AdditionalProperties.Schema != nil:
		return "map to " + p.typeOf(s.AdditionalProperties.Schema)
	}
	if s.Format != "" {
		return fmt.Sprintf("%s (%s)", s.Type[0], s.Format)
	}
	return s.Type[0]
}

// last is the end of the name of a schema.
func last(name string) string { return name[strings.LastIndex(name, ".")+1:] }
