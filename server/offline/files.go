package offline

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	goruntime "runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	yamlv3 "go.yaml.in/yaml/v3"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/gatehouse-dev/gatehouse/admission/lint"
	"github.com/gatehouse-dev/gatehouse/admission/plan"
	"github.com/gatehouse-dev/gatehouse/admission/registration"
	"github.com/gatehouse-dev/gatehouse/admission/snapshot"
	regular "github.com/gatehouse-dev/gatehouse/internal/files"
)

// document is one object of a file.
type document struct {
	content map[string]any
	file    string
	// line is where the file's document begins, node the object in it; nil when its
	// lines are not known.
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
	found, err := documents(file, data, nil)
	if err != nil {
		return nil, err
	}
	list := make([]*unstructured.Unstructured, len(found))
	for i, d := range found {
		list[i] = d.object()
	}
	return list, nil
}

// documents returns the objects of a file. With skipped, it passes over what is not one.
func documents(file string, data []byte, skipped *[]string) ([]*document, error) {
	var found []*document
	parts := split(data)
	contents, roots, errs := make([]any, len(parts)), make([]*yamlv3.Node, len(parts)), make([]error, len(parts))
	atOnce(len(parts), func(i int) { contents[i], roots[i], errs[i] = decodeText(parts[i].text) })
	for i, part := range parts {
		content, root, err := contents[i], roots[i], errs[i]
		if err != nil {
			return nil, fmt.Errorf("%s: document at line %d: %w", file, part.line, err)
		}
		if content == nil {
			continue
		}
		object, ok := content.(map[string]any)
		if skipped != nil && (!ok || object["kind"] == nil || object["apiVersion"] == nil) {
			*skipped = append(*skipped, fmt.Sprintf("%s:%d: this is not an object of the API", file, part.line))
			continue
		}
		if !ok {
			return nil, fmt.Errorf("%s:%d: this is not an object", file, part.line)
		}
		d := &document{content: object, file: file, line: part.line, node: sync.OnceValue(func() *yamlv3.Node {
			if root != nil {
				return root
			}
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

// decodeText decodes a document of YAML or JSON. root is the document as it is written, nil
// when that is not known yet.
func decodeText(text []byte) (content any, root *yamlv3.Node, err error) {
	if trimmed := bytes.TrimSpace(text); len(trimmed) > 0 && trimmed[0] == '{' {
		err = utiljson.Unmarshal(text, &content)
		return content, nil, err
	}
	return fromYAML(text)
}

// atOnce calls f for each of n numbers, as many at the same time as there are processors,
// and returns when all calls have.
func atOnce(n int, f func(i int)) {
	var next atomic.Int64
	var working sync.WaitGroup
	for range min(n, goruntime.GOMAXPROCS(0)) {
		working.Go(func() {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				f(i)
			}
		})
	}
	working.Wait()
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
			// The text behind the dashes belongs to the document.
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

// Places finds where registrations are written in files.
type Places struct{ registrations map[string]*document }

// PlacesIn finds the registrations of some files; those of files that cannot be read are
// nowhere.
func PlacesIn(texts map[string][]byte) Places {
	p := Places{registrations: map[string]*document{}}
	for file, text := range texts {
		found, err := documents(file, text, nil)
		if err != nil {
			continue
		}
		for _, d := range found {
			u := d.object()
			p.registrations[u.GetKind()+"/"+u.GetName()] = d
		}
	}
	return p
}

// files are what was read.
type files struct {
	Places
	namespaces map[string]*corev1.Namespace
	kinds      *Kinds
	stored     []*document
	// written says how registrations are written, for rules.
	// manifests are the registrations that only manifest files can have.
	manifests []snapshot.Manifest
	written   map[lint.Object]lint.Written
}

// Read makes a World of files, and of the .yaml, .yml and .json files of directories.
// Registrations must be valid. Errors name the file and the line.
func Read(paths []string) (*World, error) {
	found, err := open(paths, nil, nil, nil)
	if err != nil {
		return nil, err
	}
	return assemble(found, nil)
}

// Survey makes a World of files as they are, for those who ask what is wrong with them. The
// path - is in. What is wrong with a registration is kept for World.Lint. What is not an
// object of the API is passed over; skipped says so. Files of a directory that cannot be read or
// parsed are passed over as well; unread says which. The error is about a path that was named.
func Survey(paths []string, in io.Reader) (w *World, skipped, unread []string, err error) {
	found, err := open(paths, in, &skipped, &unread)
	if err != nil {
		return nil, nil, nil, err
	}
	w, err = assemble(found, &skipped)
	return w, skipped, unread, err
}

// assemble makes a World of what was read. With skipped it is lenient.
func assemble(all []*document, skipped *[]string) (*World, error) {
	f := &files{Places: Places{registrations: map[string]*document{}}, namespaces: map[string]*corev1.Namespace{}, kinds: Builtin(), written: map[lint.Object]lint.Written{}}
	w := &World{
		Kinds: f.kinds, RightsUnknown: "what the user may do is not in files", UserUnknown: "the user is not known: name one with --as",
		files: f,
	}
	pass := func(err error) error {
		if skipped == nil {
			return err
		}
		*skipped = append(*skipped, err.Error())
		return nil
	}
	registrations := make([]parsed, len(all))
	atOnce(len(all), func(i int) {
		if u := all[i].object(); u.GroupVersionKind().Group == registration.GroupName {
			r := &registrations[i]
			r.object, r.errs, r.err = parse(u)
		}
	})
	for i, d := range all {
		u := d.object()
		gvk := u.GroupVersionKind()
		var err error
		switch {
		case gvk.Group == registration.GroupName:
			err = f.register(w, d, &registrations[i], skipped)
		case gvk.GroupKind() == schema.GroupKind{Kind: "Namespace"}:
			// Its defaults have a label with its name.
			namespace := &corev1.Namespace{}
			if err = as(u, namespace); err != nil {
				err = fmt.Errorf("%s: Namespace %q: %w", d.at(), u.GetName(), err)
			} else {
				f.namespaces[u.GetName()] = namespace
			}
		case gvk.GroupKind() == definitions:
			if err = w.Kinds.Define(u); err != nil {
				err = fmt.Errorf("%s: %w", d.at(), err)
			}
		}
		if err != nil {
			if err = pass(err); err != nil {
				return nil, err
			}
		}
		f.stored = append(f.stored, d)
	}
	var err error
	if w.Registrations.Local, err = snapshot.NewLocal(f.manifests, nil); err != nil {
		return nil, err
	}
	w.Notes = append(w.Notes, "compiled-in plugins of the server are not part of this plan: files do not list them")
	w.Namespace = f.namespace
	w.Params = f
	w.Stored = f.find
	w.locate = f.Locate
	return w, nil
}

// definitions are the definitions of custom resources.
var definitions = schema.GroupKind{Group: "apiextensions.k8s.io", Kind: "CustomResourceDefinition"}

// open returns the objects of files. With skipped, it passes over what is not one; with
// unread, over files of directories that cannot be read or parsed.
func open(paths []string, in io.Reader, skipped, unread *[]string) ([]*document, error) {
	var all []*document
	for _, path := range paths {
		if path == "-" && skipped != nil {
			data, err := regular.ReadFrom(in, regular.Objects)
			if err != nil {
				return nil, err
			}
			found, err := documents("standard input", data, skipped)
			if err != nil {
				return nil, err
			}
			all = append(all, found...)
			continue
		}
		names, err := expand(path)
		if err != nil {
			return nil, err
		}
		for _, name := range names {
			read := regular.Read
			if name == path {
				read = regular.ReadArgument
			}
			data, err := read(name, regular.Objects)
			if err != nil {
				if unread == nil || name == path {
					return nil, err
				}
				*unread = append(*unread, err.Error())
				continue
			}
			found, err := documents(name, data, skipped)
			switch {
			case err == nil:
				all = append(all, found...)
			case unread == nil || name == path:
				return nil, err
			case isTemplate(name):
				*skipped = append(*skipped, fmt.Sprintf("%s: a template of a Helm chart is not an object: look at what 'helm template' makes of it", name))
			default:
				*unread = append(*unread, regular.Shorten(err).Error())
			}
		}
	}
	return all, nil
}

// isTemplate reports whether a file is a template of a Helm chart.
func isTemplate(name string) bool {
	for dir := filepath.Dir(name); ; dir = filepath.Dir(dir) {
		if filepath.Base(dir) == "templates" {
			if info, err := os.Stat(filepath.Join(filepath.Dir(dir), "Chart.yaml")); err == nil && info.Mode().IsRegular() {
				return true
			}
		}
		if dir == filepath.Dir(dir) {
			return false
		}
	}
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

// parsed is what parse returns.
type parsed struct {
	object runtime.Object
	errs   field.ErrorList
	err    error
}

// register adds a registration. With skipped, what is wrong with it is kept.
func (f *files) register(w *World, d *document, p *parsed, skipped *[]string) error {
	u := d.object()
	key := u.GetKind() + "/" + u.GetName()
	if other := f.registrations[key]; other != nil && p.err == nil {
		return fmt.Errorf("%s: %s %q is at %s, too", d.at(), u.GetKind(), u.GetName(), other.at())
	}
	if skipped != nil {
		written := lint.Written{APIVersion: u.GetAPIVersion(), Annotations: u.GetAnnotations()}
		for _, e := range p.errs {
			written.Invalid = append(written.Invalid, lint.Invalid{Field: e.Field, Message: e.Error()})
		}
		if p.err != nil {
			written.Invalid = append(written.Invalid, lint.Invalid{Message: p.err.Error()})
		}
		f.registrations[key] = d
		f.written[lint.Object{Kind: u.GetKind(), Name: u.GetName()}] = written
		if len(written.Invalid) == 0 {
			f.add(w, d, p.object)
		}
		return nil
	}
	if p.err != nil {
		return fmt.Errorf("%s: %w", d.at(), p.err)
	}
	if len(p.errs) > 0 {
		return fmt.Errorf("%s: %s %q: %w", d.at(), u.GetKind(), u.GetName(), p.errs.ToAggregate())
	}
	f.registrations[key] = d
	f.add(w, d, p.object)
	return nil
}

// add adds an object to the registrations. Only manifest files of a server have names of
// theirs (S21.8).
func (f *files) add(w *World, d *document, object runtime.Object) {
	if snapshot.IsStatic(object) {
		f.manifests = append(f.manifests, snapshot.Manifest{Object: object, File: d.file})
		return
	}
	w.Registrations.Objects = append(w.Registrations.Objects, object)
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

// Locate returns the place of a rule, or of the entry when rule is nil; nil when the entry is
// not in the files.
func (p Places) Locate(e *plan.Entry, rule *int) *plan.Location {
	d := p.registrations[e.Kind+"/"+e.Configuration]
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
