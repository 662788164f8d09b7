package controllers

import (
	"sync"
	"sync/atomic"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/informers/apps"
	"k8s.io/client-go/informers/batch"
	"k8s.io/client-go/informers/certificates"
	coreinformers "k8s.io/client-go/informers/core"
	"k8s.io/client-go/informers/discovery"
	"k8s.io/client-go/informers/internalinterfaces"
	"k8s.io/client-go/informers/networking"
	"k8s.io/client-go/informers/policy"
	"k8s.io/client-go/informers/rbac"
	"k8s.io/client-go/informers/storage"
	"k8s.io/client-go/tools/cache"

	"github.com/gatehouse-dev/gatehouse/internal/server/controllers/lateinformer"
)

// settled is a factory whose informers hold back events from a handler until the controller that
// added it is made. The constructors of upstream's controllers add handlers first and set fields
// that the handlers need later, because kube-controller-manager starts its informers when all
// controllers are made. Here an informer may run already.
type settled struct {
	informers.SharedInformerFactory
	making *making
}

// InformerFor returns an informer of the factory whose handlers wait until their controller is
// made.
func (s settled) InformerFor(kind runtime.Object, construct internalinterfaces.NewInformerFunc) cache.SharedIndexInformer {
	return &lateinformer.Handled{SharedIndexInformer: s.SharedInformerFactory.InformerFor(kind, construct), Wrap: s.making.waiting}
}

// The groups that controllers read.

func (s settled) Apps() apps.Interface   { return apps.New(s, metav1.NamespaceAll, nil) }
func (s settled) Batch() batch.Interface { return batch.New(s, metav1.NamespaceAll, nil) }
func (s settled) Certificates() certificates.Interface {
	return certificates.New(s, metav1.NamespaceAll, nil)
}
func (s settled) Core() coreinformers.Interface {
	return coreinformers.New(s, metav1.NamespaceAll, nil)
}
func (s settled) Discovery() discovery.Interface { return discovery.New(s, metav1.NamespaceAll, nil) }
func (s settled) Networking() networking.Interface {
	return networking.New(s, metav1.NamespaceAll, nil)
}
func (s settled) Policy() policy.Interface   { return policy.New(s, metav1.NamespaceAll, nil) }
func (s settled) Rbac() rbac.Interface       { return rbac.New(s, metav1.NamespaceAll, nil) }
func (s settled) Storage() storage.Interface { return storage.New(s, metav1.NamespaceAll, nil) }

// making records which controller is being made.
type making struct {
	// one is held while a controller is being made.
	one sync.Mutex
	// current is closed when the controller is made; nil while no controller is being made.
	current atomic.Pointer[chan struct{}]
	// over is closed when the term ends. A handler must not wait any longer: the informer accepts
	// no other handler while it waits for this one to end.
	over <-chan struct{}
}

// begin waits until no other controller is being made. The caller calls end when its controller
// is made.
func (m *making) begin() (end func()) {
	m.one.Lock()
	made := make(chan struct{})
	m.current.Store(&made)
	return func() {
		m.current.Store(nil)
		close(made)
		m.one.Unlock()
	}
}

// waiting returns a handler that gets no event until the controller that is being made is ready.
func (m *making) waiting(h cache.ResourceEventHandler) cache.ResourceEventHandler {
	made := m.current.Load()
	if made == nil {
		return h
	}
	// The handler gets no event if the term ends first.
	begun := sync.OnceValue(func() bool {
		select {
		case <-*made:
			return true
		case <-m.over:
			return false
		}
	})
	return cache.FilteringResourceEventHandler{FilterFunc: func(any) bool { return begun() }, Handler: h}
}
