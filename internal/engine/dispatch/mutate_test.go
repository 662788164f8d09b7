package dispatch

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/apis/example"
	examplev1 "k8s.io/apiserver/pkg/apis/example/v1"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/gatehouse-dev/gatehouse/admission/plan"
	"github.com/gatehouse-dev/gatehouse/admission/registration"
	"github.com/gatehouse-dev/gatehouse/admission/snapshot"
	"github.com/gatehouse-dev/gatehouse/admission/trace"
	"github.com/gatehouse-dev/gatehouse/internal/engine/initializers"
	"github.com/gatehouse-dev/gatehouse/internal/engine/objects"
	"github.com/gatehouse-dev/gatehouse/internal/engine/review"
	"github.com/gatehouse-dev/gatehouse/test/hooktest"
)

// content returns an object without the fields that every widget has.
func content(u *unstructured.Unstructured) map[string]any {
	c := u.DeepCopy().Object
	delete(c, "kind")
	delete(c, "metadata")
	return c
}

// status returns the API status of an error; nil if there is none.
func status(err error) *metav1.Status {
	var s apierrors.APIStatus
	if !errors.As(err, &s) {
		return nil
	}
	st := s.Status()
	return &st
}

func TestEachHookSeesWhatTheOnesBeforeDid(t *testing.T) {
	f := newFixture(t)
	f.Answer("a", hooktest.Patch(`[{"op":"add","path":"/size","value":1}]`))
	f.Answer("b", hooktest.Patch(`[{"op":"replace","path":"/size","value":2},{"op":"add","path":"/color","value":"red"}]`))
	f.Answer("c", hooktest.Allow)
	old := widget(t, `"size":0`)
	object := widget(t, "")
	d := f.dispatcher(t, registration.Mutating)
	steps := numbered(f.hook(registration.Mutating, "a.x.y"), f.hook(registration.Mutating, "b.x.y"), f.hook(registration.Mutating, "c.x.y"))
	if err := f.run(t.Context(), d, attributes(admission.Update, object, old, false), steps); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]any{"apiVersion": "example.com/v1", "size": int64(2), "color": "red"}, content(object)); diff != "" {
		t.Errorf("S5.11 the request's object (-want +got):\n%s", diff)
	}
	for path, want := range map[string]string{
		"a": `{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"w","namespace":"ns"}}`,
		"b": `{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"w","namespace":"ns"},"size":1}`,
		"c": `{"apiVersion":"example.com/v1","color":"red","kind":"Widget","metadata":{"name":"w","namespace":"ns"},"size":2}`,
	} {
		asked := f.Requests(path)
		if len(asked) != 1 {
			t.Fatalf("%s was called %d times", path, len(asked))
		}
		if diff := cmp.Diff(want, string(asked[0].Object.Raw)); diff != "" {
			t.Errorf("S5.1 object sent to %s (-want +got):\n%s", path, diff)
		}
		if !strings.Contains(string(asked[0].OldObject.Raw), `"size":0`) {
			t.Errorf("S5.3 old object sent to %s: %s", path, asked[0].OldObject.Raw)
		}
	}
	if f.scheme.conversions != 0 {
		t.Errorf("S2.28 an object of the right kind was converted %d times", f.scheme.conversions)
	}
}

func TestConversion(t *testing.T) {
	as := func(kind schema.GroupVersionKind, s plan.Candidate) plan.Candidate {
		s.Kind, s.Resource, s.Equivalent = kind, widgets.GroupResource().WithVersion(kind.Version), kind != widgetV1
		return s
	}
	tests := []struct {
		name string
		// hooks are the answers of a, b, c, ...; kinds are the kinds of their reviews.
		hooks       []hooktest.Answer
		kinds       []schema.GroupVersionKind
		conversions int
		want        map[string]any
		sent        []string // what each finds under size or big
	}{
		{
			name:        "S5.3 hooks that want the same kind share one conversion of object and old object",
			hooks:       []hooktest.Answer{hooktest.Allow, hooktest.Allow, hooktest.Allow},
			kinds:       []schema.GroupVersionKind{widgetV2, widgetV2, widgetV2},
			conversions: 2,
			want:        map[string]any{"apiVersion": "example.com/v1", "size": int64(1)},
			sent:        []string{`"big":1`, `"big":1`, `"big":1`},
		},
		{
			name:        "S5.3 an object that no hook changed is converted once per kind, in whatever order",
			hooks:       []hooktest.Answer{hooktest.Allow, hooktest.Allow, hooktest.Allow, hooktest.Allow},
			kinds:       []schema.GroupVersionKind{widgetV2, widgetV1, widgetV2, widgetV1},
			conversions: 2,
			want:        map[string]any{"apiVersion": "example.com/v1", "size": int64(1)},
			sent:        []string{`"big":1`, `"size":1`, `"big":1`, `"size":1`},
		},
		{
			name: "S5.3 every hook sees all changes, whatever kind they were made in",
			hooks: []hooktest.Answer{
				hooktest.Patch(`[{"op":"replace","path":"/big","value":2}]`),
				hooktest.Patch(`[{"op":"replace","path":"/size","value":3}]`),
				hooktest.Patch(`[{"op":"replace","path":"/big","value":4}]`),
			},
			kinds: []schema.GroupVersionKind{widgetV2, widgetV1, widgetV2},
			// Old and new to v2, back to v1, v1 needs none, to v2, back.
			conversions: 5,
			want:        map[string]any{"apiVersion": "example.com/v1", "size": int64(4)},
			sent:        []string{`"big":1`, `"size":2`, `"big":3`},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f := newFixture(t)
			var steps []plan.Candidate
			for i, a := range tt.hooks {
				path := string(rune('a' + i))
				f.Answer(path, a)
				steps = append(steps, as(tt.kinds[i], f.hook(registration.Mutating, path+".x.y")))
			}
			object := widget(t, `"size":1`)
			d := f.dispatcher(t, registration.Mutating)
			if err := f.run(t.Context(), d, attributes(admission.Update, object, widget(t, `"size":1`), false), numbered(steps...)); err != nil {
				t.Fatal(err)
			}
			if f.scheme.conversions != tt.conversions {
				t.Errorf("got %d conversions, want %d", f.scheme.conversions, tt.conversions)
			}
			if diff := cmp.Diff(tt.want, content(object)); diff != "" {
				t.Errorf("object (-want +got):\n%s", diff)
			}
			for i, want := range tt.sent {
				req := f.Requests(string(rune('a' + i)))[0]
				if !strings.Contains(string(req.Object.Raw), want) {
					t.Errorf("hook %d got %s, want %s", i, req.Object.Raw, want)
				}
				if req.Kind.Version != tt.kinds[i].Version || req.RequestKind.Version != "v1" {
					t.Errorf("S2.24 hook %d was told kind %v, requestKind %v", i, req.Kind, req.RequestKind)
				}
			}
		})
	}
}

func TestEncodingIsShared(t *testing.T) {
	s := objects.New(attributes(admission.Update, widget(t, ""), widget(t, ""), false), (&widgetScheme{}).interfaces())
	encoded := func(kind schema.GroupVersionKind) (*objects.Form, *review.Payload) {
		t.Helper()
		f, err := s.As(kind)
		if err != nil {
			t.Fatal(err)
		}
		p, err := s.Encode(f)
		if err != nil {
			t.Fatal(err)
		}
		return f, p
	}
	_, first := encoded(widgetV1)
	two, _ := encoded(widgetV2)
	if _, again := encoded(widgetV1); again != first {
		t.Error("an unchanged object was encoded twice")
	}
	old := &first.OldObject[0]
	patch, err := review.DecodePatch([]byte(`[{"op":"add","path":"/metadata/labels","value":{"a":"b"}}]`))
	if err != nil {
		t.Fatal(err)
	}
	if changed, _, err := s.Apply(t.Context(), nil, two, patch); !changed || err != nil {
		t.Fatalf("changed: %v, %v", changed, err)
	}
	_, again := encoded(widgetV1)
	if again == first {
		t.Error("a changed object was not encoded again")
	}
	if &again.OldObject[0] != old {
		t.Error("the old object was encoded twice")
	}
}

func TestConversionFailure(t *testing.T) {
	f := newFixture(t)
	f.Answer("a", hooktest.Patch(`[{"op":"add","path":"/broken","value":true}]`))
	a, b := f.hook(registration.Mutating, "a.x.y", ignore), f.hook(registration.Mutating, "b.x.y", ignore)
	b.Kind = widgetV2
	d := f.dispatcher(t, registration.Mutating)
	err := f.run(t.Context(), d, attributes(admission.Create, widget(t, ""), nil, false), numbered(a, b))
	want := `Internal error occurred: converting to example.com/v2, Kind=Widget for admission webhook "b.x.y": a widget that is broken cannot be converted`
	if s := status(err); s == nil || s.Code != 500 || s.Reason != "InternalError" || s.Message != want {
		t.Errorf("S2.27 got %v", err)
	}
	if len(f.Requests("b")) != 0 {
		t.Error("S2.27 the hook was called")
	}
}

// If the object cannot be converted back, the error names the last webhook that changed it, not
// earlier webhooks, and not later webhooks that left it unchanged.
func TestTheLastHookThatChangedTheObjectIsNamed(t *testing.T) {
	f := newFixture(t)
	f.Answer("a", hooktest.Patch(`[{"op":"add","path":"/big","value":2}]`))
	f.Answer("b", hooktest.Patch(`[{"op":"add","path":"/broken","value":true}]`))
	f.Answer("c", hooktest.Allow)
	steps := numbered(f.hook(registration.Mutating, "a.x.y"), f.hook(registration.Mutating, "b.x.y"), f.hook(registration.Mutating, "c.x.y"))
	for i := range steps {
		steps[i].Kind = widgetV2
	}
	d := f.dispatcher(t, registration.Mutating)
	err := f.run(t.Context(), d, attributes(admission.Create, widget(t, ""), nil, false), steps)
	want := `Internal error occurred: converting the object as left by admission webhook "b.x.y": a widget that is broken cannot be converted`
	if s := status(err); s == nil || s.Code != 500 || s.Message != want {
		t.Errorf("S5.11 got %v", err)
	}
	if len(f.Requests("c")) != 1 {
		t.Error("the last hook was not called")
	}
}

func TestPatches(t *testing.T) {
	tests := []struct {
		name    string
		answer  hooktest.Answer
		fill    func(*unstructured.Unstructured)
		want    map[string]any
		mutated bool
		patch   bool
	}{
		{
			name:    "S5.4 the version's defaults are filled in after the patch",
			answer:  hooktest.Patch(`[{"op":"add","path":"/spec","value":{}}]`),
			fill:    func(u *unstructured.Unstructured) { unstructured.SetNestedField(u.Object, "blue", "spec", "color") },
			want:    map[string]any{"apiVersion": "example.com/v1", "size": int64(1), "spec": map[string]any{"color": "blue"}},
			mutated: true, patch: true,
		},
		{
			name:   "S5.5 S5.26 a patch that changes nothing is no mutation",
			answer: hooktest.Patch(`[{"op":"replace","path":"/size","value":1}]`),
			want:   map[string]any{"apiVersion": "example.com/v1", "size": int64(1)},
			patch:  true,
		},
		{
			name:   "S4.9 an empty patch",
			answer: hooktest.Patch(`[]`),
			want:   map[string]any{"apiVersion": "example.com/v1", "size": int64(1)},
		},
		{
			name:   "S4.9 a test alone",
			answer: hooktest.Patch(`[{"op":"test","path":"/size","value":1}]`),
			want:   map[string]any{"apiVersion": "example.com/v1", "size": int64(1)},
			patch:  true,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f := newFixture(t)
			f.scheme.fill = tt.fill
			f.Answer("a", tt.answer)
			object := widget(t, `"size":1`)
			d := f.dispatcher(t, registration.Mutating)
			a := attributes(admission.Create, object, nil, false)
			if err := f.run(t.Context(), d, a, numbered(f.hook(registration.Mutating, "a.x.y"))); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, content(object)); diff != "" {
				t.Errorf("object (-want +got):\n%s", diff)
			}
			c := f.traces[0].Calls[0]
			if c.Mutated != tt.mutated || (len(c.Patch) > 0) != tt.patch {
				t.Errorf("got mutated %v, patch %q", c.Mutated, c.Patch)
			}
			if got := a.GetReinvocationContext().ShouldReinvoke(); got != tt.mutated {
				t.Errorf("S5.16 asks for a second pass: %v", got)
			}
		})
	}
}

func TestPatchOnDeleteAndConnect(t *testing.T) {
	f := newFixture(t)
	f.Answer("a", hooktest.Patch(`[{"op":"add","path":"/size","value":1}]`))
	f.Answer("empty", hooktest.Patch(`[]`))
	d := f.dispatcher(t, registration.Mutating)
	err := f.run(t.Context(), d, attributes(admission.Delete, nil, widget(t, ""), false), numbered(f.hook(registration.Mutating, "a.x.y", ignore)))
	want := `Internal error occurred: admission webhook "a.x.y" attempted to modify the object, which is not supported for this operation`
	if s := status(err); s == nil || s.Code != 500 || s.Reason != "InternalError" || s.Message != want {
		t.Errorf("S5.9 got %v", err)
	}
	if c := f.traces[0].Calls[0]; c.Verdict != trace.Refused || c.Code != 0 {
		t.Errorf("S7.4 got %v, code %d", c.Verdict, c.Code)
	}
	if err := f.run(t.Context(), d, attributes(admission.Delete, nil, widget(t, ""), false), numbered(f.hook(registration.Mutating, "empty.x.y"))); err != nil {
		t.Errorf("S5.9 an empty patch on DELETE: %v", err)
	}
	options := widget(t, "")
	connect := admission.NewAttributesRecord(options, nil, widgetV1, "ns", "w", widgets, "exec", admission.Connect, nil, false, &user.DefaultInfo{})
	if err := f.run(t.Context(), d, connect, numbered(f.hook(registration.Mutating, "a.x.y"))); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]any{"apiVersion": "example.com/v1", "size": int64(1)}, content(options)); diff != "" {
		t.Errorf("S5.10 connect options (-want +got):\n%s", diff)
	}
	req := f.Requests("a")[1]
	if string(req.Options.Raw) != "null" && req.Options.Raw != nil || req.Operation != "CONNECT" {
		t.Errorf("S3.8 got options %s, operation %s", req.Options.Raw, req.Operation)
	}
}

// Kinds of webhook failures, each with both failure policies.
func TestFaults(t *testing.T) {
	raw := func(code int, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/plain")
			w.WriteHeader(code)
			w.Write([]byte(body))
		}
	}
	typed := func(operations, kind string) hooktest.Answer {
		return func(*http.Request, *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
			k := admissionv1.PatchType(kind)
			return &admissionv1.AdmissionResponse{Allowed: true, Patch: []byte(operations), PatchType: &k}
		}
	}
	tests := []struct {
		name    string
		serve   http.HandlerFunc
		answer  hooktest.Answer
		edit    func(*registration.Entry)
		code    int
		message string // the fixed beginning of what Fail gives
	}{
		{
			name: "S7.4 HTTP 500", serve: raw(500, "broken"), code: 500,
			message: `Internal error occurred: failed calling webhook "a.x.y": failed to call webhook: an error on the server ("broken") has prevented the request from succeeding`,
		},
		{
			name: "S7.4 HTTP 404", serve: raw(404, ""), code: 404,
			message: `Internal error occurred: failed calling webhook "a.x.y": failed to call webhook: the server could not find the requested resource`,
		},
		{
			name: "S7.4 body undecodable", serve: raw(200, "hello"), code: 503,
			message: `Internal error occurred: failed calling webhook "a.x.y": failed to call webhook: `,
		},
		{
			name:    "S7.4 response absent",
			serve:   raw(200, `{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1"}`),
			code:    503,
			message: `Internal error occurred: failed calling webhook "a.x.y": received invalid webhook response: webhook response was absent`,
		},
		{
			name: "S7.4 refused connection", answer: hooktest.Allow, code: 503,
			edit:    func(h *registration.Entry) { h.ClientConfig.URL = "https://127.0.0.1:1/a" },
			message: `Internal error occurred: failed calling webhook "a.x.y": failed to call webhook: Post "https://127.0.0.1:1/a?timeout=10s": `,
		},
		{
			name: "S7.4 certificate not trusted", answer: hooktest.Allow, code: 503,
			edit:    func(h *registration.Entry) { h.ClientConfig.CABundle = nil },
			message: `Internal error occurred: failed calling webhook "a.x.y": failed to call webhook: Post "https://`,
		},
		{
			name: "S7.4 CA bundle not PEM", answer: hooktest.Allow, code: 500,
			edit:    func(h *registration.Entry) { h.ClientConfig.CABundle = []byte("x") },
			message: `Internal error occurred: failed calling webhook "a.x.y": could not get REST client: unable to load root certificates: unable to parse bytes as PEM block`,
		},
		{
			name: "S7.4 S3.6 no known version", answer: hooktest.Allow, code: 400,
			edit:    func(h *registration.Entry) { h.ReviewVersions = []string{"v7"} },
			message: `Internal error occurred: failed calling webhook "a.x.y": could not create admission objects: webhook does not accept known AdmissionReview versions (v1, v1beta1)`,
		},
		{
			name: "S7.4 S5.6 patch undecodable", answer: hooktest.Patch(`{"op":"add"}`), code: 503,
			message: `Internal error occurred: failed calling webhook "a.x.y": received undecodable patch in webhook response: `,
		},
		{
			name: "S7.4 unsupported patch type", answer: typed(`[{"op":"add","path":"/x","value":1}]`, "Merge"), code: 400,
			message: `Internal error occurred: failed calling webhook "a.x.y": unsupported patch type "Merge"`,
		},
		{
			name: "S5.6 S7.15 patch does not apply", answer: hooktest.Patch(`[{"op":"remove","path":"/absent"}]`), code: 503,
			message: `Internal error occurred: admission webhook "a.x.y" returned a patch that could not be applied: `,
		},
		{
			name: "S5.6 failed test", answer: hooktest.Patch(`[{"op":"test","path":"/size","value":2}]`), code: 503,
			message: `Internal error occurred: admission webhook "a.x.y" returned a patch that could not be applied: `,
		},
		{
			name: "S5.6 metadata that is none", answer: hooktest.Patch(`[{"op":"replace","path":"/metadata","value":"x"}]`), code: 503,
			message: `Internal error occurred: admission webhook "a.x.y" returned a patch that could not be applied: it leaves the object without metadata`,
		},
		{
			name: "S5.6 metadata null", answer: hooktest.Patch(`[{"op":"replace","path":"/metadata","value":null}]`), code: 503,
			message: `Internal error occurred: admission webhook "a.x.y" returned a patch that could not be applied: it leaves the object without metadata`,
		},
		{
			name: "S5.6 labels that are none", answer: hooktest.Patch(`[{"op":"add","path":"/metadata/labels","value":{"a":1}}]`), code: 503,
			message: `Internal error occurred: admission webhook "a.x.y" returned a patch that could not be applied: metadata: `,
		},
		{
			name: "S5.6 an array of items", answer: hooktest.Patch(`[{"op":"add","path":"/items","value":[1]}]`), code: 503,
			message: `Internal error occurred: admission webhook "a.x.y" returned a patch that could not be applied: it adds an array named "items"`,
		},
		{
			name: "S5.6 the patch leaves no object", answer: hooktest.Patch(`[{"op":"replace","path":"","value":[1]}]`), code: 503,
			message: `Internal error occurred: admission webhook "a.x.y" returned a patch that could not be applied: `,
		},
	}
	for _, tt := range tests {
		for _, policy := range []registration.FailurePolicy{registration.Fail, registration.Ignore} {
			t.Run(tt.name+" "+string(policy), func(t *testing.T) {
				f := newFixture(t)
				if tt.serve != nil {
					f.Serve("a", tt.serve)
				} else {
					f.Answer("a", tt.answer)
				}
				f.Answer("b", hooktest.Patch(`[{"op":"add","path":"/color","value":"red"}]`))
				edit := []func(*registration.Entry){func(h *registration.Entry) { h.FailurePolicy = policy }}
				if tt.edit != nil {
					edit = append(edit, tt.edit)
				}
				object := widget(t, `"size":1`)
				d := f.dispatcher(t, registration.Mutating)
				err := f.run(t.Context(), d, attributes(admission.Create, object, nil, false),
					numbered(f.hook(registration.Mutating, "a.x.y", edit...), f.hook(registration.Mutating, "b.x.y")))
				c := f.traces[0].Calls[0]
				if c.Verdict != trace.Failed || c.Code != tt.code || c.Mutated || c.Patch != nil {
					t.Errorf("the record says %s", c.Entry.String())
				}
				if policy == registration.Fail {
					if s := status(err); s == nil || s.Code != 500 || s.Reason != "InternalError" || !strings.HasPrefix(s.Message, tt.message) {
						t.Errorf("S7.2 got %v\nwant %s", err, tt.message)
					}
					if len(f.Requests("b")) != 0 {
						t.Error("S5.13 a later hook was called")
					}
					return
				}
				if err != nil {
					t.Errorf("S7.3 got %v", err)
				}
				if !c.Ignored {
					t.Error("S7.3 the record does not say that the failure was ignored")
				}
				if diff := cmp.Diff(map[string]any{"apiVersion": "example.com/v1", "size": int64(1), "color": "red"}, content(object)); diff != "" {
					t.Errorf("S5.12 object (-want +got):\n%s", diff)
				}
			})
		}
	}
}

func TestPatchThatChangesTheKind(t *testing.T) {
	for _, operations := range []string{
		`[{"op":"replace","path":"/kind","value":"Gadget"}]`,
		`[{"op":"replace","path":"/apiVersion","value":"example.com/v2"}]`,
		`[{"op":"remove","path":"/kind"}]`,
	} {
		f := newFixture(t)
		f.Answer("a", hooktest.Patch(operations))
		d := f.dispatcher(t, registration.Mutating)
		err := f.run(t.Context(), d, attributes(admission.Create, widget(t, ""), nil, false), numbered(f.hook(registration.Mutating, "a.x.y", ignore)))
		const want = `Internal error occurred: admission webhook "a.x.y" returned a patch that is not allowed: it changes the object from example.com/v1, Kind=Widget to `
		if s := status(err); s == nil || s.Code != 500 || s.Reason != "InternalError" || !strings.HasPrefix(s.Message, want) {
			t.Errorf("S5.8 %s: got %v", operations, err)
		}
	}
}

func TestDenialEndsThePass(t *testing.T) {
	f := newFixture(t)
	f.Answer("a", hooktest.Deny(metav1.Status{Code: 418, Message: "no"}))
	d := f.dispatcher(t, registration.Mutating)
	err := f.run(t.Context(), d, attributes(admission.Create, widget(t, ""), nil, false),
		numbered(f.hook(registration.Mutating, "a.x.y", ignore), f.hook(registration.Mutating, "b.x.y")))
	want := &metav1.Status{Status: "Failure", Code: 418, Message: `admission webhook "a.x.y" denied the request: no`}
	if diff := cmp.Diff(want, status(err)); diff != "" {
		t.Errorf("S4.11 S4.13 status (-want +got):\n%s", diff)
	}
	if len(f.Requests("b")) != 0 {
		t.Error("S5.13 a later hook was called")
	}
}

func TestDryRun(t *testing.T) {
	refused := &metav1.Status{Status: "Failure", Code: 400, Reason: "BadRequest", Message: `admission webhook "a.x.y" does not support dry run`}
	for _, source := range []registration.Source{registration.Mutating, registration.Validating, registration.External} {
		tests := []struct {
			name        string
			sideEffects string
			policy      registration.FailurePolicy
			want        *metav1.Status
			failed      bool
		}{
			{"S7.6 None", "None", registration.Fail, nil, false},
			{"S7.6 NoneOnDryRun", "NoneOnDryRun", registration.Fail, nil, false},
			{"S7.6 Some", "Some", registration.Ignore, refused, false},
			{"S7.6 S12.16 Unknown", "Unknown", registration.Ignore, refused, false},
			{"S7.4 nil, Ignore", "", registration.Ignore, nil, true},
		}
		for _, tt := range tests {
			if source == registration.External && tt.sideEffects != "Unknown" {
				continue
			}
			t.Run(source.String()+" "+tt.name, func(t *testing.T) {
				f := newFixture(t)
				f.Answer("a", hooktest.Allow)
				object := widget(t, "")
				d := f.dispatcher(t, source)
				err := f.run(t.Context(), d, attributes(admission.Create, object, nil, true),
					numbered(f.hook(source, "a.x.y", sideEffects(tt.sideEffects), func(h *registration.Entry) { h.FailurePolicy = tt.policy })))
				if diff := cmp.Diff(tt.want, status(err)); diff != "" {
					t.Errorf("status (-want +got):\n%s", diff)
				}
				calls := f.Requests("a")
				if called := len(calls) == 1; called != (tt.want == nil && !tt.failed) {
					t.Errorf("the hook was called %d times", len(calls))
				} else if called && (calls[0].DryRun == nil || !*calls[0].DryRun) {
					t.Error("S3.13 the hook was not told")
				}
				c := f.traces[0].Calls[0]
				if tt.failed && (c.Code != 400 || !c.Ignored) {
					t.Errorf("the record says %s", c.Entry.String())
				}
			})
		}
	}
}

func TestTheClientIsGone(t *testing.T) {
	for _, policy := range []registration.FailurePolicy{registration.Ignore, registration.Fail} {
		t.Run(string(policy), func(t *testing.T) {
			f := newFixture(t)
			ctx, cancel := context.WithCancel(t.Context())
			f.Answer("a", func(r *http.Request, _ *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
				cancel()
				<-r.Context().Done()
				return &admissionv1.AdmissionResponse{Allowed: true}
			})
			d := f.dispatcher(t, registration.Mutating)
			err := f.run(ctx, d, attributes(admission.Create, widget(t, ""), nil, false),
				numbered(f.hook(registration.Mutating, "a.x.y", func(h *registration.Entry) { h.FailurePolicy = policy }), f.hook(registration.Mutating, "b.x.y")))
			s := status(err)
			if policy == registration.Ignore {
				want := &metav1.Status{Status: "Failure", Code: 504, Reason: "Timeout", Message: "Timeout: request did not complete within requested timeout", Details: &metav1.StatusDetails{}}
				if diff := cmp.Diff(want, s); diff != "" {
					t.Errorf("S7.8 status (-want +got):\n%s", diff)
				}
			} else if s == nil || s.Code != 500 || !strings.HasPrefix(s.Message, `Internal error occurred: failed calling webhook "a.x.y": `) {
				t.Errorf("S7.8 got %v", err)
			}
			if !f.traces[0].Calls[0].ClientGone {
				t.Error("S7.10 the record does not say that the client is gone")
			}
			if len(f.Requests("b")) != 0 {
				t.Error("S7.8 a later hook was called")
			}
		})
	}
}

func TestAnIgnoreHookCannotFailARequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixtureInBubble(t)
		f.Answer("a", func(r *http.Request, _ *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
			<-r.Context().Done()
			return &admissionv1.AdmissionResponse{Allowed: true}
		})
		f.Answer("b", hooktest.Allow)
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		d := f.dispatcher(t, registration.Mutating)
		err := f.run(ctx, d, attributes(admission.Create, widget(t, ""), nil, false),
			numbered(f.hook(registration.Mutating, "a.x.y", ignore), f.hook(registration.Mutating, "b.x.y")))
		if err != nil {
			t.Error(err)
		}
		if len(f.Requests("b")) != 1 {
			t.Error("the hook that the request needs was not called")
		}
	})
}

func TestOwnTimeout(t *testing.T) {
	f := newFixture(t)
	f.Answer("a", func(r *http.Request, _ *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
		<-r.Context().Done()
		return &admissionv1.AdmissionResponse{Allowed: true}
	})
	d := f.dispatcher(t, registration.Mutating)
	err := f.run(t.Context(), d, attributes(admission.Create, widget(t, ""), nil, false),
		numbered(f.hook(registration.Mutating, "a.x.y", timeout(50*time.Millisecond))))
	if s := status(err); s == nil || s.Code != 500 || !strings.Contains(s.Message, "timeoutSeconds") {
		t.Errorf("S7.7 got %v", err)
	}
	if c := f.traces[0].Calls[0]; c.Code != 503 || c.ClientGone {
		t.Errorf("S7.4 the record says %s", c.Entry.String())
	}
}

// typedScheme serves the example types of k8s.io/apiserver: an internal version, in which requests
// are handled, and v1, which webhooks see.
func typedScheme(t *testing.T) *runtime.Scheme {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{example.AddToScheme, examplev1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	grace := int64(30)
	scheme.AddTypeDefaultingFunc(&examplev1.Pod{}, func(obj any) {
		if spec := &obj.(*examplev1.Pod).Spec; spec.Hostname != "" && spec.TerminationGracePeriodSeconds == nil {
			spec.TerminationGracePeriodSeconds = &grace
		}
	})
	return scheme
}

func TestTypedObjects(t *testing.T) {
	kind := examplev1.SchemeGroupVersion.WithKind("Pod")
	resource := examplev1.SchemeGroupVersion.WithResource("pods")
	pending := &initializers.Initializers{Pending: []initializers.Initializer{{Name: "i.x.y"}}}
	fine := metav1.NewTime(time.Date(2026, 1, 1, 0, 0, 0, 5, time.UTC))
	managed := []metav1.ManagedFieldsEntry{{Manager: "m", Time: &fine}}
	tests := []struct {
		name    string
		edit    func(*example.Pod)
		answer  hooktest.Answer
		want    func(*example.Pod)
		sent    map[string]any // metadata as the webhook saw it
		mutated bool
		err     string
	}{
		{
			name:   "S5.4 S5.11 the patch is applied to the version's JSON, defaulted, and converted back",
			answer: hooktest.Patch(`[{"op":"add","path":"/spec/hostname","value":"h"}]`),
			want: func(p *example.Pod) {
				grace := int64(30)
				p.Spec.Hostname, p.Spec.TerminationGracePeriodSeconds = "h", &grace
			},
			mutated: true,
		},
		{
			name:   "S5.4 S5.5 an unknown field is dropped, and no mutation",
			answer: hooktest.Patch(`[{"op":"add","path":"/spec/fancy","value":"h"}]`),
			want:   func(*example.Pod) {},
		},
		{
			name:   "S5.5 a time finer than JSON has it is no mutation",
			edit:   func(p *example.Pod) { p.ManagedFields = managed },
			answer: hooktest.Patch(`[{"op":"add","path":"/spec/fancy","value":"h"}]`),
			want:   func(p *example.Pod) { p.ManagedFields = managed },
		},
		{
			name:   "S5.6 a value of the wrong type",
			answer: hooktest.Patch(`[{"op":"add","path":"/spec/hostname","value":7}]`),
			err:    `Internal error occurred: admission webhook "a.x.y" returned a patch that could not be applied: `,
		},
		{
			name:   "S5.8 another kind",
			answer: hooktest.Patch(`[{"op":"replace","path":"/kind","value":"ReplicaSet"}]`),
			err:    `Internal error occurred: admission webhook "a.x.y" returned a patch that is not allowed: `,
		},
		{
			name:   "S11.22 initializers are where users see them",
			edit:   func(p *example.Pod) { initializers.Set(p, pending) },
			answer: hooktest.Allow,
			want:   func(p *example.Pod) { initializers.Set(p, pending) },
			sent:   map[string]any{"name": "p", "initializers": map[string]any{"pending": []any{map[string]any{"name": "i.x.y"}}}},
		},
		{
			name: "S11.22 a webhook adds an initializer",
			answer: hooktest.Patch(`[{"op":"add","path":"/metadata/initializers","value":{"pending":[{"name":"i.x.y"}]}},
				{"op":"add","path":"/metadata/labels","value":{"a":"b"}}]`),
			want: func(p *example.Pod) {
				initializers.Set(p, pending)
				p.Labels = map[string]string{"a": "b"}
			},
			mutated: true,
		},
		{
			name:   "S11.22 the annotation that carries initializers is not for webhooks",
			answer: hooktest.Patch(`[{"op":"add","path":"/metadata/annotations","value":{"gatehouse.dev/metadata.initializers":"{}"}}]`),
			err:    `Internal error occurred: admission webhook "a.x.y" returned a patch that could not be applied: metadata.annotations[gatehouse.dev/metadata.initializers] is reserved`,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f := newFixture(t)
			f.Answer("a", tt.answer)
			object := &example.Pod{}
			object.Name = "p"
			if tt.edit != nil {
				tt.edit(object)
			}
			a := admission.NewAttributesRecord(object, nil, kind, "ns", "p", resource, "", admission.Create, &metav1.CreateOptions{}, false, &user.DefaultInfo{})
			step := f.hook(registration.Mutating, "a.x.y")
			step.Kind, step.Resource = kind, resource
			d := f.dispatcher(t, registration.Mutating)
			err := d.Run(t.Context(), a, admission.NewObjectInterfacesFromScheme(typedScheme(t)), &snapshot.Snapshot{}, requestOf(a), numbered(step))
			if tt.err != "" {
				if s := status(err); s == nil || s.Code != 500 || !strings.HasPrefix(s.Message, tt.err) {
					t.Errorf("got %v", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			want := &example.Pod{}
			want.Name = "p"
			tt.want(want)
			if diff := cmp.Diff(want, object); diff != "" {
				t.Errorf("object (-want +got):\n%s", diff)
			}
			if got := f.traces[0].Calls[0].Mutated; got != tt.mutated {
				t.Errorf("S5.5 mutated is %v", got)
			}
			if tt.sent != nil {
				var sent struct {
					APIVersion string         `json:"apiVersion"`
					Metadata   map[string]any `json:"metadata"`
				}
				if err := json.Unmarshal(f.Requests("a")[0].Object.Raw, &sent); err != nil {
					t.Fatal(err)
				}
				delete(sent.Metadata, "creationTimestamp")
				if diff := cmp.Diff(tt.sent, sent.Metadata); diff != "" {
					t.Errorf("metadata sent (-want +got):\n%s", diff)
				}
				if sent.APIVersion != kind.GroupVersion().String() {
					t.Errorf("S3.11 sent as %s", sent.APIVersion)
				}
			}
		})
	}
}

// Webhooks see an unstructured object with metadata.initializers, regardless of its storage in the
// object, which does not change.
func TestUnstructuredObjectsWithInitializers(t *testing.T) {
	const shown = `{"name":"w","namespace":"ns","annotations":{"own":"x"},"initializers":{"pending":[{"name":"i.x.y"}]}}`
	const carried = `{"name":"w","namespace":"ns","annotations":{"own":"x","gatehouse.dev/metadata.initializers":"{\"pending\":[{\"name\":\"i.x.y\"}]}"}}`
	const plain = `{"name":"w","namespace":"ns","annotations":{"own":"x"}}`
	for _, tt := range []struct {
		name, metadata string
		answer         hooktest.Answer
		sent, want     string
		err            string
	}{
		{"S11.22 carried, and left alone", carried, hooktest.Allow, shown, carried, ""},
		{"S11.22 carried, and something else changes", carried, hooktest.Patch(`[{"op":"add","path":"/spec","value":{}}]`), shown, carried, ""},
		{"S11.22 carried, and removed", carried, hooktest.Patch(`[{"op":"remove","path":"/metadata/initializers"}]`), shown, plain, ""},
		{"S11.22 carried, and one is added", carried, hooktest.Patch(`[{"op":"add","path":"/metadata/initializers/pending/0","value":{"name":"j.x.y"}}]`), shown,
			strings.Replace(carried, `[{`, `[{\"name\":\"j.x.y\"},{`, 1), ""},
		{"S11.22 set by a webhook", plain, hooktest.Patch(`[{"op":"add","path":"/metadata/initializers","value":{"pending":[{"name":"i.x.y"}]}}]`), plain, carried, ""},
		{"S11.22 the annotation is not for webhooks", carried, hooktest.Patch(`[{"op":"add","path":"/metadata/annotations/gatehouse.dev~1metadata.initializers","value":"{}"}]`), shown, carried, "is reserved"},
		{"S11.22 shown, and left alone", shown, hooktest.Allow, shown, shown, ""},
		{"S11.22 shown, and removed", shown, hooktest.Patch(`[{"op":"remove","path":"/metadata/initializers"}]`), shown, plain, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := newFixture(t)
			f.Answer("a", tt.answer)
			metadata := func(text string) map[string]any {
				var m map[string]any
				if err := json.Unmarshal([]byte(text), &m); err != nil {
					t.Fatal(err)
				}
				return m
			}
			object := widget(t, "")
			object.Object["metadata"] = metadata(tt.metadata)
			err := f.run(t.Context(), f.dispatcher(t, registration.Mutating), attributes(admission.Create, object, nil, false), numbered(f.hook(registration.Mutating, "a.x.y")))
			if (err != nil) != (tt.err != "") || err != nil && !strings.Contains(err.Error(), tt.err) {
				t.Errorf("got %v", err)
			}
			if diff := cmp.Diff(metadata(tt.want), object.Object["metadata"]); diff != "" {
				t.Errorf("object (-want +got):\n%s", diff)
			}
			var sent struct{ Metadata map[string]any }
			if err := json.Unmarshal(f.Requests("a")[0].Object.Raw, &sent); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(metadata(tt.sent), sent.Metadata); diff != "" {
				t.Errorf("sent (-want +got):\n%s", diff)
			}
		})
	}
}
