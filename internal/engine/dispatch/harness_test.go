package dispatch

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/gatehouse-dev/gatehouse/admission/call"
	"github.com/gatehouse-dev/gatehouse/admission/plan"
	"github.com/gatehouse-dev/gatehouse/admission/registration"
	"github.com/gatehouse-dev/gatehouse/admission/snapshot"
	"github.com/gatehouse-dev/gatehouse/admission/trace"
	"github.com/gatehouse-dev/gatehouse/test/hooktest"
)

// hook returns a step for a webhook at the path that is the first label of its name. By default it
// fails closed and may be called for a dry run.
func (f *fixture) hook(source registration.Source, name string, edit ...func(*registration.Entry)) plan.Candidate {
	path, _, _ := strings.Cut(name, ".")
	h := &registration.Entry{
		Origin:        registration.Origin{Source: source, Configuration: "config", Name: name},
		FailurePolicy: registration.Fail,
		Webhook: &registration.Webhook{
			ClientConfig:   registration.ClientConfig{URL: f.URL + "/" + path, CABundle: f.CA},
			SideEffects:    "None",
			Timeout:        10 * time.Second,
			ReviewVersions: []string{"v1", "v1beta1"},
		},
	}
	if source == registration.External {
		h.ReviewVersions, h.SideEffects = []string{"v1alpha1"}, "Unknown"
	}
	for _, e := range edit {
		e(h)
	}
	return plan.Candidate{
		Entry:    &snapshot.Entry{Entry: h, Selectors: &snapshot.Selectors{NamespaceSelector: labels.Everything(), ObjectSelector: labels.Everything()}},
		Resource: widgets,
		Kind:     widgetV1,
	}
}

// numbered sets the positions of steps.
func numbered(steps ...plan.Candidate) []plan.Candidate {
	for i := range steps {
		steps[i].Entry.Position = i
		steps[i].Entry.Index = i
	}
	return steps
}

func ignore(h *registration.Entry)   { h.FailurePolicy = registration.Ignore }
func ifNeeded(h *registration.Entry) { h.MayReinvoke = true }

func timeout(d time.Duration) func(*registration.Entry) {
	return func(h *registration.Entry) { h.Timeout = d }
}

func sideEffects(s string) func(*registration.Entry) {
	return func(h *registration.Entry) { h.SideEffects = s }
}

var (
	widgets  = schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "widgets"}
	widgetV1 = schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Widget"}
	widgetV2 = schema.GroupVersionKind{Group: "example.com", Version: "v2", Kind: "Widget"}
)

// widget returns an object from its JSON, without apiVersion, kind and name.
func widget(t testing.TB, content string) *unstructured.Unstructured {
	t.Helper()
	u := &unstructured.Unstructured{}
	base := `{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"w","namespace":"ns"}`
	if content != "" {
		base += "," + content
	}
	if err := u.UnmarshalJSON([]byte(base + "}")); err != nil {
		t.Fatal(err)
	}
	return u
}

// widgetScheme has the versions of widgets. The field size of v1 is named big in v2, and every
// conversion loses the field lost. It counts its calls.
type widgetScheme struct {
	conversions int
	// fill, if set, is the defaulting function.
	fill func(*unstructured.Unstructured)
}

func (s *widgetScheme) interfaces() admission.ObjectInterfaces {
	return &admission.RuntimeObjectInterfaces{
		ObjectCreater: s, ObjectDefaulter: s, ObjectConvertor: s,
		EquivalentResourceMapper: kruntime.NewEquivalentResourceRegistry(),
	}
}

func (s *widgetScheme) New(kind schema.GroupVersionKind) (kruntime.Object, error) {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(kind)
	return u, nil
}

func (s *widgetScheme) Default(obj kruntime.Object) {
	if s.fill != nil {
		s.fill(obj.(*unstructured.Unstructured))
	}
}

func (s *widgetScheme) Convert(in, out, _ any) error {
	s.conversions++
	from, to := in.(*unstructured.Unstructured), out.(*unstructured.Unstructured)
	want := to.GroupVersionKind()
	content := from.DeepCopy().Object
	if _, broken := content["broken"]; broken {
		return fmt.Errorf("a widget that is broken cannot be converted")
	}
	delete(content, "lost")
	if want.Version == "v2" {
		rename(content, "size", "big")
	} else {
		rename(content, "big", "size")
	}
	to.Object = content
	to.SetGroupVersionKind(want)
	return nil
}

func rename(m map[string]any, from, to string) {
	if v, ok := m[from]; ok {
		delete(m, from)
		m[to] = v
	}
}

func (s *widgetScheme) ConvertToVersion(kruntime.Object, kruntime.GroupVersioner) (kruntime.Object, error) {
	panic("admission converts in place")
}

func (s *widgetScheme) ConvertFieldLabel(schema.GroupVersionKind, string, string) (string, string, error) {
	panic("admission has no field labels")
}

// fixture runs steps like the plugins.
type fixture struct {
	*hooktest.Server
	scheme *widgetScheme
	// traces are the traces of all passes.
	traces []*trace.Run
}

func newFixture(t testing.TB) *fixture {
	return &fixture{Server: hooktest.New(t), scheme: &widgetScheme{}}
}

// newFixtureInBubble is for tests of durations, in a synctest bubble.
func newFixtureInBubble(t testing.TB) *fixture {
	return &fixture{Server: hooktest.NewInBubble(t), scheme: &widgetScheme{}}
}

func (f *fixture) dispatcher(t testing.TB, source registration.Source, edit ...func(*Options)) *Dispatcher {
	t.Helper()
	caller, err := call.New(call.Options{Dial: f.Dial})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(caller.Close)
	o := Options{
		Source: source,
		Caller: caller,
		NamespaceLabels: func(context.Context, string) (map[string]string, error) {
			return map[string]string{}, nil
		},
		Publisher: &trace.Publisher{Observer: func(t *trace.Trace) { f.traces = append(f.traces, t.Steps()[0].Run) }},
	}
	for _, e := range edit {
		e(&o)
	}
	return New(o)
}

// attributes returns the attributes of a request for a widget.
func attributes(op admission.Operation, object, old kruntime.Object, dryRun bool) admission.Attributes {
	var options kruntime.Object
	switch op {
	case admission.Create:
		options = &metav1.CreateOptions{TypeMeta: metav1.TypeMeta{APIVersion: "meta.k8s.io/v1", Kind: "CreateOptions"}}
	case admission.Update:
		options = &metav1.UpdateOptions{TypeMeta: metav1.TypeMeta{APIVersion: "meta.k8s.io/v1", Kind: "UpdateOptions"}}
	case admission.Delete:
		options = &metav1.DeleteOptions{TypeMeta: metav1.TypeMeta{APIVersion: "meta.k8s.io/v1", Kind: "DeleteOptions"}}
	}
	return admission.NewAttributesRecord(object, old, widgetV1, "ns", "w", widgets, "", op, options, dryRun,
		&user.DefaultInfo{Name: "someone"})
}

// requestOf converts attributes to a plan.Request.
func requestOf(a admission.Attributes) *plan.Request {
	return &plan.Request{
		Operation:   a.GetOperation(),
		Resource:    a.GetResource(),
		Subresource: a.GetSubresource(),
		Kind:        a.GetKind(),
		Namespace:   a.GetNamespace(),
		Name:        a.GetName(),
		Options:     a.GetOperationOptions(),
		User:        a.GetUserInfo(),
		DryRun:      a.IsDryRun(),
	}
}

// run runs steps for a request.
func (f *fixture) run(ctx context.Context, d *Dispatcher, a admission.Attributes, steps []plan.Candidate) error {
	return d.Run(ctx, a, f.scheme.interfaces(), &snapshot.Snapshot{}, requestOf(a), steps)
}
