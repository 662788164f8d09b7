package admission

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"

	"github.com/gatehouse-dev/gatehouse/admission/registration"
)

// Namespaces gives the engine the namespaces of the cluster. Its methods must be safe for
// concurrent use. Callers must not change the objects that the methods return.
type Namespaces interface {
	// Cached returns a namespace in its last watched state; nil if the watch has not seen the
	// namespace. Cached does no I/O.
	Cached(name string) *corev1.Namespace
	// Live reads a namespace from its store. If the namespace does not exist, the error is an API
	// status with reason NotFound.
	Live(ctx context.Context, name string) (*corev1.Namespace, error)
}

// ClusterNamespaces are the namespaces of a cluster. Cached reads from a lister, and Live from a
// client.
type ClusterNamespaces struct {
	Lister corelisters.NamespaceLister
	Client kubernetes.Interface
}

// Cached implements Namespaces.
func (c ClusterNamespaces) Cached(name string) *corev1.Namespace {
	ns, err := c.Lister.Get(name)
	if err != nil {
		return nil
	}
	return ns
}

// Live implements Namespaces.
func (c ClusterNamespaces) Live(ctx context.Context, name string) (*corev1.Namespace, error) {
	return c.Client.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
}

const (
	// distrust is the time for which the cache is not trusted if it has an active namespace whose
	// deletion was admitted here.
	distrust = 30 * time.Second
	// maxDistrusted bounds the number of distrusted namespaces.
	maxDistrusted = 1000
)

// NamespaceLifecycle rejects creates in namespaces that do not exist or are being deleted, and
// deletions of protected namespaces (S9.10). It takes part in the mutating pass. Create it with
// NewNamespaceLifecycle. It is safe for concurrent use.
type NamespaceLifecycle struct {
	namespaces Namespaces
	deleted    *cache.LRUExpireCache
}

// NewNamespaceLifecycle returns the plugin.
func NewNamespaceLifecycle(namespaces Namespaces) *NamespaceLifecycle {
	return &NamespaceLifecycle{namespaces: namespaces, deleted: cache.NewLRUExpireCache(maxDistrusted)}
}

var (
	namespaceKind         = schema.GroupKind{Kind: "Namespace"}
	localReview           = schema.GroupResource{Group: "authorization.k8s.io", Resource: "localsubjectaccessreviews"}
	errNamespaceProtected = errors.New("this namespace may not be deleted")
)

// Handles implements admission.Interface.
func (l *NamespaceLifecycle) Handles(op admission.Operation) bool {
	return op == admission.Create || op == admission.Delete
}

// Admit implements admission.MutationInterface. It changes nothing. The error is an API status:
// NotFound or Forbidden, or InternalError if the namespace cannot be read.
func (l *NamespaceLifecycle) Admit(ctx context.Context, a admission.Attributes, o admission.ObjectInterfaces) error {
	err := l.Predict(ctx, registration.MutatingPass, a, o)
	if err == nil && a.GetKind().GroupKind() == namespaceKind && a.GetOperation() == admission.Delete {
		l.deleted.Add(a.GetName(), true, distrust)
	}
	return err
}

// Predict implements Predictor. It returns the error that Admit would return.
func (l *NamespaceLifecycle) Predict(ctx context.Context, _ registration.Pass, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if a.GetKind().GroupKind() == namespaceKind {
		return protected(a)
	}
	if a.GetOperation() != admission.Create || a.GetNamespace() == "" || a.GetResource().GroupResource() == localReview {
		return nil
	}
	name := a.GetNamespace()
	ns := l.namespaces.Cached(name)
	if ns != nil && ns.Status.Phase == corev1.NamespaceActive {
		if _, distrusted := l.deleted.Get(name); distrusted {
			ns = nil
		}
	}
	if ns == nil {
		var err error
		ns, err = l.namespaces.Live(ctx, name)
		if apierrors.IsNotFound(err) {
			return err
		}
		if err != nil {
			return apierrors.NewInternalError(fmt.Errorf("reading namespace %s: %w", name, err))
		}
	}
	if ns.Status.Phase == corev1.NamespaceTerminating {
		return terminating(a)
	}
	return nil
}

// protected rejects the deletion of a protected namespace.
func protected(a admission.Attributes) error {
	if a.GetOperation() != admission.Delete {
		return nil
	}
	switch a.GetName() {
	case metav1.NamespaceDefault, metav1.NamespaceSystem, metav1.NamespacePublic:
		return apierrors.NewForbidden(a.GetResource().GroupResource(), a.GetName(), errNamespaceProtected)
	}
	return nil
}

func terminating(a admission.Attributes) error {
	err := admission.NewForbidden(a, fmt.Errorf("unable to create new content in namespace %s because it is being terminated", a.GetNamespace()))
	var status *apierrors.StatusError
	if errors.As(err, &status) {
		status.ErrStatus.Details.Causes = append(status.ErrStatus.Details.Causes, metav1.StatusCause{
			Type:    corev1.NamespaceTerminatingCause,
			Message: fmt.Sprintf("namespace %s is being terminated", a.GetNamespace()),
			Field:   "metadata.namespace",
		})
	}
	return err
}
