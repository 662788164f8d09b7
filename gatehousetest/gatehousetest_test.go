package gatehousetest

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// review is a webhook that returns the result of change, or else admits the object unchanged.
func review(t *testing.T, change func(*admissionv1.AdmissionRequest, *admissionv1.AdmissionResponse)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		review := &admissionv1.AdmissionReview{}
		if err := json.NewDecoder(r.Body).Decode(review); err != nil {
			t.Error(err)
		}
		review.Response = &admissionv1.AdmissionResponse{UID: review.Request.UID, Allowed: true}
		change(review.Request, review.Response)
		if err := json.NewEncoder(w).Encode(review); err != nil {
			t.Error(err)
		}
	}
}

func to[T any](v T) *T { return &v }

// policy serves the webhooks of testdata/webhooks.yaml.
func policy(t *testing.T) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/validate", review(t, func(request *admissionv1.AdmissionRequest, response *admissionv1.AdmissionResponse) {
		if request.Name == "big" {
			response.Allowed, response.Result = false, &metav1.Status{Message: "it is too big"}
		}
	}))
	mux.Handle("/mutate", review(t, func(request *admissionv1.AdmissionRequest, response *admissionv1.AdmissionResponse) {
		if request.Name == "plain" {
			return
		}
		response.PatchType = to(admissionv1.PatchTypeJSONPatch)
		response.Patch = []byte(`[{"op": "add", "path": "/metadata/labels", "value": {"seen": "yes"}}]`)
	}))
	return mux
}

func configMap(name string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default"}}
}

// recorder is a test that records its log and failures.
type recorder struct {
	testing.TB
	mu     sync.Mutex
	logged []string
	failed []string
}

func (r *recorder) Logf(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.logged = append(r.logged, fmt.Sprintf(format, args...))
}

func (r *recorder) Errorf(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failed = append(r.failed, fmt.Sprintf(format, args...))
}

// taken returns the log and the failures, and clears both.
func (r *recorder) taken() (logged, failed string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	logged, failed = strings.Join(r.logged, "\n"), strings.Join(r.failed, "\n")
	r.logged, r.failed = nil, nil
	return logged, failed
}

func TestWebhooksOfTheTestProcess(t *testing.T) {
	r := &recorder{TB: t}
	clients, err := kubernetes.NewForConfig(Start(r, Manifests("testdata/webhooks.yaml"), Webhooks(policy(t))))
	if err != nil {
		t.Fatal(err)
	}
	maps := clients.CoreV1().ConfigMaps("default")
	t.Cleanup(func() {
		for _, name := range []string{"plain", "labelled"} {
			_ = maps.Delete(context.Background(), name, metav1.DeleteOptions{})
		}
	})
	t.Run("a rejection is in the log, with the reason", func(t *testing.T) {
		if _, err := maps.Create(t.Context(), configMap("big"), metav1.CreateOptions{}); err == nil {
			t.Error("admitted")
		}
		logged, _ := r.taken()
		for _, want := range []string{"admission trace", "sizes.example.com", "it is too big", "skipped: elsewhere/elsewhere.example.com, namespaceSelector"} {
			if !strings.Contains(logged, want) {
				t.Errorf("the log has no %q:\n%s", want, logged)
			}
		}
	})
	t.Run("a change is in the log", func(t *testing.T) {
		got, err := maps.Create(t.Context(), configMap("labelled"), metav1.CreateOptions{})
		if err != nil || got.Labels["seen"] != "yes" {
			t.Errorf("got %v, %v", got, err)
		}
		if logged, _ := r.taken(); !strings.Contains(logged, "labels.example.com") || !strings.Contains(logged, "/metadata/labels") {
			t.Errorf("the log has\n%s", logged)
		}
	})
	t.Run("what admission let pass as it was is not in the log", func(t *testing.T) {
		if _, err := maps.Create(t.Context(), configMap("plain"), metav1.CreateOptions{}); err != nil {
			t.Error(err)
		}
		if logged, _ := r.taken(); logged != "" {
			t.Errorf("the log has\n%s", logged)
		}
	})
	t.Run("Admitted and Rejected", func(t *testing.T) {
		if got := Admitted(r, configMap("other")); got == nil || got.GetLabels()["seen"] != "yes" {
			t.Errorf("admitted as %v", got)
		}
		if err := Rejected(r, configMap("big"), "sizes.example.com"); err == nil {
			t.Error("no error")
		}
		if _, failed := r.taken(); failed != "" {
			t.Errorf("failed: %s", failed)
		}
		Admitted(r, configMap("big"))
		Rejected(r, configMap("other"), "sizes.example.com")
		Rejected(r, configMap("big"), "labels.example.com")
		_, failed := r.taken()
		for _, want := range []string{
			`ConfigMap "default/big" was rejected: admission webhook "sizes.example.com" denied the request: it is too big`,
			`ConfigMap "default/other" was admitted, want it rejected by "sizes.example.com"`,
			`ConfigMap "default/big" was rejected, and not by "labels.example.com"`,
		} {
			if !strings.Contains(failed, want) {
				t.Errorf("no failure %q in\n%s", want, failed)
			}
		}
		if _, err := maps.Get(t.Context(), "other", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			t.Errorf("it was stored: %v", err)
		}
	})
}

// The objects of an earlier test are deleted, and its CRDs remain.
func TestTestsShareAServer(t *testing.T) {
	var first *rest.Config
	t.Run("one test", func(t *testing.T) {
		first = Start(t, Manifests("testdata"), Webhooks(policy(t)))
		got := Admitted(t, &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "example.com/v1", "kind": "Gadget", "metadata": map[string]any{"name": "g"}, "spec": map[string]any{"size": int64(2)},
		}})
		if got == nil || got.GetNamespace() != "default" {
			t.Errorf("admitted as %v", got)
		}
		Rejected(t, configMap("big"), "sizes.example.com")
	})
	t.Run("another test", func(t *testing.T) {
		second := Start(t)
		if first.Host != second.Host {
			t.Errorf("the servers are %s and %s", first.Host, second.Host)
		}
		Admitted(t, configMap("big"))
		Rejected(t, &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "example.com/v1", "kind": "Gadget", "metadata": map[string]any{"name": "g"}, "spec": map[string]any{"size": int64(0)},
		}}, "spec.size")
	})
}

func TestATestHasAServerOfItsOwn(t *testing.T) {
	config := Start(t, Own("--allow-privileged=false"), Objects(
		&rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: "viewers", Namespace: "default"},
			Subjects:   []rbacv1.Subject{{Kind: "Group", APIGroup: rbacv1.GroupName, Name: "viewers"}},
			RoleRef:    rbacv1.RoleRef{Kind: "ClusterRole", APIGroup: rbacv1.GroupName, Name: "view"},
		},
		configMap("seen"),
	))
	if config.Host == Start(t, WithoutTraces()).Host {
		t.Error("it is the shared server")
	}
	// The last Start returned the shared server.
	config = Start(t, Own(), Objects(configMap("seen")))
	clients, err := kubernetes.NewForConfig(As(t, "ada", "viewers"))
	if err != nil {
		t.Fatal(err)
	}
	_, err = clients.CoreV1().ConfigMaps("default").Get(t.Context(), "seen", metav1.GetOptions{})
	if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), `User "ada"`) {
		t.Errorf("without a role: %v", err)
	}
	if config.Host != As(t, "ada").Host {
		t.Error("As is about another server")
	}
}

// S8.21: the webhooks of a service with an address are called at that address, and webhooks of other services
// in the test process.
func TestAServiceHasAnAddress(t *testing.T) {
	certificate, bundle, err := selfSigned("policies.other.svc")
	if err != nil {
		t.Fatal(err)
	}
	other := httptest.NewUnstartedServer(review(t, func(_ *admissionv1.AdmissionRequest, response *admissionv1.AdmissionResponse) {
		response.Allowed, response.Result = false, &metav1.Status{Message: "asked the other program"}
	}))
	other.TLS = &tls.Config{Certificates: []tls.Certificate{*certificate}}
	other.StartTLS()
	t.Cleanup(other.Close)
	Start(t,
		ServiceAddress("other/policies:8443", other.Listener.Addr().String()),
		Manifests("testdata/webhooks.yaml"), Webhooks(policy(t)),
		Objects(&admissionregistrationv1.ValidatingWebhookConfiguration{
			ObjectMeta: metav1.ObjectMeta{Name: "of-another-project"},
			Webhooks: []admissionregistrationv1.ValidatingWebhook{{
				Name: "policies.other.example.com",
				ClientConfig: admissionregistrationv1.WebhookClientConfig{
					Service:  &admissionregistrationv1.ServiceReference{Namespace: "other", Name: "policies", Path: to("/check"), Port: to(int32(8443))},
					CABundle: bundle,
				},
				Rules: []admissionregistrationv1.RuleWithOperations{{
					Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
					Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"secrets"}},
				}},
				SideEffects:             to(admissionregistrationv1.SideEffectClassNone),
				AdmissionReviewVersions: []string{"v1"},
			}},
		}))
	Rejected(t, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "s"}}, "asked the other program")
	Rejected(t, configMap("big"), "sizes.example.com")
}

// victimVariable makes the test process wait until it is killed. Its value selects the server.
const victimVariable = "GATEHOUSETEST_VICTIM"

// TestVictim is the process that other tests kill rather than a test.
func TestVictim(t *testing.T) {
	var opts []Option
	switch os.Getenv(victimVariable) {
	case "":
		t.Skip("runs in a process of its own")
	case "shared":
		opts = append(opts, Shared())
	}
	fmt.Printf("\nserver %s\n", Start(t, opts...).Host)
	select {}
}

// victim starts a test process, which ends when it is killed or with the test, and returns the address of its
// server. The other files of both processes are in temp.
func victim(t *testing.T, kind, temp string) (process *exec.Cmd, host string) {
	process = exec.Command(os.Args[0], "-test.run=^TestVictim$")
	process.Env = append(os.Environ(), victimVariable+"="+kind, "TMPDIR="+temp, "XDG_CACHE_HOME="+temp, "HOME="+temp)
	process.Stderr = os.Stderr
	out, err := process.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := process.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { kill(process) })
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if host, ok := strings.CutPrefix(lines.Text(), "server https://"); ok {
			return process, host
		}
	}
	t.Fatal("the process has no server")
	return nil, ""
}

func kill(process *exec.Cmd) {
	_ = process.Process.Kill()
	_ = process.Wait()
}

// listens reports whether a server listens at an address.
func listens(host string) bool {
	connection, err := net.Dial("tcp", host)
	if err == nil {
		connection.Close()
	}
	return err == nil
}

// eventually waits until a condition is true.
func eventually(t *testing.T, what string, condition func() error) {
	t.Helper()
	var err error
	for end := time.Now().Add(startTimeout); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if err = condition(); err == nil {
			return
		}
	}
	t.Fatalf("%s: not within %s: %v", what, startTimeout, err)
}

// leavesNothing waits until a server has ended, and its files are gone.
func leavesNothing(t *testing.T, host, temp string) {
	t.Helper()
	eventually(t, "the server has ended", func() error {
		if listens(host) {
			return errors.New("it still listens")
		}
		return nil
	})
	eventually(t, "its files are gone", func() error {
		return filepath.WalkDir(temp, func(path string, entry fs.DirEntry, err error) error {
			if errors.Is(err, fs.ErrNotExist) {
				return nil
			}
			if err == nil && (strings.HasPrefix(entry.Name(), "gatehouse-scratch-") || !entry.IsDir()) {
				err = fmt.Errorf("%s is there", path)
			}
			return err
		})
	})
}

// A server ends with the test process, even if the process is killed, and leaves no file behind.
func TestServersEndWithTheTestProcess(t *testing.T) {
	temp := t.TempDir()
	process, host := victim(t, "alone", temp)
	if !listens(host) {
		t.Fatalf("nobody listens at %s", host)
	}
	kill(process)
	leavesNothing(t, host, temp)
}

// Test processes with the same parent, which are the packages of a 'go test', share a server. The server
// outlives the process that started it, and ends after the last process, in whatever way that process ends.
func TestPackagesShareAServer(t *testing.T) {
	temp := t.TempDir()
	var processes [3]*exec.Cmd
	var hosts [3]string
	for i := range 2 {
		processes[i], hosts[i] = victim(t, "shared", temp)
	}
	kill(processes[0])
	// A server that ends with its parent does so within a fraction of this time.
	for end := time.Now().Add(2 * time.Second); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if !listens(hosts[0]) {
			t.Fatal("the server ended with the process that started it")
		}
	}
	processes[2], hosts[2] = victim(t, "shared", temp)
	if hosts[1] != hosts[0] || hosts[2] != hosts[0] {
		t.Errorf("the servers are %v", hosts)
	}
	kill(processes[1])
	kill(processes[2])
	leavesNothing(t, hosts[0], temp)
}

// Processes that start at the same time also share one server.
func TestOneServerIsStartedAtATime(t *testing.T) {
	dir := t.TempDir()
	var joining sync.WaitGroup
	var servers [4]*process
	for i := range servers {
		joining.Go(func() {
			var err error
			if servers[i], err = join(dir, "run"); err != nil {
				t.Error(err)
			}
		})
	}
	joining.Wait()
	for _, s := range servers {
		if s == nil || s.kubeconfig != servers[0].kubeconfig {
			t.Fatalf("the servers are %v", servers)
		}
	}
	other, err := join(dir, "another")
	if err != nil || other.kubeconfig == servers[0].kubeconfig {
		t.Errorf("another run has the server %v, %v", other, err)
	}
	for _, s := range append(servers[:], other) {
		if s.cmd != nil {
			if err := s.stop(); err != nil {
				t.Error(err)
			}
		}
	}
	again, err := join(dir, "run")
	if err != nil || again.kubeconfig == servers[0].kubeconfig {
		t.Fatalf("after its end the server is %v, %v", again, err)
	}
	if err := again.stop(); err != nil {
		t.Error(err)
	}
}

// The go.mod of an operator stays unchanged: the program is built with the versions of gatehouse.mod, also with
// vendored packages and in a workspace.
func TestTheProgramHasAVersionFileOfItsOwn(t *testing.T) {
	// The home directory is different, so the caches with existing packages and modules are kept.
	for _, name := range []string{"GOCACHE", "GOMODCACHE"} {
		value, err := run(".", "go", []string{"env", name})
		if err != nil {
			t.Fatal(err)
		}
		t.Setenv(name, value)
	}
	root, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	t.Setenv("HOME", t.TempDir())
	dir := t.TempDir()
	const operator = "module example.com/operator\n\ngo 1.25.0\n"
	write := func(name, text string) {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	read := func(path string) string {
		t.Helper()
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	write("go.mod", operator)
	write("go.work", "go 1.25.0\n\nuse .\n")
	write("vendor/modules.txt", "")
	if _, err := build(dir); err == nil || !strings.Contains(err.Error(), "go build -tags=") {
		t.Errorf("without gatehouse.mod: %v", err)
	}
	// The files equal the result of 'go get -tool', for the program of this folder.
	_, required, _ := strings.Cut(read("../go.mod"), "\n")
	write("gatehouse.mod", fmt.Sprintf("module gatehouse\n%s\nrequire %[2]s v0.0.0\n\nreplace %[2]s => %[3]s\n",
		required, "github.com/gatehouse-dev/gatehouse", root))
	write("gatehouse.sum", read("../go.sum"))
	path, err := build(dir)
	if err != nil {
		t.Fatal(err)
	}
	if out, err := run(dir, path, []string{"version"}); err != nil || !strings.HasPrefix(out, "gatehouse") {
		t.Errorf("the program says %q, %v", out, err)
	}
	if got := read(filepath.Join(dir, "go.mod")); got != operator {
		t.Errorf("go.mod has become\n%s", got)
	}
}

func TestErrorsSayTheRemedy(t *testing.T) {
	dir := t.TempDir()
	nameless := filepath.Join(dir, "nameless.yaml")
	if err := os.WriteFile(nameless, []byte("metadata: {name: x}"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name string
		o    options
		want string
	}{
		{"no such file", options{files: []string{filepath.Join(dir, "none.yaml")}}, "no such file"},
		{"an object without a kind", options{files: []string{nameless}}, "object 1 has no apiVersion or no kind"},
		{"a directory without objects", options{files: []string{t.TempDir()}}, "has no object in a .yaml, .yml or .json file"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if _, err := tc.o.read(); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want %s", err, tc.want)
			}
		})
	}
	t.Run("a server that is shared and the test's own", func(t *testing.T) {
		if _, err := (&options{own: true, shared: true}).server(t); err == nil || !strings.Contains(err.Error(), "Own and ServiceAddress exclude Shared") {
			t.Errorf("got %v", err)
		}
	})
	t.Run("a server that does not start", func(t *testing.T) {
		// The flag may exist in a newer program.
		_, err := startProcess([]string{"--no-such-flag"})
		if err == nil || !strings.Contains(err.Error(), "unknown flag --no-such-flag") || !strings.Contains(err.Error(), "It must be as new as the module gatehousetest") {
			t.Errorf("got %v", err)
		}
	})
}
