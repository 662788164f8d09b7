package offline

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	goruntime "runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/gatehouse-dev/gatehouse/admission/plan"
	"github.com/gatehouse-dev/gatehouse/admission/registration"
	"github.com/gatehouse-dev/gatehouse/admission/snapshot"
	regular "github.com/gatehouse-dev/gatehouse/internal/files"
	"github.com/gatehouse-dev/gatehouse/internal/lint"
	"github.com/gatehouse-dev/gatehouse/internal/manifests"
)

// document is one object of a file.
type document struct{ *manifests.Object }

func (d *document) object() *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: d.Content}
}

// Objects returns the objects of a file in YAML or JSON: those of all documents, and the items of
// lists. The error names the file and the line.
func Objects(file string, data []byte) ([]*unstructured.Unstructured, error) {
	found, err := documents(file, data, nil, nil)
	if err != nil {
		return nil, err
	}
	list := make([]*unstructured.Unstructured, len(found))
	for i, d := range found {
		list[i] = d.object()
	}
	return list, nil
}

// documents returns the objects of a file. With skipped, it skips documents that are not objects,
// and adds a text for each. accepted gets the comments that accept findings.
func documents(file string, data []byte, skipped *[]string, accepted *[]manifests.Acceptance) ([]*document, error) {
	content := manifests.Parse(file, data)
	if accepted != nil {
		*accepted = append(*accepted, content.Acceptances...)
	}
	for _, p := range content.Problems {
		text := fmt.Sprintf("%s:%d: %s", p.File, p.Line, p.Message)
		switch {
		case !p.Warning:
			return nil, errors.New(text)
		case skipped != nil:
			*skipped = append(*skipped, text)
		}
	}
	for _, n := range content.Notes {
		text := fmt.Sprintf("%s:%d: %s", n.File, n.Line, n.Message)
		if skipped == nil {
			return nil, errors.New(text)
		}
		*skipped = append(*skipped, text)
	}
	found := make([]*document, len(content.Objects))
	for i, o := range content.Objects {
		found[i] = &document{o}
	}
	return found, nil
}

// atOnce calls f for each of the numbers below n. As many calls run at the same time as there are
// processors. atOnce returns when all calls have returned.
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

// files has the content of the files.
type files struct {
	manifests.Places
	namespaces map[string]*corev1.Namespace
	kinds      *Kinds
	stored     []*document
	// written says how registrations are written, for rules of lint. static are the registrations
	// that only manifest files can have.
	static  []snapshot.Manifest
	written map[lint.Object]lint.Written
	// acceptances are the comments that accept findings.
	acceptances []manifests.Acceptance
}

// Read makes a World of files, and of the .yaml, .yml and .json files of directories.
// Registrations must be valid. Errors name the file and the line.
func Read(paths []string) (*World, error) {
	found, err := open(paths, nil, &manifests.Ignore{}, nil, nil, nil)
	if err != nil {
		return nil, err
	}
	w, err := assemble(found, nil)
	if err == nil {
		w.prepare()
	}
	return w, err
}

// ReadTried reads policies and their bindings, which must be valid, from files and directories: for
// World.Tried, and as they are written. Errors name the file and the line.
func ReadTried(paths []string) (tried []runtime.Object, written []*unstructured.Unstructured, err error) {
	found, err := open(paths, nil, &manifests.Ignore{}, nil, nil, nil)
	if err != nil {
		return nil, nil, err
	}
	for _, d := range found {
		u := d.object()
		if !slices.ContainsFunc(registration.Sources(), func(s registration.Descriptor) bool {
			return (s.Policies || s.Binds) && s.Kind == u.GetKind() && u.GroupVersionKind().Group == registration.GroupName
		}) {
			return nil, nil, fmt.Errorf("%s: %s %q is neither a policy nor a binding of a policy, and only these can be tried", d.At(), u.GetKind(), u.GetName())
		}
		written = append(written, u)
	}
	w, err := assemble(found, nil)
	if err != nil {
		return nil, nil, err
	}
	if len(written) == 0 {
		return nil, nil, fmt.Errorf("there is no policy in %s", strings.Join(paths, ", "))
	}
	return w.Registrations.Objects, written, nil
}

// Survey makes a World of files that may have faults, for commands that report these faults. The
// path - stands for in. Survey keeps the faults of registrations for World.Lint. It skips
// documents that are not objects of the API, and names them in skipped. It also skips files of a
// directory that cannot be read or parsed, and names them in unread. The error is about a path in
// paths.
func Survey(paths []string, in io.Reader, ignore *manifests.Ignore) (w *World, skipped, unread []string, err error) {
	var accepted []manifests.Acceptance
	found, err := open(paths, in, ignore, &skipped, &unread, &accepted)
	if err != nil {
		return nil, nil, nil, err
	}
	if w, err = assemble(found, &skipped); err == nil {
		w.files.acceptances = accepted
	}
	return w, skipped, unread, err
}

// Acceptances are the comments of the files that accept findings.
func (w *World) Acceptances() []manifests.Acceptance {
	if w.files == nil {
		return nil
	}
	return w.files.acceptances
}

// assemble makes a World of documents. With skipped it is lenient.
func assemble(all []*document, skipped *[]string) (*World, error) {
	f := &files{namespaces: map[string]*corev1.Namespace{}, kinds: Builtin(), written: map[lint.Object]lint.Written{}}
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
				err = fmt.Errorf("%s: Namespace %q: %w", d.At(), u.GetName(), err)
			} else {
				f.namespaces[u.GetName()] = namespace
			}
		case gvk.GroupKind() == definitions:
			if err = w.Kinds.Define(u); err != nil {
				err = fmt.Errorf("%s: %w", d.At(), err)
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
	if w.Registrations.Local, err = snapshot.NewLocal(f.static, nil); err != nil {
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

// open returns the objects of files that are not ignored. With skipped, it passes over what is not one; with
// unread, over files of directories that cannot be read or parsed.
func open(paths []string, in io.Reader, ignore *manifests.Ignore, skipped, unread *[]string, accepted *[]manifests.Acceptance) ([]*document, error) {
	var all []*document
	for _, path := range paths {
		if path == "-" && skipped != nil {
			data, err := regular.ReadFrom(in, regular.Objects)
			if err != nil {
				return nil, err
			}
			found, err := documents("standard input", data, skipped, accepted)
			if err != nil {
				return nil, err
			}
			all = append(all, found...)
			continue
		}
		names, ignored, err := expand(path, ignore)
		if err != nil {
			return nil, err
		}
		if skipped != nil {
			*skipped = append(*skipped, ignored...)
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
			found, err := documents(name, data, skipped, accepted)
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

// expand returns the files that a path means, and notes what is ignored.
func expand(path string, ignore *manifests.Ignore) (names, ignored []string, err error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, nil, err
	}
	if ignore.Ignores(path, info.IsDir()) {
		return nil, []string{path + ": ignored"}, nil
	}
	if !info.IsDir() {
		return []string{path}, nil, nil
	}
	err = filepath.WalkDir(path, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if name != path && ignore.Ignores(name, d.IsDir()) {
			ignored = append(ignored, name+": ignored")
			if d.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		if d.IsDir() {
			return ignore.Enter(name)
		}
		if slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(name)) {
			names = append(names, name)
		}
		return nil
	})
	if err == nil && len(names)+len(ignored) == 0 {
		err = fmt.Errorf("%s has no .yaml, .yml or .json files", path)
	}
	return names, ignored, err
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
	if other := f.Find(u.GetKind(), u.GetName()); other != nil && p.err == nil {
		return fmt.Errorf("%s: %s %q is at %s, too", d.At(), u.GetKind(), u.GetName(), other.At())
	}
	if skipped != nil {
		written := writtenOf(u)
		written.APIVersion = u.GetAPIVersion()
		for _, e := range p.errs {
			written.Invalid = append(written.Invalid, lint.Invalid{Field: e.Field, Message: e.Error()})
		}
		if p.err != nil {
			written.Invalid = append(written.Invalid, lint.Invalid{Message: p.err.Error()})
		}
		f.Add(d.Object)
		f.written[lint.Object{Kind: u.GetKind(), Name: u.GetName()}] = written
		if len(written.Invalid) == 0 {
			f.add(w, d, p.object)
		}
		return nil
	}
	if p.err != nil {
		return fmt.Errorf("%s: %w", d.At(), p.err)
	}
	if len(p.errs) > 0 {
		return fmt.Errorf("%s: %s %q: %w", d.At(), u.GetKind(), u.GetName(), p.errs.ToAggregate())
	}
	f.Add(d.Object)
	f.add(w, d, p.object)
	return nil
}

// add adds an object to the registrations. Only manifest files of a server have names of
// theirs (S21.8).
func (f *files) add(w *World, d *document, object runtime.Object) {
	if snapshot.IsStatic(object) {
		f.static = append(f.static, snapshot.Manifest{Object: object, File: d.File})
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

// errNoObject means that a request lacks its object.
var errNoObject = errors.New("the request has no object")
