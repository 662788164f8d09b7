package lint_test

import (
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/version"

	"github.com/gatehouse-dev/gatehouse/admission/registration"
	"github.com/gatehouse-dev/gatehouse/internal/commands/predict/offline"
	"github.com/gatehouse-dev/gatehouse/internal/readers/lint"
	"github.com/gatehouse-dev/gatehouse/internal/readers/manifests"
	_ "github.com/gatehouse-dev/gatehouse/test/speed"
)

const (
	mutating   = "MutatingWebhookConfiguration"
	validating = "ValidatingWebhookConfiguration"
)

// exampleTime is the time for the examples of rules: some have certificates.
var exampleTime = time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)

func writeFile(t *testing.T, name, content string) {
	t.Helper()
	if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

// lintFile checks a file with the content.
func lintFile(t *testing.T, content string, change func(*lint.Input)) (*lint.Result, *offline.World) {
	t.Helper()
	name := filepath.Join(t.TempDir(), "file.yaml")
	writeFile(t, name, content)
	w, skipped, _, err := offline.Survey([]string{name}, nil, &manifests.Ignore{})
	if err != nil {
		t.Fatal(err)
	}
	if len(skipped) > 0 {
		t.Errorf("skipped: %q", skipped)
	}
	world, err := w.Lint(t.Context(), exampleTime, nil)
	if err != nil {
		t.Fatal(err)
	}
	if change != nil {
		change(world)
		if world.Upgrade != nil {
			world.Upgrade.Servers, world.Upgrade.Versions = w.ServerOptions(), w.Versions()
		}
	}
	return lint.Check(t.Context(), world, lint.Options{}), w
}

// of returns the findings of a rule.
func of(r *lint.Result, id string) (list []lint.Finding) {
	for _, f := range r.Findings {
		if f.Rule.ID == id {
			list = append(list, f)
		}
	}
	return list
}

// Every rule has a failing and a passing example.
func TestExamplesOfRules(t *testing.T) {
	for _, r := range lint.Rules() {
		t.Run(r.ID, func(t *testing.T) {
			var change func(*lint.Input)
			if r.Upgrade {
				change = func(w *lint.Input) {
					w.Upgrade = &lint.Upgrade{
						To: version.MajorMinor(1, 37), Known: version.MajorMinor(1, 37), Lives: offline.Lives(),
						Plugins: map[string]bool{"NodeRestriction": true}, Flags: map[string]bool{"enable-admission-plugins": true},
					}
					if r.ID == "upgrade-expression" {
						w.Upgrade.To = version.MajorMinor(1, 32)
					}
				}
			}
			if r.ID == "mutation-not-validated" {
				// Files do not show which other objects validate in a cluster.
				change = func(w *lint.Input) { w.Partial = false }
			}
			if slices.Contains(r.Reads, lint.Certificates) {
				// The server presents the certificate of the passing example, or the certificate in its caBundle, or
				// none at port 443.
				change = func(w *lint.Input) {
					served := lint.Served{Chain: []*x509.Certificate{certificate(t, r.Passes)}}
					switch r.ID {
					case "certificate-expires":
						bundle := w.Snapshot.Entries(registration.Validating)[0].ClientConfig.CABundle
						served.Chain[0] = certificate(t, "caBundle: "+base64.StdEncoding.EncodeToString(bundle))
					case "webhook-unreachable":
						served = lint.Served{Err: errors.New("connection refused")}
					}
					w.Served = map[lint.Address]lint.Served{{Host: "policies.policies.svc", Port: 443}: served}
				}
			}
			report, w := lintFile(t, r.Fails, change)
			found := of(report, r.ID)
			if len(found) == 0 {
				t.Errorf("the example that fails does not; others found: %v\n%s", report.Findings, r.Fails)
			}
			worst := false
			for _, f := range found {
				worst = worst || f.Level == r.Level
				if strings.HasSuffix(f.Message, ".") || strings.Contains(f.Message, "\n") || strings.Contains(f.Message, "%!") {
					t.Errorf("message %q", f.Message)
				}
				if at, ok := w.Locate(f.Object, f.Path); f.Object.Kind != "initializer" && (!ok || at.File == "" || at.Line == 0 || at.Column == 0) {
					t.Errorf("%s %s is in no file", f.Object, f.Field())
				}
			}
			if partial := []string{"service-missing", "params-missing", "policy-without-binding"}; !worst && !slices.Contains(partial, r.ID) {
				t.Errorf("no finding has the level of the rule, %s: %v", r.Level, found)
			}
			if report, _ := lintFile(t, r.Passes, change); len(of(report, r.ID)) > 0 {
				t.Errorf("the example that passes does not: %v\n%s", of(report, r.ID)[0].Message, r.Passes)
			}
		})
	}
}

// certificate returns the first certificate in an example.
func certificate(t *testing.T, example string) *x509.Certificate {
	t.Helper()
	data, err := base64.StdEncoding.DecodeString(regexp.MustCompile(`caBundle: (\S+)`).FindStringSubmatch(example)[1])
	if err != nil {
		t.Fatal(err)
	}
	block, _ := pem.Decode(data)
	c, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// Configurations that stopped clusters, retold from incident reports, are found. The projects' repairs have no
// findings.
func TestIncidentsAreFound(t *testing.T) {
	service := func(namespace, name string) string {
		return "---\napiVersion: v1\nkind: Service\nmetadata: {namespace: " + namespace + ", name: " + name + "}\nspec: {selector: {app: " + name + "}, ports: [{port: 443}]}\n"
	}
	workload := func(kind, namespace, name, more string) string {
		return "---\napiVersion: apps/v1\nkind: " + kind + "\nmetadata: {namespace: " + namespace + ", name: " + name + "}\nspec:\n" +
			map[string]string{"Deployment": "  replicas: 2\n"}[kind] +
			"  selector: {matchLabels: {app: " + name + "}}\n  template:\n    metadata: {labels: {app: " + name + "}}\n    spec: {" + more +
			"containers: [{name: one, image: registry.example.com/one}]}\n"
	}
	hook := func(kind, name, namespace, service, more string) string {
		return "---\napiVersion: admissionregistration.k8s.io/v1\nkind: " + kind + "\nmetadata: {name: " + name + "}\nwebhooks:\n- name: hook." + name + ".example.com\n" +
			"  clientConfig: {caBundle: " + lasting(t) + ", service: {namespace: " + namespace + ", name: " + service + "}}\n  admissionReviewVersions: [v1]\n  sideEffects: None\n" + more
	}
	const (
		validating = "ValidatingWebhookConfiguration"
		mutating   = "MutatingWebhookConfiguration"
		pods       = "  rules:\n  - {apiGroups: [\"\"], apiVersions: [v1], operations: [CREATE], resources: [pods]}\n"
		everything = "  rules:\n  - {apiGroups: [\"*\"], apiVersions: [\"*\"], operations: [CREATE, UPDATE], resources: [\"*\"]}\n"
	)
	without := func(namespaces string) string {
		return "  namespaceSelector:\n    matchExpressions:\n    - {key: kubernetes.io/metadata.name, operator: NotIn, values: [" + namespaces + "]}\n"
	}
	for _, tc := range []struct {
		name string
		// files is the faulty configuration; errors are the rules that find it.
		files  string
		errors []string
		// text is part of a message.
		text string
		// repaired is a better configuration.
		repaired string
	}{
		{
			// A policy engine receives all requests, except those in the system's and its own namespaces. After a
			// restart of the whole cluster, nodes register again without a namespace, and no engine is running to
			// answer.
			name: "kyverno/kyverno#16177: no node joins after all have stopped",
			files: hook(validating, "engine", "engine", "engine", everything+"  failurePolicy: Fail\n"+without("kube-system, kube-node-lease, engine, monitoring")) +
				service("engine", "engine") + workload("Deployment", "engine", "engine", ""),
			errors: []string{"fail-on-nodes"},
			text:   "CREATE of nodes",
			repaired: hook(validating, "engine", "engine", "engine", everything+"  failurePolicy: Fail\n"+without("kube-system, kube-node-lease, kube-public, default, engine, monitoring")+
				"  matchConditions:\n  - {name: not-nodes, expression: \"!(request.resource.resource in ['nodes', 'certificatesigningrequests'])\"}\n") +
				service("engine", "engine") + workload("Deployment", "engine", "engine", ""),
		},
		{
			// Several webhooks see new pods. The network plugin has a namespace of its own and is lost: its pods, in
			// the host network, are sent to webhooks that need the network plugin.
			name: "cozystack/cozystack#3125: a network plugin cannot be replaced",
			files: hook(mutating, "lineage", "system", "lineage", pods+"  failurePolicy: Fail\n"+without("kube-system, system")) +
				hook(mutating, "scheduler", "storage", "scheduler", pods+"  failurePolicy: Ignore\n  timeoutSeconds: 20\n"+without("kube-system")) +
				hook(mutating, "autoscaler", "scaling", "autoscaler", pods+"  failurePolicy: Ignore\n  timeoutSeconds: 20\n"+without("kube-system")) +
				workload("DaemonSet", "network", "cni", "hostNetwork: true, volumes: [{name: cni, hostPath: {path: /etc/cni/net.d}}], "),
			errors: []string{"node-critical-not-exempt"},
			text:   "DaemonSet network/cni",
			repaired: hook(mutating, "lineage", "system", "lineage", pods+"  failurePolicy: Fail\n"+without("kube-system, system, network")) +
				workload("DaemonSet", "network", "cni", "hostNetwork: true, volumes: [{name: cni, hostPath: {path: /etc/cni/net.d}}], "),
		},
		{
			// A webhook of a storage driver excludes only its own namespace. All nodes restart; the network plugin in
			// kube-system waits for the webhook, and the webhook for the network plugin.
			name: "topolvm/topolvm#57: kube-system waits for a webhook of a storage driver",
			files: hook(mutating, "storage", "storage", "storage", pods+"  failurePolicy: Fail\n"+without("storage")) +
				service("storage", "storage") + workload("Deployment", "storage", "storage", ""),
			errors: []string{"control-plane-not-exempt"},
			text:   "kube-system",
			repaired: hook(mutating, "storage", "storage", "storage", pods+"  failurePolicy: Fail\n"+without("storage, kube-system")) +
				service("storage", "storage") + workload("Deployment", "storage", "storage", ""),
		},
		{
			// A mesh and a policy engine each exclude their own namespace, and see the pods of the other. Both are lost
			// with one node.
			name: "defenseunicorns/uds-core#1509: a mesh and a policy engine wait for each other",
			files: hook(mutating, "mesh", "mesh", "pilot", pods+"  failurePolicy: Fail\n"+without("kube-system, mesh")) +
				hook(validating, "engine", "engine", "engine", pods+"  failurePolicy: Fail\n"+without("kube-system, engine")) +
				service("mesh", "pilot") + service("engine", "engine") +
				workload("Deployment", "mesh", "pilot", "") + workload("Deployment", "engine", "engine", ""),
			errors: []string{"deadlock-cycle"},
			text:   "the pods of service mesh/pilot need engine/hook.engine.example.com (service engine/engine) for the CREATE of pods in namespace mesh; the pods of service engine/engine need mesh/hook.mesh.example.com",
			repaired: hook(mutating, "mesh", "mesh", "pilot", pods+"  failurePolicy: Fail\n"+without("kube-system, mesh, engine")) +
				hook(validating, "engine", "engine", "engine", pods+"  failurePolicy: Fail\n"+without("kube-system, engine")) +
				service("mesh", "pilot") + service("engine", "engine") +
				workload("Deployment", "mesh", "pilot", "") + workload("Deployment", "engine", "engine", ""),
		},
		{
			// A webhook matches everything. Rules cannot exclude single resources, so it also receives the leases by
			// which the control plane elects its leaders.
			name:   "kubernetes/kubernetes#92157: everything includes leases",
			files:  hook(validating, "engine", "engine", "engine", everything+"  failurePolicy: Fail\n"),
			errors: []string{"fail-on-leases", "fail-on-nodes", "self-deadlock", "control-plane-not-exempt"},
			text:   "the control plane stops",
			repaired: hook(validating, "engine", "engine", "engine", everything+"  failurePolicy: Fail\n"+without("kube-system, kube-public, kube-node-lease, default, engine")+
				"  matchConditions:\n  - {name: narrow, expression: \"!(request.resource.resource in ['leases', 'nodes', 'certificatesigningrequests'])\"}\n"),
		},
		{
			// A webhook for namespaces cannot be reached, because its caBundle is a public key. A current API server
			// starts without the namespaces of the system.
			name: "kubernetes/kubernetes#56761: no namespace can be made",
			files: strings.Replace(hook(validating, "reservations", "reservations", "reservations",
				"  rules:\n  - {apiGroups: [\"\"], apiVersions: [v1], operations: [CREATE], resources: [namespaces]}\n  failurePolicy: Fail\n"),
				lasting(t), publicKey(t), 1),
			errors: []string{"ca-bundle-invalid"},
			text:   "error ca-bundle-invalid: the API server cannot connect to the webhook hook.reservations.example.com",
			repaired: hook(validating, "reservations", "reservations", "reservations",
				"  rules:\n  - {apiGroups: [\"\"], apiVersions: [v1], operations: [CREATE], resources: [namespaces]}\n  failurePolicy: Fail\n"),
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			report, _ := lintFile(t, tc.files, nil)
			var texts []string
			for _, f := range report.Findings {
				texts = append(texts, string(f.Level)+" "+f.Rule.ID+": "+f.Message)
			}
			all := strings.Join(texts, "\n")
			for _, id := range tc.errors {
				if !slices.ContainsFunc(of(report, id), func(f lint.Finding) bool { return f.Level == lint.Error }) {
					t.Errorf("%s does not find it:\n%s", id, all)
				}
			}
			if !strings.Contains(all, tc.text) {
				t.Errorf("no message has %q:\n%s", tc.text, all)
			}
			report, _ = lintFile(t, tc.repaired, nil)
			for _, f := range report.Findings {
				if f.Level == lint.Error {
					t.Errorf("repaired: %s: %s", f.Rule.ID, f.Message)
				}
			}
		})
	}
}

// lasting is a valid caBundle, publicKey an invalid one.
func lasting(t *testing.T) string   { return bundleOf(t, lint.Find("ca-bundle-invalid").Passes) }
func publicKey(t *testing.T) string { return bundleOf(t, lint.Find("ca-bundle-invalid").Fails) }

func bundleOf(t *testing.T, example string) string {
	t.Helper()
	return regexp.MustCompile(`caBundle: (\S+)`).FindStringSubmatch(example)[1]
}

// Webhooks registered as in careful projects have no error.
func TestCarefulConfigurationsHaveNoErrors(t *testing.T) {
	files := map[string]string{
		"an injector that namespaces opt into": `apiVersion: admissionregistration.k8s.io/v1
kind: MutatingWebhookConfiguration
metadata: {name: injector}
webhooks:
- name: namespace.injector.example.com
  clientConfig: {caBundle: BUNDLE, service: {namespace: mesh, name: injector, path: /inject}}
  rules:
  - {apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}
  namespaceSelector: {matchLabels: {mesh-injection: enabled}}
  admissionReviewVersions: [v1]
  sideEffects: None
  failurePolicy: Fail
- name: object.injector.example.com
  clientConfig: {caBundle: BUNDLE, service: {namespace: mesh, name: injector, path: /inject}}
  rules:
  - {apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}
  namespaceSelector:
    matchExpressions:
    - {key: mesh-injection, operator: DoesNotExist}
    - {key: kubernetes.io/metadata.name, operator: NotIn, values: [mesh, kube-system]}
  objectSelector: {matchLabels: {mesh.example.com/inject: "true"}}
  admissionReviewVersions: [v1]
  sideEffects: None
  failurePolicy: Fail
`,
		"an operator that validates its own kinds": `apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: certificates, annotations: {cert-manager.io/inject-ca-from-secret: certificates/ca}}
webhooks:
- name: webhook.certificates.example.com
  clientConfig: {service: {namespace: certificates, name: webhook}}
  rules:
  - {apiGroups: [certificates.example.com], apiVersions: [v1], operations: [CREATE, UPDATE], resources: ["*/*"]}
  admissionReviewVersions: [v1]
  sideEffects: None
  failurePolicy: Fail
`,
		"a policy engine that leaves out what starts it": `apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: engine}
webhooks:
- name: validate.engine.example.com
  clientConfig: {caBundle: BUNDLE, service: {namespace: engine, name: engine}}
  rules:
  - {apiGroups: ["*"], apiVersions: ["*"], operations: [CREATE, UPDATE, DELETE, CONNECT], resources: ["*/*"]}
  namespaceSelector:
    matchExpressions:
    - {key: kubernetes.io/metadata.name, operator: NotIn, values: [kube-system, kube-node-lease, engine]}
  matchConditions:
  - {name: not-nodes, expression: "!('system:nodes' in request.userInfo.groups)"}
  - {name: not-bootstrap, expression: "!(request.resource.resource in ['nodes', 'certificatesigningrequests', 'leases'])"}
  admissionReviewVersions: [v1]
  sideEffects: NoneOnDryRun
  failurePolicy: Fail
  timeoutSeconds: 5
`,
		"a webhook outside of the cluster": `apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: outside}
webhooks:
- name: pods.outside.example.com
  clientConfig: {url: "https://admission.example.com/pods"}
  rules:
  - {apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}
  admissionReviewVersions: [v1]
  sideEffects: None
  failurePolicy: Fail
`,
		"namespaces that opt out by a label": `apiVersion: admissionregistration.k8s.io/v1
kind: MutatingWebhookConfiguration
metadata: {name: storage}
webhooks:
- name: pods.storage.example.com
  clientConfig: {caBundle: BUNDLE, service: {namespace: storage, name: storage}}
  rules:
  - {apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}
  namespaceSelector:
    matchExpressions:
    - {key: storage.example.com/webhook, operator: NotIn, values: [ignore]}
  admissionReviewVersions: [v1]
  sideEffects: None
  failurePolicy: Fail
`,
	}
	for name, content := range files {
		t.Run(name, func(t *testing.T) {
			report, _ := lintFile(t, strings.ReplaceAll(content, "BUNDLE", lasting(t)), nil)
			for _, f := range report.Findings {
				if f.Level == lint.Error {
					t.Errorf("%s: %s", f.Rule.ID, f.Message)
				}
			}
		})
	}
	// The examples of this project have no errors, either, each on its own: webhooks of two examples that fail closed
	// would need each other to start. The example of exclusions is left out: its webhook hangs on purpose, and the
	// rules that protect the leases are in the server's configuration, which is not a registration.
	all, err := filepath.Glob("../../../examples/*/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	examples := map[string][]string{}
	for _, path := range all {
		if name := filepath.Base(filepath.Dir(path)); name != "exclusions" {
			examples[name] = append(examples[name], path)
		}
	}
	var webhooks, policies int
	for name, paths := range examples {
		w, _, _, err := offline.Survey(paths, nil, &manifests.Ignore{})
		if err != nil {
			t.Fatal(err)
		}
		world, err := w.Lint(t.Context(), exampleTime, nil)
		if err != nil {
			t.Fatal(err)
		}
		ofWebhooks, ofPolicies, _ := world.Count()
		webhooks, policies = webhooks+ofWebhooks, policies+ofPolicies
		for _, f := range lint.Check(t.Context(), world, lint.Options{}).Findings {
			if f.Level == lint.Error {
				t.Errorf("%s: %s %s: %s", name, f.Rule.ID, f.Object, f.Message)
			}
		}
	}
	if webhooks < 2 || policies < 1 {
		t.Errorf("the examples have %d webhooks and %d policies", webhooks, policies)
	}
}

// expiredBundle is the caBundle of the example of ca-bundle-expired.
func expiredBundle(t *testing.T) string {
	t.Helper()
	return regexp.MustCompile(`caBundle: (\S+)`).FindStringSubmatch(lint.Find("ca-bundle-expired").Fails)[1]
}

// costs matches cost estimates, which depend on the CEL library.
var costs = regexp.MustCompile(`costs up to \d+`)

// False or useless findings are worse than none. Each case has the shape of a manifest that many clusters have.
func TestFindingsAreTrueAndUseful(t *testing.T) {
	const program = `---
apiVersion: v1
kind: Service
metadata: {namespace: one, name: hooks}
spec: {selector: {app: hooks}, ports: [{port: 443}]}
---
apiVersion: apps/v1
kind: Deployment
metadata: {namespace: one, name: hooks}
spec:
  replicas: 2
  selector: {matchLabels: {app: hooks}}
  template: {metadata: {labels: {app: hooks}}, spec: {containers: [{name: server, image: registry.example.com/hooks}], volumes: [{name: c, secret: {secretName: c}}]}}
---
apiVersion: v1
kind: Secret
metadata: {namespace: one, name: c}
`
	hooks := func(kind string, more ...string) string {
		text := "---\napiVersion: admissionregistration.k8s.io/v1\nkind: " + kind + "\nmetadata: {name: " + strings.ToLower(kind[:1]) + "}\nwebhooks:\n"
		for i, one := range more {
			text += "- name: h" + string(rune('0'+i)) + ".example.com\n  clientConfig: {service: {namespace: one, name: hooks}}\n  admissionReviewVersions: [v1]\n  sideEffects: None\n  " + one + "\n"
		}
		return text
	}
	rule := func(group, resource string) string {
		return `rules: [{apiGroups: ["` + group + `"], apiVersions: [v1], operations: [CREATE], resources: [` + resource + `]}]`
	}
	const aside = "namespaceSelector: {matchExpressions: [{key: kubernetes.io/metadata.name, operator: NotIn, values: [kube-system, one]}]}\n  "
	role := func(resource string) string {
		return "---\napiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata: {name: hooks}\nrules: [{apiGroups: [admissionregistration.k8s.io], resources: [" + resource + "], verbs: [get, patch]}]\n"
	}
	policy := func(name string) string {
		return "---\napiVersion: admissionregistration.k8s.io/v1\nkind: ValidatingAdmissionPolicy\nmetadata: {name: " + name + "}\nspec:\n  validations: [{expression: \"object.metadata.name != 'x'\"}]\n  matchConstraints: {resourceRules: [{apiGroups: [apps], apiVersions: [v1], operations: [CREATE], resources: [deployments]}]}\n"
	}
	const binding = "---\napiVersion: admissionregistration.k8s.io/v1\nkind: ValidatingAdmissionPolicyBinding\nmetadata: {name: a}\nspec: {policyName: a, validationActions: [Deny]}\n"
	const definition = "---\napiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {name: routes.gateway.networking.k8s.io}\nspec:\n  group: gateway.networking.k8s.io\n  scope: Namespaced\n  names: {kind: Route, plural: routes}\n  versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}]\n"
	converted := func(versions ...string) string {
		text, list := definition, ""
		for i, v := range versions {
			list += fmt.Sprintf("{name: %s, served: true, storage: %v, schema: {openAPIV3Schema: {type: object}}}, ", v, i == 0)
		}
		text = strings.Replace(text, "{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}", list, 1)
		return text + "  conversion: {strategy: Webhook, webhook: {conversionReviewVersions: [v1], clientConfig: {service: {namespace: one, name: hooks}}}}\n"
	}
	limited := func(names ...string) string {
		text := strings.Replace(policy("a"), "spec:\n", "spec:\n  paramKind: {apiVersion: v1, kind: ConfigMap}\n", 1)
		for _, name := range names {
			text += strings.NewReplacer("metadata: {name: a}", "metadata: {name: "+name+"}", "[Deny]}", "[Deny], paramRef: {name: p, parameterNotFoundAction: Deny}}").Replace(binding)
		}
		return text
	}
	scaler := func(least int) string {
		return fmt.Sprintf("---\napiVersion: autoscaling/v2\nkind: HorizontalPodAutoscaler\nmetadata: {namespace: one, name: hooks}\nspec: {minReplicas: %d, maxReplicas: 5, scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: hooks}}\n", least)
	}
	const ignore, closed = "failurePolicy: Ignore\n  ", "failurePolicy: Fail\n  "
	const everything = `rules: [{apiGroups: ["*"], apiVersions: ["*"], operations: [CREATE], resources: ["*"]}]`
	for _, tc := range []struct {
		name, rule, content string
		want                []string
	}{
		{"a group of custom resources that ends in .k8s.io is not a built-in one", "rule-never-matches", program + hooks(validating, ignore+rule("snapshot.storage.k8s.io", "volumesnapshots")), nil},
		{"the files have one kind of the group and not the other", "rule-never-matches", program + definition + hooks(validating, ignore+rule("gateway.networking.k8s.io", "httproutes")), nil},
		{"a kind that the files define, in another version", "rule-never-matches", program + definition + hooks(validating, ignore+strings.Replace(rule("gateway.networking.k8s.io", "routes"), "[v1]", "[v2]", 1)),
			[]string{"warning no request matches rule 1 of v/h0.example.com: routes are served in gateway.networking.k8s.io/v1, and the rule names the version v2"}},
		{"two kinds, of which one is served in another version", "rule-never-matches", program + hooks(validating, ignore+strings.Replace(rule("policy", "podsecuritypolicies, poddisruptionbudgets"), "[v1]", "[v1beta1]", 1)),
			[]string{"warning no request matches rule 1 of v/h0.example.com: poddisruptionbudgets are served in policy/v1, and the rule names the version v1beta1"}},
		{"a built-in group", "rule-never-matches", program + hooks(validating, ignore+rule("networking.k8s.io", "ingreses")), []string{"warning no request matches rule 1 of v/h0.example.com: the API serves no resource ingreses"}},

		{"a role lets the program set its caBundle", "ca-bundle-missing", program + role("validatingwebhookconfigurations") + hooks(validating, ignore+rule("", "pods")), nil},
		{"a role is about another kind", "ca-bundle-missing", program + role("mutatingwebhookconfigurations") + hooks(validating, ignore+rule("", "pods")),
			[]string{"warning the webhook h0.example.com calls service one/hooks without a caBundle: the API server will not trust its certificate"}},
		{"the files have a part of the program", "ca-bundle-missing", hooks(validating, ignore+rule("", "pods")), nil},
		{"a definition with one version is never converted", "ca-bundle-missing", program + converted("v1"), nil},
		{"a definition with two versions", "ca-bundle-missing", program + role("mutatingwebhookconfigurations") + converted("v1", "v2"),
			[]string{"warning the conversion webhook of routes.gateway.networking.k8s.io calls service one/hooks without a caBundle: the API server will not trust its certificate"}},
		{"several webhooks of one service are one finding", "ca-bundle-missing", program + role("mutatingwebhookconfigurations") + hooks(validating, ignore+rule("", "pods"), ignore+rule("", "secrets"), ignore+rule("", "services")),
			[]string{"warning the webhook h0.example.com calls service one/hooks without a caBundle: the API server will not trust its certificate; the same holds for the webhook h1.example.com and the webhook h2.example.com"}},

		{"a library of policies", "policy-without-binding", policy("a") + policy("b"), nil},
		{"most policies have no binding", "policy-without-binding", policy("a") + policy("b") + policy("c") + binding, nil},
		{"a binding with nearly its name", "policy-without-binding", policy("a") + policy("required-labels") + binding + strings.NewReplacer("policyName: a", "policyName: required-label", "name: a}", "name: b}").Replace(binding), nil},
		{"one policy was forgotten", "policy-without-binding", policy("a") + policy("b") + binding, []string{"note the policy b has no binding: it does nothing"}},

		{"bindings of policies that are elsewhere", "binding-without-policy", binding, nil},
		{"a binding of a policy that is refused", "binding-without-policy", policy("b") + strings.Replace(policy("a"), "operations: [CREATE], ", "", 1) + binding, nil},
		{"a binding names none of the policies", "binding-without-policy", policy("b") + binding,
			[]string{"warning the binding a names the ValidatingAdmissionPolicy \"a\"; the files have other policies, and not this one"}},
		{"bindings of a policy of new objects", "params-per-namespace-deny", limited("a", "b"), nil},
		{"bindings of one policy", "params-per-namespace-deny", strings.Replace(limited("a", "b"), "operations: [CREATE]", "operations: [CREATE, UPDATE]", 1),
			[]string{"warning the binding a rejects all writes that its policy matches in a namespace whose params are gone, also while the namespace is deleted; the same holds for the binding b"}},
		{"a new object whose name the server makes has a name when it is judged", "resource-names-on-delete", strings.Replace(policy("a"), "operations: [CREATE]", "resourceNames: [x], operations: [CREATE, UPDATE]", 1), nil},
		{"the deletion of a collection has no name", "resource-names-on-delete", strings.Replace(policy("a"), "operations: [CREATE]", "resourceNames: [x], operations: [DELETE]", 1),
			[]string{"warning rule 1 of a does not match the deletion of a collection, which has no name: it names x"}},
		{"several objects in one old version", "registration-old", strings.ReplaceAll(policy("a")+binding, "admissionregistration.k8s.io/v1", "admissionregistration.k8s.io/v1beta1"),
			[]string{"warning ValidatingAdmissionPolicy/a is written as v1beta1; write it as v1; the same holds for ValidatingAdmissionPolicyBinding/a"}},

		{"several webhooks that take old reviews", "registration-old", strings.ReplaceAll(program+hooks(validating, closed+rule("", "pods"), closed+rule("", "secrets")), "[v1]\n  sideEffects", "[v1beta1]\n  sideEffects"),
			[]string{"warning the webhook h0.example.com takes reviews of version v1beta1 only, not of v1; the same holds for the webhook h1.example.com"}},
		{"each version has a webhook of the same server", "exact-misses-version", program + converted("v1", "v2") + hooks(validating, "matchPolicy: Exact\n  "+rule("gateway.networking.k8s.io", "routes"), "matchPolicy: Exact\n  "+strings.Replace(rule("gateway.networking.k8s.io", "routes"), "[v1]", "[v2]", 1)), nil},
		{"one version has no webhook", "exact-misses-version", program + converted("v1", "v2") + hooks(validating, "matchPolicy: Exact\n  "+rule("gateway.networking.k8s.io", "routes")),
			[]string{"warning the rules of v/h0.example.com leave out routes of gateway.networking.k8s.io/v2, which are the same objects: matchPolicy is Exact"}},
		{"one replica for a program's own objects", "single-replica", strings.Replace(program, "replicas: 2", "replicas: 1", 1) + definition + hooks(validating, closed+rule("gateway.networking.k8s.io", "routes")), nil},
		{"an expired caBundle that the program replaces", "ca-bundle-expired", program + role("validatingwebhookconfigurations") + strings.ReplaceAll(hooks(validating, ignore+rule("", "pods")), "clientConfig: {", "clientConfig: {caBundle: "+expiredBundle(t)+", "), nil},
		{"an expired caBundle that nobody replaces", "ca-bundle-expired", program + strings.ReplaceAll(hooks(validating, ignore+rule("", "pods")), "clientConfig: {", "clientConfig: {caBundle: "+expiredBundle(t)+", "),
			[]string{"error the caBundle of the webhook h0.example.com expired at 2021-01-01T00:00:00Z"}},

		{"an API server becomes ready without its namespaces, services and config map", "api-server-start",
			hooks(validating, closed+rule("", "namespaces"), closed+rule("", "services"), closed+rule("", "configmaps"), closed+rule("discovery.k8s.io", "endpointslices")), nil},
		{"an API server does not become ready without its flow schemas", "api-server-start", hooks(validating, closed+rule("flowcontrol.apiserver.k8s.io", "flowschemas")),
			[]string{"warning the webhook h0.example.com fails closed and intercepts the CREATE of flowschemas by the API server itself: while it cannot be reached, an API server that has to do so, such as one of a new release, does not become ready"}},
		{"an autoscaler keeps two replicas", "single-replica", strings.Replace(program, "replicas: 2", "replicas: 1", 1) + scaler(2) + hooks(validating, closed+rule("", "pods")), nil},
		{"an autoscaler keeps one replica", "single-replica", strings.Replace(program, "replicas: 2", "replicas: 1", 1) + scaler(1) + hooks(validating, closed+aside+rule("", "pods")),
			[]string{"warning the webhook h0.example.com fails closed, and service one/hooks has 1 replica behind it (Deployment/one/hooks)"}},

		{"files do not say what validates in a cluster", "mutation-not-validated", program + hooks(mutating, ignore+rule("", "pods")), nil},
		{"a mutating webhook of objects that ask for it", "mutating-fails-closed", program + hooks(mutating, "failurePolicy: Fail\n  objectSelector: {matchLabels: {use: hooks}}\n  "+rule("", "pods")), nil},
		{"a mutating webhook of namespaces that ask for it", "mutating-fails-closed", program + hooks(mutating, closed+"namespaceSelector: {matchLabels: {use: hooks}}\n  "+rule("", "pods")), nil},
		{"a mutating webhook of custom resources", "mutating-fails-closed", program + definition + hooks(mutating, closed+rule("gateway.networking.k8s.io", "routes"), closed+rule("example.com", "widgets")), nil},
		{"several mutating webhooks of one configuration", "mutating-fails-closed", program + hooks(mutating, closed+aside+rule("", "pods"), closed+aside+rule("", "services")),
			[]string{"note the mutating webhook h0.example.com fails closed: while it cannot be reached, objects are rejected that need no change; the same holds for the webhook h1.example.com"}},
		{"several webhooks of one configuration", "unscoped", program + hooks(mutating, closed+rule("apps", "deployments"), closed+rule("", "services")),
			[]string{"note the webhook h0.example.com is called for deployments in every namespace; the same holds for the webhook h1.example.com"}},
		{"a webhook of custom resources that cannot be skipped", "webhook-on-custom-resource", definition + hooks(validating, closed+rule("gateway.networking.k8s.io", "routes")), nil},
		{"a mutating webhook that fails closed intercepts kube-system", "mutates-mirror-pods", program + hooks(mutating, closed+rule("", "pods")), nil},
		{"a mutating webhook that fails open intercepts kube-system", "control-plane-not-exempt", program + hooks(mutating, ignore+rule("", "pods")), nil},
		{"a wildcard that fails open", "control-plane-not-exempt", program + hooks(validating, ignore+everything), nil},
		{"leases are among all that a wildcard names", "fail-on-leases", program + hooks(validating, ignore+"timeoutSeconds: 3\n  "+everything), nil},
		{"a mutating webhook of objects that do not opt out", "mutating-fails-closed", program + hooks(mutating, "failurePolicy: Fail\n  objectSelector: {matchExpressions: [{key: use, operator: DoesNotExist}]}\n  "+aside+rule("", "pods")),
			[]string{"note the mutating webhook h0.example.com fails closed: while it cannot be reached, objects are rejected that need no change"}},

		{"events are among all that a wildcard names, which is a finding of its own", "webhook-on-events", program + hooks(validating, ignore+everything), nil},
		{"a wildcard that fails closed loses events", "webhook-on-events", program + hooks(validating, "failurePolicy: Fail\n  "+everything),
			[]string{"warning the webhook h0.example.com intercepts the CREATE of events in namespace default and CREATE of events in namespace kube-system, and fails closed: while it cannot be reached, events are lost"}},
		{"a rule that names events", "webhook-on-events", program + hooks(validating, ignore+rule("", "events")),
			[]string{"note the webhook h0.example.com intercepts the CREATE of events in namespace default and CREATE of events in namespace kube-system, and is called for each one"}},

		{"a plain loop over a text's parts", "expression-cost", binding + strings.Replace(policy("a"), "object.metadata.name != 'x'", "object.spec.template.spec.containers.all(c, c.image.findAll(':[a-z]+').all(s, s.matches('^:[a-zA-Z]{1,127}$')))", 1), nil},
		{"lists in one another", "expression-cost", binding + strings.Replace(policy("a"), "object.metadata.name != 'x'", "object.spec.template.spec.containers.all(c, c.env.all(e, e.name != 'x' && e.value != 'y'))", 1), nil},
		{"a loop about params", "expression-cost", binding + strings.NewReplacer("object.metadata.name != 'x'", "object.spec.template.spec.volumes.all(c, object.spec.template.spec.volumes.all(e, object.spec.template.spec.volumes.exists(v, v.name == e.name || v.name == params.data.a)))", "spec:\n", "spec:\n  paramKind: {apiVersion: v1, kind: ConfigMap}\n").Replace(policy("a")),
			[]string{"note an expression of a costs up to N for an object with lists of 200 elements, and the limit is 1000000"}},
		{"two expressions of one policy", "expression-cost", binding + strings.Replace(policy("a"), `{expression: "object.metadata.name != 'x'"}`,
			strings.Repeat(`{expression: "object.spec.template.spec.volumes.all(c, object.spec.template.spec.volumes.all(e, object.spec.template.spec.volumes.exists(v, v.name == e.name)))"}, `, 2), 1),
			[]string{"warning an expression of a costs up to N for an object with lists of 200 elements, and the limit is 1000000; the same holds for the expression at spec.validations[1].expression"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			report, _ := lintFile(t, tc.content, nil)
			var got []string
			for _, f := range of(report, tc.rule) {
				got = append(got, string(f.Level)+" "+costs.ReplaceAllString(f.Message, "costs up to N"))
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("findings of %s (-want +got):\n%s", tc.rule, diff)
			}
		})
	}
}

// A webhook at an address outside of the cluster needs no service, no endpoint and no pod.
func TestWebhooksElsewhere(t *testing.T) {
	const hook = "apiVersion: admissionregistration.k8s.io/v1\nkind: ValidatingWebhookConfiguration\nmetadata: {name: a}\nwebhooks:\n- name: a.example.com\n  clientConfig: {service: {namespace: one, name: hooks}}\n" +
		"  admissionReviewVersions: [v1]\n  sideEffects: None\n  failurePolicy: Fail\n  rules: [{apiGroups: [\"\"], apiVersions: [v1], operations: [CREATE], resources: [pods]}]\n"
	for _, elsewhere := range []bool{false, true} {
		report, _ := lintFile(t, hook, func(w *lint.Input) {
			// The world is a cluster without such a service.
			w.Partial = false
			if elsewhere {
				w.Elsewhere = func(name types.NamespacedName) bool { return name.String() == "one/hooks" }
			}
		})
		for _, rule := range []string{"service-missing", "self-deadlock"} {
			if found := len(of(report, rule)) > 0; found == elsewhere {
				t.Errorf("elsewhere %v: %s is found: %v", elsewhere, rule, found)
			}
		}
	}
}

// S28.6, S28.11: a binding is enforced like its policy; no rule treats as warn-only a registration that a
// kube-apiserver enforces; with the right to label a namespace, a user can leave a rollout, unless namespaces without
// the label are in it, too.
func TestRulesAboutEnforcement(t *testing.T) {
	const policy = `
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata:
  name: teams
  creationTimestamp: "2026-01-01T10:00:00Z"
  annotations: {gatehouse.dev/enforcement: Warn%s}
  managedFields:
  - {manager: gatehouse, operation: Update, apiVersion: admissionregistration.k8s.io/v1, time: "2020-01-01T10:00:00Z", fieldsType: FieldsV1, fieldsV1: {"f:metadata": {"f:annotations": {"f:gatehouse.dev/enforcement": {}}}}}
spec:
  matchConstraints: {resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [configmaps]}]}
  validations: [{expression: "object.metadata.name != 'a'"}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: teams, creationTimestamp: "2026-02-02T10:00:00Z"}
spec: {policyName: teams, validationActions: [Deny]}
`
	for _, tc := range []struct {
		name, rollout string
		change        func(*lint.Input)
		want          []string
	}{
		{"files for either server", "", nil, []string{"enforcement-forgotten", "enforcement-ignored"}},
		{"files for Gatehouse", "", func(w *lint.Input) { w.Gatehouse = true }, []string{"enforcement-forgotten"}},
		{"files for a kube-apiserver", "", func(w *lint.Input) { w.Snapshot.Kubernetes = true }, []string{"enforcement-ignored"}},
		{"a label leaves", ", gatehouse.dev/rollout: stage notin (dev)", func(w *lint.Input) { w.Gatehouse = true }, []string{"enforcement-forgotten", "rollout-opt-out"}},
		{"the absence of a label", `, gatehouse.dev/rollout: "!experimental"`, func(w *lint.Input) { w.Gatehouse = true }, []string{"enforcement-forgotten", "rollout-opt-out"}},
		{"a label enters", ", gatehouse.dev/rollout: stage in (dev)", func(w *lint.Input) { w.Gatehouse = true }, []string{"enforcement-forgotten"}},
		{"names", ", gatehouse.dev/rollout: kubernetes.io/metadata.name notin (dev)", func(w *lint.Input) { w.Gatehouse = true }, []string{"enforcement-forgotten"}},
	} {
		report, _ := lintFile(t, fmt.Sprintf(policy, tc.rollout), tc.change)
		var got []string
		for _, f := range report.Findings {
			if strings.HasPrefix(f.Rule.ID, "enforcement-") || strings.HasPrefix(f.Rule.ID, "rollout-") {
				got = append(got, f.Rule.ID)
			}
		}
		slices.Sort(got)
		if !slices.Equal(got, tc.want) {
			t.Errorf("%s: %v, want %v", tc.name, got, tc.want)
		}
	}
}
