package resources

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"

	"github.com/gatehouse-dev/gatehouse/internal/engine/initializers"
)

// meddler is an admission plugin that records the object that it gets, and then changes the object.
type meddler struct{ shown string }

func (*meddler) Handles(o admission.Operation) bool {
	return o == admission.Update || o == admission.Create
}

func (p *meddler) Admit(_ context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	p.shown = head(a.GetObject())
	initializers.Set(a.GetObject(), &initializers.Initializers{Pending: []initializers.Initializer{{Name: "meddler"}}})
	return nil
}

func head(obj runtime.Object) string {
	field, err := initializers.Get(obj)
	if err != nil || field == nil || len(field.Pending) == 0 {
		return ""
	}
	return field.Pending[0].Name
}

func pendingOn(name string) *corev1.ConfigMap {
	obj := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{"a": "b"}}}
	if name != "" {
		initializers.Set(obj, &initializers.Initializers{Pending: []initializers.Initializer{{Name: name}}})
	}
	return obj
}

func TestKeeper(t *testing.T) {
	for _, c := range []struct{ name, stored, sent string }{
		{"S11.41 a field that was left out comes back", "one", ""},
		{"S11.41 a field that was changed is changed back", "one", "two"},
		{"S11.41 a field that was added is removed", "", "two"},
		{"nothing to keep", "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := &meddler{}
			obj := pendingOn(c.sent)
			a := admission.NewAttributesRecord(obj, pendingOn(c.stored), schema.GroupVersionKind{}, "ns", "name",
				schema.GroupVersionResource{}, "status", admission.Update, nil, false, nil)
			if err := keeping(p, false).(admission.MutationInterface).Admit(t.Context(), a, nil); err != nil {
				t.Fatal(err)
			}
			if p.shown != c.stored {
				t.Errorf("the plugin was shown %q, want %q", p.shown, c.stored)
			}
			if got := head(obj); got != c.stored {
				t.Errorf("afterwards %q, want %q", got, c.stored)
			}
			if obj.Annotations["a"] != "b" {
				t.Errorf("annotations %v", obj.Annotations)
			}
		})
	}
	t.Run("S11.41 what is not stored has no field", func(t *testing.T) {
		p := &meddler{}
		obj := pendingOn("one")
		a := admission.NewAttributesRecord(obj, nil, schema.GroupVersionKind{}, "ns", "name", schema.GroupVersionResource{}, "binding", admission.Create, nil, false, nil)
		if err := keeping(p, true).(admission.MutationInterface).Admit(t.Context(), a, nil); err != nil {
			t.Fatal(err)
		}
		if got := head(obj); p.shown != "" || got != "" || obj.Annotations["a"] != "b" {
			t.Errorf("the plugin was shown %q, afterwards %q with annotations %v", p.shown, got, obj.Annotations)
		}
	})
	t.Run("a create passes", func(t *testing.T) {
		obj := pendingOn("")
		a := admission.NewAttributesRecord(obj, nil, schema.GroupVersionKind{}, "ns", "name", schema.GroupVersionResource{}, "", admission.Create, nil, false, nil)
		if err := keeping(&meddler{}, false).(admission.MutationInterface).Admit(t.Context(), a, nil); err != nil {
			t.Fatal(err)
		}
		if got := head(obj); got != "meddler" {
			t.Errorf("afterwards %q", got)
		}
	})
}

func TestMentions(t *testing.T) {
	for _, c := range []struct {
		name, body        string
		yaml              bool
		field, annotation bool
	}{
		{"neither", `{"metadata":{"labels":{"a":"b"}}}`, false, false, false},
		{"the field", `{"metadata":{"initializers":{"pending":[]}}}`, false, true, false},
		{"the field, null", `{"metadata":{"initializers":null}}`, false, true, false},
		{"the field, escaped", `{"metadata":{"initiali\u007aers":null}}`, false, true, false},
		{"the word elsewhere", `{"metadata":{"annotations":{"note":"initializers"}},"spec":{"initializers":1}}`, false, false, false},
		{"the annotation", `{"metadata":{"annotations":{"gatehouse.dev/metadata.initializers":"{}"}}}`, false, false, true},
		{"the annotation, null", `{"metadata":{"annotations":{"gatehouse.dev/metadata.initializers":null}}}`, false, false, true},
		{"the annotation, escaped", `{"metadata":{"annotations":{"gatehouse.dev\/metadata.initialize\u0072s":"{}"}}}`, false, false, true},
		{"the annotation in YAML", "metadata:\n  annotations:\n    gatehouse.dev/metadata.initializers: x\n", true, false, true},
		{"the annotation in YAML, escaped", `metadata: {annotations: {"gatehouse.dev/metadata.initialize\x72s": x}}`, true, false, true},
		{"the annotation in YAML, tagged", "metadata: {annotations: {!!binary Z2F0ZWhvdXNlLmRldi9tZXRhZGF0YS5pbml0aWFsaXplcnM=: x}}", true, false, true},
		{"the annotation, after a member of the same name", `{"metadata":5,"metadata":{"annotations":{"gatehouse.dev/metadata.initializers":"{}"}}}`, false, false, true},
		{"all annotations, null", `{"metadata":{"annotations":null}}`, false, true, false},
		{"all annotations, replaced", `{"metadata":{"annotations":{"$patch":"replace","a":"b"}}}`, false, true, false},
		{"all metadata, replaced", `{"metadata":{"$patch":"replace","name":"n"}}`, false, true, false},
		{"all metadata, null", `{"metadata":null}`, false, true, false},
		{"everything, replaced", `{"\u0024patch":"replace"}`, false, true, false},
		{"a directive elsewhere", `{"metadata":{"annotations":{"a":null}},"spec":{"$patch":"replace"}}`, false, false, false},
		{"no JSON", `{"initializers`, false, false, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			field, annotation := mentions([]byte(c.body), c.yaml)
			if field != c.field || annotation != c.annotation {
				t.Errorf("got %v and %v, want %v and %v", field, annotation, c.field, c.annotation)
			}
		})
	}
}
