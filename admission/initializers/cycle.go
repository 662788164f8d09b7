package initializers

import (
	"fmt"
	"strings"

	"github.com/gatehouse-dev/gatehouse/admission/registration"
)

// Constraint says that one initializer acts before another, and who says so.
type Constraint struct {
	Earlier, Later string
	// By is the initializer that has the other in its list After or Before.
	By *registration.Entry
}

func (c Constraint) String() string {
	if c.By.Name == c.Later {
		return fmt.Sprintf("%q is after %q (configuration %q)", c.Later, c.Earlier, c.By.Configuration)
	}
	return fmt.Sprintf("%q is before %q (configuration %q)", c.Earlier, c.Later, c.By.Configuration)
}

// CycleError says that initializers cannot be ordered: each acts before the
// next, and the last before the first.
type CycleError struct{ Constraints []Constraint }

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
	known := make(map[string]bool, len(list))
	for _, i := range list {
		known[i.Name] = true
	}
	// earlier has what must act before an initializer, by name.
	earlier := map[string][]Constraint{}
	add := func(c Constraint) {
		if known[c.Earlier] && known[c.Later] {
			earlier[c.Later] = append(earlier[c.Later], c)
		}
	}
	for _, i := range list {
		for _, name := range i.After {
			add(Constraint{Earlier: name, Later: i.Name, By: i})
		}
		for _, name := range i.Before {
			add(Constraint{Earlier: i.Name, Later: name, By: i})
		}
	}
	done := map[string]bool{}
	var walk func(name string, path []Constraint) *CycleError
	walk = func(name string, path []Constraint) *CycleError {
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
func cycle(path []Constraint) *CycleError {
	e := &CycleError{}
	for n := len(path) - 1; n >= 0; n-- {
		e.Constraints = append(e.Constraints, path[n])
	}
	return e
}
