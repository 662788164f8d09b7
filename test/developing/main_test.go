package developing

import (
	"bytes"
	"context"
	"encoding/base64"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/gatehouse-dev/gatehouse/internal/kit/selfsigned"
	"github.com/gatehouse-dev/gatehouse/test/harness"
)

// behaviour is the environment variable that makes this test binary a webhook program.
const behaviour = "DEVELOPING_PROGRAM"

func TestMain(m *testing.M) {
	if how := os.Getenv(behaviour); how != "" {
		program(how)
	}
	os.Exit(harness.Main(m))
}

// output is the output of a command.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
	// path is a file that contains the output instead; empty if there is none.
	path string
}

// file creates a file for the output.
func (o *output) file(t *testing.T) *os.File {
	t.Helper()
	o.path = filepath.Join(t.TempDir(), "output")
	f, err := os.Create(o.path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

func (o *output) Write(data []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(data)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.path != "" {
		data, _ := os.ReadFile(o.path)
		return string(data)
	}
	return o.text.String()
}

// session is a running gatehouse dev.
type session struct {
	t        *testing.T
	cmd      *exec.Cmd
	out, err output
	// temporary is the directory for temporary files. kubeconfig is the value of --kubeconfig-out.
	temporary, kubeconfig string
	ended                 chan error
}

// start starts gatehouse dev in a directory.
func start(t *testing.T, dir string, stdin string, env []string, args ...string) *session {
	t.Helper()
	s := &session{t: t, temporary: t.TempDir(), ended: make(chan error, 1)}
	s.begin(dir, stdin, env, args...)
	return s
}

func (s *session) begin(dir string, stdin string, env []string, args ...string) {
	s.t.Helper()
	s.kubeconfig = filepath.Join(s.temporary, "kubeconfig")
	s.cmd = exec.Command(harness.Binary(s.t), append([]string{"dev", "--kubeconfig-out", s.kubeconfig}, args...)...)
	s.cmd.Dir, s.cmd.Stdin, s.cmd.Stdout, s.cmd.Stderr = dir, strings.NewReader(stdin), &s.out, &s.err
	s.cmd.Env = append(append(os.Environ(), "TMPDIR="+s.temporary), env...)
	// Ctrl-C on a terminal signals only the process group of the command.
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := s.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	go func() { s.ended <- s.cmd.Wait() }()
	s.t.Cleanup(func() { _ = s.cmd.Process.Kill() })
}

// says waits until the output of the command matches a pattern.
func (s *session) says(pattern string) {
	s.t.Helper()
	wanted := regexp.MustCompile(pattern)
	harness.Eventually(s.t, "the output has "+pattern, func() error {
		if text := s.out.String() + s.err.String(); !wanted.MatchString(text) {
			return &missing{text}
		}
		return nil
	})
}

type missing struct{ text string }

func (m *missing) Error() string { return "it is:\n" + m.text }

func (s *session) ready() *kubernetes.Clientset {
	s.t.Helper()
	s.says("(?m)^gatehouse is ready at https://")
	config, err := clientcmd.BuildConfigFromFlags("", s.kubeconfig)
	if err != nil {
		s.t.Fatal(err)
	}
	config.QPS = -1
	return harness.Client(s.t, config)
}

// end ends the command like Ctrl-C, and checks that nothing is left behind.
func (s *session) end() {
	s.t.Helper()
	_ = s.cmd.Process.Signal(os.Interrupt)
	select {
	case err := <-s.ended:
		if err != nil {
			s.t.Errorf("it ended with %v:\n%s%s", err, &s.out, &s.err)
		}
	case <-harness.Context(s.t).Done():
		s.t.Fatalf("it does not end:\n%s%s", &s.out, &s.err)
	}
	s.leftNothing()
}

// fails checks that the command ends with an error, and that nothing is left behind.
func (s *session) fails(want string) {
	s.t.Helper()
	select {
	case err := <-s.ended:
		if text := s.err.String(); err == nil || !regexp.MustCompile(want).MatchString(text) {
			s.t.Errorf("it ended with %v:\n%s%s\nwant %s", err, &s.out, text, want)
		}
	case <-harness.Context(s.t).Done():
		s.t.Fatalf("it does not end:\n%s%s", &s.out, &s.err)
	}
	s.leftNothing()
}

// leftNothing checks that the command left no file behind.
func (s *session) leftNothing() {
	s.t.Helper()
	entries, err := os.ReadDir(s.temporary)
	if err != nil {
		s.t.Fatal(err)
	}
	for _, e := range entries {
		if e.Name() == "kubeconfig" || strings.HasPrefix(e.Name(), "gatehouse-") || strings.HasPrefix(e.Name(), "go-build") {
			s.t.Errorf("%s is left", e.Name())
		}
	}
}

// create creates a pod with an image.
func create(ctx context.Context, c kubernetes.Interface, image string) error {
	_, err := c.CoreV1().Pods("default").Create(ctx, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "web-"},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "web", Image: image}}},
	}, metav1.CreateOptions{})
	return err
}

// runtimes maps the languages of --init to the programs that they need.
var runtimes = map[string]string{"go": "go", "python": "python3", "js": "node"}

// initialized creates a webhook project, and returns its directory and the command that runs it.
func initialized(t *testing.T, language string) (dir string, command []string) {
	t.Helper()
	if _, err := exec.LookPath(runtimes[language]); err != nil {
		t.Skipf("this machine has no %s", runtimes[language])
	}
	dir = filepath.Join(t.TempDir(), "hook")
	out, err := exec.Command(harness.Binary(t), "dev", "--init", dir, "--lang", language).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	run := regexp.MustCompile(` -- (.*)\n`).FindStringSubmatch(string(out))
	return dir, strings.Fields(run[1])
}

// clientConfig returns the administrator's configuration.
func clientConfig(t *testing.T, s *session) *rest.Config {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", s.kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	return config
}

// apply creates a registration.
func apply(t *testing.T, admin dynamic.Interface, object map[string]any) {
	t.Helper()
	resource := schema.GroupVersionResource{Group: "admissionregistration.k8s.io", Version: "v1", Resource: "validatingwebhookconfigurations"}
	if _, err := admin.Resource(resource).Create(t.Context(), &unstructured.Unstructured{Object: object}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// own returns a CA bundle of another user, encoded for a registration.
var own = func() func(*testing.T) string {
	var once sync.Once
	var bundle string
	return func(t *testing.T) string {
		once.Do(func() {
			authority, err := selfsigned.Write(t.TempDir(), "other.example.com")
			if err != nil {
				t.Fatal(err)
			}
			bundle = base64.StdEncoding.EncodeToString(authority)
		})
		return bundle
	}
}()
