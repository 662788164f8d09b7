package initializers

import (
	"strings"

	"github.com/gatehouse-dev/gatehouse/admission/registration"
)

// CycleError says that initializers cannot be ordered: each acts before the
// next, and the last before the first.
type CycleError struct{ Constraints []registration.Constraint }

func (e *CycleError) Error() string {
	parts := make([]string, len(e.Constraints))
	for i, c := range e.Constraints {
		parts[i] = c.String()
	}
	return "cannot order the initializers: " + strings.Join(parts, ", ")
}

// CheckOrder returns a *CycleError when the lists After and Before of
// initializers contradict one another, else nil. Names that are not in the list
// mean nothing. The cycle it names is the same for the same list.
func CheckOrder(list []*registration.Entry) error {
	// earlier has what must act before an initializer, by name.
	earlier := map[string][]registration.Constraint{}
	for _, c := range registration.Constraints(list) {
		earlier[c.Later] = append(earlier[c.Later], c)
	}
	done := map[string]bool{}
	var walk func(name string, path []registration.Constraint) *CycleError
	walk = func(name string, path []registration.Constraint) *CycleError {
		for n, c := range path {
			if c.Later == name {
				return cycle(path[n:])
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
	for _, i := range list {
		if err := walk(i.Name, nil); err != nil {
			return err
		}
	}
	return nil
}

// cycle turns a path, which goes from later to earlier, around.
func cycle(path []registration.Constraint) *CycleError {
	e := &CycleError{}
	for n := len(path) - 1; n >= 0; n-- {
		e.Constraints = append(e.Constraints, path[n])
	}
	return e
}
