package offline_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/rest"

	"github.com/gatehouse-dev/gatehouse/admission/plan"
	"github.com/gatehouse-dev/gatehouse/internal/commands/predict/builtins"
	"github.com/gatehouse-dev/gatehouse/internal/commands/predict/offline"
	"github.com/gatehouse-dev/gatehouse/internal/readers/view"
	"github.com/gatehouse-dev/gatehouse/internal/server/reporting/replicas/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/test/harness"
)

// stored is on the server, and in files.
const stored = `apiVersion: v1
kind: ServiceAccount
metadata: {name: default, namespace: shop}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: there, namespace: shop}
---
{apiVersion: events.k8s.io/v1, kind: Event, metadata: {name: seen, namespace: shop}, eventTime: "2026-01-01T00:00:00.000000Z", reportingController: example.com/a, reportingInstance: a, action: a, reason: A, type: Normal, regarding: {namespace: shop}}
---
apiVersion: v1
kind: Secret
metadata: {name: fixed, namespace: shop}
immutable: true
data: {a: eA==}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: shop}
spec: {replicas: 1, selector: {matchLabels: {app: a}}, template: {metadata: {labels: {app: a}}, spec: {containers: [{name: c, image: i}]}}}
---
apiVersion: v1
kind: Pod
metadata: {name: plain, namespace: shop}
spec: {containers: [{name: c, image: i}]}
`

// around is on the server only. ada may grant only rights that she has herself; blind may not even read those.
const around = `apiVersion: v1
kind: Namespace
metadata: {name: shop, labels: {pod-security.kubernetes.io/enforce: baseline}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: ada}
rules:
- {apiGroups: ["*"], resources: ["*"], verbs: [get, list]}
- {apiGroups: [rbac.authorization.k8s.io], resources: [roles, rolebindings], verbs: [create]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: ada}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: ada}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: ada}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: blind}
rules:
- {apiGroups: [rbac.authorization.k8s.io], resources: [roles], verbs: [create]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: blind}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: blind}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: blind}]
`

// meshed registers a webhook at a URL with a CA, which changes pods with a label.
const meshed = `apiVersion: admissionregistration.k8s.io/v1
kind: MutatingWebhookConfiguration
metadata: {name: mesh}
webhooks:
- name: mesh.example.com
  clientConfig: {url: %q, caBundle: %s}
  admissionReviewVersions: [v1]
  sideEffects: None
  objectSelector: {matchLabels: {mesh: "on"}}
  rules: [{apiGroups: [""], apiVersions: [v1], resources: [pods], operations: [CREATE]}]
`

const bindTo = "{apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: {name: a}, roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: %s}, subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: bob}]}"

func roleFor(verb string) string {
	return "{apiVersion: rbac.authorization.k8s.io/v1, kind: Role, metadata: {name: a}, rules: [{apiGroups: [''], resources: [secrets], verbs: [" + verb + "]}]}"
}

// S9.24: every rejection that does not come from a webhook is in the plan of the request, with the server's message,
// whether the plan is made by a Gatehouse server, or by the command from a cluster or from files.
func TestEveryCauseHasOneAnswer(t *testing.T) {
	s := harness.Start(t, "--controllers", "-*")
	hook := harness.NewWebhookServer(t, nil).Hook("/mesh", harness.Patch(`[{"op":"add","path":"/spec/hostNetwork","value":true}]`))
	mesh := fmt.Sprintf(meshed, hook.URL(), hook.CABundle())
	kubectl := s.Kubectl(t, "shop")
	kubectl.MustWith(around, "apply", "-f", "-")
	kubectl.MustWith(widgets, "apply", "-f", "-")
	kubectl.MustWith(mesh, "apply", "-f", "-")
	kubectl.Must("wait", "--for=condition=Established", "crd/widgets.example.com")
	all := stored + "---\n" + strings.Replace(widget("{size: 3}"), "name: a", "name: there, namespace: shop", 1) + "\n"
	kubectl.MustWith(all, "apply", "-f", "-")
	file := filepath.Join(t.TempDir(), "all.yaml")
	if err := os.WriteFile(file, []byte(all+"---\n"+widgets+"\n---\n"+mesh), 0o600); err != nil {
		t.Fatal(err)
	}
	files, err := builtins.Read([]string{file})
	if err != nil {
		t.Fatal(err)
	}
	world := withPlugins(t, t.Context(), s.Admin, builtins.Flags{})
	there := func(spec string) string { return strings.Replace(widget(spec), "name: a", "name: there", 1) }
	const web = "{apiVersion: apps/v1, kind: Deployment, metadata: {name: web}, spec: {replicas: 1, selector: {matchLabels: {app: %[1]s}}, template: {metadata: {labels: {app: %[1]s}}, spec: {containers: [{name: c, image: i}]}}}%[2]s}"
	for _, tc := range []struct {
		name, as, operation, object, subresource string
		// says is a part of the rejection, empty for none; by is its step, empty if files do not know it.
		says, by string
		inFiles  bool
	}{
		{"a service with port 0", "", "CREATE", "{apiVersion: v1, kind: Service, metadata: {name: a}, spec: {ports: [{port: 0}]}}", "", "spec.ports[0].port", plan.ValidationName, true},
		{"a service with an address outside of the range", "", "CREATE", "{apiVersion: v1, kind: Service, metadata: {name: a}, spec: {clusterIP: 172.31.9.9, ports: [{port: 80}]}}", "", "172.31.9.9) is not in the valid range", plan.ValidationName, false},
		{"an immutable secret that changes", "", "UPDATE", "{apiVersion: v1, kind: Secret, metadata: {name: fixed}, immutable: true, data: {a: eQ==}}", "", "immutable", plan.ValidationName, true},
		{"a custom resource against its schema", "", "CREATE", widget("{size: 0}"), "", "spec.size", plan.ValidationName, true},
		{"against a rule", "", "CREATE", widget("{size: 100}"), "", "large widgets are blue", plan.ValidationName, true},
		{"against a transition rule", "", "UPDATE", there("{size: 3, colour: blue}"), "", "the colour stays", plan.ValidationName, true},
		{"another selector of a Deployment", "", "UPDATE", fmt.Sprintf(web, "b", ""), "", "spec.selector", plan.ValidationName, true},
		{"a kind that nobody serves", "", "CREATE", "{apiVersion: example.com/v1, kind: Gadget, metadata: {name: a}}", "", "", plan.DiscoveryName, false},
		{"an object that is there", "", "CREATE", "{apiVersion: v1, kind: ConfigMap, metadata: {name: there}}", "", `configmaps "there" already exists`, plan.StorageName, false},
		{"a field with a typo", "", "CREATE", "{apiVersion: apps/v1, kind: Deployment, metadata: {name: a}, spec: {replica: 1}}", "", `unknown field "spec.replica"`, plan.DecodingName, true},
		{"of a custom resource", "", "CREATE", widget("{size: 3, color: red}"), "", `unknown field "spec.color"`, plan.DecodingName, true},
		{"a user without the right", "ada", "CREATE", "{apiVersion: v1, kind: ConfigMap, metadata: {name: a}}", "", `User "ada" cannot create resource "configmaps"`, plan.AuthorizationName, false},
		{"a user without the right to the status", "ada", "UPDATE", fmt.Sprintf(web, "a", ""), "status", `User "ada" cannot update resource "deployments/status"`, plan.AuthorizationName, false},
		{"an event in its other group", "", "UPDATE", "{apiVersion: events.k8s.io/v1, kind: Event, metadata: {name: seen}, eventTime: '2026-01-01T00:00:00.000000Z', reportingController: example.com/a, reportingInstance: a, action: a, reason: A, type: Normal, regarding: {namespace: shop}}", "", "", "", true},
		{"a status that is not valid", "", "UPDATE", fmt.Sprintf(web, "a", ", status: {replicas: -1}"), "status", "status.replicas", plan.ValidationName, true},
		{"of a pod", "", "UPDATE", "{apiVersion: v1, kind: Pod, metadata: {name: plain}, spec: {containers: [{name: c, image: i}]}, status: {nominatedNodeName: A_b}}", "status", "nominatedNodeName", plan.ValidationName, true},
		{"of a custom resource", "", "UPDATE", strings.TrimSuffix(there("{size: 3, colour: red}"), "}") + ", status: {ready: maybe}}", "status", "status.ready", plan.ValidationName, true},
		{"a status that is", "", "UPDATE", fmt.Sprintf(web, "a", ", status: {replicas: 1}"), "status", "", "", true},
		{"a status beside another spec, which stays", "", "UPDATE", fmt.Sprintf(web, "b", ", status: {replicas: 1}"), "status", "", "", true},
		{"a scale that is not valid", "", "UPDATE", "{apiVersion: autoscaling/v1, kind: Scale, metadata: {name: web}, spec: {replicas: -1}}", "scale", "spec.replicas", plan.ValidationName, true},
		{"a role with rights that its author has not", "ada", "CREATE", roleFor("delete"), "", "attempting to grant RBAC permissions not currently held", plan.ValidationName, false},
		{"with rights that its author has", "ada", "CREATE", roleFor("get"), "", "", "", false},
		{"a binding to such a role", "ada", "CREATE", fmt.Sprintf(bindTo, "cluster-admin"), "", "attempting to grant RBAC permissions not currently held", plan.ValidationName, false},
		{"to a role that is not there", "ada", "CREATE", fmt.Sprintf(bindTo, "none"), "", `"none" not found`, plan.ValidationName, false},
		{"a role of an administrator", "", "CREATE", roleFor("delete"), "", "", "", true},
		{"a plugin", "", "CREATE", "{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {hostNetwork: true, containers: [{name: c, image: i}]}}", "", "violates PodSecurity", "PodSecurity", false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			object := written(t, tc.object)
			config, as := s.Admin, user.Info(nil)
			if tc.as != "" {
				config, as = s.As(tc.as, user.AllAuthenticated), &user.DefaultInfo{Name: tc.as, Groups: []string{user.AllAuthenticated}}
			}
			request := func(w *offline.World) *offline.Request {
				kind := w.Kinds.Of(object.GroupVersionKind())
				if tc.subresource == "scale" {
					kind, _ = w.Kinds.Named("deployments")
				}
				return &offline.Request{Operation: tc.operation, Kind: kind, Subresource: tc.subresource, Namespace: "shop", Name: object.GetName(), Object: object.DeepCopy()}
			}
			if tc.operation == "UPDATE" && tc.subresource != "scale" {
				stored, err := world.Stored(t.Context(), request(world).Kind, "shop", object.GetName())
				if err != nil {
					t.Fatal(err)
				}
				object.SetResourceVersion(stored.GetResourceVersion())
			}
			q := request(world)
			answer := answerOf(t, config, q)
			if (tc.says == "" && tc.by == "") != (answer == "") || !strings.Contains(answer, tc.says) {
				t.Fatalf("the server answers %q, want %q", answer, tc.says)
			}
			agrees := func(who, rejection, by string) {
				t.Helper()
				if (rejection == "") != (answer == "") || by != tc.by || by != plan.DiscoveryName && !strings.HasPrefix(rejection, answer) {
					t.Errorf("%s says %q by %q, and the server %q", who, rejection, by, answer)
				}
			}
			if q.Access = offline.OwnAccess; as != nil {
				q.User, q.Access = as, offline.UserAccess
			}
			p, err := world.Plan(t.Context(), q)
			if err != nil {
				t.Fatal(err)
			}
			agrees("the plan of the cluster", p.Rejection, p.RejectedBy())
			if status := explainedBy(t, s.Admin, q); status.Plan != nil {
				agrees("the plan of the server", status.Plan.Rejection, status.Plan.RejectedBy())
			} else if tc.by == plan.DecodingName || tc.by == plan.DiscoveryName {
				agrees("the server, before admission,", status.Error.Message, tc.by)
			} else {
				t.Errorf("the server has no plan: %v", status.Error)
			}
			if !tc.inFiles {
				return
			}
			if p, err = files.Plan(t.Context(), request(files)); err != nil {
				t.Fatal(err)
			}
			agrees("the plan of files", p.Rejection, p.RejectedBy())
		})
	}
	// No plan knows the response of a webhook, and none may claim that only webhooks can reject such a request.
	t.Run("a plugin, of an object that a webhook changes", func(t *testing.T) {
		object := written(t, "{apiVersion: v1, kind: Pod, metadata: {name: meshed, labels: {mesh: 'on'}}, spec: {containers: [{name: c, image: i}]}}")
		q := &offline.Request{Operation: "CREATE", Kind: world.Kinds.Of(object.GroupVersionKind()), Namespace: "shop", Name: "meshed", Object: object, Access: offline.OwnAccess}
		if answer := answerOf(t, s.Admin, q); !strings.Contains(answer, "violates PodSecurity") {
			t.Fatalf("the server answers %q", answer)
		}
		plans := map[string]*plan.Plan{"the server": explainedBy(t, s.Admin, q).Plan}
		for who, w := range map[string]*offline.World{"the plan of the cluster": world, "the plan of files": files} {
			p, err := w.Plan(t.Context(), q)
			if err != nil {
				t.Fatal(err)
			}
			plans[who] = p
		}
		for who, p := range plans {
			if p == nil || p.Verdict() != plan.VerdictWebhooks || !p.UpToMutation() {
				t.Errorf("%s has another verdict: %+v", who, p)
				continue
			}
			var text strings.Builder
			if err := view.OfPlans([]view.Explained{{Plan: p}}, view.Links{}).Format(&text, "text"); err != nil {
				t.Fatal(err)
			}
			if want := "\nOnly webhooks, and checks of the object after a webhook changed it, can still reject the request.\n"; !strings.HasSuffix(text.String(), want) {
				t.Errorf("%s ends with another line than %q:\n%s", who, want, text.String())
			}
		}
	})
	// An object that cannot be planned is rejected with the cluster's message. A user without the right to make the
	// request gets that message first.
	for name, tc := range map[string]struct{ as, operation, object, says string }{
		"a definition without a schema":              {"", "CREATE", "{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: as.example.com}, spec: {group: example.com, scope: Namespaced, names: {kind: A, plural: as}, versions: [{name: v1, served: true, storage: true}]}}", "openAPIV3Schema: Required value"},
		"a definition of another scope":              {"", "UPDATE", "{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: widgets.example.com}, spec: {group: example.com, scope: Cluster, names: {kind: Widget, plural: widgets}, versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}]}}", "spec.scope"},
		"a number that is a text":                    {"", "CREATE", "{apiVersion: apps/v1, kind: Deployment, metadata: {name: a}, spec: {replicas: three}}", `Deployment in version "v1" cannot be handled as a Deployment: `},
		"an object that is gone":                     {"", "UPDATE", "{apiVersion: v1, kind: ConfigMap, metadata: {name: gone}}", `configmaps "gone" not found`},
		"of a user without the right":                {"ada", "UPDATE", "{apiVersion: v1, kind: ConfigMap, metadata: {name: gone}}", `configmaps "gone" is forbidden: User "ada" cannot update resource "configmaps"`},
		"a namespace of a user without the right":    {"ada", "UPDATE", "{apiVersion: v1, kind: Namespace, metadata: {name: shop}}", `in the namespace "shop"`},
		"an object that has changed in the meantime": {"", "UPDATE", "{apiVersion: v1, kind: ConfigMap, metadata: {name: there, resourceVersion: '1'}}", "the object has been modified"},
	} {
		t.Run(name, func(t *testing.T) {
			object := written(t, tc.object)
			q := &offline.Request{Operation: tc.operation, Kind: world.Kinds.Of(object.GroupVersionKind()), Name: object.GetName(), Object: object, Access: offline.OwnAccess}
			if q.Kind.Namespaced {
				q.Namespace = "shop"
			}
			config := s.Admin
			if tc.as != "" {
				config, q.User, q.Access = s.As(tc.as, user.AllAuthenticated), &user.DefaultInfo{Name: tc.as, Groups: []string{user.AllAuthenticated}}, offline.UserAccess
			}
			if stored, err := world.Stored(t.Context(), q.Kind, q.Namespace, q.Name); err == nil && tc.operation == "UPDATE" && object.GetResourceVersion() == "" {
				q.Object.SetResourceVersion(stored.GetResourceVersion())
			}
			answer := answerOf(t, config, q)
			if !strings.Contains(answer, tc.says) {
				t.Fatalf("the server answers %q, want %q", answer, tc.says)
			}
			said, err := "", error(nil)
			if p, unplanned := world.Plan(t.Context(), q); unplanned == nil {
				said = p.Rejection
			} else if status := world.Refusal(t.Context(), q, unplanned); status != nil {
				said = status.Message
			} else {
				err = unplanned
			}
			if said != answer {
				t.Errorf("the plan says %q (%v), and the server %q", said, err, answer)
			}
		})
	}
	t.Run("rights that cannot be read", func(t *testing.T) {
		q := &offline.Request{Operation: "CREATE", Object: written(t, roleFor("delete")), User: &user.DefaultInfo{Name: "blind"}, Access: offline.OwnAccess}
		p := planIn(t, withPlugins(t, t.Context(), s.As("blind", user.AllAuthenticated), builtins.Flags{}), q)
		if i := slices.IndexFunc(p.Steps, func(s plan.Step) bool { return s.Plugin == plan.ValidationName }); p.Rejection != "" || i < 0 || p.Steps[i].Reason.Message != "unknown: may not list clusterrolebindings" {
			t.Errorf("rejection %q, steps %+v", p.Rejection, p.Steps)
		}
	})
	t.Run("the user, whose rights are taken for granted", func(t *testing.T) {
		object := written(t, fmt.Sprintf(pod, "", ""))
		q := &offline.Request{Operation: "CREATE", Kind: world.Kinds.Of(object.GroupVersionKind()), Namespace: "shop", Name: "a", User: &user.DefaultInfo{Name: "ada"}, Object: object}
		if status := explainedBy(t, s.Admin, q); status.Plan == nil || status.Plan.Rejection != "" {
			t.Errorf("%+v", status)
		}
	})
}

// answerOf makes a request as a dry run with strict field validation, like kubectl, and returns the server's error
// message; empty if it accepts the request.
func answerOf(t *testing.T, config *rest.Config, q *offline.Request) string {
	t.Helper()
	client := harness.Dynamic(t, config).Resource(q.Kind.Resource).Namespace(q.Namespace)
	var subresource []string
	if q.Subresource != "" {
		subresource = append(subresource, q.Subresource)
	}
	dry, err := []string{metav1.DryRunAll}, error(nil)
	if object := q.Object.DeepCopy(); q.Operation == "CREATE" {
		_, err = client.Create(t.Context(), object, metav1.CreateOptions{DryRun: dry, FieldValidation: metav1.FieldValidationStrict}, subresource...)
	} else {
		_, err = client.Update(t.Context(), object, metav1.UpdateOptions{DryRun: dry, FieldValidation: metav1.FieldValidationStrict}, subresource...)
	}
	if err != nil {
		return err.Error()
	}
	return ""
}

// explainedBy returns the server's own explanation of a request.
func explainedBy(t *testing.T, config *rest.Config, q *offline.Request) v1alpha1.AdmissionExplanationStatus {
	t.Helper()
	asked := &v1alpha1.AdmissionExplanation{Spec: v1alpha1.AdmissionExplanationSpec{
		Operation: q.Operation, Resource: metav1.GroupVersionResource(q.Kind.Resource), Subresource: q.Subresource, Namespace: q.Namespace,
		AssumeRights: q.User != nil && q.Access == offline.NoAccess,
	}}
	if q.User != nil {
		asked.Spec.User, asked.Spec.Groups = q.User.GetName(), q.User.GetGroups()
	}
	if q.Operation != "CREATE" {
		asked.Spec.Name = q.Name
	}
	raw, err := json.Marshal(q.Object)
	if err != nil {
		t.Fatal(err)
	}
	asked.Spec.Object = &runtime.RawExtension{Raw: raw}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(asked)
	if err != nil {
		t.Fatal(err)
	}
	u := &unstructured.Unstructured{Object: content}
	u.SetGroupVersionKind(v1alpha1.SchemeGroupVersion.WithKind("AdmissionExplanation"))
	u, err = harness.Dynamic(t, config).Resource(v1alpha1.SchemeGroupVersion.WithResource("admissionexplanations")).Create(t.Context(), u, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	answer := &v1alpha1.AdmissionExplanation{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, answer); err != nil {
		t.Fatal(err)
	}
	return answer.Status
}
