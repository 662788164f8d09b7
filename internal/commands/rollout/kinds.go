package rollout

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gatehouse-dev/gatehouse/admission/registration"
	"github.com/gatehouse-dev/gatehouse/internal/server/reporting/replicas/v1alpha1"
)

// States is the resource in which a server reports the registrations that are active.
var States = v1alpha1.SchemeGroupVersion.WithResource("registrationstates")

// short are the short names of kinds.
var short = map[string]registration.Source{
	"mutating": registration.Mutating, "validating": registration.Validating, "initializer": registration.Initializing, "external": registration.External,
}

// Kinds returns the kinds of registrations, by plural, in order.
func Kinds() (list []string) {
	for _, d := range registration.Sources() {
		list = append(list, d.Resource)
	}
	slices.Sort(list)
	return list
}

// SoftKinds returns the kinds of registrations that may be warn only or audit only, by plural, in order:
// all except initializers.
func SoftKinds() []string {
	return slices.DeleteFunc(Kinds(), func(plural string) bool { return plural == registration.Initializing.Descriptor().Resource })
}

// Plural returns the resource of a kind of registration in the user's notation; ok is false if there is
// none.
func Plural(kind string) (plural string, ok bool) {
	given := strings.TrimSuffix(strings.ToLower(kind), "."+registration.GroupName)
	if source, ok := short[given]; ok {
		return source.Descriptor().Resource, true
	}
	for _, d := range registration.Sources() {
		if given == d.Resource || given == strings.ToLower(d.Kind) {
			return d.Resource, true
		}
	}
	return "", false
}

// Target is a registration that a user wrote as KIND/NAME.
type Target struct{ Plural, Name string }

// ParseTarget parses a registration in the form KIND/NAME.
func ParseTarget(text string) (Target, error) {
	return parse(text, Kinds(), "is not a kind of registration: use mutating, validating, initializer or external")
}

// ParseSoft is ParseTarget for a registration that may be warn only or audit only.
func ParseSoft(text string) (Target, error) {
	kinds := SoftKinds()
	return parse(text, kinds, "has no enforcement mode: use one of "+strings.Join(kinds, ", "))
}

// parse parses a registration of one of several kinds. otherwise is the error text for another kind.
func parse(text string, kinds []string, otherwise string) (Target, error) {
	kind, name, ok := strings.Cut(text, "/")
	if !ok || kind == "" || name == "" {
		return Target{}, fmt.Errorf("%q is not of the form KIND/NAME, such as validatingadmissionpolicy/teams", text)
	}
	plural, _ := Plural(kind)
	if !slices.Contains(kinds, plural) {
		return Target{}, fmt.Errorf("%q %s", kind, otherwise)
	}
	return Target{plural, name}, nil
}

// State returns the name of the registration's state among States.
func (t Target) State() string { return t.Plural + "." + t.Name }

// Resource returns the resource of the registration.
func (t Target) Resource() schema.GroupVersionResource { return Resource(t.Plural) }

// Resource returns the resource of a kind of registration, by its plural.
func Resource(plural string) schema.GroupVersionResource {
	i := slices.IndexFunc(registration.Sources(), func(d registration.Descriptor) bool { return d.Resource == plural })
	return schema.GroupVersionResource{Group: registration.GroupName, Version: registration.Sources()[i].Versions[0], Resource: plural}
}
