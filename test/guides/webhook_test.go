package guides

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	v1 "k8s.io/api/admissionregistration/v1"

	"github.com/gatehouse-dev/gatehouse/admission/registration/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/test/harness"
	"github.com/gatehouse-dev/gatehouse/test/speed"
)

// document is a guide whose examples are run. The address of its example webhook is replaced by the address
// of the test's webhook.
type document struct {
	t      *testing.T
	text   string
	blocks []string
	used   map[string]bool
	// dir is the working directory of the commands, env their additional environment.
	dir string
	env []string
}

func readDocument(t *testing.T, name string) *document {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", name))
	if err != nil {
		t.Fatal(err)
	}
	d := &document{t: t, text: string(text), used: map[string]bool{}, dir: t.TempDir()}
	var block []string
	indent := regexp.MustCompile(`^ {4,6}`)
	end := func() {
		if text := strings.TrimSpace(strings.Join(block, "\n")); text != "" {
			d.blocks = append(d.blocks, strings.Join(block, "\n"))
		}
		block = nil
	}
	for line := range strings.Lines(d.text) {
		line = strings.TrimSuffix(line, "\n")
		switch {
		case line == "" && block != nil:
			block = append(block, line)
		case !indent.MatchString(line):
			end()
		case block == nil:
			block = []string{line}
		default:
			block = append(block, line)
		}
	}
	end()
	for i, b := range d.blocks {
		margin := len(b) - len(strings.TrimLeft(b, " "))
		d.blocks[i] = strings.TrimSpace(regexp.MustCompile(fmt.Sprintf(`(?m)^ {1,%d}`, margin)).ReplaceAllString(b, ""))
	}
	return d
}

// block returns the only example with the given beginning, after the replacements: pairs of old and new text.
// Each old text must occur.
func (d *document) block(beginning string, replace ...string) string {
	d.t.Helper()
	var found []string
	for _, b := range d.blocks {
		if strings.HasPrefix(b, beginning) {
			found = append(found, b)
		}
	}
	if len(found) != 1 {
		d.t.Fatalf("%d examples begin with %q", len(found), beginning)
	}
	d.used[found[0]] = true
	text := found[0]
	for i := 0; i < len(replace); i += 2 {
		if !strings.Contains(text, replace[i]) {
			d.t.Errorf("example without %q:\n%s", replace[i], text)
		}
		text = strings.ReplaceAll(text, replace[i], replace[i+1])
	}
	return text
}

// sh runs a script and returns its standard output and standard error together.
func (d *document) sh(script string) (string, error) {
	cmd := exec.CommandContext(harness.Context(d.t), "sh", "-ec", script)
	cmd.Dir, cmd.Env = d.dir, append(os.Environ(), d.env...)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// must runs a script and fails the test if the script fails.
func (d *document) must(script string) {
	d.t.Helper()
	if out, err := d.sh(script); err != nil {
		d.t.Fatalf("%s\n%v: %s", script, err, out)
	}
}

// transcript runs the command lines of a text and compares their output with the lines between them, ignoring
// line breaks.
func (d *document) transcript(text string) {
	d.t.Helper()
	var command, printed string
	check := func() {
		d.t.Helper()
		if command == "" {
			return
		}
		// Some of the commands are expected to fail.
		out, _ := d.sh(command)
		want(d.t, command, words(out), words(printed))
	}
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "gatehouse ") {
			check()
			command, printed = line, ""
			continue
		}
		printed += line
	}
	check()
}

// words returns the text with all whitespace replaced by single spaces.
func words(text string) string { return strings.Join(strings.Fields(text), " ") }

// TestTheWebhookGuide follows all steps of docs/webhooks.md and checks the described results.
func TestTheWebhookGuide(t *testing.T) {
	t.Parallel()
	d := readDocument(t, "webhooks.md")
	// Go's cache is in the home directory; kubectl's cache must not be in the user's.
	cache, err := exec.Command("go", "env", "GOCACHE").Output()
	if err != nil {
		t.Fatal(err)
	}
	d.env = []string{"HOME=" + t.TempDir(), "GOCACHE=" + strings.TrimSpace(string(cache)), "KUBECONFIG=", "GATEHOUSE_DATA_DIR=",
		"PATH=" + filepath.Join(d.dir, "bin") + string(os.PathListSeparator) + os.Getenv("PATH")}

	// The credentials in the guide, for a webhook of the test.
	hooks := harness.NewWebhookServer(t, []string{"named.default.svc"})
	_, port, err := net.SplitHostPort(hooks.Address())
	if err != nil {
		t.Fatal(err)
	}
	client, key := hooks.Authority.Pair(t, "guide")
	for name, content := range map[string]string{
		"client.crt": string(client), "client.key": string(key),
		"hooks.kubeconfig": d.block("apiVersion: v1\nkind: Config", "127.0.0.1:9444 ", hooks.Address()+" "),
		"admission.yaml":   d.block("# gatehouse serve", "/etc/gatehouse/hooks.kubeconfig", d.dir+"/hooks.kubeconfig"),
	} {
		writeFile(t, filepath.Join(d.dir, name), content)
	}

	want(t, "the first command", d.block("gatehouse serve"), "gatehouse serve")
	want(t, "the old versions", d.block("# the versions of 2017"), "# the versions of 2017, too\ngatehouse serve --runtime-config=api/legacy=true")
	// Commands in the folder find the kubeconfig there.
	s := harness.StartOn(t, filepath.Join(d.dir, "gatehouse.data"), "--admission-consistency", "strict", "--admission-control-config-file", filepath.Join(d.dir, "admission.yaml"))
	for link, to := range map[string]string{"bin/gatehouse": harness.Binary(t)} {
		link = filepath.Join(d.dir, link)
		if err := os.MkdirAll(filepath.Dir(link), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(to, link); err != nil {
			t.Fatal(err)
		}
	}
	h := s.HTTP(t, nil)
	var address string
	t.Run("with the example", func(t *testing.T) { address = d.withExample(t, s) })

	failure := words(d.block("Internal error occurred: ", "127.0.0.1:9444", address))
	harness.Eventually(t, "the webhook fails as the guide says", func() error {
		// A kept-alive connection may break first.
		if out, err := d.sh("gatehouse kubectl create configmap late --from-literal color=blue"); err == nil || !strings.Contains(words(out), failure) {
			return fmt.Errorf("%v: %s", err, out)
		}
		return nil
	})
	d.must("gatehouse kubectl delete validatingwebhookconfiguration configmaps")

	h.Must(http.StatusCreated, "POST", "/api/v1/namespaces/default/services",
		toJSON(`{apiVersion: v1, kind: Service, metadata: {name: named}, spec: {type: ExternalName, externalName: localhost}}`))
	for _, c := range []struct{ name, target, authorization, certificate string }{
		{"host-and-port", `url: "https://` + hooks.Address() + `/host-and-port"`, "Bearer let-me-in", ""},
		{"service", `service: {namespace: default, name: named, path: /service, port: ` + port + `}`, "", "guide"},
		{"anybody", `url: "https://localhost:` + port + `/anybody"`, "Basic " + base64.StdEncoding.EncodeToString([]byte("gatehouse:secret")), ""},
	} {
		hook := hooks.Hook("/"+c.name, harness.Allow)
		register(t, s, "v1", validating, webhook(c.name, "default", hook, "clientConfig: {caBundle: "+hook.CABundle()+", "+c.target+"}"))
		h.Must(http.StatusCreated, "POST", configMaps("default"), configMap(c.name))
		r := hook.Last(t)
		want(t, c.name+": authorization", r.HTTP.Header.Get("Authorization"), c.authorization)
		certificate := ""
		if certificates := r.HTTP.TLS.PeerCertificates; len(certificates) > 0 {
			certificate = certificates[0].Subject.CommonName
		}
		want(t, c.name+": certificate", certificate, c.certificate)
		if c.name == "anybody" {
			d.reviews(r)
		}
	}
	sections := map[string]func(*testing.T){"behind a service": d.behindAService, "Gatekeeper": d.gatekeeper, "cert-manager": d.certManager, "Kyverno": d.kyverno}
	// Each section starts a server, in the long run.
	for _, name := range speed.Some(t, 0, slices.Sorted(maps.Keys(sections))) {
		t.Run(name, sections[name])
	}
	// Annotations that request an order (S5.29).
	mutating := "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
	s.HTTP(t, nil).Must(http.StatusCreated, "POST", mutating, d.block("metadata:\n  name: sidecars"), "Content-Type", "application/yaml")
	s.HTTP(t, nil).Must(http.StatusOK, "DELETE", mutating+"/sidecars", "")
	for _, b := range d.blocks {
		if !d.used[b] && speed.IsLong() {
			t.Errorf("this example is not tried:\n%s", b)
		}
	}
}

// installed reports whether a program is installed.
func installed(program string) bool {
	_, err := exec.LookPath(program)
	return err == nil
}

// withExample follows the guide while the example webhook runs, and returns the webhook's address.
func (d *document) withExample(t *testing.T, s *harness.Server) string {
	outer := d.t
	d.t = t
	defer func() { d.t = outer }()
	h := s.HTTP(t, nil)

	if other := d.block("openssl req "); installed("openssl") {
		d.must(other)
		pair, err := tls.LoadX509KeyPair(filepath.Join(d.dir, "cert.pem"), filepath.Join(d.dir, "key.pem"))
		if err != nil {
			t.Fatal(err)
		}
		roots := x509.NewCertPool()
		roots.AddCert(pair.Leaf)
		for _, name := range []string{"127.0.0.1", "hook.default.svc"} {
			if _, err := pair.Leaf.Verify(x509.VerifyOptions{DNSName: name, Roots: roots}); err != nil {
				t.Errorf("the certificate of OpenSSL for %s: %v", name, err)
			}
		}
	}
	certificate, example, _ := strings.Cut(d.block("go run "), "\n")
	d.must(certificate)
	want(t, "the example", example, "go run ./examples/plainhook")
	address := strings.TrimPrefix(harness.StartExample(t, "plainhook", "--address", "127.0.0.1:0",
		"--cert", filepath.Join(d.dir, "cert.pem"), "--key", filepath.Join(d.dir, "key.pem")), "https://")
	d.must(d.block("cat > registration.yaml", "127.0.0.1:9444", address))
	d.transcript(d.block("gatehouse kubectl create configmap plain"))

	// The other settings are tested with config maps that the example rejects if it is called.
	created := 0
	asked := func(what, namespace, name string, data map[string]any, asked bool) {
		t.Helper()
		created++
		data["password"] = "x"
		r := h.Do("POST", configMaps(namespace), asJSON(map[string]any{"apiVersion": "v1", "kind": "ConfigMap",
			"metadata": map[string]any{"name": fmt.Sprintf("%s%d", name, created)}, "data": data}))
		code := http.StatusCreated
		if asked {
			code = http.StatusForbidden
		}
		want(t, what, r.Code, code)
	}
	none := func() map[string]any { return map[string]any{} }
	edit := func(fields map[string]any) {
		t.Helper()
		path := registrationsPath("v1", validating) + "/configmaps"
		content := h.Get(path).Body
		maps.Copy(harness.At(content, "webhooks", "0").(map[string]any), fields)
		h.Must(http.StatusOK, "PUT", path, asJSON(content))
	}
	edit(parsed(t, d.block("matchConditions:")))
	asked("a match condition that is true", "default", "app-", none(), true)
	asked("a match condition that is false", "default", "other-", none(), false)
	expression := regexp.MustCompile("`(has\\(object[^`]+)`").FindStringSubmatch(d.text)
	if expression == nil {
		t.Fatal("no expression that asks whether a field is there")
	}
	edit(map[string]any{"matchConditions": []any{map[string]any{"name": "owner", "expression": expression[1]}}})
	asked("a field that is not there", "default", "x", none(), false)
	asked("a field that is there", "default", "x", map[string]any{"owner": "me"}, true)
	edit(map[string]any{"matchConditions": nil})

	d.must(d.block("gatehouse kubectl label namespace"))
	edit(parsed(t, d.block("namespaceSelector:\n  matchExpressions:\n  - key: runlevel")))
	asked("S2.14 no runlevel", "default", "x", none(), true)
	asked("S2.14 runlevel 0", "kube-system", "x", none(), false)
	asked("S2.14 runlevel 2", "hooks", "x", none(), false)
	edit(parsed(t, d.block("namespaceSelector:\n  matchExpressions:\n  - key: environment")))
	h.Must(http.StatusCreated, "POST", "/api/v1/namespaces", toJSON(`{apiVersion: v1, kind: Namespace, metadata: {name: shop, labels: {environment: prod}}}`))
	asked("S2.14 a namespace that is named", "shop", "x", none(), true)
	asked("S2.14 another namespace", "default", "x", none(), false)
	h.Do("PATCH", "/api/v1/namespaces/hooks", `{"metadata":{"labels":{"kubernetes.io/metadata.name":"x"}}}`, "Content-Type", mergePatch)
	want(t, "the label of the name", h.Get("/api/v1/namespaces/hooks").Text("metadata", "labels", "kubernetes.io/metadata.name"), "hooks")

	broken := h.Get(registrationsPath("v1", validating) + "/configmaps").Body
	broken["metadata"] = map[string]any{"name": "broken"}
	maps.Copy(harness.At(broken, "webhooks", "0").(map[string]any), map[string]any{"name": "broken", "sideEffects": "Unknown"})
	writeFile(t, filepath.Join(d.dir, "broken.json"), asJSON(broken))
	out, _ := d.sh("gatehouse kubectl create -f broken.json")
	want(t, "mistakes", words(out), words(d.block(`The ValidatingWebhookConfiguration "broken"`)))

	d.must("gatehouse kubectl delete validatingwebhookconfiguration configmaps")
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		t.Fatal(err)
	}
	d.must(d.block("cat > external.yaml", "port: 9444", "port: "+port))
	out, _ = d.sh("gatehouse kubectl create configmap external --from-literal password=x")
	want(t, "the external hook", words(out), `error: failed to create configmap: admission webhook "external.hooks.example.com" denied the request: passwords belong in secrets`)
	external := registrationsPath("v1alpha1", "ExternalAdmissionHookConfiguration") + "/configmaps"
	want(t, "S1.32 before the patch", h.Get(external).Text("externalAdmissionHooks", "0", "failurePolicy"), "Ignore")
	d.must(d.block("gatehouse kubectl patch"))
	want(t, "S1.34 after the patch", h.Get(external).Text("externalAdmissionHooks", "0", "failurePolicy"), "Fail")

	// Keep only the validating webhook from the beginning of the guide.
	d.must(`gatehouse kubectl apply -f registration.yaml
		gatehouse kubectl delete externaladmissionhookconfiguration configmaps
		gatehouse kubectl delete mutatingwebhookconfiguration configmaps`)
	return address
}

// behindAService follows the section about a webhook registered with a service.
func (d *document) behindAService(t *testing.T) {
	outer, env := d.t, d.env
	d.t = t
	defer func() { d.t, d.env = outer, env }()
	certificate, commands, _ := strings.Cut(d.block("host="), "\ngo run ./examples/plainhook &\n")
	d.must(certificate)
	address := strings.TrimPrefix(harness.StartExample(t, "plainhook", "--address", "127.0.0.1:0",
		"--cert", filepath.Join(d.dir, "cert.pem"), "--key", filepath.Join(d.dir, "key.pem")), "https://")
	flag, found := strings.CutPrefix(commands, "gatehouse serve --test --service-address ")
	if !found {
		t.Fatalf("the guide starts no server: %s", commands)
	}
	s := harness.StartTest(t, "--service-address", strings.Replace(flag, "127.0.0.1:9444", address, 1))
	d.env = append(slices.Clone(env), "KUBECONFIG="+s.Kubeconfig)
	d.must(d.block("cat > service.yaml"))
	d.transcript(d.block("gatehouse kubectl create configmap behind-a-service"))
}

// certManager follows the section about cert-manager. Tests download nothing: no webhook of cert-manager
// runs, so its certificates are rejected until their CA is known, and a short CRD replaces cert-manager's.
func (d *document) certManager(t *testing.T) {
	outer, env := d.t, d.env
	d.t = t
	defer func() { d.t, d.env = outer, env }()
	_, command, _ := strings.Cut(d.block("git clone --depth 1"), "\n\n")
	flag, found := strings.CutPrefix(command, "gatehouse serve --test --service-address ")
	if !found {
		t.Fatalf("the guide starts no server: %s", command)
	}
	const nobody = "127.0.0.1:1"
	s := harness.StartTest(t, "--service-address", strings.Replace(flag, "127.0.0.1:10250", nobody, 1))
	d.env = append(slices.Clone(env), "KUBECONFIG="+s.Kubeconfig)
	definitions := filepath.Join(d.dir, "cert-manager", "deploy", "crds")
	if err := os.MkdirAll(definitions, 0o755); err != nil {
		t.Fatal(err)
	}
	writeFile(t, filepath.Join(definitions, "certificates.yaml"), `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: certificates.cert-manager.io}
spec:
  group: cert-manager.io
  names: {plural: certificates, singular: certificate, kind: Certificate, listKind: CertificateList}
  scope: Namespaced
  versions:
  - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}
`)
	steps := strings.Split(d.block("gatehouse kubectl apply --server-side -f cert-manager/"), "\n\n")
	if len(steps) != 3 {
		t.Fatalf("%d steps, not 3: %q", len(steps), steps)
	}
	d.must(steps[0])
	d.must(steps[2])
	wrong, _, _ := strings.Cut(d.block("cat > certificate.yaml"), "\nError from server")
	harness.Eventually(t, "the webhook is called", func() error {
		out, err := d.sh(wrong)
		if err == nil || !strings.Contains(out, `failed calling webhook "webhook.cert-manager.io"`) || !strings.Contains(out, nobody) {
			return fmt.Errorf("%v: %s", err, out)
		}
		return nil
	})
}

// gatekeeper follows the section about Gatekeeper. Tests download nothing: the example webhook replaces
// Gatekeeper's program, and short manifests replace Gatekeeper's.
func (d *document) gatekeeper(t *testing.T) {
	outer, env := d.t, d.env
	d.t = t
	defer func() { d.t, d.env = outer, env }()
	steps := func(beginning string) []string {
		t.Helper()
		steps := strings.Split(d.block(beginning), "\n\n")
		if len(steps) != 3 {
			t.Fatalf("%d steps, not 3: %q", len(steps), steps)
		}
		return steps
	}
	first, second := steps("go install github.com/open-policy-agent/gatekeeper"), steps("gatehouse kubectl apply --server-side -f \"$source")

	// The first step installs Gatekeeper, and sets source to the folder of its source.
	if !strings.Contains(first[0], "\nsource=") {
		t.Errorf("the guide does not say where the source is: %s", first[0])
	}
	source := t.TempDir()
	d.must(first[1])
	// Gatekeeper's program reads the certificate from its directory, and listens on the port.
	program := strings.Fields(second[1])
	argument := func(name string) string {
		t.Helper()
		i := slices.Index(program, name)
		if i < 0 || i+1 >= len(program) {
			t.Fatalf("the guide starts Gatekeeper without %s: %s", name, second[1])
		}
		return program[i+1]
	}
	certificates := filepath.Join(d.dir, argument("--cert-dir"))
	address := strings.TrimPrefix(harness.StartExample(t, "plainhook", "--address", "127.0.0.1:0",
		"--cert", filepath.Join(certificates, "tls.crt"), "--key", filepath.Join(certificates, "tls.key")), "https://")
	service, ours := strings.CutSuffix(first[2], "="+net.JoinHostPort(argument("--host"), argument("--port")))
	service, starts := strings.CutPrefix(service, "gatehouse serve --test --service-address ")
	if !ours || !starts {
		t.Fatalf("the guide starts no server for Gatekeeper's address: %s", first[2])
	}
	s := harness.StartTest(t, "--service-address", service+"="+address)
	d.env = append(slices.Clone(env), "KUBECONFIG="+s.Kubeconfig, "source="+source)

	if err := os.MkdirAll(filepath.Join(source, "deploy"), 0o755); err != nil {
		t.Fatal(err)
	}
	const hook = `{clientConfig: {service: {namespace: gatekeeper-system, name: gatekeeper-webhook-service, path: %s}}, name: %s,
  rules: [{operations: [CREATE], apiGroups: [""], apiVersions: [v1], resources: [%s]}], sideEffects: None, admissionReviewVersions: [v1]}`
	writeFile(t, filepath.Join(source, "deploy", "gatekeeper.yaml"), fmt.Sprintf(`
apiVersion: v1
kind: Namespace
metadata: {name: gatekeeper-system, labels: {pod-security.kubernetes.io/enforce: restricted}}
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingWebhookConfiguration
metadata: {name: gatekeeper-mutating-webhook-configuration}
webhooks:
- %s
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: gatekeeper-validating-webhook-configuration}
webhooks:
- %s
- %s
`, fmt.Sprintf(hook, "/label", "mutation.gatekeeper.sh", "configmaps"), fmt.Sprintf(hook, "/check", "validation.gatekeeper.sh", "secrets"),
		fmt.Sprintf(hook, "/check", "check-ignore-label.gatekeeper.sh", "configmaps")))
	apply, pod, _ := strings.Cut(second[0], "\n")
	d.must(apply)
	harness.Eventually(t, "the namespace has a service account", func() error {
		out, err := d.sh("gatehouse kubectl get serviceaccount default --namespace gatekeeper-system")
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	})
	d.must(pod)
	d.must(second[2])
	out, err := d.sh("gatehouse kubectl create configmap a --from-literal password=x")
	if err == nil || !strings.Contains(out, `admission webhook "check-ignore-label.gatekeeper.sh" denied the request`) {
		t.Errorf("%v: %s", err, out)
	}
	d.must("gatehouse kubectl create configmap b --from-literal color=blue")
	if out, err := d.sh("gatehouse kubectl get configmap b --output jsonpath={.metadata.labels.seen}"); err != nil || out != "yes" {
		t.Errorf("the mutating webhook did not change it: %v: %s", err, out)
	}
}

// kyverno follows the section about Kyverno. Tests download nothing: webhooks of the test replace Kyverno's
// program, and short manifests replace Kyverno's.
func (d *document) kyverno(t *testing.T) {
	outer, env := d.t, d.env
	d.t = t
	defer func() { d.t, d.env = outer, env }()
	two := func(beginning string) (first, second string) {
		t.Helper()
		first, second, found := strings.Cut(d.block(beginning), "\n\n")
		if !found {
			t.Fatalf("one step, not two: %s", first)
		}
		return first, second
	}
	_, command := two("git clone --branch")
	flag, found := strings.CutPrefix(command, "gatehouse serve --test --service-address ")
	if !found {
		t.Fatalf("the guide starts no server: %s", command)
	}
	hooks := harness.NewWebhookServer(t, []string{"kyverno-svc.kyverno.svc"})
	s := harness.StartTest(t, "--service-address", strings.Replace(flag, "127.0.0.1:9443", hooks.Address(), 1))
	d.env = append(slices.Clone(env), "KUBECONFIG="+s.Kubeconfig)

	manifests := filepath.Join(d.dir, "kyverno", "config")
	if err := os.MkdirAll(manifests, 0o755); err != nil {
		t.Fatal(err)
	}
	var kinds strings.Builder
	for _, kind := range []string{"ValidatingPolicy", "MutatingPolicy"} {
		one, many := strings.ToLower(kind), strings.ToLower(strings.TrimSuffix(kind, "y"))+"ies"
		fmt.Fprintf(&kinds, `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: %s.policies.kyverno.io}
spec:
  group: policies.kyverno.io
  names: {plural: %[1]s, singular: %s, kind: %s, listKind: %[3]sList}
  scope: Cluster
  versions:
  - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}
---
`, many, one, kind)
	}
	writeFile(t, filepath.Join(manifests, "install-latest-testing.yaml"), kinds.String())
	apply, program := two("gatehouse kubectl apply --server-side -f kyverno/")
	d.must(apply)
	if host, _, _ := net.SplitHostPort(flag[strings.Index(flag, "=")+1:]); !strings.Contains(program, "--webhookServerHost "+host+" ") {
		t.Errorf("Kyverno does not listen at %s: %s", host, program)
	}

	registered := func(kind, configuration, webhook, path string, answer harness.Answer) {
		hook := hooks.Hook(path, answer)
		writeFile(t, filepath.Join(d.dir, "registered.yaml"), fmt.Sprintf(`
apiVersion: admissionregistration.k8s.io/v1
kind: %s
metadata: {name: %s}
webhooks:
- name: %s
  clientConfig: {caBundle: %s, service: {namespace: kyverno, name: kyverno-svc, path: %s}}
  rules: [{operations: [CREATE], apiGroups: [""], apiVersions: [v1], resources: [configmaps]}]
  namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: default}}
  sideEffects: None
  admissionReviewVersions: [v1]
`, kind, configuration, webhook, hook.CABundle(), path))
		d.must("gatehouse kubectl apply -f registered.yaml")
	}
	registered("MutatingWebhookConfiguration", "kyverno-resource-mutating-webhook-cfg", "mpol.mutate.kyverno.svc-fail", "/mpol",
		harness.Patch(`[{"op": "add", "path": "/metadata/labels", "value": {"seen": "yes"}}]`))
	deny := harness.Deny(map[string]any{"message": "Policy owner failed: a config map says who its owner is"})
	registered("ValidatingWebhookConfiguration", "kyverno-policy-validating-webhook-cfg", "vpol.validate.kyverno.svc-fail", "/vpol",
		func(w http.ResponseWriter, r *harness.Review) {
			if r.Request("object", "data", "owner") == nil {
				deny(w, r)
				return
			}
			harness.Allow(w, r)
		})

	waiting, policies := two("gatehouse kubectl wait --for=create")
	waiting, ready, found := strings.Cut(waiting, "\nuntil curl ")
	if !found || !strings.Contains(ready, "https://"+flag[strings.Index(flag, "=")+1:]+"/health/readiness;") {
		t.Errorf("the guide does not wait for Kyverno: %s", ready)
	}
	d.must(waiting)
	policies, reported, found := strings.Cut(policies, "\ngatehouse kubectl wait ")
	if !found {
		t.Fatalf("the guide does not wait for policies: %s", policies)
	}
	d.must(policies)
	for _, policy := range []string{"validatingpolicy/owner", "mutatingpolicy/seen"} {
		d.must("gatehouse kubectl patch " + policy + ` --type merge --patch '{"status": {"conditionStatus": {"ready": true}}}'`)
	}
	d.must("gatehouse kubectl wait " + reported)
	d.transcript(d.block("gatehouse kubectl create configmap owned"))
}

// reviews compares the review in the guide with a review received by a webhook.
func (d *document) reviews(sent *harness.Review) {
	d.t.Helper()
	request, response, _ := strings.Cut(d.block(`{"apiVersion":"admission.k8s.io/v1"`, "{...}", "{}"), "\n\n")
	for _, text := range []string{request, response} {
		decoder := json.NewDecoder(strings.NewReader(text))
		decoder.DisallowUnknownFields()
		if err := decoder.Decode(&admissionv1.AdmissionReview{}); err != nil {
			d.t.Errorf("%v in\n%s", err, text)
		}
	}
	shown, _ := parsed(d.t, request)["request"].(map[string]any)
	if len(shown) == 0 {
		d.t.Fatal("the guide shows no request")
	}
	for field, value := range shown {
		got := sent.Request(field)
		switch field {
		case "uid", "name", "object", "options", "userInfo":
			want(d.t, "type of "+field, fmt.Sprintf("%T", got), fmt.Sprintf("%T", value))
		default:
			want(d.t, field, got, value)
		}
	}
}

// TestTheWebhookGuideHasAllFields verifies that docs/webhooks.md names every field of registrations and
// reviews.
func TestTheWebhookGuideHasAllFields(t *testing.T) {
	d := readDocument(t, "webhooks.md")
	code := strings.Join(d.blocks, "\n")
	for _, span := range regexp.MustCompile("`[^`\n]+`").FindAllString(d.text, -1) {
		code += "\n" + span
	}
	for _, kind := range []any{v1.MutatingWebhook{}, v1.ValidatingWebhook{}, v1alpha1.ExternalAdmissionHook{}, admissionv1.AdmissionRequest{}, admissionv1.AdmissionResponse{}} {
		for _, field := range fieldsOf(reflect.TypeOf(kind)) {
			if !regexp.MustCompile(`\b` + field + `\b`).MatchString(code) {
				t.Errorf("%T has a field %s that the guide does not name", kind, field)
			}
		}
	}
}

// fieldsOf returns the JSON names of the fields of a type and of the nested types of its package.
func fieldsOf(t reflect.Type) []string {
	var names []string
	for i := range t.NumField() {
		f := t.Field(i)
		if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); name != "" {
			names = append(names, name)
		}
		inner := f.Type
		for inner.Kind() == reflect.Pointer || inner.Kind() == reflect.Slice {
			inner = inner.Elem()
		}
		if inner.Kind() == reflect.Struct && inner.PkgPath() == t.PkgPath() {
			names = append(names, fieldsOf(inner)...)
		}
	}
	return names
}
