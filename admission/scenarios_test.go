package admission

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/apis/audit"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/warning"
	"k8s.io/klog/v2"
	"sigs.k8s.io/yaml"

	"github.com/gatehouse-dev/gatehouse/admission/registration"
	"github.com/gatehouse-dev/gatehouse/admission/trace"
	"github.com/gatehouse-dev/gatehouse/test/hooktest"
)

var update = flag.Bool("update", false, "rewrite the plans, traces and objects in testdata")

// hooksHost is the host of the webhooks of scenarios. External hooks are behind the service
// default/hooks.
const hooksHost = "https://hooks.example.com"

// scenario is a file in testdata/trace.
type scenario struct {
	registrations []runtime.Object
	namespaces    scenarioNamespaces
	// answers are the answers of the webhook at a path, one call after the other; the last answer
	// is repeated. A webhook without answers allows everything.
	answers map[string][]answer
	request scenarioRequest
	// params are the params of policies.
	params randomParams
	// plan, trace and object are the expected results, and answer the expected response: the status
	// of a rejection, warnings, and the additions to the audit event. The trace is required.
	plan, trace, object, answer *txtar.File
}

// scenarioRequest is request.yaml.
type scenarioRequest struct {
	Operation   string         `json:"operation"`
	APIVersion  string         `json:"apiVersion"`
	Resource    string         `json:"resource"`
	Subresource string         `json:"subresource"`
	Namespace   string         `json:"namespace"`
	Name        string         `json:"name"`
	User        string         `json:"user"`
	DryRun      bool           `json:"dryRun"`
	Object      map[string]any `json:"object"`
	OldObject   map[string]any `json:"oldObject"`
	// TimeoutSeconds is the time limit of the request; 0 means none.
	TimeoutSeconds float64 `json:"timeoutSeconds"`
	// EarlierRequests is the number of earlier requests like this one, which all webhooks allowed
	// without a change: the engine learns from them which webhooks it may call ahead of their turn.
	EarlierRequests int `json:"earlierRequests"`
}

// answer is one answer in answers.yaml. An empty one allows the request.
type answer struct {
	// Deny denies the request with a message, Code with a status code.
	Deny string `json:"deny"`
	Code int32  `json:"code"`
	// Patch changes the object.
	Patch string `json:"patch"`
	// HTTP is the status code of an answer that is not a review. It is then the webhook's only
	// answer.
	HTTP int `json:"http"`
	// AfterSeconds is the delay of the answer.
	AfterSeconds float64 `json:"afterSeconds"`
}

type scenarioNamespaces map[string]*corev1.Namespace

func (n scenarioNamespaces) Cached(name string) *corev1.Namespace { return n[name] }

func (n scenarioNamespaces) Live(_ context.Context, name string) (*corev1.Namespace, error) {
	if ns := n[name]; ns != nil {
		return ns, nil
	}
	return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "namespaces"}, name)
}

// TestScenarios sends the requests of the files in testdata/trace through the recommended chain,
// with the webhook answers of the file, and compares the trace with the trace of the file; and the
// plan and the resulting object, if the file has them. The comment at the top describes the proof.
// Webhooks are called over HTTPS, in memory, and time is simulated.
func TestScenarios(t *testing.T) {
	files, err := filepath.Glob("testdata/trace/*/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scenarios: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(strings.TrimPrefix(filepath.ToSlash(file), "testdata/trace/"), ".txtar"), func(t *testing.T) {
			archive, err := txtar.ParseFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Contains(archive.Comment, []byte("Source: ")) {
				t.Error("the comment does not say where the rule comes from")
			}
			synctest.Test(t, func(t *testing.T) {
				s := hooktest.NewInBubble(t)
				readScenario(t, archive, s).run(t, s)
			})
			if *update {
				if err := os.WriteFile(file, txtar.Format(archive), 0o644); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

func readScenario(t *testing.T, archive *txtar.Archive, s *hooktest.Server) *scenario {
	c := &scenario{namespaces: scenarioNamespaces{}}
	for i := range archive.Files {
		f := &archive.Files[i]
		switch f.Name {
		case "registrations.yaml":
			for _, content := range documents(t, f.Data) {
				direct(content, s)
				obj, err := registration.Parse(content)
				if err != nil {
					t.Fatal(err)
				}
				if errs := registration.Validate(obj); len(errs) > 0 && !strings.Contains(fmt.Sprintf("%T", obj), "Policy") {
					t.Fatal(errs.ToAggregate())
				}
				c.registrations = append(c.registrations, obj)
			}
		case "namespaces.yaml":
			for _, content := range documents(t, f.Data) {
				ns := &corev1.Namespace{Status: corev1.NamespaceStatus{Phase: corev1.NamespaceActive}}
				if err := runtime.DefaultUnstructuredConverter.FromUnstructured(content, ns); err != nil {
					t.Fatal(err)
				}
				c.namespaces[ns.Name] = ns
			}
		case "params.yaml":
			for _, content := range documents(t, f.Data) {
				c.params = append(c.params, &unstructured.Unstructured{Object: content})
			}
		case "answer":
			c.answer = f
		case "answers.yaml":
			unmarshal(t, f.Data, &c.answers)
		case "request.yaml":
			unmarshal(t, f.Data, &c.request)
		case "plan":
			c.plan = f
		case "trace":
			c.trace = f
		case "object":
			c.object = f
		default:
			t.Fatalf("unknown file %q", f.Name)
		}
	}
	if c.trace == nil {
		t.Fatal("there is no trace")
	}
	return c
}

func unmarshal(t *testing.T, data []byte, into any) {
	t.Helper()
	if err := yaml.UnmarshalStrict(data, into); err != nil {
		t.Fatal(err)
	}
}

// documents returns the documents of a YAML file.
func documents(t *testing.T, data []byte) []map[string]any {
	t.Helper()
	var out []map[string]any
	for _, document := range strings.Split(string(data), "\n---\n") {
		var content map[string]any
		unmarshal(t, []byte(document), &content)
		out = append(out, content)
	}
	return out
}

// direct directs calls of webhooks to the server of the test.
func direct(registered map[string]any, s *hooktest.Server) {
	for _, field := range []string{"webhooks", "externalAdmissionHooks"} {
		list, _ := registered[field].([]any)
		for _, hook := range list {
			config, _ := hook.(map[string]any)["clientConfig"].(map[string]any)
			if config == nil {
				continue
			}
			config["caBundle"] = s.CA
			if url, ok := config["url"].(string); ok {
				config["url"] = s.URL + strings.TrimPrefix(url, hooksHost)
			}
		}
	}
}

// serve gives the answers of the scenario. While quiet is true, every webhook allows everything.
func (c *scenario) serve(s *hooktest.Server, quiet *bool) {
	paths := map[string]registration.Source{}
	for _, obj := range c.registrations {
		entries, _ := registration.Entries(obj)
		for _, e := range entries {
			switch {
			case e.Webhook == nil:
			case e.ClientConfig.Service != nil:
				paths[strings.TrimPrefix(e.ClientConfig.Service.Path, "/")] = e.Source
			default:
				paths[strings.TrimPrefix(e.ClientConfig.URL, s.URL+"/")] = e.Source
			}
		}
	}
	for path, source := range paths {
		var mu sync.Mutex
		answers := c.answers[path]
		take := func() (next answer) {
			mu.Lock()
			defer mu.Unlock()
			if len(answers) == 0 || *quiet {
				return answer{}
			}
			if next = answers[0]; len(answers) > 1 {
				answers = answers[1:]
			}
			return next
		}
		respond := func(r *http.Request, req *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
			next := take()
			select {
			case <-time.After(time.Duration(next.AfterSeconds * float64(time.Second))):
			case <-r.Context().Done():
			}
			switch {
			case next.Deny != "" || next.Code != 0:
				return hooktest.Deny(metav1.Status{Message: next.Deny, Code: next.Code})(r, req)
			case next.Patch != "":
				return hooktest.Patch(next.Patch)(r, req)
			}
			return hooktest.Allow(r, req)
		}
		if source == registration.External {
			s.AnswerAlpha(path, respond)
		} else {
			s.Answer(path, respond)
		}
		if len(answers) > 0 && answers[0].HTTP != 0 {
			s.Serve(path, func(w http.ResponseWriter, _ *http.Request) {
				http.Error(w, "the webhook is broken", answers[0].HTTP)
			})
		}
	}
}

// run sends the request, and compares.
func (c *scenario) run(t *testing.T, s *hooktest.Server) {
	registered := register(c.registrations...)
	e, err := New(Options{
		Snapshots: registered, Namespaces: c.namespaces, Params: c.params, Authorizer: alice{}, Schemas: catalogueSchemas, Dial: s.Dial, Resolver: s, Skips: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	chain := []Plugin{
		{NamespaceLifecycleName, NewNamespaceLifecycle(c.namespaces)}, {InitializersName, e.Initializers()},
		{MutatingPolicyName, e.MutatingPolicies()}, {MutatingWebhookName, e.MutatingWebhooks()},
		{ValidatingPolicyName, e.ValidatingPolicies()}, {GenericWebhookName, e.ExternalHooks()}, {ValidatingWebhookName, e.ValidatingWebhooks()},
	}
	joined := Chain(chain...)
	var answered answerOf
	quiet := true
	c.serve(s, &quiet)
	judge := func(a admission.Attributes) *trace.Trace {
		ctx := t.Context()
		if c.request.TimeoutSeconds > 0 {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, time.Duration(c.request.TimeoutSeconds*float64(time.Second)))
			defer cancel()
		}
		followed := trace.New()
		// The log contains nothing beyond the trace.
		ctx = klog.NewContext(trace.NewContext(ctx, followed), klog.Logger{})
		answered = answerOf{}
		ctx = warning.WithWarningRecorder(ctx, &answered)
		a = annotated{a, &answered}
		err := joined.Admit(ctx, a, catalogueInterfaces)
		if err == nil {
			err = joined.Validate(ctx, a, catalogueInterfaces)
		}
		answered.rejected(err)
		return followed
	}
	for range c.request.EarlierRequests {
		judge(c.request.attributes(t))
	}
	quiet = false
	a := c.request.attributes(t)
	predicted, err := e.Plan(t.Context(), chain, a, catalogueInterfaces, PlanOptions{All: true})
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	if err := predicted.Print(&b); err != nil {
		t.Fatal(err)
	}
	c.expect(t, c.plan, b.String())
	c.expect(t, c.trace, traceText(judge(a)))
	c.expect(t, c.answer, answered.String())
	if c.object != nil {
		content, err := yaml.Marshal(a.GetObject())
		if err != nil {
			t.Fatal(err)
		}
		c.expect(t, c.object, string(content))
	}
}

func (c *scenario) expect(t *testing.T, want *txtar.File, got string) {
	t.Helper()
	switch {
	case want == nil:
	case *update:
		want.Data = []byte(got)
	default:
		if diff := cmp.Diff(string(want.Data), got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", want.Name, diff)
		}
	}
}

// attributes returns the request as a server passes it to admission.
func (r *scenarioRequest) attributes(t *testing.T) admission.Attributes {
	t.Helper()
	gv, err := schema.ParseGroupVersion(r.APIVersion)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range catalogue {
		if s.resource != gv.WithResource(r.Resource) || s.subresource != r.Subresource {
			continue
		}
		object, err := s.written(r.Object)
		if err != nil {
			t.Fatal(err)
		}
		old, err := s.written(r.OldObject)
		if err != nil {
			t.Fatal(err)
		}
		operation := admission.Operation(r.Operation)
		return admission.NewAttributesRecord(object, old, s.kind, r.Namespace, r.Name, s.resource, s.subresource, operation,
			optionsOf(operation, r.DryRun), r.DryRun, &user.DefaultInfo{Name: r.User})
	}
	t.Fatalf("the catalogue has no %s %s/%s", gv, r.Resource, r.Subresource)
	return nil
}

// answerOf is the result of a request for its client and the audit log.
type answerOf struct {
	lines []string
}

func (r *answerOf) String() string { return strings.Join(append(r.lines, ""), "\n") }

func (r *answerOf) AddWarning(_, text string) { r.lines = append(r.lines, "warning: "+text) }

// rejected writes the status of a rejection.
func (r *answerOf) rejected(err error) {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		r.lines = append(r.lines, "allowed")
		return
	}
	s := status.Status()
	r.lines = append(r.lines, fmt.Sprintf("%d %s: %s", s.Code, s.Reason, s.Message))
	if s.Details == nil {
		return
	}
	for _, cause := range s.Details.Causes {
		r.lines = append(r.lines, fmt.Sprintf("cause: %s%s", cause.Type, cause.Message))
	}
}

// annotated records the additions to the audit event.
type annotated struct {
	admission.Attributes
	answer *answerOf
}

func (a annotated) AddAnnotationWithLevel(key, value string, level audit.Level) error {
	a.answer.lines = append(a.answer.lines, fmt.Sprintf("audit: %s = %s", key, value))
	return a.Attributes.AddAnnotationWithLevel(key, value, level)
}
