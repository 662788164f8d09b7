package initializers

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/gatehouse-dev/gatehouse/admission/registration"
)

var (
	podKind     = corev1.SchemeGroupVersion.WithKind("Pod")
	podResource = corev1.SchemeGroupVersion.WithResource("pods")
)

func pending(names ...string) *Initializers {
	i := &Initializers{}
	for _, name := range names {
		i.Pending = append(i.Pending, Initializer{Name: name})
	}
	return i
}

// many returns the given number of pending initializers.
func many(n int) *Initializers {
	i := &Initializers{}
	for k := range n {
		i.Pending = append(i.Pending, Initializer{Name: fmt.Sprintf("i%d.example.com", k)})
	}
	return i
}

func failed(status string) *Initializers {
	return &Initializers{Pending: []Initializer{{Name: "a.example.com"}}, Result: &metav1.Status{Status: status, Message: "no"}}
}

// allow authorizes its users for the verb initialize on pods.
type allow map[string]bool

func (f allow) Authorize(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	if a.GetVerb() != "initialize" || a.GetResource() != "pods" || !a.IsResourceRequest() {
		return authorizer.DecisionDeny, "asked about " + a.GetVerb(), nil
	}
	if a.GetUser().GetName() == "broken" {
		return authorizer.DecisionNoOpinion, "", errors.New("authorizer is away")
	}
	if a.GetUser().GetName() == "partly" {
		return authorizer.DecisionAllow, "", errors.New("one of several authorizers is away")
	}
	if f[a.GetUser().GetName()] {
		return authorizer.DecisionAllow, "", nil
	}
	if a.GetUser().GetName() == "mute" {
		return authorizer.DecisionNoOpinion, "", nil
	}
	return authorizer.DecisionNoOpinion, "no rule", nil
}

type request struct {
	operation   admission.Operation
	user        string
	subresource string
	kind        schema.GroupVersionKind
	old, new    *Initializers
	annotations map[string]string
	reinvoked   bool
}

func TestPlugin(t *testing.T) {
	gate := apierrors.NewInternalError(errors.New("not ready"))
	tests := []struct {
		name string
		request
		configured []string
		gate       error
		want       *Initializers
		code       int32
		message    string
	}{
		{name: "S11.16 a new object gets the configured names in order",
			request: request{operation: admission.Create}, configured: []string{"a.example.com", "b.example.com"}, want: pending("a.example.com", "b.example.com")},
		{name: "S11.16 without applicable initializers nothing changes",
			request: request{operation: admission.Create}},
		{name: "S11.14 the gate rejects a create without the field",
			request: request{operation: admission.Create}, gate: gate, code: 500, message: "not ready"},
		{name: "S11.14 the gate lets a create with the field pass",
			request: request{operation: admission.Create, user: "admin", new: pending()}, gate: gate},
		{name: "S11.17 a field set by hand needs the verb",
			request: request{operation: admission.Create, user: "eve", new: pending("a.example.com")}, code: 403,
			message: `pods "p" is forbidden: create with initializers denied: no rule`},
		{name: "S11.17 an authorizer that gives no reason",
			request: request{operation: admission.Create, user: "mute", new: pending()}, code: 403,
			message: `create with initializers denied: user "mute" needs the verb "initialize"`},
		{name: "S11.17 an empty field needs the verb too",
			request: request{operation: admission.Create, user: "eve", new: pending()}, code: 403, message: "create with initializers denied"},
		{name: "S11.17 an authorizer's error is the answer",
			request: request{operation: admission.Create, user: "broken", new: pending()}, message: "authorizer is away"},
		{name: "S11.17 an authorizer that allows allows, whatever went wrong besides",
			request: request{operation: admission.Create, user: "partly", new: pending("x.example.com")}, want: pending("x.example.com")},
		{name: "S11.18 an empty list bypasses initialization",
			request: request{operation: admission.Create, user: "admin", new: pending()}, configured: []string{"a.example.com"}},
		{name: "S11.18 a list by hand is kept as sent",
			request: request{operation: admission.Create, user: "admin", new: pending("x.example.com")}, configured: []string{"a.example.com"}, want: pending("x.example.com")},
		{name: "S11.18 a preset result is kept as sent",
			request: request{operation: admission.Create, user: "admin", new: failed("Failure")}, want: failed("Failure")},
		{name: "S11.2 names are checked",
			request: request{operation: admission.Create, user: "admin", new: pending("a.example.com", "short.name")}, code: 422,
			message: "metadata.initializers.pending[1].name"},
		{name: "S11.2 a result must be a failure",
			request: request{operation: admission.Create, user: "admin", new: failed("Success")}, code: 422,
			message: "metadata.initializers.result.status: Invalid value: \"Success\": must be 'Failure'"},
		{name: "S11.2 a name is there once",
			request: request{operation: admission.Create, user: "admin", new: pending("a.example.com", "b.example.com", "a.example.com")}, code: 422,
			message: `metadata.initializers.pending[2].name: Duplicate value: "a.example.com"`},
		{name: "S11.2 as many names as may be",
			request: request{operation: admission.Create, user: "admin", new: many(MaxPending)}, want: many(MaxPending)},
		{name: "S11.2 more names than may be, of which the answer names none",
			request: request{operation: admission.Create, user: "admin", new: many(MaxPending + 1)}, code: 422,
			message: "metadata.initializers.pending: Too many: 65: must have at most 64 items"},
		{name: "S11.2 an update adds more names than may be",
			request: request{operation: admission.Update, user: "admin", old: many(1), new: many(MaxPending + 1)}, code: 422, message: "must have at most 64 items"},
		{name: "S11.2 an object with more, from before the bound, loses a name",
			request: request{operation: admission.Update, user: "admin", old: many(MaxPending + 2), new: many(MaxPending + 1)}, want: many(MaxPending + 1)},
		{name: "S11.16 more initializers are registered for a kind than may be",
			request: request{operation: admission.Create}, configured: names(many(MaxPending + 1)), code: 403,
			message: "65 registered initializers apply to the object, more than the limit of 64"},
		{name: "S11.15 subresources are ignored",
			request: request{operation: admission.Create, subresource: "binding"}, configured: []string{"a.example.com"}},
		{name: "S11.21 the second pass does nothing",
			request: request{operation: admission.Create, user: "eve", new: pending("a.example.com"), reinvoked: true}, want: pending("a.example.com")},
		{name: "S2.39 kinds that configure admission have no initializers",
			request: request{operation: admission.Create, kind: schema.GroupVersionKind{Kind: "Exempt"}, new: pending("a.example.com")}, configured: []string{"a.example.com"}},
		{name: "S11.37 both initialized: nothing to decide",
			request: request{operation: admission.Update, user: "eve"}},
		{name: "S11.37 an update of an uninitialized object needs the verb",
			request: request{operation: admission.Update, user: "eve", old: pending("a.example.com"), new: pending("a.example.com")}, code: 403,
			message: `pods "p" is forbidden: update to uninitialized resource denied: no rule`},
		{name: "S11.37 completing initialization needs the verb",
			request: request{operation: admission.Update, user: "eve", old: pending("a.example.com")}, code: 403, message: "update to uninitialized resource denied"},
		{name: "S11.38 an empty field on an initialized object is nothing",
			request: request{operation: admission.Update, user: "eve", new: pending()}},
		{name: "S11.38 removing the last name completes initialization",
			request: request{operation: admission.Update, user: "admin", old: pending("a.example.com"), new: pending()}},
		{name: "S11.39 an initialized object stays so, checked before the verb",
			request: request{operation: admission.Update, user: "eve", new: pending("a.example.com")}, code: 422,
			message: "field is immutable once initialization has completed"},
		{name: "S11.39 the field may be removed",
			request: request{operation: admission.Update, user: "admin", old: pending("a.example.com")}},
		{name: "S11.39 names may be added and reordered",
			request: request{operation: admission.Update, user: "admin", old: pending("a.example.com"), new: pending("b.example.com", "a.example.com")},
			want:    pending("b.example.com", "a.example.com")},
		{name: "S11.39 a result may be set",
			request: request{operation: admission.Update, user: "admin", old: pending("a.example.com"), new: failed("Failure")}, want: failed("Failure")},
		{name: "S11.39 a result stays as it is",
			request: request{operation: admission.Update, user: "admin", old: failed("Failure"), new: pending("a.example.com")}, code: 422,
			message: "metadata.initializers.result"},
	}
	for _, test := range tests {
		for _, form := range []string{"typed", "unstructured"} {
			t.Run(test.name+", "+form, func(t *testing.T) {
				p := New(Options{
					Pending: func(context.Context, admission.Attributes) ([]*registration.Entry, error) {
						return given(test.configured...), test.gate
					},
					Authorizer: allow{"admin": true},
					Exempt:     func(k schema.GroupVersionKind, _ schema.GroupResource) bool { return k.Kind == "Exempt" },
				})
				kind := test.kind
				if kind.Empty() {
					kind = podKind
				}
				object := newObject(form, test.annotations, test.request.new)
				var old runtime.Object
				if test.operation == admission.Update {
					old = newObject(form, test.annotations, test.old)
				}
				a := admission.NewAttributesRecord(object, old, kind, "ns", "p", podResource, test.subresource, test.operation, nil, false, &user.DefaultInfo{Name: test.user})
				if test.reinvoked {
					a.GetReinvocationContext().SetIsReinvoke()
				}
				err := p.Admit(context.Background(), a, nil)
				if test.message != "" {
					if err == nil || !strings.Contains(err.Error(), test.message) {
						t.Fatalf("error %v, want one that says %q", err, test.message)
					}
					if status := apierrors.APIStatus(nil); test.code != 0 && (!errors.As(err, &status) || status.Status().Code != test.code) {
						t.Errorf("error %v, want code %d %s", err, test.code, http.StatusText(int(test.code)))
					}
					return
				}
				if err != nil {
					t.Fatal(err)
				}
				got, err := Get(object)
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(test.want, got); diff != "" {
					t.Errorf("metadata.initializers (-want +got):\n%s", diff)
				}
			})
		}
	}
}

func newObject(form string, annotations map[string]string, i *Initializers) runtime.Object {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "ns", Annotations: annotations}}
	var object runtime.Object = pod
	if form == "unstructured" {
		content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(pod)
		if err != nil {
			panic(err)
		}
		object = &unstructured.Unstructured{Object: content}
	}
	if i != nil {
		Set(object, i)
	}
	return object
}

func TestExposeAndHideAreInverse(t *testing.T) {
	content := map[string]any{"metadata": map[string]any{
		"name":        "x",
		"annotations": map[string]any{"other": "1"},
		"initializers": map[string]any{
			"pending": []any{map[string]any{"name": "a.example.com"}},
			"result":  map[string]any{"status": "Failure", "code": int64(409), "message": "no"},
		},
	}}
	want := runtime.DeepCopyJSON(content)
	if unknown, err := Hide(content); err != nil || len(unknown) > 0 {
		t.Fatal(unknown, err)
	}
	if _, found, _ := unstructured.NestedFieldNoCopy(content, "metadata", "initializers"); found {
		t.Error("the field is still there after Hide")
	}
	if err := Expose(content); err != nil {
		t.Fatal(err)
	}
	result := content["metadata"].(map[string]any)["initializers"].(map[string]any)["result"].(map[string]any)
	delete(result, "metadata")
	result["code"] = int64(result["code"].(float64))
	if diff := cmp.Diff(want, content); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestHideRefuses(t *testing.T) {
	for _, test := range []struct {
		name     string
		metadata map[string]any
		message  string
	}{
		{"the reserved annotation", map[string]any{"annotations": map[string]any{Annotation: "{}"}}, "is reserved"},
		{"a list", map[string]any{"initializers": []any{}}, "expected an object"},
		{"a name that is a number", map[string]any{"initializers": map[string]any{"pending": []any{map[string]any{"name": int64(1)}}}}, "metadata.initializers"},
	} {
		if _, err := Hide(map[string]any{"metadata": test.metadata}); err == nil || !strings.Contains(err.Error(), test.message) {
			t.Errorf("%s: error %v, want one that says %q", test.name, err, test.message)
		}
	}
}

// given returns initializers with these names; a finalizer follows its name after a colon.
func given(names ...string) []*registration.Entry {
	var list []*registration.Entry
	for _, name := range names {
		name, finalizer, _ := strings.Cut(name, ":")
		list = append(list, &registration.Entry{Origin: registration.Origin{Name: name}, Initializer: &registration.Initializer{Finalizer: finalizer}})
	}
	return list
}

func TestFinalizers(t *testing.T) {
	admit := func(obj runtime.Object, names ...string) {
		t.Helper()
		p := New(Options{
			Pending: func(context.Context, admission.Attributes) ([]*registration.Entry, error) {
				return given(names...), nil
			},
			Authorizer: allow{"admin": true},
			Exempt:     func(schema.GroupVersionKind, schema.GroupResource) bool { return false },
		})
		a := admission.NewAttributesRecord(obj, nil, podKind, "ns", "p", podResource, "", admission.Create, nil, false, &user.DefaultInfo{Name: "admin"})
		if err := p.Admit(t.Context(), a, nil); err != nil {
			t.Fatal(err)
		}
	}
	for _, form := range []string{"typed", "unstructured"} {
		t.Run("S11.54 a new object gets the finalizers after its own, each once, "+form, func(t *testing.T) {
			obj := newObject(form, nil, nil)
			obj.(metav1.Object).SetFinalizers([]string{"mine.example.com/x", "b.example.com/f"})
			admit(obj, "a.example.com:a.example.com/f", "b.example.com:b.example.com/f", "c.example.com")
			if got := strings.Join(obj.(metav1.Object).GetFinalizers(), " "); got != "mine.example.com/x b.example.com/f a.example.com/f" {
				t.Errorf("finalizers %s", got)
			}
			field, err := Get(obj)
			if err != nil {
				t.Fatal(err)
			}
			want := pending("a.example.com", "b.example.com", "c.example.com")
			want.Paired = []Pair{{Name: "a.example.com", Finalizer: "a.example.com/f"}, {Name: "b.example.com", Finalizer: "b.example.com/f"}}
			if diff := cmp.Diff(want, field); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
		t.Run("S11.54 a list of the creator's own has none, "+form, func(t *testing.T) {
			sent := pending("x.example.com")
			sent.Paired = []Pair{{Name: "x.example.com", Finalizer: "x.example.com/f", Claimed: true}}
			obj := newObject(form, nil, sent)
			admit(obj, "a.example.com:a.example.com/f")
			field, err := Get(obj)
			if diff := cmp.Diff(pending("x.example.com"), field); err != nil || diff != "" || len(obj.(metav1.Object).GetFinalizers()) != 0 {
				t.Errorf("%v, (-want +got):\n%s", err, diff)
			}
		})
	}
}
