package controllers

import (
	"context"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/metadata/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"
)

// follow follows a kind as upstream's controllers do, and returns a function that stops it.
func follow(f *followed, gvr schema.GroupVersionResource, seen chan<- string) (cache.Controller, func()) {
	shared := monitor{f.ForResource(gvr), nil}
	_, _ = shared.Informer().AddEventHandlerWithOptions(cache.ResourceEventHandlerFuncs{
		AddFunc: func(obj any) { seen <- obj.(metav1.Object).GetName() },
	}, cache.HandlerOptions{})
	controller := shared.Informer().GetController()
	stop := make(chan struct{})
	go controller.Run(stop)
	return controller, func() { close(stop) }
}

// S22.24: an informer of a kind lives as long as a controller follows the kind, and a while longer.
func TestAKindIsFollowedWhileSomebodyWantsIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, end := context.WithCancel(t.Context())
		scheme := fake.NewTestScheme()
		_ = metav1.AddMetaToScheme(scheme)
		widgets := schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "widgets"}
		thing := &metav1.PartialObjectMetadata{
			TypeMeta:   metav1.TypeMeta{APIVersion: "example.com/v1", Kind: "Widget"},
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "one"},
		}
		f := newFollowed(ctx, fake.NewSimpleMetadataClient(scheme, thing), func(schema.GroupResource) bool { return false })
		synctest.Wait()
		base := runtime.NumGoroutine()
		seen := make(chan string, 10)
		first, stopFirst := follow(f, widgets, seen)
		_, stopSecond := follow(f, widgets, seen)
		for range 2 {
			if name := <-seen; name != "one" {
				t.Errorf("seen: %q", name)
			}
		}
		synctest.Wait()
		if !first.HasSynced() || len(f.kinds) != 1 {
			t.Errorf("synced: %t, kinds: %d", first.HasSynced(), len(f.kinds))
		}
		if list, err := f.ForResource(widgets).Lister().List(labels.Everything()); err != nil || len(list) != 1 {
			t.Errorf("listed: %v, %v", list, err)
		}
		stopFirst()
		time.Sleep(2 * lingering)
		if len(f.kinds) != 1 {
			t.Error("the kind is not followed for its second user")
		}
		stopSecond()
		time.Sleep(lingering / 2)
		// The CRD is created again while the informer lingers.
		again, stopAgain := follow(f, widgets, seen)
		if name := <-seen; name != "one" {
			t.Errorf("seen again: %q", name)
		}
		time.Sleep(2 * lingering)
		if !again.HasSynced() || len(f.kinds) != 1 {
			t.Error("a kind that came back is not followed")
		}
		stopAgain()
		time.Sleep(2 * lingering)
		synctest.Wait()
		if n := runtime.NumGoroutine(); len(f.kinds) != 0 || n > base {
			t.Errorf("%d kinds are followed by nobody, with %d goroutines more", len(f.kinds), n-base)
		}
		if f.ForResource(widgets).Informer().HasSynced() {
			t.Error("a kind that nobody follows is known")
		}
		end()
		f.Shutdown()
	})
}

// S22.24: a kind that got a handler and no controller leaves nothing behind, even if a controller
// of the same kind starts and ends: upstream's collector adds handlers and does not run when one of
// the kinds that it adds has been removed meanwhile.
func TestAHandlerWithoutAControllerLeavesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, end := context.WithCancel(t.Context())
		scheme := fake.NewTestScheme()
		_ = metav1.AddMetaToScheme(scheme)
		f := newFollowed(ctx, fake.NewSimpleMetadataClient(scheme), func(schema.GroupResource) bool { return false })
		synctest.Wait()
		base := runtime.NumGoroutine()
		kind := func(name string) schema.GroupVersionResource {
			return schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: name}
		}
		for _, name := range []string{"widgets", "gadgets"} {
			if _, err := f.ForResource(kind(name)).Informer().AddEventHandlerWithOptions(cache.ResourceEventHandlerFuncs{}, cache.HandlerOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		_, stop := follow(f, kind("widgets"), make(chan string))
		synctest.Wait()
		stop()
		time.Sleep(2 * lingering)
		synctest.Wait()
		if n := runtime.NumGoroutine(); n > base {
			t.Errorf("%d goroutines stay", n-base)
		}
		time.Sleep(2 * idle)
		late := f.ForResource(kind("gizmos"))
		_, stopLate := follow(f, kind("gizmos"), make(chan string))
		if synctest.Wait(); len(f.kinds) != 1 {
			t.Errorf("%d kinds are kept, want the one that is followed", len(f.kinds))
		}
		stopLate()
		time.Sleep(2 * lingering)
		// Its last user released the informer before.
		_, _ = late.Informer().AddEventHandlerWithOptions(cache.ResourceEventHandlerFuncs{}, cache.HandlerOptions{})
		controller := late.Informer().GetController()
		again := make(chan struct{})
		go controller.Run(again)
		time.Sleep(time.Second)
		if !controller.HasSynced() {
			t.Error("a kind that came back is not followed")
		}
		close(again)
		time.Sleep(2 * lingering)
		if synctest.Wait(); len(f.kinds) != 0 {
			t.Errorf("%d kinds are kept", len(f.kinds))
		}
		end()
		f.Shutdown()
	})
}

// S22.23: controllers do not wait for a kind of another server that hangs, but they wait for a kind
// of this server.
func TestAKindOfAServerThatHangsIsNotWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, remote := range []bool{true, false} {
			ctx, end := context.WithCancel(t.Context())
			scheme := fake.NewTestScheme()
			client := fake.NewSimpleMetadataClient(scheme)
			client.PrependReactor("list", "*", func(clienttesting.Action) (bool, apiruntime.Object, error) {
				<-ctx.Done()
				return true, nil, ctx.Err()
			})
			f := newFollowed(ctx, client, func(schema.GroupResource) bool { return remote })
			controller, stop := follow(f, schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "widgets"}, make(chan string))
			time.Sleep(patience / 2)
			if controller.HasSynced() {
				t.Error("a kind is known before its list")
			}
			time.Sleep(patience)
			if controller.HasSynced() != remote {
				t.Errorf("of another server %t: waited for %t", remote, !controller.HasSynced())
			}
			end()
			stop()
			f.Shutdown()
		}
	})
}
