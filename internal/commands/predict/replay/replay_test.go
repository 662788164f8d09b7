package replay

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gatehouse-dev/gatehouse/internal/commands/predict/requestlog"
	"github.com/gatehouse-dev/gatehouse/internal/readers/manifests"
	"github.com/gatehouse-dev/gatehouse/test/speed"
)

func set(t *testing.T, text string) *manifests.Set {
	t.Helper()
	c := manifests.Parse("policies.yaml", []byte(text))
	if len(c.Problems) > 0 {
		t.Fatal(c.Problems)
	}
	return &manifests.Set{Objects: c.Objects}
}

// policyAndBinding returns a policy with the given rule, and its binding.
func policyAndBinding(name, rule, expression, actions string) string {
	return fmt.Sprintf(`
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: %[1]s}
spec:
  matchConstraints: {resourceRules: [%[2]s]}
  validations: [{expression: %[3]q}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: %[1]s}
spec: {policyName: %[1]s, validationActions: [%[4]s]}
`, name, rule, expression, actions)
}

const (
	configMaps = `{apiGroups: [""], apiVersions: [v1], operations: [CREATE, UPDATE, DELETE], resources: [configmaps]}`
	podsRule   = `{apiGroups: [""], apiVersions: [v1], operations: ["*"], resources: [pods, pods/status, pods/exec, pods/ephemeralcontainers]}`
)

// oldPolicies are active in the baseline, newPolicies after the change.
var (
	oldPolicies = policyAndBinding("owned", configMaps, "request.operation == 'DELETE' || has(object.metadata.labels) && 'owner' in object.metadata.labels", "Deny")
	newPolicies = policyAndBinding("owned", configMaps, "request.operation == 'DELETE' || has(object.metadata.labels)", "Deny") +
		policyAndBinding("frozen", configMaps, "request.operation != 'DELETE' || !('keep' in oldObject.metadata.?labels.orValue({}))", "Deny") +
		policyAndBinding("no-exec", podsRule, "request.?subResource.orValue('') != 'exec'", "Deny") +
		policyAndBinding("told", podsRule, "!has(object.spec) || !has(object.spec.containers) || object.spec.containers.all(c, c.image.contains(':'))", "Warn") + `
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicy
metadata: {name: stamp}
spec:
  reinvocationPolicy: Never
  matchConstraints: {resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}]}
  mutations: [{patchType: ApplyConfiguration, applyConfiguration: {expression: 'Object{metadata: Object.metadata{labels: {"stamp": "yes"}}}'}}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicyBinding
metadata: {name: stamp}
spec: {policyName: stamp}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: hooks}
webhooks:
- name: services.example.com
  clientConfig: {url: "https://127.0.0.1:1/"}
  rules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [services]}]
  admissionReviewVersions: [v1]
  sideEffects: None
  timeoutSeconds: 7
`
)

func request(operation, resource, namespace, name, object, old string) *requestlog.Entry {
	group, resource, _ := func() (string, string, bool) {
		r, g, _ := strings.Cut(resource, ".")
		return g, r, true
	}()
	resource, sub, _ := strings.Cut(resource, "/")
	q := &requestlog.Entry{APIVersion: requestlog.APIVersion, Kind: requestlog.Kind, Operation: operation, Subresource: sub,
		Resource: metav1.GroupVersionResource{Group: group, Version: "v1", Resource: resource}, Namespace: namespace, Name: name}
	q.Time = time.Date(2026, 3, 1+len(name)%3, 12, 0, 0, 0, time.UTC)
	q.User.Username, q.User.Groups = "jane", []string{"system:authenticated"}
	if object != "" {
		q.Object = json.RawMessage(object)
	}
	if old != "" {
		q.OldObject = json.RawMessage(old)
	}
	return q
}

func pod(name, more, image string) string {
	return fmt.Sprintf(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":%q,"namespace":"shop","uid":"u1","resourceVersion":"7"%s},"spec":{"containers":[{"name":"c","image":%q}]}}`, name, more, image)
}

func configMap(name, more string) string {
	return fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":%q,"namespace":"shop","uid":"u2","resourceVersion":"5"%s},"data":{"a":"b"}}`, name, more)
}

// samples are requests of all operations.
func samples() []*requestlog.Entry {
	const labelled, owned, keep = `,"labels":{"app":"a"}`, `,"labels":{"owner":"a"}`, `,"labels":{"keep":"a"}`
	return []*requestlog.Entry{
		request("CREATE", "configmaps", "shop", "bare", configMap("bare", ""), ""),
		request("CREATE", "configmaps", "shop", "labelled", configMap("labelled", labelled), ""),
		request("CREATE", "configmaps", "shop", "owned", configMap("owned", owned), ""),
		request("CREATE", "configmaps", "shop", "", `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"generateName":"made-"}}`, ""),
		request("UPDATE", "configmaps", "shop", "owned", configMap("owned", labelled), configMap("owned", owned)),
		request("UPDATE", "configmaps", "shop", "bare", configMap("bare", ""), configMap("bare", owned)),
		request("DELETE", "configmaps", "shop", "kept", "", configMap("kept", keep)),
		request("DELETE", "configmaps", "shop", "owned", "", configMap("owned", owned)),
		request("CREATE", "pods", "shop", "plain", pod("plain", "", "nginx"), ""),
		request("CREATE", "pods", "shop", "tagged", pod("tagged", "", "nginx:1"), ""),
		request("UPDATE", "pods/status", "shop", "tagged", pod("tagged", labelled, "nginx:1"), pod("tagged", "", "nginx:1")),
		request("CONNECT", "pods/exec", "shop", "tagged", "", ""),
		request("CREATE", "services", "shop", "web", `{"apiVersion":"v1","kind":"Service","metadata":{"name":"web"},"spec":{"ports":[{"port":80}]}}`, ""),
		request("CREATE", "deployments.apps", "shop", "web", `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"web"},"spec":{"selector":{"matchLabels":{"a":"b"}},"template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"c","image":"nginx"}]}}}}`, ""),
		request("CREATE", "deployments.apps", "shop", "wrong", `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"wrong"},"spec":{"selector":{"matchLabels":{"a":"b"}},"template":{"metadata":{"labels":{"a":"c"}},"spec":{"containers":[{"name":"c","image":"nginx"}]}}}}`, ""),
		request("UPDATE", "namespaces", "", "blue", `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"blue","labels":{"a":"b"}}}`, `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"blue","uid":"u3"}}`),
		request("CREATE", "widgets.example.com", "shop", "w", `{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"w"}}`, ""),
		request("CREATE", "clusterroles.rbac.authorization.k8s.io", "", "all", `{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"ClusterRole","metadata":{"name":"all"},"rules":[{"apiGroups":["*"],"resources":["*"],"verbs":["*"]}]}`, ""),
	}
}

// file writes requests into a file in Gatehouse's own format.
func file(t *testing.T, list []*requestlog.Entry) *requestlog.Reader {
	t.Helper()
	var b bytes.Buffer
	for _, q := range list {
		data, err := json.Marshal(q)
		if err != nil {
			t.Fatal(err)
		}
		b.Write(append(data, '\n'))
	}
	path := filepath.Join(t.TempDir(), "requests.jsonl")
	if err := os.WriteFile(path, b.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	return &requestlog.Reader{Paths: []string{path}}
}

func run(t *testing.T, o Options) *Report {
	t.Helper()
	r, err := Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	for _, list := range [][]Reason{r.Input.LeftOut, r.Input.Other} {
		for i := range list {
			list[i].First = filepath.Base(list[i].First)
		}
	}
	for _, g := range slices.Concat(r.Groups, r.Recorded.Groups) {
		for i := range g.Examples {
			g.Examples[i].Place = filepath.Base(g.Examples[i].Place)
		}
	}
	return r
}

// S25.6: random values and times of the server, and the order of several errors, are not differences. Every request is
// evaluated on both sides, because a role differs, and the report shows no change. Each request is repeated many times,
// because random values can be equal.
func TestWhatTheServerMakesIsNoDifference(t *testing.T) {
	const job = `{"apiVersion":"batch/v1","kind":"Job","metadata":{"name":"j"},"spec":{"template":{"spec":{"restartPolicy":"Never","containers":[{"name":"c","image":"i"}]}}}}`
	csr := func(more string) string {
		return `{"apiVersion":"certificates.k8s.io/v1","kind":"CertificateSigningRequest","metadata":{"name":"c","uid":"u9","resourceVersion":"4"},"spec":{"request":"LS0=","signerName":"example.com/s","usages":["any"]},"status":{` + more + `}}`
	}
	service := func(spec string) string {
		return `{"apiVersion":"v1","kind":"Service","metadata":{"name":"s"},"spec":{` + spec + `}}`
	}
	stored := func(kind string) string {
		return strings.Replace(service(`"type":"`+kind+`","clusterIP":"10.96.0.9","clusterIPs":["10.96.0.9"],"ports":[{"port":80}]`), `"name":"s"`, `"name":"s","uid":"u4","resourceVersion":"6"`, 1)
	}
	token := func(spec string) string {
		return `{"apiVersion":"authentication.k8s.io/v1","kind":"TokenRequest","metadata":{"name":"default","namespace":"shop"},"spec":{` + spec + `}}`
	}
	selected := strings.Replace(job, `"template"`, `"selector":{"matchLabels":{"a":"b"}},"template"`, 1)
	generated := func(object, name string) string {
		return regexp.MustCompile(`"name":"[a-z]+"`).ReplaceAllString(object, `"generateName":"`+name+`"`)
	}
	one := append(samples(),
		request("CREATE", "jobs.batch", "shop", "j", job, ""),
		request("CREATE", "jobs.batch", "shop", "", strings.Replace(job, `"name":"j"`, `"generateName":"j-"`, 1), ""),
		request("UPDATE", "certificatesigningrequests/approval.certificates.k8s.io", "", "c", csr(`"conditions":[{"type":"Approved","status":"True","reason":"r"}]`), csr("")),
		// The message of the error contains the labels that the server made, with a uid.
		request("CREATE", "jobs.batch", "shop", "j", selected, ""),
		request("CREATE", "jobs.batch", "shop", "", strings.Replace(selected, `"name":"j"`, `"generateName":"j-"`, 1), ""),
		// The server truncates a long generateName.
		request("CREATE", "configmaps", "shop", "", `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"generateName":"`+strings.Repeat("n", 62)+`"},"data":{"bad!":""}}`, ""),
		request("CREATE", "configmaps", "shop", "", `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"generateName":"`+strings.Repeat("n", 62)+`"}}`, ""),
		// Errors in the order of a map: from validation, and from a plugin.
		request("CREATE", "configmaps", "shop", "a", `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","labels":{"app":"a"}},"data":{"a!":"","b!":"","c!":"","d!":""}}`, ""),
		request("CREATE", "pods", "limits", "a", pod("a", `,"labels":{"app":"a"}`, "nginx:1"), ""),
		request("CREATE", "configmaps", "limits", "a", configMap("a", `,"labels":{"app":"a"}`), ""),
		// Addresses and ports.
		request("CREATE", "services", "shop", "s", service(`"ports":[{"port":80}]`), ""),
		request("CREATE", "services", "shop", "", generated(service(`"type":"NodePort","ports":[{"name":"a","port":80},{"name":"b","port":81}]`), "s-"), ""),
		request("CREATE", "services", "shop", "s", service(`"type":"LoadBalancer","externalTrafficPolicy":"Local","ports":[{"port":80}]`), ""),
		request("UPDATE", "services", "shop", "s", stored("NodePort"), stored("ClusterIP")),
		request("UPDATE", "services", "shop", "s", stored("LoadBalancer"), stored("ClusterIP")),
		// Tokens are signed with the keys of their server, and expire at a time of its clock.
		request("CREATE", "serviceaccounts/token", "shop", "default", token(""), ""),
		request("CREATE", "serviceaccounts/token", "shop", "default", token(`"audiences":["a"],"expirationSeconds":3600`), ""),
		request("CREATE", "pods", "shop", "", generated(pod("a", "", "nginx:1"), "p-"), ""),
		request("CREATE", "statefulsets.apps", "shop", "", `{"apiVersion":"apps/v1","kind":"StatefulSet","metadata":{"generateName":"s-"},"spec":{"serviceName":"web","selector":{"matchLabels":{"a":"b"}},"template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"c","image":"nginx"}]}},"volumeClaimTemplates":[{"metadata":{"name":"data"},"spec":{"accessModes":["ReadWriteOnce"],"resources":{"requests":{"storage":"1Gi"}}}}]}}`, ""),
	)
	left := 0
	for _, q := range one {
		if q.Resource.Resource == "widgets" {
			left++
		}
		if q.Namespace == "limits" {
			q.Object = json.RawMessage(strings.ReplaceAll(string(q.Object), `"shop"`, `"limits"`))
		}
	}
	times := speed.Of(3, 12)
	requests := slices.Repeat(one, times)
	const limits = `
---
apiVersion: v1
kind: Namespace
metadata: {name: limits}
---
apiVersion: v1
kind: LimitRange
metadata: {name: a, namespace: limits}
spec: {limits: [{type: Container, max: {cpu: "1", memory: 1Gi, ephemeral-storage: 1Gi}}]}
---
apiVersion: v1
kind: LimitRange
metadata: {name: b, namespace: limits}
spec: {limits: [{type: Pod, max: {cpu: "2", memory: 2Gi}}]}
---
apiVersion: v1
kind: ResourceQuota
metadata: {name: a, namespace: limits}
spec: {hard: {count/configmaps: "0"}}
---
apiVersion: v1
kind: ResourceQuota
metadata: {name: b, namespace: limits}
spec: {hard: {count/configmaps: "0"}}
`
	const other = "\n---\napiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata: {name: other}\n"
	o := Options{Source: file(t, requests), Baseline: &Cluster{Set: set(t, newPolicies+limits)}, With: &Cluster{Set: set(t, newPolicies+limits+other)}}
	for _, plain := range speed.Some(t, 1, []bool{false, true}) {
		o.plain = plain
		r := run(t, o)
		if want := len(requests) - left*times; r.Changed != 0 || r.Judged != want {
			data, _ := json.MarshalIndent(r, "", "  ")
			t.Errorf("plain %v: judged %d, want %d\n%s", plain, r.Judged, want, data)
		}
	}
	// The output is the same in each run.
	o.Baseline = &Cluster{}
	var first []byte
	for i := range speed.Of(2, 3) {
		data, err := json.MarshalIndent(run(t, o), "", "  ")
		if err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			first = data
		} else if diff := cmp.Diff(string(first), string(data)); diff != "" {
			t.Errorf("another report (-first +later):\n%s", diff)
		}
	}
}

// S25.15: a request for a subresource is evaluated, whether or not the recording contains its parent object, and
// admission sees the same data as when the request was made.
func TestSubresourcesAreJudged(t *testing.T) {
	const template = `"template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"c","image":"i"}]}}`
	scale := func(replicas string) string {
		return `{"apiVersion":"autoscaling/v1","kind":"Scale","metadata":{"name":"web","namespace":"shop","uid":"u7","resourceVersion":"9","creationTimestamp":"2026-03-01T12:00:00Z"},"spec":{` + replicas + `},"status":{"replicas":2,"selector":"a=b,c in (d,e),f,!g"}}`
	}
	ephemeral := func(more string) string {
		return `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p","namespace":"shop","uid":"u8","resourceVersion":"3"},"spec":{"serviceAccountName":"robot","containers":[{"name":"c","image":"i","resources":{"requests":{"cpu":"1"}}}]` + more + `}}`
	}
	onPod := func(subresource, kind string) *requestlog.Entry {
		return request("CREATE", "pods/"+subresource, "shop", "p", `{"apiVersion":"`+kind+`","metadata":{"name":"p","namespace":"shop"},"target":{"apiVersion":"v1","kind":"Node","name":"n"}}`, "")
	}
	patched := request("UPDATE", "deployments/scale.apps", "shop", "web", "", "")
	patched.Patch = json.RawMessage(`{"spec":{"replicas":9}}`)
	patched.Stored = json.RawMessage(`{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"web","namespace":"shop","uid":"u7","resourceVersion":"9"},"spec":{"replicas":3,"selector":{"matchLabels":{"a":"b"}},` + template + `}}`)
	for _, tt := range speed.Some(t, 2, []struct {
		name    string
		request *requestlog.Entry
		// allows is the condition of the changed policy: it allows only this request.
		allows string
	}{
		{"a binding", onPod("binding", `v1","kind":"Binding`), "object.target.name == 'n'"},
		{"a binding of the first release", request("CREATE", "bindings", "shop", "p", `{"apiVersion":"v1","kind":"Binding","metadata":{"name":"p"},"target":{"kind":"Node","name":"n"}}`, ""), "object.target.name == 'n'"},
		{"an eviction", onPod("eviction", `policy/v1","kind":"Eviction`), "object.metadata.name == 'p' && object.kind == 'Eviction'"},
		{"a token", request("CREATE", "serviceaccounts/token", "shop", "robot", `{"apiVersion":"authentication.k8s.io/v1","kind":"TokenRequest","metadata":{"name":"robot"},"spec":{"audiences":["a"],"expirationSeconds":3600}}`, ""), "object.spec.audiences == ['a']"},
		{"an ephemeral container", request("UPDATE", "pods/ephemeralcontainers", "shop", "p", ephemeral(`,"ephemeralContainers":[{"name":"d","image":"j"}]`), ephemeral("")), "!has(oldObject.spec.ephemeralContainers) && object.spec.ephemeralContainers[0].name == 'd'"},
		{"a resize", request("UPDATE", "pods/resize", "shop", "p", strings.Replace(ephemeral(""), `"cpu":"1"`, `"cpu":"2"`, 1), ephemeral("")), "oldObject.spec.containers[0].resources.requests.cpu == '1'"},
		{"the scale of a deployment", request("UPDATE", "deployments/scale.apps", "shop", "web", scale(`"replicas":5`), scale(`"replicas":2`)), "object.spec.replicas == 5 && oldObject.spec.replicas == 2 && oldObject.status.replicas == 2 && oldObject.metadata.uid == 'u7' && oldObject.status.selector.startsWith('a=b,c in (d,e),f')"},
		{"the scale of a replica set, from nothing", request("UPDATE", "replicasets/scale.apps", "shop", "web", scale(`"replicas":5`), scale("")), "object.spec.replicas == 5 && !has(oldObject.spec.replicas)"},
		{"the scale of a stateful set, to nothing", request("UPDATE", "statefulsets/scale.apps", "shop", "web", scale(""), scale(`"replicas":1`)), "!has(object.spec.replicas) && oldObject.spec.replicas == 1"},
		{"the scale of a replication controller", request("UPDATE", "replicationcontrollers/scale", "shop", "web", strings.Replace(scale(`"replicas":3`), ",c in (d,e),f,!g", "", 1), strings.Replace(scale(`"replicas":1`), ",c in (d,e),f,!g", "", 1)), "oldObject.status.selector == 'a=b'"},
		{"a patch of a scale", patched, "object.spec.replicas == 9 && oldObject.spec.replicas == 3 && oldObject.status.selector == 'a=b'"},
	}) {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			const rule = `{apiGroups: ["*"], apiVersions: ["*"], operations: [CREATE, UPDATE], resources: ["*/*"]}`
			for expression, changed := range map[string]int{tt.allows: 0, "!(" + tt.allows + ")": 1} {
				o := Options{Source: these{tt.request}, Baseline: &Cluster{}, With: &Cluster{Set: set(t, policyAndBinding("p", rule, expression, "Deny"))}}
				r := run(t, o)
				if r.Judged != 1 || r.Before.Rejected != 0 || r.Changed != changed || r.After.Rejected != changed {
					data, _ := json.MarshalIndent(r, "", "  ")
					t.Errorf("%s: %s", expression, data)
				}
			}
		})
	}
}

// S25.16: requests have the labels of their namespaces. The report names a policy that selects by unknown labels, and
// counts the requests.
func TestLabelsOfNamespaces(t *testing.T) {
	const change = `
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: prod}
spec:
  matchConstraints:
    namespaceSelector: {matchLabels: {stage: prod}}
    objectSelector: {matchLabels: {app: a}}
    resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [configmaps]}]
  validations: [{expression: "false"}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: prod}
spec: {policyName: prod, validationActions: [Deny]}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: bound}
spec:
  matchConstraints: {resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [secrets]}]}
  validations: [{expression: "false"}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: bound}
spec: {policyName: bound, validationActions: [Deny], matchResources: {namespaceSelector: {matchLabels: {stage: prod}}}}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: looks}
spec:
  matchConstraints: {resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [endpoints]}]}
  validations: [{expression: "!has(namespaceObject.metadata.labels) || !('stage' in namespaceObject.metadata.labels)"}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: looks}
spec: {policyName: looks, validationActions: [Deny]}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: hooks}
webhooks:
- name: accounts.example.com
  clientConfig: {url: "https://127.0.0.1:1/"}
  rules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [serviceaccounts]}]
  namespaceSelector: {matchExpressions: [{key: stage, operator: Exists}]}
  admissionReviewVersions: [v1]
  sideEffects: None
- name: named.example.com
  clientConfig: {url: "https://127.0.0.1:1/"}
  rules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [services]}]
  namespaceSelector: {matchExpressions: [{key: kubernetes.io/metadata.name, operator: NotIn, values: [default]}]}
  admissionReviewVersions: [v1]
  sideEffects: None
`
	in := func(namespace string, labels map[string]string) []*requestlog.Entry {
		list := []*requestlog.Entry{
			request("CREATE", "configmaps", namespace, "c", `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"c","labels":{"app":"a"}}}`, ""),
			request("CREATE", "configmaps", namespace, "d", `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"d"}}`, ""),
			request("CREATE", "secrets", namespace, "s", `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"s"}}`, ""),
			request("CREATE", "endpoints", namespace, "e", `{"apiVersion":"v1","kind":"Endpoints","metadata":{"name":"e"}}`, ""),
			request("CREATE", "serviceaccounts", namespace, "a", `{"apiVersion":"v1","kind":"ServiceAccount","metadata":{"name":"a"}}`, ""),
			request("CREATE", "services", namespace, "w", `{"apiVersion":"v1","kind":"Service","metadata":{"name":"w"},"spec":{"ports":[{"port":80}]}}`, ""),
		}
		for _, q := range list {
			q.NamespaceLabels = labels
		}
		return list
	}
	prod, none := map[string]string{"stage": "prod"}, map[string]string{"kubernetes.io/metadata.name": "shop"}
	for _, tt := range speed.Some(t, 1, []struct {
		name     string
		requests []*requestlog.Entry
		baseline string
		changed  int
		unknown  []string
	}{
		{"recorded", in("shop", prod), "", 5, nil},
		{"recorded, and others", in("shop", none), "", 1, nil},
		{"recorded, of a namespace that is always there", in("default", prod), "", 4, nil},
		{"known by the baseline", in("shop", nil), "apiVersion: v1\nkind: Namespace\nmetadata: {name: shop, labels: {stage: prod}}\n---\n", 5, nil},
		{"shown by a later request", append(in("shop", nil), in("shop", prod)[:1]...), "", 6, nil},
		{"shown by a request for the namespace", append(in("shop", nil), request("CREATE", "namespaces", "", "shop", `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"shop","labels":{"stage":"prod"}}}`, "")), "", 5, nil},
		{"not known", append(in("shop", nil), in("default", nil)...), "", 1, []string{"policy bound 2 default,shop", "policy looks 2 default,shop", "policy prod 2 default,shop", "webhook hooks/accounts.example.com 2 default,shop"}},
	}) {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			// The registrations of both sides differ, and their namespaces do not.
			o := Options{Source: file(t, tt.requests), Baseline: &Cluster{}, With: &Cluster{Set: set(t, tt.baseline+change)}}
			if tt.baseline != "" {
				o.Baseline.Set = set(t, tt.baseline)
			}
			r := run(t, o)
			var unknown []string
			for _, u := range r.Unknown {
				var names []string
				for _, s := range u.Namespaces {
					names = append(names, s.Name)
				}
				unknown = append(unknown, fmt.Sprintf("%s %d %s", u.By, u.Count, strings.Join(names, ",")))
			}
			if diff := cmp.Diff(tt.unknown, unknown); diff != "" || r.Changed != tt.changed || r.Undecided != 2*len(tt.unknown) {
				data, _ := json.MarshalIndent(r, "", "  ")
				t.Errorf("changed %d, want %d; undecided %d; unknown (-want +got):\n%s\n%s", r.Changed, tt.changed, r.Undecided, diff, data)
			}
		})
	}
}

// S25.17: a request with several possible readings is evaluated if all readings agree, except those for which the
// baseline contradicts the recorded response.
func TestPatchesOfSeveralKinds(t *testing.T) {
	const rule = `{apiGroups: [""], apiVersions: [v1], operations: [UPDATE], resources: [configmaps]}`
	patched := func(allowed bool, first string, others ...string) *requestlog.Entry {
		of := func(label string) *requestlog.Entry {
			q := request("UPDATE", "configmaps", "shop", "a", configMap("a", `,"labels":{"l":"`+label+`"}`), configMap("a", ""))
			q.Response = &requestlog.Response{Allowed: allowed}
			return q
		}
		q := of(first)
		for _, other := range others {
			q.Or = append(q.Or, of(other))
		}
		return q
	}
	for _, tt := range speed.Some(t, 1, []struct {
		name    string
		request *requestlog.Entry
		changed int
		left    string
	}{
		{"alike", patched(true, "a", "b"), 0, ""},
		{"both newly rejected", patched(true, "new", "new2"), 1, ""},
		{"one newly rejected", patched(true, "a", "new"), 0, "the log does not say what kind of patch it is, and the kinds are decided differently"},
		{"one not as recorded", patched(true, "old", "new"), 1, ""},
		{"the other not as recorded", patched(false, "new", "old"), 0, ""},
		{"neither as recorded", patched(false, "a", "b"), 0, ""},
	}) {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			base := policyAndBinding("old", rule, "object.metadata.labels.l != 'old'", "Deny")
			r := run(t, Options{Source: these{tt.request}, Baseline: &Cluster{Set: set(t, base)}, With: &Cluster{Set: set(t, base+policyAndBinding("new", rule, "!object.metadata.labels.l.startsWith('new')", "Deny"))}})
			left := ""
			for _, l := range r.Input.LeftOut {
				left += l.Reason
			}
			if r.Changed != tt.changed || left != tt.left || r.Judged != 1 && left == "" {
				t.Errorf("judged %d, changed %d, left out %q", r.Judged, r.Changed, left)
			}
		})
	}
}

// these is a Source of the given requests.
type these []*requestlog.Entry

func (s these) Read(_ context.Context, take func(*requestlog.Entry) error) (*requestlog.Count, error) {
	for _, q := range s {
		if err := take(q); err != nil {
			return nil, err
		}
	}
	return &requestlog.Count{Requests: len(s)}, nil
}

// S25.8: a request that cannot be evaluated, or whose namespace or service account cannot be made, does not end the
// replay.
func TestABadRequestEndsNothing(t *testing.T) {
	const good = `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"}}`
	const namespaces, objects = "the namespace of the request is not the name of a namespace", "the name of the request is not the name of an object"
	labelled := `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"odd","labels":{"a b":"c d"}}}`
	list := []*requestlog.Entry{request("CREATE", "configmaps", "shop", "a", good, "")}
	for _, name := range []string{"Bad_Name", "a b", "a%zz", "x/y", "..", strings.Repeat("a", 64)} {
		list = append(list, request("CREATE", "configmaps", name, "a", good, ""))
	}
	for _, name := range []string{"..", "a/b", "a%2f"} {
		list = append(list, request("DELETE", "configmaps", "shop", name, "", good))
	}
	list = append(list,
		request("CREATE", "namespaces", "", "odd", labelled, ""), request("CREATE", "configmaps", "odd", "a", good, ""),
		request("CREATE", "pods", "shop", "p", `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p"},"spec":{"serviceAccountName":"No Name","containers":[{"name":"c","image":"i"}]}}`, ""),
		request("CREATE", "configmaps", "shop", "z", good, ""))
	r := run(t, Options{Source: file(t, list), Baseline: &Cluster{}, With: &Cluster{Set: set(t, oldPolicies)}})
	left := map[string]int{}
	for _, l := range r.Input.LeftOut {
		left[l.Reason] = l.Count
	}
	if diff := cmp.Diff(map[string]int{namespaces: 6, objects: 3}, left); diff != "" {
		t.Errorf("left out (-want +got):\n%s", diff)
	}
	if r.Judged != 5 || r.Changed != 2 {
		data, _ := json.MarshalIndent(r, "", "  ")
		t.Errorf("%s", data)
	}
}

// S25.3: a request is evaluated with the change only if the change may affect it, and the report is the same as when
// each request is evaluated on both sides.
func TestJudgedTwice(t *testing.T) {
	const base = `
---
apiVersion: v1
kind: Namespace
metadata: {name: blue}
---
apiVersion: v1
kind: Namespace
metadata: {name: red, labels: {stage: prod}}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: allowed, namespace: default}
data: {owner: a}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: owners}
spec:
  paramKind: {apiVersion: v1, kind: ConfigMap}
  matchConstraints: {resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [secrets]}]}
  validations: [{expression: "object.metadata.labels['owner'] == params.data['owner']"}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: owners}
spec: {policyName: owners, validationActions: [Deny], paramRef: {name: allowed, namespace: default, parameterNotFoundAction: Deny}}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: prod}
spec:
  matchConstraints:
    namespaceSelector: {matchLabels: {stage: prod}}
    resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [configmaps]}]
  validations: [{expression: "has(object.metadata.labels)"}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: prod}
spec: {policyName: prod, validationActions: [Deny]}
`
	in := func(namespace string) []*requestlog.Entry {
		return []*requestlog.Entry{
			request("CREATE", "configmaps", namespace, "c", `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"c"}}`, ""),
			request("CREATE", "secrets", namespace, "s", `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"s","labels":{"owner":"a"}}}`, ""),
			request("CREATE", "pods", namespace, "p", `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p"},"spec":{"containers":[{"name":"c","image":"i"}]}}`, ""),
		}
	}
	requests := slices.Concat(in("red"), in("blue"), []*requestlog.Entry{
		request("UPDATE", "namespaces", "", "blue", `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"blue","labels":{"a":"b"}}}`, `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"blue","uid":"u3"}}`),
		request("CREATE", "clusterroles.rbac.authorization.k8s.io", "", "all", `{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"ClusterRole","metadata":{"name":"all"},"rules":[]}`, ""),
	})
	const ofBlue = "CREATE configmaps blue/c, CREATE secrets blue/s, CREATE pods blue/p, UPDATE namespaces blue"
	const everything = "CREATE configmaps red/c, CREATE secrets red/s, CREATE pods red/p, " + ofBlue + ", CREATE clusterroles.rbac.authorization.k8s.io all"
	for _, tt := range speed.Some(t, 1, []struct {
		name, with, twice string
		changed           int
	}{
		{"a label of a namespace", strings.Replace(base, "{name: blue}", "{name: blue, labels: {stage: prod}}", 1), ofBlue, 1},
		{"a limit range", base + "\n---\napiVersion: v1\nkind: LimitRange\nmetadata: {name: l, namespace: blue}\nspec: {limits: [{type: Container, max: {cpu: '1'}}]}\n", ofBlue, 1},
		{"a param", strings.Replace(base, "data: {owner: a}", "data: {owner: b}", 1), "CREATE secrets red/s, CREATE secrets blue/s", 2},
		{"a param of a policy that names objects", strings.Replace(strings.Replace(base, "data: {owner: a}", "data: {owner: b}", 1), "resources: [secrets]", "resources: [secrets], resourceNames: [s]", 1), everything, 2},
		{"a role", base + "\n---\napiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata: {name: r}\n", everything, 0},
		{"a binding", strings.Replace(base, "policyName: prod, validationActions: [Deny]", "policyName: prod, validationActions: [Warn]", 1), "CREATE configmaps red/c, CREATE configmaps blue/c", 1},
	}) {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var twice []string
			o := Options{Source: file(t, requests), Baseline: &Cluster{Set: set(t, base)}, With: &Cluster{Set: set(t, tt.with)}}
			o.judged = func(q *requestlog.Entry, again bool) {
				if again {
					twice = append(twice, strings.TrimSuffix(q.Title(), " by jane"))
				}
			}
			r := run(t, o)
			if got := strings.Join(twice, ", "); got != tt.twice || r.Changed != tt.changed {
				t.Errorf("judged twice: %s\nwant %s\nchanged %d, want %d", got, tt.twice, r.Changed, tt.changed)
			}
			o.plain, o.judged = true, nil
			if diff := cmp.Diff(r, run(t, o), cmpopts.IgnoreUnexported(Group{})); diff != "" {
				t.Errorf("another report when each is judged twice (-once +twice):\n%s", diff)
			}
		})
	}
}

// Reason is requestlog.Reason.
type Reason = requestlog.Reason

// S25.1, S25.2, S25.3, S25.5, S25.7, S25.9: each request is evaluated against the baseline and with the change, and the
// groups name the differences and their causes.
func TestReplay(t *testing.T) {
	o := Options{Source: file(t, samples()), Baseline: &Cluster{Set: set(t, oldPolicies)}, With: &Cluster{Set: set(t, newPolicies)}}
	r := run(t, o)
	var got []string
	for _, g := range r.Groups {
		got = append(got, fmt.Sprintf("%s %s %d %s", g.Change, strings.Join(g.By, ","), g.Count, g.Examples[0].Request))
	}
	want := []string{
		"rejected policy frozen 1 DELETE configmaps shop/kept by jane",
		"rejected policy no-exec 1 CONNECT pods/exec shop/tagged by jane",
		"allowed policy owned 2 CREATE configmaps shop/labelled by jane",
		"rejection policy owned 3 CREATE configmaps shop/bare by jane",
		"object metadata.labels 2 CREATE pods shop/plain by jane",
		"webhooks hooks/services.example.com 1 CREATE services shop/web by jane",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("groups (-want +got):\n%s", diff)
	}
	if r.Judged != len(samples())-1 || r.Changed != 10 {
		t.Errorf("judged %d, changed %d", r.Judged, r.Changed)
	}
	if len(r.Input.LeftOut) != 1 || r.Input.LeftOut[0].Reason != "nothing defines the resource widgets.example.com" {
		t.Errorf("left out %+v", r.Input.LeftOut)
	}
	first, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	// S25.6: a second run is identical byte for byte, also when each request goes through the whole API server on both
	// sides.
	for _, plain := range speed.Some(t, 1, []bool{false, true}) {
		again := o
		again.plain = plain
		second, err := json.Marshal(run(t, again))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(first), string(second)); diff != "" {
			t.Errorf("plain %v: another report (-first +second):\n%s", plain, diff)
		}
	}
	// S25.18: all examples of a group, and each request in order, if requested.
	several := o
	several.Source, several.Examples = file(t, slices.Repeat(samples(), 3)), 5
	var lines []string
	several.Each = func(j *Judged) { lines = append(lines, string(j.Change)+" "+j.Request) }
	r3 := run(t, several)
	for _, g := range r3.Groups {
		if want := min(g.Count, 5); len(g.Examples) != want {
			t.Errorf("%s by %s: %d examples of %d", g.Change, g.By, len(g.Examples), g.Count)
		}
	}
	if len(lines) != r3.Changed || r3.Changed != 30 || r3.Changes[NewlyAllowed] != 6 || lines[0] != "rejection CREATE configmaps shop/bare by jane" || !slices.Equal(lines[:10], lines[20:]) {
		t.Errorf("changed %d, %v: %q", r3.Changed, r3.Changes, lines)
	}
	var page bytes.Buffer
	if err := r.View(true, true).HTML(&page); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"10 of 17 requests have another verdict", "policy frozen", "2026-03-01"} {
		if !strings.Contains(page.String(), want) {
			t.Errorf("the page has no %q", want)
		}
	}
}
