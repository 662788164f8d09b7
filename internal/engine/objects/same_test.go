package objects

import (
	"reflect"
	"testing"

	"sigs.k8s.io/randfill"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

// nested is an object whose type contains itself.
type nested struct {
	metav1.TypeMeta
	Flag       bool
	Number     int64
	Properties map[string]nested
	Items      *nested
	AllOf      []nested
	Any        any
}

func (s *nested) DeepCopyObject() runtime.Object { panic("not needed") }

// Copies are equal, and a change of any single value makes them different.
func TestSameObjects(t *testing.T) {
	fill := randfill.NewWithSeed(1).NilChance(.2).NumElements(1, 2).MaxDepth(8).Funcs(
		func(q *resource.Quantity, c randfill.Continue) {
			*q = *resource.NewQuantity(c.Int63n(1e6), resource.DecimalSI)
		},
		func(t *metav1.Time, c randfill.Continue) { *t = metav1.Unix(c.Int63n(1e9), 0) },
		func(v *any, c randfill.Continue) { *v = map[string]any{"a": c.Int63n(1e6), "b": []any{c.String(5)}} },
	)
	for _, made := range []func() runtime.Object{
		func() runtime.Object { return &corev1.Pod{} },
		func() runtime.Object { return &corev1.ConfigMap{} },
		func() runtime.Object { return &nested{} },
		func() runtime.Object { return &unstructured.Unstructured{} },
	} {
		changes := 0
		for range 5 {
			one := made()
			fill.Fill(one)
			other := deepCopy(reflect.ValueOf(one)).Interface().(runtime.Object)
			if !Same(one, other) {
				t.Fatalf("a copy of %T is not the same", one)
			}
			change(reflect.ValueOf(other).Elem(), func(path string) {
				changes++
				if Same(one, other) {
					t.Errorf("%T: a change of %s is not seen", one, path)
				}
			}, "")
			if !Same(one, other) {
				t.Errorf("%T: changes that were taken back are seen", one)
			}
		}
		if changes < 10 {
			t.Errorf("%T: %d changes were tried", made(), changes)
		}
	}
	if Same(&corev1.Pod{}, &corev1.ConfigMap{}) {
		t.Error("objects of two types are the same")
	}
}

// Only the listed fields are compared, and fields that the type lacks have no effect.
func TestSameFields(t *testing.T) {
	one := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"a": "b"}}, Spec: corev1.PodSpec{NodeName: "n"}}
	for _, tt := range []struct {
		name   string
		change func(*corev1.Pod)
		fields []string
		want   bool
	}{
		{"a listed field", func(p *corev1.Pod) { p.Labels["a"] = "c" }, []string{"Spec.NodeName", "ObjectMeta.Labels"}, false},
		{"the struct around it", func(p *corev1.Pod) { p.Spec.NodeName = "m" }, []string{"Spec"}, false},
		{"another field", func(p *corev1.Pod) { p.Spec.NodeName = "m" }, []string{"ObjectMeta.Labels"}, true},
		{"a field that the type lacks", func(p *corev1.Pod) { p.Spec.NodeName = "m" }, []string{"Spec.Taints", "Spec.NodeName.Length", "Data"}, true},
		{"no field", func(p *corev1.Pod) { p.Spec.NodeName = "m" }, nil, true},
	} {
		other := one.DeepCopy()
		tt.change(other)
		if got := SameFields(one, other, tt.fields); got != tt.want {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
	}
	from := one.DeepCopy()
	from.Labels["a"], from.Spec.NodeName = "c", "m"
	made := WithFields(one, from, []string{"ObjectMeta.Labels", "Spec.Taints"}).(*corev1.Pod)
	if from.Labels["a"] = "d"; made.Labels["a"] != "c" || made.Spec.NodeName != "n" || one.Labels["a"] != "b" {
		t.Errorf("WithFields: labels %v, node %q", made.Labels, made.Spec.NodeName)
	}
	u := &unstructured.Unstructured{Object: map[string]any{"a": "b"}}
	if made := WithFields(&unstructured.Unstructured{}, u, []string{"Object"}).(*unstructured.Unstructured); made == u || made.Object["a"] != "b" {
		t.Errorf("WithFields of an unstructured object: %v", made.Object)
	}
	if SameFields(u, &unstructured.Unstructured{}, []string{"Spec"}) || SameFields(one, &corev1.Service{}, []string{"Spec"}) {
		t.Error("objects without such fields are not compared in full")
	}
}

// deepCopy copies everything except the values of unexported fields, which it shares.
func deepCopy(v reflect.Value) reflect.Value {
	c := reflect.New(v.Type()).Elem()
	c.Set(v)
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			c.Set(reflect.New(v.Type().Elem()))
			c.Elem().Set(deepCopy(v.Elem()))
		}
	case reflect.Interface:
		if !v.IsNil() {
			c.Set(deepCopy(v.Elem()))
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				c.Field(i).Set(deepCopy(v.Field(i)))
			}
		}
	case reflect.Slice:
		if !v.IsNil() {
			c.Set(reflect.MakeSlice(v.Type(), v.Len(), v.Len()))
			for i := range v.Len() {
				c.Index(i).Set(deepCopy(v.Index(i)))
			}
		}
	case reflect.Map:
		if !v.IsNil() {
			c.Set(reflect.MakeMap(v.Type()))
			for members := v.MapRange(); members.Next(); {
				c.SetMapIndex(members.Key(), deepCopy(members.Value()))
			}
		}
	}
	return c
}

// change changes one value after the other in v, and reverts each change.
func change(v reflect.Value, changed func(path string), path string) {
	try := func(to reflect.Value) {
		was := reflect.New(v.Type()).Elem()
		was.Set(v)
		v.Set(to)
		changed(path)
		v.Set(was)
	}
	switch v.Kind() {
	case reflect.String:
		try(reflect.ValueOf(v.String() + "!").Convert(v.Type()))
	case reflect.Bool:
		try(reflect.ValueOf(!v.Bool()).Convert(v.Type()))
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		try(reflect.ValueOf(v.Int() ^ 1).Convert(v.Type()))
	case reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		try(reflect.ValueOf(v.Uint() ^ 1).Convert(v.Type()))
	case reflect.Pointer:
		if v.IsNil() {
			try(reflect.New(v.Type().Elem()))
			return
		}
		change(v.Elem(), changed, path)
		try(reflect.Zero(v.Type()))
	case reflect.Struct:
		for i := range v.NumField() {
			if f := v.Type().Field(i); f.IsExported() {
				change(v.Field(i), changed, path+"."+f.Name)
			}
		}
		if q, ok := v.Interface().(resource.Quantity); ok {
			q.Add(resource.MustParse("1"))
			try(reflect.ValueOf(q))
		}
	case reflect.Slice:
		try(reflect.Append(v.Slice3(0, v.Len(), v.Len()), reflect.Zero(v.Type().Elem())))
		for i := range v.Len() {
			change(v.Index(i), changed, path+"[]")
		}
	case reflect.Map:
		for _, key := range v.MapKeys() {
			was := v.MapIndex(key)
			to := reflect.New(was.Type()).Elem()
			to.Set(was)
			change(to, func(inner string) {
				v.SetMapIndex(key, to)
				changed(inner)
				v.SetMapIndex(key, was)
			}, path+"{}")
			v.SetMapIndex(key, reflect.Value{})
			changed(path + "{}")
			v.SetMapIndex(key, was)
		}
	case reflect.Interface:
		if !v.IsNil() {
			to := reflect.New(v.Elem().Type()).Elem()
			to.Set(v.Elem())
			was := v.Elem()
			change(to, func(inner string) {
				v.Set(to)
				changed(inner)
				v.Set(was)
			}, path)
		}
	}
}

// BenchmarkSame measures the detection that a plugin changed nothing.
func BenchmarkSame(b *testing.B) {
	one, other := somePod(), somePod().DeepCopy()
	b.ReportAllocs()
	for b.Loop() {
		if !Same(one, other) {
			b.Fatal("the copy differs")
		}
	}
}
