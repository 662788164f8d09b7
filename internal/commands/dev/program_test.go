package dev

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/gatehouse-dev/gatehouse/internal/kit/selfsigned"
)

// deployed is a webhook whose Deployment has arguments, an environment and volumes.
const deployed = `
apiVersion: v1
kind: Service
metadata: {namespace: shop, name: hook}
spec: {selector: {app: hook}, ports: [{port: 443, targetPort: hooks}]}
---
apiVersion: v1
kind: ConfigMap
metadata: {namespace: shop, name: settings}
data: {config.yaml: "certDir: /certs\nurl: https://example.com/certs\n"}
---
apiVersion: v1
kind: Secret
metadata: {namespace: shop, name: password}
stringData: {password: hidden}
---
apiVersion: apps/v1
kind: Deployment
metadata: {namespace: shop, name: hook}
spec:
  replicas: 3
  selector: {matchLabels: {app: hook}}
  template:
    metadata: {labels: {app: hook}}
    spec:
      serviceAccountName: hook
      containers:
      - name: manager
        image: hook:1
        ports: [{name: hooks, containerPort: 10250}]
        args: [--config=/etc/hook/config.yaml, --leader-elect, --password=$(PASSWORD)]
        env:
        - {name: PASSWORD, valueFrom: {secretKeyRef: {name: password, key: password}}}
        - {name: POD_NAME, valueFrom: {fieldRef: {fieldPath: metadata.name}}}
        - {name: KEY, value: /certs/server.key}
        - {name: CERT_DIR, value: own}
        volumeMounts: [{name: certs, mountPath: /certs}, {name: config, mountPath: /etc/hook}, {name: tmp, mountPath: /tmp/cache}]
      volumes: [{name: certs, secret: {secretName: made-by-a-job}}, {name: config, configMap: {name: settings}}, {name: tmp, emptyDir: {}}]
---
`

// programsOf returns the programs of manifests in directories of the test, with the files of their containers.
func programsOf(t *testing.T, o Options, manifests string) (*session, []string) {
	t.Helper()
	o.Paths, o.Stdin = []string{"-"}, strings.NewReader(manifests)
	o.Output = func(string) io.Writer { return io.Discard }
	var said []string
	o.Say = func(format string, args ...any) { said = append(said, strings.TrimSpace(fmt.Sprintf(format, args...))) }
	s := &session{Options: o, said: map[string]bool{}, dir: t.TempDir(), piped: []byte(manifests)}
	var err error
	if s.project, err = s.read(t.Context()); err != nil {
		t.Fatal(err)
	}
	if s.programs, err = s.choosePrograms(); err != nil {
		t.Fatal(err)
	}
	authority, err := s.certify()
	if err == nil {
		err = s.project.prepare(authority, certificateIn(s.programs[0].files))
	}
	if err != nil {
		t.Fatal(err)
	}
	s.content.add(s.project.objects)
	for _, p := range s.programs {
		if err := s.furnish(p, "/kubeconfig", func(string) ([]byte, error) { return []byte("token"), nil }); err != nil {
			t.Fatal(err)
		}
		if p.workload != nil {
			s.sayAssumed(p)
		}
	}
	return s, said
}

// S33.10, S33.11: a given program gets the arguments, the environment and the files of the container, with the paths of
// this machine. The assumptions are printed without values of Secrets.
func TestAProgramIsDescribedByItsContainer(t *testing.T) {
	s, said := programsOf(t, Options{Command: []string{"/bin/true", "--own"}}, hook("service: {namespace: shop, name: hook}")+deployed)
	p := s.programs[0]
	if p.port != 10250 {
		t.Errorf("port %d", p.port)
	}
	config := filepath.Join(p.root, "etc/hook/config.yaml")
	if want := []string{"/bin/true", "--own", "--config=" + config, "--password=hidden"}; !slices.Equal(p.recipe.run, want) {
		t.Errorf("it runs %q, want %q", p.recipe.run, want)
	}
	text, err := os.ReadFile(config)
	if want := "certDir: " + filepath.Join(p.root, "certs") + "\nurl: https://example.com/certs\n"; err != nil || string(text) != want {
		t.Errorf("the configuration is %q, %v, want %q", text, err, want)
	}
	for name, want := range map[string]string{"PASSWORD": "hidden", "KEY": filepath.Join(p.root, "certs/server.key"), "KUBECONFIG": "/kubeconfig", "TMPDIR": p.temporaries, "PORT": "10250", "CERT_DIR": "own"} {
		if !slices.Contains(p.env, name+"="+want) {
			t.Errorf("the environment has no %s=%s", name, want)
		}
	}
	if slices.Contains(p.env, "CERT_DIR="+p.files) {
		t.Errorf("$CERT_DIR is not the container's")
	}
	if !slices.ContainsFunc(p.env, func(e string) bool { return strings.HasPrefix(e, "POD_NAME=hook-") }) {
		t.Errorf("$POD_NAME is not the name of the pod")
	}
	for file, own := range map[string]string{"tls.crt": selfsigned.CertificateFile, "server.key": selfsigned.KeyFile, "ca": selfsigned.AuthorityFile} {
		got, err := os.ReadFile(filepath.Join(p.root, "certs", file))
		want, _ := os.ReadFile(filepath.Join(p.files, own))
		if err != nil || strings.TrimSpace(string(got)) != strings.TrimSpace(string(want)) {
			t.Errorf("/certs/%s is not the session's %s: %v", file, own, err)
		}
	}
	for file, want := range map[string]string{"token": "token", "namespace": "shop"} {
		if got, err := os.ReadFile(filepath.Join(p.root, "var/run/secrets/kubernetes.io/serviceaccount", file)); err != nil || string(got) != want {
			t.Errorf("the %s of the service account is %q, %v", file, got, err)
		}
	}
	if info, err := os.Stat(filepath.Join(p.temporaries, "cache")); err != nil || !info.IsDir() {
		t.Errorf("/tmp/cache: %v", err)
	}
	all := strings.Join(said, "\n")
	for _, want := range []string{
		"Deployment shop/hook runs as this program:", "program      /bin/true --own --config=" + config + " --password=$(PASSWORD)", "port         10250",
		"environment  PASSWORD (Secret password, key password), POD_NAME (the field metadata.name), KEY", "files        /certs is " + filepath.Join(p.root, "certs") + ": Secret made-by-a-job",
		"replaced     /certs in /etc/hook/config.yaml, $KEY", "replaced     /etc/hook in --config", "left out     --leader-elect: one process runs here",
	} {
		if !strings.Contains(all, want) {
			t.Errorf("it does not say %q:\n%s", want, all)
		}
	}
	if strings.Contains(all, "hidden") {
		t.Errorf("it prints a value of a Secret:\n%s", all)
	}
	// A kubelet writes changed volumes, too.
	changed := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "data": map[string]any{"config.yaml": "certDir: /certs/new\n"}}}
	changed.SetNamespace("shop")
	changed.SetName("settings")
	s.refresh(t.Context(), changed)
	if text, err := os.ReadFile(config); err != nil || string(text) != "certDir: "+filepath.Join(p.root, "certs/new")+"\n" {
		t.Errorf("the changed configuration is %q, %v", text, err)
	}
}

// S33.11: arguments that a given program has already, or cannot have, are left out.
func TestArgumentsForAGivenProgram(t *testing.T) {
	for _, tc := range []struct{ command, entry, args, want string }{
		{"./manager", "", "--a=1 --b 2", "--a=1 --b 2"},
		{"./manager --a=3", "/manager --c", "--a=1 --b 2", "--c --b 2"},
		{"./manager -b", "", "--a --b 2 --c", "--a --c"},
		{"sh -c x", "", "--a", ""},
		{"./manager", "/bin/sh -c", "exec manager", ""},
		{"./app", "python3 app.py", "--a", "--a"},
	} {
		s, _ := programsOf(t, Options{Command: []string{"/bin/true"}}, hook("service: {namespace: shop, name: hook}")+deployed)
		c := s.programs[0].container
		c.Command, c.Args = strings.Fields(tc.entry), strings.Fields(tc.args)
		if got := strings.Join(forProgram(strings.Fields(tc.command), c), " "); got != tc.want {
			t.Errorf("%s with %s of %s: got %q, want %q", tc.command, tc.args, tc.entry, got, tc.want)
		}
	}
}

// S33.1: each workload behind a service of the registrations is a program; services of one workload are one program. With
// a given command, a second program is an error.
func TestSeveralPrograms(t *testing.T) {
	documents := strings.Split(deployed, "---\n")
	second := strings.NewReplacer("name: hooks", "name: hooks", "name: hook", "name: other", "app: hook", "app: other", "containerPort: 10250", "containerPort: 10251").
		Replace(documents[0] + "---\n" + documents[3] + "---\n")
	alias := "apiVersion: v1\nkind: Service\nmetadata: {namespace: shop, name: alias}\nspec: {selector: {app: hook}, ports: [{port: 443, targetPort: hooks}]}\n---\n"
	registrations := hook("service: {namespace: shop, name: hook}") + strings.Replace(hook("service: {namespace: shop, name: other}"), "name: a}", "name: b}", 1) +
		strings.Replace(hook("service: {namespace: shop, name: alias}"), "name: a}", "name: c}", 1)
	settings := []Program{{Service: "shop/hook", Command: []string{"/bin/true"}}, {Service: "shop/other", Command: []string{"/bin/false"}, Arguments: []string{"--x"}}}
	s, _ := programsOf(t, Options{Programs: settings}, registrations+deployed+second+alias)
	var got []string
	for _, p := range s.programs {
		var services []string
		for _, service := range p.services {
			services = append(services, service.Name)
		}
		got = append(got, strings.Join(append(services, p.address(), p.recipe.run[0]), " "))
	}
	if want := []string{"hook alias localhost:10250 /bin/true", "other localhost:10251 /bin/false"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if run := s.programs[1].recipe.run; !slices.Equal(run, []string{"/bin/false", "--x"}) {
		t.Errorf("the second program runs %q", run)
	}
	s = &session{Options: Options{Paths: []string{"-"}, Command: []string{"/bin/true"}}, piped: []byte(registrations + deployed + second)}
	if _, err := s.read(t.Context()); err == nil || !strings.Contains(err.Error(), "name several services (shop/hook, shop/other, shop/alias): say with --service") {
		t.Errorf("with a command: %v", err)
	}
	t.Chdir(t.TempDir())
	s = &session{Options: Options{Paths: []string{"-"}}, piped: []byte(registrations + deployed + second + alias)}
	var err error
	if s.project, err = s.read(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := s.choosePrograms(); err == nil || !strings.HasSuffix(err.Error(), "; or run one program, by --service with its service: shop/hook, shop/other") {
		t.Errorf("without source: %v", err)
	}
	// A chart may have a program of another project.
	s, _ = programsOf(t, Options{Programs: settings[:1]}, registrations+deployed+second+alias)
	want := "Left out: the program of Deployment shop/other: the manifests name the image hook:1, and no Dockerfile is here. Calls of its webhooks fail"
	if remarks := strings.Join(s.project.remarks, "\n"); len(s.programs) != 1 || s.programs[0].services[0].Name != "hook" || !strings.Contains(remarks, want) {
		t.Errorf("%d programs, and %q, want %q", len(s.programs), remarks, want)
	}
	if p, err := s.read(t.Context()); err != nil || len(p.targets) != 1 {
		t.Errorf("changed manifests have the programs %v, %v", p.targets, err)
	}
}

// S33.12: placeholders of templates in a mounted secret, and a certificate for the service under any name, become the
// session's certificate; other secrets stay.
func TestPlaceholdersBecomeTheCertificate(t *testing.T) {
	secret := func(data string) string {
		return "apiVersion: v1\nkind: Secret\nmetadata: {namespace: shop, name: made-by-a-job}\n" + data + "\n---\n"
	}
	pair := func(host string) string {
		dir := t.TempDir()
		if _, err := selfsigned.Write(dir, host); err != nil {
			t.Fatal(err)
		}
		var fields []string
		for name, file := range map[string]string{"webhook.crt": selfsigned.CertificateFile, "webhook.key": selfsigned.KeyFile} {
			content, err := os.ReadFile(filepath.Join(dir, file))
			if err != nil {
				t.Fatal(err)
			}
			fields = append(fields, name+": "+base64.StdEncoding.EncodeToString(content))
		}
		return "data: {" + strings.Join(fields, ", ") + "}"
	}
	for name, tc := range map[string]struct {
		data string
		want bool
	}{
		"for the service": {pair("hook.shop.svc"), true},
		"for another":     {pair("other.shop.svc"), false},
		"a placeholder":   {"data: {webhook.crt: YOUR CERTIFICATE, webhook.key: YOUR KEY}", true},
		"another":         {"stringData: {webhook.crt: '${CERT}', webhook.key: '${KEY}'}", true},
		"no certificate":  {"stringData: {config: a}", false},
	} {
		s, _ := programsOf(t, Options{Command: []string{"/bin/true"}}, hook("service: {namespace: shop, name: hook}")+deployed+secret(tc.data))
		i := slices.IndexFunc(s.project.objects, func(u *unstructured.Unstructured) bool { return u.GetName() == "made-by-a-job" })
		got, _ := base64.StdEncoding.DecodeString(text(s.project.objects[i].Object, "data", "webhook.key"))
		key, err := os.ReadFile(filepath.Join(s.programs[0].files, selfsigned.KeyFile))
		if err != nil || (strings.TrimSpace(string(key)) == string(got)) != tc.want {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
}

// S33.13: a program that ends without an error starts again without a build, but not for ever; after an error it does not.
func TestAProgramThatEndsStartsAgain(t *testing.T) {
	for name, tc := range map[string]struct {
		script string
		starts int
		want   string
	}{
		"an error later": {`echo >>"$0"; [ "$(wc -l <"$0")" -lt 3 ] || exit 7`, 3, "the program ended: exit status 7"},
		"no error":       {`echo >>"$0"`, mostRestarts + 1, "the program ended: exit status 0"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			p, err := newProgram(&target{}, Program{Build: "echo >>" + filepath.Join(dir, "builds"), Command: []string{"/bin/sh", "-c", tc.script, filepath.Join(dir, "starts")}}, nil)
			if err != nil {
				t.Fatal(err)
			}
			guard, err := newGuard(nil, dir)
			if err != nil {
				t.Fatal(err)
			}
			defer guard.end()
			p.gate, p.described, p.output = gateOf(p, true), &described{}, io.Discard
			s := &session{Options: Options{Say: func(string, ...any) {}}, said: map[string]bool{}, gone: make(chan ended), guard: guard, live: &live{}, programs: []*program{p}}
			s.served = func(context.Context) error { return nil }
			if err := s.loop(t.Context(), nil); err == nil || err.Error() != tc.want {
				t.Errorf("got %v, want %s", err, tc.want)
			}
			if starts, err := os.ReadFile(filepath.Join(dir, "starts")); err != nil || len(starts) != tc.starts {
				t.Errorf("it started %d times, want %d: %v", len(starts), tc.starts, err)
			}
			if builds, err := os.ReadFile(filepath.Join(dir, "builds")); err != nil || len(builds) != 1 {
				t.Errorf("it was built %d times, want once: %v", len(builds), err)
			}
		})
	}
}

// S33.12: a program may have its certificate in variables. A Secret with other variables is not made.
func TestACertificateInVariables(t *testing.T) {
	inVariables := strings.Replace(deployed, "env:", `env:
        - {name: CERT, valueFrom: {secretKeyRef: {name: hook-tls, key: tls.crt}}}
        - {name: CERT_KEY, valueFrom: {secretKeyRef: {name: hook-tls, key: tls.key}}}
        - {name: API_KEY, valueFrom: {secretKeyRef: {name: other, key: api-key}}}`, 1)
	s, said := programsOf(t, Options{Command: []string{"/bin/true"}}, hook("service: {namespace: shop, name: hook}")+inVariables)
	p := s.programs[0]
	for name, file := range map[string]string{"CERT": selfsigned.CertificateFile, "CERT_KEY": selfsigned.KeyFile} {
		content, err := os.ReadFile(filepath.Join(p.files, file))
		if err != nil || !slices.Contains(p.env, name+"="+strings.TrimSpace(string(content))) {
			t.Errorf("$%s is not %s: %v", name, file, err)
		}
	}
	if all := strings.Join(said, "\n"); !strings.Contains(all, "left out     $API_KEY: Secret other, key api-key is not in the manifests") {
		t.Errorf("it says:\n%s", all)
	}
}

// S33.18: where the system permits it, the program finds its files at the paths of the container, so that no path is
// replaced. /tmp itself, the files of the session and the working directory stay visible.
func TestFilesAreAtTheirPaths(t *testing.T) {
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	mounts := "mountPath: /certs/hook}, {name: tmp, mountPath: /tmp}, {name: tmp, mountPath: " + filepath.Dir(here) + "}"
	s, _ := programsOf(t, Options{Command: []string{"/bin/true"}}, hook("service: {namespace: shop, name: hook}")+strings.Replace(deployed, "mountPath: /etc/hook}", mounts, 1))
	p := s.programs[0]
	p.placing, p.placingTmp = true, true
	d, err := p.describe(s.content.of("shop"), nil)
	if err != nil {
		t.Fatal(err)
	}
	want, wantHere := []string{"/certs", "/tmp/cache"}, []string{filepath.Join(p.root, "certs"), filepath.Join(p.temporaries, "cache")}
	if !slices.Equal(d.places.There, want) || !slices.Equal(d.places.Here, wantHere) {
		t.Errorf("%q are at %q, want %q", d.places.Here, d.places.There, want)
	}
	if text, err := os.ReadFile(filepath.Join(p.root, "certs/hook/config.yaml")); err != nil || !strings.Contains(string(text), "certDir: /certs\n") {
		t.Errorf("the configuration is %q, %v", text, err)
	}
	p.set(d, nil)
	if !slices.Contains(p.env, "KEY=/certs/server.key") {
		t.Errorf("a path in the environment was replaced: %q", p.env)
	}
	p.described = d
	s.said = map[string]bool{}
	var said []string
	s.Say = func(format string, args ...any) { said = append(said, strings.TrimSpace(fmt.Sprintf(format, args...))) }
	s.sayAssumed(p)
	if all := strings.Join(said, "\n"); !strings.Contains(all, "files        /certs: Secret made-by-a-job") || strings.Contains(all, "unreachable") {
		t.Errorf("it says:\n%s", all)
	}
	if p.placingTmp = false; p.placed("/tmp/cache") {
		t.Error("a file below /tmp is placed where the system does not permit it")
	}
	if p.placed("/") {
		t.Error("a volume hides the file system of this machine")
	}
}

// S33.3: the variables by which a pod finds its server name the session's server, or none: this process may run in a pod of
// another cluster.
func TestTheServerOfAnotherPodIsLeftOut(t *testing.T) {
	t.Setenv("KUBERNETES_SERVICE_HOST", "192.0.2.1")
	t.Setenv("KUBERNETES_SERVICE_PORT_HTTPS", "443")
	s, _ := programsOf(t, Options{Command: []string{"/bin/true"}}, hook("service: {namespace: shop, name: hook}")+deployed)
	for _, v := range s.programs[0].env {
		if strings.HasPrefix(v, inCluster) {
			t.Errorf("the program has $%s", v)
		}
	}
}

// S33.3: the file of --kubeconfig-out is new: a link at its place, which another user may have made, is not followed.
func TestTheKubeconfigIsANewFile(t *testing.T) {
	dir := t.TempDir()
	from, to, link := filepath.Join(dir, "from"), filepath.Join(dir, "to"), filepath.Join(dir, "link")
	err := errors.Join(os.WriteFile(from, []byte("secret"), 0o600), os.Symlink(to, link))
	if err == nil {
		err = copyNew(link, from)
	}
	if _, found := os.Stat(to); !errors.Is(err, fs.ErrExist) || found == nil {
		t.Errorf("through a link: %v, %v", err, found)
	}
	err = copyNew(to, from)
	if info, found := os.Stat(to); err != nil || found != nil || info.Mode() != 0o600 || info.Size() != 6 {
		t.Errorf("%v, %v, %v", err, found, info)
	}
}

// S33.7: a changed Deployment without containers changes no program.
func TestADeploymentWithoutContainers(t *testing.T) {
	empty := strings.Replace(deployed[:strings.Index(deployed, "      containers:")], "replicas: 3", "replicas: 4", 1) + "      containers: []\n---\n"
	registration := hook("service: {namespace: shop, name: hook}")
	for _, before := range []string{deployed, empty} {
		s, _ := programsOf(t, Options{Command: []string{"/bin/true"}}, registration+before)
		s.piped = []byte(registration + empty)
		var err error
		if s.project, err = s.read(t.Context()); err != nil {
			t.Fatal(err)
		}
		if restart, err := s.redescribe(t.Context()); err != nil || restart {
			t.Errorf("restart %t, %v", restart, err)
		}
	}
}

// S33.18: a volume in a directory of the image with files of the project is in the directory of the project, too, since
// the program may name it relative to its working directory.
func TestVolumesInTheProject(t *testing.T) {
	t.Chdir(t.TempDir())
	for name, text := range map[string]string{"Dockerfile": "FROM alpine\nWORKDIR /app\nCOPY . /app\nCMD [\"sh\", \"run.sh\"]\n", "run.sh": "cat ./certs/tls.crt\n"} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for mounted, want := range map[string][]string{"/app/certs": {"/app/certs", filepath.Join(here, "certs")}, "/app": {"/app"}, "/other": {"/other"}} {
		deployed := strings.NewReplacer("mountPath: /certs}", "mountPath: "+mounted+"}", "mountPath: /etc/hook}", "mountPath: "+mounted+"/hook}").Replace(deployed)
		s, _ := programsOf(t, Options{}, hook("service: {namespace: shop, name: hook}")+deployed)
		p := s.programs[0]
		p.placing = true
		d, err := p.describe(s.content.of("shop"), nil)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(d.places.There, want) {
			t.Errorf("a volume at %s is at %q, want %q", mounted, d.places.There, want)
		}
	}
}

// S33.14: the pod of a Deployment has the names and owners that controllers expect, and one replica.
func TestTheOwnPod(t *testing.T) {
	s, _ := programsOf(t, Options{Command: []string{"/bin/true"}}, hook("service: {namespace: shop, name: hook}")+deployed)
	p := s.programs[0]
	p.template.Spec.ServiceAccountName, p.template.Spec.DeprecatedServiceAccount = "", "hook"
	pod, owners := p.ownPod()
	again, _ := p.ownPod()
	hash := pod.Labels[hashLabel]
	if hash == "" || pod.Name != again.Name || pod.Spec.ServiceAccountName != "hook" || pod.Labels["app"] != "hook" || pod.Spec.NodeName != ownNode {
		t.Errorf("pod %s, then %s, labels %v, node %s", pod.Name, again.Name, pod.Labels, pod.Spec.NodeName)
	}
	if len(owners) != 2 || owners[1].GetKind() != "ReplicaSet" || owners[1].GetName() != "hook-"+hash || text(owners[1].Object, "spec", "selector", "matchLabels", hashLabel) != hash {
		t.Fatalf("owners %v", owners)
	}
	for _, u := range owners {
		if n, _, _ := unstructured.NestedInt64(u.Object, "spec", "replicas"); n != 1 {
			t.Errorf("%s has %d replicas", titleOf(u), n)
		}
	}
	if n := number(p.workload.Object["spec"], "replicas"); n != 3 {
		t.Errorf("the manifest was changed: %d replicas", n)
	}
	status := ready(pod, pod.CreationTimestamp)
	if status.PodIP != "" || status.Phase != "Running" || len(status.ContainerStatuses) != 1 || !status.ContainerStatuses[0].Ready {
		t.Errorf("status %+v", status)
	}
}

// S33.15: a refusal for a missing right of the service account is one sentence with the rule; others are not reported.
func TestRefusalsAreSentences(t *testing.T) {
	s, _ := programsOf(t, Options{Command: []string{"/bin/true"}}, hook("service: {namespace: shop, name: hook}")+deployed)
	var said []string
	s.Say = func(format string, args ...any) { said = append(said, fmt.Sprintf(format, args...)) }
	list := func(name string) {
		s.forbidden(authorizer.AttributesRecord{User: &user.DefaultInfo{Name: name}, Verb: "list", APIGroup: "apps", Resource: "deployments", Namespace: "other", ResourceRequest: true})
	}
	list("system:serviceaccount:shop:hook")
	list("system:serviceaccount:shop:hook")
	list("system:serviceaccount:shop:another")
	want := []string{`The service account hook may not list deployments in the namespace other: a Role with apiGroups ["apps"], resources [deployments] and verbs [list] allows it.`}
	if !slices.Equal(said, want) {
		t.Errorf("got %q, want %q", said, want)
	}
	for i := range 2 * mostForbidden {
		s.forbidden(authorizer.AttributesRecord{User: &user.DefaultInfo{Name: "system:serviceaccount:shop:hook"}, Verb: "get", Path: fmt.Sprint("/", i)})
	}
	if n := len(said); n != mostForbidden+1 || said[n-1] != "Further missing rights are left out." {
		t.Errorf("%d sentences, the last one %q", n, said[n-1])
	}
}

// S33.16: the printed programs have references in place of values, and name the command.
func TestExplain(t *testing.T) {
	got, err := Explain(t.Context(), Options{Paths: []string{"-"}, Stdin: strings.NewReader(hook("service: {namespace: shop, name: hook}") + deployed), Command: []string{"/bin/true"}})
	if err != nil || len(got) != 1 {
		t.Fatalf("%v, %v", got, err)
	}
	p := got[0]
	if p.Service != "shop/hook" || p.Port != 10250 || !slices.Equal(p.Command, []string{"/bin/true"}) ||
		!slices.Equal(p.Arguments, []string{"--config=/etc/hook/config.yaml", "--password=$(PASSWORD)"}) || p.Environment[0].Value != "" || p.Environment[0].ValueFrom.SecretKeyRef.Name != "password" {
		t.Errorf("got %+v", p)
	}
	_, err = Explain(t.Context(), Options{Paths: []string{"-"}, Stdin: strings.NewReader(hook("service: {namespace: shop, name: gone}"))})
	if err == nil || !strings.Contains(err.Error(), "name the program after --") {
		t.Errorf("without a Deployment: %v", err)
	}
}

// S33.1: without a registration, the program is the only workload behind a service with port 443 or 9443. Objects without a
// namespace are in the namespace of the service that selects them.
func TestProgramsWithoutARegistration(t *testing.T) {
	metrics := "apiVersion: v1\nkind: Service\nmetadata: {namespace: shop, name: metrics}\nspec: {selector: {app: exporter}, ports: [{port: 8080}]}\n---\n" +
		"apiVersion: apps/v1\nkind: Deployment\nmetadata: {namespace: shop, name: exporter}\nspec: {template: {metadata: {labels: {app: exporter}}, spec: {containers: [{name: c, image: i}]}}}\n---\n"
	for port, want := range map[string]bool{"443": true, "9443": true, "8080": false} {
		s, _ := programsOf(t, Options{Command: []string{"/bin/true"}}, metrics+strings.Replace(deployed, "port: 443", "port: "+port, 1))
		if p := s.programs[0]; (p.workload != nil && p.port == 10250) != want {
			t.Errorf("service port %s: port %d, %v", port, p.port, p.workload)
		}
	}
	service, rest, _ := strings.Cut(deployed, "---\n")
	s, _ := programsOf(t, Options{Command: []string{"/bin/true"}}, hook("service: {namespace: shop, name: hook}")+service+"---\n"+strings.ReplaceAll(rest, "namespace: shop, ", ""))
	if p := s.programs[0]; p.workload == nil || p.namespace() != "shop" || !slices.Contains(p.env, "PASSWORD=hidden") {
		t.Errorf("namespace %s, %v", p.namespace(), p.workload)
	}
}

// S33.11: a mount that nothing in the manifests names is printed with the flag of the program that has it as its default,
// also if the program fills the Secret itself later.
func TestUnreachablePathsAreNamedWithTheirFlag(t *testing.T) {
	unnamed := strings.NewReplacer("certDir: /certs", "a: b", ", value: /certs/server.key", "").Replace(deployed)
	empty := "apiVersion: v1\nkind: Secret\nmetadata: {namespace: shop, name: made-by-a-job}\n---\n"
	for name, tc := range map[string]struct{ at, source, want string }{
		"a flag":             {"/certs", `flag.StringVar(&dir, "cert-dir", "/certs", "directory")`, "the program looks at /certs by default: add --cert-dir="},
		"no flag":            {"/certs", `const dir = "/certsx"`, "nothing in the manifests names /certs: if the program looks there, name "},
		"temporary":          {"/tmp/certs", `const file = "/tmp/certs/tls.crt"`, "main.go names /tmp/certs, and the files are at "},
		"temporary, by flag": {"/tmp/certs", `flag.StringVar(&dir, "cert-dir", "/tmp/certs", "directory")`, "the program looks at /tmp/certs by default: add --cert-dir="},
		"$TMPDIR":            {"/tmp/certs", `dir := filepath.Join(os.TempDir(), "certs")`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Chdir(t.TempDir())
			if err := os.WriteFile("main.go", []byte("package main\n\nfunc main() { "+tc.source+" }\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			mounted := strings.Replace(unnamed, "mountPath: /certs}", "mountPath: "+tc.at+"}", 1)
			s, said := programsOf(t, Options{Command: []string{"/bin/true"}}, hook("service: {namespace: shop, name: hook}")+mounted+empty)
			all := strings.Join(said, "\n")
			if tc.want == "" && strings.Contains(all, "unreachable  ") || tc.want != "" && !strings.Contains(all, "unreachable  "+tc.want) || !strings.Contains(all, s.programs[0].hostPath(tc.at)) {
				t.Errorf("it says:\n%s", all)
			}
		})
	}
}
