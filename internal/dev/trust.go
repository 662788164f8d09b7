package dev

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/tools/cache"
)

// trustful are the resources with clients of webhooks.
var trustful = []schema.GroupVersionResource{
	{Group: "admissionregistration.k8s.io", Version: "v1", Resource: "mutatingwebhookconfigurations"},
	{Group: "admissionregistration.k8s.io", Version: "v1", Resource: "validatingwebhookconfigurations"},
	{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"},
}

// keepTrust plays the controllers that inject an authority: registrations that come later, or lose their
// caBundle, get it. The returned function ends them.
func (s *session) keepTrust(ctx context.Context, authority []byte) (end func(), err error) {
	ctx, cancel := context.WithCancel(ctx)
	client, err := dynamic.NewForConfig(s.stage.Address().Admin)
	if err != nil {
		cancel()
		return nil, err
	}
	informers := dynamicinformer.NewDynamicSharedInformerFactory(client, 0)
	for _, resource := range trustful {
		fix := func(object any) {
			u, ok := object.(*unstructured.Unstructured)
			if !ok {
				return
			}
			if u = u.DeepCopy(); !s.project.trust(u, authority, false) {
				return
			}
			_, err := client.Resource(resource).Update(ctx, u, metav1.UpdateOptions{FieldManager: "gatehouse-dev"})
			// After a conflict there is another event.
			if err != nil && ctx.Err() == nil && !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
				s.Say("%s %s does not get a caBundle: %v", u.GetKind(), u.GetName(), err)
			}
		}
		if _, err := informers.ForResource(resource).Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc: fix, UpdateFunc: func(_, now any) { fix(now) },
		}); err != nil {
			cancel()
			return nil, err
		}
	}
	informers.Start(ctx.Done())
	return func() {
		cancel()
		informers.Shutdown()
	}, nil
}
