package offline

import (
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"reflect"
	"regexp"
	goruntime "runtime"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/util/workqueue"

	"github.com/gatehouse-dev/gatehouse/admission/plan"
	"github.com/gatehouse-dev/gatehouse/admission/registration"
	"github.com/gatehouse-dev/gatehouse/admission/snapshot"
	"github.com/gatehouse-dev/gatehouse/internal/kit/nearest"
	"github.com/gatehouse-dev/gatehouse/internal/readers/lint"
	"github.com/gatehouse-dev/gatehouse/internal/readers/manifests"
	"github.com/gatehouse-dev/gatehouse/internal/readers/report"
	"github.com/gatehouse-dev/gatehouse/internal/server/api/catalog"
)

// Objects returns the objects of all documents of a YAML or JSON file, and the items of lists. The error names the file
// and the line.
func Objects(file string, data []byte) ([]*unstructured.Unstructured, error) {
	content := manifests.Parse(file, data)
	if err := strict(content.Problems, content.Notes); err != nil {
		return nil, err
	}
	list := make([]*unstructured.Unstructured, len(content.Objects))
	for i, o := range content.Objects {
		list[i] = o.Unstructured()
	}
	return list, nil
}

// strict returns an error for the first part of a file that is not an object.
func strict(problems []manifests.Problem, notes []manifests.Note) error {
	for _, p := range problems {
		if !p.Warning {
			return errors.New(report.Place(p.File, p.Line, 0) + ": " + p.Message)
		}
	}
	for _, n := range notes {
		if n.Line > 0 {
			return errors.New(report.Place(n.File, n.Line, 0) + ": " + n.Message)
		}
	}
	return nil
}

// files has the content of the files.
type files struct {
	manifests.Places
	namespaces map[string]*corev1.Namespace
	kinds      *Kinds
	stored     []*manifests.Object
	// written has the written form of registrations, for lint rules. static are the registrations that only manifest
	// files can have.
	static  []snapshot.Manifest
	written map[lint.Object]lint.Written
	// acceptances are the comments that accept findings, and patched are the objects that kustomizations change.
	acceptances []manifests.Acceptance
	patched     []manifests.Patch
	// unused are the files that no kustomization reads, each with the kustomization beside it.
	unused map[string]string
	// kustomized is set if a file configures kustomize.
	kustomized bool
	// set has the files of roots, for lint rules.
	set   *manifests.Set
	roots []string
}

// Read makes a World of files, and of the .yaml, .yml and .json files of directories. Registrations must be valid.
// Errors name the file and the line.
func Read(paths []string) (*World, error) {
	set, err := readStrictly(paths)
	if err != nil {
		return nil, err
	}
	return assemble(set, nil)
}

// ReadTried reads policies and their bindings, which must be valid, from files and directories. tried is for
// World.Tried, and written has the objects as in the files. Errors name the file and the line.
func ReadTried(paths []string) (tried []runtime.Object, written []*unstructured.Unstructured, err error) {
	set, err := readStrictly(paths)
	if err != nil {
		return nil, nil, err
	}
	for _, d := range set.Objects {
		u := d.Unstructured()
		if !slices.ContainsFunc(registration.Sources(), func(s registration.Descriptor) bool {
			return (s.Policies || s.Binds) && s.Kind == u.GetKind() && u.GroupVersionKind().Group == registration.GroupName
		}) {
			return nil, nil, fmt.Errorf("%s: %s %q is neither a policy nor a binding of a policy, and only these can be tried", d.At(), u.GetKind(), u.GetName())
		}
		written = append(written, u)
	}
	w, err := assemble(set, nil)
	if err != nil {
		return nil, nil, err
	}
	if len(written) == 0 {
		return nil, nil, fmt.Errorf("there is no policy in %s", strings.Join(paths, ", "))
	}
	return w.Registrations.Objects, written, nil
}

// ObjectsIn returns the objects of the files in a directory. It skips documents that are not objects.
func ObjectsIn(dir string) (list []*unstructured.Unstructured, err error) {
	set, err := read([]string{dir}, nil, &manifests.Ignore{})
	if err == nil {
		err = strict(set.Problems, nil)
	}
	if err != nil {
		return nil, err
	}
	return set.Unstructured(), nil
}

// readStrictly reads files that must contain only objects.
func readStrictly(paths []string) (*manifests.Set, error) {
	set, err := read(paths, nil, &manifests.Ignore{})
	if err == nil {
		err = strict(set.Problems, set.Notes)
	}
	return set, err
}

func read(paths []string, in io.Reader, ignore *manifests.Ignore) (*manifests.Set, error) {
	set, err := manifests.ReadBut(ignore, paths, in)
	if err == nil && len(set.Files)+len(set.Notes)+len(set.Problems) == 0 {
		err = fmt.Errorf("%s has no .yaml, .yml or .json files", strings.Join(paths, ", "))
	}
	return set, err
}

// Survey makes a World of files that may have faults, for commands that report these faults. The path - is read from
// in. Survey keeps the faults of registrations for World.Lint. It skips documents that are not API objects, and lists
// them in skipped. It also skips files of a directory that cannot be read or parsed, and lists them in unread. The
// error is about a path in paths.
func Survey(paths []string, in io.Reader, ignore *manifests.Ignore) (w *World, skipped, unread []string, err error) {
	set, err := read(paths, in, ignore)
	if err != nil {
		return nil, nil, nil, err
	}
	broken := map[string]bool{}
	for _, p := range set.Problems {
		text := report.Place(p.File, p.Line, 0) + ": " + p.Message
		switch {
		case p.Warning:
			skipped = append(skipped, text)
		case slices.Contains(paths, p.File) || slices.Contains(paths, manifests.Stdin) && !slices.Contains(set.Files, p.File):
			return nil, nil, nil, errors.New(text)
		case !broken[p.File]:
			broken[p.File] = true
			unread = append(unread, text)
		}
	}
	for _, n := range set.Notes {
		skipped = append(skipped, report.Place(n.File, n.Line, 0)+": "+n.Message)
	}
	variants, left := variantsOf(set.Objects)
	var worlds []*World
	for i, objects := range variants {
		one := *set
		one.Objects = objects
		// Documents that cannot be used are the same in all variants.
		faults := &skipped
		if i > 0 {
			faults = &[]string{}
		}
		w, err := assemble(&one, faults)
		if err != nil {
			return nil, nil, nil, err
		}
		w.files.acceptances, w.files.patched, w.files.unused, w.files.kustomized = set.Acceptances, set.Patched, set.Unused, set.Kustomized
		w.files.set, w.files.roots = set, paths
		worlds = append(worlds, w)
	}
	w = worlds[0]
	w.variants = worlds[1:]
	return w, append(skipped, left...), unread, nil
}

// Acceptances returns the comments of the files that accept findings.
func (w *World) Acceptances() []manifests.Acceptance {
	if w.files == nil {
		return nil
	}
	return w.files.acceptances
}

// hollow is 1 for a webhook configuration without webhooks, and 0 for every other object.
func hollow(o *manifests.Object) int {
	kind := o.Content["kind"]
	if webhooks, _ := o.Content["webhooks"].([]any); len(webhooks) == 0 && (kind == registration.MutatingKind || kind == registration.ValidatingKind) {
		return 1
	}
	return 0
}

// assemble makes a World from a set. If skipped is not nil, it collects errors there instead of returning them.
func assemble(set *manifests.Set, skipped *[]string) (*World, error) {
	all := set.Objects
	f := &files{namespaces: map[string]*corev1.Namespace{}, kinds: Builtin(), written: map[lint.Object]lint.Written{}}
	w := &World{
		Kinds: f.kinds, RightsUnknown: "files do not have the rights of the user", UserUnknown: "the user is not known: name one with --as",
		files: f,
	}
	pass := func(err error) error {
		if skipped == nil {
			return err
		}
		*skipped = append(*skipped, err.Error())
		return nil
	}
	if skipped != nil {
		// A patch that no kustomization applies has the name of a configuration, and no webhooks.
		all = slices.Clone(all)
		slices.SortStableFunc(all, func(a, b *manifests.Object) int { return cmp.Compare(hollow(a), hollow(b)) })
	}
	registrations := make([]parsed, len(all))
	workqueue.ParallelizeUntil(context.Background(), goruntime.GOMAXPROCS(0), len(all), func(i int) {
		if u := all[i].Unstructured(); u.GroupVersionKind().Group == registration.GroupName {
			r := &registrations[i]
			r.object, r.errs, r.err = parse(u)
		}
	})
	for i, d := range all {
		u := d.Unstructured()
		gvk := u.GroupVersionKind()
		var err error
		switch {
		case gvk.Group == registration.GroupName:
			err = f.register(w, d, &registrations[i], skipped)
		case gvk.GroupKind() == schema.GroupKind{Kind: "Namespace"}:
			// The defaults include a label with the namespace's name.
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
	w.Notes = append(w.Notes, "built-in plugins of the server are not part of this plan: files do not list them")
	w.Namespace = f.namespace
	w.Params = f
	w.Stored = f.find
	return w, nil
}

// definitions is the kind of CRDs.
var definitions = schema.GroupKind{Group: "apiextensions.k8s.io", Kind: "CustomResourceDefinition"}

var certificates = schema.GroupKind{Group: "cert-manager.io", Kind: "Certificate"}

// parsed is the result of parse.
type parsed struct {
	object runtime.Object
	errs   field.ErrorList
	err    error
}

// register adds a registration. If skipped is not nil, it also keeps the faults of the registration.
func (f *files) register(w *World, d *manifests.Object, p *parsed, skipped *[]string) error {
	u := d.Unstructured()
	if other := f.Find(u.GetKind(), u.GetName()); other != nil && p.err == nil {
		return fmt.Errorf("%s: %s %q is at %s, too", d.At(), u.GetKind(), u.GetName(), other.At())
	}
	if skipped != nil {
		if isPatch(u) {
			*skipped = append(*skipped, fmt.Sprintf("%s: %s %q is a patch: it has no clientConfig", d.At(), u.GetKind(), u.GetName()))
			return nil
		}
		written := writtenOf(u)
		written.APIVersion, written.Fields = u.GetAPIVersion(), fieldsOf(u)
		rendered := true
		sound := func() bool { return p.err == nil && len(p.errs) == 0 }
		if !sound() || dummies(u) {
			var places []string
			// Placeholders of other fields than caBundle may be values that an API server takes.
			for _, field := range []string{".caBundle", ""} {
				replaced, found := placeholders(u, field)
				if len(found) == 0 {
					continue
				}
				p, places, rendered = &parsed{}, found, field != ""
				if p.object, p.errs, p.err = parse(replaced); sound() {
					break
				}
			}
			if slices.ContainsFunc(places, func(at string) bool { return strings.HasPrefix(at, "webhooks") && !strings.HasSuffix(at, ".caBundle") }) {
				// Another kustomization replaces the placeholder of cert-manager, too.
				written.Injection = ""
			}
			for _, at := range places {
				*skipped = append(*skipped, fmt.Sprintf("%s: %s of %s %q is a placeholder", d.At(), at, u.GetKind(), u.GetName()))
			}
		}
		for _, e := range p.errs {
			written.Invalid = append(written.Invalid, lint.Invalid{Field: e.Field, Message: e.Error()})
		}
		if p.err != nil {
			written.Invalid = append(written.Invalid, illegible(u, p.err))
		}
		written.Unknown = unknownFields(u)
		written.PolicyName, _, _ = unstructured.NestedString(u.Object, "spec", "policyName")
		f.Add(d)
		f.written[lint.Object{Kind: u.GetKind(), Name: u.GetName()}] = written
		// Rules cannot evaluate an object with other placeholders.
		if len(written.Invalid) == 0 && rendered {
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
	f.Add(d)
	f.add(w, d, p.object)
	return nil
}

// isPatch reports whether a registration is a patch of one: its webhooks have fields beside their names, and none that
// each webhook needs, or it has no webhooks and a placeholder in an annotation.
func isPatch(u *unstructured.Unstructured) bool {
	webhooks, _ := u.Object["webhooks"].([]any)
	changes := false
	for _, value := range u.GetAnnotations() {
		changes = changes || u.Object["webhooks"] == nil && u.Object["spec"] == nil && placeholder.MatchString(value)
	}
	for _, one := range webhooks {
		webhook, _ := one.(map[string]any)
		if webhook["clientConfig"] != nil || webhook["admissionReviewVersions"] != nil || webhook["sideEffects"] != nil || webhook["rules"] != nil {
			return false
		}
		changes = changes || len(webhook) > 1
	}
	return changes
}

// illegible describes why a registration cannot be read: the field with a value of another type, such as a name of n,
// which is a boolean in YAML 1.1, or else err.
func illegible(u *unstructured.Unstructured, err error) lint.Invalid {
	obj, failed := catalog.Scheme.New(u.GroupVersionKind())
	if failed != nil {
		return lint.Invalid{Message: err.Error()}
	}
	data, failed := u.MarshalJSON()
	var wrong *json.UnmarshalTypeError
	if failed != nil || !errors.As(json.Unmarshal(data, obj), &wrong) {
		return lint.Invalid{Message: err.Error()}
	}
	message := fmt.Sprintf("%s has a value of type %s, and takes a %s", wrong.Field, wrong.Value, wrong.Type)
	if wrong.Type.Kind() == reflect.String {
		message += ": put it in quotes"
	}
	// The field has no indices, so that its place ends at the first list.
	var place []string
	at, inside := u.Object, true
	for part := range strings.SplitSeq(wrong.Field, ".") {
		if inside {
			place = append(place, part)
			at, inside = at[part].(map[string]any)
		}
	}
	return lint.Invalid{Field: strings.Join(place, "."), Message: message}
}

// unknownFields returns the fields that the kind of a registration of Kubernetes does not have, with suggestions.
func unknownFields(u *unstructured.Unstructured) (list []lint.Invalid) {
	obj, err := catalog.Scheme.New(u.GroupVersionKind())
	if err != nil {
		return nil
	}
	strict, ok := runtime.AsStrictDecodingError(runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(u.Object, obj, true))
	if !ok {
		return nil
	}
	names := jsonNames(reflect.TypeOf(obj).Elem(), map[reflect.Type]bool{})
	for _, e := range strict.Errors() {
		quoted, ok := strings.CutPrefix(e.Error(), "unknown field ")
		name, err := strconv.Unquote(quoted)
		// Objects of Gatehouse have this field.
		if !ok || err != nil || strings.HasPrefix(name, "metadata.initializers") {
			continue
		}
		last := name[strings.LastIndex(name, ".")+1:]
		list = append(list, lint.Invalid{Field: name, Message: nearest.Suggestion("", last, names)})
	}
	return list
}

// jsonNames returns the names of the fields of a type and of the types of its fields.
func jsonNames(t reflect.Type, seen map[reflect.Type]bool) (names []string) {
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Map:
		return jsonNames(t.Elem(), seen)
	case reflect.Struct:
	default:
		return nil
	}
	if seen[t] {
		return nil
	}
	seen[t] = true
	for i := range t.NumField() {
		if name, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ","); name != "" && name != "-" {
			names = append(names, name)
		}
		names = append(names, jsonNames(t.Field(i).Type, seen)...)
	}
	return names
}

// fieldsOf returns the fields of the webhooks of a configuration or a CRD, each with whether it has a value.
func fieldsOf(u *unstructured.Unstructured) map[string]bool {
	fields := map[string]bool{}
	add := func(at string, content map[string]any) {
		for name, value := range content {
			fields[at+"."+name] = value != nil && value != ""
		}
	}
	webhooks, _ := u.Object["webhooks"].([]any)
	for i, one := range webhooks {
		webhook, _ := one.(map[string]any)
		client, _ := webhook["clientConfig"].(map[string]any)
		at := fmt.Sprintf("webhooks[%d]", i)
		add(at, webhook)
		add(at+".clientConfig", client)
		if text, _ := client["caBundle"].(string); placeholder.MatchString(text) || isDummy(text) {
			fields[at+".clientConfig.caBundle"] = false
		}
	}
	conversion, _, _ := unstructured.NestedMap(u.Object, "spec", "conversion", "webhook", "clientConfig")
	add("spec.conversion.webhook.clientConfig", conversion)
	return fields
}

// placeholder matches the parts of a value that a script, kustomize or a template replaces.
var placeholder = regexp.MustCompile(`<[A-Za-z][\w. -]*>|\$\([^()]*\)|\$\{[\w.:-]+\}|\{\{[^{}]*\}\}|__[A-Z][A-Z0-9]*(_[A-Z0-9]+)*__`)

// dummy matches a caBundle for a script to replace, which can be valid base64: words, and no name of a file.
var dummy = regexp.MustCompile(`(?i)^([$%@_{\[.(]+[\w -]+[\]})%@_]*|[\w -]*(ca|cert|bundle|pem|base64|change|replace|inject|insert|tbd|placeholder|dummy|your)[\w -]*|x+)$`)

// isDummy reports whether a caBundle is too short for a certificate, and words or, as in the files of kubebuilder, an
// encoded line break.
func isDummy(text string) bool {
	if len(text) >= 100 {
		return false
	}
	data, err := base64.StdEncoding.DecodeString(text)
	return dummy.MatchString(text) || err == nil && text != "" && len(bytes.TrimSpace(data)) == 0
}

// dummies reports whether a webhook has such a caBundle.
func dummies(u *unstructured.Unstructured) bool {
	webhooks, _ := u.Object["webhooks"].([]any)
	return slices.ContainsFunc(webhooks, func(one any) bool {
		webhook, _ := one.(map[string]any)
		client, _ := webhook["clientConfig"].(map[string]any)
		text, _ := client["caBundle"].(string)
		return isDummy(text)
	})
}

// placeholders returns an object with a valid value instead of each placeholder in fields whose path ends as given, and
// the paths of the placeholders.
func placeholders(u *unstructured.Unstructured, end string) (replaced *unstructured.Unstructured, places []string) {
	replaced = u.DeepCopy()
	var visit func(at string, value any) any
	visit = func(at string, value any) any {
		switch value := value.(type) {
		case map[string]any:
			for _, name := range slices.Sorted(maps.Keys(value)) {
				value[name] = visit(strings.TrimPrefix(at+"."+name, "."), value[name])
			}
		case []any:
			for i := range value {
				value[i] = visit(fmt.Sprintf("%s[%d]", at, i), value[i])
			}
		case string:
			bundle := strings.HasSuffix(at, ".caBundle")
			if !strings.HasSuffix(at, end) || strings.HasSuffix(strings.ToLower(at), "expression") || !placeholder.MatchString(value) && !(bundle && isDummy(value)) {
				return value
			}
			places = append(places, at)
			if bundle || placeholder.FindString(value) == value && !strings.Contains(strings.ToLower(at), "name") {
				return nil
			}
			return placeholder.ReplaceAllString(value, "placeholder")
		}
		return value
	}
	visit("", replaced.Object)
	return replaced, places
}

// add adds an object to the registrations. Only manifest files of a server may use names with the static suffix
// (S21.8).
func (f *files) add(w *World, d *manifests.Object, object runtime.Object) {
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

// find returns an object of the files, in any version.
func (f *files) find(_ context.Context, kind *Kind, namespace, name string) (*unstructured.Unstructured, error) {
	for _, d := range f.stored {
		u := d.Unstructured()
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

// errNoObject reports that a request lacks its object.
var errNoObject = errors.New("the request has no object")
