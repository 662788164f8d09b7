package expression

import (
	"slices"
	"strings"
	"testing"
)

func TestValuesLeaveRequiredFieldsOut(t *testing.T) {
	for expression, want := range map[string]string{
		"has(object.spec.replicas)": "",
		"object.spec.containers.all(c, has(c.resources.limits) && has(c.resources.limits.memory) && c.image != 'a')": "object.spec.containers.*.image",
		"object.spec.containers.all(c, 'memory' in c.resources.limits)":                                              "",
		"object.spec.containers.all(c, ['memory'].all(l, l in c.resources.limits))":                                  "",
		"object.spec.containers.all(c, c.name in c.resources.limits)":                                                "object.spec.containers.*.name object.spec.containers.*.resources.limits",
		"object.spec.containers.all(c, c.?resources.?limits.?memory.hasValue())":                                     "",
		"object.spec.containers.all(c, !has(c.resources.limits))":                                                    "object.spec.containers.*.resources.limits",
		"has(object.spec.replicas) && object.spec.replicas < 3":                                                      "object.spec.replicas",
	} {
		trials, ok := Analyze(New(expression, conditions, nil, Bool)).Trials()
		if !ok {
			t.Errorf("%s does not compile", expression)
			continue
		}
		var got []string
		for _, p := range trials.Values() {
			if p[0] == "object" {
				got = append(got, strings.Join(p, "."))
			}
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s: %q, want %q", expression, got, want)
		}
	}
}

func TestReadsAreTheFieldsOfAnExpression(t *testing.T) {
	for _, tc := range []struct {
		expression string
		// want has the paths, and numbers the arguments of int().
		want, numbers string
	}{
		{"object.spec.replicas <= 3", "object.spec.replicas", ""},
		{"has(object.spec.replicas)", "object.spec.replicas", ""},
		{"object.?spec.?replicas.orValue(1) > 1", "object.spec.replicas", ""},
		{"object.spec['replicas'] > 1", "object.spec.replicas", ""},
		{"object.spec.containers.all(c, int(c.resources.requests.cpu) < 2)", "object.spec.containers.*.resources.requests.cpu", "object.spec.containers.*.resources.requests.cpu"},
		{"variables.all.all(c, c.image == 'a')", "object.spec.containers.*.image object.spec.initContainers.*.image", ""},
		{"variables.all.filter(c, c.name == 'b').exists(c, c.image == 'a')",
			"object.spec.containers object.spec.containers.* object.spec.containers.*.image object.spec.containers.*.name " +
				"object.spec.initContainers object.spec.initContainers.* object.spec.initContainers.*.image object.spec.initContainers.*.name", ""},
		{"oldObject.spec == object.spec", "object.spec oldObject.spec", ""},
		{"request.name == object.metadata.name", "object.metadata.name request.name", ""},
		{"object.spec.containers[0].image == 'a'", "object.spec.containers.*.image", ""},
		{"int(object.spec.replicas) + 1 > int('2')", "object.spec.replicas", "object.spec.replicas"},
		{"params.max > 1 && object.metadata.labels.all(k, k != 'a')", "object.metadata.labels.* params.max", ""},
	} {
		variables := NewVariables([]Variable{
			{"init", "has(object.spec.initContainers) ? object.spec.initContainers : []"}, {"all", "object.spec.containers + variables.init"},
		}, Scope{Params: true, Authorizer: true})
		trials, ok := Analyze(New(tc.expression, Scope{Params: true, Authorizer: true}, variables, Bool)).Trials()
		if !ok {
			t.Errorf("%s does not compile", tc.expression)
			continue
		}
		for want, paths := range map[*string][][]string{&tc.want: trials.Reads(), &tc.numbers: trials.Arguments("int")} {
			var texts []string
			for _, p := range paths {
				if p[0] != "@result" {
					texts = append(texts, strings.Join(p, "."))
				}
			}
			slices.Sort(texts)
			if got := strings.Join(texts, " "); got != *want {
				t.Errorf("%s: %s, want %s", tc.expression, got, *want)
			}
		}
	}
}
