package container

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/yaml"
)

// workload is a Deployment with all kinds of sources that a container has.
const workload = `
apiVersion: apps/v1
kind: Deployment
metadata: {namespace: shop, name: hook}
spec:
  template:
    metadata: {labels: {app: hook}, annotations: {note: "7"}}
    spec:
      serviceAccountName: hook
      initContainers: [{name: prepare, image: busybox, command: [sh, -c, "cp a b"]}]
      containers:
      - {name: proxy, image: proxy, ports: [{name: metrics, containerPort: 8443}]}
      - name: manager
        ports: [{name: hooks, containerPort: 9443}]
        resources: {limits: {memory: 128Mi}, requests: {cpu: 250m}}
        envFrom:
        - {prefix: C_, configMapRef: {name: settings}}
        - {secretRef: {name: absent, optional: true}}
        - {secretRef: {name: gone}}
        env:
        - {name: NAMESPACE, valueFrom: {fieldRef: {fieldPath: metadata.namespace}}}
        - {name: POD, valueFrom: {fieldRef: {fieldPath: metadata.name}}}
        - {name: NOTE, valueFrom: {fieldRef: {fieldPath: "metadata.annotations['note']"}}}
        - {name: IP, valueFrom: {fieldRef: {fieldPath: status.podIP}}}
        - {name: ACCOUNT, valueFrom: {fieldRef: {fieldPath: spec.serviceAccountName}}}
        - {name: MEMORY, valueFrom: {resourceFieldRef: {resource: limits.memory, divisor: 1Mi}}}
        - {name: CPU, valueFrom: {resourceFieldRef: {resource: requests.cpu, divisor: 1m}}}
        - {name: TOKEN, valueFrom: {secretKeyRef: {name: own, key: token}}}
        - {name: LEVEL, valueFrom: {configMapKeyRef: {name: settings, key: level}}}
        - {name: NONE, valueFrom: {configMapKeyRef: {name: settings, key: none, optional: true}}}
        - {name: LOST, valueFrom: {configMapKeyRef: {name: settings, key: lost}}}
        - {name: ADDRESS, value: "$(POD).$(NAMESPACE)"}
        volumeMounts:
        - {name: certs, mountPath: /certs/}
        - {name: config, mountPath: /etc/manager/config.yaml, subPath: config.yaml}
        - {name: chosen, mountPath: /etc/chosen}
        - {name: all, mountPath: /var/run/all}
        - {name: info, mountPath: /etc/podinfo}
        - {name: scratch, mountPath: /tmp}
        - {name: host, mountPath: /host}
        - {name: issued, mountPath: /issued}
      volumes:
      - {name: certs, secret: {secretName: own}}
      - {name: config, configMap: {name: settings}}
      - {name: chosen, configMap: {name: settings, items: [{key: level, path: sub/level}, {key: lost, path: lost}]}}
      - {name: all, projected: {sources: [{secret: {name: own, items: [{key: token, path: token}]}}, {configMap: {name: settings}}, {serviceAccountToken: {path: sa, audience: me}}]}}
      - {name: info, downwardAPI: {items: [{path: labels, fieldRef: {fieldPath: metadata.labels}}]}}
      - {name: scratch, emptyDir: {}}
      - {name: host, hostPath: {path: /var/log}}
      - {name: issued, csi: {driver: csi.cert-manager.io}}
`

func described(t *testing.T) *Description {
	t.Helper()
	u := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(workload), &u.Object); err != nil {
		t.Fatal(err)
	}
	template, err := Template(u)
	if err != nil {
		t.Fatal(err)
	}
	pod := &corev1.Pod{ObjectMeta: template.ObjectMeta, Spec: template.Spec, Status: corev1.PodStatus{PodIP: "127.0.0.1"}}
	pod.Name, pod.Namespace = "hook-0", "shop"
	content := map[string]map[string][]byte{
		"ConfigMap settings": {"level": []byte("debug"), "config.yaml": []byte("a: b")},
		"Secret own":         {"token": []byte("hidden")},
	}
	c := Behind(template, intstr.FromString("hooks"))
	return Describe(pod, c, func(kind, name string) (map[string][]byte, bool) {
		found, ok := content[kind+" "+name]
		return found, ok
	}, map[string][]byte{"tls.crt": []byte("C")})
}

// S33.10: the program has the arguments and the environment of the container, with the values of their sources.
func TestTheContainerIsDescribed(t *testing.T) {
	d := described(t)
	values, sources := map[string]string{}, map[string]string{}
	for _, v := range d.Environment {
		values[v.Name], sources[v.Name] = v.Value, v.From
	}
	if want := map[string]string{
		"C_level": "debug", "C_config.yaml": "a: b", "NAMESPACE": "shop", "POD": "hook-0", "NOTE": "7", "IP": "127.0.0.1", "ACCOUNT": "hook",
		"MEMORY": "128", "CPU": "250", "TOKEN": "hidden", "LEVEL": "debug", "ADDRESS": "hook-0.shop",
	}; !reflect.DeepEqual(values, want) {
		t.Errorf("environment %v, want %v", values, want)
	}
	for name, want := range map[string]string{"TOKEN": "Secret own, key token", "C_level": "ConfigMap settings, key level", "POD": "the field metadata.name", "ADDRESS": ""} {
		if sources[name] != want {
			t.Errorf("$%s is from %q, want %q", name, sources[name], want)
		}
	}
	left := strings.Join(d.LeftOut, "\n")
	for _, want := range []string{
		"the environment of Secret gone, which is not in the manifests", "$LOST: ConfigMap settings, key lost is not in the manifests",
		"/host: the files of the volume host", "container proxy of the pod does not run here", "init container prepare does not run here: sh -c cp a b",
		"/etc/chosen: ConfigMap settings has no key lost",
	} {
		if !strings.Contains(left, want) {
			t.Errorf("it does not say %q:\n%s", want, left)
		}
	}
	if len(d.LeftOut) != 6 || strings.Contains(left, "hidden") {
		t.Errorf("it says:\n%s", left)
	}
}

// S33.10: values of arguments replace references, which may be escaped. Values that repeat others have a bound.
func TestReferencesAreReplaced(t *testing.T) {
	got := Expand([]string{"--namespace=$(NAMESPACE)", "--log=$(MISSING)", "--price=$$(NAMESPACE)"}, map[string]string{"NAMESPACE": "shop"})
	if want := []string{"--namespace=shop", "--log=$(MISSING)", "--price=$(NAMESPACE)"}; !slices.Equal(got, want) {
		t.Errorf("arguments %q, want %q", got, want)
	}
	c := &corev1.Container{Env: []corev1.EnvVar{{Name: "A0", Value: "0123456789"}}}
	for i := range 20 {
		c.Env = append(c.Env, corev1.EnvVar{Name: fmt.Sprintf("A%d", i+1), Value: fmt.Sprintf("$(A%d)$(A%d)", i, i)})
	}
	total := 0
	for _, v := range Describe(&corev1.Pod{}, c, nil, nil).Environment {
		total += len(v.Value)
	}
	if most := mostExpanded + 1<<10; total > most {
		t.Errorf("the environment has %d bytes, more than %d", total, most)
	}
}

// S33.10: volumes are files.
func TestVolumesAreFiles(t *testing.T) {
	got := map[string]string{}
	for _, m := range described(t).Mounts {
		for name, content := range m.Files {
			got[m.Path+" "+name] = string(content)
		}
		for name, token := range m.Tokens {
			got[m.Path+" "+name] = "a token for " + token.Audience
		}
		if len(m.Files)+len(m.Tokens) == 0 {
			got[m.Path] = "empty"
		}
	}
	if want := map[string]string{
		"/certs token": "hidden", "/etc/manager/config.yaml ": "a: b", "/etc/chosen sub/level": "debug", "/var/run/all token": "hidden",
		"/var/run/all level": "debug", "/var/run/all config.yaml": "a: b", "/var/run/all sa": "a token for me", "/etc/podinfo labels": "app=\"hook\"",
		"/tmp": "empty", "/issued tls.crt": "C",
	}; !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// S33.10: the container behind a Service is the one with its port.
func TestTheContainerBehindAPort(t *testing.T) {
	template := &corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{
		{Name: "a", Ports: []corev1.ContainerPort{{Name: "metrics", ContainerPort: 8443}}},
		{Name: "b", Ports: []corev1.ContainerPort{{Name: "hooks", ContainerPort: 9443}}},
	}}}
	annotated := template.DeepCopy()
	annotated.Annotations = map[string]string{defaultContainer: "b"}
	for _, tc := range []struct {
		name     string
		template *corev1.PodTemplateSpec
		port     intstr.IntOrString
		want     string
	}{
		{"a name", template, intstr.FromString("hooks"), "b"},
		{"a number", template, intstr.FromInt32(9443), "b"},
		{"an undeclared port", template, intstr.FromInt32(1), "a"},
		{"an undeclared port and the annotation", annotated, intstr.FromInt32(1), "b"},
	} {
		if got := Behind(tc.template, tc.port); got.Name != tc.want {
			t.Errorf("%s: %s, want %s", tc.name, got.Name, tc.want)
		}
	}
	if got := Behind(&corev1.PodTemplateSpec{}, intstr.FromInt32(1)); got != nil {
		t.Errorf("a pod without containers: %v", got)
	}
}

// S33.11: flags that turn leader election on are left out.
func TestLeaderElectionIsLeftOut(t *testing.T) {
	rest, left := WithoutElection([]string{"--leader-elect", "-enable-leader-election=true", "--leader-elect=false", "leader-elect", "--leader-election-namespace=a", "--v=1"})
	if want := []string{"--leader-elect=false", "leader-elect", "--leader-election-namespace=a", "--v=1"}; !slices.Equal(rest, want) {
		t.Errorf("rest %q", rest)
	}
	if want := []string{"--leader-elect", "-enable-leader-election=true"}; !slices.Equal(left, want) {
		t.Errorf("left %q", left)
	}
}

// S33.12: the files of a certificate are known by their names, also by names that only the arguments have.
func TestFilesOfCertificates(t *testing.T) {
	c := &corev1.Container{Args: []string{"--cert=/certs/server-cert.pem", "--key", "/certs/server-key.pem", "--x=/certsx/a"}, Env: []corev1.EnvVar{{Name: "CA", Value: "/certs/ca.crt"}}}
	if got, want := Mentioned(c, "/certs/"), []string{"server-cert.pem", "server-key.pem", "ca.crt"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	for name, want := range map[string]string{
		"tls.crt": "C", "tls.key": "K", "ca.crt": "A", "cert": "C", "key": "K", "ca": "A", "cert.pem": "C", "key.pem": "K", "ca-cert.pem": "A",
		"server-cert.pem": "C", "server-key.pem": "K", "webhook.pem": "C", "config.yaml": "", "password": "",
	} {
		if got := string(Certificate(name, []byte("C"), []byte("K"), []byte("A"))); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}
