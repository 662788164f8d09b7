package solve

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/kube-openapi/pkg/validation/spec"
	"sigs.k8s.io/yaml"
)

// text, whole and others are schemas.
var (
	aText  = spec.StringProperty()
	whole  = spec.Int64Property()
	either = spec.BoolProperty()
)

func object(required string, properties map[string]spec.Schema) *spec.Schema {
	s := &spec.Schema{SchemaProps: spec.SchemaProps{Type: []string{"object"}, Properties: properties}}
	if required != "" {
		s.Required = strings.Fields(required)
	}
	return s
}

// pod describes a small Pod.
func pod() *spec.Schema {
	context := object("", map[string]spec.Schema{"privileged": *either, "runAsUser": *whole, "procMount": *aText})
	port := object("containerPort", map[string]spec.Schema{"containerPort": *whole, "hostPort": *whole})
	probe := object("", map[string]spec.Schema{"httpGet": *object("port", map[string]spec.Schema{"port": *whole, "host": *aText})})
	container := object("name", map[string]spec.Schema{
		"name": *aText, "image": *aText, "imagePullPolicy": *aText, "securityContext": *context, "livenessProbe": *probe,
		"ports": *spec.ArrayProperty(port), "resources": *object("", map[string]spec.Schema{"limits": *spec.MapProperty(aText)}),
		"env": *spec.ArrayProperty(object("name", map[string]spec.Schema{"name": *aText, "value": *aText})),
	})
	volume := object("name", map[string]spec.Schema{"name": *aText, "hostPath": *object("path", map[string]spec.Schema{"path": *aText}), "emptyDir": *object("", nil)})
	return object("", map[string]spec.Schema{
		"metadata": *object("", map[string]spec.Schema{"name": *aText, "namespace": *aText, "labels": *spec.MapProperty(aText), "annotations": *spec.MapProperty(aText)}),
		"spec": *object("containers", map[string]spec.Schema{
			"containers": *spec.ArrayProperty(container), "initContainers": *spec.ArrayProperty(container), "volumes": *spec.ArrayProperty(volume),
			"hostNetwork": *either, "replicas": *whole,
		}),
	})
}

func start(t *testing.T, text string, s *spec.Schema) *Document {
	t.Helper()
	content := map[string]any{}
	data, err := yaml.YAMLToJSON([]byte(text))
	if err == nil {
		err = utiljson.Unmarshal(data, &content)
	}
	if err != nil {
		t.Fatal(err)
	}
	return &Document{Sent: content, Seen: runtime.DeepCopyJSON(content), Schema: s}
}

// For each kind of condition, a request is found for which it is true, and one for which it is false.
func TestBothValuesOfAConditionAreFound(t *testing.T) {
	variables := []Variable{{"limit", "5"}, {"all", "object.spec.containers + object.spec.?initContainers.orValue([])"}}
	for _, condition := range []string{
		"!has(object.spec.hostNetwork) || !object.spec.hostNetwork",
		"has(object.spec.replicas) && object.spec.replicas <= variables.limit",
		"object.spec.?replicas.orValue(1) > 3",
		"object.spec.containers.all(c, !has(c.ports) || c.ports.all(p, !has(p.hostPort) || p.hostPort == 0))",
		"!has(object.spec.volumes) || object.spec.volumes.all(v, !has(v.hostPath))",
		"object.spec.volumes.exists(v, v.name == 'data' && has(v.emptyDir))",
		"!has(object.spec.initContainers) || object.spec.initContainers.all(c, has(c.securityContext) && has(c.securityContext.privileged) && !c.securityContext.privileged)",
		"object.spec.containers.all(c, !has(c.livenessProbe) || !has(c.livenessProbe.httpGet) || !has(c.livenessProbe.httpGet.host) || c.livenessProbe.httpGet.host == '')",
		"variables.all.all(c, c.image.startsWith('registry.example.com/'))",
		"object.spec.containers.all(c, c.image.matches('^[a-z]+[.]example[.]com/[a-z]+@sha256:[0-9a-f]{8,}$'))",
		"object.spec.containers.all(c, c.image.contains(':') && !c.image.endsWith(':latest'))",
		"object.spec.containers.map(c, c.name).exists(n, n == 'proxy')",
		"object.spec.containers.filter(c, c.name.startsWith('side-')).size() == 0",
		"size(object.spec.containers.filter(c, c.name.startsWith('side-'))) >= 2",
		"object.spec.containers.all(c, quantity(c.resources.limits['memory']).isLessThan(quantity('1Gi')))",
		"object.spec.containers.all(c, has(c.resources) && has(c.resources.limits) && 'cpu' in c.resources.limits)",
		"object.spec.containers.exists(c, c.?env.orValue([]).exists(e, e.name == 'MODE' && e.value in ['a', 'b']))",
		"'team' in object.metadata.labels && object.metadata.labels.team.size() > 8",
		"has(object.metadata.annotations) && object.metadata.annotations.exists(k, k.startsWith('example.com/') && object.metadata.annotations[k] != 'no')",
		"object.metadata.?labels['app'].hasValue()",
		"object.metadata.name.split('-')[1] == 'prod'",
		"object.metadata.name == 'a' ? has(object.spec.volumes) : has(object.spec.hostNetwork)",
		"sets.contains(['a', 'b'], object.spec.containers.map(c, c.name))",
		"int(object.metadata.labels['n']) > 7",
		"object.spec.containers.exists_one(c, c.name == 'main')",
		"request.userInfo.username.startsWith('system:serviceaccount:')",
		"'admins' in request.userInfo.groups",
		"'a.example.com/node' in request.userInfo.extra",
		"has(request.userInfo.extra) && request.userInfo.extra['a.example.com/node'][0] == object.metadata.name",
		"authorizer.group('').resource('secrets').check('get').allowed()",
		"namespaceObject.metadata.labels['env'] == 'prod'",
		"request.namespace == 'shop'",
		"oldObject.spec.replicas == object.spec.replicas",
		"object.spec.replicas <= params.most && params.names.exists(n, n == object.metadata.name)",
		"has(oldObject.metadata.labels) && oldObject.metadata.labels.locked == 'true'",
		"object.spec.replicas + 2 == 6",
		"string(object.spec.replicas) != '3'",
		"object == oldObject",
		"!has(object.metadata.annotations) || !object.metadata.annotations.exists(k, k.startsWith('apparmor.example.com/') && !(object.metadata.annotations[k] == 'default' || object.metadata.annotations[k].startsWith('localhost/')))",
		"!has(object.spec.volumes) || object.spec.volumes.all(v, has(v.emptyDir))",
		"object.metadata.name != 'a.example.com' || (has(object.metadata.annotations) && object.metadata.annotations.exists(k, k == 'version') && !matches(object.metadata.annotations['version'], 'v0'))",
	} {
		for _, want := range []bool{true, false} {
			e := Parse(condition, variables)
			if e == nil {
				t.Errorf("%s: does not parse", condition)
				break
			}
			const small = "{apiVersion: v1, kind: Pod, metadata: {name: test, namespace: default}, spec: {replicas: 1, containers: [{name: main, image: 'example.com/app:1'}]}}"
			from := &State{
				Operation: "UPDATE", Kind: schema.GroupVersionKind{Version: "v1", Kind: "Pod"}, Namespace: "default", User: Administrator(),
				Resource: schema.GroupVersionResource{Version: "v1", Resource: "pods"},
				Documents: map[string]*Document{
					Object: start(t, small, pod()), OldObject: start(t, small, pod()),
					Params: start(t, "{apiVersion: example.com/v1, kind: Limit, metadata: {name: a}}", object("", map[string]spec.Schema{"most": *whole, "names": *spec.ArrayProperty(aText)})),
				},
			}
			s := New(e)
			if !s.Each(t.Context(), from, []Goal{{e, want}}, false, func(st *State) bool {
				got, known := s.Holds(t.Context(), e, st)
				return known && got == want
			}) {
				t.Errorf("%s: no request was found for which it is %t", condition, want)
			}
		}
	}
}

// A search ends, also where nothing can be found.
func TestASearchIsBounded(t *testing.T) {
	condition := strings.Repeat("(object.spec.containers.all(c, c.name != c.name) || ", 20) + "false" + strings.Repeat(")", 20)
	e := Parse(condition, nil)
	from := &State{Operation: "CREATE", Namespace: "default", User: Administrator(), Documents: map[string]*Document{Object: start(t, "{spec: {containers: [{name: a}]}}", pod())}}
	if New(e).Each(t.Context(), from, []Goal{{Expression: call("_&&_", e, not(e)), Want: true}}, false, func(*State) bool { return true }) {
		t.Error("found a request for a contradiction")
	}
}

// Fields that the schema does not have are not set: the API would reject them.
func TestOnlyFieldsOfTheSchemaAreSet(t *testing.T) {
	e := Parse("has(object.spec.unknown)", nil)
	from := &State{Operation: "CREATE", Namespace: "default", User: Administrator(), Documents: map[string]*Document{Object: start(t, "{spec: {}}", pod())}}
	if New(e).Each(t.Context(), from, []Goal{{e, true}}, false, func(*State) bool { return true }) {
		t.Error("an unknown field was set")
	}
}
