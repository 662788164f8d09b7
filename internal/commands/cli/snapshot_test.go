package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/gatehouse-dev/gatehouse/internal/commands/cli/command"
	"github.com/gatehouse-dev/gatehouse/internal/commands/predict/offline"
	"github.com/gatehouse-dev/gatehouse/internal/server"
)

var errNotYet = errors.New("not yet")

// eventually calls do until it returns no error.
func eventually(t *testing.T, do func() error) {
	t.Helper()
	deadline := time.Now().Add(time.Minute)
	for {
		err := do()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// apply creates the objects of a text.
func apply(t *testing.T, config *rest.Config, text string) {
	t.Helper()
	objects, err := offline.Objects("objects", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	kinds := offline.Builtin()
	for _, u := range objects {
		k := kinds.Of(u.GroupVersionKind())
		if _, err := client.Resource(k.Resource).Namespace(u.GetNamespace()).Create(t.Context(), u, metav1.CreateOptions{}); err != nil {
			t.Fatalf("%s %s: %v", u.GetKind(), u.GetName(), err)
		}
	}
}

// kubeconfigAs returns a kubeconfig with which an administrator impersonates a user.
func kubeconfigAs(t *testing.T, admin *rest.Config, user string) string {
	t.Helper()
	data, err := clientcmd.Write(clientcmdapi.Config{
		Clusters: map[string]*clientcmdapi.Cluster{"c": {Server: admin.Host, CertificateAuthorityData: admin.CAData}},
		AuthInfos: map[string]*clientcmdapi.AuthInfo{"u": {
			ClientCertificateData: admin.CertData, ClientKeyData: admin.KeyData, Impersonate: user,
		}},
		Contexts:       map[string]*clientcmdapi.Context{"x": {Cluster: "c", AuthInfo: "u"}},
		CurrentContext: "x",
	})
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// clusterOfTests runs a server until the test ends, with controllers as in a cluster.
func clusterOfTests(t *testing.T) server.Address {
	t.Helper()
	s, err := server.New(server.Options{DataDir: t.TempDir(), UnsafeNoFsync: true, EndAtOnce: true, MinFreeDisk: -1})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ready, ended := make(chan server.Address, 1), make(chan error, 1)
	go func() { ended <- s.Run(ctx, func(a server.Address) { ready <- a }) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	select {
	case a := <-ready:
		return a
	case err := <-ended:
		ended <- nil
		t.Fatal(err)
		return server.Address{}
	}
}

// clusterObjects are the objects of the test cluster.
const clusterObjects = `
apiVersion: v1
kind: Namespace
metadata: {name: shop, labels: {team: red}}
---
apiVersion: v1
kind: Secret
metadata: {name: hidden, namespace: shop}
stringData: {password: hunter2}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: registry, namespace: shop}
data: {registry: registry.example.com/}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: other, namespace: shop}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: images}
spec:
  paramKind: {apiVersion: v1, kind: ConfigMap}
  matchConstraints:
    resourceRules:
    - {apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}
  validations:
  - expression: object.spec.containers.all(c, c.image.startsWith(params.data.registry))
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: images}
spec:
  policyName: images
  validationActions: [Deny]
  matchResources: {namespaceSelector: {matchLabels: {team: red}}}
  paramRef: {name: registry, parameterNotFoundAction: Deny}
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
kind: ServiceAccount
metadata: {name: clerk, namespace: shop}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: audit}
webhooks:
- name: maps.audit.example.com
  admissionReviewVersions: [v1]
  sideEffects: None
  failurePolicy: Ignore
  clientConfig: {url: "https://127.0.0.1:1/"}
  rules:
  - {apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [configmaps]}
---
apiVersion: v1
kind: ResourceQuota
metadata: {name: pods, namespace: shop}
spec: {hard: {pods: "3"}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: reader}
rules:
- apiGroups: ["*"]
  resources: [namespaces, customresourcedefinitions, validatingadmissionpolicies, validatingadmissionpolicybindings, validatingwebhookconfigurations, resourcequotas, configmaps]
  verbs: [list]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: reader}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: reader}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: reader}]
`

const shopObjects = `
apiVersion: v1
kind: Pod
metadata: {name: good, namespace: shop}
spec: {serviceAccountName: clerk, containers: [{name: a, image: registry.example.com/a}]}
---
apiVersion: v1
kind: Pod
metadata: {name: foreign, namespace: shop}
spec: {containers: [{name: a, image: docker.io/a}]}
---
apiVersion: v1
kind: Pod
metadata: {name: second, namespace: shop}
spec: {containers: [{name: a, image: registry.example.com/a}]}
---
apiVersion: v1
kind: Pod
metadata: {name: third, namespace: shop}
spec: {containers: [{name: a, image: registry.example.com/a}]}
---
apiVersion: shop.example.com/v1
kind: Order
metadata: {name: one, namespace: shop}
spec: {amount: many}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: map, namespace: shop}
`

// A snapshot has all objects that admission in a cluster depends on, and check decides by it like the cluster.
// It is the same for the same state, has no secrets, and lists unread resources.
func TestSnapshotsAreWhatTheClusterJudgesBy(t *testing.T) {
	address := clusterOfTests(t)
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	apply(t, address.Admin, clusterObjects)
	client, err := kubernetes.NewForConfig(address.Admin)
	if err != nil {
		t.Fatal(err)
	}
	// One existing pod counts against the quota.
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "before"}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "a", Image: "registry.example.com/a"}}}}
	eventually(t, func() error {
		_, err := client.CoreV1().Pods("shop").Create(t.Context(), pod, metav1.CreateOptions{})
		return err
	})
	eventually(t, func() error {
		q, err := client.CoreV1().ResourceQuotas("shop").Get(t.Context(), "pods", metav1.GetOptions{})
		if err == nil && q.Status.Used.Pods().Value() != 1 {
			err = errNotYet
		}
		return err
	})

	first, second := filepath.Join(dir, "first.yaml"), filepath.Join(dir, "second.yaml")
	var one string
	// The state changes until the controllers have created the default objects of a cluster.
	eventually(t, func() error {
		var texts []string
		for _, file := range []string{first, second} {
			out, problems, code := execution(t.Context(), "", "snapshot", "--kubeconfig", address.Kubeconfig, "-o", file)
			if code != command.ExitOK || out != "" || !strings.Contains(problems, "wrote "+file) {
				t.Fatalf("snapshot: exit %d, %q, %q", code, out, problems)
			}
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			texts = append(texts, string(text))
		}
		if one = texts[0]; one != texts[1] {
			return fmt.Errorf("two snapshots of the same state differ:\n%s", cmp.Diff(texts[0], texts[1]))
		}
		return nil
	})
	for _, word := range []string{"hunter2", "aHVudGVyMg", "\n  kind: Secret\n", "resourceVersion: ", "uid: ", "name: other\n"} {
		if strings.Contains(one, word) {
			t.Errorf("the snapshot has %q", word)
		}
	}

	shop := write("shop.yaml", shopObjects)
	want := shop + `:7:1: error: Pod shop/foreign: pods "foreign" is forbidden: ValidatingAdmissionPolicy 'images' with binding 'images' denied request: failed expression: object.spec.containers.all(c, c.image.startsWith(params.data.registry)) [denied/policy/images]
` + shop + `:17:1: error: Pod shop/third: pods "third" is forbidden: exceeded quota: pods, requested: pods=1, used: pods=3, limited: pods=3 [denied/ResourceQuota]
` + shop + `:25:8: error: Order shop/one: Invalid value: "string": spec.amount in body must be of type integer: "string" [invalid]

Not called (--call calls webhooks):
  - audit/maps.audit.example.com of ValidatingAdmissionWebhook, for 1 object, failure policy Ignore
6 objects in 1 file: 3 accepted, 3 rejected; 3 errors, 0 warnings; by Kubernetes v1.37.2
`
	for _, from := range []string{"--snapshot=" + first, "--from-cluster=" + address.Kubeconfig} {
		out, problems, code := execution(t.Context(), "", "check", shop, from)
		if code != command.ExitError || out != want {
			t.Errorf("check %s: exit %d %s\n got %s\nwant %s", from, code, problems, out, want)
		}
	}

	// A caller with fewer rights gets less, and commands that need the rest fail.
	config := rest.CopyConfig(address.Admin)
	kubeconfig := write("reader", kubeconfigAs(t, config, "reader"))
	_, problems, code := execution(t.Context(), "", "snapshot", "--kubeconfig", kubeconfig, "-o", filepath.Join(dir, "less.json"))
	if code != command.ExitOK || !strings.Contains(problems, "left out: serviceaccounts: serviceaccounts is forbidden: User \"reader\" cannot list") {
		t.Errorf("snapshot: exit %d, %s", code, problems)
	}
	out, _, _ := execution(t.Context(), "", "check", shop, "--snapshot", filepath.Join(dir, "less.json"))
	for _, line := range []string{
		"6 objects in 1 file: 3 accepted, 3 rejected;",
		"cluster: error: serviceaccounts: serviceaccounts is forbidden: ", "; ServiceAccount did not run: the verdict on 4 objects may be another one",
		"cluster: error: priorityclasses.scheduling.k8s.io: ", "; Priority did not run: the verdict on 4 objects may be another one",
		"  - clusterroles.rbac.authorization.k8s.io: ", "; the rights of users are not known\n",
	} {
		if !strings.Contains(out, line) {
			t.Errorf("%q is not in\n%s", line, out)
		}
	}
	// A kind that an ordinary cluster does not serve is unknown to the snapshot too.
	old := write("old.yaml", "apiVersion: example.com/v1\nkind: Odd\nmetadata: {name: a}\n")
	if out, _, _ := execution(t.Context(), "", "check", old, "--snapshot", first); !strings.Contains(out, `no matches for kind "Odd" in version "example.com/v1": the cluster of the snapshot does not serve it`) {
		t.Errorf("a kind that the cluster does not serve: %s", out)
	}
	// A kind is not checked if the cluster serves it without a CRD in the snapshot.
	aggregated := strings.Replace(one, "served:\n", "served:\n- apiVersion: example.com/v1\n  kinds: [Odd]\n", 1)
	out, _, code = execution(t.Context(), "", "check", old, "--snapshot", write("aggregated.yaml", aggregated))
	if code != command.ExitOK || !strings.Contains(out, "Odd a: the cluster serves this kind, and the snapshot does not have its definition") || !strings.Contains(out, "1 not checked") {
		t.Errorf("a kind without definition: exit %d: %s", code, out)
	}
}
