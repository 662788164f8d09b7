package registration

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Annotations of a MutatingWebhookConfiguration or MutatingAdmissionPolicy for the order of objects
// of its kind: names of earlier and of later objects, separated by commas (S5.29, S18.33). A
// kube-apiserver ignores them.
const (
	AfterAnnotation  = "gatehouse.dev/after"
	BeforeAnnotation = "gatehouse.dev/before"
)

// Order names the entries of its source before and after which an entry acts. Initializers name
// other initializers. Webhooks and policies name objects, and all entries of an object have the
// same Order.
type Order struct {
	// After are the names of entries that act earlier than this entry, and Before the names of
	// later ones.
	After, Before []string
}

// orderOf returns the order in the annotations of an object; nil if there is none.
func orderOf(meta metav1.Object) *Order {
	o := &Order{After: named(meta, AfterAnnotation), Before: named(meta, BeforeAnnotation)}
	if o.After == nil && o.Before == nil {
		return nil
	}
	return o
}

// named returns the names in an annotation, without the name of the object itself.
func named(meta metav1.Object, annotation string) []string {
	value, ok := meta.GetAnnotations()[annotation]
	if !ok {
		return nil
	}
	var names []string
	for name := range strings.SplitSeq(value, ",") {
		if name = strings.TrimSpace(name); name != "" && name != meta.GetName() {
			names = append(names, name)
		}
	}
	return names
}

// ValidateOrder returns the errors in the order annotations of an object: names that no object can
// have, and the object's own name (S5.30). Stored annotations are accepted; old is nil for a new
// object.
func ValidateOrder(obj, old metav1.Object) field.ErrorList {
	var errs field.ErrorList
	for _, annotation := range []string{AfterAnnotation, BeforeAnnotation} {
		value, ok := obj.GetAnnotations()[annotation]
		if !ok || old != nil && old.GetAnnotations()[annotation] == value {
			continue
		}
		path := field.NewPath("metadata", "annotations").Key(annotation)
		for name := range strings.SplitSeq(value, ",") {
			name = strings.TrimSpace(name)
			if name == obj.GetName() && name != "" {
				errs = append(errs, field.Invalid(path, value, "must not name the object itself"))
				continue
			}
			for _, problem := range validation.IsDNS1123Subdomain(name) {
				errs = append(errs, field.Invalid(path, value, fmt.Sprintf("must be names of other objects of this kind, with commas between them: %q: %s", name, problem)))
			}
		}
	}
	return errs
}

// Constraint is a constraint on the order: Earlier acts before Later.
type Constraint struct {
	Earlier, Later string
	// By is the entry with the annotation, Earlier or Later. If an object has several entries, By
	// is the first one.
	By *Entry
	// earlier and later are the indexes of the two blocks in the list.
	earlier, later int
}

// Granted reports whether the list of the constraint has this order. If constraints contradict each
// other, one of them is not granted.
func (c Constraint) Granted() bool { return c.earlier < c.later }

// Concerns reports whether an entry is Earlier or Later.
func (c Constraint) Concerns(e *Entry) bool { return e.Place() == c.Earlier || e.Place() == c.Later }

// String describes the constraint in words.
func (c Constraint) String() string {
	text, annotation := fmt.Sprintf("%q is before %q", c.Earlier, c.Later), BeforeAnnotation
	if c.By.Place() == c.Later {
		text, annotation = fmt.Sprintf("%q is after %q", c.Later, c.Earlier), AfterAnnotation
	}
	if c.By.Source == Initializing {
		return fmt.Sprintf("%s (configuration %q)", text, c.By.Configuration)
	}
	return fmt.Sprintf("%s (its annotation %s)", text, annotation)
}

// Place is the name of the entry in order annotations.
func (e *Entry) Place() string {
	if e.Source == Initializing {
		return e.Name
	}
	return e.Configuration
}

// Ordered returns the entries of an object that matter for the order: all initializers of a
// configuration, or one entry for a MutatingWebhookConfiguration or MutatingAdmissionPolicy with
// order annotations. It returns none for other objects.
func Ordered(resource schema.GroupResource, obj runtime.Object) []*Entry {
	if resource.Group != GroupName {
		return nil
	}
	for _, source := range []Source{Mutating, MutatingPolicies} {
		if resource.Resource != source.Descriptor().Resource {
			continue
		}
		m, err := meta.Accessor(obj)
		if err != nil {
			return nil
		}
		if order := orderOf(m); order != nil {
			return []*Entry{{Origin: Origin{Source: source, Configuration: m.GetName()}, Order: order}}
		}
		return nil
	}
	if resource.Resource != Initializing.Descriptor().Resource {
		return nil
	}
	// The storage rejects an object that cannot be read.
	entries, _ := Entries(obj)
	return entries
}

// blocks splits a list into blocks that move together: single initializers, or all entries of one
// object.
func blocks(list []*Entry) [][]*Entry {
	var out [][]*Entry
	for i, e := range list {
		if n := len(out) - 1; n >= 0 && e.Source != Initializing && out[n][0].Configuration == e.Configuration {
			out[n] = append(out[n], e)
			continue
		}
		out = append(out, list[i:i+1:i+1])
	}
	return out
}

// Constraints returns the order constraints of the entries of a source, in the order of the list.
// Names that are not in the list have no effect.
func Constraints(list []*Entry) []Constraint {
	if !slices.ContainsFunc(list, func(e *Entry) bool { return e.Order != nil }) {
		return nil
	}
	return constraints(blocks(list))
}

func constraints(list [][]*Entry) []Constraint {
	// first has the index of the first block of each name.
	first := make(map[string]int, len(list))
	for i, b := range list {
		if _, ok := first[b[0].Place()]; !ok {
			first[b[0].Place()] = i
		}
	}
	var found []Constraint
	for at, b := range list {
		by := b[0]
		if by.Order == nil {
			continue
		}
		// The block with the annotation need not be the first block of its name.
		for _, name := range by.Order.After {
			if other, ok := first[name]; ok {
				found = append(found, Constraint{name, by.Place(), by, other, at})
			}
		}
		for _, name := range by.Order.Before {
			if other, ok := first[name]; ok {
				found = append(found, Constraint{by.Place(), name, by, at, other})
			}
		}
	}
	return found
}

// Arrange sorts entries of one source into the order in which they act. The list is sorted by name
// (S5.1, S11.5, S18.2). An entry that must act before an earlier element of the list moves directly
// before that element; all others keep their places. The webhooks of one object stay together.
// Names that are not in the list have no effect. If constraints contradict each other, one of them
// is not granted.
func Arrange(list []*Entry) []*Entry {
	if !slices.ContainsFunc(list, func(e *Entry) bool { return e.Order != nil }) {
		return list
	}
	blocks := blocks(list)
	wishes := constraints(blocks)
	if len(wishes) == 0 {
		return list
	}
	// earlier has for each block the indexes of the blocks that must act earlier.
	earlier := make([][]int, len(blocks))
	for _, c := range wishes {
		earlier[c.later] = append(earlier[c.later], c.earlier)
	}
	const (
		untouched = iota
		entered
		placed
	)
	state := make([]int, len(blocks))
	out := make([]*Entry, 0, len(list))
	var place func(int)
	place = func(i int) {
		if state[i] != untouched {
			return
		}
		state[i] = entered
		slices.Sort(earlier[i])
		for _, j := range earlier[i] {
			place(j)
		}
		state[i] = placed
		out = append(out, blocks[i]...)
	}
	for i := range blocks {
		place(i)
	}
	return out
}
