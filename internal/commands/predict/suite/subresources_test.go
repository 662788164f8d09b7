package suite

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	yamlv3 "go.yaml.in/yaml/v3"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"
)

// observer is a policy that records the requests it sees.
const observer = `
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: observer}
spec:
  matchConstraints: {resourceRules: [{apiGroups: ["*"], apiVersions: ["*"], operations: ["*"], resources: ["*/*"]}]}
  auditAnnotations:
  - {key: saw, valueExpression: "request.operation + ' ' + request.requestResource.version + ' ' + request.requestResource.resource + '/' + request.requestSubResource + ' ' + request.name + ' ' + request.requestKind.kind"}
  - {key: sent, valueExpression: "string(object == null ? 'nothing' : has(object.command) && object.command != null ? object.command.join(' ') : has(object.path) ? object.path : has(object.container) ? object.container : 'something')"}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: observer}
spec: {policyName: observer, validationActions: [Audit]}
`

// examples returns, for each built-in kind among the cases that are compared with kube-apiserver, an object, by its
// resource and group version.
func examples(t *testing.T) map[string]map[string]any {
	t.Helper()
	files, err := filepath.Glob("../../../../bench/differential/cases/kinds/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	found := map[string]map[string]any{}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		decoder := utilyaml.NewYAMLOrJSONDecoder(bytes.NewReader(data), 1<<20)
		for {
			var one struct {
				Resource string
				Object   map[string]any
			}
			if err := decoder.Decode(&one); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Fatal(file, err)
			}
			found[one.Resource+" "+at(one.Object, "apiVersion")] = one.Object
		}
	}
	return found
}

// subresources returns the built-in subresources, each as RESOURCE/SUBRESOURCE GROUPVERSION, with its parent's kind.
func subresources(t *testing.T) map[string]string {
	t.Helper()
	data, err := os.ReadFile("../offline/kinds.txt")
	if err != nil {
		t.Fatal(err)
	}
	found, kinds, gv := map[string]string{}, map[string]string{}, ""
	for line := range strings.Lines(string(data)) {
		words := strings.Fields(line)
		if len(words) == 1 {
			gv = words[0]
			continue
		}
		if resource, _, ok := strings.Cut(words[0], "/"); ok {
			found[words[0]+" "+gv] = kinds[resource+" "+gv]
		} else {
			kinds[words[0]+" "+gv] = words[1]
		}
	}
	return found
}

// Requests for each subresource of each built-in kind, and of custom resources, are evaluated as requests for that
// subresource (S24.22). kube-apiserver allows an unchanged object, and each of these requests.
func TestSubresources(t *testing.T) {
	const pod = "{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {containers: [{name: c, image: i}]}}"
	const running = "{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {serviceAccountName: default, nodeName: node, containers: [{name: c, image: i, resources: {requests: {cpu: 1}}}]}, status: {phase: Running}}"
	const resized = "{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {serviceAccountName: default, nodeName: node, containers: [{name: c, image: i, resources: {requests: {cpu: 2}}}]}}"
	const debugged = "{json: [{op: add, path: /spec/ephemeralContainers, value: [{name: debug, image: i, terminationMessagePolicy: File}]}]}"
	const scale = "{apiVersion: autoscaling/v1, kind: Scale, metadata: {name: a}, spec: {replicas: 3}}"
	const options = "object: {apiVersion: v1, kind: "
	// requests has the requests that do not update the whole object.
	requests := map[string]struct{ request, saw, sent string }{
		"pods/attach v1":                  {"oldObject: " + running + ", " + options + "PodAttachOptions, container: c}", "CONNECT v1 pods/attach a PodAttachOptions", "c"},
		"pods/exec v1":                    {"oldObject: " + running + ", " + options + "PodExecOptions, command: [rm, -r, /], container: c}", "CONNECT v1 pods/exec a PodExecOptions", "rm -r /"},
		"pods/portforward v1":             {"of: Pod in-the-world, " + options + "PodPortForwardOptions, ports: [80]}", "CONNECT v1 pods/portforward in-the-world PodPortForwardOptions", "something"},
		"pods/proxy v1":                   {"of: Pod in-the-world, " + options + "PodProxyOptions, path: /p}", "CONNECT v1 pods/proxy in-the-world PodProxyOptions", "/p"},
		"services/proxy v1":               {"of: Service default/kubernetes, " + options + "ServiceProxyOptions, path: /s}", "CONNECT v1 services/proxy kubernetes ServiceProxyOptions", "/s"},
		"nodes/proxy v1":                  {"of: Node node, " + options + "NodeProxyOptions, path: /n}", "CONNECT v1 nodes/proxy node NodeProxyOptions", "/n"},
		"pods/binding v1":                 {"oldObject: " + pod + ", object: {apiVersion: v1, kind: Binding, metadata: {name: a}, target: {kind: Node, name: node}}", "CREATE v1 pods/binding a Binding", "something"},
		"pods/eviction v1":                {"oldObject: " + running + ", object: {apiVersion: policy/v1, kind: Eviction, metadata: {name: a}}", "CREATE v1 pods/eviction a Eviction", "something"},
		"pods/ephemeralcontainers v1":     {"oldObject: " + running + ", patch: " + debugged, "UPDATE v1 pods/ephemeralcontainers a Pod", "something"},
		"pods/resize v1":                  {"oldObject: " + running + ", object: " + resized, "UPDATE v1 pods/resize a Pod", "something"},
		"serviceaccounts/token v1":        {"of: ServiceAccount default, object: {apiVersion: authentication.k8s.io/v1, kind: TokenRequest, metadata: {name: default}, spec: {audiences: [a], expirationSeconds: 600}}", "CREATE v1 serviceaccounts/token default TokenRequest", "something"},
		"deployments/scale apps/v1":       {"of: Deployment a, object: " + scale, "UPDATE v1 deployments/scale a Scale", "something"},
		"replicasets/scale apps/v1":       {"of: apps/v1 ReplicaSet a, object: " + scale, "UPDATE v1 replicasets/scale a Scale", "something"},
		"statefulsets/scale apps/v1":      {"of: StatefulSet a, patch: {merge: {spec: {replicas: 3}}}", "UPDATE v1 statefulsets/scale a Scale", "something"},
		"replicationcontrollers/scale v1": {"of: ReplicationController a, object: " + scale, "UPDATE v1 replicationcontrollers/scale a Scale", "something"},
	}
	wanted := subresources(t)
	// A log is read, and reads are not admitted.
	delete(wanted, "pods/log v1")
	objects := examples(t)
	objects["volumeattachments storage.k8s.io/v1"]["spec"].(map[string]any)["attacher"] = "disk.example.com"
	objects["podcertificaterequests certificates.k8s.io/v1"] = map[string]any{"apiVersion": "certificates.k8s.io/v1", "kind": "PodCertificateRequest", "spec": map[string]any{
		"signerName": "example.com/signer", "podName": "a", "podUID": "1", "serviceAccountName": "a", "serviceAccountUID": "2", "nodeName": "n", "nodeUID": "3", "maxExpirationSeconds": 3600, "stubPKCS10Request": "AA==",
	}}
	var text, world strings.Builder
	text.WriteString("apiVersion: gatehouse.dev/v1alpha1\nkind: AdmissionTests\ntests:\n")
	test := func(name, sub, request, saw, sent string) {
		fmt.Fprintf(&text, "- {name: %q, request: {subresource: %s, %s}, expect: {allowed: true, auditAnnotations: {observer/saw: %q, observer/sent: %q}}}\n", name, sub, request, saw, sent)
	}
	flow := func(object map[string]any) string {
		data, err := yaml.Marshal(object)
		if err != nil {
			t.Fatal(err)
		}
		var node yamlv3.Node
		if err := yamlv3.Unmarshal(data, &node); err != nil {
			t.Fatal(err)
		}
		node.Content[0].Style = yamlv3.FlowStyle
		data, err = yamlv3.Marshal(&node)
		if err != nil {
			t.Fatal(err)
		}
		return strings.Join(strings.Fields(string(data)), " ")
	}
	for _, name := range slices.Sorted(maps.Keys(wanted)) {
		path, gv, _ := strings.Cut(name, " ")
		resource, sub, _ := strings.Cut(path, "/")
		object := objects[resource+" "+gv]
		if object == nil {
			t.Errorf("there is no example of %s", name)
			continue
		}
		meta, _ := object["metadata"].(map[string]any)
		if meta == nil {
			meta = map[string]any{}
			object["metadata"] = meta
		}
		if meta["name"] == nil {
			meta["name"] = "a"
		}
		if q, ok := requests[name]; ok {
			test(name, sub, q.request, q.saw, q.sent)
			if sub == "scale" {
				world.WriteString("---\n" + flow(object) + "\n")
			}
			continue
		}
		if strings.HasPrefix(gv, "admissionregistration.k8s.io/") {
			// No policy evaluates policies.
			fmt.Fprintf(&text, "- {name: %q, request: {subresource: %s, oldObject: %s, object: %s}, expect: {allowed: true, auditAnnotations: {observer/saw: null}}}\n", name, sub, flow(object), flow(object))
			continue
		}
		version := gv[strings.LastIndex(gv, "/")+1:]
		test(name, sub, "oldObject: "+flow(object)+", object: "+flow(object), fmt.Sprintf("UPDATE %s %s/%s %s %s", version, resource, sub, meta["name"], wanted[name]), "something")
	}
	custom := "{apiVersion: example.com/v1, kind: Widget, metadata: {name: a}, spec: {replicas: 1}}"
	test("a custom scale", "scale", "oldObject: "+custom+", object: "+scale, "UPDATE v1 widgets/scale a Scale", "something")
	test("a custom scale of an object of the world", "scale", "of: Widget in-the-world, patch: {merge: {spec: {replicas: 3}}}", "UPDATE v1 widgets/scale in-the-world Scale", "something")
	test("a custom status", "status", "oldObject: "+custom+", object: "+custom, "UPDATE v1 widgets/status a Widget", "something")
	hpa := func(version string) string {
		return "{apiVersion: autoscaling/" + version + ", kind: HorizontalPodAutoscaler, metadata: {name: a}, spec: {maxReplicas: 3, scaleTargetRef: {kind: Deployment, name: a, apiVersion: apps/v1}}}"
	}
	test("a status in another version than what is stored", "status", "oldObject: "+hpa("v2")+", object: "+hpa("v1"), "UPDATE v1 horizontalpodautoscalers/status a HorizontalPodAutoscaler", "something")
	test("a status of what of names in another version", "status", "oldObject: "+hpa("v2")+", of: autoscaling/v1 HorizontalPodAutoscaler a, object: "+hpa("v1"), "UPDATE v1 horizontalpodautoscalers/status a HorizontalPodAutoscaler", "something")
	test("a CONNECT without options", "exec", "of: Pod in-the-world", "CONNECT v1 pods/exec in-the-world PodExecOptions", "something")

	report := runWith(t, text.String()+observer+world.String()+`---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {kind: Widget, plural: widgets, singular: widget}
  versions:
  - {name: v1, served: true, storage: true, subresources: {status: {}, scale: {specReplicasPath: .spec.replicas, statusReplicasPath: .status.replicas}}, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}
--- {apiVersion: example.com/v1, kind: Widget, metadata: {name: in-the-world, namespace: default}, spec: {replicas: 1}}
--- {apiVersion: v1, kind: Node, metadata: {name: node}, status: {allocatable: {cpu: 4, memory: 4Gi, pods: 10}}}
--- `+strings.Replace(pod, "name: a", "name: in-the-world", 1)+"\n", Options{})
	if got := len(report.Tests); got != len(wanted)+6 {
		t.Errorf("%d tests", got)
	}
	for _, r := range report.Tests {
		if r.Status != Passed {
			t.Errorf("%s: %s %s %+v", r.Name, r.Status, r.Message, r.Failures)
		}
	}
}

// A fault in the object of a CONNECT is the reason why its request cannot be made (S24.8).
func TestObjectsOfAConnectAreChecked(t *testing.T) {
	for _, tc := range []struct{ request, message string }{
		{"subresource: exec, of: Pod a, object: {apiVersion: v1, kind: PodExecOptions, comand: [ls]}", `object: unknown field "comand"`},
		{"subresource: exec, of: Pod a, object: {apiVersion: v1, kind: PodAttachOptions}", "object: a CONNECT of pods/exec takes PodExecOptions of v1, and not PodAttachOptions of v1"},
		{"subresource: exec, of: Pod a, object: {apiVersion: v1, kind: PodExecOptions, tty: maybe}", "object: json: cannot unmarshal string into Go"},
		{"operation: CONNECT, of: Pod a", "a CONNECT needs a subresource"},
	} {
		r := run(t, "apiVersion: gatehouse.dev/v1alpha1\nkind: AdmissionTests\ntests: [{name: a, request: {"+tc.request+"}, expect: {allowed: true}}]\n", "").Tests[0]
		if r.Status != Broken || !strings.Contains(r.Message, tc.message) {
			t.Errorf("%s: %s %q %+v", tc.request, r.Status, r.Message, r.Failures)
		}
	}
}
