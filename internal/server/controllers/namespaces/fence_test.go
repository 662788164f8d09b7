package namespaces

import (
	"context"
	"os"
	"testing"

	"go.etcd.io/etcd/client/v3/kubernetes"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/gatehouse-dev/gatehouse/test/etcdtest"
)

var etcd *kubernetes.Client

func TestMain(m *testing.M) { os.Exit(etcdtest.Main(m, &etcd)) }

// No object is created in a namespace that is deleted or being deleted, whatever the fence had
// cached.
func TestFence(t *testing.T) {
	const root = "/fence"
	fence := Fence(etcd.Kubernetes, etcd.KV, root, Stored{Decoder: scheme.Codecs.UniversalDeserializer()})
	ctx := request.WithNamespace(t.Context(), "n")
	create := func(ctx context.Context, key string) (kubernetes.PutResponse, error) {
		return fence.OptimisticPut(ctx, root+key, []byte("new"), 0, kubernetes.PutOptions{GetOnFailure: true})
	}
	created := func(when string, ctx context.Context, key string) {
		t.Helper()
		r, err := create(ctx, key)
		if err != nil || !r.Succeeded {
			t.Fatalf("%s: %+v, %v", when, r, err)
		}
		got, err := etcd.KV.Get(t.Context(), root+key)
		if err != nil || len(got.Kvs) != 1 || string(got.Kvs[0].Value) != "new" || got.Kvs[0].ModRevision != r.Revision {
			t.Fatalf("%s: revision %d, stored %v, %v", when, r.Revision, got, err)
		}
	}
	refused := func(when, key string, is func(error) bool) {
		t.Helper()
		if r, err := create(ctx, key); !is(err) {
			t.Errorf("%s: %+v, %v", when, r, err)
		}
		if got, err := etcd.KV.Get(t.Context(), root+key); err != nil || len(got.Kvs) != 0 {
			t.Errorf("%s: %v was stored, %v", when, got, err)
		}
	}
	put := func(ns *corev1.Namespace) {
		t.Helper()
		ns.Name = "n"
		data, err := runtime.Encode(scheme.Codecs.LegacyCodec(corev1.SchemeGroupVersion), ns)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := etcd.KV.Put(t.Context(), root+"/namespaces/n", string(data)); err != nil {
			t.Fatal(err)
		}
	}

	refused("before there is a namespace", "/configmaps/n/a", apierrors.IsNotFound)
	created("what is in no namespace", t.Context(), "/nodes/a")
	put(&corev1.Namespace{})
	created("in a new namespace", ctx, "/configmaps/n/a")
	put(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"a": "b"}}})
	created("after the namespace was written", ctx, "/configmaps/n/b")
	if r, err := create(ctx, "/configmaps/n/b"); err != nil || r.Succeeded || r.KV == nil || string(r.KV.Value) != "new" {
		t.Errorf("a name that is taken: %+v, %v", r, err)
	}
	put(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: new(metav1.Now())}})
	refused("while the namespace is being deleted", "/configmaps/n/c", func(err error) bool {
		return apierrors.IsForbidden(err) && apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause)
	})
	there, err := fence.Get(ctx, root+"/configmaps/n/b", kubernetes.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if r, err := fence.OptimisticPut(ctx, root+"/configmaps/n/b", []byte("newer"), there.KV.ModRevision, kubernetes.PutOptions{}); err != nil || !r.Succeeded {
		t.Errorf("an update meanwhile: %+v, %v", r, err)
	}
	if _, err := etcd.KV.Delete(t.Context(), root+"/namespaces/n"); err != nil {
		t.Fatal(err)
	}
	refused("when the namespace is gone", "/configmaps/n/c", apierrors.IsNotFound)
	put(&corev1.Namespace{})
	created("in another one of its name", ctx, "/configmaps/n/c")
}
