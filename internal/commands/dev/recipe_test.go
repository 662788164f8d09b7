package dev

import (
	"encoding/base64"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gatehouse-dev/gatehouse/internal/kit/selfsigned"
	"github.com/gatehouse-dev/gatehouse/test/harness"
)

// 'go run' is split into a build, which builds as 'go run' does, and a program; other commands run unchanged.
func TestRecipes(t *testing.T) {
	file := filepath.Join(t.TempDir(), "env")
	if err := os.WriteFile(file, []byte("GOFLAGS=-ldflags=-X=a.b=c\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("GOFLAGS", "")
	t.Setenv("GOENV", file)
	if flags := asRun("go", nil); !slices.Equal(flags, []string{"-buildvcs=false"}) {
		t.Errorf("with flags by 'go env -w': %q", flags)
	}

	for _, tc := range []struct{ command, build, flags, wantBuild, wantPackage, wantRun, fails string }{
		{command: "node webhook.js", wantRun: "node webhook.js"},
		{command: "go run . --port 1", wantBuild: "go build -buildvcs=false -ldflags=-s -w", wantPackage: ".", wantRun: "--port 1"},
		{command: "/usr/bin/go run -tags a,b -race ./cmd --v", wantBuild: "/usr/bin/go build -tags a,b -race -buildvcs=false -ldflags=-s -w", wantPackage: "./cmd", wantRun: "--v"},
		{command: "go run -ldflags=-v main.go other.go x", wantBuild: "go build -ldflags=-v -buildvcs=false", wantPackage: "main.go other.go", wantRun: "x"},
		{command: "go run -buildvcs -ldflags -v . x", wantBuild: "go build -buildvcs -ldflags -v", wantPackage: ".", wantRun: "x"},
		{command: "go run . x", flags: "-trimpath '-ldflags=-X a=b'", wantBuild: "go build -buildvcs=false", wantPackage: ".", wantRun: "x"},
		{command: "go test ./...", wantRun: "go test ./..."},
		{command: "./manager", build: "make", wantBuild: "/bin/sh -c make", wantRun: "./manager"},
		{command: "go run -tags", fails: "name the package"},
		{command: "go run -exec sudo .", fails: "--build"},
	} {
		t.Setenv("GOENV", "off")
		t.Setenv("GOFLAGS", tc.flags)
		r, err := newRecipe(strings.Fields(tc.command), tc.build)
		if tc.fails != "" {
			if err == nil || !strings.Contains(err.Error(), tc.fails) {
				t.Errorf("%s: got %v", tc.command, err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", tc.command, err)
			continue
		}
		for what, pair := range map[string][2]string{
			"build": {strings.Join(r.build, " "), tc.wantBuild}, "package": {strings.Join(r.pkg, " "), tc.wantPackage}, "run": {strings.Join(r.run, " "), tc.wantRun},
		} {
			if pair[0] != pair[1] {
				t.Errorf("%s: %s: got %q, want %q", tc.command, what, pair[0], pair[1])
			}
		}
	}
}

// S33.3: names in braces are replaced in a command line; other uses of $, which a script may need, stay.
func TestCommandsAreFilled(t *testing.T) {
	r := &recipe{base: []string{"--port=${PORT}", "$PORT ${OTHER} $$ $(x) a$"}}
	r.fill(map[string]string{"PORT": "1"}, []string{"${PORT}"})
	r.fill(map[string]string{"PORT": "1"}, []string{"${PORT}"})
	if want := []string{"--port=1", "$PORT ${OTHER} $$ $(x) a$", "${PORT}"}; !slices.Equal(r.run, want) {
		t.Errorf("got %q", r.run)
	}
}

// A change of a source file is reported, also in new directories; changes of other files are not.
func TestWatch(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	if err := os.Mkdir("node_modules", 0o755); err != nil {
		t.Fatal(err)
	}
	changes, err := watchSource(t.Context(), goFiles)
	if err != nil {
		t.Fatal(err)
	}
	write := func(name string) {
		t.Helper()
		if err := os.WriteFile(name, nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	next := func() string {
		select {
		case name := <-changes:
			return name
		case <-harness.Context(t).Done():
			return "nothing"
		}
	}
	for _, other := range []string{"a_test.go", "README.md", "node_modules/a.go"} {
		write(other)
	}
	write("main.go")
	if got := next(); got != "main.go" {
		t.Errorf("got %s", got)
	}
	if err := os.Mkdir("api", 0o755); err != nil {
		t.Fatal(err)
	}
	harness.Eventually(t, "a change in a new directory", func() error {
		write(filepath.Join("api", "types.go"))
		select {
		case got := <-changes:
			if got != filepath.Join("api", "types.go") {
				t.Errorf("got %s", got)
			}
			return nil
		case <-time.After(2 * settle):
			return errors.New("not yet")
		}
	})
}

// S33.6: a change ends a Go build that it makes obsolete.
func TestAChangeEndsABuild(t *testing.T) {
	dir := t.TempDir()
	g, err := newGuard(nil, dir)
	if err != nil {
		t.Fatal(err)
	}
	defer g.end()
	r := &recipe{build: []string{"/bin/sh", "-c", "exec sleep 600"}, pkg: []string{"."}}
	changed := func() bool { return true }
	for range mostEnded {
		if run, err := r.make(t.Context(), g, os.Environ(), dir, io.Discard, changed); !errors.Is(err, errInterrupted) {
			t.Errorf("got %q, %v", run, err)
		}
	}
	// With changes all the time, a build ends in the end.
	r.build[2] = "sleep 1"
	if _, err := r.make(t.Context(), g, os.Environ(), dir, io.Discard, changed); err != nil {
		t.Errorf("after %d ended builds: %v", mostEnded, err)
	}
}

// S33.8: the temporary files of a Go build that is killed are in the directory of the session.
func TestBuildsHaveTheirTemporaryFilesInTheSession(t *testing.T) {
	dir, env := t.TempDir(), append(os.Environ(), "GOTMPDIR=/elsewhere")
	var output strings.Builder
	r := &recipe{build: []string{"/bin/sh", "-c", `mkdir "$GOTMPDIR/go-build" && echo "$GOTMPDIR/go-build"`}}
	if _, err := r.make(t.Context(), &guard{pipe: discard{}, groups: map[int]bool{}}, env, dir, &output, nil); err != nil {
		t.Fatal(err)
	}
	made := strings.TrimSpace(output.String())
	if filepath.Dir(made) != filepath.Join(dir, builds) {
		t.Errorf("they are in %s", made)
	}
	r.clean(dir)
	if _, err := os.Stat(made); err == nil {
		t.Errorf("%s is left", made)
	}
}

// discard is the pipe of no guard.
type discard struct{}

func (discard) Write(data []byte) (int, error) { return len(data), nil }
func (discard) Close() error                   { return nil }

// S33.8: the guard does not wait for an ended process that its parent has not reaped.
func TestTheGuardLeavesZombies(t *testing.T) {
	defer func(before string) { groupsEnd = before }(groupsEnd)
	groupsEnd = "100000"
	g, err := newGuard(nil, filepath.Join(t.TempDir(), "none"))
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("true")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	g.set(cmd.Process.Pid, true)
	g.pipe.Close()
	ended := make(chan error, 1)
	go func() { ended <- g.cmd.Wait() }()
	select {
	case <-ended:
	case <-harness.Context(t).Done():
		t.Error("it waits")
		_ = g.cmd.Process.Kill()
	}
	_ = cmd.Wait()
}

// After the session has ended, the guard kills its processes and removes its files.
func TestTheGuardCleansUp(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "files")
	if err := os.MkdirAll(filepath.Join(dir, "sub"), 0o755); err != nil {
		t.Fatal(err)
	}
	defer func(before string) { groupsEnd = before }(groupsEnd)
	groupsEnd = "1"
	g, err := newGuard(nil, dir)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("sleep", "1000")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	g.set(cmd.Process.Pid, true)
	g.pipe.Close()
	_ = cmd.Wait()
	if status := cmd.ProcessState.Sys().(syscall.WaitStatus); status.Signal() != syscall.SIGKILL {
		t.Errorf("it ended with %v", cmd.ProcessState)
	}
	if err := g.cmd.Wait(); err != nil && !errors.As(err, new(*exec.ExitError)) {
		t.Error(err)
	}
	if _, err := os.Stat(dir); err == nil {
		t.Error("the files are left")
	}
}

// S33.1: the port comes from the command line, the manifests, or controller-runtime's default.
func TestPorts(t *testing.T) {
	for _, tc := range []struct {
		name, manifests, service string
		port, want               int
		services                 string
	}{
		{name: "nothing"},
		{name: "a service without an object", manifests: hook("service: {namespace: a, name: b}"), want: 9443, services: "a/b"},
		{name: "a flag", manifests: hook("service: {namespace: a, name: b}"), port: 1234, want: 1234, services: "a/b"},
		{name: "a service", manifests: hook("service: {namespace: a, name: b}") + serviceOf("8443"), want: 8443, services: "a/b"},
		{name: "a service without a namespace", manifests: hook("service: {namespace: default, name: b}") + without(serviceOf("8443")), want: 8443, services: "default/b"},
		{name: "a name without a namespace", manifests: hook("service: {namespace: default, name: b}") + without(serviceOf("hooks")+pods), want: 10250, services: "default/b"},
		{name: "a name", manifests: hook("service: {namespace: a, name: b}") + serviceOf("hooks") + pods, want: 10250, services: "a/b"},
		{name: "a URL", manifests: hook(`url: "https://localhost:7443/x"`), want: 7443},
		{name: "another URL", manifests: hook(`url: "https://example.com:7443/x"`)},
		{name: "a service of the command line", service: "c/d", want: 9443, services: "c/d"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p, err := readProject([]string{"-"}, nil, nil, []byte(tc.manifests), nil)
			if err != nil {
				t.Fatal(err)
			}
			if err := p.choose(tc.service, tc.port, true); err != nil {
				t.Fatal(err)
			}
			var services []string
			for _, s := range p.services() {
				services = append(services, s.String())
			}
			if p.targets[0].port != tc.want || !slices.Equal(services, strings.Fields(tc.services)) {
				t.Errorf("got port %d, services %v", p.targets[0].port, services)
			}
		})
	}
}

func hook(to string) string {
	return "apiVersion: admissionregistration.k8s.io/v1\nkind: MutatingWebhookConfiguration\nmetadata: {name: a}\nwebhooks: [{name: a.example.com, clientConfig: {" + to + "}}]\n---\n"
}

func serviceOf(target string) string {
	return "apiVersion: v1\nkind: Service\nmetadata: {namespace: a, name: b}\nspec: {selector: {app: b}, ports: [{port: 443, targetPort: " + target + "}, {port: 80, targetPort: 80}]}\n---\n"
}

// without removes the namespaces from manifests.
func without(manifests string) string { return strings.ReplaceAll(manifests, "namespace: a, ", "") }

const pods = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {namespace: a, name: b}\nspec: {template: {metadata: {labels: {app: b, tier: z}}, spec: {containers: [{name: b, ports: [{name: hooks, containerPort: 10250}]}]}}}\n"

// prepared returns a project of manifests with the certificate of a session, and the directory of the certificate.
func prepared(t *testing.T, manifests string) (p *project, dir string) {
	t.Helper()
	p, err := readProject([]string{"-"}, nil, nil, []byte(manifests), nil)
	if err == nil {
		err = p.choose("", 0, true)
	}
	if err != nil {
		t.Fatal(err)
	}
	dir = t.TempDir()
	authority, err := selfsigned.Write(dir, p.hosts()...)
	if err == nil {
		err = p.prepare(authority, certificateIn(dir))
	}
	if err != nil {
		t.Fatal(err)
	}
	return p, dir
}

// A certificate that the program issues itself, and stores in a secret that its pods mount, is written where the
// program looks for it. Other secrets are not.
func TestSecretsAreMounted(t *testing.T) {
	const mounting = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {namespace: a, name: b}\nspec: {template: {metadata: {labels: {app: b}}, " +
		"spec: {volumes: [{name: one, secret: {secretName: own}}, {name: two, secret: {secretName: metrics}}]}}}\n"
	p, dir := prepared(t, hook("service: {namespace: a, name: b}")+serviceOf("8443")+mounting)
	for _, tc := range []struct {
		namespace, name, host string
		mounted               bool
	}{
		{"a", "other", "b.a.svc", false},
		{"other", "own", "b.a.svc", false},
		{"a", "metrics", "metrics.a.svc", false},
		{"a", "own", "b.a.svc", true},
	} {
		made := t.TempDir()
		authority, err := selfsigned.Write(made, tc.host)
		if err != nil {
			t.Fatal(err)
		}
		if err := mount(secretOf(tc.namespace, tc.name, certificateIn(made)), []*program{{target: p.targets[0], files: dir}}); err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(filepath.Join(dir, selfsigned.CertificateFile))
		if err != nil {
			t.Fatal(err)
		}
		if mounted := strings.TrimSpace(string(got)) == strings.TrimSpace(string(authority)); mounted != tc.mounted {
			t.Errorf("%s/%s for %s: mounted %t", tc.namespace, tc.name, tc.host, mounted)
		}
	}
}

// S33.2: a chart that issues a certificate puts it into a secret, and its CA into the registration. The program and
// readers of the secret get the session's certificate instead, which the registration trusts.
func TestSecretsOfChartsHaveTheCertificateOfTheSession(t *testing.T) {
	chart := t.TempDir()
	if _, err := selfsigned.Write(chart, "b.a.svc"); err != nil {
		t.Fatal(err)
	}
	for _, field := range []string{"data", "stringData"} {
		t.Run(field, func(t *testing.T) {
			const mounting = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {namespace: a, name: b}\nspec: {template: {metadata: {labels: {app: b}}, " +
				"spec: {volumes: [{name: one, secret: {secretName: own}}]}}}\n---\n"
			made := secretOf("a", "own", certificateIn(chart))
			if field == "stringData" {
				values := map[string]any{}
				for file, data := range made.Object["data"].(map[string]any) {
					plain, err := base64.StdEncoding.DecodeString(data.(string))
					if err != nil {
						t.Fatal(err)
					}
					values[file] = string(plain)
				}
				delete(made.Object, "data")
				made.Object["stringData"] = values
			}
			secret, err := made.MarshalJSON()
			if err != nil {
				t.Fatal(err)
			}
			p, dir := prepared(t, hook("caBundle: Cg==, service: {namespace: a, name: b}")+serviceOf("8443")+mounting+string(secret))
			want := secretOf("a", "own", certificateIn(dir))
			i := slices.IndexFunc(p.objects, func(u *unstructured.Unstructured) bool { return u.GetKind() == "Secret" })
			if got := p.objects[i].Object; !reflect.DeepEqual(got["data"], want.Object["data"]) || text(got, "stringData", selfsigned.KeyFile) != "" {
				t.Errorf("the secret has %v", got)
			}
		})
	}
}
