// Package celcalls generates a call of each CEL function of admission policies.
package celcalls

import (
	"slices"
	"strings"

	"k8s.io/apiserver/pkg/cel/environment"
)

// Expressions returns calls of each overload of each function of the newest release. The arguments are dyn values, so
// that a call compiles if any function has the name and the number of arguments.
func Expressions() map[string]string {
	all := map[string]string{}
	env := environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()).StoredExpressionsEnv()
	for name, f := range env.Functions() {
		if !word(name) {
			continue
		}
		for _, o := range f.OverloadDecls() {
			arguments := make([]string, len(o.ArgTypes()))
			for i := range arguments {
				arguments[i] = "dyn(object)"
			}
			call := name + "(" + strings.Join(arguments, ", ") + ")"
			if o.IsMemberFunction() {
				call = arguments[0] + "." + name + "(" + strings.Join(arguments[1:], ", ") + ")"
			}
			all[call] = "dyn(" + call + ") == dyn(1)"
		}
	}
	return all
}

// word reports whether a function is called by its name; operators are not.
func word(name string) bool {
	return name != "" && !slices.ContainsFunc([]rune(name), func(r rune) bool {
		return r != '.' && r != '_' && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9')
	}) && name[0] != '_'
}

// Policy returns the manifest of a policy with an expression.
func Policy(name, expression string) map[string]any {
	return map[string]any{
		"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy", "metadata": map[string]any{"name": name},
		"spec": map[string]any{
			"matchConstraints": map[string]any{"resourceRules": []any{map[string]any{
				"apiGroups": []any{""}, "apiVersions": []any{"v1"}, "operations": []any{"CREATE"}, "resources": []any{"configmaps"},
			}}},
			"validations": []any{map[string]any{"expression": expression}},
		},
	}
}
