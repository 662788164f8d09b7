package initializers

import (
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

var path = field.NewPath("metadata", "initializers")

// Validate says what is wrong with a value of metadata.initializers (S11.2). A
// name may be there once: it is the merge key of the list.
func Validate(i *Initializers) field.ErrorList {
	var errs field.ErrorList
	for n, pending := range i.Pending {
		at := path.Child("pending").Index(n).Child("name")
		errs = append(errs, validateName(pending.Name, at)...)
		if slices.Contains(i.Pending[:n], pending) {
			errs = append(errs, field.Duplicate(at, pending.Name))
		}
	}
	if i.Result != nil && i.Result.Status != metav1.StatusFailure {
		errs = append(errs, field.Invalid(path.Child("result", "status"), i.Result.Status, "must be 'Failure'"))
	}
	return errs
}

// validateName reports the first thing that is wrong with a name (S1.10).
func validateName(name string, at *field.Path) field.ErrorList {
	if name == "" {
		return field.ErrorList{field.Required(at, "")}
	}
	if messages := validation.IsDNS1123Subdomain(name); len(messages) > 0 {
		return field.ErrorList{field.Invalid(at, name, strings.Join(messages, ", "))}
	}
	if strings.Count(name, ".") < 2 {
		return field.ErrorList{field.Invalid(at, name, "should be a domain with at least three segments separated by dots")}
	}
	return nil
}
