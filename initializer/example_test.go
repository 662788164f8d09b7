package initializer_test

import (
	"context"
	"net/http"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/gatehouse-dev/gatehouse/initializer"
)

// addresses is a system outside of the server that assigns addresses. It records the owner of each address,
// since both of its methods may be called again for the same object.
type addresses struct {
	mu   sync.Mutex
	free []string
	used map[types.UID]string
}

func (a *addresses) allocate(_ context.Context, service *unstructured.Unstructured) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	address, ok := a.used[service.GetUID()]
	if !ok {
		if len(a.free) == 0 {
			return initializer.Fail(http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests, "all addresses are in use")
		}
		address, a.free = a.free[0], a.free[1:]
		a.used[service.GetUID()] = address
	}
	return unstructured.SetNestedField(service.Object, address, "spec", "loadBalancerIP")
}

func (a *addresses) release(_ context.Context, service *unstructured.Unstructured) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if address, ok := a.used[service.GetUID()]; ok {
		delete(a.used, service.GetUID())
		a.free = append(a.free, address)
	}
	return nil
}

// An initializer that assigns an address to each new service, and releases the address when
// the service is deleted, also if another initializer rejected the service before it was
// initialized. It is registered with the same finalizer:
//
//	apiVersion: admissionregistration.k8s.io/v1alpha1
//	kind: InitializerConfiguration
//	metadata: {name: addresses}
//	initializers:
//	- name: address.example.com
//	  finalizer: example.com/address
//	  rules: [{apiGroups: [""], apiVersions: ["v1"], resources: [services]}]
func Example_release() {
	pool := &addresses{free: []string{"192.0.2.1", "192.0.2.2"}, used: map[types.UID]string{}}
	controller, err := initializer.New(initializer.Options{
		Name:       "address.example.com",
		Finalizer:  "example.com/address",
		Config:     &rest.Config{Host: "https://127.0.0.1:6443"},
		Resources:  []schema.GroupVersionResource{{Version: "v1", Resource: "services"}},
		Initialize: pool.allocate,
		Release:    pool.release,
	})
	if err != nil {
		panic(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	stop()
	if err := controller.Run(ctx); err != nil {
		panic(err)
	}
	// Output:
}
