package command

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	clienttesting "k8s.io/client-go/testing"
)

// S22.30: the traces of servers behind the main server are listed with its own, in the order of the requests. A
// server that cannot be read is reported, and does not hide the others.
func TestTracesOfServersBehindTheMainServer(t *testing.T) {
	object := func(apiVersion, kind, name string, fields map[string]any) *unstructured.Unstructured {
		u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": apiVersion, "kind": kind, "metadata": map[string]any{"name": name}}}
		for k, v := range fields {
			u.Object[k] = v
		}
		return u
	}
	const own = "gatehouse.dev/v1alpha1"
	servers := schema.GroupVersionResource{Group: "gatehouse.dev", Version: "v1alpha1", Resource: "admissionservers"}
	gallery := schema.GroupVersion{Group: "gallery.example.com", Version: "v1"}
	museum := schema.GroupVersion{Group: "museum.example.com", Version: "v1"}
	client := dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), map[schema.GroupVersionResource]string{
		servers: "AdmissionServerList", AdmissionTraces: "AdmissionTraceList", gallery.WithResource("admissiontraces"): "AdmissionTraceList", museum.WithResource("admissiontraces"): "AdmissionTraceList",
	},
		object(own, "AdmissionServer", "main", nil),
		object(own, "AdmissionServer", "g1", map[string]any{"reports": "gallery.example.com/v1"}),
		object(own, "AdmissionServer", "g2", map[string]any{"reports": "gallery.example.com/v1"}),
		object(own, "AdmissionServer", "m", map[string]any{"reports": "museum.example.com/v1"}),
		object(own, "AdmissionServer", "up", map[string]any{"reports": "../v1"}),
		object(own, "AdmissionServer", "deep", map[string]any{"reports": "a/b/c"}),
		object(own, "AdmissionServer", "self", map[string]any{"reports": own}),
		object(own, "AdmissionTrace", "first", map[string]any{"start": "2026-01-01T00:00:00.000000Z"}),
		object(own, "AdmissionTrace", "third", map[string]any{"start": "2026-01-01T00:00:02.000000Z"}),
		object("gallery.example.com/v1", "AdmissionTrace", "second", map[string]any{"start": "2026-01-01T00:00:01.000000Z"}),
	)
	client.PrependReactor("list", "admissiontraces", func(action clienttesting.Action) (bool, runtime.Object, error) {
		if action.GetResource().Group == museum.Group {
			return true, nil, apierrors.NewServiceUnavailable("it is down")
		}
		return false, nil, nil
	})
	found := Reporting(t.Context(), client)
	if len(found) != 2 || !slices.Contains(found, gallery) || !slices.Contains(found, museum) {
		t.Fatalf("the servers of %v report", found)
	}
	var errs bytes.Buffer
	s := ServerTraces{Main: client.Resource(AdmissionTraces), Behind: map[schema.GroupVersion]dynamic.ResourceInterface{}, Errs: &errs}
	for _, gv := range found {
		s.Behind[gv] = client.Resource(gv.WithResource("admissiontraces"))
	}
	list, err := s.List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for i := range list.Items {
		names = append(names, list.Items[i].GetName())
	}
	if got := strings.Join(names, " "); got != "first second third" {
		t.Errorf("the traces are %s", got)
	}
	if got, want := errs.String(), "The traces of the server of museum.example.com/v1 cannot be read: it is down\n"; got != want {
		t.Errorf("standard error has %q, want %q", got, want)
	}
	for _, name := range []string{"first", "second"} {
		if got, err := s.Get(t.Context(), name, metav1.GetOptions{}); err != nil || got.GetName() != name {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
	if _, err := s.Get(t.Context(), "none", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("a trace that no server has: %v", err)
	}
}
