package policy

import (
	"fmt"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/admission/registration"
)

// A variable that is defined twice, and whose last definition refers to the first, is an error
// (S13.17). It neither crashes the process nor is evaluated repeatedly.
func TestAVariableThatRefersToItself(t *testing.T) {
	p := compiled(&registration.Policy{
		Variables: []registration.Variable{
			{Name: "a", Expression: "1"}, {Name: "b", Expression: "variables.a"}, {Name: "a", Expression: "variables.b + 1"}, {Name: "c", Expression: "2"}, {Name: "c", Expression: "variables.c + 1"},
		},
		Validations: []registration.Validation{{Expression: "variables.a == 2"}, {Expression: "variables.c == 3"}, {Expression: "object.spec.size == 3"}},
	})
	r := p.Validate(t.Context(), pod())
	if len(r.Findings) != 3 {
		t.Fatalf("findings: %q", told(&r))
	}
	for i, name := range []string{"a", "c"} {
		if err := r.Findings[i].Err; err == nil || !strings.Contains(err.Error(), fmt.Sprintf("variable %q refers to itself", name)) {
			t.Errorf("validation %d: error %v", i, err)
		}
	}
	if !r.Findings[2].Holds() {
		t.Errorf("a validation without the variable: %q", told(&r))
	}
}
