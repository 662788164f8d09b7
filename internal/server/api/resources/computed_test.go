package resources

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

func TestTablesHaveTheResourceVersion(t *testing.T) {
	left := int64(2)
	for _, c := range []struct {
		name string
		obj  runtime.Object
		want metav1.ListMeta
	}{
		{"of an object", &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a", ResourceVersion: "7"}}, metav1.ListMeta{ResourceVersion: "7"}},
		{
			"of a list",
			&corev1.ConfigMapList{ListMeta: metav1.ListMeta{ResourceVersion: "8", Continue: "c", RemainingItemCount: &left}},
			metav1.ListMeta{ResourceVersion: "8", Continue: "c", RemainingItemCount: &left},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			made, err := Table(c.obj, nil, func(object *corev1.ConfigMap, _ string) []any { return []any{object.Name} })
			if err != nil {
				t.Fatal(err)
			}
			if got := made.ListMeta; got.ResourceVersion != c.want.ResourceVersion || got.Continue != c.want.Continue || got.RemainingItemCount != c.want.RemainingItemCount {
				t.Errorf("got %+v, want %+v", got, c.want)
			}
		})
	}
}
