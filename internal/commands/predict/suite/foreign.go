package suite

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	yamlv3 "go.yaml.in/yaml/v3"
	"sigs.k8s.io/yaml"

	"github.com/gatehouse-dev/gatehouse/admission/trace"
	"github.com/gatehouse-dev/gatehouse/internal/kit/nearest"
	"github.com/gatehouse-dev/gatehouse/internal/readers/manifests"
)

// foreign is the common part of the suites of other tools.
type foreign struct {
	*Suite
	wrong []*FileError
	// objects are added to the test environment. names counts the tests by name.
	objects []*manifests.Object
	names   map[string]int
	// labels has the labels of namespaces without an object.
	labels map[string]map[string]string
	// roots are the directories that may contain files of the suite.
	roots []string
}

func newForeign(path, format string, roots []string) *foreign {
	f := &foreign{roots: roots, Suite: &Suite{File: path, Format: format, own: true, referenced: map[string]bool{}}, names: map[string]int{}, labels: map[string]map[string]string{}}
	f.extend = func(w *worldSet) {
		for _, o := range f.objects {
			// Constraints of one kind in several suites share a CRD.
			if kind := at(o.Content, "kind"); kind != "CustomResourceDefinition" || !w.has(kind, "", at(o.Content, "metadata", "name")) {
				w.Objects = append(w.Objects, o)
			}
		}
		for _, namespace := range slices.Sorted(maps.Keys(f.labels)) {
			w.namespace(namespace, f.labels[namespace])
		}
		for _, o := range f.objects {
			w.namespace(at(o.Content, "metadata", "namespace"), nil)
		}
		for _, t := range f.Tests {
			if t.Skip == "" {
				w.surround(&t.request)
			}
		}
	}
	return f
}

func (f *foreign) fail(line int, format string, args ...any) {
	f.wrong = append(f.wrong, &FileError{f.File, line, fmt.Sprintf(format, args...)})
}

// empty reports that a document has an empty list of tests (S24.21).
func (f *foreign) empty(root *yamlv3.Node, kind, list string) {
	for key := range entries(root) {
		if hint := nearest.Suggestion("", key.Value, []string{list}); hint != "" && key.Value != list {
			f.fail(key.Line, "the %s has no field %q%s", kind, key.Value, hint)
			return
		}
	}
	f.fail(root.Line, "the %s has no %s", kind, list)
}

// add adds a test, under a unique name.
func (f *foreign) add(t *Test) {
	t.Suite = f.Suite
	if f.names[t.Name]++; f.names[t.Name] > 1 {
		t.Name += fmt.Sprintf(" (%d)", f.names[t.Name])
	}
	f.Tests = append(f.Tests, t)
}

// read returns the objects of a file that a suite names.
func (f *foreign) read(line int, name string) []*manifests.Object {
	set, err := readNamed(filepath.Join(filepath.Dir(f.File), filepath.FromSlash(name)), f.roots)
	if err != nil {
		f.fail(line, "%v", err)
		return nil
	}
	for _, p := range set.Problems {
		if !p.Warning {
			f.fail(line, "%s:%d: %s", p.File, p.Line, p.Message)
		}
	}
	for i, o := range set.Objects {
		set.Objects[i] = inForce(o)
	}
	return set.Objects
}

// readResources returns the objects of files that a suite names, and notes the labels of their namespaces.
func (f *foreign) readResources(line int, names []string) (list []*manifests.Object) {
	for _, name := range names {
		list = append(list, f.read(line, name)...)
	}
	for _, o := range list {
		if at(o.Content, "kind") == "Namespace" {
			f.labels[at(o.Content, "metadata", "name")] = labelsOf(o.Content)
		}
	}
	return list
}

// inForce returns a policy or binding in the current API version. Earlier versions have the same fields. Tools without
// an API server still accept the first version, which is not served any more.
func inForce(o *manifests.Object) *manifests.Object {
	kind := at(o.Content, "kind")
	switch at(o.Content, "apiVersion") {
	case "admissionregistration.k8s.io/v1alpha1", "admissionregistration.k8s.io/v1beta1":
	default:
		return o
	}
	if !isPolicy(strings.TrimSuffix(kind, "Binding")) {
		return o
	}
	content := maps.Clone(o.Content)
	content["apiVersion"] = "admissionregistration.k8s.io/v1"
	return o.With(content)
}

// generated returns a generated object of the test environment.
func (f *foreign) generated(content map[string]any) *manifests.Object {
	o := manifests.Parse(f.File, []byte(formatted(content))).Objects[0]
	o.Line = 1
	return o
}

// binding binds a policy. params is its paramRef; nil for none.
func (f *foreign) binding(policy *manifests.Object, params map[string]any) *manifests.Object {
	kind, name := at(policy.Content, "kind"), at(policy.Content, "metadata", "name")
	spec := map[string]any{"policyName": name}
	if kind == "ValidatingAdmissionPolicy" {
		spec["validationActions"] = []any{"Deny"}
	}
	if params != nil {
		spec["paramRef"] = params
	}
	return f.generated(map[string]any{"apiVersion": at(policy.Content, "apiVersion"), "kind": kind + "Binding", "metadata": map[string]any{"name": name}, "spec": spec})
}

// has reports whether the test environment contains an object.
func (w *worldSet) has(kind, namespace, name string) bool {
	return slices.ContainsFunc(w.Objects, func(o *manifests.Object) bool {
		return at(o.Content, "kind") == kind && at(o.Content, "metadata", "name") == name && (kind == "Namespace" || at(o.Content, "metadata", "namespace") == namespace)
	})
}

func (w *worldSet) add(content map[string]any) {
	w.Objects = append(w.Objects, &manifests.Object{File: "the tests", Line: 1, Content: content})
}

// namespace adds a namespace, unless it exists.
func (w *worldSet) namespace(name string, labels map[string]string) {
	if name == "" || w.has("Namespace", "", name) ||
		labels == nil && slices.Contains([]string{"default", "kube-system", "kube-public", "kube-node-lease"}, name) {
		return
	}
	meta := map[string]any{"name": name}
	if len(labels) > 0 {
		values := map[string]any{}
		for key, value := range labels {
			values[key] = value
		}
		meta["labels"] = values
	}
	w.add(map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": meta})
}

// surround adds the namespace and the service account that a request needs.
func (w *worldSet) surround(q *request) {
	namespace := q.namespaceOf()
	if at(q.object, "kind") != "Namespace" && at(q.old, "kind") != "Namespace" {
		w.namespace(namespace, nil)
	}
	if account := at(q.object, "spec", "serviceAccountName"); at(q.object, "kind") == "Pod" && account != "" && account != "default" && !w.has("ServiceAccount", namespace, account) {
		w.add(map[string]any{"apiVersion": "v1", "kind": "ServiceAccount", "metadata": map[string]any{"name": account, "namespace": namespace}})
	}
}

// verdict is the result of one policy for a request.
type verdict struct {
	// evaluated is false if the policy did not apply.
	evaluated bool
	violated  []string
	failed    []string
	changed   bool
}

// verdictOf reads the result of a policy from a trace.
func (o *Outcome) verdictOf(policy string) verdict {
	var v verdict
	for j := range o.trace.Verdicts(false).Judged() {
		if j.Policy.Configuration != policy {
			continue
		}
		for i := range j.Evaluations {
			v.addEvaluation(&j.Evaluations[i])
		}
		for i := range j.Consequences {
			if c := &j.Consequences[i]; c.Index == nil && c.Annotation == "" {
				v.failed = append(v.failed, c.Message)
			}
		}
	}
	return v
}

func (v *verdict) addEvaluation(e *trace.EvaluationRecord) {
	v.evaluated = v.evaluated || e.FalseCondition == ""
	for i := range e.Validations {
		switch x := &e.Validations[i]; x.Verdict {
		case "violated":
			v.violated = append(v.violated, x.Message)
		case "failed":
			v.failed = append(v.failed, x.Message)
		}
	}
	if e.Error != "" {
		v.failed = append(v.failed, e.Error)
	}
	for i := range e.Mutations {
		m := &e.Mutations[i]
		v.changed = v.changed || m.Mutated
		if m.Error != "" {
			v.failed = append(v.failed, m.Error)
		}
	}
}

// unjudged returns the reason why no policy was evaluated for a request; empty if one was.
func (o *Outcome) unjudged() string {
	if o.Allowed || len(o.By) == 0 || o.By[0].Policy != "" {
		return ""
	}
	return fmt.Sprintf("the API server rejects the request before this policy decides it (%s): %s", o.By[0].Plugin, o.Message)
}

// decodeNode decodes a document into a Go value.
func decodeNode(root *yamlv3.Node, into any) error {
	data, err := marshal(root)
	if err != nil {
		return err
	}
	return yaml.Unmarshal(data, into)
}

// elementsOf returns the elements of a list, padded to the number that a decoder found.
func elementsOf(n *yamlv3.Node, count int) []*yamlv3.Node {
	var list []*yamlv3.Node
	if n.Kind == yamlv3.SequenceNode {
		for _, e := range n.Content {
			list = append(list, target(e))
		}
	}
	for len(list) < count {
		list = append(list, n)
	}
	return list
}

// strange reports a field of a mapping that is not supported, so that its test cannot be evaluated.
func strange(n *yamlv3.Node, known ...string) string {
	for key := range entries(n) {
		if !slices.Contains(known, key.Value) {
			return fmt.Sprintf("the field %q, in line %d, is not known here", key.Value, key.Line)
		}
	}
	return ""
}

// isURL reports whether a path is a URL.
func isURL(path string) bool { return strings.Contains(path, "://") }
