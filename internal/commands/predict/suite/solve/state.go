package solve

import (
	"maps"
	"slices"
	"strings"
	"unicode"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"github.com/gatehouse-dev/gatehouse/internal/engine/expression"
)

// The roots of fields, which are variables of expressions.
const (
	Object    = "object"
	OldObject = "oldObject"
	Params    = "params"
	request   = "request"
	namespace = "namespaceObject"
)

// State is a request, and the objects that its policies read. A State is not changed after it was passed to a search.
type State struct {
	Operation   string
	Subresource string
	Kind        schema.GroupVersionKind
	Resource    schema.GroupVersionResource
	// Documents are the objects, by variable: Object, OldObject and Params.
	Documents map[string]*Document
	// Namespace is the name of the namespace, empty for a cluster-scoped object, and Labels are its labels.
	Namespace string
	Labels    map[string]string
	// User makes the request: username, uid, groups and extra, as in request.userInfo.
	User map[string]any

	run *expression.Run
}

// Document is an object of a request.
type Document struct {
	// Sent is the object as written, and Seen the object as expressions see it, with defaults.
	Sent, Seen map[string]any
	// Schema describes the object; nil if it may have any fields.
	Schema *spec.Schema
	// Fixed objects are not changed by a search.
	Fixed bool
}

// Administrator is the user of requests without a user.
func Administrator() map[string]any {
	return map[string]any{"username": "kubernetes-admin", "groups": []any{user.SystemPrivilegedGroup, user.AllAuthenticated}}
}

// nobody returns a user without rights.
func nobody() map[string]any {
	return map[string]any{"username": "jane", "groups": []any{user.AllAuthenticated}}
}

// copied returns a State with its own copy of the given document.
func (st *State) copied(root string) *State {
	out := *st
	out.run = nil
	out.Documents = maps.Clone(st.Documents)
	switch root {
	case request:
		out.User = runtime.DeepCopyJSON(st.User)
	case namespace:
		out.Labels = maps.Clone(st.Labels)
	default:
		if d := st.Documents[root]; d != nil {
			c := *d
			c.Sent, c.Seen = runtime.DeepCopyJSON(d.Sent), runtime.DeepCopyJSON(d.Seen)
			out.Documents[root] = &c
		}
	}
	return &out
}

// Info returns the user of the request.
func (st *State) Info() *user.DefaultInfo {
	u := &user.DefaultInfo{}
	u.Name, _ = st.User["username"].(string)
	u.UID, _ = st.User["uid"].(string)
	groups, _ := st.User["groups"].([]any)
	for _, g := range groups {
		if name, ok := g.(string); ok {
			u.Groups = append(u.Groups, name)
		}
	}
	extra, _ := st.User["extra"].(map[string]any)
	for key, list := range extra {
		values, _ := list.([]any)
		for _, v := range values {
			if text, ok := v.(string); ok {
				if u.Extra == nil {
					u.Extra = map[string][]string{}
				}
				u.Extra[key] = append(u.Extra[key], text)
			}
		}
	}
	return u
}

// place is a field of a request.
type place struct {
	root string
	// path has the names of fields and keys, and the indexes of elements as int.
	path []any
}

func (p place) child(step any) place { return place{p.root, append(slices.Clone(p.path), step)} }

// identity are the metadata that object and oldObject have in common.
var identity = []string{"name", "namespace"}

// served are metadata that the server sets.
var served = []string{"uid", "resourceVersion", "generation", "creationTimestamp", "managedFields", "selfLink", "deletionTimestamp", "deletionGracePeriodSeconds"}

// editable reports whether requests can differ in a field.
func (st *State) editable(p place) bool {
	first, second := step(p.path, 0), step(p.path, 1)
	switch p.root {
	case request:
		return first == "userInfo" && len(p.path) > 1
	case namespace:
		return st.Namespace != "" && first == "metadata" && second == "labels" && len(p.path) == 3
	}
	d := st.Documents[p.root]
	switch {
	case d == nil || d.Fixed || d.Sent == nil || len(p.path) == 0:
		return false
	case first == "apiVersion" || first == "kind":
		return false
	case first == "metadata" && len(p.path) == 1:
		return false
	case first == "metadata" && p.root == Params && slices.Contains(identity, second):
		return false
	case first == "metadata" && second == "namespace":
		return st.Namespace != "" && len(st.Labels) == 0
	}
	return first != "metadata" || !slices.Contains(served, second)
}

func step(path []any, i int) string {
	if i >= len(path) {
		return ""
	}
	name, _ := path[i].(string)
	return name
}

// set returns the request with a field set; nil if that is not possible.
func (st *State) set(p place, value any) *State {
	if !st.editable(p) {
		return nil
	}
	out := st.copied(p.root)
	switch p.root {
	case request:
		made, ok := put(out.User, p.path[1:], value, nil)
		if out.User, _ = made.(map[string]any); !ok {
			return nil
		}
		return out
	case namespace:
		text, ok := value.(string)
		if !ok {
			return nil
		}
		if out.Labels == nil {
			out.Labels = map[string]string{}
		}
		out.Labels[p.path[2].(string)] = text
		return out
	}
	d := out.Documents[p.root]
	if s := schemaAt(d.Schema, p.path); d.Schema != nil && (s == nil || !fits(value, s)) {
		return nil
	}
	if _, ok := put(d.Sent, p.path, value, d.Schema); !ok {
		return nil
	}
	if _, ok := put(d.Seen, p.path, value, d.Schema); !ok {
		return nil
	}
	if step(p.path, 0) == "metadata" && slices.Contains(identity, step(p.path, 1)) {
		text, _ := value.(string)
		if text == "" {
			return nil
		}
		if p.path[1] == "namespace" {
			out.Namespace = text
		}
		// The other object of an update has the same name.
		for _, other := range []string{Object, OldObject} {
			if o := out.Documents[other]; o != nil && other != p.root {
				out = out.copied(other)
				o = out.Documents[other]
				put(o.Sent, p.path, value, nil)
				put(o.Seen, p.path, value, nil)
			}
		}
	}
	return out
}

// remove returns the request without a field; nil if that is not possible.
func (st *State) remove(p place) *State {
	if !st.editable(p) || len(p.path) == 0 {
		return nil
	}
	out := st.copied(p.root)
	switch p.root {
	case request:
		take(out.User, p.path[1:])
		return out
	case namespace:
		delete(out.Labels, p.path[2].(string))
		return out
	}
	if step(p.path, 0) == "metadata" && slices.Contains(identity, step(p.path, 1)) {
		return nil
	}
	d := out.Documents[p.root]
	take(d.Sent, p.path)
	take(d.Seen, p.path)
	return out
}

// add returns the request with one more element in a list, and the index of the element; nil if that is not possible.
// Elements that the server adds stay behind the element.
func (st *State) add(p place, element any) (out *State, index int) {
	if p.root == request {
		current, _ := get(map[string]any{"userInfo": st.User}, p.path)
		list, _ := current.([]any)
		return st.set(p, append(slices.Clone(list), element)), len(list)
	}
	if !st.editable(p) || p.root == namespace {
		return nil, 0
	}
	out = st.copied(p.root)
	d := out.Documents[p.root]
	if s := schemaAt(d.Schema, p.path); d.Schema != nil && (s == nil || !s.Type.Contains("array")) {
		return nil, 0
	}
	current, _ := get(d.Sent, p.path)
	sent, isList := current.([]any)
	if current != nil && !isList {
		return nil, 0
	}
	named, _ := element.(map[string]any)
	if name, ok := named["name"].(string); ok {
		named = runtime.DeepCopyJSON(named)
		named["name"] = unused(name, sent)
		element = named
	}
	current, _ = get(d.Seen, p.path)
	seen, _ := current.([]any)
	at := min(len(sent), len(seen))
	if _, ok := put(d.Sent, p.path, append(slices.Clone(sent), element), d.Schema); !ok {
		return nil, 0
	}
	if _, ok := put(d.Seen, p.path, slices.Insert(slices.Clone(seen), at, element), d.Schema); !ok {
		return nil, 0
	}
	return out, at
}

// unused returns a name that no element of a list has.
func unused(name string, list []any) string {
	taken := func(name string) bool {
		return slices.ContainsFunc(list, func(e any) bool {
			m, _ := e.(map[string]any)
			return m["name"] == name
		})
	}
	for made, i := name, 'a'; i <= 'z'; made, i = name+"-"+string(i), i+1 {
		if !taken(made) {
			return made
		}
	}
	return name
}

// get returns the value at a path.
func get(node any, path []any) (value any, ok bool) {
	for _, s := range path {
		switch s := s.(type) {
		case string:
			m, _ := node.(map[string]any)
			if node, ok = m[s]; !ok {
				return nil, false
			}
		case int:
			l, _ := node.([]any)
			if s < 0 || s >= len(l) {
				return nil, false
			}
			node = l[s]
		}
	}
	return node, true
}

// put sets the value at a path and creates the parents, with the fields that their schemas require.
func put(node any, path []any, value any, s *spec.Schema) (any, bool) {
	if len(path) == 0 {
		return runtime.DeepCopyJSONValue(value), true
	}
	switch name := path[0].(type) {
	case string:
		m, isMap := node.(map[string]any)
		if node == nil {
			m, isMap = map[string]any{}, true
		}
		if !isMap {
			return node, false
		}
		below := schemaAt(s, path[:1])
		child, there := m[name]
		if !there && len(path) > 1 && step(path, 1) != "" {
			if made, isMap := Sample(below, name).(map[string]any); isMap {
				child = made
			}
		}
		made, ok := put(child, path[1:], value, below)
		if ok {
			m[name] = made
		}
		return m, ok
	case int:
		l, _ := node.([]any)
		if name < 0 || name >= len(l) {
			return node, false
		}
		made, ok := put(l[name], path[1:], value, schemaAt(s, path[:1]))
		l[name] = made
		return l, ok
	}
	return node, false
}

// take removes the value at a path.
func take(node any, path []any) {
	parent, ok := get(node, path[:len(path)-1])
	if !ok {
		return
	}
	switch name := path[len(path)-1].(type) {
	case string:
		if m, ok := parent.(map[string]any); ok {
			delete(m, name)
		}
	case int:
		if l, ok := parent.([]any); ok && name < len(l) {
			put(node, path[:len(path)-1], slices.Delete(slices.Clone(l), name, name+1), nil)
		}
	}
}

// input returns the values of the variables.
func (st *State) input() *expression.Input {
	in := &expression.Input{
		Kind: st.Kind, RequestKind: st.Kind, Resource: st.Resource, Subresource: st.Subresource, Namespace: st.Namespace,
		Operation: st.Operation, User: st.Info(), Authorizer: authority{}, Options: &metav1.CreateOptions{},
	}
	for root, at := range map[string]*runtime.Object{Object: &in.Object, OldObject: &in.OldObject} {
		if d := st.Documents[root]; d != nil && d.Seen != nil {
			u := &unstructured.Unstructured{Object: d.Seen}
			in.Name = u.GetName()
			*at = u
		}
	}
	if st.Namespace != "" {
		labels := maps.Clone(st.Labels)
		if labels == nil {
			labels = map[string]string{}
		}
		labels[corev1.LabelMetadataName] = st.Namespace
		in.NamespaceObject = &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: st.Namespace, Labels: labels}}
	}
	return in
}

// With returns the request with another object as expressions see it; nil keeps the object.
func (st *State) With(root string, seen map[string]any) *State {
	out := st.copied(root)
	if d := out.Documents[root]; d != nil && seen != nil {
		d.Seen = seen
	}
	return out
}

// Provide returns the request with a document.
func (st *State) Provide(root string, d *Document) *State {
	out := st.copied(root)
	out.Documents[root] = d
	return out
}

// Field names a field without indexes and keys, as in Solver.Enums.
func Field(root string, path []any) string { return place{root, path}.field() }

// Set returns the request with a field set; nil if that is not possible.
func (st *State) Set(root string, path []any, value any) *State {
	return st.set(place{root, path}, value)
}

// Add returns the request with one more element in a list; nil if that is not possible.
func (st *State) Add(root string, path []any, element any) *State {
	out, _ := st.add(place{root, path}, element)
	return out
}

// Remove returns the request without a field; nil if that is not possible.
func (st *State) Remove(root string, path []any) *State { return st.remove(place{root, path}) }

// Require returns the request with a missing field, or with one of the members of an object that message names; nil if
// that is not possible.
func (st *State) Require(root string, path []any, message string) *State {
	d := st.Documents[root]
	p := place{root, path}
	s := schemaAt(d.Schema, path)
	if d.Schema == nil {
		s = &spec.Schema{}
	}
	if s == nil {
		return nil
	}
	if now, there := get(d.Sent, path); there {
		// An object needs one of several fields.
		if object, isObject := now.(map[string]any); isObject {
			words := strings.FieldsFunc(message, func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) })
			for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
				if _, set := object[name]; !set && (name == "httpGet" && strings.Contains(message, "handler") || slices.Contains(words, name)) {
					property := s.Properties[name]
					if out := st.set(p.child(name), Sample(&property, name)); out != nil {
						return out
					}
				}
			}
		}
		if list, isList := now.([]any); !isList || len(list) > 0 {
			return nil
		}
	}
	if s.Type.Contains("array") && s.Items != nil {
		out, _ := st.add(p, sample(s.Items.Schema, step(path, len(path)-1), 1))
		return out
	}
	return st.set(p, Sample(s, step(path, len(path)-1)))
}

// Another returns the request with a sample value in a field whose value the API rejects; nil if the field has it already.
func (st *State) Another(root string, path []any) *State {
	d := st.Documents[root]
	s := schemaAt(d.Schema, path)
	now, there := get(d.Sent, path)
	if s == nil || !there {
		return nil
	}
	if other := Sample(s, step(path, len(path)-1)); !equality.Semantic.DeepEqual(other, now) && !s.Type.Contains("object") {
		return st.set(place{root, path}, other)
	}
	return nil
}

// Write returns the request with another object.
func (st *State) Write(root string, object map[string]any) *State {
	out := st.copied(root)
	if d := out.Documents[root]; d != nil {
		d.Sent, d.Seen = object, runtime.DeepCopyJSON(object)
	}
	return out
}
