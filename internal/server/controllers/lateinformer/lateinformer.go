package lateinformer

import (
	"time"

	"k8s.io/client-go/tools/cache"
)

// Informer returns inner, which gives every handler a registration.
func Informer(inner cache.SharedIndexInformer) cache.SharedIndexInformer { return informer{inner} }

type informer struct{ cache.SharedIndexInformer }

// AddEventHandler implements cache.SharedInformer.
func (i informer) AddEventHandler(h cache.ResourceEventHandler) (cache.ResourceEventHandlerRegistration, error) {
	return Registration(i.SharedIndexInformer.AddEventHandler(h))
}

// AddEventHandlerWithResyncPeriod implements cache.SharedInformer.
func (i informer) AddEventHandlerWithResyncPeriod(h cache.ResourceEventHandler, every time.Duration) (cache.ResourceEventHandlerRegistration, error) {
	return Registration(i.SharedIndexInformer.AddEventHandlerWithResyncPeriod(h, every))
}

// AddEventHandlerWithOptions implements cache.SharedInformer.
func (i informer) AddEventHandlerWithOptions(h cache.ResourceEventHandler, o cache.HandlerOptions) (cache.ResourceEventHandlerRegistration, error) {
	return Registration(i.SharedIndexInformer.AddEventHandlerWithOptions(h, o))
}

// Registration returns the results of an informer's AddEventHandler, with a registration also
// when the informer took no handler. The error stays.
func Registration(r cache.ResourceEventHandlerRegistration, err error) (cache.ResourceEventHandlerRegistration, error) {
	if r == nil {
		r = refused{}
	}
	return r, err
}

// refused is the registration of a handler that is not called.
type refused struct{}

// HasSynced implements cache.ResourceEventHandlerRegistration.
func (refused) HasSynced() bool { return false }

// HasSyncedChecker implements cache.ResourceEventHandlerRegistration.
func (refused) HasSyncedChecker() cache.DoneChecker { return refused{} }

// Name implements cache.DoneChecker.
func (refused) Name() string { return "handler of an informer that has ended" }

// Done implements cache.DoneChecker. The channel is never closed.
func (refused) Done() <-chan struct{} { return nil }
