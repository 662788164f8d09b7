package explain

import (
	"errors"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// S9.24: the results of reading and binding a pod either refuse a binding, leave the outcome
// unknown, or do not matter.
func TestUnbound(t *testing.T) {
	pods := schema.GroupResource{Resource: "pods"}
	for _, tc := range []struct {
		name             string
		err              error
		refuses, unknown bool
	}{
		{"a pod that can get the node", nil, false, false},
		{"no pod", apierrors.NewNotFound(pods, "a"), true, false},
		{"a pod with a node", apierrors.NewConflict(pods, "a", errors.New("it has a node")), true, false},
		{"a pod that may not be read", apierrors.NewForbidden(pods, "a", nil), false, true},
		{"a cluster that does not answer", apierrors.NewTimeoutError("too slow", 1), false, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			refuses, unknown := false, false
			for _, link := range Unbound(tc.err) {
				refuses, unknown = link.Judge != nil, link.Hidden != ""
			}
			if refuses != tc.refuses || unknown != tc.unknown {
				t.Errorf("refuses %t, unknown %t; want %t, %t", refuses, unknown, tc.refuses, tc.unknown)
			}
		})
	}
}
