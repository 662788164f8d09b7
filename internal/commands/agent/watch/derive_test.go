package watch

import (
	"errors"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gatehouse-dev/gatehouse/admission/plan"
)

// S32.19: nothing is derived from registrations that have changed since they were read.
func TestWhatHasChangedIsNotKnown(t *testing.T) {
	var got []string
	l := &latest[string]{set: func(s string) { got = append(got, s) }}
	read := func(value string, meanwhile func(), failure error) {
		t.Helper()
		if err := l.read(func() (string, error) { meanwhile(); return value, failure }); !errors.Is(err, failure) {
			t.Error(err)
		}
	}
	nothing, broken := func() {}, errors.New("broken")
	read("first", nothing, nil)
	read("second", l.changed, nil)
	read("third", nothing, broken)
	read("fourth", nothing, nil)
	l.changed()
	if want := []string{"first", "", "fourth", ""}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// S32.19: a derived namespace has the labels for the selectors of webhooks, and a missing namespace
// is unknown.
func TestNamespacesOfDerivedTraces(t *testing.T) {
	n, err := namespaceOf(&metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: "shop", Labels: map[string]string{"a": "b"}}}, nil)
	if err != nil || n.Name != "shop" || n.Labels["a"] != "b" {
		t.Errorf("%+v, %v", n, err)
	}
	gone := apierrors.NewNotFound(schema.GroupResource{Resource: "namespaces"}, "gone")
	for _, found := range []struct {
		object any
		err    error
	}{{nil, gone}, {&corev1.Namespace{}, nil}} {
		if _, err := namespaceOf(found.object, found.err); !errors.Is(err, plan.ErrUnknown) {
			t.Errorf("%v: %v", found.object, err)
		}
	}
}
