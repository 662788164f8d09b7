package dev

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gatehouse-dev/gatehouse/admission/trace"
	"github.com/gatehouse-dev/gatehouse/internal/kit/emulation"
	"github.com/gatehouse-dev/gatehouse/internal/kit/subprocess"
)

// The program behind a service is found in the namespace in which objects without a namespace are applied (S33.2).
func TestObjectsWithoutANamespace(t *testing.T) {
	p, _ := prepared(t, hook("service: {namespace: default, name: b}")+without(serviceOf("8443")+pods))
	if len(p.targets) != 1 || p.targets[0].workload == nil || len(p.others) != 0 {
		t.Errorf("%+v and %d others", p.targets, len(p.others))
	}
}

// The session reports old versions and placeholders, which a cluster rejects (S33.2).
func TestWhatAClusterRefusesIsNamed(t *testing.T) {
	old := strings.Replace(hook("service: {namespace: a, name: b}"), "admissionregistration.k8s.io/v1", "admissionregistration.k8s.io/v1beta1", 1)
	for _, tc := range []struct{ name, manifests, want string }{
		{"a placeholder in UTF-8", hook(`caBundle: "` + strings.Repeat("証", 20) + `", service: {namespace: a, name: b}`), `has the caBundle "` + strings.Repeat("証", 13) + `", which is not base64`},
		{"a placeholder", hook(`caBundle: "${CA_BUNDLE}", service: {namespace: a, name: b}`), `has the caBundle "${CA_BUNDLE}", which is not base64`},
		{"an old version", old, "is written in admissionregistration.k8s.io/v1beta1, which this server takes and Kubernetes from 1.22 on does not"},
		{"no bundle", hook("service: {namespace: a, name: b}"), ""},
		{"an empty bundle", hook("caBundle: Cg==, service: {namespace: a, name: b}"), ""},
	} {
		p, _ := prepared(t, tc.manifests)
		if said := strings.Join(p.remarks, "\n"); (said == "") != (tc.want == "") || !strings.Contains(said, tc.want) {
			t.Errorf("%s: %q, want %q", tc.name, said, tc.want)
		}
	}
}

// A program that accepts connections and refuses TLS is not reported as not listening, and gets few handshakes,
// since it logs each of them (S33.5).
func TestAProgramThatRefusesTLS(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	var handshakes atomic.Int32
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			handshakes.Add(1)
			// The whole ClientHello is read: otherwise the connection is reset, and the alert may be lost.
			head := make([]byte, 5)
			_, _ = io.ReadFull(conn, head)
			_, _ = io.ReadFull(conn, make([]byte, binary.BigEndian.Uint16(head[3:])))
			// A fatal alert: handshake_failure.
			_, _ = conn.Write([]byte{21, 3, 3, 0, 2, 2, 40})
			conn.Close()
		}
	}()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	err = listens(ctx, &subprocess.Process{Gone: make(chan struct{})}, listener.Addr().String(), func() bool { return false })
	refused, ok := errors.AsType[*handshakeError](err)
	if !ok || !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(refused.cause.Error(), "handshake failure") {
		t.Errorf("got %v", err)
	}
	if n := handshakes.Load(); n == 0 || n > 10 {
		t.Errorf("%d handshakes in 3 s", n)
	}
}

// S33.5: a port that is open at another address is not reported as another port.
func TestElsewhere(t *testing.T) {
	for _, tc := range []struct {
		ports []int
		want  string
	}{
		{nil, "If it listens elsewhere"}, {[]int{8080, 9443}, "It listens on port 8080, 9443"}, {[]int{8080, 8443}, "at another address than localhost"},
	} {
		if got := elsewhere(8443, tc.ports); !strings.Contains(got, tc.want) {
			t.Errorf("%v: %s", tc.ports, got)
		}
	}
}

// A response that API servers reject is recorded as failed, and no other response is (S25.20).
func TestAnswersAreDecodedAsByAnAPIServer(t *testing.T) {
	asked := &admissionv1.AdmissionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: "admission.k8s.io/v1", Kind: "AdmissionReview"},
		Request:  &admissionv1.AdmissionRequest{UID: "u"},
	}
	answer := func(version, uid, rest string) string {
		return fmt.Sprintf(`{"apiVersion":"admission.k8s.io/%s","kind":"AdmissionReview","response":{"uid":%q,"allowed":true%s}}`, version, uid, rest)
	}
	patch, err := json.Marshal([]byte(`[{"op":"add","path":"/metadata/labels","value":{"a":"b"}}]`))
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name, kind, answer string
		want               trace.Outcome
		says               string
		mutated            bool
	}{
		{"right", "Mutating", answer("v1", "u", ""), trace.OutcomeAllowed, "", false},
		{"a patch", "Mutating", answer("v1", "u", `,"patchType":"JSONPatch","patch":`+string(patch)), trace.OutcomeAllowed, "", true},
		{"another uid", "Validating", answer("v1", "x", ""), trace.OutcomeFailed, "response.uid", false},
		{"no uid", "Validating", answer("v1", "", ""), trace.OutcomeFailed, "response.uid", false},
		{"another version", "Validating", answer("v1beta1", "u", ""), trace.OutcomeFailed, "v1beta1", false},
		{"another kind", "Validating", strings.Replace(answer("v1", "u", ""), "AdmissionReview", "Pod", 1), trace.OutcomeFailed, "Pod", false},
		{"another type of patch", "Mutating", answer("v1", "u", `,"patchType":"JSONMergePatch","patch":`+string(patch)), trace.OutcomeFailed, "JSONMergePatch", false},
		{"no type of patch", "Mutating", answer("v1", "u", `,"patch":`+string(patch)), trace.OutcomeFailed, "patchType", false},
		{"a patch of a validating one", "Validating", answer("v1", "u", `,"patchType":"JSONPatch","patch":`+string(patch)), trace.OutcomeFailed, "may not return response.patch", false},
		{"no patch", "Mutating", answer("v1", "u", `,"patchType":"JSONPatch","patch":"e30="`), trace.OutcomeFailed, "the patch of the answer", false},
		{"no review", "Mutating", "{}", trace.OutcomeFailed, "", false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := recordOf(time.Now(), asked, trace.EntryRecord{Kind: tc.kind + "WebhookConfiguration", Configuration: "c", Name: "n"}, 200, "application/json", []byte(tc.answer))
			call := r.Steps[0].Calls[0]
			if r.Outcome != tc.want || !strings.Contains(call.Error, tc.says) || (call.Error == "") != (tc.want == trace.OutcomeAllowed) || call.Mutated != tc.mutated {
				t.Errorf("%s, %+v", r.Outcome, call)
			}
		})
	}
}

// S33.17: templates of a chart see the version and the kinds of the server. The files of the chart and of its values are
// watched.
func TestChartsOfAProject(t *testing.T) {
	dir := t.TempDir()
	chart, values := filepath.Join(dir, "chart"), filepath.Join(dir, "values.yaml")
	template := filepath.Join(chart, "templates", "settings.yaml")
	for file, text := range map[string]string{
		filepath.Join(chart, "Chart.yaml"): "apiVersion: v2\nname: hook\nversion: 1.0.0\n",
		template: "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {{ .Release.Name }}-settings\ndata:\n  level: {{ .Values.level }}\n" +
			"  kinds: '{{ .Capabilities.APIVersions.Has \"admissionregistration.k8s.io/v1/ValidatingAdmissionPolicy\" }} {{ .Capabilities.APIVersions.Has \"apps/v1\" }} {{ .Capabilities.KubeVersion }}'\n",
		values: "level: high\n",
	} {
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	p := &project{}
	var watched []string
	if err := p.readChart(t.Context(), chart, []string{values}, func(path string) { watched = append(watched, path) }); err != nil {
		t.Fatal(err)
	}
	o := p.objects[0].Object
	if name, level, kinds := text(o, "metadata", "name"), text(o, "data", "level"), text(o, "data", "kinds"); name != "dev-settings" || level != "high" || kinds != "true true v"+emulation.Release {
		t.Errorf("%v", o)
	}
	for _, file := range []string{chart, values, template} {
		if !slices.Contains(watched, file) {
			t.Errorf("%s is not watched, only %q", file, watched)
		}
	}
	if err := p.readChart(t.Context(), dir, nil, func(string) {}); err == nil || !strings.HasPrefix(err.Error(), "--chart "+dir+": Chart.yaml") {
		t.Errorf("without a chart: %v", err)
	}
}

// A new webhook listens on localhost only (S33.9).
func TestNewWebhooksListenOnThisMachine(t *testing.T) {
	for language, file := range map[string]string{"go": "main.go", "python": "webhook.py", "js": "webhook.js"} {
		dir := filepath.Join(t.TempDir(), "hook")
		if _, _, err := Init(dir, language); err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(filepath.Join(dir, file))
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(text), "127.0.0.1") || !strings.Contains(string(text), "LISTEN_ADDRESS") {
			t.Errorf("%s: it listens on all addresses:\n%s", language, text)
		}
	}
}
