package namespaces

import (
	"context"
	"fmt"
	"net/http"
	"path"
	"strings"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/kubernetes"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/utils/lru"
)

// maxKnown bounds how many namespaces a fence remembers.
const maxKnown = 4096

// fence is a client of etcd that creates an object only if its namespace exists and is not being
// deleted at the time of the create.
type fence struct {
	kubernetes.Interface
	kv     clientv3.KV
	prefix string
	stored Stored
	// known has revisions at which namespaces were not being deleted yet.
	known *lru.Cache
}

// Fence returns a client that works like inner, and refuses to create an object when the namespace
// of the context is being deleted or gone. It does so also when the namespace was intact at the
// time of admission: one transaction compares the namespace and creates the object. Servers that
// share an etcd need a fence, because they do not see each other's requests. A create costs a
// comparison, and another attempt when the namespace was written since the last create. The errors
// are the API statuses that admission returns, Forbidden and NotFound. root is the prefix of the
// objects in etcd, and stored reads namespaces there.
func Fence(inner kubernetes.Interface, kv clientv3.KV, root string, stored Stored) kubernetes.Interface {
	return &fence{Interface: inner, kv: kv, prefix: path.Join(root, "namespaces") + "/", stored: stored, known: lru.New(maxKnown)}
}

// OptimisticPut implements kubernetes.Interface.
func (f *fence) OptimisticPut(ctx context.Context, key string, value []byte, expected int64, o kubernetes.PutOptions) (kubernetes.PutResponse, error) {
	name := request.NamespaceValue(ctx)
	if expected != 0 || name == "" || strings.HasPrefix(key, f.prefix) {
		return f.Interface.OptimisticPut(ctx, key, value, expected, o)
	}
	namespace := f.prefix + name
	for {
		known, ok := f.known.Get(name)
		if !ok {
			// No key has this revision.
			known = int64(-1)
		}
		response, err := f.kv.Txn(ctx).
			If(clientv3.Compare(clientv3.ModRevision(key), "=", 0), clientv3.Compare(clientv3.ModRevision(namespace), "=", known)).
			Then(clientv3.OpPut(key, string(value), clientv3.WithLease(o.LeaseID))).
			Else(clientv3.OpGet(key), clientv3.OpGet(namespace)).
			Commit()
		if err != nil {
			return kubernetes.PutResponse{}, err
		}
		put := kubernetes.PutResponse{Succeeded: response.Succeeded, Revision: response.Header.Revision}
		if response.Succeeded {
			return put, nil
		}
		if kvs := response.Responses[0].GetResponseRange().Kvs; len(kvs) > 0 {
			if o.GetOnFailure {
				put.KV = kvs[0]
			}
			return put, nil
		}
		if err := f.check(ctx, name, response.Responses[1].GetResponseRange().Kvs); err != nil {
			f.known.Remove(name)
			return kubernetes.PutResponse{}, err
		}
		f.known.Add(name, response.Responses[1].GetResponseRange().Kvs[0].ModRevision)
	}
}

// check returns an error if no object can be created in the found namespace, else nil.
func (f *fence) check(ctx context.Context, name string, found []*mvccpb.KeyValue) error {
	if len(found) == 0 {
		return apierrors.NewNotFound(corev1.Resource("namespaces"), name)
	}
	ns, err := f.stored.Read(ctx, found[0])
	if err != nil {
		return err
	}
	if ns.DeletionTimestamp == nil {
		return nil
	}
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusForbidden, Reason: metav1.StatusReasonForbidden,
		Message: fmt.Sprintf("unable to create new content in namespace %s because it is being terminated", name),
		Details: &metav1.StatusDetails{Name: name, Kind: "namespaces", Causes: []metav1.StatusCause{{
			Type: corev1.NamespaceTerminatingCause, Message: fmt.Sprintf("namespace %s is being terminated", name), Field: "metadata.namespace",
		}}},
	}}
}
