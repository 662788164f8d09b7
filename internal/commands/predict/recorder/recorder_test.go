package recorder

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/cel-go/cel"
	"github.com/google/go-cmp/cmp"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/cel/environment"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/gatehouse-dev/gatehouse/internal/commands/predict/requestlog"
	"github.com/gatehouse-dev/gatehouse/internal/kit/temporary"
)

// S25.13: the data of secrets, and fields named by --redact, are not recorded, wherever they are in the request.
func TestWhatIsNotRecorded(t *testing.T) {
	const deployment = `{"kind":"Deployment","metadata":{"annotations":{"a.b/c":"hidden","kubectl.kubernetes.io/last-applied-configuration":"hidden"},"managedFields":[{}]},"spec":{"replicas":3,"template":{"spec":{"containers":[{"name":"c","env":[{"name":"P","value":"hidden"},{"name":"Q"}]}]}}}}`
	for _, c := range []struct {
		name, resource, object, want string
		rules, removed               []string
	}{
		{"a secret", "secrets", `{"data":{"a":"hidden"},"stringData":{"b":"hidden"},"metadata":{"managedFields":[{}],"annotations":{"x":"y","kubectl.kubernetes.io/last-applied-configuration":"hidden"}},"type":"kubernetes.io/dockerconfigjson"}`,
			`{"data":{"a":"e30="},"metadata":{"annotations":{"x":"y"}},"stringData":{"b":"{}"},"type":"kubernetes.io/dockerconfigjson"}`, nil,
			[]string{"the annotation kubectl.kubernetes.io/last-applied-configuration", "the values of data", "the values of stringData"}},
		{"no rule", "deployments.apps", `{"spec":{"n":12345678901234567890}}`, `{"spec":{"n":12345678901234567890}}`, nil, nil},
		{"at any depth, through lists", "deployments.apps", deployment,
			`{"kind":"Deployment","metadata":{"annotations":{"a.b/c":"hidden"}},"spec":{"replicas":3,"template":{"spec":{"containers":[{"env":[{"name":"P","value":"redacted"},{"name":"Q"}],"name":"c"}]}}}}`,
			[]string{"**.env.value"}, []string{"**.env.value", "the annotation kubectl.kubernetes.io/last-applied-configuration"}},
		{"a name with dots, of a resource with its group", "deployments.apps", deployment,
			`{"kind":"Deployment","metadata":{"annotations":{"a.b/c":"redacted"}},"spec":{"template":{"spec":{"containers":[{"env":[{"name":"P","value":"hidden"},{"name":"Q"}],"name":"c"}]}}}}`,
			[]string{"deployments.apps:metadata.annotations['a.b/c']", "deployments:spec.replicas", "pods:spec"},
			[]string{"deployments.apps:metadata.annotations['a.b/c']", "deployments:spec.replicas", "the annotation kubectl.kubernetes.io/last-applied-configuration"}},
		{"a review of a token", "tokenreviews.authentication.k8s.io", `{"spec":{"token":"hidden"}}`, `{"spec":{"token":"redacted"}}`, nil, []string{"spec.token"}},
		{"a kubeconfig", "configmaps", `{"data":{"k":"users: [{user: {token: hidden}}]"}}`, `{"data":{"k":"users: [{user: {token: [removed]}}]"}}`, nil, []string{"data.k"}},
		{"all texts below a field", "configmaps", `{"data":{"a":"hidden","b":"hidden"},"binaryData":{"c":"aGlkZGVu"}}`, `{"binaryData":{"c":"redacted"},"data":{"a":"redacted","b":"redacted"}}`,
			[]string{"configmaps:data", "configmaps:binaryData.*"}, []string{"configmaps:binaryData.*", "configmaps:data"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var rules []*Redaction
			for _, text := range c.rules {
				r, err := ParseRedaction(text)
				if err != nil {
					t.Fatal(err)
				}
				rules = append(rules, r)
			}
			resource, group, _ := strings.Cut(c.resource, ".")
			q := &requestlog.Entry{Resource: metav1.GroupVersionResource{Group: group, Resource: resource}, Object: json.RawMessage(c.object), OldObject: json.RawMessage(c.object)}
			if err := redact(q, rules); err != nil {
				t.Fatal(err)
			}
			for _, got := range []json.RawMessage{q.Object, q.OldObject} {
				if diff := cmp.Diff(c.want, string(got)); diff != "" {
					t.Errorf("(-want +got):\n%s", diff)
				}
			}
			if diff := cmp.Diff(c.removed, q.Removed); diff != "" {
				t.Errorf("removed (-want +got):\n%s", diff)
			}
		})
	}
	q := &requestlog.Entry{User: authenticationv1.UserInfo{Username: "u", Extra: map[string]authenticationv1.ExtraValue{"assertion": {"hidden"}, "authentication.kubernetes.io/node-name": {"n"}}}}
	want := authenticationv1.UserInfo{Username: "u", Extra: map[string]authenticationv1.ExtraValue{"assertion": {"redacted"}, "authentication.kubernetes.io/node-name": {"n"}}}
	if err := redact(q, nil); err != nil || !reflect.DeepEqual(q.User, want) || !slices.Equal(q.Removed, []string{"the values of user.extra"}) {
		t.Errorf("the user is %v, removed %q, %v", q.User, q.Removed, err)
	}
	for _, text := range []string{"", ":", ":spec", "a.", ".a", "a..b", "**", "a.**", "['a", "['']", "a b"} {
		if r, err := ParseRedaction(text); err == nil {
			t.Errorf("%q is taken for %+v", text, r)
		}
	}
}

// S25.14: files have a bounded size, the latest are kept, and the reader of recorded requests reads them in order.
func TestFilesAreBounded(t *testing.T) {
	for _, compress := range []bool{false, true} {
		dir := filepath.Join(t.TempDir(), "requests")
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		other := filepath.Join(dir, "notes.txt")
		if err := os.WriteFile(other, []byte("mine"), 0o600); err != nil {
			t.Fatal(err)
		}
		at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
		o := &output{dir: dir, compress: compress, maxSize: 100, maxFiles: 3, now: func() time.Time { return at }}
		if err := o.open(); err != nil {
			t.Fatal(err)
		}
		for i := range 40 {
			q := &requestlog.Entry{APIVersion: requestlog.APIVersion, Kind: requestlog.Kind, Operation: requestlog.Connect, Name: fmt.Sprint("n", i), Resource: metav1.GroupVersionResource{Version: "v1", Resource: "pods"}}
			line, err := json.Marshal(q)
			if err != nil {
				t.Fatal(err)
			}
			if err := o.line(line); err != nil {
				t.Fatal(err)
			}
			if err := o.flush(); err != nil {
				t.Fatal(err)
			}
		}
		// A killed recorder has not closed its file.
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		if len(entries) != 4 || !slices.ContainsFunc(entries, func(e os.DirEntry) bool { return e.Name() == "notes.txt" }) {
			t.Errorf("compress %v: files %v", compress, entries)
		}
		var names []string
		if _, err := (&requestlog.Reader{Paths: []string{dir}}).Read(t.Context(), func(q *requestlog.Entry) error {
			names = append(names, q.Name)
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		if len(names) == 0 || names[len(names)-1] != "n39" || !slices.IsSortedFunc(names, func(a, b string) int { return cmp2(a, b) }) {
			t.Errorf("compress %v: requests %v", compress, names)
		}
		if err := o.close(); err != nil {
			t.Fatal(err)
		}
		if compress {
			entries, _ := filepath.Glob(filepath.Join(dir, "*.gz"))
			data, err := os.ReadFile(entries[len(entries)-1])
			if err != nil {
				t.Fatal(err)
			}
			z, err := gzip.NewReader(bytes.NewReader(data))
			if err != nil {
				t.Fatal(err)
			}
			if _, err := io.ReadAll(z); err != nil {
				t.Errorf("the last file is not whole: %v", err)
			}
		}
	}
}

// cmp2 compares names by their numbers.
func cmp2(a, b string) int {
	if len(a) != len(b) {
		return len(a) - len(b)
	}
	return strings.Compare(a, b)
}

// S25.12: the match condition of the webhook excludes every request after the end of its term.
func TestNoRequestIsSentAfterTheTerm(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	field := func(at ...time.Duration) string {
		var list []string
		for _, d := range at {
			list = append(list, fmt.Sprintf(`{"manager":"m","time":%q}`, now.Add(d).Format(time.RFC3339)))
		}
		return `{"metadata":{"name":"a","managedFields":[` + strings.Join(list, ",") + `]}}`
	}
	const bare = `{"metadata":{"name":"a"}}`
	for _, c := range []struct {
		name, operation, subresource, object string
		timed, untimed                       bool
	}{
		{"a create", "CREATE", "", field(0), true, true},
		{"an update", "UPDATE", "", field(-time.Hour, time.Second), true, true},
		{"a server whose clock is behind", "UPDATE", "", field(-10 * time.Second), true, true},
		{"at the end of the term", "CREATE", "", field(temporary.Term), true, true},
		{"after the term", "CREATE", "", field(temporary.Term + time.Second), false, false},
		{"after the term, of an object that was changed within", "UPDATE", "", field(0, temporary.Term+time.Second), false, false},
		{"an update that changes nothing", "UPDATE", "", field(-time.Hour), false, true},
		{"an object that has nothing but a name", "CREATE", "", bare, true, true},
		{"an update of such an object", "UPDATE", "", bare, false, true},
		{"a binding", "CREATE", "binding", bare, false, true},
		{"a scale", "UPDATE", "scale", bare, false, true},
		{"a deletion", "DELETE", "", "null", false, true},
		{"a connection", "CONNECT", "exec", `{"kind":"PodExecOptions"}`, false, true},
	} {
		for _, untimed := range []bool{false, true} {
			r := &registration{Options: &Options{Untimed: untimed}}
			want := c.timed
			if untimed {
				want = c.untimed
			}
			if got := satisfied(t, r.whileRenewed(now), c.operation, c.subresource, c.object); got != want {
				t.Errorf("%s, untimed %v: sent is %v", c.name, untimed, got)
			}
		}
	}
}

// satisfied evaluates a match condition as an API server does: a webhook with failure policy Ignore is not called after
// an error.
func satisfied(t *testing.T, expression, operation, subresource, object string) bool {
	t.Helper()
	env, err := environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()).Extend(environment.VersionedOptions{
		IntroducedVersion: environment.DefaultCompatibilityVersion(),
		EnvOptions:        []cel.EnvOption{cel.Variable("object", cel.DynType), cel.Variable("request", cel.DynType)},
	})
	if err != nil {
		t.Fatal(err)
	}
	e := env.NewExpressionsEnv()
	ast, issues := e.Compile(expression)
	if issues.Err() != nil {
		t.Fatal(issues.Err())
	}
	program, err := e.Program(ast)
	if err != nil {
		t.Fatal(err)
	}
	var value any
	if err := json.Unmarshal([]byte(object), &value); err != nil {
		t.Fatal(err)
	}
	request := map[string]any{"operation": operation}
	if subresource != "" {
		request["subResource"] = subresource
	}
	out, _, err := program.Eval(map[string]any{"object": value, "request": request})
	return err == nil && out.Value() == true
}

// S25.12: the response allows the request and changes nothing, whatever is sent and however many reviews wait. S25.19:
// a client that does not know the path is rejected.
func TestEveryRequestPasses(t *testing.T) {
	r := &Recorder{registration: registration{Options: &Options{}, name: "n", base: "https://h/p", way: "/random", probe: &temporary.Probe{Probed: make(chan struct{}, 1)}}, reviews: make(chan review, 1)}
	post := func(path, body string) (int, string) {
		w := httptest.NewRecorder()
		r.ServeHTTP(w, httptest.NewRequest(http.MethodPost, path, strings.NewReader(body)))
		return w.Code, w.Body.String()
	}
	const review = `{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{"uid":"u-1","operation":"CREATE"}}`
	const passes = `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","response":{"uid":"u-1","allowed":true,"auditAnnotations":{"recorded-request":"u-1"}}}`
	for i := range 3 {
		if code, body := post("/p/random/record", review); code != http.StatusOK || body != passes {
			t.Errorf("review %d: %d %s", i, code, body)
		}
	}
	// One review waits, and nothing writes it.
	if r.lost.Load() != 2 || r.waiting.Load() != int64(len(review)) {
		t.Errorf("lost %d, waiting %d", r.lost.Load(), r.waiting.Load())
	}
	for _, c := range []struct {
		path, body string
		code       int
	}{
		{"/p/random/record", "", 400}, {"/p/random/record", "[]", 400}, {"/p/random/record", `{"request":1}`, 400}, {"/p/random/record", `{"request":{"uid":7}}`, 400}, {"/p/random/record", `{"request":{}}`, 400},
		{"/p/random/record", strings.Repeat(" ", maxReview+1), 400}, {"/p/record", review, 404}, {"/p/random", review, 404}, {"/random/record", review, 404}, {"/p/other/record", review, 404}, {"/p/probe", review, 404},
	} {
		if code, _ := post(c.path, c.body); code != c.code {
			t.Errorf("%s %.40s: %d", c.path, c.body, code)
		}
	}
	if code, _ := post("/p/random/probe", `{"request":{"other":{"uid":"x"},"uid":"u"}}`); code != 200 || len(r.probe.Probed) != 1 {
		t.Errorf("the probe: %d, %d", code, len(r.probe.Probed))
	}
}

// S25.12: the webhook cannot change or reject anything, whatever resources are selected.
func TestRegistrations(t *testing.T) {
	r := &registration{Options: &Options{Resources: []string{"pods", "deployments/scale.apps", "*.example.com"}, Namespaces: []string{"shop"}}, name: NewName(), base: "https://h/p", way: "/random", probe: &temporary.Probe{Namespace: "shop"}}
	c := r.configuration(time.Unix(0, 0), true)
	var rules []string
	for i := range c.Webhooks {
		w := &c.Webhooks[i]
		if *w.FailurePolicy != "Ignore" || *w.TimeoutSeconds != 1 || *w.SideEffects != "None" || *w.ReinvocationPolicy != "Never" || len(w.MatchConditions) == 0 {
			t.Errorf("webhook %+v", w)
		}
		for _, rule := range w.Rules {
			rules = append(rules, fmt.Sprint(rule.APIGroups, rule.Resources, rule.Operations))
		}
		if w.NamespaceSelector == nil || w.NamespaceSelector.MatchExpressions[0].Values[0] != "shop" {
			t.Errorf("namespaces %v", w.NamespaceSelector)
		}
	}
	want := []string{"[] [pods] [CREATE UPDATE]", "[apps] [deployments/scale] [CREATE UPDATE]", "[example.com] [*] [CREATE UPDATE]", "[] [configmaps] [CREATE]"}
	if diff := cmp.Diff(want, rules); diff != "" {
		t.Errorf("rules (-want +got):\n%s", diff)
	}
	if name := NewName(); !(name < "a") || !strings.HasPrefix(name, namePrefix) || name == c.Name {
		t.Errorf("name %q", name)
	}
	if *c.Webhooks[0].ClientConfig.URL != "https://h/p/random/record" {
		t.Errorf("URL %s", *c.Webhooks[0].ClientConfig.URL)
	}
}

// S25.16: a request is recorded with the labels of its namespace, and a recorder that may not read them reports this.
func TestLabelsOfNamespacesAreRecorded(t *testing.T) {
	shop := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop", Labels: map[string]string{"stage": "prod"}}}
	forbid := func(c *fake.Clientset) {
		c.PrependReactor("list", "namespaces", func(clienttesting.Action) (bool, runtime.Object, error) {
			return true, nil, apierrors.NewForbidden(corev1.Resource("namespaces"), "", errors.New("no right"))
		})
	}
	for _, c := range []struct {
		name      string
		forbidden bool
		want      string
	}{{"read", false, `"namespaceLabels":{"stage":"prod"}`}, {"not read", true, ""}} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client := fake.NewClientset(shop)
				if c.forbidden {
					forbid(client)
				}
				labels, err := newNamespaceLabels(client)
				if err != nil {
					t.Fatal(err)
				}
				ctx, cancel := context.WithCancel(t.Context())
				var running sync.WaitGroup
				running.Go(func() { labels.informer.RunWithContext(ctx) })
				defer running.Wait()
				defer cancel()
				if note := labels.await(ctx); c.forbidden != strings.Contains(note, "no right") {
					t.Errorf("the note is %q", note)
				}
				dir := t.TempDir()
				r := &Recorder{registration: registration{Options: &Options{}, name: "n"}, labels: labels}
				r.output = output{dir: dir, maxSize: 1 << 20, maxFiles: 2, now: time.Now}
				if err := r.output.open(); err != nil {
					t.Fatal(err)
				}
				if err := r.writeReview(review{body: []byte(`{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"u","resource":{"version":"v1","resource":"configmaps"},"namespace":"shop","name":"a","operation":"CREATE","object":{"apiVersion":"v1","kind":"ConfigMap"}}}`)}); err != nil {
					t.Fatal(err)
				}
				if err := r.output.close(); err != nil {
					t.Fatal(err)
				}
				files, err := filepath.Glob(filepath.Join(dir, "*.jsonl"))
				if err != nil || len(files) != 1 {
					t.Fatal(files, err)
				}
				data, err := os.ReadFile(files[0])
				if err != nil {
					t.Fatal(err)
				}
				if found := strings.Contains(string(data), "namespaceLabels"); found == c.forbidden || !strings.Contains(string(data), c.want) {
					t.Errorf("recorded: %s", data)
				}
			})
		})
	}
}
