package prediction

import (
	"fmt"
	"math/rand/v2"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// World is a set of webhooks, objects and requests generated from a seed.
type World struct {
	Seed uint64
	// Configurations are webhook configurations (v1).
	Configurations []*unstructured.Unstructured
	// Answers are the answers of the webhooks, by webhook name.
	Answers map[string]Answer
	// Stored objects exist before the webhooks are registered.
	Stored []*unstructured.Unstructured
	// Requests are sent one after the other.
	Requests []*Request
}

// Answer is a webhook's response.
type Answer string

const (
	// Allow allows the request.
	Allow Answer = "allow"
	// Annotate allows the request, and annotates the object unless it has the annotation.
	Annotate Answer = "annotate"
	// Deny rejects the request.
	Deny Answer = "deny"
	// Fail answers with an HTTP error.
	Fail Answer = "fail"
)

// Request is a request by User.
type Request struct {
	// Operation is CREATE, UPDATE or DELETE.
	Operation string
	// Resource, Kind and Namespaced describe the object of the request; Kind is the kind of Object.
	Resource    schema.GroupVersionResource
	Subresource string
	// Main is the kind of the resource without the subresource.
	Main            schema.GroupVersionKind
	Namespaced      bool
	Namespace, Name string
	// Object is the request body; nil for DELETE.
	Object *unstructured.Unstructured
	DryRun bool
	// StoredAs is the version of the object in World.Stored; empty for CREATE.
	StoredAs string
}

// String describes the request in messages.
func (r *Request) String() string {
	text := r.Operation + " " + r.Resource.GroupVersion().String() + " " + r.Resource.Resource
	if r.Subresource != "" {
		text += "/" + r.Subresource
	}
	text += fmt.Sprintf(" %q", r.Name)
	if r.Namespace != "" {
		text += " in " + r.Namespace
	}
	if r.DryRun {
		text += ", dry run"
	}
	return text
}

// User sends all requests, as a member of Group.
const User, Group = "alice", "devs"

// markers is the namespace of objects with which a Session detects the active webhooks. No webhook of a World
// matches them.
const markers = "markers"

// endpoint is a resource or subresource of the requests.
type endpoint struct {
	group, version, resource, sub, kind string
	// cluster reports whether the resource is cluster-scoped.
	cluster bool
	// only lists the operations; empty means all.
	only []string
	// spec generates the fields of an object except its type and metadata.
	spec func(g *generator) map[string]any
}

func (e *endpoint) gv() schema.GroupVersion {
	return schema.GroupVersion{Group: e.group, Version: e.version}
}

// customGroup has a kind with two versions that differ only in their name.
const customGroup = "prediction.example.com"

var (
	update  = []string{"UPDATE"}
	nothing = func(*generator) map[string]any { return nil }
	// Endpoints of the same objects in several versions or groups are adjacent.
	endpoints = []*endpoint{
		{version: "v1", resource: "configmaps", kind: "ConfigMap", spec: func(g *generator) map[string]any {
			return map[string]any{"data": map[string]any{"size": g.word()}}
		}},
		{group: "apps", version: "v1", resource: "deployments", kind: "Deployment", spec: deployment},
		{group: "apps", version: "v1", resource: "deployments", sub: "status", kind: "Deployment", only: update, spec: deployment},
		{group: "apps", version: "v1", resource: "deployments", sub: "scale", kind: "Deployment", only: update, spec: deployment},
		{group: "autoscaling", version: "v1", resource: "horizontalpodautoscalers", kind: "HorizontalPodAutoscaler", spec: autoscaler},
		{group: "autoscaling", version: "v2", resource: "horizontalpodautoscalers", kind: "HorizontalPodAutoscaler", spec: autoscaler},
		{group: customGroup, version: "v1", resource: "gadgets", kind: "Gadget", spec: gadget},
		{group: customGroup, version: "v2", resource: "gadgets", kind: "Gadget", spec: gadget},
		{group: customGroup, version: "v1", resource: "gadgets", sub: "status", kind: "Gadget", only: update, spec: gadget},
		{version: "v1", resource: "events", kind: "Event", spec: event},
		{group: "events.k8s.io", version: "v1", resource: "events", kind: "Event", spec: newEvent},
		{group: "storage.k8s.io", version: "v1", resource: "storageclasses", kind: "StorageClass", cluster: true, spec: func(*generator) map[string]any {
			return map[string]any{"provisioner": "example.com/none"}
		}},
		{version: "v1", resource: "namespaces", kind: "Namespace", cluster: true, only: []string{"CREATE", "UPDATE"}, spec: nothing},
	}
)

func deployment(g *generator) map[string]any {
	app := map[string]any{"app": "web"}
	spec := map[string]any{
		"selector": map[string]any{"matchLabels": app},
		"template": map[string]any{
			"metadata": map[string]any{"labels": app},
			"spec":     map[string]any{"containers": []any{map[string]any{"name": "web", "image": "web"}}},
		},
	}
	if g.chance(50) {
		spec["replicas"] = int64(g.IntN(4))
	}
	return map[string]any{"spec": spec}
}

func autoscaler(g *generator) map[string]any {
	return map[string]any{"spec": map[string]any{
		"maxReplicas": int64(2 + g.IntN(3)), "scaleTargetRef": map[string]any{"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
	}}
}

func gadget(g *generator) map[string]any {
	return map[string]any{"spec": map[string]any{"size": int64(g.IntN(4)), "color": g.word()}}
}

func event(g *generator) map[string]any {
	return map[string]any{"involvedObject": map[string]any{"kind": "ConfigMap", "name": "web", "namespace": g.namespace}, "reason": "Seen", "message": g.word()}
}

func newEvent(g *generator) map[string]any {
	return map[string]any{
		"regarding": map[string]any{"kind": "ConfigMap", "name": "web", "namespace": g.namespace}, "reason": "Seen", "note": g.word(),
		"eventTime": "2026-01-02T03:04:05.000000Z", "action": "Look", "type": "Normal",
		"reportingController": "example.com/eye", "reportingInstance": "eye-1",
	}
}

// RequestsPerWorld is the number of requests with the same registrations.
const RequestsPerWorld = 2

// NewWorld generates the World of a seed, deterministically.
func NewWorld(seed uint64) *World {
	g := &generator{Rand: rand.New(rand.NewPCG(seed, 10)), seed: seed}
	w := &World{Seed: seed, Answers: map[string]Answer{}}
	for range RequestsPerWorld {
		g.focus = append(g.focus, pick(g, endpoints...))
	}
	for i := range RequestsPerWorld {
		w.Requests = append(w.Requests, g.request(w, i))
	}
	for i := range 3 + g.IntN(3) {
		w.Configurations = append(w.Configurations, g.configuration(w, i))
	}
	return w
}

// generator generates random values.
type generator struct {
	*rand.Rand
	seed uint64
	// focus are the endpoints that most rules match.
	focus []*endpoint
	// namespace is the namespace of the object being generated.
	namespace string
	hooks     int
}

// chance returns true with a probability in percent.
func (g *generator) chance(percent int) bool { return g.IntN(100) < percent }

func (g *generator) word() string { return pick(g, "a", "b", "c") }

// pick returns one of the values at random.
func pick[T any](g *generator, values ...T) T { return values[g.IntN(len(values))] }

func (g *generator) labels() map[string]any {
	labels := map[string]any{}
	for _, key := range []string{"team", "env"} {
		if g.chance(60) {
			labels[key] = pick(g, "red", "blue")
		}
	}
	if len(labels) == 0 {
		return nil
	}
	return labels
}

// namespaces are the namespaces of the requests, with their labels.
var namespaces = map[string]map[string]any{
	"red": {"team": "red"}, "blue": {"team": "blue", "env": "prod"}, "plain": nil,
}

// object generates an object of an endpoint.
func (g *generator) object(e *endpoint, name string) *unstructured.Unstructured {
	g.namespace = ""
	if !e.cluster {
		g.namespace = pick(g, "red", "blue", "plain")
	}
	meta := map[string]any{"name": name}
	if g.namespace != "" {
		meta["namespace"] = g.namespace
	}
	if labels := g.labels(); labels != nil {
		meta["labels"] = labels
	}
	content := map[string]any{"apiVersion": e.gv().String(), "kind": e.kind, "metadata": meta}
	for key, value := range e.spec(g) {
		content[key] = value
	}
	return &unstructured.Unstructured{Object: content}
}

func (g *generator) request(w *World, i int) *Request {
	e := g.focus[i]
	r := &Request{
		Operation: pick(g, "CREATE", "CREATE", "UPDATE", "UPDATE", "DELETE"), Resource: e.gv().WithResource(e.resource), Subresource: e.sub,
		Main: e.gv().WithKind(e.kind), Namespaced: !e.cluster, Name: fmt.Sprintf("o%d-%d", g.seed, i), DryRun: g.chance(25),
	}
	if e.only != nil && !slices.Contains(e.only, r.Operation) {
		r.Operation = pick(g, e.only...)
	}
	sent := g.object(e, r.Name)
	r.Namespace = sent.GetNamespace()
	if r.Operation == "CREATE" {
		r.Object = sent
		if g.chance(15) {
			sent.SetName("")
			sent.SetGenerateName(r.Name + "-")
			r.Name = ""
		}
		return r
	}
	// The object may have been stored in another version.
	stored, others := e, equivalents(e)
	if g.chance(50) && len(others) > 0 {
		stored = pick(g, others...)
	}
	old := g.object(stored, r.Name)
	old.SetNamespace(r.Namespace)
	for _, field := range []string{"involvedObject", "regarding"} {
		if _, ok := old.Object[field]; ok {
			old.Object[field] = map[string]any{"kind": "ConfigMap", "name": "web", "namespace": r.Namespace}
		}
	}
	w.Stored = append(w.Stored, old)
	r.StoredAs = old.GetAPIVersion()
	switch {
	case r.Operation == "DELETE":
	case e.sub == "scale":
		r.Object = &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "autoscaling/v1", "kind": "Scale",
			"metadata": map[string]any{"name": r.Name, "namespace": r.Namespace}, "spec": map[string]any{"replicas": int64(g.IntN(4))},
		}}
	case e.resource == "events" || e.group == "autoscaling":
		// Some changes of these objects are not allowed: change only the labels. A Session reads the stored
		// object and sends the rest unchanged.
		r.Object = &unstructured.Unstructured{Object: map[string]any{"metadata": sent.Object["metadata"]}}
	default:
		r.Object = sent
	}
	return r
}

// equivalents returns the other endpoints of the same objects.
func equivalents(e *endpoint) []*endpoint {
	var found []*endpoint
	for _, other := range endpoints {
		if other != e && other.resource == e.resource && other.sub == "" && e.sub == "" {
			found = append(found, other)
		}
	}
	return found
}

func (g *generator) configuration(w *World, i int) *unstructured.Unstructured {
	kind := pick(g, "MutatingWebhookConfiguration", "MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")
	var hooks []any
	for range 2 + g.IntN(4) {
		name := fmt.Sprintf("h%d.w%d.example.com", g.hooks, g.seed)
		g.hooks++
		hooks = append(hooks, g.webhook(name, kind))
		w.Answers[name] = g.answer(kind)
	}
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind,
		// The order of the names differs from the order of creation.
		"metadata": map[string]any{"name": fmt.Sprintf("%s-w%d-%d", pick(g, "a", "b-c", "m", "z"), g.seed, i)},
		"webhooks": hooks,
	}}
}

func (g *generator) answer(kind string) Answer {
	switch n := g.IntN(100); {
	case n < 6:
		return Fail
	case n < 9:
		return Deny
	case n < 40 && kind == "MutatingWebhookConfiguration":
		return Annotate
	}
	return Allow
}

func (g *generator) webhook(name, kind string) map[string]any {
	h := map[string]any{
		"name":                    name,
		"admissionReviewVersions": pick(g, []any{"v1"}, []any{"v1"}, []any{"v1beta1", "v1"}, []any{"v1", "v1beta1"}, []any{"v2", "v1"}, []any{"v1beta1"}),
		"sideEffects":             pick(g, "None", "None", "NoneOnDryRun"),
	}
	var rules []any
	for range 1 + g.IntN(2) {
		rules = append(rules, g.rule())
	}
	h["rules"] = rules
	if g.chance(75) {
		h["failurePolicy"] = pick(g, "Ignore", "Fail")
	}
	if g.chance(60) {
		h["matchPolicy"] = pick(g, "Exact", "Equivalent")
	}
	if g.chance(60) {
		h["timeoutSeconds"] = int64(pick(g, 10, 20, 30))
	}
	if kind == "MutatingWebhookConfiguration" && g.chance(60) {
		h["reinvocationPolicy"] = pick(g, "IfNeeded", "IfNeeded", "Never")
	}
	if s := g.selector(); s != nil {
		h["namespaceSelector"] = s
	}
	if s := g.selector(); s != nil {
		h["objectSelector"] = s
	}
	if conditions := g.conditions(); conditions != nil {
		h["matchConditions"] = conditions
	}
	return h
}

func (g *generator) selector() map[string]any {
	switch n := g.IntN(100); {
	case n < 75:
		return nil
	case n < 80:
		return map[string]any{}
	case n < 88:
		return map[string]any{"matchLabels": map[string]any{"team": pick(g, "red", "blue")}}
	case n < 95:
		return map[string]any{"matchExpressions": []any{map[string]any{
			"key": pick(g, "team", "env", "kubernetes.io/metadata.name"), "operator": pick(g, "Exists", "DoesNotExist"),
		}}}
	}
	return map[string]any{"matchExpressions": []any{map[string]any{
		"key": pick(g, "team", "env"), "operator": pick(g, "In", "NotIn"), "values": []any{pick(g, "red", "prod")},
	}}}
}

func (g *generator) rule() map[string]any {
	e := pick(g, endpoints...)
	if g.chance(95) {
		e = pick(g, g.focus...)
	}
	if others := equivalents(e); len(others) > 0 && g.chance(50) {
		e = pick(g, others...)
	}
	resource := e.resource
	switch {
	case e.sub != "":
		resource = pick(g, e.resource+"/"+e.sub, e.resource+"/"+e.sub, e.resource+"/*", "*/"+e.sub, "*/*", e.resource)
	case g.chance(25):
		resource = pick(g, "*", "*/*", e.resource+"/*", e.resource+"/status")
	}
	r := map[string]any{
		"apiGroups": []any{e.group}, "apiVersions": []any{e.version}, "resources": []any{resource}, "operations": []any{"*"},
	}
	if g.chance(20) {
		r["apiGroups"] = pick(g, []any{"*"}, []any{"", e.group + "x"}, []any{"apps", e.group + "x"})
	}
	if g.chance(25) {
		r["apiVersions"] = pick(g, []any{"*"}, []any{"v1"}, []any{"v2"}, []any{"v9", e.version})
	}
	if g.chance(35) {
		r["operations"] = pick(g, []any{"CREATE"}, []any{"UPDATE"}, []any{"DELETE"}, []any{"CREATE", "UPDATE"}, []any{"UPDATE", "DELETE"}, []any{"CONNECT"})
	}
	if g.chance(30) {
		r["scope"] = pick(g, "*", "Namespaced", "Cluster")
	}
	return r
}

// expressions are match conditions; some fail for some objects.
var expressions = []string{
	"true", "true", "false",
	"object != null",
	"oldObject == null",
	"object.metadata.labels['team'] == 'red'",
	"object != null && has(object.metadata.labels) && 'team' in object.metadata.labels",
	"object.spec.replicas > 1",
	"object.spec.size > 1",
	"oldObject.spec.replicas == 1",
	"oldObject.metadata.name.startsWith('o')",
	"object != null && object.apiVersion.endsWith('v1')",
	"request.operation != 'DELETE'",
	"request.kind.version == 'v1'",
	"request.resource.version == 'v1'",
	"request.requestKind.version == 'v1' && request.requestResource.group != 'apps'",
	"request.subResource == ''",
	"!request.dryRun",
	"request.namespace == 'blue'",
	"request.name != ''",
	"request.userInfo.username == 'alice' && 'devs' in request.userInfo.groups",
	"'system:authenticated' in request.userInfo.groups",
	"request.userInfo.username == 'bob'",
	"request.options.kind == 'CreateOptions'",
	"has(request.options.dryRun) && request.options.dryRun.size() > 0",
	"has(object.metadata.generateName)",
}

// rights are match conditions that check the permissions of the user.
var rights = []string{
	"authorizer.group('').resource('configmaps').check('get').allowed()",
	"!authorizer.group('').resource('nodes').check('delete').allowed()",
	"authorizer.requestResource.check('delete').allowed()",
}

func (g *generator) conditions() []any {
	if g.chance(70) {
		return nil
	}
	var list []any
	for i := range 1 + g.IntN(2) {
		expression := pick(g, expressions...)
		if g.chance(6) {
			expression = pick(g, rights...)
		}
		list = append(list, map[string]any{
			"name": fmt.Sprintf("c%d", i), "expression": "(!has(request.namespace) || request.namespace != '" + markers + "') && (" + expression + ")",
		})
	}
	return list
}
