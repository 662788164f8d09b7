package chart

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	"helm.sh/helm/v3/pkg/lint"
	"helm.sh/helm/v3/pkg/lint/support"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	yamlstream "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/yaml"

	"github.com/gatehouse-dev/gatehouse/gatehousetest"
)

const (
	folder = "../../../deploy/agent/chart"
	base   = "../../../deploy/agent/base"
	node   = "../../../deploy/agent/node"
	audit  = "../../../deploy/agent/audit"
)

// version is the Kubernetes version that the chart is rendered for.
var version = chartutil.KubeVersion{Version: "v1.37.2", Major: "1", Minor: "37"}

// objects are the objects of manifests, by kind and name.
type objects map[string]*unstructured.Unstructured

// read reads manifests.
func read(t *testing.T, text string) objects {
	t.Helper()
	all := objects{}
	for in := yamlstream.NewYAMLOrJSONDecoder(strings.NewReader(text), 4096); ; {
		obj := &unstructured.Unstructured{}
		if err := in.Decode(&obj.Object); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatalf("%v in\n%s", err, text)
		}
		if len(obj.Object) == 0 {
			continue
		}
		key := obj.GetKind() + "/" + obj.GetName()
		if all[key] != nil {
			t.Errorf("there are two %s", key)
		}
		all[key] = obj
	}
}

// render returns the output of helm template for the chart, with values in YAML.
func render(t *testing.T, name, namespace, values string) (string, error) {
	t.Helper()
	chart, err := loader.Load(folder)
	if err != nil {
		t.Fatal(err)
	}
	given, err := chartutil.ReadValues([]byte(values))
	if err != nil {
		t.Fatal(err)
	}
	capabilities := *chartutil.DefaultCapabilities
	capabilities.KubeVersion = version
	all, err := chartutil.ToRenderValues(chart, given, chartutil.ReleaseOptions{Name: name, Namespace: namespace, IsInstall: true, Revision: 1}, &capabilities)
	if err != nil {
		return "", err
	}
	files, err := engine.Render(chart, all)
	var b strings.Builder
	for path, text := range files {
		if strings.HasSuffix(path, ".yaml") {
			b.WriteString("---\n" + text + "\n")
		}
	}
	return b.String(), err
}

// gatehouse runs the program.
func gatehouse(t *testing.T, args ...string) (string, error) {
	t.Helper()
	program := os.Getenv("GATEHOUSE_BINARY")
	if program == "" {
		t.Fatal("GATEHOUSE_BINARY must name the program")
	}
	cmd := exec.CommandContext(t.Context(), program, args...)
	var notes bytes.Buffer
	cmd.Stderr = &notes
	out, err := cmd.Output()
	if err != nil {
		err = fmt.Errorf("gatehouse %s: %w: %s", strings.Join(args, " "), err, notes.Bytes())
	}
	return string(out), err
}

func must(t *testing.T, args ...string) string {
	t.Helper()
	out, err := gatehouse(t, args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// credentials are values with the files that gatehouse generates for a service.
func credentials(t *testing.T, service string) (values, dir string) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "agent")
	must(t, "agent", "--credentials", dir, "--service", service, "--apiservice")
	files := map[string]string{}
	for name, file := range map[string]string{"ca": "ca.crt", "certificate": "tls.crt", "key": "tls.key", "token": "audit-token"} {
		data, err := os.ReadFile(filepath.Join(dir, file))
		if err != nil {
			t.Fatal(err)
		}
		files[name] = string(data)
	}
	data, err := yaml.Marshal(map[string]any{"credentials": files})
	if err != nil {
		t.Fatal(err)
	}
	return string(data), dir
}

// S32.10: helm lint accepts the chart, and reports a wrong value.
func TestLint(t *testing.T) {
	files, _ := credentials(t, "gatehouse-agent/gatehouse-agent")
	for values, wrong := range map[string]string{
		files: "",
		"credentials: {existingSecret: s}\napiService: {enabled: false}": "",
		files + "replicas: 0":                   "replicas",
		files + "replica: 2":                    "replica",
		files + "service: {clusterIP: nowhere}": "clusterIP",
		files + "extraArgs: [v=2]":              "extraArgs",
		files + "traceBytes: 1":                 "traceBytes",
		files + "audit: {objects: [secrets]}":   "audit",
		"":                                      "credentials.ca is missing",
		"credentials: {existingSecret: s}":      "leave out the APIService by --set apiService.enabled=false",
		"credentials: {token: short}":           "token",
	} {
		given, err := chartutil.ReadValues([]byte(values))
		if err != nil {
			t.Fatal(err)
		}
		var said strings.Builder
		for _, m := range lint.AllWithKubeVersion(folder, given, "gatehouse-agent", &version).Messages {
			if m.Severity > support.InfoSev {
				said.WriteString(m.Error() + "\n")
			}
		}
		// helm lint ignores errors of a template's fail function; helm template reports them.
		if _, err := render(t, "gatehouse-agent", "gatehouse-agent", values); err != nil {
			said.WriteString(err.Error())
		}
		if (said.Len() > 0) != (wrong != "") || !strings.Contains(said.String(), wrong) {
			t.Errorf("of %.300s lint says %q, want %q", values, said.String(), wrong)
		}
		if strings.Contains(said.String(), "PRIVATE KEY") {
			t.Errorf("the key is shown: %s", said.String())
		}
	}
}

// S32.10: the chart renders the objects of deploy/agent/base, with the rights that gatehouse agent prints.
func TestTheChartIsTheBase(t *testing.T) {
	files, dir := credentials(t, "gatehouse-agent/gatehouse-agent")
	text, err := render(t, "gatehouse-agent", "gatehouse-agent", files)
	if err != nil {
		t.Fatal(err)
	}
	chart := read(t, text)
	want := read(t, must(t, "kubectl", "kustomize", base)+"---\n"+must(t, "agent", "--credentials", dir, "--apiservice"))
	// Helm creates the namespace, and the user the Secret of the base.
	delete(want, "Namespace/gatehouse-agent")
	secret := chart["Secret/gatehouse-agent"]
	delete(chart, "Secret/gatehouse-agent")
	if secret == nil || len(secret.Object["data"].(map[string]any)) != 4 {
		t.Errorf("the Secret is %v", secret)
	}
	for key := range want {
		if chart[key] == nil {
			t.Errorf("the chart has no %s", key)
		}
	}
	for key, obj := range chart {
		if want[key] == nil {
			t.Errorf("the base has no %s", key)
			continue
		}
		if got, want := plain(t, obj), plain(t, want[key]); !reflect.DeepEqual(got, want) {
			t.Errorf("%s is\n%s\nand in the base\n%s", key, show(t, got), show(t, want))
		}
	}
	rights, err := os.ReadFile(filepath.Join(folder, "rbac.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	if printed := must(t, "agent", "--rbac", "--service", "NAMESPACE/NAME"); printed != string(rights) {
		t.Errorf("deploy/agent/chart/rbac.yaml is not what gatehouse agent --rbac --service NAMESPACE/NAME prints:\n%s", printed)
	}
}

// plain returns an object without the differences between a chart and a kustomization: labels, the image, and
// flags with their default values.
func plain(t *testing.T, obj *unstructured.Unstructured) map[string]any {
	t.Helper()
	obj = obj.DeepCopy()
	unstructured.RemoveNestedField(obj.Object, "metadata", "labels")
	unstructured.RemoveNestedField(obj.Object, "metadata", "annotations")
	for _, path := range [][]string{{"spec", "selector"}, {"spec", "podSelector"}, {"spec", "template", "metadata"}} {
		unstructured.RemoveNestedField(obj.Object, path...)
	}
	if obj.GetKind() == "Deployment" {
		d := &appsv1.Deployment{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(obj.Object, d); err != nil {
			t.Fatal(err)
		}
		pod := &d.Spec.Template.Spec
		for i := range pod.TopologySpreadConstraints {
			pod.TopologySpreadConstraints[i].LabelSelector = nil
		}
		for i := range pod.Containers {
			pod.Containers[i].Image, pod.Containers[i].ImagePullPolicy = "", ""
		}
		c := &pod.Containers[0]
		var args []string
		for _, arg := range c.Args {
			if arg != "--service=gatehouse-agent/gatehouse-agent" && arg != "--trace-bytes=33554432" {
				args = append(args, arg)
			}
		}
		c.Args = args
		out, err := runtime.DefaultUnstructuredConverter.ToUnstructured(d)
		if err != nil {
			t.Fatal(err)
		}
		obj.Object = out
	}
	data, err := json.Marshal(obj.Object)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]any{}
	if err := json.Unmarshal(data, &out); err != nil {
		t.Fatal(err)
	}
	return out
}

func show(t *testing.T, v any) string {
	t.Helper()
	data, err := yaml.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// S32.20: the container that audits is off by default, and the same in the chart and in the component of kustomize. It
// has a memory limit, and neither the credentials of the agent nor a port. With it, the agent has the rights that
// gatehouse agent prints.
func TestTheContainerThatAudits(t *testing.T) {
	files, _ := credentials(t, "gatehouse-agent/gatehouse-agent")
	text, err := render(t, "gatehouse-agent", "gatehouse-agent", files+"audit: {enabled: true}")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	rel := func(path string) string {
		t.Helper()
		path, err := filepath.Abs(path)
		if err == nil {
			path, err = filepath.Rel(dir, path)
		}
		if err != nil {
			t.Fatal(err)
		}
		return path
	}
	overlay := fmt.Sprintf("resources: [%s]\ncomponents: [%s]\n", rel(base), rel(audit))
	if err := os.WriteFile(filepath.Join(dir, "kustomization.yaml"), []byte(overlay), 0o600); err != nil {
		t.Fatal(err)
	}
	got, want := read(t, text), read(t, must(t, "kubectl", "kustomize", dir))
	for _, key := range []string{"Deployment/gatehouse-agent", "ClusterRole/gatehouse-agent-audit", "ClusterRoleBinding/gatehouse-agent-audit"} {
		if got[key] == nil || want[key] == nil {
			t.Fatalf("%s: in the chart %t, in the overlay %t", key, got[key] != nil, want[key] != nil)
		}
		if a, b := plain(t, got[key]), plain(t, want[key]); !reflect.DeepEqual(a, b) {
			t.Errorf("%s is\n%s\nand in the overlay\n%s", key, show(t, a), show(t, b))
		}
	}
	d := &appsv1.Deployment{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(got["Deployment/gatehouse-agent"].Object, d); err != nil {
		t.Fatal(err)
	}
	containers := d.Spec.Template.Spec.Containers
	c := containers[1]
	if len(containers) != 2 || c.Resources.Limits.Memory().IsZero() || len(c.Ports) > 0 || !*c.SecurityContext.ReadOnlyRootFilesystem || *c.SecurityContext.AllowPrivilegeEscalation ||
		slices.ContainsFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool { return m.Name == "credentials" }) || !strings.HasPrefix(c.Image, "gatehouse:") || !strings.HasPrefix(containers[0].Image, "gatehouse-agent:") {
		t.Errorf("the container is\n%s", show(t, c))
	}
	has, needs := rightsOf(t, got), rightsOf(t, read(t, must(t, "agent", "--rbac", "--audit-objects", "pods")))
	if !reflect.DeepEqual(has, needs) {
		t.Errorf("the rights are\n%s\nand gatehouse agent prints\n%s", show(t, has), show(t, needs))
	}
}

// rightsOf returns each right of the cluster roles, once.
func rightsOf(t *testing.T, all objects) map[string]bool {
	t.Helper()
	rights := map[string]bool{}
	for _, obj := range all {
		if obj.GetKind() != "ClusterRole" {
			continue
		}
		role := &rbacv1.ClusterRole{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(obj.Object, role); err != nil {
			t.Fatal(err)
		}
		for _, rule := range role.Rules {
			for _, verb := range rule.Verbs {
				for _, url := range rule.NonResourceURLs {
					rights[verb+" "+url] = true
				}
				for _, group := range rule.APIGroups {
					for _, resource := range rule.Resources {
						rights[verb+" "+resource+"."+group] = true
					}
				}
			}
		}
	}
	return rights
}

// S32.10: values have their effect, and a disabled part leaves nothing behind.
func TestValues(t *testing.T) {
	files, _ := credentials(t, "watch/x-gatehouse-agent")
	for name, tc := range map[string]struct {
		values      string
		with, lacks []string
	}{
		"another release in another namespace": {
			values: files,
			with: []string{
				"--service=watch/x-gatehouse-agent", "--peer=x-gatehouse-agent-peers.watch.svc:8443", "secretName: x-gatehouse-agent,",
				"{kind: ServiceAccount, namespace: watch, name: x-gatehouse-agent}", "service: {namespace: watch, name: x-gatehouse-agent, port: 443}",
			},
			lacks: []string{"NAMESPACE", "NAME}", "namespace: gatehouse-agent"},
		},
		"a Secret that is there, and no APIService": {
			values: "credentials: {existingSecret: mine}\napiService: {enabled: false}",
			with:   []string{"secretName: mine,"},
			lacks:  []string{"kind: APIService", "kind: Secret", "checksum/credentials"},
		},
		"nothing that can be left out": {
			values: "credentials: {existingSecret: mine}\napiService: {enabled: false}\nnetworkPolicy: {enabled: false}\npodDisruptionBudget: {enabled: false}\nrbac: {create: false}",
			lacks:  []string{"kind: NetworkPolicy", "kind: PodDisruptionBudget", "kind: ClusterRole", "kind: RoleBinding"},
		},
		"the pods": {
			values: files + "replicas: 3\nimage: {repository: registry.example.com/gatehouse, tag: v7}\nimagePullSecrets: [{name: pull}]\nextraArgs: [--v=2]\ntraceBytes: 67108864\ngoMemoryLimit: 250MiB\nresources: {limits: {memory: 400Mi}}\npodAnnotations: {a: b}\npodLabels: {c: d}\npriorityClassName: high\nnodeSelector: {e: f}\ntolerations: [{operator: Exists}]\naffinity: {podAntiAffinity: {}}\ntopologySpreadConstraints: [{maxSkew: 2, topologyKey: zone, whenUnsatisfiable: DoNotSchedule}]",
			with: []string{
				"replicas: 3\n", "image: registry.example.com/gatehouse:v7\n", "- name: pull\n", `- "--v=2"`, "--trace-bytes=67108864", "value: 250MiB", "memory: 400Mi",
				"a: b\n", "c: d\n", "priorityClassName: high\n", "e: f\n", "- operator: Exists\n", "podAntiAffinity: {}\n", "topologyKey: zone\n",
			},
			lacks: []string{"kubernetes.io/hostname", "--audit-socket", "--serve-audits"},
		},
		"audits": {
			values: files + "audit: {enabled: true, objects: [pods, deployments.apps], image: {repository: registry.example.com/whole}, resources: {limits: {memory: 700Mi}}}\nimage: {tag: v7}",
			with: []string{
				"image: registry.example.com/whole:v7\n", "--serve-audits=/run/gatehouse-agent/audit\n", "--audit-socket=/run/gatehouse-agent/audit\n",
				"--audit-objects=pods,deployments.apps\n", "memory: 700Mi", `apiGroups: ["apps"]`, "resources: [deployments]",
			},
		},
		"the service": {
			values: files + "service: {clusterIP: 10.96.100.100, annotations: {prometheus.io/scrape: 'true'}}\nserviceAccount: {annotations: {g: h}}\nnetworkPolicy: {enabled: true}\npodDisruptionBudget: {maxUnavailable: 50%}",
			with:   []string{"clusterIP: 10.96.100.100\n", "prometheus.io/scrape: \"true\"\n", "g: h\n", "{protocol: TCP}", "maxUnavailable: 50%\n"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			text, err := render(t, "x", "watch", tc.values)
			if err != nil {
				t.Fatal(err)
			}
			for _, part := range tc.with {
				if !strings.Contains(text, part) {
					t.Errorf("there is no %q in\n%s", part, text)
				}
			}
			for _, part := range tc.lacks {
				if strings.Contains(text, part) {
					t.Errorf("there is %q in\n%s", part, text)
				}
			}
			read(t, text)
		})
	}
}

// S32.10: the pods of the chart run on nodes in a namespace with restricted pods. A gatehouse serve has traces
// of its own, and rejects the APIService (S22.29).
func TestTheChartIsApplied(t *testing.T) {
	config := gatehousetest.Start(t, gatehousetest.Own("--controllers=+deployment,+replicaset,+daemonset", "--fake-nodes=2"), gatehousetest.WithoutTraces(),
		gatehousetest.Objects(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "gatehouse-agent", Labels: map[string]string{"pod-security.kubernetes.io/enforce": "restricted", "pod-security.kubernetes.io/warn": "restricted"}}}))
	dir := t.TempDir()
	kubeconfig := kubeconfigOf(t, dir, config)
	files, _ := credentials(t, "gatehouse-agent/gatehouse-agent")
	apply := func(values string) (string, error) {
		t.Helper()
		text, err := render(t, "gatehouse-agent", "gatehouse-agent", values)
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(dir, "rendered.yaml")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return gatehouse(t, "kubectl", "--kubeconfig", kubeconfig, "apply", "--warnings-as-errors", "-f", path)
	}
	const local = "apiService: {enabled: false}\n"
	if _, err := apply(files + local); err != nil {
		t.Fatal(err)
	}
	client := kubernetes.NewForConfigOrDie(config)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	ready := func() error {
		d, err := client.AppsV1().Deployments("gatehouse-agent").Get(ctx, "gatehouse-agent", metav1.GetOptions{})
		if err == nil && (d.Status.ReadyReplicas != 2 || d.Status.UpdatedReplicas != 2) {
			err = fmt.Errorf("%d replicas are ready: %v", d.Status.ReadyReplicas, d.Status.Conditions)
		}
		return err
	}
	for tick := time.NewTicker(50 * time.Millisecond); ; {
		err := ready()
		if err == nil {
			tick.Stop()
			break
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatal(err)
		}
	}
	pods, err := client.CoreV1().Pods("gatehouse-agent").List(ctx, metav1.ListOptions{})
	if err != nil || len(pods.Items) != 2 {
		t.Errorf("%d pods: %v", len(pods.Items), err)
	}
	again, err := apply(files + local)
	if err != nil || strings.Contains(again, "created") || !strings.Contains(again, "deployment.apps/gatehouse-agent unchanged") {
		t.Errorf("applied again: %s %v", again, err)
	}
	if _, err := apply(files); err == nil || !strings.Contains(err.Error(), "spec.service: Forbidden: this server serves gatehouse.dev itself") {
		t.Errorf("with its APIService: %v", err)
	}
	if _, err := gatehouse(t, "kubectl", "--kubeconfig", kubeconfig, "get", "admissiontraces", "-A"); err != nil {
		t.Error(err)
	}
}

// kubeconfigOf writes a configuration to a file.
func kubeconfigOf(t *testing.T, dir string, c *rest.Config) string {
	t.Helper()
	k := clientcmdapi.NewConfig()
	k.Clusters["c"] = &clientcmdapi.Cluster{Server: c.Host, CertificateAuthorityData: c.CAData, CertificateAuthority: c.CAFile}
	k.AuthInfos["c"] = &clientcmdapi.AuthInfo{Token: c.BearerToken, ClientCertificateData: c.CertData, ClientKeyData: c.KeyData, ClientCertificate: c.CertFile, ClientKey: c.KeyFile}
	k.Contexts["c"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "c"}
	k.CurrentContext = "c"
	path := filepath.Join(dir, "kubeconfig")
	if err := clientcmd.WriteToFile(*k, path); err != nil {
		t.Fatal(err)
	}
	return path
}

// S32.11: the overlay for control plane nodes is the base with pods that read a log file as root, and nothing
// else of the node.
func TestTheOverlayOfNodes(t *testing.T) {
	got, want := read(t, must(t, "kubectl", "kustomize", node)), read(t, must(t, "kubectl", "kustomize", base))
	set, deployment := &appsv1.DaemonSet{}, &appsv1.Deployment{}
	for obj, to := range map[*unstructured.Unstructured]any{got["DaemonSet/gatehouse-agent"]: set, want["Deployment/gatehouse-agent"]: deployment} {
		if obj == nil {
			t.Fatalf("the overlay has %v, the base %v", got, want)
		}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(obj.Object, to); err != nil {
			t.Fatal(err)
		}
	}
	delete(got, "DaemonSet/gatehouse-agent")
	delete(want, "Deployment/gatehouse-agent")
	want["Namespace/gatehouse-agent"].SetLabels(got["Namespace/gatehouse-agent"].GetLabels())
	if got["Namespace/gatehouse-agent"].GetLabels()["pod-security.kubernetes.io/enforce"] != "privileged" || !reflect.DeepEqual(got, want) {
		t.Errorf("the overlay has %v, the base %v", got, want)
	}
	own, other := set.Spec.Template.Spec, deployment.Spec.Template.Spec
	pod := *own.DeepCopy()
	c := &pod.Containers[0]
	last := len(other.Volumes)
	if *pod.SecurityContext.RunAsUser != 0 || len(pod.Volumes) != last+1 || len(c.VolumeMounts) != last+1 || pod.Volumes[last].HostPath == nil {
		t.Fatalf("the pods are\n%s", show(t, pod))
	}
	log := c.VolumeMounts[last]
	if !log.ReadOnly || pod.HostNetwork || pod.HostPID || pod.HostIPC || pod.Volumes[last].HostPath.Path != log.MountPath || slices.ContainsFunc(pod.Volumes[:last], func(v corev1.Volume) bool { return v.HostPath != nil }) {
		t.Errorf("the pods are\n%s", show(t, pod))
	}
	var args []string
	for _, arg := range c.Args {
		if path, ok := strings.CutPrefix(arg, "--follow="); !ok {
			args = append(args, arg)
		} else if filepath.Dir(path) != log.MountPath {
			t.Errorf("%s is followed, and %s is there", path, log.MountPath)
		}
	}
	// Other fields are as in the base.
	c.Args, c.VolumeMounts = args, c.VolumeMounts[:last]
	pod.Volumes, pod.SecurityContext, pod.Affinity, pod.Tolerations = other.Volumes, other.SecurityContext, nil, nil
	pod.TopologySpreadConstraints = other.TopologySpreadConstraints
	if !reflect.DeepEqual(pod, other) {
		t.Errorf("the pods are\n%s\nand in the base\n%s", show(t, pod), show(t, other))
	}
}
