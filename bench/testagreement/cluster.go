package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"

	"github.com/gatehouse-dev/gatehouse/internal/commands/predict/suite"
	"github.com/gatehouse-dev/gatehouse/internal/readers/manifests"
	"github.com/gatehouse-dev/gatehouse/internal/server"
)

type object = *manifests.Object

const policies = "admissionregistration.k8s.io"

// cluster is the kube-apiserver.
type cluster struct {
	config *rest.Config
	client dynamic.Interface
	mapper *restmapper.DeferredDiscoveryRESTMapper
	hooks  *hooks
	// rounds is the number of test environments created so far.
	rounds int
}

func newCluster(config *rest.Config) (*cluster, error) {
	c := &cluster{config: rest.CopyConfig(config)}
	c.config.QPS, c.config.Burst = -1, 0
	client, err := dynamic.NewForConfig(c.config)
	if err != nil {
		return nil, err
	}
	d, err := discovery.NewDiscoveryClientForConfig(c.config)
	if err != nil {
		return nil, err
	}
	c.client, c.mapper = client, restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(d))
	return c, nil
}

// of returns the client for an object.
func (c *cluster) of(u *unstructured.Unstructured) (dynamic.ResourceInterface, error) {
	gvk := u.GroupVersionKind()
	m, err := c.mapper.RESTMapping(gvk.GroupKind(), gvk.Version)
	if err != nil {
		c.mapper.Reset()
		if m, err = c.mapper.RESTMapping(gvk.GroupKind(), gvk.Version); err != nil {
			return nil, err
		}
	}
	if m.Scope.Name() != meta.RESTScopeNameNamespace {
		return c.client.Resource(m.Resource), nil
	}
	if u.GetNamespace() == "" {
		u.SetNamespace("default")
	}
	return c.client.Resource(m.Resource).Namespace(u.GetNamespace()), nil
}

func copied(o object) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: runtime.DeepCopyJSON(o.Content)}
}

// define creates the CRDs of all suites, and authorizes all requests of all users. kube-apiserver reads kinds anew
// every half minute, and a policy with params of a new kind fails until then.
func (c *cluster) define(ctx context.Context, list []*played) error {
	seen := map[string]bool{}
	for _, p := range list {
		for _, o := range p.objects {
			u := copied(o)
			if u.GetKind() != "CustomResourceDefinition" || seen[u.GetName()] {
				continue
			}
			seen[u.GetName()] = true
			c.hooks.reached(u)
			client, err := c.of(u)
			if err != nil {
				return err
			}
			if _, err := client.Create(ctx, u, metav1.CreateOptions{}); err != nil {
				return err
			}
		}
	}
	everyone := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": map[string]any{"name": "testagreement"},
		"roleRef": map[string]any{"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
		"subjects": []any{
			map[string]any{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "system:authenticated"},
			map[string]any{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "system:unauthenticated"},
		},
	}}
	client, err := c.of(everyone)
	if err != nil {
		return err
	}
	if _, err := client.Create(ctx, everyone, metav1.CreateOptions{}); err != nil {
		return err
	}
	if len(seen) == 0 {
		return nil
	}
	select {
	case <-time.After(35 * time.Second):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// world is the test environment of some tests.
type world struct {
	*cluster
	objects []*unstructured.Unstructured
	// labels are the labels of the namespaces.
	labels map[string]map[string]string
	number int
	// refused are objects that tests expect in the store, but that the server rejects.
	refused map[string]bool
}

// keyOf returns the key of a stored object in refused.
func keyOf(s *server.Stored) string {
	return s.Object.GetKind() + " " + s.Namespace + "/" + s.Name
}

// lacks reports whether a stored object of a test is missing on the server.
func (w *world) lacks(t *suite.Result) bool {
	stored := t.Outcome.Sent().Stored
	return slices.ContainsFunc(stored, func(s server.Stored) bool { return w.refused[keyOf(&s)] })
}

// make creates the objects of a test environment: first the stored objects of the tests, and last the policies.
func (c *cluster) make(ctx context.Context, p *played, tests []*suite.Result) (*world, error) {
	c.rounds++
	w := &world{cluster: c, labels: map[string]map[string]string{}, refused: map[string]bool{}, number: c.rounds}
	namespaces := map[string]map[string]string{"default": nil}
	var early, late []*unstructured.Unstructured
	for _, o := range p.objects {
		u := copied(o)
		switch {
		case u.GetKind() == "CustomResourceDefinition":
		case u.GetKind() == "Namespace":
			namespaces[u.GetName()] = u.GetLabels()
		case u.GroupVersionKind().Group == policies:
			c.hooks.reached(u)
			late = append(late, u)
		case u.GetKind() == "ResourceQuota":
			// A quota does not count the objects that the tests find stored.
			late = append(late, u)
		default:
			early = append(early, u)
		}
	}
	stored, seen := map[*unstructured.Unstructured]string{}, map[string]bool{}
	for _, t := range tests {
		q := t.Outcome.Sent()
		if _, ok := namespaces[q.Namespace]; !ok && q.Namespace != "" {
			namespaces[q.Namespace] = nil
		}
		for _, s := range q.Stored {
			u := s.Object.DeepCopy()
			for _, added := range t.Outcome.Added {
				path, _, _ := strings.Cut(added, "=")
				drop(u.Object, path)
			}
			u.SetUID("")
			u.SetResourceVersion("")
			if key := keyOf(&s); !seen[key] && u.GetKind() != "Namespace" {
				seen[key], stored[u] = true, key
				early = append(early, u)
			} else if u.GetKind() == "Namespace" {
				namespaces[s.Name] = u.GetLabels()
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(namespaces)) {
		if err := w.namespace(ctx, name, namespaces[name]); err != nil {
			return w, err
		}
	}
	for _, u := range append(append(early, late...), w.sentinels()...) {
		client, err := c.of(u)
		if err != nil {
			return w, fmt.Errorf("%s %s: %w", u.GetKind(), u.GetName(), err)
		}
		made, err := client.Create(ctx, u, metav1.CreateOptions{})
		if status, ok := u.Object["status"]; ok && err == nil {
			made.Object["status"] = status
			if _, err = client.UpdateStatus(ctx, made, metav1.UpdateOptions{}); apierrors.IsNotFound(err) {
				err = nil
			}
		}
		if key := stored[u]; key != "" && apierrors.IsInvalid(err) {
			w.refused[key] = true
			continue
		}
		if err != nil && !(apierrors.IsAlreadyExists(err) && u.GetKind() == "ServiceAccount") {
			return w, fmt.Errorf("%s %s: %w", u.GetKind(), u.GetName(), err)
		}
		w.objects = append(w.objects, u)
	}
	return w, w.await(ctx, "default")
}

// drop removes a field by its path, whose keys may contain dots, and parents that become empty.
func drop(content map[string]any, path string) {
	if _, ok := content[path]; ok {
		delete(content, path)
		return
	}
	for key, value := range content {
		inner, ok := value.(map[string]any)
		if rest, below := strings.CutPrefix(path, key+"."); ok && below {
			if drop(inner, rest); len(inner) == 0 {
				delete(content, key)
			}
			return
		}
	}
}

// namespace creates a namespace, or sets its labels, and creates its service account.
func (w *world) namespace(ctx context.Context, name string, labels map[string]string) error {
	client := w.client.Resource(schema.GroupVersionResource{Version: "v1", Resource: "namespaces"})
	want := map[string]any{"kubernetes.io/metadata.name": name}
	for key, value := range labels {
		want[key] = value
	}
	w.labels[name] = map[string]string{}
	for key, value := range want {
		w.labels[name][key] = value.(string)
	}
	u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": name, "labels": want}}}
	current, err := client.Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		_, err = client.Create(ctx, u, metav1.CreateOptions{})
	case err == nil:
		current.SetLabels(w.labels[name])
		_, err = client.Update(ctx, current, metav1.UpdateOptions{})
	}
	if err != nil {
		return err
	}
	account := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "ServiceAccount", "metadata": map[string]any{"name": "default", "namespace": name}}}
	accounts, err := w.of(account)
	if err != nil {
		return err
	}
	if _, err := accounts.Create(ctx, account, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		return err
	}
	return nil
}

// probe is the name of the object that shows whether policies are active. It is a lease, because few policies match
// leases: the policies under test must not match it.
const probe = "testagreement-probe"

var leases = schema.GroupVersionResource{Group: "coordination.k8s.io", Version: "v1", Resource: "leases"}

// try creates the probe in a dry run.
func (w *world) try(ctx context.Context, namespace string) (*unstructured.Unstructured, error) {
	u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": leases.GroupVersion().String(), "kind": "Lease", "metadata": map[string]any{"name": probe}}}
	return w.client.Resource(leases).Namespace(namespace).Create(ctx, u, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
}

// sentinels returns policies that are created last. Their effect on a probe shows that the policies before them, and
// the labels of its namespace, are active.
func (w *world) sentinels() []*unstructured.Unstructured {
	name := fmt.Sprintf("testagreement-%d", w.number)
	match := map[string]any{"resourceRules": []any{map[string]any{"apiGroups": []any{leases.Group}, "apiVersions": []any{leases.Version}, "operations": []any{"CREATE"}, "resources": []any{leases.Resource}}}}
	conditions := []any{map[string]any{"name": "probe", "expression": fmt.Sprintf("object.metadata.name == %q", probe)}}
	make := func(kind string, spec map[string]any) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{"apiVersion": policies + "/v1", "kind": kind, "metadata": map[string]any{"name": name}, "spec": spec}}
	}
	return []*unstructured.Unstructured{
		make("MutatingAdmissionPolicy", map[string]any{"matchConstraints": match, "matchConditions": conditions, "reinvocationPolicy": "Never", "mutations": []any{map[string]any{
			"patchType": "ApplyConfiguration", "applyConfiguration": map[string]any{"expression": fmt.Sprintf("Object{metadata: Object.metadata{labels: {'sentinel': %q}}}", name)},
		}}}),
		make("MutatingAdmissionPolicyBinding", map[string]any{"policyName": name}),
		make("ValidatingAdmissionPolicy", map[string]any{"matchConstraints": match, "matchConditions": conditions, "validations": []any{map[string]any{
			"expression": "false", "messageExpression": fmt.Sprintf("'[%s;' + (has(object.metadata.labels) && 'sentinel' in object.metadata.labels ? object.metadata.labels['sentinel'] : '') + ';' + "+
				"namespaceObject.metadata.labels.map(k, k + '=' + namespaceObject.metadata.labels[k]).join(',') + ']'", name),
		}}}),
		make("ValidatingAdmissionPolicyBinding", map[string]any{"policyName": name, "validationActions": []any{"Deny"}}),
	}
}

// await waits until the policies and the labels of a namespace are active.
func (w *world) await(ctx context.Context, namespace string) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	name := fmt.Sprintf("testagreement-%d", w.number)
	for {
		_, err := w.try(ctx, namespace)
		if err != nil {
			if _, said, found := strings.Cut(err.Error(), "["+name+";"+name+";"); found {
				said, _, _ = strings.Cut(said, "]")
				have := map[string]string{}
				for pair := range strings.SplitSeq(said, ",") {
					key, value, _ := strings.Cut(pair, "=")
					have[key] = value
				}
				if maps.Equal(have, w.labels[namespace]) {
					return nil
				}
			}
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
			return fmt.Errorf("the policies are not in force: %w", errors.Join(err, context.Cause(ctx)))
		}
	}
}

// remove deletes the policies, waits until they are inactive, and deletes the other objects. Namespaces stay: no
// controller would empty them.
func (w *world) remove(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	none, alone := int64(0), metav1.DeletePropagationBackground
	remove := func(which func(u *unstructured.Unstructured) bool) {
		for _, u := range w.objects {
			if client, err := w.of(u); err == nil && which(u) {
				_ = client.Delete(ctx, u.GetName(), metav1.DeleteOptions{GracePeriodSeconds: &none, PropagationPolicy: &alone})
				// No controller removes finalizers here.
				_, _ = client.Patch(ctx, u.GetName(), types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
			}
		}
	}
	judges := func(u *unstructured.Unstructured) bool { return u.GroupVersionKind().Group == policies }
	// The sentinels are the last policies in the list.
	remove(judges)
	for {
		made, err := w.try(ctx, "default")
		if err == nil && len(made.GetLabels()) == 0 {
			break
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
			return fmt.Errorf("the policies are still in force: %w", errors.Join(err, context.Cause(ctx)))
		}
	}
	remove(func(u *unstructured.Unstructured) bool { return !judges(u) })
	return nil
}

// answer is the answer of kube-apiserver.
type answer struct {
	code     int
	message  string
	warnings []string
	object   map[string]any
}

// ask sends the request of a test.
func (w *world) ask(ctx context.Context, t *suite.Result) (*answer, error) {
	q := t.Outcome.Sent()
	if labels := t.NamespaceLabels(); labels != nil {
		name := q.Namespace
		before := maps.Clone(w.labels[name])
		if err := w.namespace(ctx, name, labels); err != nil {
			return nil, err
		}
		if err := w.await(ctx, name); err != nil {
			return nil, err
		}
		defer func() { _ = w.namespace(context.WithoutCancel(ctx), name, before) }()
	}
	gv := q.Kind.Resource.GroupVersion()
	at := "/apis/" + gv.String()
	if gv.Group == "" {
		at = "/api/" + gv.Version
	}
	if q.Kind.Namespaced {
		at += "/namespaces/" + q.Namespace
	}
	at += "/" + q.Kind.Resource.Resource
	if q.Name != "" && q.Method != http.MethodPost || q.Subresource != "" {
		at += "/" + url.PathEscape(q.Name)
	}
	if q.Subresource != "" {
		at += "/" + q.Subresource
	}
	query := maps.Clone(q.Query)
	if !q.Connect {
		query.Set("dryRun", metav1.DryRunAll)
	}
	if q.Subpath != "" {
		at += (&url.URL{Path: q.Subpath}).EscapedPath()
	}
	body, err := w.revised(ctx, t)
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, q.Method, w.config.Host+at+"?"+query.Encode(), bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", "application/json")
	if q.ContentType != "" {
		req.Header.Set("Content-Type", q.ContentType)
	}
	config := rest.CopyConfig(w.config)
	config.Impersonate = rest.ImpersonationConfig{UserName: q.User.Name, UID: q.User.UID, Groups: q.User.Groups, Extra: q.User.Extra}
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, err
	}
	response, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	data, err := io.ReadAll(response.Body)
	if err != nil {
		return nil, err
	}
	a := &answer{code: response.StatusCode}
	for _, header := range response.Header.Values("Warning") {
		a.warnings = append(a.warnings, warningText(header))
	}
	content := map[string]any{}
	if err := json.Unmarshal(data, &content); err != nil {
		return nil, fmt.Errorf("%s: %d: %q", at, a.code, data)
	}
	if a.code >= 400 {
		a.message, _ = content["message"].(string)
	} else if content["kind"] != "Status" {
		a.object = content
	}
	return a, nil
}

// revised returns the body of a request. For an update, it applies the change of the test to the object stored on the
// server, which may have additional fields: a pod has the volumes of its service account, for example.
func (w *world) revised(ctx context.Context, t *suite.Result) ([]byte, error) {
	q := t.Outcome.Sent()
	if q.Method != http.MethodPut {
		return q.Body, nil
	}
	client := dynamic.ResourceInterface(w.client.Resource(q.Kind.Resource))
	if q.Kind.Namespaced {
		client = w.client.Resource(q.Kind.Resource).Namespace(q.Namespace)
	}
	current, err := client.Get(ctx, q.Name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	version := current.GetResourceVersion()
	body := q.Body
	sent := &unstructured.Unstructured{}
	if err := sent.UnmarshalJSON(q.Body); err != nil {
		return nil, err
	}
	if len(q.Stored) > 0 && q.Stored[0].Object.GroupVersionKind() == sent.GroupVersionKind() {
		before, err := q.Stored[0].Object.MarshalJSON()
		if err != nil {
			return nil, err
		}
		change, err := jsonpatch.CreateMergePatch(before, q.Body)
		if err != nil {
			return nil, err
		}
		here, err := current.MarshalJSON()
		if err != nil {
			return nil, err
		}
		if body, err = jsonpatch.MergePatch(here, change); err != nil {
			return nil, err
		}
	}
	u := &unstructured.Unstructured{}
	if err := u.UnmarshalJSON(body); err != nil {
		return nil, err
	}
	u.SetUID("")
	u.SetResourceVersion(version)
	return u.MarshalJSON()
}

var warningPattern = regexp.MustCompile(`^\d+ \S+ "((?:[^"\\]|\\.)*)"`)

// warningText returns the text of a Warning header.
func warningText(header string) string {
	m := warningPattern.FindStringSubmatch(header)
	if m == nil {
		return header
	}
	return strings.NewReplacer(`\"`, `"`, `\\`, `\`).Replace(m[1])
}

// differs lists the differences between an answer and the computed outcome; empty if there are none.
func (a *answer) differs(o *suite.Outcome) string {
	var list []string
	if o.Sent().Connect && o.Allowed {
		if strings.Contains(a.message, " denied ") || strings.Contains(a.message, "forbidden") {
			return fmt.Sprintf("\n        kube-apiserver: code %d, message %q, computed %d", a.code, a.message, o.Code)
		}
		a.code, a.message = o.Code, o.Message
	}
	if a.code == http.StatusConflict && o.Allowed && strings.Contains(a.message, "already exists") {
		// Another test uses this stored object: admission allowed the request.
		return ""
	}
	if a.code != o.Code {
		list = append(list, fmt.Sprintf("code %d, computed %d", a.code, o.Code))
	}
	if plain(a.message) != plain(o.Message) {
		list = append(list, fmt.Sprintf("message %q, computed %q", a.message, o.Message))
	}
	have, want := slices.Sorted(slices.Values(a.warnings)), slices.Sorted(slices.Values(o.Warnings))
	if !slices.Equal(have, want) {
		list = append(list, fmt.Sprintf("warnings %q, computed %q", have, want))
	}
	if stored := o.Sent().Stored; a.object != nil && o.Object != nil && (len(stored) == 0 || o.Object["kind"] != "Pod") {
		if x, y := settled(a.object), settled(o.Object); !reflect.DeepEqual(x, y) {
			p, _ := json.Marshal(x)
			q, _ := json.Marshal(y)
			list = append(list, fmt.Sprintf("object %s, computed %s", p, q))
		}
	}
	if len(list) == 0 {
		return ""
	}
	return "\n        kube-apiserver: " + strings.Join(list, "\n        kube-apiserver: ")
}

var random = regexp.MustCompile(`eyJ[-\w.]+|in record \(\d+\)|(?s:\n@@ .*)|Invalid value: "\{.*\}": |kube-api-access-[a-z0-9]{5}|[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}|\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ`)

// plain replaces random values and times in a text.
func plain(text string) string { return random.ReplaceAllString(text, "x") }

// settled returns an object without random values and fields that the server sets.
func settled(content map[string]any) map[string]any {
	u := &unstructured.Unstructured{Object: runtime.DeepCopyJSON(content)}
	for _, field := range []string{"uid", "resourceVersion", "creationTimestamp", "managedFields", "generation", "deletionTimestamp", "deletionGracePeriodSeconds"} {
		unstructured.RemoveNestedField(u.Object, "metadata", field)
	}
	for _, field := range []string{"clusterIP", "clusterIPs"} {
		unstructured.RemoveNestedField(u.Object, "spec", field)
	}
	if ports, ok, _ := unstructured.NestedSlice(u.Object, "spec", "ports"); ok {
		for _, p := range ports {
			if m, ok := p.(map[string]any); ok {
				delete(m, "nodePort")
			}
		}
		_ = unstructured.SetNestedSlice(u.Object, ports, "spec", "ports")
	}
	data, err := json.Marshal(u.Object)
	if err != nil {
		return content
	}
	out := map[string]any{}
	if json.Unmarshal([]byte(plain(string(data))), &out) != nil {
		return content
	}
	return out
}
