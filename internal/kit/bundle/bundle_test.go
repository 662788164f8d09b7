package bundle

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// unpack returns the files of a bundle.
func unpack(t *testing.T, data []byte) map[string]string {
	t.Helper()
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

// A bundle has the readable parts, and lists the missing parts with reasons.
func TestABundleHasWhatMayBeRead(t *testing.T) {
	mux := http.NewServeMux()
	say := func(path, text string) {
		mux.HandleFunc(path, func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, text) })
	}
	say("/debug/log", "E1 bearer abcdefgh URI=\"/x?token=abc\"\n")
	say("/metrics", strings.Repeat("x", maxPart+1))
	say("/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations", `{"items":[{"metadata":{"name":"hook","managedFields":[{"manager":"m"}],
		"annotations":{"a":"b","kubectl.kubernetes.io/last-applied-configuration":"{}"}}}]}`)
	say(tracesPath, `{"items":[{"id":"t1","steps":[{"patch":[{"op":"add","path":"/data/x","value":"of the object","was":"before"}],"calls":[{"warnings":["of the hook"]}]}]}]}`)
	mux.HandleFunc("/readyz", func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusInternalServerError)
		io.WriteString(w, "[-]etcd failed")
	})
	mux.HandleFunc("/debug/pprof/heap", func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusForbidden)
		io.WriteString(w, `{"kind":"Status","message":"user \"jane\" cannot get path \"/debug/pprof/heap\""}`)
	})
	server := httptest.NewServer(mux)
	defer server.Close()
	const secrets = "password=hunter22\nAWS_SECRET_ACCESS_KEY=hunter22\nexport DB_PASS=hunter22\nCookie: a=hunter22; b=hunter22\nprivateKey: hunter22\ndb:5432:shop:jane:hunter22\n"
	file := filepath.Join(t.TempDir(), "server.log")
	if err := os.WriteFile(file, []byte("cut off\n"+strings.Repeat(fmt.Sprintln("a line"), maxLog/7)+secrets), 0o600); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	contents, err := Write(t.Context(), &out, Options{
		Server: server.URL + "/", Client: server.Client(), Logs: []string{file, filepath.Join(t.TempDir(), "none")}, Version: []byte("version: v1\n"),
	})
	if err != nil {
		t.Fatal(err)
	}
	found := unpack(t, out.Bytes())
	for name, want := range map[string]string{
		"log.txt":    "E1 bearer [removed] URI=\"/x?token=[removed]\"\n",
		"readyz.txt": "[-]etcd failed",
		"registrations/validatingwebhookconfigurations.yaml": "items:\n- metadata:\n    annotations:\n      a: b\n    name: hook\n",
		"traces.yaml":         "items:\n- id: t1\n  steps:\n  - calls:\n    - {}\n    patch:\n    - op: add\n      path: /data/x\n",
		"client-version.yaml": "version: v1\n",
	} {
		if found[name] != want {
			t.Errorf("%s: %q, want %q", name, found[name], want)
		}
	}
	log := found["logs/1-server.log"]
	if len(log) > maxLog || strings.Contains(log, "cut off") || !strings.HasPrefix(log, "a line\n") || strings.Contains(log, "hunter22") || !strings.HasSuffix(log, "db:5432:shop:jane:[removed]\n") {
		t.Errorf("the log has %d bytes: %.30q ... %q", len(log), log, log[max(0, len(log)-30):])
	}
	missing := map[string]string{}
	for _, m := range contents.Missing {
		missing[m.Name] = m.Err.Error()
	}
	if text := missing["profiles/heap.pb.gz"]; text != `user "jane" cannot get path "/debug/pprof/heap"` {
		t.Errorf("the heap is missing because of %q", text)
	}
	if text := missing["metrics.txt"]; !strings.Contains(text, "16 MiB") {
		t.Errorf("the metrics are missing because of %q", text)
	}
	for _, part := range []string{"log.txt (", "left out:", "flagz.txt", ": 404 not found", `cannot get path "/debug/pprof/heap"`} {
		if !strings.Contains(found["bundle.txt"], part) {
			t.Errorf("bundle.txt has no %q:\n%s", part, found["bundle.txt"])
		}
	}
}

// The fields that are removed from traces exist in traces (admission/trace/json.go).
func TestTheFieldsOfTraces(t *testing.T) {
	source, err := os.ReadFile(filepath.Join("..", "..", "..", "admission", "trace", "json.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, field := range []string{"value", "was", "warnings", "auditAnnotations"} {
		if !strings.Contains(string(source), "`json:\""+field+",omitempty\"`") {
			t.Errorf("a trace has no field %s", field)
		}
	}
}
