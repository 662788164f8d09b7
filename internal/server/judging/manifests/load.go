package manifests

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	v1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/validation/field"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/apiserver/pkg/admission/plugin/manifest"
	"k8s.io/kubernetes/pkg/apis/admissionregistration"
	"k8s.io/kubernetes/pkg/apis/admissionregistration/install"
	"k8s.io/kubernetes/pkg/apis/admissionregistration/validation"

	"github.com/gatehouse-dev/gatehouse/admission/registration"
	"github.com/gatehouse-dev/gatehouse/admission/snapshot"
	"github.com/gatehouse-dev/gatehouse/internal/kit/files"
)

// scheme has only the kinds that files may have, like upstream's scheme, so that errors of decoding
// have upstream's text.
var scheme = func() *runtime.Scheme {
	s := runtime.NewScheme()
	install.Install(s)
	s.AddUnversionedTypes(metav1.SchemeGroupVersion, &metav1.List{}, &metav1.Status{})
	return s
}()

var decoder = serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDeserializer()

// set has the registrations of the files of a directory.
type set struct {
	// hash is the hash of the files (S21.23).
	hash string
	// manifests are in the order of the files.
	manifests []snapshot.Manifest
	// texts are the files, by path.
	texts map[string][]byte
}

const (
	// maxFile bounds a file, and maxDirectory all files of a directory, in bytes.
	maxFile      = files.Configuration
	maxDirectory = 4 * maxFile
)

// read is a directory as it was read.
type read struct {
	hash  string
	files []file
	// refused names the files that are not read because they are not regular files or too large.
	refused error
}

type file struct {
	path string
	text []byte
}

// readFiles reads the files of a directory, in the order of their names (S21.4). A refused file
// keeps the text that it had in before (S21.4a).
func readFiles(dir string, before map[string][]byte) (read, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return read{}, fmt.Errorf("failed to read manifest directory %q: %w", dir, err)
	}
	var r read
	var refused []error
	sum, size := sha256.New(), 0
	for _, e := range entries {
		if !isManifest(e) {
			continue
		}
		f := file{path: filepath.Join(dir, e.Name())}
		if f.text, err = files.Read(f.path, maxFile); err != nil {
			err = fmt.Errorf("failed to read file %q: %w", f.path, files.Cause(err))
			if !errors.As(err, new(files.Refused)) {
				return read{}, err
			}
			refused = append(refused, err)
			f.text = before[f.path]
		}
		if len(f.text) == 0 {
			continue
		}
		if size += len(f.text); size > maxDirectory {
			return read{}, fmt.Errorf("failed to read manifest directory %q: its files have more than %d MiB", dir, maxDirectory>>20)
		}
		sum.Write(f.text)
		sum.Write([]byte{0})
		r.files = append(r.files, f)
	}
	if size > 0 {
		r.hash = fmt.Sprintf("sha256:%x", sum.Sum(nil))
	}
	r.refused = errors.Join(refused...)
	return r, nil
}

// isManifest reports whether an entry of a directory is a manifest file.
func isManifest(e os.DirEntry) bool {
	return !e.IsDir() && slices.Contains([]string{".yaml", ".yml", ".json"}, strings.ToLower(filepath.Ext(e.Name())))
}

// load reads and checks the registrations of the files of a plugin's directory.
func load(plugin, dir string) (*set, error) {
	r, err := readFiles(dir, nil)
	if err == nil {
		err = r.refused
	}
	if err != nil {
		return nil, err
	}
	return r.decode(plugin)
}

// decode decodes and checks the files. It returns the first error, which names the file (S21.11).
func (r read) decode(plugin string) (*set, error) {
	l := loading{plugin: plugin, set: &set{hash: r.hash, texts: map[string][]byte{}}, seen: map[registration.Source]map[string]string{}}
	for _, f := range r.files {
		l.set.texts[f.path] = f.text
		documents := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(f.text)))
		for {
			text, err := documents.Read()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				return nil, fmt.Errorf("failed to split YAML documents in file %q: %w", f.path, err)
			}
			if text = bytes.TrimSpace(text); len(text) == 0 {
				continue
			}
			if err := l.document(f.path, text); err != nil {
				return nil, fmt.Errorf("error loading %s: %w", f.path, files.Shorten(err))
			}
		}
	}
	return l.set, l.bound()
}

// loading is a directory whose files are being read.
type loading struct {
	plugin string
	set    *set
	// seen has the files in which names were seen, by kind.
	seen map[registration.Source]map[string]string
}

// document adds a document: an object, a list of a kind, or a List (S21.5).
func (l *loading) document(file string, text []byte) error {
	obj, _, err := decoder.Decode(text, nil, nil)
	if err != nil {
		return err
	}
	return l.object(file, obj)
}

func (l *loading) object(file string, obj runtime.Object) error {
	if list, ok := obj.(*metav1.List); ok {
		for _, item := range list.Items {
			one, _, err := decoder.Decode(item.Raw, nil, nil)
			if err != nil {
				return fmt.Errorf("failed to decode list item: %w", err)
			}
			if err := l.object(file, one); err != nil {
				return err
			}
		}
		return nil
	}
	source, ok := l.source(obj)
	if !ok {
		return fmt.Errorf("unsupported resource type %T", obj)
	}
	items := []runtime.Object{obj}
	if meta.IsListType(obj) {
		var err error
		if items, err = meta.ExtractList(obj); err != nil {
			return err
		}
	}
	for i := range items {
		var err error
		if items[i], err = checked(source, items[i]); err != nil {
			return err
		}
	}
	if l.seen[source] == nil {
		l.seen[source] = map[string]string{}
	}
	for _, item := range items {
		m, err := meta.Accessor(item)
		if err != nil {
			return err
		}
		if err := manifest.ValidateManifestName(m.GetName(), file, l.seen[source]); err != nil {
			return err
		}
		if err := allowed(file, item); err != nil {
			return err
		}
		l.set.manifests = append(l.set.manifests, snapshot.Manifest{Object: item, File: file})
	}
	return nil
}

// source returns the kind of registration of an object, or of a list of objects. ok is false
// when that kind does not belong in the directory (S21.6).
func (l *loading) source(obj runtime.Object) (source registration.Source, ok bool) {
	kinds, _, err := scheme.ObjectKinds(obj)
	if err != nil || len(kinds) == 0 || kinds[0].GroupVersion() != v1.SchemeGroupVersion {
		return 0, false
	}
	kind := kinds[0].Kind
	if meta.IsListType(obj) {
		kind = strings.TrimSuffix(kind, "List")
	}
	for _, d := range registration.Sources() {
		if d.Kind == kind && d.Manifests && d.Plugin == l.plugin {
			return d.Source, true
		}
	}
	return 0, false
}

// Read decodes a registration of version v1 that is not in a file, and gives it its defaults. It
// returns an error if the registration could not be created through the API.
func Read(text []byte) (runtime.Object, error) {
	obj, _, err := decoder.Decode(text, nil, nil)
	if err != nil {
		return nil, err
	}
	source, ok := registration.SourceOf(obj)
	if !ok {
		return nil, fmt.Errorf("%T is not a registration", obj)
	}
	return checked(source, obj)
}

// checked returns an object with its defaults, if it could be created through the API
// (S21.7).
func checked(source registration.Source, obj runtime.Object) (runtime.Object, error) {
	m, err := meta.Accessor(obj)
	if err != nil {
		return nil, err
	}
	scheme.Default(obj)
	internal, err := scheme.ConvertToVersion(obj, admissionregistration.SchemeGroupVersion)
	if err != nil {
		return nil, fmt.Errorf("%s %q: conversion error: %w", source, m.GetName(), err)
	}
	if errs := validate(internal); len(errs) > 0 {
		return nil, fmt.Errorf("%s %q: %w", source, m.GetName(), errs.ToAggregate())
	}
	out, err := scheme.ConvertToVersion(internal, v1.SchemeGroupVersion)
	if err != nil {
		return nil, fmt.Errorf("%s %q: back-conversion error: %w", source, m.GetName(), err)
	}
	return out, nil
}

func validate(internal runtime.Object) field.ErrorList {
	switch c := internal.(type) {
	case *admissionregistration.ValidatingWebhookConfiguration:
		return append(validation.ValidateValidatingWebhookConfiguration(c), registration.ValidateEnforcement(c, nil, named(c.Webhooks, func(w *admissionregistration.ValidatingWebhook) string { return w.Name }))...)
	case *admissionregistration.MutatingWebhookConfiguration:
		errs := append(validation.ValidateMutatingWebhookConfiguration(c), registration.ValidateOrder(c, nil)...)
		return append(errs, registration.ValidateEnforcement(c, nil, named(c.Webhooks, func(w *admissionregistration.MutatingWebhook) string { return w.Name }))...)
	case *admissionregistration.ValidatingAdmissionPolicy:
		return append(validation.ValidateValidatingAdmissionPolicy(c), registration.ValidateEnforcement(c, nil, nil)...)
	case *admissionregistration.ValidatingAdmissionPolicyBinding:
		return append(validation.ValidateValidatingAdmissionPolicyBinding(c), registration.ValidateEnforcement(c, nil, nil)...)
	case *admissionregistration.MutatingAdmissionPolicy:
		errs := append(validation.ValidateMutatingAdmissionPolicy(c), registration.ValidateOrder(c, nil)...)
		return append(errs, registration.ValidateEnforcement(c, nil, nil)...)
	case *admissionregistration.MutatingAdmissionPolicyBinding:
		return append(validation.ValidateMutatingAdmissionPolicyBinding(c), registration.ValidateEnforcement(c, nil, nil)...)
	}
	return field.ErrorList{field.InternalError(nil, fmt.Errorf("%T is not a registration", internal))}
}

// named returns the names of webhooks.
func named[W any](webhooks []W, name func(*W) string) []string {
	names := make([]string, len(webhooks))
	for i := range webhooks {
		names[i] = name(&webhooks[i])
	}
	return names
}

// allowed returns an error for an object that may not be in a file, because it needs an object of
// the API (S21.9, S21.10).
func allowed(file string, obj runtime.Object) error {
	policy := func(kind, name string, params *v1.ParamKind) error {
		if params != nil {
			return fmt.Errorf("%s %q: spec.paramKind is not supported for static manifests", kind, name)
		}
		return nil
	}
	binding := func(name, policy string, params *v1.ParamRef) error {
		switch {
		case policy == "":
			return fmt.Errorf("binding %q must reference a policy (spec.policyName)", name)
		case !registration.IsStaticName(policy):
			return fmt.Errorf("binding %q: spec.policyName %q must end with %q", name, policy, registration.StaticSuffix)
		case params != nil:
			return fmt.Errorf("binding %q: spec.paramRef is not supported for static manifests", name)
		}
		return nil
	}
	webhook := func(name, configuration string, c *v1.WebhookClientConfig) error {
		switch {
		case c.Service != nil:
			return fmt.Errorf("webhook %q in %q (file %q): clientConfig.service is not supported for static manifests; use clientConfig.url instead", name, configuration, file)
		case c.URL == nil || *c.URL == "":
			return fmt.Errorf("webhook %q in %q (file %q): clientConfig.url is required for static manifests", name, configuration, file)
		}
		return nil
	}
	switch c := obj.(type) {
	case *v1.ValidatingAdmissionPolicy:
		return policy(registration.ValidatingPolicyKind, c.Name, c.Spec.ParamKind)
	case *v1.MutatingAdmissionPolicy:
		return policy(registration.MutatingPolicyKind, c.Name, c.Spec.ParamKind)
	case *v1.ValidatingAdmissionPolicyBinding:
		return binding(c.Name, c.Spec.PolicyName, c.Spec.ParamRef)
	case *v1.MutatingAdmissionPolicyBinding:
		return binding(c.Name, c.Spec.PolicyName, c.Spec.ParamRef)
	case *v1.ValidatingWebhookConfiguration:
		for i := range c.Webhooks {
			if err := webhook(c.Webhooks[i].Name, c.Name, &c.Webhooks[i].ClientConfig); err != nil {
				return err
			}
		}
	case *v1.MutatingWebhookConfiguration:
		for i := range c.Webhooks {
			if err := webhook(c.Webhooks[i].Name, c.Name, &c.Webhooks[i].ClientConfig); err != nil {
				return err
			}
		}
	}
	return nil
}

// bound looks for the policies of all bindings, which must be in the same directory.
func (l *loading) bound() error {
	for _, m := range l.set.manifests {
		name, policy, policies := "", "", registration.Source(0)
		switch b := m.Object.(type) {
		case *v1.ValidatingAdmissionPolicyBinding:
			name, policy, policies = b.Name, b.Spec.PolicyName, registration.ValidatingPolicies
		case *v1.MutatingAdmissionPolicyBinding:
			name, policy, policies = b.Name, b.Spec.PolicyName, registration.MutatingPolicies
		default:
			continue
		}
		if _, ok := l.seen[policies][policy]; !ok {
			return fmt.Errorf("binding %q references policy %q which does not exist in the manifest directory", name, policy)
		}
	}
	return nil
}
