package openapi_test

import (
	"reflect"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/kube-openapi/pkg/common"
	"k8s.io/kube-openapi/pkg/util"
	"k8s.io/kube-openapi/pkg/validation/spec"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	generated "k8s.io/kubernetes/pkg/generated/openapi"

	"github.com/gatehouse-dev/gatehouse/admission/announce"
	"github.com/gatehouse-dev/gatehouse/internal/server/api/openapi"
)

// shape has the properties on which two descriptions of a type must agree. Other properties,
// such as texts, enums and defaults, come from comments, which reflection cannot read.
type shape struct {
	Type          []string
	Format, Ref   string
	Strategy, Key any
	Items, Values *shape
}

func shapeOf(s spec.Schema) *shape {
	out := &shape{
		Type: s.Type, Format: s.Format, Ref: s.Ref.String(),
		Strategy: s.Extensions["x-kubernetes-patch-strategy"], Key: s.Extensions["x-kubernetes-patch-merge-key"],
	}
	if s.Items != nil {
		out.Items = shapeOf(*s.Items.Schema)
	}
	if s.AdditionalProperties != nil {
		out.Values = shapeOf(*s.AdditionalProperties.Schema)
	}
	return out
}

func TestReflectAgreesWithTheGenerator(t *testing.T) {
	ref := func(path string) spec.Ref { return spec.MustCreateRef("#/definitions/" + path) }
	want := generated.GetOpenAPIDefinitions(ref)
	examples := []any{
		&corev1.ConfigMap{}, &corev1.Secret{}, &corev1.PodSpec{}, &corev1.Container{}, &corev1.ServiceSpec{}, &corev1.NodeStatus{},
		&appsv1.DeploymentSpec{}, &appsv1.DaemonSetStatus{}, &rbacv1.ClusterRole{}, &rbacv1.ClusterRoleList{},
	}
	got := openapi.Reflect(nil, examples...)(ref)
	for _, example := range examples {
		name := util.GetCanonicalTypeName(example)
		shapes := func(d common.OpenAPIDefinition) map[string]*shape {
			all := map[string]*shape{}
			for field, s := range d.Schema.Properties {
				all[field] = shapeOf(s)
			}
			return all
		}
		if diff := cmp.Diff(shapes(want[name]), shapes(got[name])); diff != "" {
			t.Errorf("%s (-generated +reflected):\n%s", name, diff)
		}
		if diff := cmp.Diff(want[name].Dependencies, got[name].Dependencies); diff != "" {
			t.Errorf("dependencies of %s (-generated +reflected):\n%s", name, diff)
		}
	}
}

// Plan is a kind without generated definitions.
type Plan struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Steps []Step   `json:"steps,omitempty" patchStrategy:"merge" patchMergeKey:"name"`
	Notes []string `json:"notes,omitempty"`
}

// Step is a part of a Plan.
type Step struct {
	Name string `json:"name"`
	Size *int32 `json:"size,omitempty"`
	// Done is a time as the standard library has it, which is a string in JSON.
	Done time.Time `json:"done,omitzero"`
	Next []Step    `json:"next,omitempty"`
}

func (p *Plan) DeepCopyObject() runtime.Object {
	out := *p
	return &out
}

func TestAReflectedKindCanBeApplied(t *testing.T) {
	scheme := runtime.NewScheme()
	gv := schema.GroupVersion{Group: "gatehouse.example.com", Version: "v1"}
	scheme.AddKnownTypes(gv, &Plan{})
	models := openapi.NewModels(openapi.Reflect(nil, &Plan{}), scheme)
	converter, err := models.TypeConverter(scheme, []schema.GroupVersionKind{gv.WithKind("Plan")})
	if err != nil {
		t.Fatal(err)
	}
	plan := func(fields map[string]any) *unstructured.Unstructured {
		fields["apiVersion"], fields["kind"] = gv.String(), "Plan"
		return &unstructured.Unstructured{Object: fields}
	}
	step := func(name string, size int64) any { return map[string]any{"name": name, "size": size} }
	live, err := converter.ObjectToTyped(plan(map[string]any{"steps": []any{step("a", 1), step("b", 2)}, "notes": []any{"x"}}))
	if err != nil {
		t.Fatal(err)
	}
	applied, err := converter.ObjectToTyped(plan(map[string]any{"steps": []any{step("b", 3)}, "notes": []any{"y"}}))
	if err != nil {
		t.Fatal(err)
	}
	merged, err := live.Merge(applied)
	if err != nil {
		t.Fatal(err)
	}
	got, err := converter.TypedToObject(merged)
	if err != nil {
		t.Fatal(err)
	}
	want := plan(map[string]any{"steps": []any{step("a", 1), step("b", 3)}, "notes": []any{"y"}})
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("steps merge by name, notes as a whole (-want +got):\n%s", diff)
	}
	if _, err := converter.ObjectToTyped(&Plan{
		TypeMeta: metav1.TypeMeta{APIVersion: gv.String(), Kind: "Plan"}, Steps: []Step{{Name: "a", Done: time.Now()}},
	}); err != nil {
		t.Errorf("a time: %v", err)
	}
	if _, err := converter.ObjectToTyped(plan(map[string]any{"stesp": []any{}})); err == nil {
		t.Error("an unknown field was accepted")
	}
}

// The descriptions are the comments in the source of a package. A comment above several fields
// describes each of them.
func TestReflectDescribesFieldsByTheirComments(t *testing.T) {
	ref := func(path string) spec.Ref { return spec.MustCreateRef("#/definitions/" + path) }
	packages := []openapi.Package{{Example: announce.Announcement{}, FieldDocs: announce.FieldDocs}}
	found := openapi.Reflect(packages, &announce.Announcement{})(ref)
	got := map[string]string{}
	for _, example := range []any{&announce.Announcement{}, &announce.Skipped{}} {
		schema := found[util.GetCanonicalTypeName(example)].Schema
		got[reflect.TypeOf(example).Elem().Name()] = schema.Description
		for name, property := range schema.Properties {
			got[name] = property.Description
		}
	}
	for name, want := range map[string]string{
		"Announcement": "Announcement is the report of a server about itself.",
		"off":          "Off are the resources of registrations of which the server enforces nothing.",
		"since":        "Since is when the first call failed, and Reason how a later one did.",
		"reason":       "Since is when the first call failed, and Reason how a later one did.",
	} {
		if got[name] != want {
			t.Errorf("%s is described as %q, want %q", name, got[name], want)
		}
	}
}

// Formats have no unsigned integers: kube-openapi describes them as int64, too.
func TestReflectDescribesUnsignedIntegers(t *testing.T) {
	type Costs struct {
		Cost  uint64 `json:"cost"`
		Count uint32 `json:"count"`
	}
	ref := func(path string) spec.Ref { return spec.MustCreateRef("#/definitions/" + path) }
	properties := openapi.Reflect(nil, &Costs{})(ref)[util.GetCanonicalTypeName(&Costs{})].Schema.Properties
	for _, field := range []string{"cost", "count"} {
		if got := properties[field]; !got.Type.Contains("integer") || got.Format != "int64" {
			t.Errorf("%s is described as %v of format %q, want an integer of format int64", field, got.Type, got.Format)
		}
	}
}

// Goroutines can make type converters at the same time, from shared definitions.
func TestTypeConvertersAreMadeAtTheSameTime(t *testing.T) {
	own := runtime.NewScheme()
	gv := schema.GroupVersion{Group: "gatehouse.example.com", Version: "v1"}
	own.AddKnownTypes(gv, &Plan{})
	models := openapi.NewModels(openapi.Reflect(nil, &Plan{}), own, legacyscheme.Scheme)
	var making sync.WaitGroup
	for range 4 {
		making.Go(func() {
			converter, err := models.TypeConverter(own, []schema.GroupVersionKind{gv.WithKind("Plan")})
			if err != nil {
				t.Error(err)
				return
			}
			if _, err := converter.ObjectToTyped(&Plan{TypeMeta: metav1.TypeMeta{APIVersion: gv.String(), Kind: "Plan"}}); err != nil {
				t.Error(err)
			}
		})
		making.Go(func() {
			converter, err := models.TypeConverter(legacyscheme.Scheme, []schema.GroupVersionKind{{Group: "scheduling.k8s.io", Version: "v1", Kind: "PriorityClass"}})
			if err != nil {
				t.Error(err)
				return
			}
			if _, err := converter.ObjectToTyped(&schedulingv1.PriorityClass{TypeMeta: metav1.TypeMeta{APIVersion: "scheduling.k8s.io/v1", Kind: "PriorityClass"}, Value: 1}); err != nil {
				t.Error(err)
			}
		})
	}
	making.Wait()
}
