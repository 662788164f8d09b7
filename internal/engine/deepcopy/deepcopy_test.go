package deepcopy

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// whole has a field of each kind in API types.
type whole struct {
	metav1.ObjectMeta
	Number  *int
	Bytes   []byte
	Nested  []whole
	ByName  map[string][]string
	Any     any
	Two     [2]*int
	At      metav1.MicroTime
	Managed metav1.FieldsV1
	Nothing []string
	Empty   []string
	private int
}

func example() *whole {
	one, two := 1, 2
	return &whole{
		ObjectMeta: metav1.ObjectMeta{Name: "a", Labels: map[string]string{"k": "v"}, ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "m", FieldsV1: metav1.NewFieldsV1(`{"f:x":{}}`)}}},
		Number:     &one, Bytes: []byte("bytes"), Nested: []whole{{Number: &two, private: 7}},
		ByName: map[string][]string{"a": {"b"}, "none": nil}, Any: map[string]any{"x": []any{"y"}}, Two: [2]*int{&one},
		At: metav1.NewMicroTime(time.Unix(5, 6000)), Managed: *metav1.NewFieldsV1(`{"f:y":{}}`), Empty: []string{}, private: 3,
	}
}

// A copy is equal to the original, and is not affected by changes of the original.
func TestCopiesShareNothing(t *testing.T) {
	in := example()
	out := Of(in)
	all := cmp.AllowUnexported(whole{})
	if diff := cmp.Diff(in, out, all); diff != "" {
		t.Fatalf("the copy (-original +copy):\n%s", diff)
	}
	*in.Number = 9
	in.Bytes[0], in.ByName["a"][0], in.Labels["k"] = 'x', "x", "x"
	*in.Nested[0].Number = 9
	in.Any.(map[string]any)["x"].([]any)[0] = "x"
	in.ManagedFields[0].Manager = "x"
	if diff := cmp.Diff(example(), out, all); diff != "" {
		t.Errorf("the copy after changes of the original (-want +got):\n%s", diff)
	}
	if out.Nothing != nil || out.Empty == nil || out.ByName["none"] != nil {
		t.Errorf("nil and empty became each other: %+v", out)
	}
	if Of[whole](nil) != nil {
		t.Error("a copy of nothing is something")
	}
}
