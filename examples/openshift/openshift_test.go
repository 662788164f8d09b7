package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	yamlstream "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/tools/metrics"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/yaml"

	"github.com/gatehouse-dev/gatehouse/gatehousetest"
	"github.com/gatehouse-dev/gatehouse/initializer"
)

// write is a request and its expected result.
type write struct {
	name string
	// as is the user; empty means dev.
	as string
	// update means that the request is a patch with the fields of object. old is stored before, if it is not
	// empty, and sub is the subresource.
	update   bool
	old, sub string
	object   string
	// want has fields of the result; null means that the field is absent.
	want string
	// denied is the end of the rejection message.
	denied string
}

// TestExamples applies all files of the folder to one server. For each plugin it tests changed, rejected and
// unchanged requests. Writes are dry runs.
func TestExamples(t *testing.T) {
	c := start(t)
	for _, example := range examples {
		t.Run(example.plugin, func(t *testing.T) {
			c.make(t, example.setup)
			for _, w := range example.writes {
				t.Run(w.name, func(t *testing.T) { c.check(t, w) })
			}
		})
	}
	t.Run("JenkinsBootstrapper", func(t *testing.T) { testJenkins(t, c) })
	t.Run("ClusterResourceQuota", func(t *testing.T) { testClusterQuota(t, c) })
	t.Run("ClusterResourceQuota, many at once", func(t *testing.T) { testClusterQuotaAtOnce(t, c) })
}

func testJenkins(t *testing.T, c *cluster) {
	c.make(t, `
apiVersion: v1
kind: Namespace
metadata: {name: jenkins}
---
apiVersion: v1
kind: Namespace
metadata: {name: no-jenkins}
---
apiVersion: build.openshift.io/v1
kind: Build
metadata: {name: pipeline, namespace: jenkins}
spec: {strategy: {jenkinsPipelineStrategy: {}}}
---
apiVersion: build.openshift.io/v1
kind: BuildConfig
metadata: {name: pipeline, namespace: jenkins}
spec: {strategy: {jenkinsPipelineStrategy: {}}}
---
apiVersion: build.openshift.io/v1
kind: Build
metadata: {name: source, namespace: no-jenkins}
spec: {strategy: {sourceStrategy: {}}}
`)
	for namespace, want := range map[string]int{"jenkins": 1, "no-jenkins": 0} {
		deployments, err := c.typed.AppsV1().Deployments(namespace).List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		services, err := c.typed.CoreV1().Services(namespace).List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if len(deployments.Items) != want || len(services.Items) != want {
			t.Errorf("%s has %d deployments and %d services, want %d of each", namespace, len(deployments.Items), len(services.Items), want)
		}
	}
	// An existing Jenkins is left unchanged: the namespace has the service.
	c.make(t, `
apiVersion: v1
kind: Namespace
metadata: {name: own-jenkins}
---
apiVersion: v1
kind: Service
metadata: {name: jenkins, namespace: own-jenkins}
spec: {ports: [{port: 80}]}
---
apiVersion: build.openshift.io/v1
kind: Build
metadata: {name: pipeline, namespace: own-jenkins}
spec: {strategy: {jenkinsPipelineStrategy: {}}}
`)
	if _, err := c.typed.AppsV1().Deployments("own-jenkins").Get(t.Context(), "jenkins", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("a second Jenkins was started: %v", err)
	}
}

func testClusterQuota(t *testing.T, c *cluster) {
	c.make(t, `
apiVersion: v1
kind: Namespace
metadata: {name: red-1, labels: {team: red}}
---
apiVersion: v1
kind: Namespace
metadata: {name: red-2, labels: {team: red}}
---
apiVersion: v1
kind: Namespace
metadata: {name: green}
---
apiVersion: quota.openshift.io/v1
kind: ClusterResourceQuota
metadata: {name: red}
spec:
  selector: {labels: {matchLabels: {team: red}}}
  quota: {hard: {pods: "3", requests.cpu: "1"}}
`)
	pod := func(namespace, name, cpu string) string {
		return fmt.Sprintf(`{apiVersion: v1, kind: Pod, metadata: {name: %s, namespace: %s}, spec: {containers: [{name: c, image: registry.example.com/app, resources: {requests: {cpu: %s}}}]}}`, name, namespace, cpu)
	}
	c.make(t, pod("red-1", "one", "600m"))
	const exceeds = `initializer "cluster-quota.openshift.example.com" rejected the object: pod "two" exceeds the cluster quota red: requests.cpu: 600m of 1 is used, the pod needs 401m`
	if _, err := c.create(t.Context(), "admin", object(t, pod("red-2", "two", "401m")), nil); err == nil || err.Error() != exceeds {
		t.Errorf("got %v, want %s", err, exceeds)
	}
	c.make(t, pod("red-2", "two", "400m"))
	c.make(t, pod("green", "three", "2"))
	total := func() string {
		quota, err := c.as["admin"].Resource(clusterQuotas).Get(t.Context(), "red", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		used, _, _ := unstructured.NestedStringMap(quota.Object, "status", "total", "used")
		return fmt.Sprint(used)
	}
	if got, want := total(), "map[pods:2 requests.cpu:1]"; got != want {
		t.Errorf("status.total.used is %s, want %s", got, want)
	}
	// Deleted pods do not count.
	if err := c.typed.CoreV1().Pods("red-1").Delete(t.Context(), "one", metav1.DeleteOptions{GracePeriodSeconds: new(int64)}); err != nil {
		t.Fatal(err)
	}
	reporting := rest.CopyConfig(c.config)
	reporting.Wrap(initializer.IncludeUninitialized)
	if err := reportOnce(t.Context(), dynamic.NewForConfigOrDie(reporting)); err != nil {
		t.Fatal(err)
	}
	if got, want := total(), "map[pods:1 requests.cpu:400m]"; got != want {
		t.Errorf("status.total.used is %s after a deletion, want %s", got, want)
	}
	c.make(t, pod("red-2", "three", "600m"))
}

// Of many pods that are created at the same time, exactly as many as fit exist in the end.
func testClusterQuotaAtOnce(t *testing.T, c *cluster) {
	const all, fit = 40, 4
	c.make(t, fmt.Sprintf(`
apiVersion: v1
kind: Namespace
metadata: {name: blue-0, annotations: {team: blue}}
---
apiVersion: v1
kind: Namespace
metadata: {name: blue-1, annotations: {team: blue}}
---
apiVersion: quota.openshift.io/v1
kind: ClusterResourceQuota
metadata: {name: blue}
spec:
  selector: {annotations: {team: blue}}
  quota: {hard: {pods: "%d"}}
`, fit))
	var creators sync.WaitGroup
	errs := make([]error, all)
	for i := range all {
		pod := object(t, fmt.Sprintf(`{apiVersion: v1, kind: Pod, metadata: {name: p-%d, namespace: blue-%d}, spec: {containers: [{name: c, image: registry.example.com/app}]}}`, i, i%2))
		creators.Go(func() { _, errs[i] = c.create(t.Context(), "admin", pod, nil) })
	}
	creators.Wait()
	created := 0
	for _, err := range errs {
		switch {
		case err == nil:
			created++
		case !strings.Contains(err.Error(), "exceeds the cluster quota blue"):
			t.Error(err)
		}
	}
	// The default limit of a client, five requests a second, would delay the pods.
	if waited := c.limited.total(); waited > 0 {
		t.Errorf("clients of the initializers waited %s for their own limits", waited)
	}
	if created != fit {
		t.Errorf("%d pods were created, want %d", created, fit)
	}
}

// cluster is the server with the examples.
type cluster struct {
	config *rest.Config
	typed  kubernetes.Interface
	as     map[string]dynamic.Interface
	mapper meta.RESTMapper
	// limited is the time that clients waited for their rate limit.
	limited *waits
}

// waits sums the time that clients wait for their rate limits. It is a metric of client-go.
type waits struct{ nanoseconds atomic.Int64 }

func (w *waits) Observe(_ context.Context, _ string, _ url.URL, latency time.Duration) {
	w.nanoseconds.Add(int64(latency))
}

func (w *waits) total() time.Duration { return time.Duration(w.nanoseconds.Load()) }

// start starts a server with the files of this folder, and the program's webhooks and initializers.
func start(t *testing.T) *cluster {
	t.Helper()
	log.SetLogger(logr.Discard())
	limited := &waits{}
	metrics.RateLimiterLatency = limited
	mux := http.NewServeMux()
	// A long timeout keeps slow initializers from being removed.
	config := gatehousetest.Start(t, gatehousetest.Own("--initializer-timeout=5m"), gatehousetest.WithoutTraces(),
		gatehousetest.Manifests("."), gatehousetest.Webhooks(mux))
	program := gatehousetest.As(t, "openshift-admission")
	o := options{maxProjects: 2, jenkinsImage: "registry.example.com/jenkins"}
	handler, err := o.handler(program)
	if err != nil {
		t.Fatal(err)
	}
	mux.Handle("/", handler)

	c := &cluster{limited: limited, config: program, typed: kubernetes.NewForConfigOrDie(config), as: map[string]dynamic.Interface{}}
	for user, as := range map[string]*rest.Config{
		"admin":      config,
		"dev":        gatehousetest.As(t, "dev", "developers"),
		"ops":        gatehousetest.As(t, "ops", "developers", "operators"),
		"controller": gatehousetest.As(t, "system:serviceaccount:kube-system:endpointslice-controller"),
	} {
		c.as[user] = dynamic.NewForConfigOrDie(as)
	}
	c.mapper = restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(discovery.NewDiscoveryClientForConfigOrDie(config)))
	controllers, err := o.initializers(program)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	for _, controller := range controllers {
		running.Go(func() {
			if err := controller.Run(ctx); err != nil {
				t.Error(err)
			}
		})
	}
	t.Cleanup(func() {
		stop()
		running.Wait()
	})
	c.make(t, users)
	return c
}

// users are the roles of dev and ops. Both may write all kinds of the examples.
const users = `
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: developers}
rules:
- {apiGroups: [""], resources: [pods, pods/ephemeralcontainers, services, endpoints, namespaces], verbs: ["*"]}
- {apiGroups: [apps], resources: [deployments], verbs: ["*"]}
- {apiGroups: [batch], resources: [cronjobs], verbs: ["*"]}
- {apiGroups: [discovery.k8s.io], resources: [endpointslices], verbs: ["*"]}
- {apiGroups: [networking.k8s.io], resources: [ingresses], verbs: ["*"]}
- {apiGroups: [rbac.authorization.k8s.io], resources: [rolebindings], verbs: ["*"]}
- {apiGroups: [rbac.authorization.k8s.io], resources: [clusterroles], resourceNames: [view], verbs: [bind]}
- {apiGroups: [image.openshift.io], resources: [imagestreams, imagestreammappings], verbs: ["*"]}
- {apiGroups: [build.openshift.io], resources: [builds, buildconfigs, builds/source], verbs: ["*"]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: developers}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: developers}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: Group, name: developers}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: operators}
rules:
- {apiGroups: [""], resources: [pods/binding, endpoints/restricted], verbs: [create]}
- {apiGroups: [security.openshift.io], resources: [securitycontextconstraints], resourceNames: [anyuid], verbs: [use]}
- {apiGroups: [build.openshift.io], resources: [builds/docker, builds/custom, builds/jenkinspipeline], verbs: [create]}
- {apiGroups: [route.openshift.io], resources: [routes/custom-host], verbs: [create, update]}
- {apiGroups: [network.openshift.io], resources: [service/externalips], verbs: [create]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: operators}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: operators}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: Group, name: operators}]
`

// make stores the objects of a YAML stream as the administrator.
func (c *cluster) make(t *testing.T, text string) {
	t.Helper()
	for decoder := yamlstream.NewYAMLOrJSONDecoder(strings.NewReader(text), 4096); ; {
		obj := &unstructured.Unstructured{}
		if err := decoder.Decode(&obj.Object); errors.Is(err, io.EOF) {
			return
		} else if err != nil {
			t.Fatal(err)
		}
		if annotations := obj.GetAnnotations(); obj.GetKind() == "Namespace" && obj.GetName() != "bare" && annotations[userRange] == "" {
			// On OpenShift, a controller sets these annotations on each namespace.
			if annotations == nil {
				annotations = map[string]string{}
			}
			annotations[userRange], annotations[groupRange], annotations[levels] = "1000000000/10000", "1000000000/10000", "s0:c1,c0"
			obj.SetAnnotations(annotations)
		}
		if _, err := c.create(t.Context(), "admin", obj, nil); err != nil {
			t.Fatal(err)
		}
	}
}

func (c *cluster) create(ctx context.Context, user string, obj *unstructured.Unstructured, dryRun []string) (*unstructured.Unstructured, error) {
	resource, err := c.resource(user, obj)
	if err != nil {
		return nil, err
	}
	return resource.Create(ctx, obj, metav1.CreateOptions{DryRun: dryRun})
}

func (c *cluster) resource(user string, obj *unstructured.Unstructured) (dynamic.ResourceInterface, error) {
	kind := obj.GroupVersionKind()
	mapping, err := c.mapper.RESTMapping(kind.GroupKind(), kind.Version)
	if err != nil {
		return nil, err
	}
	return c.as[user].Resource(mapping.Resource).Namespace(obj.GetNamespace()), nil
}

// check sends a write and compares the result.
func (c *cluster) check(t *testing.T, w write) {
	user := w.as
	if user == "" {
		user = "dev"
	}
	obj := object(t, w.object)
	resource, err := c.resource(user, obj)
	if err != nil {
		t.Fatal(err)
	}
	dry := []string{metav1.DryRunAll}
	var got *unstructured.Unstructured
	if !w.update {
		got, err = resource.Create(t.Context(), obj, metav1.CreateOptions{DryRun: dry})
	} else {
		c.make(t, w.old)
		patch, encodeErr := obj.MarshalJSON()
		if encodeErr != nil {
			t.Fatal(encodeErr)
		}
		var subresources []string
		if w.sub != "" {
			subresources = append(subresources, w.sub)
		}
		kind := types.MergePatchType
		if obj.GetAPIVersion() == corev1.SchemeGroupVersion.String() {
			kind = types.StrategicMergePatchType
		}
		got, err = resource.Patch(t.Context(), obj.GetName(), kind, patch, metav1.PatchOptions{DryRun: dry}, subresources...)
	}
	switch {
	case w.denied != "" && err == nil:
		t.Errorf("the write was allowed, want: %s", w.denied)
	case w.denied != "" && !strings.HasSuffix(err.Error(), " denied request: "+w.denied) && !strings.HasSuffix(err.Error(), " denied the request: "+w.denied):
		t.Errorf("the write was rejected with %q, want %q", err, w.denied)
	case w.denied != "":
	case err != nil:
		t.Error(err)
	default:
		var want any
		if err := yaml.Unmarshal([]byte(w.want), &want); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, part(want, jsonOf(t, got))); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
}

// part returns the fields of got that want has.
func part(want, got any) any {
	switch want := want.(type) {
	case map[string]any:
		fields, ok := got.(map[string]any)
		if !ok && got != nil {
			return got
		}
		picked := map[string]any{}
		for name, value := range want {
			picked[name] = part(value, fields[name])
		}
		return picked
	case []any:
		items, ok := got.([]any)
		if !ok || len(items) != len(want) {
			return got
		}
		picked := make([]any, len(want))
		for i := range want {
			picked[i] = part(want[i], items[i])
		}
		return picked
	}
	return got
}

// jsonOf returns an object with YAML's types of numbers.
func jsonOf(t *testing.T, obj *unstructured.Unstructured) any {
	t.Helper()
	data, err := obj.MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	var value any
	if err := yaml.Unmarshal(data, &value); err != nil {
		t.Fatal(err)
	}
	return value
}

func object(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	obj := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(text), &obj.Object); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	return obj
}

// Every file with a plugin is listed in the documentation and in the README.
func TestEveryFileIsDocumented(t *testing.T) {
	files, err := filepath.Glob("*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	table, err := os.ReadFile("../../docs/plugins.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if !strings.Contains(string(readme), "`"+file+"`") {
			t.Errorf("README.md does not name %s", file)
		}
		switch file {
		case "kinds.yaml", "config.yaml", "rbac.yaml":
			continue
		}
		if !strings.Contains(string(table), "](../examples/openshift/"+file+")") {
			t.Errorf("docs/plugins.md does not link %s", file)
		}
	}
	if len(files) < 19 {
		t.Errorf("there are %d files", len(files))
	}
}

func TestParse(t *testing.T) {
	for _, args := range [][]string{{"extra"}, {"-max-projects", "-1"}, {"-nonsense"}} {
		if _, err := parse(args, io.Discard); err == nil {
			t.Errorf("%q was accepted", args)
		}
	}
	if o, err := parse([]string{"-max-projects", "0"}, io.Discard); err != nil || o.maxProjects != 0 {
		t.Errorf("no projects: %v", err)
	}
}
