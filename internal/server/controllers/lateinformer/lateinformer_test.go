package lateinformer

import (
	"context"
	"testing"
	"time"

	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/cache"
)

func TestEveryHandlerGetsARegistration(t *testing.T) {
	inner := informers.NewSharedInformerFactory(fake.NewClientset(), 0).Core().V1().ConfigMaps().Informer()
	i := Informer(inner)
	ctx, end := context.WithCancel(t.Context())
	early, err := i.AddEventHandler(cache.ResourceEventHandlerFuncs{})
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		i.RunWithContext(ctx)
	}()
	if !cache.WaitForCacheSync(t.Context().Done(), early.HasSynced) {
		t.Fatal("a handler of an informer that runs is not synced")
	}
	end()
	<-ended
	if !inner.IsStopped() {
		t.Fatal("the informer has not ended")
	}
	every := time.Minute
	for name, add := range map[string]func() (cache.ResourceEventHandlerRegistration, error){
		"plain": func() (cache.ResourceEventHandlerRegistration, error) {
			return i.AddEventHandler(cache.ResourceEventHandlerFuncs{})
		},
		"with a period": func() (cache.ResourceEventHandlerRegistration, error) {
			return i.AddEventHandlerWithResyncPeriod(cache.ResourceEventHandlerFuncs{}, every)
		},
		"with options": func() (cache.ResourceEventHandlerRegistration, error) {
			return i.AddEventHandlerWithOptions(cache.ResourceEventHandlerFuncs{}, cache.HandlerOptions{ResyncPeriod: &every})
		},
	} {
		late, err := add()
		if err == nil || late == nil || late.HasSynced() || cache.IsDone(late.HasSyncedChecker()) {
			t.Errorf("%s: %v, %v", name, late, err)
		}
	}
}
