package cli

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/internal/commands/cli/command"
	"github.com/gatehouse-dev/gatehouse/internal/commands/predict/check"
	"github.com/gatehouse-dev/gatehouse/internal/readers/report"
	"github.com/gatehouse-dev/gatehouse/test/speed"
)

// The objects that admission in the test cluster depends on.
const judgingObjects = `
apiVersion: v1
kind: Namespace
metadata: {name: strict, labels: {pod-security.kubernetes.io/enforce: baseline}}
---
apiVersion: v1
kind: Namespace
metadata: {name: full}
---
apiVersion: v1
kind: ResourceQuota
metadata: {name: none, namespace: full}
spec: {hard: {count/configmaps: "0"}}
---
apiVersion: v1
kind: LimitRange
metadata: {name: small, namespace: strict}
spec: {limits: [{type: Container, max: {memory: 1Gi}, default: {memory: 1Mi}}]}
---
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: slow, annotations: {storageclass.kubernetes.io/is-default-class: "true"}}
provisioner: example.com/slow
---
apiVersion: networking.k8s.io/v1
kind: IngressClass
metadata: {name: public, annotations: {ingressclass.kubernetes.io/is-default-class: "true"}}
spec: {controller: example.com/public}
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: orders.shop.example.com}
spec:
  group: shop.example.com
  scope: Namespaced
  names: {plural: orders, singular: order, kind: Order}
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object, properties: {amount: {type: integer}}}}}}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: params, namespace: default}
data: {class: slow, ingress: public, label: denied}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: classes}
spec:
  paramKind: {apiVersion: v1, kind: ConfigMap}
  matchConstraints:
    resourceRules:
    - {apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [persistentvolumeclaims, secrets]}
    - {apiGroups: [networking.k8s.io], apiVersions: [v1], operations: [CREATE], resources: [ingresses]}
  validations:
  - expression: request.kind.kind != 'PersistentVolumeClaim' || !has(object.spec.storageClassName) || object.spec.storageClassName != params.data['class']
  - expression: request.kind.kind != 'Ingress' || !has(object.spec.ingressClassName) || object.spec.ingressClassName != params.data.ingress
  - expression: request.kind.kind != 'Secret' || !has(object.metadata.labels) || !(params.data.label in object.metadata.labels)
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: classes}
spec:
  policyName: classes
  validationActions: [Deny]
  paramRef: {name: params, namespace: default, parameterNotFoundAction: Allow}
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicy
metadata: {name: label}
spec:
  reinvocationPolicy: Never
  matchConstraints:
    resourceRules:
    - {apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [secrets]}
  mutations:
  - patchType: ApplyConfiguration
    applyConfiguration: {expression: "Object{metadata: Object.metadata{labels: {'denied': 'yes'}}}"}
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicyBinding
metadata: {name: label}
spec: {policyName: label}
`

// rights are the read rights that check needs. The cluster rejects each manifest because of an object of the
// resource.
var rights = []struct{ resource, manifest string }{
	{"namespaces", pod("hostNetwork: true")},
	{"limitranges", pod("containers: [{name: a, image: a, resources: {limits: {memory: 2Gi}}}]")},
	{"serviceaccounts", pod("serviceAccountName: missing")},
	{"priorityclasses.scheduling.k8s.io", pod("priorityClassName: missing")},
	{"runtimeclasses.node.k8s.io", pod("runtimeClassName: missing")},
	{"resourcequotas", "{apiVersion: v1, kind: ConfigMap, metadata: {name: a, namespace: full}}"},
	{"storageclasses.storage.k8s.io", claim},
	{"ingressclasses.networking.k8s.io", "{apiVersion: networking.k8s.io/v1, kind: Ingress, metadata: {name: a, namespace: strict}, spec: {defaultBackend: {service: {name: a, port: {number: 80}}}}}"},
	{"customresourcedefinitions.apiextensions.k8s.io", "{apiVersion: shop.example.com/v1, kind: Order, metadata: {name: a, namespace: strict}, spec: {amount: many}}"},
	{"validatingadmissionpolicies.admissionregistration.k8s.io", claim},
	{"validatingadmissionpolicybindings.admissionregistration.k8s.io", claim},
	{"configmaps", claim},
	{"mutatingadmissionpolicies.admissionregistration.k8s.io", secret},
	{"mutatingadmissionpolicybindings.admissionregistration.k8s.io", secret},
	{"servicecidrs.networking.k8s.io", "{apiVersion: v1, kind: Service, metadata: {name: a, namespace: strict}, spec: {clusterIP: 10.96.0.77, ports: [{port: 80}]}}"},
}

// Further rights cover webhooks and initializers, and the rights of users.
var (
	registering = []string{
		"externaladmissionhookconfigurations.admissionregistration.k8s.io", "initializerconfigurations.admissionregistration.k8s.io",
		"mutatingwebhookconfigurations.admissionregistration.k8s.io", "validatingwebhookconfigurations.admissionregistration.k8s.io",
	}
	granting = []string{
		"clusterrolebindings.rbac.authorization.k8s.io", "clusterroles.rbac.authorization.k8s.io", "deviceclasses.resource.k8s.io",
		"rolebindings.rbac.authorization.k8s.io", "roles.rbac.authorization.k8s.io", "volumeattributesclasses.storage.k8s.io",
	}
)

const (
	harmless = "{apiVersion: v1, kind: ConfigMap, metadata: {name: a, namespace: strict}}"
	claim    = "{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: a, namespace: strict}, spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}"
	secret   = "{apiVersion: v1, kind: Secret, metadata: {name: a, namespace: strict}}"
)

// pod is a pod in the namespace strict with a field.
func pod(field string) string {
	if !strings.HasPrefix(field, "containers") {
		field += ", containers: [{name: a, image: a}]"
	}
	return "{apiVersion: v1, kind: Pod, metadata: {name: a, namespace: strict}, spec: {" + field + "}}"
}

// A missing right of the reader does not make a check pass. If an unread object could have caused a rejection,
// check reports an error with the resource, unless the user has accepted that.
func TestWhatMayNotBeReadIsNoPass(t *testing.T) {
	address := clusterOfTests(t)
	apply(t, address.Admin, judgingObjects)
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	// Each reader may list all but the named resources.
	all := slices.Concat(registering, granting)
	readers := map[string][]string{"reader-": nil, "no-registrations": registering, "no-roles": granting}
	for _, r := range rights {
		all = append(all, r.resource)
		readers["reader-"+strings.ReplaceAll(r.resource, ".", "-")] = []string{r.resource}
	}
	var roles []map[string]any
	for name, without := range readers {
		var rules []map[string]any
		for _, one := range all {
			if !slices.Contains(without, one) {
				resource, group, _ := strings.Cut(one, ".")
				rules = append(rules, map[string]any{"apiGroups": []string{group}, "resources": []string{resource}, "verbs": []string{"list"}})
			}
		}
		roles = append(roles,
			map[string]any{"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": map[string]any{"name": name}, "rules": rules},
			map[string]any{"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": map[string]any{"name": name},
				"roleRef":  map[string]any{"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name},
				"subjects": []map[string]any{{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": name}}})
	}
	data, err := json.Marshal(map[string]any{"apiVersion": "v1", "kind": "List", "items": roles})
	if err != nil {
		t.Fatal(err)
	}
	apply(t, address.Admin, string(data))
	checked := func(user, manifest string, args ...string) (*check.Report, int) {
		t.Helper()
		kubeconfig := write(user, kubeconfigAs(t, address.Admin, user))
		out, problems, code := execution(t.Context(), manifest, append([]string{"check", "-", "-o", "json", "--from-cluster", kubeconfig}, args...)...)
		report := &check.Report{}
		if err := json.Unmarshal([]byte(out), report); err != nil {
			t.Fatalf("%s: %v: %s", user, err, problems)
		}
		return report, code
	}
	unseen := func(r *check.Report) []string {
		var list []string
		for _, f := range r.Findings {
			if resource, _, _ := strings.Cut(f.Message, ": "); f.Rule == "unseen" && f.Level == report.Error {
				list = append(list, resource)
			}
		}
		return list
	}
	var manifests []string
	for _, r := range rights {
		if !slices.Contains(manifests, r.manifest) {
			manifests = append(manifests, r.manifest)
		}
	}
	report, code := checked("reader-", strings.Join(manifests, "\n---\n"))
	if code != command.ExitError || len(report.Unseen) > 0 || report.Summary.Rejected != len(manifests) {
		t.Fatalf("with all rights: exit %d, %+v, unseen %v", code, report.Summary, report.Unseen)
	}
	for n, i := range speed.Pick(t, speed.Of(1, len(rights)), len(rights)) {
		r := rights[i]
		t.Run(r.resource, func(t *testing.T) {
			reader := "reader-" + strings.ReplaceAll(r.resource, ".", "-")
			report, code := checked(reader, r.manifest)
			if strings.HasPrefix(r.resource, "customresourcedefinitions.") {
				// The OpenAPI document, which every user may read, has the schema, too.
				if code != command.ExitError || len(unseen(report)) > 0 || report.Summary.Rejected != 1 {
					t.Errorf("without the right: exit %d, %+v, unseen %q", code, report.Summary, unseen(report))
				}
				return
			}
			if code != command.ExitError || !slices.Equal(unseen(report), []string{r.resource}) || report.Summary.Rejected > 0 {
				t.Errorf("without the right: exit %d, %+v, unseen %q, findings %+v", code, report.Summary, unseen(report), report.Findings)
			}
			if n > 0 {
				return
			}
			report, code = checked(reader, r.manifest, "--allow-unseen="+r.resource)
			if code != command.ExitOK || len(unseen(report)) > 0 || len(report.Unseen) != 1 || !report.Unseen[0].Allowed {
				t.Errorf("accepted: exit %d, %+v, unseen %q", code, report.Summary, unseen(report))
			}
		})
	}
	// Without any right, no object passes.
	report, code = checked("nobody", harmless)
	if code != command.ExitError || len(unseen(report)) == 0 {
		t.Errorf("exit %d, %+v", code, report.Summary)
	}
	for i, resource := range unseen(report) {
		if slices.Contains(unseen(report)[:i], resource) {
			t.Errorf("%s is there twice", resource)
		}
	}
	if _, code := checked("nobody", harmless, "--allow-unseen"); code != command.ExitOK {
		t.Errorf("everything accepted: exit %d", code)
	}
	report, code = checked("no-registrations", harmless)
	if code != command.ExitError || !slices.Equal(unseen(report), registering) {
		t.Errorf("without registrations: exit %d, unseen %q", code, unseen(report))
	}
	// An unread resource that cannot change a verdict is a note rather than an error. With --as, roles are
	// needed.
	report, code = checked("no-roles", harmless)
	if code != command.ExitOK || len(unseen(report)) > 0 || len(report.Unseen) != len(granting) {
		t.Errorf("without roles: exit %d, unseen %q, %v", code, unseen(report), report.Unseen)
	}
	report, code = checked("no-roles", harmless, "--as=somebody")
	if code != command.ExitError || !slices.Contains(unseen(report), "clusterroles.rbac.authorization.k8s.io") {
		t.Errorf("as a user without roles: exit %d, unseen %q", code, unseen(report))
	}
}
