package offline

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	yamlv3 "go.yaml.in/yaml/v3"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/yaml"

	"github.com/gatehouse-dev/gatehouse/admission/plan"
	"github.com/gatehouse-dev/gatehouse/admission/registration"
)

// document is one object of a file.
type document struct {
	content map[string]any
	file    string
	// line is where the file's document begins, node the object in it; nil when its
	// lines are not known. Few documents are asked for theirs, so that they are parsed
	// when the first one asks.
	line int
	node func() *yamlv3.Node
}

func (d *document) object() *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: d.content}
}

// at names the place of the object.
func (d *document) at() string {
	line := d.line
	if n := d.node(); n != nil {
		line += n.Line - 1
	}
	return fmt.Sprintf("%s:%d", d.file, line)
}

// Objects returns the objects of a file in YAML or JSON: all of its documents, lists taken
// apart. The error names the file and the line.
func Objects(file string, data []byte) ([]*unstructured.Unstructured, error) {
	found, err := documents(file, data)
	if err != nil {
		return nil, err
	}
	list := make([]*unstructured.Unstructured, len(found))
	for i, d := range found {
		list[i] = d.object()
	}
	return list, nil
}

func documents(file string, data []byte) ([]*document, error) {
	var found []*document
	for _, part := range split(data) {
		var content any
		var err error
		if trimmed := bytes.TrimSpace(part.text); len(trimmed) > 0 && trimmed[0] == '{' {
			err = utiljson.Unmarshal(part.text, &content)
		} else {
			var asJSON []byte
			if asJSON, err = yaml.YAMLToJSONStrict(part.text); err == nil {
				err = utiljson.Unmarshal(asJSON, &content)
			}
		}
		if err != nil {
			return nil, fmt.Errorf("%s: document at line %d: %w", file, part.line, err)
		}
		if content == nil {
			continue
		}
		object, ok := content.(map[string]any)
		if !ok {
			return nil, fmt.Errorf("%s:%d: this is not an object", file, part.line)
		}
		d := &document{content: object, file: file, line: part.line, node: sync.OnceValue(func() *yamlv3.Node {
			node := &yamlv3.Node{}
			if yamlv3.Unmarshal(part.text, node) != nil || len(node.Content) != 1 {
				return nil
			}
			return node.Content[0]
		})}
		if found, err = flatten(found, d); err != nil {
			return nil, err
		}
	}
	return found, nil
}

// flatten appends a document, or what it lists.
func flatten(found []*document, d *document) ([]*document, error) {
	u := d.object()
	if u.GetKind() == "" || u.GetAPIVersion() == "" {
		return nil, fmt.Errorf("%s: apiVersion and kind are needed", d.at())
	}
	items, ok := d.content["items"].([]any)
	if !ok || !strings.HasSuffix(u.GetKind(), "List") {
		return append(found, d), nil
	}
	for i, item := range items {
		content, ok := item.(map[string]any)
		if !ok {
			return nil, fmt.Errorf("%s: items[%d] is not an object", d.at(), i)
		}
		one := &document{content: content, file: d.file, line: d.line, node: func() *yamlv3.Node { return child(d.node(), "items", i) }}
		if kind := strings.TrimSuffix(u.GetKind(), "List"); kind != "" && one.object().GetKind() == "" {
			// Lists of one kind need not repeat it.
			content["apiVersion"], content["kind"] = u.GetAPIVersion(), kind
		}
		var err error
		if found, err = flatten(found, one); err != nil {
			return nil, err
		}
	}
	return found, nil
}

type part struct {
	text []byte
	line int
}

// split takes a file apart at its lines of three dashes.
func split(data []byte) []part {
	var parts []part
	current := part{line: 1}
	line := 0
	for text := range bytes.Lines(data) {
		line++
		if rest, ok := bytes.CutPrefix(text, []byte("---")); ok && (len(bytes.TrimSpace(rest)) == 0 || rest[0] == ' ') {
			parts = append(parts, current)
			// What stands behind the dashes belongs to the document.
			current = part{line: line, text: slices.Concat([]byte("   "), rest)}
			if len(bytes.TrimSpace(rest)) == 0 {
				current.text = []byte("\n")
			}
			continue
		}
		current.text = append(current.text, text...)
	}
	return append(parts, current)
}

// child returns the node at a path of names and indexes, nil when it is not there.
func child(n *yamlv3.Node, path ...any) *yamlv3.Node {
	for _, step := range path {
		if n != nil && n.Kind == yamlv3.AliasNode {
			n = n.Alias
		}
		var next *yamlv3.Node
		switch step := step.(type) {
		case string:
			for i := 0; n != nil && n.Kind == yamlv3.MappingNode && i+1 < len(n.Content); i += 2 {
				if n.Content[i].Value == step {
					next = n.Content[i+1]
				}
			}
		case int:
			if n != nil && n.Kind == yamlv3.SequenceNode && step < len(n.Content) {
				next = n.Content[step]
			}
		}
		n = next
	}
	return n
}

// files are what was read.
type files struct {
	registrations map[string]*document
	namespaces    map[string]*corev1.Namespace
	kinds         *Kinds
	stored        []*document
}

// Read makes a World of files, and of the .yaml, .yml and .json files of directories.
// Registrations must be valid. Errors name the file and the line.
func Read(paths []string) (*World, error) {
	f := &files{registrations: map[string]*document{}, namespaces: map[string]*corev1.Namespace{}, kinds: Builtin()}
	w := &World{
		Kinds: f.kinds, RightsUnknown: "what the user may do is not in files", UserUnknown: "the user is not known: name one with --as",
	}
	var all []*document
	for _, path := range paths {
		names, err := expand(path)
		if err != nil {
			return nil, err
		}
		for _, name := range names {
			data, err := os.ReadFile(name)
			if err != nil {
				return nil, err
			}
			found, err := documents(name, data)
			if err != nil {
				return nil, err
			}
			all = append(all, found...)
		}
	}
	for _, d := range all {
		u := d.object()
		gvk := u.GroupVersionKind()
		switch {
		case gvk.Group == registration.GroupName:
			if err := f.register(w, d); err != nil {
				return nil, err
			}
		case gvk.GroupKind() == schema.GroupKind{Kind: "Namespace"}:
			// Its defaults have a label with its name.
			namespace := &corev1.Namespace{}
			if err := as(u, namespace); err != nil {
				return nil, fmt.Errorf("%s: Namespace %q: %w", d.at(), u.GetName(), err)
			}
			f.namespaces[u.GetName()] = namespace
		case gvk.GroupKind() == schema.GroupKind{Group: "apiextensions.k8s.io", Kind: "CustomResourceDefinition"}:
			if err := w.Kinds.Define(u); err != nil {
				return nil, fmt.Errorf("%s: %w", d.at(), err)
			}
		}
		f.stored = append(f.stored, d)
	}
	w.Notes = append(w.Notes, "compiled-in plugins of the server are not part of this plan: files do not list them")
	w.Namespace = f.namespace
	w.Params = f
	w.Stored = f.find
	w.locate = f.locate
	return w, nil
}

// expand returns the files that a path means.
func expand(path string) ([]string, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		return []string{path}, nil
	}
	var names []string
	err = filepath.WalkDir(path, func(name string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() && slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(name)) {
			names = append(names, name)
		}
		return err
	})
	if err == nil && len(names) == 0 {
		err = fmt.Errorf("%s has no .yaml, .yml or .json files", path)
	}
	return names, err
}

func (f *files) register(w *World, d *document) error {
	u := d.object()
	obj, errs, err := parse(u)
	if err != nil {
		return fmt.Errorf("%s: %w", d.at(), err)
	}
	if len(errs) > 0 {
		return fmt.Errorf("%s: %s %q: %w", d.at(), u.GetKind(), u.GetName(), errs.ToAggregate())
	}
	key := u.GetKind() + "/" + u.GetName()
	if other := f.registrations[key]; other != nil {
		return fmt.Errorf("%s: %s %q is at %s, too", d.at(), u.GetKind(), u.GetName(), other.at())
	}
	f.registrations[key] = d
	w.Registrations.Objects = append(w.Registrations.Objects, obj)
	return nil
}

func (f *files) namespace(_ context.Context, name string) (*corev1.Namespace, error) {
	if namespace, ok := f.namespaces[name]; ok {
		return namespace, nil
	}
	return nil, fmt.Errorf("%w: no file has namespace %s", plan.ErrUnknown, name)
}

// find returns an object of the files, in whatever version it is written there.
func (f *files) find(_ context.Context, kind *Kind, namespace, name string) (*unstructured.Unstructured, error) {
	for _, d := range f.stored {
		u := d.object()
		in := u.GetNamespace()
		if in == "" && kind.Namespaced {
			in = "default"
		}
		if u.GroupVersionKind() == kind.Kind && u.GetName() == name && in == namespace {
			return u, nil
		}
	}
	return nil, apierrors.NewNotFound(kind.Resource.GroupResource(), name)
}

// locate returns the place of a rule, or of the entry when rule is nil.
func (f *files) locate(e *plan.Entry, rule *int) *plan.Location {
	d := f.registrations[e.Kind+"/"+e.Configuration]
	if d == nil {
		return nil
	}
	if e.Name == "" {
		return d.inPolicy(rule)
	}
	field := "webhooks"
	switch e.Kind {
	case registration.ExternalKind:
		field = "externalAdmissionHooks"
	case registration.InitializerKind:
		field = "initializers"
	}
	path := []any{field, e.Index}
	text := field + "[" + strconv.Itoa(e.Index) + "]"
	if rule != nil {
		path = append(path, "rules", *rule)
		text += ".rules[" + strconv.Itoa(*rule) + "]"
	}
	l := &plan.Location{File: d.file, Line: d.line, Field: text}
	if n := child(d.node(), path...); n != nil {
		l.Line = d.line + n.Line - 1
	}
	return l
}

// errNoObject tells that a request lacks its object.
var errNoObject = errors.New("the request has no object")
