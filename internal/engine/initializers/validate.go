package initializers

import (
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// MaxPending bounds the pending initializers of one object. Each of them updates the object, and
// all webhooks are called for the update, so more would take minutes.
const MaxPending = 64

var path = field.NewPath("metadata", "initializers")

// Validate returns the errors in a value of metadata.initializers (S11.2). A name may occur once,
// because it is the merge key of the list. At most MaxPending names are valid.
func Validate(i *Initializers) field.ErrorList { return validate(i, MaxPending) }

func validate(i *Initializers, most int) field.ErrorList {
	if len(i.Pending) > most {
		// Do not check the names: a client may send very many.
		return field.ErrorList{field.TooMany(path.Child("pending"), len(i.Pending), most)}
	}
	var errs field.ErrorList
	names := make(sets.Set[string], len(i.Pending))
	for n, pending := range i.Pending {
		at := path.Child("pending").Index(n).Child("name")
		errs = append(errs, validateName(pending.Name, at)...)
		if names.Has(pending.Name) {
			errs = append(errs, field.Duplicate(at, pending.Name))
		}
		names.Insert(pending.Name)
	}
	if i.Result != nil && i.Result.Status != metav1.StatusFailure {
		errs = append(errs, field.Invalid(path.Child("result", "status"), i.Result.Status, "must be 'Failure'"))
	}
	return errs
}

// validateName returns the first error in a name (S1.10).
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
