package controllers

import (
	"sync"
	"sync/atomic"
	"time"

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

// settled is a factory whose informers keep their events from a handler until the
// controller that added it is made. The constructors of upstream's controllers add handlers
// first and set fields that the handlers need later, because kube-controller-manager starts
// its informers when all controllers are made. Here an informer may run already.
type settled struct {
	informers.SharedInformerFactory
	making *making
}

// InformerFor returns an informer of the factory whose handlers wait until their controller is
// made.
func (s settled) InformerFor(kind runtime.Object, construct internalinterfaces.NewInformerFunc) cache.SharedIndexInformer {
	return &patient{s.SharedInformerFactory.InformerFor(kind, construct), s.making}
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

// patient is an informer of a settled factory.
type patient struct {
	cache.SharedIndexInformer
	making *making
}

// AddEventHandler implements cache.SharedInformer.
func (p *patient) AddEventHandler(h cache.ResourceEventHandler) (cache.ResourceEventHandlerRegistration, error) {
	return lateinformer.Registration(p.SharedIndexInformer.AddEventHandler(p.waiting(h)))
}

// AddEventHandlerWithResyncPeriod implements cache.SharedInformer.
func (p *patient) AddEventHandlerWithResyncPeriod(h cache.ResourceEventHandler, every time.Duration) (cache.ResourceEventHandlerRegistration, error) {
	return lateinformer.Registration(p.SharedIndexInformer.AddEventHandlerWithResyncPeriod(p.waiting(h), every))
}

// AddEventHandlerWithOptions implements cache.SharedInformer.
func (p *patient) AddEventHandlerWithOptions(h cache.ResourceEventHandler, o cache.HandlerOptions) (cache.ResourceEventHandlerRegistration, error) {
	return lateinformer.Registration(p.SharedIndexInformer.AddEventHandlerWithOptions(p.waiting(h), o))
}

func (p *patient) waiting(h cache.ResourceEventHandler) cache.ResourceEventHandler {
	made := p.making.current.Load()
	if made == nil {
		return h
	}
	return waiting{h, sync.OnceValue(func() bool {
		select {
		case <-*made:
			return true
		case <-p.making.over:
			return false
		}
	})}
}

// making knows which controller is being made.
type making struct {
	// one is held while a controller is being made.
	one sync.Mutex
	// current is closed when the controller is made; nil while none is.
	current atomic.Pointer[chan struct{}]
	// over is closed when the term ends. A handler must not wait any longer: the informer
	// takes no other handler while it waits for this one to end.
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

// waiting is a handler that gets no event before its controller is made.
type waiting struct {
	handler cache.ResourceEventHandler
	// made waits until the controller is made. It returns false when the term ends first.
	made func() bool
}

// OnAdd implements cache.ResourceEventHandler.
func (w waiting) OnAdd(obj any, initially bool) {
	if w.made() {
		w.handler.OnAdd(obj, initially)
	}
}

// OnUpdate implements cache.ResourceEventHandler.
func (w waiting) OnUpdate(old, obj any) {
	if w.made() {
		w.handler.OnUpdate(old, obj)
	}
}

// OnDelete implements cache.ResourceEventHandler.
func (w waiting) OnDelete(obj any) {
	if w.made() {
		w.handler.OnDelete(obj)
	}
}
