package controllers

import (
	"context"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/controller/certificates/rootcacertpublisher"
	"k8s.io/kubernetes/pkg/controller/clusterroleaggregation"
	serviceaccountcontroller "k8s.io/kubernetes/pkg/controller/serviceaccount"

	"github.com/gatehouse-dev/gatehouse/internal/server/controllers/namespaces"
)

// serviceAccounts makes the ServiceAccount default in every namespace.
func serviceAccounts(ctx context.Context, t *term, client kubernetes.Interface) (func(context.Context), error) {
	core := t.informers.Core().V1()
	return working(serviceaccountcontroller.NewServiceAccountsController(klog.FromContext(ctx), core.ServiceAccounts(), core.Namespaces(),
		client, serviceaccountcontroller.DefaultServiceAccountsControllerOptions()))(1)
}

// defaultAccount is the ServiceAccount of pods that name none.
const defaultAccount = "default"

// accountTimeout bounds making an account, including calls of webhooks.
const accountTimeout = 10 * time.Second

// MakeAccount returns a function that makes the ServiceAccount default of a namespace, for a pod
// that is created before the controller has made the account. The function is nil if the selection
// has no controller that makes accounts: another program makes them then. The client acts as the
// server itself, so that its requests do not queue behind requests that wait for the account.
func MakeAccount(selection []string, client kubernetes.Interface) (func(ctx context.Context, namespace string) (*corev1.ServiceAccount, error), error) {
	rows, err := choose(selection, table)
	if err != nil || !slices.ContainsFunc(rows, func(r row) bool { return r.name == accountsController }) {
		return nil, err
	}
	return func(ctx context.Context, namespace string) (*corev1.ServiceAccount, error) {
		ctx, cancel := context.WithTimeout(ctx, accountTimeout)
		defer cancel()
		accounts := client.CoreV1().ServiceAccounts(namespace)
		// Usually the account exists, and a read calls no webhook.
		account, err := accounts.Get(ctx, defaultAccount, metav1.GetOptions{})
		if !apierrors.IsNotFound(err) {
			return account, err
		}
		account, err = accounts.Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: defaultAccount}}, metav1.CreateOptions{})
		if apierrors.IsAlreadyExists(err) {
			return accounts.Get(ctx, defaultAccount, metav1.GetOptions{})
		}
		return account, err
	}, nil
}

// serviceAccountTokens maintains the Secrets with tokens of ServiceAccounts: it fills the Secrets
// that are made for a ServiceAccount, and deletes the Secrets of a ServiceAccount that is gone.
func serviceAccountTokens(ctx context.Context, t *term, _ kubernetes.Interface) (func(context.Context), error) {
	if t.options.Tokens == nil {
		klog.FromContext(ctx).Info("No tokens of ServiceAccounts are kept in Secrets: an external signer has the key")
		return func(ctx context.Context) { <-ctx.Done() }, nil
	}
	// The client acts as the server itself, as in a kube-controller-manager.
	client, err := kubernetes.NewForConfig(t.loopback)
	if err != nil {
		return nil, err
	}
	holders := t.only("type", string(corev1.SecretTypeServiceAccountToken))
	return working(serviceaccountcontroller.NewTokensController(klog.FromContext(ctx), t.informers.Core().V1().ServiceAccounts(), holders.Core().V1().Secrets(),
		client, serviceaccountcontroller.TokensControllerOptions{TokenGenerator: t.options.Tokens, RootCA: t.options.RootCA()}))(5)
}

// rootCertificate maintains the ConfigMap kube-root-ca.crt in every namespace.
func rootCertificate(_ context.Context, t *term, client kubernetes.Interface) (func(context.Context), error) {
	published := t.only("metadata.name", rootcacertpublisher.RootCACertConfigMapName)
	return working(rootcacertpublisher.NewPublisher(published.Core().V1().ConfigMaps(), t.informers.Core().V1().Namespaces(), client, t.options.RootCA()))(1)
}

// emptyNamespaces empties namespaces that are being deleted.
func emptyNamespaces(_ context.Context, t *term, client kubernetes.Interface) (func(context.Context), error) {
	o := t.options.Namespaces
	as := t.config("namespace-controller")
	// Custom resources have no protobuf.
	as.ContentType, as.AcceptContentTypes = "", ""
	objects, err := metadata.NewForConfig(as)
	if err != nil {
		return nil, err
	}
	o.Client, o.Metadata, o.Informers = client, objects, t.informers
	return running(namespaces.New(o))
}

// aggregateRoles fills the cluster roles that aggregate others.
func aggregateRoles(_ context.Context, t *term, client kubernetes.Interface) (func(context.Context), error) {
	if !t.options.RBAC {
		return nil, nil
	}
	c := clusterroleaggregation.NewClusterRoleAggregation(t.informers.Rbac().V1().ClusterRoles(), client.RbacV1())
	return func(ctx context.Context) { c.Run(ctx, 2) }, nil
}
