package gatehousetest

import (
	"context"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

// Admitted checks that the server would create the object, or update it if it has a
// resourceVersion. It returns the object as admission changed it. Nothing is stored: the write is
// a dry run, with the administrator's rights. It goes to the server of the test's last Start.
func Admitted(t testing.TB, obj runtime.Object) *unstructured.Unstructured {
	t.Helper()
	sent, got, err := try(t, obj)
	if err != nil {
		t.Errorf("%s was rejected: %v", describe(sent), err)
		return nil
	}
	return got
}

// Rejected checks that the server would reject the object, and that the error contains by: the
// name of a webhook or a policy, or a part of the message. It writes as Admitted does. It returns
// the error.
func Rejected(t testing.TB, obj runtime.Object, by string) error {
	t.Helper()
	sent, _, err := try(t, obj)
	switch {
	case err == nil:
		t.Errorf("%s was admitted, want it rejected by %q", describe(sent), by)
	case !strings.Contains(err.Error(), by):
		t.Errorf("%s was rejected, and not by %q: %v", describe(sent), by, err)
	}
	return err
}

// try writes an object without storing it.
func try(t testing.TB, obj runtime.Object) (sent, got *unstructured.Unstructured, err error) {
	t.Helper()
	sent, err = toUnstructured(obj)
	if err != nil {
		t.Fatalf("gatehousetest: %v", err)
	}
	c, err := newClient(current(t))
	if err != nil {
		t.Fatalf("gatehousetest: %v", err)
	}
	resource, err := c.resource(sent)
	if err != nil {
		t.Fatalf("gatehousetest: %s: %v", describe(sent), err)
	}
	ctx, dry := context.Background(), []string{metav1.DryRunAll}
	if sent.GetResourceVersion() != "" {
		got, err = resource.Update(ctx, sent, metav1.UpdateOptions{DryRun: dry})
	} else {
		got, err = resource.Create(ctx, sent, metav1.CreateOptions{DryRun: dry})
	}
	return sent, got, err
}
