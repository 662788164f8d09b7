package registration

import (
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// NormalizeVerbs renames the field verbs in the rules of an
// ExternalAdmissionHookConfiguration to operations, in place (S1.31). It wants
// decoded JSON and leaves alone whatever has another kind or shape than it knows:
// decoding reports that. A rule that has both fields is Invalid at its verbs, and
// stays as it is.
func NormalizeVerbs(content map[string]any) field.ErrorList {
	if content["kind"] != ExternalKind {
		return nil
	}
	var errs field.ErrorList
	path := field.NewPath("externalAdmissionHooks")
	hooks, _ := content["externalAdmissionHooks"].([]any)
	for i := range hooks {
		hook, _ := hooks[i].(map[string]any)
		rules, _ := hook["rules"].([]any)
		for j := range rules {
			rule, _ := rules[j].(map[string]any)
			verbs, ok := rule["verbs"]
			if !ok {
				continue
			}
			if _, both := rule["operations"]; both {
				errs = append(errs, field.Invalid(path.Index(i).Child("rules").Index(j).Child("verbs"), verbs,
					"is another name of operations; only one of them may be present"))
				continue
			}
			delete(rule, "verbs")
			rule["operations"] = verbs
		}
	}
	return errs
}
