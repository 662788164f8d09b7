package gatehousetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/restmapper"
)

const (
	admissionGroup  = "admissionregistration.k8s.io"
	definitionGroup = "apiextensions.k8s.io"
	definitionKind  = "CustomResourceDefinition"
	// establishTimeout limits the time until a CRD is served.
	establishTimeout = time.Minute
	// cleanupTimeout limits the deletion of an object after the test.
	cleanupTimeout = 30 * time.Second
)

// install creates the objects of a test, in an order in which each can be used.
func (r *running) install(ctx context.Context, o *options) error {
	objects, err := o.read()
	if err != nil {
		return err
	}
	if o.handler != nil {
		server, err := serveWebhooks(o.handler)
		if err != nil {
			return err
		}
		server.except = o.elsewhere
		r.undo = append(r.undo, server.close)
		for _, obj := range objects {
			if err := server.redirect(obj); err != nil {
				return err
			}
		}
	}
	if len(objects) == 0 {
		return nil
	}
	slices.SortStableFunc(objects, func(a, b *unstructured.Unstructured) int { return rank(a) - rank(b) })
	c, err := newClient(r)
	if err != nil {
		return err
	}
	for _, obj := range objects {
		if err := c.install(ctx, obj); err != nil {
			return fmt.Errorf("%s: %w", describe(obj), err)
		}
	}
	return nil
}

// rank orders objects: namespaces and CRDs come first, and webhooks and policies last.
func rank(obj *unstructured.Unstructured) int {
	gvk := obj.GroupVersionKind()
	switch {
	case gvk.Group == "" && gvk.Kind == "Namespace":
		return 0
	case gvk.Group == definitionGroup:
		return 1
	case gvk.Group == admissionGroup:
		return 3
	}
	return 2
}

func isWebhookConfiguration(obj *unstructured.Unstructured) bool {
	gvk := obj.GroupVersionKind()
	return gvk.Group == admissionGroup && (gvk.Kind == "ValidatingWebhookConfiguration" || gvk.Kind == "MutatingWebhookConfiguration")
}

// describe names an object in errors.
func describe(obj *unstructured.Unstructured) string {
	name := obj.GetName()
	if ns := obj.GetNamespace(); ns != "" {
		name = ns + "/" + name
	}
	return fmt.Sprintf("%s %q", obj.GetKind(), name)
}

// read returns the objects that the options name.
func (o *options) read() ([]*unstructured.Unstructured, error) {
	var objects []*unstructured.Unstructured
	for _, path := range o.files {
		found, err := readPath(path)
		if err != nil {
			return nil, err
		}
		objects = append(objects, found...)
	}
	for _, obj := range o.objects {
		u, err := toUnstructured(obj)
		if err != nil {
			return nil, err
		}
		objects = append(objects, u)
	}
	return objects, nil
}

func readPath(path string) ([]*unstructured.Unstructured, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		return readFile(path)
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return nil, err
	}
	var objects []*unstructured.Unstructured
	for _, e := range entries {
		if e.IsDir() || !slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(e.Name())) {
			continue
		}
		found, err := readFile(filepath.Join(path, e.Name()))
		if err != nil {
			return nil, err
		}
		objects = append(objects, found...)
	}
	if len(objects) == 0 {
		return nil, fmt.Errorf("%s has no object in a .yaml, .yml or .json file", path)
	}
	return objects, nil
}

func readFile(path string) ([]*unstructured.Unstructured, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var objects []*unstructured.Unstructured
	decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(data), 4096)
	for {
		obj := &unstructured.Unstructured{}
		if err := decoder.Decode(&obj.Object); errors.Is(err, io.EOF) {
			return objects, nil
		} else if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		switch {
		case len(obj.Object) == 0:
		case obj.GetKind() == "" || obj.GetAPIVersion() == "":
			return nil, fmt.Errorf("%s: object %d has no apiVersion or no kind", path, len(objects)+1)
		case obj.IsList():
			if err := obj.EachListItem(func(item runtime.Object) error {
				objects = append(objects, item.(*unstructured.Unstructured))
				return nil
			}); err != nil {
				return nil, fmt.Errorf("%s: %w", path, err)
			}
		default:
			objects = append(objects, obj)
		}
	}
}

// toUnstructured converts an object, and adds its kind if it has none.
func toUnstructured(obj runtime.Object) (*unstructured.Unstructured, error) {
	// The converter shares the content of an unstructured object, and so it gets a copy.
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj.DeepCopyObject())
	if err != nil {
		return nil, fmt.Errorf("a %T: %w", obj, err)
	}
	u := &unstructured.Unstructured{Object: content}
	if u.GetKind() == "" || u.GetAPIVersion() == "" {
		kinds, _, err := scheme.Scheme.ObjectKinds(obj)
		if err != nil {
			return nil, fmt.Errorf("a %T says no apiVersion and kind, and client-go does not know it: set them", obj)
		}
		u.SetGroupVersionKind(kinds[0])
	}
	// Fields that the server fills in are not sent: encoders of Go types write empty ones.
	unstructured.RemoveNestedField(u.Object, "status")
	if created, ok, _ := unstructured.NestedFieldNoCopy(u.Object, "metadata", "creationTimestamp"); ok && created == nil {
		unstructured.RemoveNestedField(u.Object, "metadata", "creationTimestamp")
	}
	return u, nil
}

// client creates objects for a test.
type client struct {
	test    *running
	objects dynamic.Interface
	mapper  *restmapper.DeferredDiscoveryRESTMapper
}

func newClient(r *running) (*client, error) {
	objects, err := dynamic.NewForConfig(r.config)
	if err != nil {
		return nil, err
	}
	kinds, err := discovery.NewDiscoveryClientForConfig(r.server.admin)
	if err != nil {
		return nil, err
	}
	return &client{test: r, objects: objects, mapper: restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(kinds))}, nil
}

// resource returns the client for an object. A namespaced object without a namespace goes to the
// namespace default.
func (c *client) resource(obj *unstructured.Unstructured) (dynamic.ResourceInterface, error) {
	gvk := obj.GroupVersionKind()
	mapping, err := c.mapper.RESTMapping(gvk.GroupKind(), gvk.Version)
	if err != nil {
		return nil, err
	}
	all := c.objects.Resource(mapping.Resource)
	if mapping.Scope.Name() != meta.RESTScopeNameNamespace {
		return all, nil
	}
	if obj.GetNamespace() == "" {
		obj.SetNamespace(metav1.NamespaceDefault)
	}
	return all.Namespace(obj.GetNamespace()), nil
}

func (c *client) install(ctx context.Context, obj *unstructured.Unstructured) error {
	resource, err := c.resource(obj)
	if err != nil {
		return err
	}
	if obj.GetKind() == definitionKind {
		return c.define(ctx, resource, obj)
	}
	if _, err := resource.Create(ctx, obj, metav1.CreateOptions{}); err != nil {
		if apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("%w; tests that share a server share its names, and Own gives this test one of its own", err)
		}
		return err
	}
	c.test.undo = append(c.test.undo, func() {
		ctx, cancel := context.WithTimeout(context.Background(), cleanupTimeout)
		defer cancel()
		_ = resource.Delete(ctx, obj.GetName(), metav1.DeleteOptions{})
	})
	return nil
}

// define installs a CRD, which several tests may share, and waits until its kind is served.
func (c *client) define(ctx context.Context, resource dynamic.ResourceInterface, obj *unstructured.Unstructured) error {
	if _, err := resource.Apply(ctx, obj.GetName(), obj, metav1.ApplyOptions{FieldManager: "gatehousetest", Force: true}); err != nil {
		return err
	}
	var conditions []any
	err := wait.PollUntilContextTimeout(ctx, 10*time.Millisecond, establishTimeout, true, func(ctx context.Context) (bool, error) {
		got, err := resource.Get(ctx, obj.GetName(), metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		conditions, _, _ = unstructured.NestedSlice(got.Object, "status", "conditions")
		return slices.ContainsFunc(conditions, func(c any) bool {
			condition, _ := c.(map[string]any)
			return condition["type"] == "Established" && condition["status"] == "True"
		}), nil
	})
	if err != nil {
		return fmt.Errorf("it is not established: %w; its conditions are %v", err, conditions)
	}
	group, _, _ := unstructured.NestedString(obj.Object, "spec", "group")
	kind, _, _ := unstructured.NestedString(obj.Object, "spec", "names", "kind")
	// Discovery follows a moment later.
	return wait.PollUntilContextTimeout(ctx, 10*time.Millisecond, establishTimeout, true, func(context.Context) (bool, error) {
		c.mapper.Reset()
		_, err := c.mapper.RESTMapping(schema.GroupKind{Group: group, Kind: kind})
		if meta.IsNoMatchError(err) {
			return false, nil
		}
		return err == nil, err
	})
}
