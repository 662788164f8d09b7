package rejection

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/yaml"
)

// A decoder's error names no index of a list, no key of a map, and often no field. The fault is at the field whose value
// cannot be decoded.
func TestFaultsOfDecodersHaveTheirField(t *testing.T) {
	const pod = "{apiVersion: v1, kind: Pod, metadata: {name: p}, spec: {containers: [{name: a, ports: [{containerPort: 80}]}, "
	for name, tc := range map[string]struct{ object, want string }{
		"a number in quotes":           {pod + "{name: b, ports: [{containerPort: 81}, {containerPort: '82'}]}]}}", "spec.containers[1].ports[1].containerPort"},
		"a number that is too large":   {pod + "{name: b, ports: [{containerPort: 99999999999}]}]}}", "spec.containers[1].ports[0].containerPort"},
		"a fraction":                   {"{apiVersion: apps/v1, kind: Deployment, spec: {replicas: 1.5}}", "spec.replicas"},
		"a number as an argument":      {pod + "{name: b, args: [a, 1]}]}}", "spec.containers[1].args[1]"},
		"a quantity":                   {pod + "{name: b, resources: {limits: {cpu: 1, memory: 1 GB}}}]}}", "spec.containers[1].resources.limits.memory"},
		"a list as a map":              {pod + "{name: b, env: {A: b}}]}}", "spec.containers[1].env"},
		"a map as a list":              {"{apiVersion: apps/v1, kind: Deployment, spec: {template: [{spec: {}}]}}", "spec.template"},
		"a map as a text":              {pod + "{name: b, image: {a: {b: c}}}]}}", "spec.containers[1].image"},
		"a label":                      {"{apiVersion: v1, kind: Pod, metadata: {labels: {a: b, app.kubernetes.io/name: true}}}", "metadata.labels[app.kubernetes.io/name]"},
		"a label of a custom resource": {"{apiVersion: example.com/v1, kind: Foo, metadata: {labels: {a: 1}}, spec: {replicas: x}}", "metadata.labels.a"},
		"base64":                       {"{apiVersion: v1, kind: Secret, data: {a: YQ==, b: '%'}}", "data.b"},
		"a time":                       {"{apiVersion: v1, kind: Pod, metadata: {creationTimestamp: yesterday}}", "metadata.creationTimestamp"},
		"a port by name or number":     {"{apiVersion: v1, kind: Service, spec: {ports: [{targetPort: http}, {targetPort: true}]}}", "spec.ports[1].targetPort"},
		"a definition":                 {"{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, spec: {versions: [{name: v1, schema: {openAPIV3Schema: {properties: {a: {maxLength: x}}}}}]}}", "spec.versions[0].schema.openAPIV3Schema.properties.a.maxLength"},
		"none":                         {pod + "{name: b, more: 1, resources: {limits: {cpu: 1}}}]}}", ""},
	} {
		var content map[string]any
		if err := yaml.Unmarshal([]byte(tc.object), &content); err != nil {
			t.Fatal(err)
		}
		faults := Faults(&metav1.Status{Reason: metav1.StatusReasonBadRequest, Message: "no"}, content)
		if len(faults) != 1 || faults[0].Field != tc.want || faults[0].Place != tc.want {
			t.Errorf("%s: %+v, want %s", name, faults, tc.want)
		}
	}
}
