package admission

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	v1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	auditinternal "k8s.io/apiserver/pkg/apis/audit"
	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/warning"

	"github.com/gatehouse-dev/gatehouse/admission/registration"
	"github.com/gatehouse-dev/gatehouse/admission/registration/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/admission/snapshot"
	"github.com/gatehouse-dev/gatehouse/admission/trace"
	"github.com/gatehouse-dev/gatehouse/internal/engine/initializers"
	"github.com/gatehouse-dev/gatehouse/test/hooktest"
)

// fixed is a source of one snapshot, or of an error.
type fixed struct {
	snapshot *snapshot.Snapshot
	err      error
}

func (*fixed) Static() *snapshot.Snapshot { return nil }

func (f *fixed) Acquire(context.Context, snapshot.Subject) (*snapshot.Snapshot, error) {
	return f.snapshot, f.err
}

// register compiles objects with their defaults, as a server does.
func register(objects ...runtime.Object) *fixed {
	for _, o := range objects {
		registration.Default(o)
	}
	return &fixed{snapshot: snapshot.Compile(snapshot.Registrations{Objects: objects, Revision: "7"})}
}

func rule(op v1.OperationType, group, version, resource string) []v1.RuleWithOperations {
	return []v1.RuleWithOperations{{
		Operations: []v1.OperationType{op},
		Rule:       v1.Rule{APIGroups: []string{group}, APIVersions: []string{version}, Resources: []string{resource}},
	}}
}

var everything = rule("*", "*", "*", "*/*")

// mutating returns a configuration with one webhook per name, which is also its path.
func mutating(s *hooktest.Server, configuration string, edit func(*v1.MutatingWebhook), names ...string) *v1.MutatingWebhookConfiguration {
	c := &v1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: configuration}}
	for _, name := range names {
		url, none := s.URL+"/"+name, v1.SideEffectClassNone
		w := v1.MutatingWebhook{
			Name: name, ClientConfig: v1.WebhookClientConfig{URL: &url, CABundle: s.CA},
			Rules: everything, SideEffects: &none, AdmissionReviewVersions: []string{"v1"},
		}
		if edit != nil {
			edit(&w)
		}
		c.Webhooks = append(c.Webhooks, w)
	}
	return c
}

func validating(s *hooktest.Server, configuration string, edit func(*v1.ValidatingWebhook), names ...string) *v1.ValidatingWebhookConfiguration {
	c := &v1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: configuration}}
	for _, name := range names {
		url, none := s.URL+"/"+name, v1.SideEffectClassNone
		w := v1.ValidatingWebhook{
			Name: name, ClientConfig: v1.WebhookClientConfig{URL: &url, CABundle: s.CA},
			Rules: everything, SideEffects: &none, AdmissionReviewVersions: []string{"v1"},
		}
		if edit != nil {
			edit(&w)
		}
		c.Webhooks = append(c.Webhooks, w)
	}
	return c
}

// world is an engine with its chain, as in a server.
type world struct {
	chain  admission.Interface
	traces *[]*trace.Trace
}

// newWorld builds the recommended chain, with between before the mutating webhooks.
func newWorld(t testing.TB, snapshots Snapshots, namespaces Namespaces, between ...Plugin) *world {
	t.Helper()
	w := &world{traces: &[]*trace.Trace{}}
	e, err := New(Options{
		Snapshots: snapshots, Namespaces: namespaces,
		Observer: func(tr *trace.Trace) { *w.traces = append(*w.traces, tr) },
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	plugins := append(slices.Clone(between),
		Plugin{MutatingWebhookName, e.MutatingWebhooks()},
		Plugin{GenericWebhookName, e.ExternalHooks()},
		Plugin{ValidatingWebhookName, e.ValidatingWebhooks()},
	)
	w.chain = admission.WithAudit(Chain(plugins...))
	return w
}

var (
	widgets  = schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "widgets"}
	widgetV1 = schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Widget"}
)

func newWidget(labels map[string]string) *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(widgetV1)
	u.SetName("w")
	u.SetNamespace("ns")
	u.SetLabels(labels)
	return u
}

// identityScheme serves one version.
type identityScheme struct{}

func (identityScheme) New(schema.GroupVersionKind) (runtime.Object, error) {
	return &unstructured.Unstructured{}, nil
}
func (identityScheme) Default(runtime.Object) {}
func (identityScheme) Convert(in, out, _ any) error {
	return fmt.Errorf("cannot convert %T to %T", in, out)
}
func (identityScheme) ConvertToVersion(runtime.Object, runtime.GroupVersioner) (runtime.Object, error) {
	return nil, errors.New("there is one version")
}
func (identityScheme) ConvertFieldLabel(schema.GroupVersionKind, string, string) (string, string, error) {
	return "", "", errors.New("there are no labels")
}

var interfaces = &admission.RuntimeObjectInterfaces{
	ObjectCreater: identityScheme{}, ObjectDefaulter: identityScheme{}, ObjectConvertor: identityScheme{},
	EquivalentResourceMapper: runtime.NewEquivalentResourceRegistry(),
}

func create(object runtime.Object) admission.Attributes {
	options := &metav1.CreateOptions{TypeMeta: metav1.TypeMeta{APIVersion: "meta.k8s.io/v1", Kind: "CreateOptions"}}
	return admission.NewAttributesRecord(object, nil, widgetV1, "ns", "w", widgets, "", admission.Create, options, false, &user.DefaultInfo{Name: "someone"})
}

// outcome is the result of a request for a client and an auditor.
type outcome struct {
	err         error
	annotations map[string]string
	warnings    []string
}

type warningRecorder []string

func (w *warningRecorder) AddWarning(_, text string) { *w = append(*w, text) }

// judge sends a request through both passes of the chain.
func (w *world) judge(t testing.TB, a admission.Attributes) outcome {
	t.Helper()
	ctx := audit.WithAuditContext(t.Context())
	if err := audit.AuditContextFrom(ctx).Init(audit.RequestAuditConfig{Level: auditinternal.LevelRequest}, nil); err != nil {
		t.Fatal(err)
	}
	warnings := &warningRecorder{}
	ctx = warning.WithWarningRecorder(ctx, warnings)
	var o outcome
	if o.err = w.chain.(admission.MutationInterface).Admit(ctx, a, interfaces); o.err == nil {
		o.err = w.chain.(admission.ValidationInterface).Validate(ctx, a, interfaces)
	}
	o.annotations, o.warnings = audit.AuditContextFrom(ctx).GetEventAnnotations(), *warnings
	return o
}

func TestARequestThroughTheChain(t *testing.T) {
	s := hooktest.New(t)
	s.Answer("b.x.y", hooktest.Patch(`[{"op":"add","path":"/metadata/labels","value":{"size":"1"}}]`))
	s.Answer("a.x.y", hooktest.Patch(`[{"op":"add","path":"/metadata/labels/color","value":"red"}]`))
	s.Answer("v.x.y", hooktest.Allow)
	registered := register(
		// By name, z comes after m, regardless of the order of reading.
		mutating(s, "z", nil, "a.x.y"),
		mutating(s, "m", nil, "b.x.y"),
		validating(s, "v", nil, "v.x.y"),
	)
	w := newWorld(t, registered, knownNamespaces{})
	object := newWidget(nil)
	got := w.judge(t, create(object))
	if got.err != nil {
		t.Fatal(got.err)
	}
	if diff := cmp.Diff(map[string]string{"size": "1", "color": "red"}, object.GetLabels()); diff != "" {
		t.Errorf("S5.1 labels (-want +got):\n%s", diff)
	}
	sent := string(s.Requests("v.x.y")[0].Object.Raw)
	if !strings.Contains(sent, `"labels":{"color":"red","size":"1"}`) {
		t.Errorf("S6.6 validating hooks see the final object, not %s", sent)
	}
	want := map[string]string{
		"mutation.webhook.admission.k8s.io/round_0_index_0": `{"configuration":"m","webhook":"b.x.y","mutated":true}`,
		"patch.webhook.admission.k8s.io/round_0_index_0":    `{"configuration":"m","webhook":"b.x.y","patch":[{"op":"add","path":"/metadata/labels","value":{"size":"1"}}],"patchType":"JSONPatch"}`,
		"mutation.webhook.admission.k8s.io/round_0_index_1": `{"configuration":"z","webhook":"a.x.y","mutated":true}`,
		"patch.webhook.admission.k8s.io/round_0_index_1":    `{"configuration":"z","webhook":"a.x.y","patch":[{"op":"add","path":"/metadata/labels/color","value":"red"}],"patchType":"JSONPatch"}`,
	}
	if diff := cmp.Diff(want, got.annotations); diff != "" {
		t.Errorf("S5.25 S5.26 annotations (-want +got):\n%s", diff)
	}
	if tr := (*w.traces)[0].Steps()[0].Run; tr.Revision != "7" || tr.Request.User != "someone" {
		t.Errorf("the trace says revision %q, user %q", tr.Revision, tr.Request.User)
	}
}

func TestReinvocationThroughTheChain(t *testing.T) {
	ifNeeded := v1.IfNeededReinvocationPolicy
	again := func(w *v1.MutatingWebhook) { w.ReinvocationPolicy = &ifNeeded }
	s := hooktest.New(t)
	s.Answer("first.x.y", hooktest.Allow)
	s.Answer("second.x.y", hooktest.Patch(`[{"op":"add","path":"/metadata/labels","value":{"a":"b"}}]`))
	passes := 0
	counter := Plugin{"Counter", mutator{link{admit: func(admission.Attributes) error { passes++; return nil }}}}
	w := newWorld(t, register(mutating(s, "c", again, "first.x.y", "second.x.y")), knownNamespaces{}, counter)
	got := w.judge(t, create(newWidget(nil)))
	if got.err != nil {
		t.Fatal(got.err)
	}
	if passes != 2 {
		t.Errorf("S5.17 the other mutating plugin ran %d times, want 2", passes)
	}
	want := map[string]string{
		"mutation.webhook.admission.k8s.io/round_0_index_0": `{"configuration":"c","webhook":"first.x.y","mutated":false}`,
		"mutation.webhook.admission.k8s.io/round_0_index_1": `{"configuration":"c","webhook":"second.x.y","mutated":true}`,
		"patch.webhook.admission.k8s.io/round_0_index_1":    `{"configuration":"c","webhook":"second.x.y","patch":[{"op":"add","path":"/metadata/labels","value":{"a":"b"}}],"patchType":"JSONPatch"}`,
		"mutation.webhook.admission.k8s.io/round_1_index_0": `{"configuration":"c","webhook":"first.x.y","mutated":false}`,
	}
	if diff := cmp.Diff(want, got.annotations); diff != "" {
		t.Errorf("S5.23 S5.25 annotations (-want +got):\n%s", diff)
	}
}

func TestFailingOpenAnnotations(t *testing.T) {
	ignore := v1.Ignore
	s := hooktest.New(t)
	s.Answer("ok.x.y", hooktest.Allow)
	only := func(w *v1.ValidatingWebhook) {
		w.FailurePolicy = &ignore
		if w.Name == "other.x.y" {
			w.Rules = rule("*", "other.com", "*", "*")
		}
	}
	external := &v1alpha1.ExternalAdmissionHookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "e"}}
	external.ExternalAdmissionHooks = []v1alpha1.ExternalAdmissionHook{{
		Name:         "hook.x.y",
		ClientConfig: v1alpha1.AdmissionHookClientConfig{Service: v1alpha1.ServiceReference{Namespace: "ns", Name: "gone"}, CABundle: s.CA},
		Rules:        []v1alpha1.RuleWithOperations{{Operations: []v1alpha1.OperationType{"*"}, Rule: v1alpha1.Rule{APIGroups: []string{"*"}, APIVersions: []string{"*"}, Resources: []string{"*"}}}},
	}}
	w := newWorld(t, register(
		mutating(s, "m", func(w *v1.MutatingWebhook) { w.FailurePolicy = &ignore }, "absent.x.y"),
		validating(s, "v", only, "other.x.y", "ok.x.y", "absent.x.y"),
		external,
	), knownNamespaces{})
	got := w.judge(t, create(newWidget(nil)))
	if got.err != nil {
		t.Fatal(got.err)
	}
	want := map[string]string{
		"mutation.webhook.admission.k8s.io/round_0_index_0":               `{"configuration":"m","webhook":"absent.x.y","mutated":false}`,
		"failed-open.mutation.webhook.admission.k8s.io/round_0_index_0":   "absent.x.y",
		"failed-open.validating.webhook.admission.k8s.io/round_0_index_1": "absent.x.y",
		"failed-open.external.webhook.admission.k8s.io/round_0_index_0":   "hook.x.y",
	}
	if diff := cmp.Diff(want, got.annotations); diff != "" {
		t.Errorf("S5.27 S6.7 S12.11 S12.18 annotations (-want +got):\n%s", diff)
	}
}

func TestMatchConditionErrorsObeyTheFailurePolicy(t *testing.T) {
	for _, policy := range []v1.FailurePolicyType{v1.Fail, v1.Ignore} {
		t.Run(string(policy), func(t *testing.T) {
			s := hooktest.New(t)
			s.Answer("a.x.y", hooktest.Allow)
			w := newWorld(t, register(mutating(s, "c", func(w *v1.MutatingWebhook) {
				w.FailurePolicy = &policy
				w.MatchConditions = []v1.MatchCondition{{Name: "c", Expression: "object.absent.field == 'x'"}}
			}, "a.x.y")), knownNamespaces{})
			err := w.judge(t, create(newWidget(nil))).err
			if policy == v1.Ignore {
				if err != nil {
					t.Errorf("S2.32 got %v", err)
				}
			} else if st := statusOf(err); st == nil || st.Code != 403 || !strings.HasPrefix(st.Message, `widgets.example.com "w" is forbidden: expression 'object.absent.field == 'x'' resulted in error: `) {
				t.Errorf("S2.32 got %v", err)
			}
			if n := len(s.Requests("a.x.y")); n != 0 {
				t.Errorf("the hook was called %d times", n)
			}
		})
	}
}

func TestNamespaceSelector(t *testing.T) {
	s := hooktest.New(t)
	s.Answer("a.x.y", hooktest.Allow)
	selecting := func(w *v1.MutatingWebhook) {
		w.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"team": "red"}}
	}
	tests := []struct {
		name       string
		namespaces Namespaces
		calls      int
		code       int32
	}{
		{"S2.14 the cached namespace matches", labelled{cached: map[string]string{"team": "red"}}, 1, 0},
		{"S2.14 the cached namespace does not match", labelled{cached: map[string]string{"team": "blue"}, live: map[string]string{"team": "red"}}, 0, 0},
		{"S2.14 a live read on a cache miss", labelled{live: map[string]string{"team": "red"}}, 1, 0},
		{"S2.15 there is no such namespace", knownNamespaces{}, 0, 404},
		{"S2.15 the namespace cannot be read", knownNamespaces{err: errors.New("no answer")}, 0, 500},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			before := len(s.Requests("a.x.y"))
			w := newWorld(t, register(mutating(s, "c", selecting, "a.x.y")), tt.namespaces)
			err := w.judge(t, create(newWidget(nil))).err
			var code int32
			if st := statusOf(err); st != nil {
				code = st.Code
			}
			if code != tt.code {
				t.Errorf("got %v, want code %d", err, tt.code)
			}
			if calls := len(s.Requests("a.x.y")) - before; calls != tt.calls {
				t.Errorf("got %d calls, want %d", calls, tt.calls)
			}
		})
	}
}

// labelled is a source of one namespace with labels.
type labelled struct{ cached, live map[string]string }

func (l labelled) Cached(string) *corev1.Namespace {
	if l.cached == nil {
		return nil
	}
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Labels: l.cached}}
}

func (l labelled) Live(context.Context, string) (*corev1.Namespace, error) {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Labels: l.live}}, nil
}

func TestWarningsReachTheClient(t *testing.T) {
	s := hooktest.New(t)
	warn := func(text string, allowed bool) hooktest.Answer {
		return func(r *http.Request, req *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
			return &admissionv1.AdmissionResponse{Allowed: allowed, Warnings: []string{text}}
		}
	}
	s.Answer("m.x.y", warn("one", true))
	s.Answer("v.x.y", warn("two", false))
	w := newWorld(t, register(mutating(s, "m", nil, "m.x.y"), validating(s, "v", nil, "v.x.y")), knownNamespaces{})
	got := w.judge(t, create(newWidget(nil)))
	if got.err == nil {
		t.Error("the denial is lost")
	}
	if diff := cmp.Diff([]string{"one", "two"}, got.warnings); diff != "" {
		t.Errorf("S4.18 warnings (-want +got):\n%s", diff)
	}
}

func TestTheGate(t *testing.T) {
	closed := &fixed{err: &snapshot.NotReadyError{Never: true, Err: errors.New("no answer")}}
	w := newWorld(t, closed, knownNamespaces{})
	if st := statusOf(w.judge(t, create(newWidget(nil))).err); st == nil || st.Code != 500 || st.Reason != snapshot.ReasonLoadingConfiguration {
		t.Errorf("S11.10 S7.14 got %v", st)
	}
	for _, kind := range []string{"MutatingWebhookConfiguration", "ValidatingWebhookConfiguration", "ExternalAdmissionHookConfiguration", "InitializerConfiguration"} {
		gvk := schema.GroupVersionKind{Group: "admissionregistration.k8s.io", Version: "v1", Kind: kind}
		gvr := schema.GroupVersionResource{Group: gvk.Group, Version: "v1", Resource: strings.ToLower(kind) + "s"}
		a := admission.NewAttributesRecord(nil, newWidget(nil), gvk, "", "w", gvr, "", admission.Delete, &metav1.DeleteOptions{}, false, &user.DefaultInfo{})
		if err := w.judge(t, a).err; err != nil {
			t.Errorf("S2.40 %s: %v", kind, err)
		}
	}
}

// Requests for virtual resources succeed while registrations cannot be read, and their objects get
// no initializers.
func TestVirtualResourcesNeedNoRegistrations_S2_41(t *testing.T) {
	closed := &fixed{err: &snapshot.NotReadyError{Never: true}}
	engine, err := New(Options{Snapshots: closed, Namespaces: knownNamespaces{}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(engine.Close)
	resources := map[schema.GroupVersionResource]bool{{Version: "v1", Resource: "configmaps"}: false}
	for _, resource := range registration.VirtualResources() {
		resources[resource.WithVersion("v1")] = true
	}
	for resource, answered := range resources {
		object := newWidget(nil)
		a := admission.NewAttributesRecord(object, nil, resource.GroupVersion().WithKind("Any"), "", "w", resource, "", admission.Create, &metav1.CreateOptions{}, false, &user.DefaultInfo{})
		err := engine.Initializers().(admission.MutationInterface).Admit(t.Context(), a, nil)
		if (err == nil) != answered || initializers.Has(object) {
			t.Errorf("%s: %v, %v", resource, err, object)
		}
		for _, plugin := range []admission.ValidationInterface{engine.ValidatingWebhooks(), engine.ExternalHooks(), engine.ValidatingPolicies()} {
			if err := plugin.Validate(t.Context(), a, catalogueInterfaces); (err == nil) != answered {
				t.Errorf("%s: %v", resource, err)
			}
		}
	}
}

func TestWithARealRefresher(t *testing.T) {
	s := hooktest.New(t)
	s.Answer("a.x.y", hooktest.Deny(metav1.Status{Message: "no"}))
	configuration := mutating(s, "c", nil, "a.x.y")
	registration.Default(configuration)
	refresher, err := snapshot.NewRefresher(snapshot.Options{Reader: readerFunc(func(context.Context, snapshot.Version) (snapshot.Registrations, error) {
		return snapshot.Registrations{Objects: []runtime.Object{configuration}}, nil
	})})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- refresher.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-ended })
	w := newWorld(t, refresher, knownNamespaces{})
	if st := statusOf(w.judge(t, create(newWidget(nil))).err); st == nil || st.Message != `admission webhook "a.x.y" denied the request: no` {
		t.Errorf("S9.14 got %v", st)
	}
}

type readerFunc func(context.Context, snapshot.Version) (snapshot.Registrations, error)

func (f readerFunc) Read(ctx context.Context, since snapshot.Version) (snapshot.Registrations, error) {
	return f(ctx, since)
}

func TestNewChecksItsOptions(t *testing.T) {
	if _, err := New(Options{Namespaces: knownNamespaces{}}); text(err) != "admission: Options.Snapshots is nil" {
		t.Errorf("got %v", err)
	}
	if _, err := New(Options{Snapshots: &fixed{}}); text(err) != "admission: Options.Namespaces is nil" {
		t.Errorf("got %v", err)
	}
	c := &Configuration{kubeConfigs: map[string]string{GenericWebhookName: "/absent/kubeconfig"}}
	_, err := New(Options{Snapshots: &fixed{}, Namespaces: knownNamespaces{}, Configuration: c})
	if !strings.HasPrefix(text(err), "kubeconfig of plugin GenericAdmissionWebhook: ") {
		t.Errorf("S8.19 got %v", err)
	}
	_, err = New(Options{Snapshots: &fixed{}, Namespaces: knownNamespaces{}, ExternalCertFile: "/absent/client.crt", ExternalKeyFile: "/absent/client.key"})
	if !strings.HasPrefix(text(err), "plugin GenericAdmissionWebhook: reading the client certificate for webhooks: open /absent/client.crt: ") {
		t.Errorf("S12.13 got %v", err)
	}
}
