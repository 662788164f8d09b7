package controllers

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/cache"
)

// An informer that runs already gives a handler no event before its controller is made.
func TestHandlersWaitUntilTheirControllerIsMade(t *testing.T) {
	pods := fake.NewClientset(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"}})
	shared := informers.NewSharedInformerFactory(pods, 0)
	ctx, stop := context.WithCancel(t.Context())
	defer shared.Shutdown()
	defer stop()
	running := shared.Core().V1().Pods().Informer()
	shared.Start(ctx.Done())
	shared.WaitForCacheSync(ctx.Done())

	making := making{over: ctx.Done()}
	end := making.begin()
	made, early, late := false, make(chan bool, 1), make(chan struct{}, 1)
	if _, err := (settled{shared, &making}).Core().V1().Pods().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { early <- !made },
	}); err != nil {
		t.Fatal(err)
	}
	// A handler that does not wait gets the pod, although it came later.
	if _, err := running.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: func(any) { late <- struct{}{} }}); err != nil {
		t.Fatal(err)
	}
	<-late
	made = true
	end()
	if <-early {
		t.Error("the handler got an event before its controller was made")
	}
}

// A controller that is still being made when the server ends does not keep an informer from ending.
// The ended informer would accept no handler of the controller.
func TestHandlersDoNotWaitWhenTheTermIsOver(t *testing.T) {
	pods := fake.NewClientset(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"}})
	shared := informers.NewSharedInformerFactory(pods, 0)
	ctx, stop := context.WithCancel(t.Context())
	running := shared.Core().V1().Pods().Informer()
	shared.Start(ctx.Done())
	shared.WaitForCacheSync(ctx.Done())

	making := making{over: ctx.Done()}
	end := making.begin()
	seen := false
	informer := (settled{shared, &making}).Core().V1().Pods().Informer()
	if _, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: func(any) { seen = true }}); err != nil {
		t.Fatal(err)
	}
	stop()
	shared.Shutdown()
	if !running.IsStopped() {
		t.Error("the informer runs on")
	}
	if _, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{}); err == nil {
		t.Error("an informer that has ended takes a handler")
	}
	end()
	if seen {
		t.Error("the handler got an event before its controller was made")
	}
}
