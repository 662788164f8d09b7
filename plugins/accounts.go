package plugins

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	clientv1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/kubernetes/plugin/pkg/admission/serviceaccount"
)

// defaultAccounts is a client that finds the service account "default" in every namespace. If the account is
// missing, the plugin ServiceAccount waits up to two seconds for a controller and then rejects the pod. If the
// controller runs in the same process, missing can create the account at once.
type defaultAccounts struct {
	kubernetes.Interface
	// missing returns the account of a namespace without one.
	missing func(ctx context.Context, namespace string) (*corev1.ServiceAccount, error)
}

// CoreV1 overrides the method of kubernetes.Interface.
func (c defaultAccounts) CoreV1() clientv1.CoreV1Interface {
	return defaultAccountsCore{c.Interface.CoreV1(), c}
}

type defaultAccountsCore struct {
	clientv1.CoreV1Interface
	client defaultAccounts
}

func (c defaultAccountsCore) ServiceAccounts(namespace string) clientv1.ServiceAccountInterface {
	return defaultAccountsIn{c.CoreV1Interface.ServiceAccounts(namespace), namespace, c.client}
}

type defaultAccountsIn struct {
	clientv1.ServiceAccountInterface
	namespace string
	client    defaultAccounts
}

// Get returns the account of a name.
func (c defaultAccountsIn) Get(ctx context.Context, name string, o metav1.GetOptions) (*corev1.ServiceAccount, error) {
	found, err := c.ServiceAccountInterface.Get(ctx, name, o)
	if name != serviceaccount.DefaultServiceAccountName || !apierrors.IsNotFound(err) {
		return found, err
	}
	return c.client.missing(ctx, c.namespace)
}

// newAccount returns the account that a controller would create.
func newAccount(_ context.Context, namespace string) (*corev1.ServiceAccount, error) {
	return &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: serviceaccount.DefaultServiceAccountName}}, nil
}
