package developing

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/gatehouse-dev/gatehouse/internal/kit/selfsigned"
	"github.com/gatehouse-dev/gatehouse/test/harness"
	"github.com/gatehouse-dev/gatehouse/test/speed"
)

// S33.9: a new webhook in each language rejects a pod, passes its own tests, and leaves nothing behind.
func TestFromNothingToAWebhookThatRejects(t *testing.T) {
	for _, language := range speed.Some(t, 1, slices.Sorted(maps.Keys(runtimes))) {
		t.Run(language, func(t *testing.T) {
			t.Parallel()
			dir, command := initialized(t, language)
			if entries, err := os.ReadDir(dir); err != nil || len(entries) > 5 {
				t.Errorf("%d files, %v", len(entries), err)
			}
			args := append([]string{"-f", "webhook.yaml", "--webhook-port", harness.FreePort(t), "--"}, command...)
			s := start(t, dir, "", nil, args...)
			client := s.ready()
			err := create(t.Context(), client, "nginx")
			if err == nil || !strings.Contains(err.Error(), "the image nginx has no tag") {
				t.Errorf("got %v", err)
			}
			if err := create(t.Context(), client, "registry.example.com/nginx:1"); err != nil {
				t.Error(err)
			}
			s.says(`rejected CREATE pods web-\S* in default by \S+, \S+; admission webhook "image-tags.example.com" denied the request: the image nginx has no tag`)
			s.says(`allowed  CREATE pods web-`)
			s.end()
			out, err := exec.Command(harness.Binary(t), "test", "--start-programs", dir).CombinedOutput()
			if err != nil {
				t.Errorf("its tests: %v\n%s", err, out)
			}
		})
	}
}

// S33.6: a user that continuously creates objects sees no failure while a program is rebuilt and replaced,
// and then the new program answers.
func TestAChangeFailsNoRequest(t *testing.T) {
	dir, command := initialized(t, "go")
	s := start(t, dir, "", nil, append([]string{"-f", "webhook.yaml", "--webhook-port", harness.FreePort(t), "--"}, command...)...)
	client := s.ready()
	var stop atomic.Bool
	var made int
	var creating sync.WaitGroup
	creating.Go(func() {
		for tick := time.Tick(50 * time.Millisecond); !stop.Load(); <-tick {
			if err := create(t.Context(), client, "web:1"); err != nil {
				t.Errorf("create %d: %v\n%s", made, err, &s.out)
				return
			}
			made++
		}
	})
	source := filepath.Join(dir, "main.go")
	text, err := os.ReadFile(source)
	if err != nil {
		t.Fatal(err)
	}
	for i := range speed.Of(1, 3) {
		// After a compile error, the running program stays.
		write(t, source, "package")
		harness.Eventually(t, "the mistake is reported", func() error {
			if n := strings.Count(s.out.String(), "the program before serves on"); n <= i {
				return fmt.Errorf("%d reports", n)
			}
			return nil
		})
		write(t, source, strings.ReplaceAll(string(text), "has no tag", fmt.Sprintf("has no tag (%d)", i)))
		harness.Eventually(t, "the new program judges", func() error {
			if err := create(t.Context(), client, "web"); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("has no tag (%d)", i)) {
				return fmt.Errorf("got %w", errors.Join(err))
			}
			return nil
		})
	}
	stop.Store(true)
	creating.Wait()
	t.Logf("%d creates", made)
	s.end()
}

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// registration registers the webhook of program.
const registration = `
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: hook%[2]s}
webhooks:
- name: judge.example.com
  admissionReviewVersions: [v1, v1beta1]
  sideEffects: None
  clientConfig: {service: {namespace: hooks, name: judge, path: /validate}%[1]s}
  rules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [configmaps, pods]}]
`

func manifest(extra string) string { return fmt.Sprintf(registration, extra, "") }

// The guide creates a rejecting webhook with three commands, which work as described.
func TestThreeCommands(t *testing.T) {
	speed.Long(t)
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "writing-webhooks.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, block, _ := strings.Cut(string(text), "\n\n    gatehouse dev --init")
	block, rest, _ := strings.Cut("gatehouse dev --init"+block, "\n\n")
	commands := strings.Split(block, "\n    ")
	_, want, _ := strings.Cut(rest, "\n\n    ")
	want, _, _ = strings.Cut(want, "\n")
	if len(commands) != 3 {
		t.Fatalf("got %q", commands)
	}
	dir, tools := t.TempDir(), t.TempDir()
	if err := os.Symlink(harness.Binary(t), filepath.Join(tools, "gatehouse")); err != nil {
		t.Fatal(err)
	}
	shell := func(line string) *exec.Cmd {
		cmd := exec.Command("/bin/sh", "-c", line)
		cmd.Dir, cmd.Env = dir, append(os.Environ(), "PATH="+tools+":"+os.Getenv("PATH"))
		return cmd
	}
	if out, err := shell(commands[0]).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	var out output
	second := shell(strings.Replace(strings.Replace(commands[1], "&& ", "&& exec ", 1), " -- ", " --webhook-port "+harness.FreePort(t)+" -- ", 1))
	second.Stdout, second.Stderr = &out, &out
	if err := second.Start(); err != nil {
		t.Fatal(err)
	}
	s := &session{t: t, cmd: second, temporary: t.TempDir(), ended: make(chan error, 1)}
	go func() { s.ended <- second.Wait() }()
	t.Cleanup(func() { _ = second.Process.Kill() })
	harness.Eventually(t, "it is ready", func() error {
		if !strings.Contains(out.String(), "gatehouse is ready at") {
			return &missing{out.String()}
		}
		return nil
	})
	if got, err := shell(commands[2]).CombinedOutput(); err == nil || strings.TrimSpace(string(got)) != want {
		t.Errorf("got %v: %s\nwant %s", err, got, want)
	}
	s.end()
}

// S33.5: common mistakes are reported before the first request, with a fix.
func TestCommonMistakes(t *testing.T) {
	other := t.TempDir()
	if _, err := selfsigned.Write(other, "other.example.com"); err != nil {
		t.Fatal(err)
	}
	port := harness.FreePort(t)
	wants := map[string]string{
		"http":        `hook/judge\.example\.com: .*\. API servers call webhooks by HTTPS only: serve TLS with tls\.crt and tls\.key of `,
		"other name":  `hook/judge\.example\.com: .*\. (The certificate is for other names|The caBundle does not trust the certificate): serve TLS with`,
		"elsewhere":   `hook/judge\.example\.com: .*\. Nothing is served at the path of the registration: serve the webhook there`,
		"no uid":      `hook/judge\.example\.com: .*expected response\.uid="gatehouse-dev", got "".*: copy request\.uid into response\.uid`,
		"old version": `hook/judge\.example\.com: .*\. API servers refuse the answer: answer with an AdmissionReview in the apiVersion of the request`,
		"no review":   `hook/judge\.example\.com: .*\. API servers refuse the answer: `,
		"ends":        `The program looks for the files of a pod`,
	}
	if _, err := os.Stat("/proc/net/tcp"); err == nil {
		wants["other port"] = `The program does not listen on port \d+ yet\. It listens on port ` + port + `: if that is for the webhook, say so with --webhook-port\.`
	}
	for _, how := range speed.Some(t, 1, slices.Sorted(maps.Keys(wants))) {
		want := wants[how]
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			s := start(t, t.TempDir(), manifest(""), []string{behaviour + "=" + how, "OTHER_CERT_DIR=" + other, "OTHER_PORT=" + port},
				"-f", "-", "--webhook-port", harness.FreePort(t), "--watch", "*.nothing", "--", os.Args[0])
			s.says(want)
			s.end()
		})
	}
}

// S33.2: gatehouse dev replaces the controllers that a webhook's manifests need in a cluster: CA injectors
// and certificate issuers. Objects that the program validates are applied when the program listens, objects
// that need nodes are left out, and text in objects is escaped on the terminal.
func TestWhatWorksInAClusterIsPlayed(t *testing.T) {
	t.Parallel()
	const objects = `
apiVersion: v1
kind: Service
metadata: {name: judge, namespace: hooks, annotations: {service.beta.openshift.io/serving-cert-secret-name: from-openshift}}
spec: {selector: {app: judge}, ports: [{port: 443, targetPort: webhook}]}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: judge, namespace: hooks}
spec:
  selector: {matchLabels: {app: judge}}
  template:
    metadata: {labels: {app: judge}}
    spec: {containers: [{name: judge, image: "judge:1", ports: [{name: webhook, containerPort: %s}]}]}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: other, namespace: hooks}
spec:
  selector: {matchLabels: {app: other}}
  template: {metadata: {labels: {app: other}}, spec: {containers: [{name: other, image: "other:1"}]}}
---
apiVersion: cert-manager.io/v1
kind: Issuer
metadata: {name: self, namespace: hooks}
spec: {selfSigned: {}}
---
apiVersion: cert-manager.io/v1
kind: Certificate
metadata: {name: serving, namespace: hooks}
spec: {secretName: from-cert-manager, dnsNames: [judge.hooks.svc], issuerRef: {kind: Issuer, name: self}}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: fine, namespace: hooks}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: wrong, namespace: hooks}
data: {a: forbidden}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: widget-editor, labels: {rbac.authorization.k8s.io/aggregate-to-edit: "true"}}
rules: [{apiGroups: [example.com], resources: [widgets], verbs: [get]}]
---
apiVersion: v1
kind: ResourceQuota
metadata: {name: some, namespace: hooks}
spec: {hard: {pods: "10"}}
---
apiVersion: monitoring.example.com/v1
kind: ServiceMonitor
metadata: {name: any, namespace: hooks}
---
`
	dir := t.TempDir()
	write(t, filepath.Join(dir, "all.yaml"), fmt.Sprintf(objects, harness.FreePort(t))+manifest(", caBundle: Cg=="))
	write(t, filepath.Join(dir, "kustomization.yaml"), "resources: [all.yaml]\n")
	s := start(t, dir, "", []string{behaviour + "=right"}, "-k", ".", "-o", "text", "--watch", "*.nothing", "--", os.Args[0])
	client := s.ready()
	for _, want := range []string{
		`Deployment hooks/judge runs as this program:\n  program      \S+`,
		`Left out: 1 object, since there are no nodes; --fake-nodes 1 makes one`,
		`Left out: 1 of the kind monitoring\.example\.com/v1 ServiceMonitor, which is unknown\.`,
		`webhooks +hook/judge\.example\.com, at port`,
		`rejected CREATE configmaps wrong in hooks`,
		`ConfigMap hooks/wrong was not applied`,
		`allowed  CREATE configmaps fine in hooks`,
		`  \| asked by gatehouse-dev about .*"name":"fine"`,
		`  \| program\tstarts with \\x1b\[31mKUBECONFIG=\S+`,
	} {
		s.says(want)
	}
	for _, name := range []string{"from-cert-manager", "from-openshift"} {
		if secret, err := client.CoreV1().Secrets("hooks").Get(t.Context(), name, metav1.GetOptions{}); err != nil || len(secret.Data["tls.key"]) == 0 {
			t.Errorf("secret %s: %v", name, err)
		}
	}
	// The pod of the program is there before its webhook of pods, which it would otherwise reach.
	ownPod(t, client)
	if strings.Contains(s.out.String(), "pods judge-") {
		t.Errorf("the program was asked about its own pod:\n%s", &s.out)
	}
	// A later registration also gets the CA bundle; an existing CA bundle stays.
	admin := harness.Dynamic(t, clientConfig(t, s))
	for name, bundle := range map[string]string{"later": "", "own": ", caBundle: " + own(t)} {
		object := harness.Parsed(t, fmt.Sprintf(registration, bundle, "-"+name))
		apply(t, admin, object)
	}
	harness.Eventually(t, "the authority is there", func() error {
		got, err := client.AdmissionregistrationV1().ValidatingWebhookConfigurations().Get(t.Context(), "hook-later", metav1.GetOptions{})
		if err == nil && len(got.Webhooks[0].ClientConfig.CABundle) == 0 {
			err = errors.New("there is none")
		}
		return err
	})
	got, err := client.AdmissionregistrationV1().ValidatingWebhookConfigurations().Get(t.Context(), "hook-own", metav1.GetOptions{})
	if err != nil || base64.StdEncoding.EncodeToString(got.Webhooks[0].ClientConfig.CABundle) != own(t) {
		t.Errorf("the authority of somebody else: %v", err)
	}
	s.end()
}

// S33.7: changed manifests are applied again. Objects removed from the manifests are deleted if the session
// applied them; namespaces and other users' objects stay, and everything stays while a file is invalid.
func TestChangedManifestsAreAppliedAgain(t *testing.T) {
	t.Parallel()
	const objects = "apiVersion: v1\nkind: Namespace\nmetadata: {name: hooks}\n---\n" +
		"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: first, namespace: hooks}\ndata: {a: %q}\n"
	const more = "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: second}\n"
	dir := t.TempDir()
	for _, name := range []string{"base", "overlay"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	base, hook := filepath.Join(dir, "base", "objects.yaml"), filepath.Join(dir, "hook.yaml")
	write(t, base, fmt.Sprintf(objects, "1"))
	write(t, filepath.Join(dir, "base", "kustomization.yaml"), "resources: [objects.yaml]\n")
	write(t, filepath.Join(dir, "overlay", "kustomization.yaml"), "resources: [../base]\n")
	write(t, hook, manifest(""))
	s := start(t, dir, "", []string{behaviour + "=right"}, "-f", "hook.yaml", "-k", "overlay", "--webhook-port", harness.FreePort(t), "--watch", "*.nothing", "--", os.Args[0])
	client := s.ready()
	s.says(`allowed  CREATE configmaps first in hooks`)
	if err := create(t.Context(), client, "forbidden:1"); err == nil {
		t.Error("the program was not asked")
	}
	value := func() string {
		got, err := client.CoreV1().ConfigMaps("hooks").Get(t.Context(), "first", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return got.Data["a"]
	}
	write(t, base, fmt.Sprintf(objects, "2")+more)
	s.says(`The manifests changed: applied ConfigMap hooks/first, ConfigMap second\.`)
	if got := value(); got != "2" {
		t.Errorf("it has %q", got)
	}
	// An object that the program rejects stays unchanged, and is retried after the next change.
	write(t, base, fmt.Sprintf(objects, "3")+more+"data: {a: forbidden}\n")
	s.says(`ConfigMap second was not applied: admission webhook "judge\.example\.com" denied the request`)
	s.says(`The manifests changed: applied ConfigMap hooks/first\.`)
	write(t, base, "a: [")
	s.says(`The manifests changed and cannot be read; the applied objects stay: kustomize overlay: .*objects\.yaml`)
	if got := value(); got != "3" {
		t.Errorf("it has %q", got)
	}
	write(t, base, fmt.Sprintf(objects, "4")+more+"data: {a: forbidden}\n")
	s.says(`The manifests changed: applied ConfigMap hooks/first\.(.|\n)*The manifests changed: applied ConfigMap hooks/first\.`)
	write(t, hook, strings.ReplaceAll(manifest(""), "name: judge,", "name: other,"))
	s.says(`The manifests changed: the program has another service or port now; the applied objects stay`)
	if err := create(t.Context(), client, "forbidden:1"); err == nil {
		t.Error("the program was not asked")
	}
	write(t, hook, "# nothing\n")
	s.says(`The manifests changed: applied ConfigMap second; deleted ValidatingWebhookConfiguration hook\.`)
	if err := create(t.Context(), client, "forbidden:1"); err != nil {
		t.Error(err)
	}
	write(t, hook, manifest(""))
	s.says(`The manifests changed: applied ValidatingWebhookConfiguration hook\.`)
	if err := create(t.Context(), client, "forbidden:1"); err == nil {
		t.Error("the program was not asked")
	}
	if _, err := client.CoreV1().ConfigMaps("hooks").Create(t.Context(), configMap("foreign", "1"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "overlay", "kustomization.yaml"), "resources: []\n")
	s.says(`Namespace hooks is no longer in the manifests\. It stays, since others may have objects in it\.`)
	s.says(`The manifests changed: deleted ConfigMap second, ConfigMap hooks/first\.`)
	list, err := client.CoreV1().ConfigMaps("hooks").List(t.Context(), metav1.ListOptions{})
	if err != nil || !slices.ContainsFunc(list.Items, func(c corev1.ConfigMap) bool { return c.Name == "foreign" }) || slices.ContainsFunc(list.Items, func(c corev1.ConfigMap) bool { return c.Name == "first" }) {
		t.Errorf("there are %v, %v", list, err)
	}
	s.end()
}

// S33.4: with -o jsonl, standard output contains only the traces of admitted and rejected requests.
func TestTracesForPrograms(t *testing.T) {
	t.Parallel()
	s := start(t, t.TempDir(), manifest(""), []string{behaviour + "=right"},
		"-f", "-", "-o", "jsonl", "--webhook-port", harness.FreePort(t), "--watch", "*.nothing", "--", os.Args[0])
	client := s.ready()
	if err := create(t.Context(), client, "forbidden:1"); err == nil {
		t.Error("it was not rejected")
	}
	s.says(`"outcome":"Denied"`)
	s.end()
	for line := range strings.Lines(s.out.String()) {
		var one struct{ ID, Kind string }
		if err := json.Unmarshal([]byte(line), &one); err != nil || one.Kind != "AdmissionTrace" {
			t.Errorf("%s: %v", line, err)
		}
	}
}

// kills is the environment variable with the number of kills in TestKillsLeaveNothing.
const kills = "GATEHOUSE_TEST_KILLS"

// S33.8: a session killed at any moment leaves no process, no port and no file behind.
func TestKillsLeaveNothing(t *testing.T) {
	speed.Long(t)
	if _, err := os.Stat("/proc/self/cmdline"); err != nil {
		t.Skip("this machine does not say which processes there are")
	}
	times := speed.Of(2, 12)
	if n, err := strconv.Atoi(os.Getenv(kills)); err == nil {
		times = n
	}
	port := harness.FreePort(t)
	temporary := t.TempDir()
	args := []string{"-f", "-", "--webhook-port", port, "--watch", "*.nothing", "--", "sh", "-c", "sleep 1000 & " + os.Args[0] + " " + temporary + "; exit"}
	env := []string{behaviour + "=child"}
	// The first session measures the duration of a start.
	begun := time.Now()
	s := &session{t: t, temporary: temporary, ended: make(chan error, 1)}
	s.begin(temporary, manifest(""), env, args...)
	s.ready()
	took := time.Since(begun)
	s.end()
	for i := range times {
		s := &session{t: t, temporary: temporary, ended: make(chan error, 1)}
		s.begin(temporary, manifest(""), env, args...)
		if i == times-1 {
			s.ready()
		} else {
			time.Sleep(took * time.Duration(i+1) / time.Duration(times))
		}
		if err := s.cmd.Process.Signal(syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		<-s.ended
		harness.Eventually(t, "all processes end", func() error { return noProcess(temporary) })
		l, err := net.Listen("tcp", "localhost:"+port)
		if err != nil {
			t.Fatalf("the port: %v", err)
		}
		l.Close()
		s.leftNothing()
	}
	s = &session{t: t, temporary: temporary, ended: make(chan error, 1)}
	s.begin(temporary, manifest(""), env, args...)
	s.ready()
	s.end()
}

// noProcess returns an error if the command line or the environment of a process of this machine contains a
// text.
func noProcess(marked string) error {
	found, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return err
	}
	for _, p := range found {
		line, _ := os.ReadFile(filepath.Join(p, "cmdline"))
		env, _ := os.ReadFile(filepath.Join(p, "environ"))
		if strings.Contains(string(line), marked) || strings.Contains(string(env), "TMPDIR="+marked) {
			return fmt.Errorf("process %s: %s", filepath.Base(p), strings.ReplaceAll(string(line), "\x00", " "))
		}
	}
	return nil
}

// Invalid arguments cause a one-sentence error, and start nothing.
func TestWhatKeepsASessionFromStarting(t *testing.T) {
	l, err := net.Listen("tcp", "localhost:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	port := strconv.Itoa(l.Addr().(*net.TCPAddr).Port)
	here := filepath.Join(t.TempDir(), "kubeconfig")
	write(t, here, "")
	for _, tc := range []struct {
		name, stdin string
		args        []string
		want        string
	}{
		{"no program", "", []string{"-f", "-"}, "name the program after --"},
		{"a program without --", "", []string{"sleep", "1"}, "write -- before the program"},
		{"a port that somebody has", manifest(""), []string{"-f", "-", "--webhook-port", port, "--", "sleep", "1"}, "port " + port + " is in use by another process"},
		{"two services", manifest("") + "---" + strings.ReplaceAll(manifest(""), "name: judge,", "name: other,"), []string{"-f", "-", "--", "sleep", "1"}, "say with --service which one"},
		{"a program that is not there", "", []string{"--", "./nothing"}, "no such file"},
		{"a broken manifest", "a: [", []string{"-f", "-", "--", "sleep", "1"}, "standard input:1"},
		{"a kubeconfig of somebody", "", []string{"--kubeconfig-out", here, "--", "sleep", "1"}, "the file is there"},
		{"a language that nobody knows", "", []string{"--init", "x", "--lang", "cobol"}, "--lang"},
		{"a directory with files", "", []string{"--init", filepath.Dir(here)}, "has files already"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			cmd := exec.Command(harness.Binary(t), append([]string{"dev"}, tc.args...)...)
			cmd.Stdin = strings.NewReader(tc.stdin)
			out, err := cmd.CombinedOutput()
			if err == nil || !strings.Contains(string(out), tc.want) {
				t.Errorf("got %v: %s\nwant %s", err, out, tc.want)
			}
		})
	}
}

// ownPod returns the only pod of the program, which is ready and belongs to a ReplicaSet of its Deployment (S33.14).
func ownPod(t *testing.T, client *kubernetes.Clientset) *corev1.Pod {
	t.Helper()
	pods, err := client.CoreV1().Pods("hooks").List(t.Context(), metav1.ListOptions{LabelSelector: "app=judge"})
	if err != nil || len(pods.Items) != 1 {
		t.Fatalf("pods %v, %v", pods, err)
	}
	pod := &pods.Items[0]
	if !slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue }) {
		t.Errorf("its status is %+v", pod.Status)
	}
	set, err := client.AppsV1().ReplicaSets("hooks").Get(t.Context(), metav1.GetControllerOf(pod).Name, metav1.GetOptions{})
	if err != nil || metav1.GetControllerOf(set).Name != "judge" {
		t.Errorf("its owner is %v, %v", set, err)
	}
	return pod
}

// With fake nodes, a Deployment of the project gets pods, which become ready. The controllers neither double nor collect
// the pod of the program (S33.14).
func TestWorkloadsRunOnFakeNodes(t *testing.T) {
	t.Parallel()
	const objects = `
apiVersion: v1
kind: Service
metadata: {name: judge, namespace: hooks}
spec: {selector: {app: judge}, ports: [{port: 443, targetPort: webhook}]}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: judge, namespace: hooks}
spec:
  replicas: 2
  selector: {matchLabels: {app: judge}}
  template:
    metadata: {labels: {app: judge}}
    spec: {containers: [{name: judge, image: "judge:1", args: [--leader-elect], ports: [{name: webhook, containerPort: %s}]}]}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: other}
spec:
  replicas: 1
  selector: {matchLabels: {app: other}}
  template: {metadata: {labels: {app: other}}, spec: {containers: [{name: other, image: "other:1"}]}}
`
	s := start(t, t.TempDir(), fmt.Sprintf(objects, harness.FreePort(t))+"---\n"+manifest(""), []string{behaviour + "=right"}, "-f", "-", "--fake-nodes", "1", "--watch", "*.nothing", "--", os.Args[0])
	client := s.ready()
	before := ownPod(t, client)
	harness.Eventually(t, "the Deployment has a pod", func() error {
		d, err := client.AppsV1().Deployments("default").Get(t.Context(), "other", metav1.GetOptions{})
		if err == nil && d.Status.ReadyReplicas != 1 {
			err = fmt.Errorf("its status is %+v", d.Status)
		}
		return err
	})
	if after := ownPod(t, client); after.UID != before.UID {
		t.Errorf("the pod %s is now %s", before.Name, after.Name)
	}
	s.end()
}
