package initializers

import (
	"slices"
	"strings"

	"github.com/gatehouse-dev/gatehouse/admission/registration"
)

// CycleError is the error of entries of a source that cannot be ordered: by its Constraints, each
// entry acts before the next, and the last before the first.
type CycleError struct{ Constraints []registration.Constraint }

func (e *CycleError) Error() string {
	parts := make([]string, len(e.Constraints))
	for i, c := range e.Constraints {
		parts[i] = c.String()
	}
	what := map[registration.Source]string{
		registration.Initializing: "initializers", registration.Mutating: "configurations", registration.MutatingPolicies: "policies",
	}[e.Constraints[0].By.Source]
	return "cannot order the " + what + ": " + strings.Join(parts, ", ")
}

// CheckOrder returns a *CycleError if the order constraints of the entries of one source contradict
// each other, and otherwise nil. Names that are not in the list have no effect. For the same list
// the error has the same cycle.
func CheckOrder(list []*registration.Entry) error {
	// earlier has, by name, the constraints on earlier entries.
	earlier := map[string][]registration.Constraint{}
	constraints := registration.Constraints(list)
	for _, c := range constraints {
		earlier[c.Later] = append(earlier[c.Later], c)
	}
	done := map[string]bool{}
	var walk func(name string, path []registration.Constraint) *CycleError
	walk = func(name string, path []registration.Constraint) *CycleError {
		for n, c := range path {
			if c.Later == name {
				// The path goes from later to earlier.
				found := slices.Clone(path[n:])
				slices.Reverse(found)
				return &CycleError{found}
			}
		}
		if done[name] {
			return nil
		}
		for _, c := range earlier[name] {
			if err := walk(c.Earlier, append(path, c)); err != nil {
				return err
			}
		}
		done[name] = true
		return nil
	}
	for _, c := range constraints {
		if err := walk(c.By.Place(), nil); err != nil {
			return err
		}
	}
	return nil
}
