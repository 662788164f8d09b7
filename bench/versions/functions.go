package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"k8s.io/apiserver/pkg/cel/environment"
	"k8s.io/client-go/rest"
)

// functionsOf lists the functions of CEL that a new policy may call on a server, of those that the
// newest release has. The server is asked by a dry run about each.
func functionsOf(ctx context.Context, client rest.Interface) (map[string]bool, error) {
	found := map[string]bool{}
	for name, expression := range expressions() {
		body, err := json.Marshal(map[string]any{
			"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy", "metadata": map[string]any{"name": "functions"},
			"spec": map[string]any{
				"matchConstraints": map[string]any{"resourceRules": []any{map[string]any{
					"apiGroups": []any{""}, "apiVersions": []any{"v1"}, "operations": []any{"CREATE"}, "resources": []any{"configmaps"},
				}}},
				"validations": []any{map[string]any{"expression": expression}},
			},
		})
		if err != nil {
			return nil, err
		}
		var code int
		result := client.Post().AbsPath("/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies").Param("dryRun", "All").
			SetHeader("Content-Type", "application/json").Body(body).Do(ctx).StatusCode(&code)
		switch code {
		case http.StatusCreated:
			found[name] = true
		case http.StatusUnprocessableEntity:
		default:
			return nil, fmt.Errorf("%s: %d: %w", expression, code, result.Error())
		}
	}
	return found, nil
}

// expressions calls each overload of each function that the newest release has: with values of any
// type, so that a call compiles where there is a function of the name that takes as many.
func expressions() map[string]string {
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

// word reports whether a function is called by its name: operators are not.
func word(name string) bool {
	return name != "" && !slices.ContainsFunc([]rune(name), func(r rune) bool {
		return r != '.' && r != '_' && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9')
	}) && name[0] != '_'
}
