package lateinformer

import (
	"time"

	"k8s.io/client-go/tools/cache"
)

// Informer returns inner, which gives every handler a registration.
func Informer(inner cache.SharedIndexInformer) cache.SharedIndexInformer {
	return &Handled{SharedIndexInformer: inner}
}

// Handled is an informer that gives every handler a registration, and that keeps track of its
// handlers.
type Handled struct {
	cache.SharedIndexInformer
	// Wrap, if set, returns the handler to add to the informer in place of a handler.
	Wrap func(cache.ResourceEventHandler) cache.ResourceEventHandler
	// Added, if set, is called with the registration of each accepted handler.
	Added func(cache.ResourceEventHandlerRegistration)
}

// AddEventHandler implements cache.SharedInformer.
func (i *Handled) AddEventHandler(h cache.ResourceEventHandler) (cache.ResourceEventHandlerRegistration, error) {
	return i.AddEventHandlerWithOptions(h, cache.HandlerOptions{})
}

// AddEventHandlerWithResyncPeriod implements cache.SharedInformer.
func (i *Handled) AddEventHandlerWithResyncPeriod(h cache.ResourceEventHandler, every time.Duration) (cache.ResourceEventHandlerRegistration, error) {
	return i.AddEventHandlerWithOptions(h, cache.HandlerOptions{ResyncPeriod: &every})
}

// AddEventHandlerWithOptions implements cache.SharedInformer.
func (i *Handled) AddEventHandlerWithOptions(h cache.ResourceEventHandler, o cache.HandlerOptions) (cache.ResourceEventHandlerRegistration, error) {
	if i.Wrap != nil {
		h = i.Wrap(h)
	}
	r, err := i.SharedIndexInformer.AddEventHandlerWithOptions(h, o)
	if err == nil && i.Added != nil {
		i.Added(r)
	}
	return Registration(r, err)
}

// Registration returns the results of an informer's AddEventHandler, with a registration also when
// the informer accepted no handler. The error is kept.
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
