package guides

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gatehouse-dev/gatehouse/initializer"
	"github.com/gatehouse-dev/gatehouse/test/harness"
)

// age matches the ages in the output of commands.
var age = regexp.MustCompile(`\b(\d+m)?\d+s\b`)

// session runs the commands of an example and compares their output.
func (d *document) session(text string) {
	d.t.Helper()
	var commands, printed []string
	inHere := false
	for line := range strings.Lines(text) {
		switch {
		case inHere || strings.HasPrefix(line, "gatehouse "):
			commands = append(commands, line)
			inHere = strings.HasSuffix(line, "<<EOF\n") || inHere && line != "EOF\n"
		default:
			printed = append(printed, line)
		}
	}
	out, err := d.sh(strings.Join(commands, ""))
	if err != nil {
		d.t.Errorf("%v in\n%s%s", err, text, out)
	}
	// kubectl reports each change; a guide may omit that.
	out = regexp.MustCompile(`(?m)^\S+ serverside-applied$`).ReplaceAllString(out, "")
	want(d.t, text, age.ReplaceAllString(words(out), "AGE"), age.ReplaceAllString(words(strings.Join(printed, "")), "AGE"))
}

// TestTheInitializerGuide follows all steps of docs/initializers.md and checks the described results.
func TestTheInitializerGuide(t *testing.T) {
	t.Parallel()
	d := readDocument(t, "initializers.md")
	arguments := strings.Fields(strings.TrimPrefix(d.block("gatehouse serve"), "gatehouse serve"))
	s := harness.Start(t, append(arguments, "--admission-consistency", "strict")...)
	d.env = []string{"HOME=" + t.TempDir(), "KUBECONFIG=" + s.Kubeconfig, "PATH=" + d.dir + string(os.PathListSeparator) + os.Getenv("PATH")}
	if err := os.Symlink(harness.Binary(t), filepath.Join(d.dir, "gatehouse")); err != nil {
		t.Fatal(err)
	}
	h := s.HTTP(t, nil)
	// The guide says within a second; on a strict server, the configuration is active at once.
	d.must(d.block("gatehouse kubectl apply -f -"))

	type outcome struct {
		out string
		err error
	}
	created := make(chan outcome, 1)
	create := d.block("gatehouse kubectl create configmap hello")
	go func() {
		out, err := d.sh(create)
		created <- outcome{out, err}
	}()
	const hello = "/api/v1/namespaces/default/configmaps/hello"
	harness.Eventually(t, "the object is stored", func() error {
		if r := h.Do("GET", hello+including, ""); r.Code != http.StatusOK {
			return fmt.Errorf("%d", r.Code)
		}
		return nil
	})
	d.session(d.block("gatehouse kubectl get configmaps"))
	// The guide's claims about other kubectl commands.
	for _, command := range []string{"get configmap hello", "describe configmap hello", "label configmap hello step=one", "patch configmap hello --type=merge -p '{}'"} {
		if out, err := d.sh("gatehouse kubectl " + command); err != nil || !strings.Contains(out, `waits for initializer "greeting.example.com"`) {
			t.Errorf("kubectl %s: %v, %s", command, err, out)
		}
	}
	d.session(d.block("gatehouse kubectl apply --server-side"))
	if c := <-created; c.err != nil {
		t.Errorf("the create: %v, %s", c.err, c.out)
	}
	want(t, "the object", h.Get(hello).At("data"), any(map[string]any{"name": "world", "greeting": "hello"}))
	d.must(d.block("gatehouse kubectl delete initializerconfiguration"))

	configurations := "/apis/admissionregistration.k8s.io/v1alpha1/initializerconfigurations"
	const asYAML = "application/yaml"
	mesh := d.block("apiVersion: admissionregistration.k8s.io/v1alpha1")
	h.Must(http.StatusCreated, "POST", configurations, mesh, "Content-Type", asYAML)

	// The example waits for the initializer of mesh.
	deployments := "/apis/apps/v1/namespaces/default/deployments"
	waiting := func() {
		t.Helper()
		r := h.Must(http.StatusAccepted, "POST", deployments+including, deployment("apps/v1", "web"))
		want(t, "it waits for", pending(r.Body), "sidecar")
	}
	answer := make(chan *harness.Response, 1)
	go func() { answer <- h.Do("POST", deployments, deployment("apps/v1", "refused")) }()
	harness.Eventually(t, "the deployment is stored", func() error {
		if r := h.Do("GET", deployments+"/refused"+including, ""); r.Code != http.StatusOK {
			return fmt.Errorf("%d", r.Code)
		}
		return nil
	})
	h.Must(http.StatusOK, "PATCH", deployments+"/refused", d.block(`{"metadata":{"initializers":{"result"`), "Content-Type", mergePatch)
	want(t, "why it was refused", (<-answer).Refusal(http.StatusForbidden, metav1.StatusReasonForbidden).Message, `initializer "sidecar.example.com" rejected the object: no more sidecars`)

	// The commands for inspection and repair, one per line.
	for line := range strings.Lines(d.block("gatehouse initializers list -A")) {
		switch command, _, _ := strings.Cut(line, "#"); {
		case strings.Contains(command, " list "):
			waiting()
			if out, err := d.sh(command); err != nil || !strings.Contains(out, "deployments.apps/web") {
				t.Errorf("%s: %v, %s", command, err, out)
			}
		case strings.Contains(command, " watch "):
			d.until(command, "deployments.apps/web")
		case strings.Contains(command, " complete "):
			d.must(command)
			h.Must(http.StatusOK, "DELETE", deployments+"/web", `{"propagationPolicy":"Background"}`)
		case strings.Contains(command, " fail "):
			waiting()
			d.must(command)
			h.Must(http.StatusNotFound, "GET", deployments+"/web"+including, "")
		default:
			t.Errorf("what is %q?", command)
		}
	}
	h.Must(http.StatusOK, "DELETE", configurations+"/mesh", "")

	// A cycle, and its error message.
	h.Must(http.StatusCreated, "POST", configurations, `{"metadata":{"name":"one"},"initializers":[{"name":"d.example.com"}]}`)
	r := h.Do("POST", configurations, `{"metadata":{"name":"two"},"initializers":[{"name":"c.example.com","before":["d.example.com"],"after":["d.example.com"]}]}`)
	refusal := r.Refusal(http.StatusUnprocessableEntity, metav1.StatusReasonInvalid).Message
	want(t, "the cycle", "The "+strings.Replace(refusal, ".admissionregistration.k8s.io", "", 1), words(d.block(`The InitializerConfiguration "two" is invalid`)))

	// An initializer with its own finalizer (S1.39).
	paired := "metadata: {name: address}\n" + d.block("initializers:\n- name: address.example.com", "rules: ...", `rules: [{apiGroups: [""], apiVersions: [v1], resources: [services]}]`)
	h.Must(http.StatusCreated, "POST", configurations, paired, "Content-Type", "application/yaml")
	h.Must(http.StatusOK, "DELETE", configurations+"/address", "")

	// The example in Go uses existing fields.
	options := reflect.TypeFor[initializer.Options]()
	examples := d.block("controller, err := initializer.New(initializer.Options{") + d.block("// with a function that releases")
	fields := regexp.MustCompile(`(?m)^ +(\w+): `).FindAllStringSubmatch(examples, -1)
	for _, f := range fields {
		if _, ok := options.FieldByName(f[1]); !ok {
			t.Errorf("the example has %s, which is no field of initializer.Options", f[1])
		}
	}
	if len(fields) < 4 {
		t.Errorf("%d fields in the example", len(fields))
	}
	for _, b := range d.blocks {
		if !d.used[b] {
			t.Errorf("no test runs the example\n%s", b)
		}
	}
}

// until runs a long-running command until it has printed a text.
func (d *document) until(command, text string) {
	d.t.Helper()
	ctx, cancel := context.WithCancel(harness.Context(d.t))
	cmd := exec.CommandContext(ctx, "sh", "-ec", "exec "+command)
	cmd.Dir, cmd.Env = d.dir, append(os.Environ(), d.env...)
	out, err := cmd.StdoutPipe()
	if err != nil {
		d.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		d.t.Fatal(err)
	}
	defer func() { _ = cmd.Wait() }()
	defer cancel()
	printed, chunk := "", make([]byte, 1024)
	for !strings.Contains(printed, text) {
		n, err := out.Read(chunk)
		printed += string(chunk[:n])
		if err != nil {
			d.t.Errorf("%s: %v, without %q: %s", command, err, text, printed)
			return
		}
	}
}
