package offline_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/gatehouse-dev/gatehouse/admission/plan"
	"github.com/gatehouse-dev/gatehouse/internal/commands/predict/builtins"
	"github.com/gatehouse-dev/gatehouse/internal/commands/predict/offline"
	"github.com/gatehouse-dev/gatehouse/internal/kit/emulation"
	"github.com/gatehouse-dev/gatehouse/test/harness"
)

// widgets is a CRD with a schema, a default, a rule and a transition rule.
const widgets = `apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {plural: widgets, singular: widget, kind: Widget, listKind: WidgetList}
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {status: {}}
    schema:
      openAPIV3Schema:
        type: object
        required: [spec]
        properties:
          spec:
            type: object
            required: [size]
            properties:
              size: {type: integer, minimum: 1}
              colour: {type: string, default: red}
            x-kubernetes-validations:
            - {rule: "self.size < 100 || self.colour == 'blue'", message: large widgets are blue}
            - {rule: "self.colour == oldSelf.colour", message: the colour stays}
          status: {type: object, properties: {ready: {type: boolean}}}
`

func widget(spec string) string {
	return "{apiVersion: example.com/v1, kind: Widget, metadata: {name: a}, spec: " + spec + "}"
}

// S9.24: a custom resource is validated by its CRD: by the schema, whose defaults are applied, by rules and by
// transition rules.
func TestCustomResourcesAreValidated(t *testing.T) {
	for _, tc := range []struct{ name, object, old, says, by string }{
		{"valid", widget("{size: 3}"), "", "", ""},
		{"against the schema", widget("{size: 0}"), "", "spec.size", plan.ValidationName},
		{"without a required field", widget("{}"), "", "spec.size: Required value", plan.ValidationName},
		{"against a rule", widget("{size: 100}"), "", "large widgets are blue", plan.ValidationName},
		{"by a default", widget("{size: 200, colour: blue}"), "", "", ""},
		{"against a transition rule", widget("{size: 3, colour: blue}"), widget("{size: 3}"), "the colour stays", plan.ValidationName},
		{"a change that keeps it", widget("{size: 4, colour: red}"), widget("{size: 3}"), "", ""},
		{"a field with a typo", widget("{size: 3, color: red}"), "", `unknown field "spec.color"`, "Decoding"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			q := &offline.Request{Operation: "CREATE", Object: written(t, tc.object)}
			if tc.old != "" {
				q.Operation, q.Old = "UPDATE", written(t, tc.old)
			}
			p := plannedBy(t, q, widgets)
			if tc.says == "" && p.Rejection != "" || !strings.Contains(p.Rejection, tc.says) || p.RejectedBy() != tc.by {
				t.Errorf("rejection %q by %q, want %q by %q", p.Rejection, p.RejectedBy(), tc.says, tc.by)
			}
		})
	}
}

// plannedBy plans a request with a file.
func plannedBy(t *testing.T, q *offline.Request, text string) *plan.Plan {
	t.Helper()
	file := filepath.Join(t.TempDir(), "all.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	w, err := builtins.Read([]string{file})
	if err != nil {
		t.Fatal(err)
	}
	return planIn(t, w, q)
}

func planIn(t *testing.T, w *offline.World, q *offline.Request) *plan.Plan {
	t.Helper()
	return planOf(t, w, q, w.Kinds.Of(q.Object.GroupVersionKind()), "")
}

func planOf(t *testing.T, w *offline.World, q *offline.Request, kind *offline.Kind, subresource string) *plan.Plan {
	t.Helper()
	q.Kind, q.Subresource = kind, subresource
	if q.Kind.Namespaced {
		q.Namespace = "default"
	}
	q.Name = q.Object.GetName()
	p, err := w.Plan(t.Context(), q)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// S26.12: a field newer than the cluster's release is unknown to it, and a field with a typo is unknown to every
// release. Both are rejected before admission.
func TestFieldsThatTheReleaseHasNot(t *testing.T) {
	for _, tc := range []struct{ name, release, object, says string }{
		{"a typo", "", "{apiVersion: apps/v1, kind: Deployment, metadata: {name: a}, spec: {replica: 1}}", `Deployment in version "v1" cannot be handled as a Deployment: strict decoding error: unknown field "spec.replica"`},
		{"a later field", "v1.34.0", fmt.Sprintf(pod, ", evictionResponders: [{name: example.com/a}]", ""), `unknown field "spec.evictionResponders"`},
		{"a field of the release", "", fmt.Sprintf(pod, ", evictionResponders: [{name: example.com/a}]", ""), ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "all.yaml")
			if err := os.WriteFile(file, []byte(widgets), 0o600); err != nil {
				t.Fatal(err)
			}
			w, err := builtins.Read([]string{file})
			if err != nil {
				t.Fatal(err)
			}
			w.Fields = emulation.FieldsOf(tc.release)
			p := planIn(t, w, &offline.Request{Operation: "CREATE", Object: written(t, tc.object)})
			if (tc.says == "") != (p.Rejection == "") || !strings.Contains(p.Rejection, tc.says) {
				t.Errorf("rejection %q, want %q", p.Rejection, tc.says)
			}
		})
	}
}

// S9.24: rejections by the server itself are in the plan of a cluster: for a user without the right, an unserved kind,
// an existing object, an invalid custom resource. Facts that the caller may not read are unknown.
func TestWhatTheServerItselfRefuses(t *testing.T) {
	s := harness.Start(t, "--controllers", "-*")
	s.Kubectl(t, "default").MustWith(widgets+`---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: reader}
rules:
- {apiGroups: ["*"], resources: ["*"], verbs: [get, list]}
- {apiGroups: [""], resources: [configmaps], verbs: [patch]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: reader}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: reader}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: reader}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: developer, namespace: default}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: reader}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: developer}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: registrations}
rules:
- {apiGroups: [admissionregistration.k8s.io], resources: ["*"], verbs: [list]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: registrations}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: registrations}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: developer}]
---
apiVersion: v1
kind: ConfigMap
metadata: {name: there}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: default}
---
apiVersion: v1
kind: Pod
metadata: {name: bound}
spec: {nodeName: node-0, containers: [{name: c, image: i}]}
---
apiVersion: v1
kind: Pod
metadata: {name: gated}
spec: {schedulingGates: [{name: example.com/a}], containers: [{name: c, image: i}]}
---
apiVersion: v1
kind: Pod
metadata: {name: free}
spec: {containers: [{name: c, image: i}]}
`, "apply", "-f", "-")
	reader := s.As("reader", "system:authenticated")
	harness.Eventually(t, "the rights are there", func() error {
		_, err := harness.Client(t, reader).CoreV1().ConfigMaps("default").List(t.Context(), metav1.ListOptions{})
		return err
	})
	developer := s.As("developer", "system:authenticated")
	harness.Eventually(t, "the rights in the namespace are there", func() error {
		_, err := harness.Client(t, developer).CoreV1().ConfigMaps("default").List(t.Context(), metav1.ListOptions{})
		if err == nil {
			_, err = harness.Client(t, developer).AdmissionregistrationV1().ValidatingWebhookConfigurations().List(t.Context(), metav1.ListOptions{})
		}
		return err
	})
	schemaOnly := withPlugins(t, t.Context(), developer, builtins.Flags{})
	configMap := func(name string) string {
		return "{apiVersion: v1, kind: ConfigMap, metadata: {name: " + name + "}}"
	}
	admin, limited := withPlugins(t, t.Context(), s.Admin, builtins.Flags{}), withPlugins(t, t.Context(), reader, builtins.Flags{})
	ada := &user.DefaultInfo{Name: "ada"}
	for _, tc := range []struct {
		name      string
		world     *offline.World
		operation string
		object    string
		user      user.Info
		access    offline.Access
		says, by  string
		unknown   string
	}{
		{"an administrator", admin, "CREATE", configMap("new"), nil, offline.OwnAccess, "", "", ""},
		{"an object that is there", admin, "CREATE", configMap("there"), nil, offline.OwnAccess, `configmaps "there" already exists`, "Storage", ""},
		{"its change", admin, "UPDATE", configMap("there"), nil, offline.OwnAccess, "", "", ""},
		{"a kind that nobody serves", admin, "CREATE", "{apiVersion: example.com/v1, kind: Gadget, metadata: {name: a}}", nil, offline.OwnAccess, "the cluster serves no kind Gadget of example.com/v1", "Discovery", ""},
		{"a custom resource that is not valid", admin, "CREATE", widget("{size: 0}"), nil, offline.OwnAccess, "spec.size", plan.ValidationName, ""},
		{"a custom resource", admin, "CREATE", widget("{size: 1}"), nil, offline.OwnAccess, "", "", ""},
		{"a binding to nothing", admin, "CREATE", "{apiVersion: v1, kind: Binding, metadata: {name: a}}", nil, offline.OwnAccess, "target.name: Required value", plan.ValidationName, ""},
		{"a binding of a pod that is not there", admin, "CREATE", "{apiVersion: v1, kind: Binding, metadata: {name: a}, target: {name: node-1}}", nil, offline.OwnAccess, `pods "a" not found`, "Storage", ""},
		{"a binding of a pod that has a node", admin, "CREATE", "{apiVersion: v1, kind: Binding, metadata: {name: bound}, target: {name: node-1}}", nil, offline.OwnAccess, `pod bound is already assigned to node "node-0"`, "Storage", ""},
		{"a binding of a pod that waits", admin, "CREATE", "{apiVersion: v1, kind: Binding, metadata: {name: gated}, target: {name: node-1}}", nil, offline.OwnAccess, "pod gated has non-empty .spec.schedulingGates", "Storage", ""},
		{"a binding of a pod without a node", admin, "CREATE", "{apiVersion: v1, kind: Binding, metadata: {name: free}, target: {name: node-1}}", nil, offline.OwnAccess, "", "", ""},
		{"a token of some seconds", admin, "CREATE serviceaccounts/token", "{apiVersion: authentication.k8s.io/v1, kind: TokenRequest, metadata: {name: default}, spec: {audiences: [], expirationSeconds: 5}}", nil, offline.OwnAccess, "spec.expirationSeconds: Invalid value: 5: may not specify a duration less than 10 minutes", plan.ValidationName, ""},
		{"a token of an hour", admin, "CREATE serviceaccounts/token", "{apiVersion: authentication.k8s.io/v1, kind: TokenRequest, metadata: {name: default}, spec: {audiences: [], expirationSeconds: 3600}}", nil, offline.OwnAccess, "", "", ""},
		{"a token of an account that is not there", admin, "CREATE serviceaccounts/token", "{apiVersion: authentication.k8s.io/v1, kind: TokenRequest, metadata: {name: a}, spec: {audiences: [], expirationSeconds: 3600}}", nil, offline.OwnAccess, `serviceaccounts "a" not found`, "Storage", ""},
		{"an eviction of a pod that is not there", admin, "CREATE pods/eviction", "{apiVersion: policy/v1, kind: Eviction, metadata: {name: a}}", nil, offline.OwnAccess, `pods "a" not found`, "Storage", ""},
		{"an eviction", admin, "CREATE pods/eviction", "{apiVersion: policy/v1, kind: Eviction, metadata: {name: free}}", nil, offline.OwnAccess, "", "", ""},
		{"a custom resource against the schema, without the CRD", schemaOnly, "CREATE", widget("{size: 0}"), nil, offline.NoAccess, "spec.size", plan.ValidationName, ""},
		{"a custom resource against a rule, without the CRD", schemaOnly, "CREATE", widget("{size: 100}"), nil, offline.NoAccess, "large widgets are blue", plan.ValidationName, ""},
		{"a field with a typo, without the CRD", schemaOnly, "CREATE", widget("{size: 1, color: red}"), nil, offline.NoAccess, `unknown field "spec.color"`, "Decoding", ""},
		{"a custom resource without the CRD", schemaOnly, "CREATE", widget("{size: 1}"), nil, offline.NoAccess, "", "", ""},
		{"a caller without the right", limited, "CREATE", configMap("new"), &user.DefaultInfo{Name: "reader"}, offline.OwnAccess, `configmaps is forbidden: User "reader" cannot create resource "configmaps" in API group "" in the namespace "default"`, "Authorization", ""},
		{"a caller who may patch", limited, "UPDATE", configMap("there"), &user.DefaultInfo{Name: "reader"}, offline.OwnAccess, "", "", ""},
		{"another user without the right", admin, "CREATE", configMap("new"), ada, offline.UserAccess, `User "ada" cannot create resource "configmaps"`, "Authorization", ""},
		{"the other user, whose rights are not asked for", admin, "CREATE", configMap("new"), ada, offline.NoAccess, "", "", ""},
		{"another user, of whom the caller may not ask", limited, "CREATE", configMap("new"), ada, offline.UserAccess, "", "", "the rights of the user are unknown"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			operation, resource, _ := strings.Cut(tc.operation, " ")
			q := &offline.Request{Operation: operation, Object: written(t, tc.object), User: tc.user, Access: tc.access}
			var p *plan.Plan
			if of, sub, ok := strings.Cut(resource, "/"); ok {
				p = planOf(t, tc.world, q, tc.world.Kinds.At(corev1.SchemeGroupVersion.WithResource(of)), sub)
			} else {
				p = planIn(t, tc.world, q)
			}
			if (tc.says == "") != (p.Rejection == "") || !strings.Contains(p.Rejection, tc.says) || p.RejectedBy() != tc.by {
				t.Errorf("rejection %q by %q, want %q by %q", p.Rejection, p.RejectedBy(), tc.says, tc.by)
			}
			hidden, planned := "", 0
			for step := range p.Each() {
				if step.Effect == plan.Run {
					planned++
				}
				if step.Effect == plan.Undecided {
					hidden += step.Reason.Message
				}
			}
			if (tc.unknown == "") != (hidden == "") || !strings.Contains(hidden, tc.unknown) {
				t.Errorf("unknown is %q, want %q", hidden, tc.unknown)
			}
			// A user without the right to make a request still sees the admission of the request.
			if tc.by == plan.AuthorizationName && planned == 0 {
				t.Errorf("nothing behind the rejection is planned: %v", p.Steps)
			}
		})
	}
}
