package offline_test

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/gatehouse-dev/gatehouse/admission"
	"github.com/gatehouse-dev/gatehouse/admission/plan"
	"github.com/gatehouse-dev/gatehouse/internal/commands/predict/builtins"
	"github.com/gatehouse-dev/gatehouse/internal/commands/predict/dependents"
	"github.com/gatehouse-dev/gatehouse/internal/commands/predict/offline"
	"github.com/gatehouse-dev/gatehouse/test/harness"
)

// judged are objects of a cluster that built-in plugins use to evaluate pods.
const judged = `
apiVersion: v1
kind: Namespace
metadata: {name: shop, labels: {pod-security.kubernetes.io/enforce: baseline}}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: default, namespace: shop}
---
apiVersion: v1
kind: LimitRange
metadata: {name: limits, namespace: shop}
spec: {limits: [{type: Container, default: {cpu: 100m}, max: {cpu: "1"}}]}
---
apiVersion: v1
kind: ResourceQuota
metadata: {name: quota, namespace: shop}
spec: {hard: {limits.cpu: 500m, requests.memory: 1Gi}}
---
apiVersion: scheduling.k8s.io/v1
kind: PriorityClass
metadata: {name: high}
value: 7
---
apiVersion: node.k8s.io/v1
kind: RuntimeClass
metadata: {name: sandbox}
handler: sandbox
`

// pods are evaluated against the objects in judged. rejected is a part of the rejection, empty for none.
var pods = []struct{ spec, rejected string }{
	{`{containers: [{name: c, image: i, resources: {requests: {memory: 1Mi}}}]}`, ""},
	{`{hostNetwork: true, containers: [{name: c, image: i, resources: {requests: {memory: 1Mi}}}]}`, "violates PodSecurity"},
	{`{containers: [{name: c, image: i}]}`, "failed quota: quota: must specify requests.memory"},
	{`{containers: [{name: c, image: i, resources: {limits: {cpu: 900m}, requests: {memory: 1Mi}}}]}`, "exceeded quota: quota"},
	{`{containers: [{name: c, image: i, resources: {limits: {cpu: 2}, requests: {memory: 1Mi}}}]}`, "maximum cpu usage per Container"},
	{`{containers: [{name: c, image: i, resources: {requests: {cpu: 200m, memory: 1Mi}}}]}`, "must be less than or equal to cpu limit of 100m"},
	{`{priorityClassName: none, containers: [{name: c, image: i, resources: {requests: {memory: 1Mi}}}]}`, "no PriorityClass with name none"},
	{`{priorityClassName: high, runtimeClassName: sandbox, containers: [{name: c, image: i, resources: {requests: {memory: 1Mi}}}]}`, ""},
	{`{runtimeClassName: none, containers: [{name: c, image: i, resources: {requests: {memory: 1Mi}}}]}`, `RuntimeClass "none" not found`},
	{`{serviceAccountName: none, containers: [{name: c, image: i, resources: {requests: {memory: 1Mi}}}]}`, "error looking up service account shop/none"},
}

func podOf(t *testing.T, spec string) *unstructured.Unstructured {
	t.Helper()
	found, err := offline.Objects("pod", []byte("apiVersion: v1\nkind: Pod\nmetadata: {generateName: p-, namespace: shop}\nspec: "+spec))
	if err != nil {
		t.Fatal(err)
	}
	return found[0]
}

// withPlugins returns a World of a cluster, with its built-in plugins.
func withPlugins(t *testing.T, ctx context.Context, config *rest.Config, flags builtins.Flags) *offline.World {
	t.Helper()
	kinds, err := offline.Discover(config)
	if err != nil {
		t.Fatal(err)
	}
	world, err := offline.Connect(ctx, config, kinds)
	if err != nil {
		t.Fatal(err)
	}
	if err := builtins.Enable(ctx, world, config, flags); err != nil {
		t.Fatal(err)
	}
	return world
}

// A plan from a cluster contains the cluster's rejections with their messages, if they come from built-in plugins or
// from the validation of the objects that plugins changed.
func TestCompiledInPluginsOfAClusterJudge(t *testing.T) {
	s := harness.Start(t, "--enable-admission-plugins", "ServiceAccount", "--controllers", "resourcequota")
	s.Kubectl(t, "shop").MustWith(judged, "apply", "-f", "-")
	harness.Eventually(t, "the quota is enforced", func() error {
		quota, err := harness.Client(t, s.Admin).CoreV1().ResourceQuotas("shop").Get(t.Context(), "quota", metav1.GetOptions{})
		if err == nil && len(quota.Status.Hard) == 0 {
			err = fmt.Errorf("no status")
		}
		return err
	})
	world := withPlugins(t, t.Context(), s.Admin, builtins.Flags{})
	for _, c := range pods {
		pod := podOf(t, c.spec)
		_, err := harness.Dynamic(t, s.Admin).Resource(world.Kinds.Of(pod.GroupVersionKind()).Resource).Namespace("shop").
			Create(t.Context(), pod.DeepCopy(), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		want := ""
		if err != nil {
			want = err.Error()
		}
		p, err := world.Plan(t.Context(), &offline.Request{Operation: "CREATE", Kind: world.Kinds.Of(pod.GroupVersionKind()), Namespace: "shop", Object: pod, User: offline.Caller(t.Context(), s.Admin)})
		if err != nil {
			t.Fatal(err)
		}
		if (want == "") != (c.rejected == "") || !strings.Contains(want, c.rejected) {
			t.Errorf("%s: the server answers %q, want %q", c.spec, want, c.rejected)
		}
		if got := p.Rejection; (got == "") != (want == "") || !strings.Contains(got, c.rejected) {
			t.Errorf("%s: the plan has %q, the server %q", c.spec, got, want)
		}
		if verdict := p.Verdict(); (verdict == plan.VerdictRejected) != (want != "") || want == "" && verdict != plan.VerdictAccepted {
			t.Errorf("%s: verdict %s, and the server answers %q", c.spec, verdict, want)
		}
	}

	off := withPlugins(t, t.Context(), s.Admin, builtins.Flags{Selection: admission.Selection{Disable: []string{"PodSecurity"}, Enable: []string{"AlwaysPullImages"}}})
	pod := podOf(t, pods[1].spec)
	p, err := off.Plan(t.Context(), &offline.Request{Operation: "CREATE", Kind: off.Kinds.Of(pod.GroupVersionKind()), Namespace: "shop", Object: pod})
	if err != nil || p.Rejection != "" {
		t.Errorf("without PodSecurity: %v, %+v", err, p)
	}
	if !strings.Contains(fmt.Sprint(p.Steps), "AlwaysPullImages") {
		t.Errorf("AlwaysPullImages does not run: %+v", p.Steps)
	}
}

// With all rights of Rules, a user sees everything. Each missing right is reported, and the effects that it hides are
// unknown.
func TestEachMissingRightIsNamed(t *testing.T) {
	s := harness.Start(t, "--enable-admission-plugins", "ServiceAccount", "--controllers", "-*")
	s.Kubectl(t, "shop").MustWith(judged, "apply", "-f", "-")
	needed := map[string]string{
		"namespaces": "may not get namespace shop", "limitranges": "may not list limitranges in namespace shop",
		"serviceaccounts": "may not list serviceaccounts in namespace shop", "resourcequotas": "may not list resourcequotas in namespace shop",
		"priorityclasses": "may not list priorityclasses.scheduling.k8s.io", "runtimeclasses": "may not list runtimeclasses.node.k8s.io",
		"mutatingadmissionpolicies": "may not list mutatingadmissionpolicies", "validatingwebhookconfigurations": "may not list validatingwebhookconfigurations",
	}
	// LimitRanger rejects the pod in any case.
	pod := podOf(t, `{runtimeClassName: sandbox, containers: [{name: c, image: i, resources: {limits: {cpu: 100m}}}]}`)
	for resource, want := range needed {
		t.Run("without "+resource, func(t *testing.T) { t.Parallel(); missingRight(t, s, resource, want, pod) })
	}
	t.Run("with all", func(t *testing.T) { t.Parallel(); missingRight(t, s, "none", "", pod) })
}

func missingRight(t *testing.T, s *harness.Server, resource, want string, pod *unstructured.Unstructured) {
	name := "without-" + resource
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}}
	for _, rule := range builtins.Rules() {
		rule = *rule.DeepCopy()
		var kept []string
		for _, r := range rule.Resources {
			if r != resource {
				kept = append(kept, r)
			}
		}
		if rule.Resources = kept; len(kept) > 0 {
			role.Rules = append(role.Rules, rule)
		}
	}
	client := harness.Client(t, s.Admin)
	if _, err := client.RbacV1().ClusterRoles().Create(t.Context(), role, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: name}},
	}
	if _, err := client.RbacV1().ClusterRoleBindings().Create(t.Context(), binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	config := s.As(name, "system:authenticated")
	harness.Eventually(t, "the rights are there", func() error {
		// RBAC rules take effect a moment after they are written.
		_, err := harness.Client(t, config).StorageV1().StorageClasses().List(t.Context(), metav1.ListOptions{})
		return err
	})
	world := withPlugins(t, t.Context(), config, builtins.Flags{})
	p, err := world.Plan(t.Context(), &offline.Request{Operation: "CREATE", Kind: world.Kinds.Of(pod.GroupVersionKind()), Namespace: "shop", Object: pod})
	if err != nil {
		t.Fatal(err)
	}
	var unknown []string
	for step := range p.Each() {
		if step.Effect == plan.Undecided {
			unknown = append(unknown, step.Plugin+": "+step.Reason.Message)
		}
	}
	if want == "" {
		if unknown != nil || p.Verdict() != plan.VerdictAccepted {
			t.Errorf("%s: %v", p.Verdict(), unknown)
		}
		return
	}
	if p.Verdict() != plan.VerdictUnknown && p.Verdict() != plan.VerdictLikely || !strings.Contains(fmt.Sprint(unknown), "unknown: "+want) {
		t.Errorf("%s: %q; want %q", p.Verdict(), unknown, want)
	}
}

// Hidden objects could prevent a rejection: a quota requires a limit, and a hidden LimitRange sets one.
func TestWhatIsNotSeenMayChangeTheObject(t *testing.T) {
	s := harness.Start(t, "--controllers", "resourcequota")
	s.Kubectl(t, "shop").MustWith(judged, "apply", "-f", "-")
	client := harness.Client(t, s.Admin)
	harness.Eventually(t, "the quota is enforced", func() error {
		quota, err := client.CoreV1().ResourceQuotas("shop").Get(t.Context(), "quota", metav1.GetOptions{})
		if err == nil && len(quota.Status.Hard) == 0 {
			err = fmt.Errorf("no status")
		}
		return err
	})
	missing := podOf(t, `{containers: [{name: c, image: i, resources: {requests: {memory: 1Mi}}}]}`)
	missingRight(t, s, "limitranges", "may not list limitranges in namespace shop", missing)
	missingRight(t, s, "mutatingwebhookconfigurations", "may not list mutatingwebhookconfigurations", podOf(t, pods[1].spec))
}

const workloads = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: deploy, namespace: shop, annotations: {note: "1"}}
spec:
  replicas: 2
  selector: {matchLabels: {app: deploy}}
  template: {metadata: {labels: {app: deploy}, annotations: {a: b}}, spec: {containers: [{name: c, image: i}]}}
---
apiVersion: apps/v1
kind: ReplicaSet
metadata: {name: set, namespace: shop}
spec:
  selector: {matchLabels: {app: set}}
  template: {metadata: {labels: {app: set}}, spec: {containers: [{name: c, image: i}]}}
---
apiVersion: v1
kind: ReplicationController
metadata: {name: rc, namespace: shop}
spec:
  selector: {app: rc}
  template: {metadata: {labels: {app: rc}}, spec: {containers: [{name: c, image: i}]}}
---
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: stateful, namespace: shop}
spec:
  serviceName: web
  ordinals: {start: 3}
  selector: {matchLabels: {app: stateful}}
  template: {metadata: {labels: {app: stateful}}, spec: {containers: [{name: c, image: i, volumeMounts: [{name: data, mountPath: /d}]}]}}
  volumeClaimTemplates: [{metadata: {name: data, labels: {l: m}}, spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}]
---
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: daemon, namespace: shop}
spec:
  selector: {matchLabels: {app: daemon}}
  template: {metadata: {labels: {app: daemon}}, spec: {containers: [{name: c, image: i}]}}
---
apiVersion: batch/v1
kind: Job
metadata: {name: job, namespace: shop}
spec:
  template: {metadata: {labels: {app: job}}, spec: {restartPolicy: Never, containers: [{name: c, image: i}]}}
---
apiVersion: batch/v1
kind: Job
metadata: {name: indexed, namespace: shop}
spec:
  completionMode: Indexed
  completions: 1
  template: {metadata: {labels: {app: indexed}}, spec: {restartPolicy: Never, containers: [{name: c, image: i}]}}
`

// The predicted dependents of a workload equal the objects that upstream's controllers create for it.
func TestDependentsAreThoseOfTheControllers(t *testing.T) {
	s := harness.Start(t, "--fake-nodes", "1", "--controllers", "deployment,replicaset,replicationcontroller,statefulset,daemonset,job,serviceaccount")
	k := s.Kubectl(t, "shop")
	k.Must("create", "namespace", "shop")
	k.MustWith(workloads, "apply", "-f", "-")
	kinds, err := offline.Discover(s.Admin)
	if err != nil {
		t.Fatal(err)
	}
	client := harness.Dynamic(t, s.Admin)
	found, err := offline.Objects("workloads", []byte(workloads))
	if err != nil {
		t.Fatal(err)
	}
	for _, sent := range found {
		objects, err := dependents.Of(sent)
		if err != nil {
			t.Fatal(err)
		}
		stored, err := client.Resource(kinds.Of(sent.GroupVersionKind()).Resource).Namespace("shop").Get(t.Context(), sent.GetName(), metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		again, err := dependents.Of(stored)
		if err != nil || len(again) != len(objects) {
			t.Fatalf("%s: %d and %d dependents: %v", sent.GetKind(), len(objects), len(again), err)
		}
		for i := range objects {
			d := &objects[i]
			plain, err := d.Unstructured()
			if err != nil {
				t.Fatal(err)
			}
			about := fmt.Sprintf("%s %s: %s", sent.GetKind(), sent.GetName(), plain.GetKind())
			resource := client.Resource(kinds.Of(plain.GroupVersionKind()).Resource).Namespace("shop")
			want := made(t, resource, plain)
			config := s.As(d.By.GetName(), d.By.GetGroups()...)
			by, err := dynamic.NewForConfig(config)
			if err != nil {
				t.Fatal(err)
			}
			object := plain.DeepCopy()
			if object.GetName() != "" {
				object.SetName(object.GetName() + "-x")
			}
			got, err := by.Resource(kinds.Of(plain.GroupVersionKind()).Resource).Namespace("shop").
				Create(t.Context(), object, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
			if err != nil && !apierrors.IsForbidden(err) {
				t.Fatalf("%s: %v", about, err)
			}
			if err != nil {
				t.Fatalf("%s: the controller may not make it: %v", about, err)
			}
			if diff := cmp.Diff(comparable(t, want), comparable(t, got)); diff != "" {
				t.Errorf("%s (-controller +said before):\n%s", about, diff)
			}
		}
	}
}

// made waits for an object that a controller creates like another one.
func made(t *testing.T, resource dynamic.ResourceInterface, like *unstructured.Unstructured) *unstructured.Unstructured {
	t.Helper()
	var found *unstructured.Unstructured
	harness.Eventually(t, "the controller makes "+like.GetKind()+" "+like.GetName()+like.GetGenerateName(), func() error {
		list, err := resource.List(t.Context(), metav1.ListOptions{})
		if err != nil {
			return err
		}
		for i := range list.Items {
			u := &list.Items[i]
			if like.GetName() != "" && u.GetName() == like.GetName() || like.GetName() == "" && u.GetGenerateName() == like.GetGenerateName() {
				found = u
				return nil
			}
		}
		return fmt.Errorf("%d others are there", len(list.Items))
	})
	return found
}

// comparable strips an object of the fields that only stored objects have, and of names and UIDs.
func comparable(t *testing.T, u *unstructured.Unstructured) map[string]any {
	t.Helper()
	u = u.DeepCopy()
	for _, field := range []string{"uid", "resourceVersion", "creationTimestamp", "generation", "managedFields", "name", "deletionTimestamp", "deletionGracePeriodSeconds"} {
		unstructured.RemoveNestedField(u.Object, "metadata", field)
	}
	delete(u.Object, "status")
	if labels := u.GetLabels(); labels["statefulset.kubernetes.io/pod-name"] != "" {
		// The revision of a StatefulSet is a hash of the stored object.
		delete(labels, "controller-revision-hash")
		u.SetLabels(labels)
	}
	// The binding of a pod or a claim, and the token of its account.
	for _, field := range []string{"nodeName", "volumeName"} {
		unstructured.RemoveNestedField(u.Object, "spec", field)
	}
	data, err := json.Marshal(u.Object)
	if err != nil {
		t.Fatal(err)
	}
	text := string(data)
	for _, o := range u.GetOwnerReferences() {
		text = strings.ReplaceAll(text, string(o.UID), "UID")
	}
	text = strings.NewReplacer("stateful-3-x", "stateful-3", "fake-node-0", "node").Replace(text)
	text = regexp.MustCompile(`kube-api-access-[a-z0-9]{5}`).ReplaceAllString(text, "kube-api-access")
	content := map[string]any{}
	if err := json.Unmarshal([]byte(text), &content); err != nil {
		t.Fatal(err)
	}
	return content
}
