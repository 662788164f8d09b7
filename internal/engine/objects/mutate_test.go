package objects

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/apiserver/pkg/admission"
	applyconfigurations "k8s.io/client-go/applyconfigurations"

	"github.com/gatehouse-dev/gatehouse/internal/engine/initializers"
	"github.com/gatehouse-dev/gatehouse/internal/engine/mutation"
	"github.com/gatehouse-dev/gatehouse/internal/engine/review"
)

// defaulting has deployments, and a deployment without spec.replicas gets one replica.
func defaulting(t *testing.T) *runtime.Scheme {
	t.Helper()
	s := runtime.NewScheme()
	if err := appsv1.AddToScheme(s); err != nil {
		t.Fatal(err)
	}
	s.AddTypeDefaultingFunc(&appsv1.Deployment{}, func(o any) {
		d := o.(*appsv1.Deployment)
		if d.Spec.Replicas == nil {
			d.Spec.Replicas = new(int32(1))
		}
	})
	return s
}

// one has the same schemas for all kinds.
type one struct{ converter managedfields.TypeConverter }

func (o one) TypeConverter(schema.GroupVersionKind) managedfields.TypeConverter { return o.converter }

func apply(t *testing.T, configuration string) *mutation.Change {
	t.Helper()
	c := &mutation.Change{Type: mutation.ApplyConfiguration}
	if err := json.Unmarshal([]byte(configuration), &c.Configuration); err != nil {
		t.Fatal(err)
	}
	return c
}

func patch(t *testing.T, operations string) *mutation.Change {
	t.Helper()
	p, err := review.DecodePatch([]byte(operations))
	if err != nil {
		t.Fatal(err)
	}
	return &mutation.Change{Type: mutation.JSONPatch, Patch: p}
}

func TestMutate(t *testing.T) {
	s := defaulting(t)
	schemas := one{applyconfigurations.NewTypeConverter(s)}
	kind := appsv1.SchemeGroupVersion.WithKind("Deployment")
	for _, tt := range []struct {
		name   string
		change *mutation.Change
		// in changes the object, which has two replicas and the label a=b.
		in      func(*appsv1.Deployment)
		want    func(*appsv1.Deployment)
		changed bool
		err     string
	}{
		{
			name: "S18.4 an apply configuration", change: apply(t, `{"metadata":{"labels":{"x":"y"}}}`),
			want: func(d *appsv1.Deployment) { d.Labels["x"] = "y" }, changed: true,
		},
		{
			name: "S18.4 a JSON patch", change: patch(t, `[{"op":"add","path":"/metadata/labels/x","value":"y"}]`),
			want: func(d *appsv1.Deployment) { d.Labels["x"] = "y" }, changed: true,
		},
		{
			name: "S18.3 S18.4 defaults are set after a mutation", change: patch(t, `[{"op":"remove","path":"/spec/replicas"}]`),
			want: func(d *appsv1.Deployment) { d.Spec.Replicas = new(int32(1)) }, changed: true,
		},
		{
			name: "S18.3 what has no value is absent for the next", change: patch(t, `[{"op":"replace","path":"/metadata/labels","value":{}}]`),
			want: func(d *appsv1.Deployment) { d.Labels = nil }, changed: true,
		},
		{
			name: "S18.27 a mutation that defaults undo changes nothing", change: patch(t, `[{"op":"remove","path":"/spec/replicas"}]`),
			in: func(d *appsv1.Deployment) { d.Spec.Replicas = new(int32(1)) },
		},
		{
			name: "S18.27 a mutation that has nothing to do changes nothing", change: apply(t, `{"metadata":{"labels":{"a":"b"}}}`),
			in: func(d *appsv1.Deployment) { d.ManagedFields = []metav1.ManagedFieldsEntry{{Time: new(metav1.Now())}} },
		},
		{
			name: "S18.4 defaults that were missing are a change", change: apply(t, `{}`),
			in:      func(d *appsv1.Deployment) { d.Spec.Replicas = nil },
			want:    func(d *appsv1.Deployment) { d.Spec.Replicas = new(int32(1)) },
			changed: true,
		},
		{
			name:   "S18.19 a false test drops the whole patch",
			change: patch(t, `[{"op":"add","path":"/metadata/labels/x","value":"y"},{"op":"test","path":"/spec/replicas","value":5}]`),
		},
		{
			name: "S18.18 a patch that does not apply", change: patch(t, `[{"op":"remove","path":"/spec/paused"}]`),
			err: "JSON Patch: error in remove for path: '/spec/paused': Unable to remove nonexistent key: paused: missing value",
		},
		{
			name: "S18.20 an unknown field", change: patch(t, `[{"op":"add","path":"/spec/template/spec/x","value":1}]`),
			err: `strict decoding error: unknown field "spec.template.spec.x"`,
		},
		{
			name: "S18.20 an unknown field at the top, and one below", change: patch(t, `[{"op":"add","path":"/x","value":1},{"op":"add","path":"/spec/y","value":1}]`),
			err: `strict decoding error: unknown field "spec.y", unknown field "x"`,
		},
		{
			name: "S18.20 a wrong type", change: patch(t, `[{"op":"add","path":"/spec/replicas","value":"9007199254740993"}]`),
			err: "json: cannot unmarshal string into Go struct field DeploymentSpec.spec.replicas of type int32",
		},
		{
			name: "S18.13 an unknown field of an apply configuration", change: apply(t, `{"spec":{"x":1}}`),
			err: "error applying patch: failed to convert patch object to typed object: .spec.x: field not declared in schema",
		},
		{
			name: "S5.8 another kind", change: patch(t, `[{"op":"replace","path":"/kind","value":"StatefulSet"}]`),
			err: "it changes the object from apps/v1, Kind=Deployment to apps/v1, Kind=StatefulSet",
		},
		{
			name:   "S18.20 the kind and version of a built-in object go without saying",
			change: patch(t, `[{"op":"remove","path":"/kind"},{"op":"remove","path":"/apiVersion"}]`),
		},
		{
			name:   "S18.20 also when something else changes",
			change: patch(t, `[{"op":"remove","path":"/kind"},{"op":"replace","path":"/spec/replicas","value":5}]`),
			want:   func(d *appsv1.Deployment) { d.Spec.Replicas = new(int32(5)) }, changed: true,
		},
		{
			name: "D70 a patch that initializes", change: patch(t, `[{"op":"add","path":"/metadata/initializers","value":{"pending":[{"name":"a.example.com"}]}}]`),
			err: "metadata.initializers cannot be changed by a policy: only initializers do that",
		},
		{
			name: "D70 a patch that ends initialization", change: patch(t, `[{"op":"remove","path":"/metadata/initializers"}]`),
			in:  uninitialized,
			err: "metadata.initializers cannot be changed by a policy: only initializers do that",
		},
		{
			name: "D70 the field is where clients see it, and stays", change: patch(t, `[{"op":"test","path":"/metadata/initializers/pending/0/name","value":"a.example.com"},{"op":"add","path":"/metadata/labels/x","value":"y"}]`),
			in:   uninitialized,
			want: func(d *appsv1.Deployment) { d.Labels["x"] = "y" }, changed: true,
		},
		{
			name: "D70 the annotation is reserved", change: patch(t, `[{"op":"add","path":"/metadata/annotations","value":{"gatehouse.dev/metadata.initializers":"{}"}}]`),
			err: "metadata.annotations[gatehouse.dev/metadata.initializers] is reserved: write metadata.initializers instead",
		},
		{
			name: "D70 the annotation is reserved for apply configurations", change: apply(t, `{"metadata":{"annotations":{"gatehouse.dev/metadata.initializers":"{}"}}}`),
			err: "metadata.initializers cannot be changed by a policy: only initializers do that",
		},
		{
			name: "D70 a configuration that initializes", change: apply(t, `{"metadata":{"initializers":{"pending":[]}}}`),
			err: "metadata.initializers cannot be changed by a policy: only initializers do that",
		},
		{
			name: "D70 a configuration leaves the field", change: apply(t, `{"metadata":{"labels":{"x":"y"},"annotations":{"p":"q"}}}`),
			in: uninitialized,
			want: func(d *appsv1.Deployment) {
				d.Labels["x"] = "y"
				d.Annotations["p"] = "q"
			}, changed: true,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			object := &appsv1.Deployment{
				ObjectMeta: metav1.ObjectMeta{Name: "d", Namespace: "ns", Labels: map[string]string{"a": "b"}},
				Spec:       appsv1.DeploymentSpec{Replicas: new(int32(2))},
			}
			object.SetGroupVersionKind(kind)
			if tt.in != nil {
				tt.in(object)
			}
			want := object.DeepCopy()
			if tt.want != nil {
				tt.want(want)
			}
			set := New(admission.NewAttributesRecord(object, nil, kind, "ns", "d", schema.GroupVersionResource{}, "", admission.Create, nil, false, nil),
				admission.NewObjectInterfacesFromScheme(s))
			f, err := set.As(kind)
			if err != nil {
				t.Fatal(err)
			}
			changed, err := set.Mutate(t.Context(), f, tt.change, schemas)
			text := ""
			if err != nil {
				text = err.Error()
			}
			if text != tt.err {
				t.Fatalf("got error %q\nwant %q", text, tt.err)
			}
			if changed != tt.changed {
				t.Errorf("changed: %v", changed)
			}
			if err := set.Settle(); err != nil {
				t.Fatal(err)
			}
			if !asWritten.DeepEqual(want, object) {
				t.Errorf("(-want +got):\n%s", cmp.Diff(want, object))
			}
			if !strings.HasPrefix(tt.name, "D70") && initializers.Has(object) {
				t.Error("the object is uninitialized")
			}
		})
	}
}

func uninitialized(d *appsv1.Deployment) {
	initializers.Set(d, &initializers.Initializers{Pending: []initializers.Initializer{{Name: "a.example.com"}}})
}

// S18.3: the custom object after a mutation shares nothing with the previous object, so that the
// defaults of one do not appear in the other.
func TestMutateOfACustomObject(t *testing.T) {
	kind := schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Widget"}
	for name, change := range map[string]*mutation.Change{
		"patch":         patch(t, `[{"op":"add","path":"/metadata/labels","value":{"x":"y"}}]`),
		"configuration": apply(t, `{"metadata":{"labels":{"x":"y"}}}`),
	} {
		t.Run(name, func(t *testing.T) {
			object := &unstructured.Unstructured{Object: map[string]any{
				"apiVersion": "example.com/v1", "kind": "Widget", "metadata": map[string]any{"name": "w"}, "spec": map[string]any{"a": "b"},
			}}
			before := object.DeepCopy()
			o := admission.NewObjectInterfacesFromScheme(runtime.NewScheme()).(*admission.RuntimeObjectInterfaces)
			o.ObjectDefaulter = defaultSpec{}
			set := New(admission.NewAttributesRecord(object, nil, kind, "", "w", schema.GroupVersionResource{}, "", admission.Create, nil, false, nil), o)
			f, err := set.As(kind)
			if err != nil {
				t.Fatal(err)
			}
			changed, err := set.Mutate(t.Context(), f, change, one{managedfields.NewDeducedTypeConverter()})
			if err != nil || !changed {
				t.Fatalf("changed: %v, %v", changed, err)
			}
			if diff := cmp.Diff(before, object); diff != "" {
				t.Errorf("before Settle, the object was changed:\n%s", diff)
			}
			if err := set.Settle(); err != nil {
				t.Fatal(err)
			}
			want := before.Object
			want["metadata"].(map[string]any)["labels"] = map[string]any{"x": "y"}
			want["spec"].(map[string]any)["size"] = int64(1)
			if diff := cmp.Diff(want, object.Object); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// defaultSpec gives custom objects a size.
type defaultSpec struct{}

func (defaultSpec) Default(in runtime.Object) {
	in.(*unstructured.Unstructured).Object["spec"].(map[string]any)["size"] = int64(1)
}
