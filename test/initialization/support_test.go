package initialization

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gatehouse-dev/gatehouse/initializer"
	"github.com/gatehouse-dev/gatehouse/test/harness"
)

// including is the query parameter that includes uninitialized objects.
const including = "?includeUninitialized=true"

// site is a server with a namespace for the test.
type site struct {
	*harness.Server
	*harness.HTTP
	t  *testing.T
	ns string
}

func newSite(t *testing.T, s *harness.Server) *site {
	t.Helper()
	return &site{Server: s, HTTP: s.HTTP(t, nil), t: t, ns: s.Namespace(t)}
}

// with returns the site for another test.
func (s *site) with(t *testing.T) *site { return newSite(t, s.Server) }

// as returns a client of a user with permission to edit everything in the namespace, without the verb
// initialize unless it is in verbs.
func (s *site) as(user string, resource string, verbs ...string) *harness.HTTP {
	s.t.Helper()
	verbs = append(verbs, "get", "list", "watch", "create", "update", "patch", "delete", "deletecollection")
	s.Must(http.StatusCreated, "POST", "/apis/rbac.authorization.k8s.io/v1/namespaces/"+s.ns+"/roles", text(map[string]any{
		"metadata": map[string]any{"name": user},
		"rules":    []any{map[string]any{"apiGroups": []any{"*"}, "resources": []any{resource, resource + "/status"}, "verbs": verbs}},
	}))
	s.Must(http.StatusCreated, "POST", "/apis/rbac.authorization.k8s.io/v1/namespaces/"+s.ns+"/rolebindings", text(map[string]any{
		"metadata": map[string]any{"name": user},
		"roleRef":  map[string]any{"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": user},
		"subjects": []any{map[string]any{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}},
	}))
	client := s.Server.HTTP(s.t, s.As(user))
	harness.Eventually(s.t, user+" is allowed in", func() error {
		if r := client.Do("GET", s.path(resource), ""); r.Code != http.StatusOK {
			return fmt.Errorf("%d", r.Code)
		}
		return nil
	})
	return client
}

// path returns the path of a resource's collection in the namespace.
func (s *site) path(resource string) string {
	switch resource {
	case "deployments":
		return "/apis/apps/v1/namespaces/" + s.ns + "/" + resource
	case "configurations":
		return "/apis/admissionregistration.k8s.io/v1alpha1/initializerconfigurations"
	}
	return "/api/v1/namespaces/" + s.ns + "/" + resource
}

func text(v any) string {
	data, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return string(data)
}

// configuration returns an InitializerConfiguration for a resource. Each initializer is a name, followed by
// options: "parallel", "after=NAME", "before=NAME".
func configuration(name, resource string, initializers ...string) string {
	var list []any
	for _, i := range initializers {
		words := strings.Fields(i)
		entry := map[string]any{
			"name":  words[0],
			"rules": []any{map[string]any{"apiGroups": []any{"*"}, "apiVersions": []any{"*"}, "resources": []any{resource}}},
		}
		for _, option := range words[1:] {
			key, value, _ := strings.Cut(option, "=")
			switch key {
			case "parallel":
				entry[key] = true
			default:
				entry[key] = []any{value}
			}
		}
		list = append(list, entry)
	}
	return text(map[string]any{"metadata": map[string]any{"name": name}, "initializers": list})
}

// register creates a configuration with initializers for a resource, deletes it at the end of the test, and
// waits until new objects get exactly the wanted initializers.
func (s *site) register(name, resource, want string, initializers ...string) {
	s.t.Helper()
	s.Must(http.StatusCreated, "POST", s.path("configurations"), configuration(name, resource, initializers...))
	s.t.Cleanup(func() {
		if code, err := s.Try(context.Background(), "DELETE", s.path("configurations")+"/"+name, ""); err != nil || code != http.StatusOK {
			s.t.Errorf("deleting configuration %s: %d, %v", name, code, err)
		}
	})
	s.inForce(resource, want)
}

// inForce waits until new objects of a resource get exactly the wanted initializers.
func (s *site) inForce(resource, want string) {
	s.t.Helper()
	harness.Eventually(s.t, "new "+resource+" wait for "+want, func() error {
		r := s.Do("POST", s.path(resource)+"?dryRun=All", body(resource, "probe"))
		if got := waits(r.Body); got != want {
			return fmt.Errorf("%d: they wait for %q", r.Code, got)
		}
		return nil
	})
}

// body returns a small object of a resource.
func body(resource, name string) string {
	metadata := map[string]any{"name": name}
	container := []any{map[string]any{"name": "web", "image": "registry.example.com/web:1.0"}}
	switch resource {
	case "deployments":
		labels := map[string]any{"app": name}
		return text(map[string]any{"metadata": metadata, "spec": map[string]any{
			"selector": map[string]any{"matchLabels": labels},
			"template": map[string]any{"metadata": map[string]any{"labels": labels}, "spec": map[string]any{"containers": container}},
		}})
	case "pods":
		return text(map[string]any{"metadata": metadata, "spec": map[string]any{"containers": container}})
	case "services":
		return text(map[string]any{"metadata": metadata, "spec": map[string]any{"ports": []any{map[string]any{"port": 80}}}})
	}
	return text(map[string]any{"metadata": metadata})
}

// merged returns a body with additional fields in its metadata.
func merged(resource, name, metadata string) string {
	var obj, more map[string]any
	if err := json.Unmarshal([]byte(body(resource, name)), &obj); err != nil {
		panic(err)
	}
	if err := json.Unmarshal([]byte(metadata), &more); err != nil {
		panic(err)
	}
	for k, v := range more {
		obj["metadata"].(map[string]any)[k] = v
	}
	return text(obj)
}

// waits formats an object's pending initializers: names without their domain, "-" for an initialized object.
func waits(obj any) string {
	field := harness.At(obj, "metadata", "initializers")
	if field == nil {
		return "-"
	}
	list, _ := harness.At(field, "pending").([]any)
	var names []string
	for _, i := range list {
		names = append(names, strings.TrimSuffix(fmt.Sprint(harness.At(i, "name")), ".example.com"))
	}
	return strings.Join(names, ",")
}

// create sends a POST in the background.
func (s *site) create(client *harness.HTTP, resource, obj string) <-chan *harness.Response {
	done := make(chan *harness.Response, 1)
	go func() { done <- client.Do("POST", s.path(resource), obj) }()
	return done
}

// await waits until the wanted initializers of an object are pending.
func (s *site) await(resource, name, want string) {
	s.t.Helper()
	harness.Eventually(s.t, resource+"/"+name+" waits for "+want, func() error {
		r := s.Do("GET", s.path(resource)+"/"+name+including, "")
		if got := waits(r.Body); r.Code != http.StatusOK || got != want {
			return fmt.Errorf("%d: it waits for %q", r.Code, got)
		}
		return nil
	})
}

// answer returns the final response to a create.
func (s *site) answer(done <-chan *harness.Response) *harness.Response {
	s.t.Helper()
	select {
	case r := <-done:
		return r
	case <-time.After(harness.Patience):
		s.t.Fatal("the creator still waits")
		return nil
	}
}

const mergePatch = "application/merge-patch+json"

// act removes the first name from an object's list, like an initializer.
func (s *site) act(resource, name, change string) *harness.Response {
	s.t.Helper()
	path := s.path(resource) + "/" + name
	obj := s.Get(path + including)
	list, _ := obj.At("metadata", "initializers", "pending").([]any)
	var field any
	if len(list) > 1 {
		field = map[string]any{"pending": list[1:]}
	}
	patch := map[string]any{}
	if change != "" {
		if err := json.Unmarshal([]byte(change), &patch); err != nil {
			s.t.Fatal(err)
		}
	}
	metadata, _ := patch["metadata"].(map[string]any)
	if metadata == nil {
		metadata = map[string]any{}
		patch["metadata"] = metadata
	}
	metadata["initializers"] = field
	return s.Must(http.StatusOK, "PATCH", path, text(patch), "Content-Type", mergePatch)
}

// run runs a controller until the end of the test.
func (s *site) run(o initializer.Options) {
	s.t.Helper()
	o.Config = s.Admin
	if o.Resources == nil {
		o.Resources = resources("configmaps")
	}
	c, err := initializer.New(o)
	if err != nil {
		s.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }()
	s.t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			s.t.Error(err)
		}
	})
}

// resources returns resources of the core group.
func resources(names ...string) []schema.GroupVersionResource {
	var list []schema.GroupVersionResource
	for _, name := range names {
		list = append(list, schema.GroupVersionResource{Version: "v1", Resource: name})
	}
	return list
}

// mark returns a function that sets a label to the position of the call.
func mark(name string) initializer.Func {
	return func(_ context.Context, obj *unstructured.Unstructured) error {
		labels := obj.GetLabels()
		if labels == nil {
			labels = map[string]string{}
		}
		labels[name] = fmt.Sprint(len(labels))
		obj.SetLabels(labels)
		return nil
	}
}

// line formats an event of a watch.
func line(e harness.Event) string {
	return fmt.Sprintf("%s %s %s", e.Type, harness.At(e.Object, "metadata", "name"), waits(e.Object))
}
