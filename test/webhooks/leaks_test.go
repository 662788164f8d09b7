package webhooks

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/gatehouse-dev/gatehouse/test/harness"
	"github.com/gatehouse-dev/gatehouse/test/speed"
)

// leaked is a substring of every credential of the test.
const leaked = "hunter22marker"

// withCredentials returns objects of every kind that has a credential field, and of kinds whose contents may
// be credentials. Each has a path in the namespace ns.
func withCredentials(ns string) []struct{ path, object string } {
	encoded := base64.StdEncoding.EncodeToString([]byte(leaked))
	key := "-----BEGIN PRIVATE KEY-----\\n" + leaked + "\\n-----END PRIVATE KEY-----"
	kubeconfig := "users: [{name: a, user: {token: " + leaked + "}}]"
	secrets, configMaps, pods := "/api/v1/namespaces/"+ns+"/secrets", harness.ConfigMaps(ns), "/api/v1/namespaces/"+ns+"/pods"
	meta := func(name string) string { return `"metadata":{"name":"` + name + `","labels":{"leaks":"yes"}}` }
	secret := func(name, rest string) struct{ path, object string } {
		return struct{ path, object string }{secrets, `{"apiVersion":"v1","kind":"Secret",` + meta(name) + `,` + rest + `}`}
	}
	list := []struct{ path, object string }{
		secret("opaque", `"data":{"password":"`+encoded+`"}`),
		secret("basic", `"type":"kubernetes.io/basic-auth","stringData":{"username":"u","password":"`+leaked+`"}`),
		secret("ssh", `"type":"kubernetes.io/ssh-auth","stringData":{"ssh-privatekey":"`+key+`"}`),
		secret("tls", `"type":"kubernetes.io/tls","stringData":{"tls.crt":"c","tls.key":"`+key+`"}`),
		secret("images", `"type":"kubernetes.io/dockerconfigjson","stringData":{".dockerconfigjson":"{\"auths\":{\"r\":{\"password\":\"`+leaked+`\"}}}"}`),
		secret("bootstrap", `"type":"bootstrap.kubernetes.io/token","stringData":{"token-id":"abcdef","token-secret":"`+leaked+`12"}`),
		{secrets, `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"applied","labels":{"leaks":"yes"},"annotations":{"kubectl.kubernetes.io/last-applied-configuration":"{\"apiVersion\":\"v1\",\"kind\":\"Secret\",\"stringData\":{\"p\":\"` + leaked + `\"}}"}},"stringData":{"p":"` + leaked + `"}}`},
		{configMaps, `{"apiVersion":"v1","kind":"ConfigMap",` + meta("config") + `,"data":{"kubeconfig":"` + kubeconfig + `","key.pem":"` + key + `","password":"` + leaked + `"},"binaryData":{"encoded":"` + base64.StdEncoding.EncodeToString([]byte(kubeconfig)) + `"}}`},
		{pods, `{"apiVersion":"v1","kind":"Pod",` + meta("pod") + `,"spec":{"containers":[{"name":"c","image":"i","args":["--token","` + leaked + `","--url=https://u:` + leaked + `@h"],"env":[{"name":"DB_PASS","value":"` + leaked + `"}]}]}}`},
		{"/apis/authentication.k8s.io/v1/tokenreviews", `{"apiVersion":"authentication.k8s.io/v1","kind":"TokenReview","spec":{"token":"` + leaked + `"}}`},
		{"/apis/authorization.k8s.io/v1/subjectaccessreviews", `{"apiVersion":"authorization.k8s.io/v1","kind":"SubjectAccessReview","spec":{"user":"u","extra":{"assertion":["` + leaked + `"]},"resourceAttributes":{"verb":"get","resource":"pods"}}}`},
		{"/apis/authorization.k8s.io/v1/namespaces/" + ns + "/localsubjectaccessreviews", `{"apiVersion":"authorization.k8s.io/v1","kind":"LocalSubjectAccessReview","metadata":{"namespace":"` + ns + `"},"spec":{"user":"u","extra":{"assertion":["` + leaked + `"]},"resourceAttributes":{"namespace":"` + ns + `","verb":"get","resource":"pods"}}}`},
		{"/apis/authentication.k8s.io/v1/selfsubjectreviews", `{"apiVersion":"authentication.k8s.io/v1","kind":"SelfSubjectReview"}`},
		{"/api/v1/namespaces/" + ns + "/serviceaccounts/default/token", `{"apiVersion":"authentication.k8s.io/v1","kind":"TokenRequest","spec":{"expirationSeconds":600}}`},
	}
	return list
}

// quoted is a policy that rejects objects with a label and quotes a password in its message. %s is a
// namespace.
const quoted = `apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: quotes}
spec:
  failurePolicy: Fail
  matchConstraints: {resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE, UPDATE], resources: [configmaps, secrets]}]}
  validations:
  - expression: "!has(object.metadata.labels) || !('leaks' in object.metadata.labels) || object.data.password == 'x'"
    messageExpression: "'no ' + object.data.password"
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: quotes}
spec: {policyName: quotes, validationActions: [Deny]}
`

// S25.13: no tool shows a credential of any kind that has credentials, even if other messages quote the
// object.
func TestNoToolShowsCredentials(t *testing.T) {
	t.Parallel()
	choose := func(size int) []int { return speed.Pick(t, speed.Of(1, size), size) }
	// By default, test one of the formats of each command.
	some := func(formats ...string) (chosen []string) {
		for _, i := range choose(len(formats)) {
			chosen = append(chosen, formats[i])
		}
		return chosen
	}
	dir := t.TempDir()
	// Webhooks receive token reviews up to 1.36.
	s := harness.Start(t, "--emulated-version", "1.36", "--admission-consistency", "strict", "--controllers", "namespace-controller")
	admin := s.HTTP(t, nil)
	ns := s.Namespace(t)
	// The webhook repeats the whole request in every field of its answer.
	hooks := harness.NewWebhookServer(t, nil)
	echo := hooks.Hook("/echo", func(w http.ResponseWriter, r *harness.Review) {
		request, err := json.Marshal(r.Request())
		object, more := json.Marshal(r.Request("object"))
		if err := errors.Join(err, more); err != nil {
			t.Error(err)
		}
		answer := map[string]any{"allowed": true, "warnings": []any{string(object)}, "auditAnnotations": map[string]any{"saw": string(request)}}
		resource := r.Request("resource").(map[string]any)["resource"]
		if sub, _ := r.Request("subResource").(string); sub == "" && (resource == "secrets" || resource == "configmaps" || resource == "pods") {
			patch := `[{"op":"add","path":"/metadata/annotations","value":{"saw":` + encodedJSON(t, string(object)) + `}}`
			if resource == "configmaps" {
				patch += `,{"op":"add","path":"/data/db-password","value":"` + leaked + `"}`
			}
			answer["patchType"], answer["patch"] = "JSONPatch", []byte(patch+"]")
		}
		harness.Respond(answer)(w, r)
	})
	admin.Must(201, "POST", "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations", encodedJSON(t, map[string]any{
		"metadata": map[string]any{"name": "echo"},
		"webhooks": []any{map[string]any{"name": "echo.example.com", "clientConfig": echo.ClientConfig(), "admissionReviewVersions": []any{"v1"}, "sideEffects": "None",
			"failurePolicy": "Ignore", "rules": []any{map[string]any{"apiGroups": []any{"*"}, "apiVersions": []any{"*"}, "operations": []any{"CREATE"}, "resources": []any{"*/*"}}}}},
	}))
	record := startRecording(t, s, "--untimed", "--resources", "secrets,configmaps,pods,serviceaccounts/token,tokenreviews.authentication.k8s.io,selfsubjectreviews.authentication.k8s.io,subjectaccessreviews.authorization.k8s.io,localsubjectaccessreviews.authorization.k8s.io")

	var outputs, tokens []string
	show := func(what, text string) { outputs = append(outputs, "== "+what+"\n"+text) }
	run := func(args ...string) harness.Result {
		r := harness.Run(t, append(args, "--kubeconfig", s.Kubeconfig)...)
		show(strings.Join(args, " "), r.Out+r.Err)
		return r
	}
	var reviews, traces []string
	for _, o := range withCredentials(ns) {
		answer := admin.Must(201, "POST", o.path, o.object, "Impersonate-User", "jane", "Impersonate-Group", "system:masters", "Impersonate-Extra-Assertion", leaked)
		if token, ok := answer.At("status", "token").(string); ok && token != "" {
			tokens = append(tokens, token)
		}
		traces = append(traces, answer.Header.Get("Gatehouse-Trace"))
	}
	for _, r := range echo.Reviews() {
		if r.Request("dryRun") == true {
			// The recorder's self-test.
			continue
		}
		reviews = append(reviews, string(bytes.TrimSpace(r.Raw)))
	}
	if len(traces) != len(reviews) || len(tokens) != 1 {
		t.Fatalf("%d requests, %d reviews, %d tokens", len(traces), len(reviews), len(tokens))
	}
	for _, id := range speed.Some(t, 3, traces) {
		for _, format := range some("text", "yaml", "html", "markdown") {
			if r := run("trace", id, "-o", format); r.Code != 0 {
				t.Errorf("trace %s -o %s: %d %s", id, format, r.Code, r.Err)
			}
		}
	}
	run("trace", "-A")
	show("the list of traces", string(admin.Get("/apis/gatehouse.dev/v1alpha1/admissiontraces").Raw))
	for _, object := range speed.Some(t, 1, []string{"secret/opaque", "configmap/config", "pod/pod"}) {
		if r := run("blame", object, "-n", ns, "-o", "json"); r.Code != 0 || !strings.Contains(r.Out, "echo.example.com") {
			t.Errorf("blame %s: %d %s%s", object, r.Code, r.Out, r.Err)
		}
	}

	// A rejection whose message quotes a password.
	policies := writeFile(t, filepath.Join(dir, "quotes.yaml"), quoted)
	unredacted := writeFile(t, filepath.Join(dir, "reviews.jsonl"), strings.Join(reviews, "\n")+"\n")
	for _, format := range some("text", "json", "html") {
		if r := run("replay", unredacted, "--with", policies, "-o", format); r.Code != 0 || !strings.Contains(r.Out, "quotes") {
			t.Errorf("replay: %d %s%s", r.Code, r.Out, r.Err)
		}
	}
	for _, format := range some("text", "json", "sarif", "policyreport") {
		if r := run("audit", policies, "-o", format); r.Code != 1 || !strings.Contains(r.Out, "quotes") {
			t.Errorf("audit: %d %s%s", r.Code, r.Out, r.Err)
		}
	}
	if r := harness.Run(t, "kubectl", "--kubeconfig", s.Kubeconfig, "apply", "-f", policies); r.Code != 0 {
		t.Fatal(r.Err)
	}
	var stored []string
	for _, o := range withCredentials(ns) {
		if strings.Contains(o.object, `"Secret"`) || strings.Contains(o.object, `"ConfigMap"`) || strings.Contains(o.object, `"Pod"`) {
			stored = append(stored, o.object)
		}
	}
	for i, object := range speed.Some(t, 3, stored) {
		file := writeFile(t, filepath.Join(dir, fmt.Sprintf("object-%d.json", i)), strings.Replace(object, `"metadata":{`, `"metadata":{"namespace":"`+ns+`",`, 1))
		for _, format := range some("text", "json", "yaml", "html", "markdown") {
			run("explain", "-f", file, "-o", format)
		}
		// Each check starts an API server.
		if i == 0 || speed.IsLong() {
			run("check", file, "--diff")
		}
	}
	log := writeFile(t, filepath.Join(dir, "server.log"), "DB_PASS="+leaked+"\nCookie: a="+leaked+"\n")
	bundle := filepath.Join(dir, "bundle.tar.gz")
	run("debug", "bundle", "-f", bundle, "--cpu", "0", "--log", log)
	for name, text := range unpacked(t, bundle) {
		show(name+" of the bundle", text)
	}

	// Stop the recorder and replay its recording.
	if err := record.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := record.cmd.Wait(); err != nil {
		t.Error(err)
	}
	var recorded string
	files, err := filepath.Glob(filepath.Join(record.dir, "*.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		recorded += string(data)
	}
	show("the recording", recorded)
	if n := strings.Count(recorded, "\n"); n < len(traces) || !strings.Contains(recorded, `"removed":["spec.token"`) {
		t.Errorf("%d requests are recorded", n)
	}
	run("replay", record.dir, "--with", policies, "-o", "json")

	hidden := append(tokens, leaked, base64.StdEncoding.EncodeToString([]byte(leaked)), base64.StdEncoding.EncodeToString([]byte("users: [{name: a, user: {token: "+leaked+"}}]")))
	for _, output := range outputs {
		for _, credential := range hidden {
			if i := strings.Index(output, credential); i >= 0 {
				title, _, _ := strings.Cut(output, "\n")
				t.Errorf("%s shows a credential: %s", title, output[max(0, i-200):min(len(output), i+60)])
			}
		}
	}
}

// unpacked returns the text files of a debug bundle.
func unpacked(t *testing.T, file string) map[string]string {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	plain, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	for archive := tar.NewReader(plain); ; {
		h, err := archive.Next()
		if err == io.EOF {
			return found
		}
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(archive)
		if err != nil {
			t.Fatal(err)
		}
		found[h.Name] = string(text)
	}
}

func encodedJSON(t *testing.T, v any) string {
	t.Helper()
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}
