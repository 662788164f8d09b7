package customresources

import (
	"fmt"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

type apiextensionsSpec = apiextensionsv1.CustomResourceDefinitionSpec

func rule(expression, message string) apiextensionsv1.ValidationRule {
	return apiextensionsv1.ValidationRule{Rule: expression, Message: message}
}

// rows renders the first row of a table, a string per column: name, priority,
// cell.
func rows(r *response) []string {
	var out []string
	columns, _ := r.at("columnDefinitions").([]any)
	for i, column := range columns {
		out = append(out, fmt.Sprintf("%v/%v %v", at(column, "name"), at(column, "priority"), r.at("rows", "0", "cells", fmt.Sprint(i))))
	}
	return out
}

func prefixes(got, want []string) bool {
	if len(got) != len(want) {
		return false
	}
	for i := range got {
		if !strings.HasPrefix(got[i], want[i]) {
			return false
		}
	}
	return true
}

type groupVersion = schema.GroupVersion

func (*env) key(plural string) schema.GroupResource {
	return schema.GroupResource{Group: "example.com", Resource: plural}
}
