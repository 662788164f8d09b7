package initializer

import (
	"context"
	"errors"
	"sync"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/tools/cache"
)

// configurations is the resource of the configurations that register initializers.
var configurations = schema.GroupVersionResource{
	Group: "admissionregistration.k8s.io", Version: "v1alpha1", Resource: "initializerconfigurations",
}

// parallels knows which initializers are registered as parallel.
type parallels struct {
	// changed is called when names has changed.
	changed func()

	mu struct {
		sync.Mutex
		names map[string]bool
	}
}

func (p *parallels) has(name string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.mu.names[name]
}

// run begins to watch the configurations, and returns when it has read them.
func (p *parallels) run(ctx context.Context, group *sync.WaitGroup, client dynamic.Interface) error {
	informer := dynamicinformer.NewFilteredDynamicInformer(client, configurations, "", 0, cache.Indexers{}, nil).Informer()
	read := func() { p.read(informer.GetStore().List()) }
	handler, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { read() },
		UpdateFunc: func(any, any) { read() },
		DeleteFunc: func(any) { read() },
	})
	if err != nil {
		return err
	}
	group.Go(func() { informer.Run(ctx.Done()) })
	if !cache.WaitForCacheSync(ctx.Done(), handler.HasSynced) {
		return errors.New("the initializer configurations could not be read")
	}
	return nil
}

// read replaces the known configurations. If several initializers have the same name, the one in the first
// configuration counts.
func (p *parallels) read(objects []any) {
	first := map[string]string{}
	names := map[string]bool{}
	for _, obj := range objects {
		u, ok := obj.(*unstructured.Unstructured)
		if !ok {
			continue
		}
		list, _, _ := unstructured.NestedSlice(u.Object, "initializers")
		for _, entry := range list {
			m, _ := entry.(map[string]any)
			name, _ := m["name"].(string)
			if other, ok := first[name]; ok && other <= u.GetName() {
				continue
			}
			first[name] = u.GetName()
			names[name], _ = m["parallel"].(bool)
		}
	}
	p.mu.Lock()
	p.mu.names = names
	p.mu.Unlock()
	p.changed()
}
