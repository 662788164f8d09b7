package emulation

import (
	_ "embed"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/util/version"
)

// fieldsText has the fields that differ between releases.
//
//go:embed fields.txt
var fieldsText string

// change is a line of fieldsText: a release that added or removed a field.
type change struct {
	field, release string
	came           bool
}

// changes are the lines of fieldsText, by type, in the order of the releases for each field.
var changes = sync.OnceValue(func() map[string][]change {
	all := map[string][]change{}
	for line := range strings.Lines(fieldsText) {
		words := strings.Fields(line)
		if len(words) != 3 || words[0] == "#" {
			continue
		}
		all[words[0]] = append(all[words[0]], change{words[1], words[2][1:], words[2][0] == '+'})
	}
	return all
})

// Fields are the fields of kinds that a release lacks and this program has, and the reverse
// (S26.12). Nil Fields are empty.
type Fields struct {
	// later and gone have the fields by type.
	later, gone map[string]map[string]bool
}

// FieldsOf returns the differences between the fields of this program and of a release, given a
// version such as v1.35.4-eks-1; nil if there are none, or if the text is not a version. A release
// older than the supported ones differs at least as much as the oldest supported one.
func FieldsOf(text string) *Fields {
	release, _, err := Nearest(text)
	all := Releases()
	if err != nil || release == all[len(all)-1] {
		return nil
	}
	of := version.MustParseGeneric(release)
	f := &Fields{map[string]map[string]bool{}, map[string]map[string]bool{}}
	for name, list := range changes() {
		then, now := map[string]bool{}, map[string]bool{}
		for _, c := range list {
			if _, seen := now[c.field]; !seen {
				// The field existed before it was removed.
				then[c.field] = !c.came
			}
			if of.AtLeast(version.MustParseGeneric(c.release)) {
				then[c.field] = c.came
			}
			now[c.field] = c.came
		}
		for field := range now {
			switch {
			case now[field] && !then[field]:
				put(f.later, name, field)
			case then[field] && !now[field]:
				put(f.gone, name, field)
			}
		}
	}
	return f
}

func put(into map[string]map[string]bool, name, field string) {
	if into[name] == nil {
		into[name] = map[string]bool{}
	}
	into[name][field] = true
}

// Remove removes the fields from an object of a Go type of Kubernetes. It returns the paths of the
// fields that the release lacks, in the form of a strict decoder.
func (f *Fields) Remove(object map[string]any, of reflect.Type) (later []string) {
	if f == nil {
		return nil
	}
	f.remove(object, of, "", &later)
	return later
}

func (f *Fields) remove(value any, of reflect.Type, path string, later *[]string) {
	for of.Kind() == reflect.Pointer {
		of = of.Elem()
	}
	switch v := value.(type) {
	case []any:
		if of.Kind() != reflect.Slice {
			return
		}
		for i, element := range v {
			f.remove(element, of.Elem(), fmt.Sprintf("%s[%d]", path, i), later)
		}
	case map[string]any:
		var members map[string]reflect.Type
		switch of.Kind() {
		case reflect.Struct:
			members = Members(of)
		case reflect.Map:
		default:
			return
		}
		name := typeName(of)
		for _, member := range slices.Sorted(maps.Keys(v)) {
			at := strings.TrimPrefix(path+"."+member, ".")
			switch inner, known := members[member]; {
			case f.gone[name][member]:
				delete(v, member)
			case f.later[name][member]:
				*later = append(*later, at)
				delete(v, member)
			case of.Kind() == reflect.Map:
				f.remove(v[member], of.Elem(), at, later)
			case known:
				f.remove(v[member], inner, at, later)
			}
		}
	}
}

// typeName returns the name of a type in the form of fieldsText.
func typeName(of reflect.Type) string {
	return strings.TrimPrefix(of.PkgPath(), "k8s.io/api/") + "." + of.Name()
}

// Members returns the types of a struct's JSON members.
func Members(of reflect.Type) map[string]reflect.Type {
	members := map[string]reflect.Type{}
	for i := range of.NumField() {
		field := of.Field(i)
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		switch {
		case name != "" && name != "-":
			members[name] = field.Type
		case name == "" && field.Anonymous && field.Type.Kind() == reflect.Struct:
			maps.Copy(members, Members(field.Type))
		}
	}
	return members
}
