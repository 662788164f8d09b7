package admission

import (
	"context"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
)

// knownNamespaces has a phase per namespace, cached and live.
type knownNamespaces struct {
	cached, live map[string]corev1.NamespacePhase
	err          error
}

func (k knownNamespaces) Cached(name string) *corev1.Namespace {
	phase, ok := k.cached[name]
	if !ok {
		return nil
	}
	return &corev1.Namespace{Status: corev1.NamespaceStatus{Phase: phase}}
}

func (k knownNamespaces) Live(_ context.Context, name string) (*corev1.Namespace, error) {
	if k.err != nil {
		return nil, k.err
	}
	phase, ok := k.live[name]
	if !ok {
		return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "namespaces"}, name)
	}
	return &corev1.Namespace{Status: corev1.NamespaceStatus{Phase: phase}}, nil
}

type target struct {
	op                             admission.Operation
	group, kind, resource, ns, obj string
}

func (r target) attributes() admission.Attributes {
	return admission.NewAttributesRecord(nil, nil, schema.GroupVersionKind{Group: r.group, Version: "v1", Kind: r.kind}, r.ns, r.obj,
		schema.GroupVersionResource{Group: r.group, Version: "v1", Resource: r.resource}, "", r.op, nil, false, &user.DefaultInfo{})
}

func TestNamespaceLifecycle(t *testing.T) {
	const active, going = corev1.NamespaceActive, corev1.NamespaceTerminating
	pod := func(op admission.Operation) target { return target{op, "", "Pod", "pods", "n", "p"} }
	namespace := func(op admission.Operation, name string) target {
		return target{op, "", "Namespace", "namespaces", name, name}
	}
	tests := []struct {
		name       string
		namespaces knownNamespaces
		before     *target // admitted first
		request    target
		want       *metav1.Status
	}{
		{
			name:       "S9.10 create in an existing namespace",
			namespaces: knownNamespaces{cached: map[string]corev1.NamespacePhase{"n": active}},
			request:    pod(admission.Create),
		},
		{
			name:       "S9.10 create in a namespace the cache does not know yet",
			namespaces: knownNamespaces{live: map[string]corev1.NamespacePhase{"n": active}},
			request:    pod(admission.Create),
		},
		{
			name:    "S9.10 create in a missing namespace is 404 from the live read",
			request: pod(admission.Create),
			want: &metav1.Status{Status: "Failure", Code: 404, Reason: "NotFound", Message: `namespaces "n" not found`,
				Details: &metav1.StatusDetails{Name: "n", Kind: "namespaces"}},
		},
		{
			name:       "S9.10 the live read fails",
			namespaces: knownNamespaces{err: errors.New("no answer")},
			request:    pod(admission.Create),
			want: &metav1.Status{Status: "Failure", Code: 500, Reason: "InternalError",
				Message: "Internal error occurred: reading namespace n: no answer",
				Details: &metav1.StatusDetails{Causes: []metav1.StatusCause{{Message: "reading namespace n: no answer"}}}},
		},
		{
			name:       "S9.10 create in a terminating namespace",
			namespaces: knownNamespaces{cached: map[string]corev1.NamespacePhase{"n": going}},
			request:    pod(admission.Create),
			want: &metav1.Status{Status: "Failure", Code: 403, Reason: "Forbidden",
				Message: `pods "p" is forbidden: unable to create new content in namespace n because it is being terminated`,
				Details: &metav1.StatusDetails{Name: "p", Kind: "pods", Causes: []metav1.StatusCause{
					{Type: "NamespaceTerminating", Message: "namespace n is being terminated", Field: "metadata.namespace"}}}},
		},
		{
			name: "S9.10 after a delete was admitted here, the cache is not believed",
			namespaces: knownNamespaces{
				cached: map[string]corev1.NamespacePhase{"n": active},
				live:   map[string]corev1.NamespacePhase{"n": going},
			},
			before:  &target{admission.Delete, "", "Namespace", "namespaces", "n", "n"},
			request: pod(admission.Create),
			want: &metav1.Status{Status: "Failure", Code: 403, Reason: "Forbidden",
				Message: `pods "p" is forbidden: unable to create new content in namespace n because it is being terminated`,
				Details: &metav1.StatusDetails{Name: "p", Kind: "pods", Causes: []metav1.StatusCause{
					{Type: "NamespaceTerminating", Message: "namespace n is being terminated", Field: "metadata.namespace"}}}},
		},
		{name: "S9.10 update and delete in a missing namespace pass", request: pod(admission.Update)},
		{name: "S9.10 delete in a missing namespace passes", request: pod(admission.Delete)},
		{
			name:    "S9.10 local access reviews pass",
			request: target{admission.Create, "authorization.k8s.io", "LocalSubjectAccessReview", "localsubjectaccessreviews", "n", ""},
		},
		{name: "S9.10 what has no namespace passes", request: target{admission.Create, "", "Node", "nodes", "", "x"}},
		{name: "S9.10 creating a namespace passes", request: namespace(admission.Create, "n")},
		{name: "S9.10 deleting a namespace passes", request: namespace(admission.Delete, "n")},
		{
			name:    "S9.10 default may not be deleted",
			request: namespace(admission.Delete, "default"),
			want: &metav1.Status{Status: "Failure", Code: 403, Reason: "Forbidden",
				Message: `namespaces "default" is forbidden: this namespace may not be deleted`,
				Details: &metav1.StatusDetails{Name: "default", Kind: "namespaces"}},
		},
		{
			name:    "S9.10 kube-system may not be deleted",
			request: namespace(admission.Delete, "kube-system"),
			want: &metav1.Status{Status: "Failure", Code: 403, Reason: "Forbidden",
				Message: `namespaces "kube-system" is forbidden: this namespace may not be deleted`,
				Details: &metav1.StatusDetails{Name: "kube-system", Kind: "namespaces"}},
		},
		{
			name:    "S9.10 kube-public may not be deleted",
			request: namespace(admission.Delete, "kube-public"),
			want: &metav1.Status{Status: "Failure", Code: 403, Reason: "Forbidden",
				Message: `namespaces "kube-public" is forbidden: this namespace may not be deleted`,
				Details: &metav1.StatusDetails{Name: "kube-public", Kind: "namespaces"}},
		},
		{
			name:    "S9.10 a kind of another group called Namespace is no namespace",
			request: target{admission.Delete, "example.com", "Namespace", "namespaces", "", "default"},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			chain := Chain(Plugin{NamespaceLifecycleName, NewNamespaceLifecycle(tt.namespaces)})
			if tt.before != nil {
				if err := chain.Admit(t.Context(), tt.before.attributes(), nil); err != nil {
					t.Fatal(err)
				}
			}
			err := chain.Admit(t.Context(), tt.request.attributes(), nil)
			if diff := cmp.Diff(tt.want, statusOf(err)); diff != "" {
				t.Errorf("status (-want +got):\n%s", diff)
			}
		})
	}
}

// statusOf returns the API status of an error; nil if there is none.
func statusOf(err error) *metav1.Status {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return nil
	}
	s := status.Status()
	return &s
}
