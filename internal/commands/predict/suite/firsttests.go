package suite

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/google/cel-go/common/ast"
	yamlv3 "go.yaml.in/yaml/v3"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"github.com/gatehouse-dev/gatehouse/internal/commands/predict/stage"
	"github.com/gatehouse-dev/gatehouse/internal/commands/predict/suite/solve"
	"github.com/gatehouse-dev/gatehouse/internal/kit/emulation"
	"github.com/gatehouse-dev/gatehouse/internal/readers/manifests"
)

const (
	mutatingPolicy = "MutatingAdmissionPolicy"
	bindingSuffix  = "Binding"
)

// FirstOptions configure the first tests of policies.
type FirstOptions struct {
	// Root is the folder with the bindings, params and definitions of the policies; empty for the folder of the file.
	Root string
	// All makes the whole folder the test environment, and otherwise the files with objects that the policies need.
	All bool
	// Gatehouse and Fields have the meaning of the fields in stage.Options.
	Gatehouse bool
	Fields    *emulation.Fields
}

// FirstFile returns the name of the file for the first tests of the policies in a file.
func FirstFile(file string) string {
	return strings.TrimSuffix(file, filepath.Ext(file)) + "-tests.yaml"
}

// PolicyFiles returns the files with policies in a folder, in order.
func PolicyFiles(dir string) (list []string, err error) {
	set, err := world([]*Suite{{File: filepath.Join(dir, "tests.yaml"), paths: []string{dir}}})
	if err != nil {
		return nil, err
	}
	for _, o := range set.Objects {
		if isPolicy(at(o.Content, "kind")) && !slices.Contains(list, o.File) {
			list = append(list, o.File)
		}
	}
	slices.Sort(list)
	return list, nil
}

// First writes the first tests of the policies in a file: an allowed request for each validating policy, a rejected one for
// each validation, and a changed and an unchanged request for each mutation. A server evaluates every request before it is
// written. A missing request is a comment.
func First(ctx context.Context, file string, o FirstOptions) (text []byte, err error) {
	dir := cmp.Or(o.Root, filepath.Dir(file))
	s := &Suite{File: FirstFile(file), Format: "gatehouse", paths: []string{dir}, referenced: map[string]bool{}}
	set, err := world([]*Suite{s})
	if err != nil {
		return nil, err
	}
	n := &needed{set: set.Set, file: filepath.Clean(file), root: filepath.Clean(dir), files: map[string]bool{}}
	if n.find(); len(n.policies) == 0 {
		return nil, &FileError{file, 0, "the file has no ValidatingAdmissionPolicy and no MutatingAdmissionPolicy to make tests for"}
	}
	var all, documents strings.Builder
	for _, d := range n.namespaces() {
		documents.WriteString("---\n" + formatted(d))
	}
	around := set.Set
	if !o.All {
		around = n.only()
	}
	around.Objects = append(around.Objects, manifests.Parse(s.File, []byte(documents.String())).Objects...)
	w, err := stage.Open(ctx, stage.Options{Webhooks: true, Gatehouse: o.Gatehouse, Fields: o.Fields})
	if err != nil {
		return nil, fmt.Errorf("starting a server to try requests with: %w", err)
	}
	defer w.Close()
	if _, err := load(ctx, w, around); err != nil {
		return nil, err
	}
	for _, policy := range n.policies {
		f := &firstTests{ctx: ctx, stage: w, suite: s, set: around, policy: policy, name: at(policy.Content, "metadata", "name"), labelled: map[string]map[string]string{}}
		if err := f.write(dir); err != nil {
			return nil, err
		}
		all.WriteString(f.text.String())
		for _, d := range f.documents {
			documents.WriteString("---\n" + formatted(d))
		}
	}
	if !strings.Contains("\n"+all.String(), "\n- ") {
		return nil, &FileError{file, 0, "no test could be made:\n" + strings.ReplaceAll(strings.TrimSpace(all.String()), "# Missing: ", "")}
	}
	head := fmt.Sprintf("# Made by 'gatehouse test --init'. A server decided each request as its test expects.\napiVersion: %s\nkind: %s\n", ownVersion, ownKind)
	if !o.All {
		head += "world:\n"
		if documents.Len() > 0 {
			n.files[s.File] = true
		}
		for _, name := range slices.Sorted(maps.Keys(n.files)) {
			if relative, err := filepath.Rel(filepath.Dir(s.File), name); err == nil {
				name = filepath.ToSlash(relative)
			}
			head += "- " + quoted(name) + "\n"
		}
	}
	return []byte(head + "tests:\n" + all.String() + documents.String()), nil
}

// firstTests makes the tests of a policy.
type firstTests struct {
	ctx    context.Context
	stage  *stage.Stage
	suite  *Suite
	set    *manifests.Set
	policy *manifests.Object
	name   string
	text   strings.Builder
	// binding is the binding that the requests are for.
	binding *manifests.Object
	solver  *solve.Solver
	// conditions and validations are the expressions of the policy; an expression that cannot be parsed is nil.
	conditions, validations []ast.Expr
	subjects                []*requestKind
	// labelled are the labels that namespaces have got.
	labelled map[string]map[string]string
	// param are the params that the policy gets; nil if it has none. documents are objects for the test environment.
	param     *solve.Document
	documents []map[string]any
	// mutationsOf are the expressions of the mutations.
	mutationsOf []ast.Expr
}

func (f *firstTests) remark(format string, args ...any) {
	fmt.Fprintf(&f.text, "# Missing: %s.\n", strings.ReplaceAll(fmt.Sprintf(format, args...), "\n", " "))
}

// read parses the expressions of the policy.
func (f *firstTests) read() {
	f.conditions, f.validations = expressions(f.policy, "matchConditions"), expressions(f.policy, "validations")
	f.mutationsOf = expressions(f.policy, "mutations")
	f.solver = solve.New(slices.DeleteFunc(slices.Concat(f.conditions, f.validations, f.mutationsOf), func(e ast.Expr) bool { return e == nil })...)
}

// expressions parses the expressions in a list of a policy; an expression that cannot be parsed is nil.
func expressions(policy *manifests.Object, field string) (list []ast.Expr) {
	var variables []solve.Variable
	for _, v := range mappings(walk(policy.Content, "spec", "variables")) {
		variables = append(variables, solve.Variable{Name: at(v, "name"), Expression: at(v, "expression")})
	}
	for _, v := range mappings(walk(policy.Content, "spec", field)) {
		text := cmp.Or(at(v, "expression"), at(v, "applyConfiguration", "expression"), at(v, "jsonPatch", "expression"))
		list = append(list, solve.Parse(text, variables))
	}
	return list
}

// list returns a list of objects in the spec of the policy.
func (f *firstTests) list(field string) []map[string]any {
	return mappings(walk(f.policy.Content, "spec", field))
}

func mappings(list any) (out []map[string]any) {
	elements, _ := list.([]any)
	for _, e := range elements {
		m, _ := e.(map[string]any)
		out = append(out, m)
	}
	return out
}

func textsOf(list any) (texts []string) {
	values, _ := list.([]any)
	for _, v := range values {
		if text, ok := v.(string); ok {
			texts = append(texts, text)
		}
	}
	return texts
}

// bindings returns the bindings of the policy; bindings that reject requests are first.
func (f *firstTests) bindings() (list []*manifests.Object) {
	kind := at(f.policy.Content, "kind") + bindingSuffix
	for _, o := range f.set.Objects {
		if at(o.Content, "kind") == kind && at(o.Content, "spec", "policyName") == f.name {
			list = append(list, o)
		}
	}
	rank := func(o *manifests.Object) int {
		actions := textsOf(walk(o.Content, "spec", "validationActions"))
		return slices.IndexFunc([]bool{slices.Contains(actions, "Deny"), slices.Contains(actions, "Warn"), true}, func(is bool) bool { return is })
	}
	slices.SortStableFunc(list, func(a, b *manifests.Object) int { return cmp.Compare(rank(a), rank(b)) })
	return list
}

// written is a test, and the attempt that it records.
type written struct {
	name    string
	comment string
	sj      *requestKind
	st      *solve.State
	expect  map[string]any
}

// maxBindings bounds the bindings of a policy for which requests are tried.
const maxBindings = 4

// write writes the tests of the policy, for the first of its bindings whose requests it evaluates.
func (f *firstTests) write(dir string) error {
	bindings := f.bindings()
	if len(bindings) == 0 {
		f.remark("no binding of %s is in %s, and a policy without one evaluates no request", f.name, dir)
		return nil
	}
	f.read()
	why := ""
	for _, b := range bindings[:min(len(bindings), maxBindings)] {
		f.binding, f.documents = b, nil
		tests, missing, reason, err := f.requests()
		if err != nil {
			return err
		}
		if len(tests) == 0 {
			why = cmp.Or(why, reason)
			continue
		}
		for _, t := range tests {
			if err := f.keep(t); err != nil {
				return err
			}
		}
		for _, m := range missing {
			f.remark("%s", m)
		}
		return nil
	}
	f.remark("%s: %s", f.name, cmp.Or(why, "no request was found that it evaluates; write one"))
	return nil
}

// requests finds the requests of the policy. why is the reason if there are none.
func (f *firstTests) requests() (tests []written, missing []string, why string, err error) {
	if f.subjects, why = f.subjectsOf(); len(f.subjects) == 0 {
		return nil, nil, why, nil
	}
	if why, err = f.provide(); why != "" || err != nil {
		return nil, nil, why, err
	}
	if at(f.policy.Content, "kind") == mutatingPolicy {
		tests, missing, err = f.mutations()
		if len(tests) == 0 {
			why = f.unmade()
		}
		return tests, missing, why, err
	}
	allowed, err := f.allowed()
	if err != nil {
		return nil, nil, "", err
	}
	if allowed != nil {
		tests = append(tests, written{name: f.name + " allows", sj: allowed.sj, st: allowed.st, expect: map[string]any{"allowed": true}})
	} else {
		missing = append(missing, f.name+": no request was found that it evaluates and allows"+f.never()+"; write one")
	}
	for i, v := range f.list("validations") {
		a, err := f.rejected(i)
		if err != nil {
			return nil, nil, "", err
		}
		if a == nil {
			missing = append(missing, fmt.Sprintf("%s: no request was found that spec.validations[%d] rejects alone or first (%s); write one", f.name, i, shorten(strings.Join(strings.Fields(at(v, "expression")), " "))))
			continue
		}
		tests = append(tests, f.rejection(a, i))
	}
	if len(tests) == 0 {
		why = f.unmade()
	}
	return tests, missing, why, nil
}

// unmade returns the reason why the API rejects the smallest request of each kind; empty if it accepts one.
func (f *firstTests) unmade() string {
	unmade := slices.DeleteFunc(slices.Clone(f.subjects), func(sj *requestKind) bool { return sj.why == "" })
	if len(unmade) == 0 || len(unmade) < len(f.subjects) {
		return ""
	}
	return fmt.Sprintf("no %s was found that the API accepts (%s); write tests with one", unmade[0].kind.Kind.Kind, shorten(unmade[0].why))
}

// never returns the part of a sentence about a validation that no request meets; empty if there is none.
func (f *firstTests) never() string {
	for i, e := range f.validations {
		if e != nil && solve.IsFalse(e) {
			return fmt.Sprintf(", because spec.validations[%d] is always false", i)
		}
	}
	return ""
}

// rejection returns the test of a request that a validation rejects.
func (f *firstTests) rejection(a *attempt, i int) written {
	t := written{name: fmt.Sprintf("%s rejects by spec.validations[%d]", f.name, i), sj: a.sj, st: a.st}
	message, failed := a.violated[i], false
	if message == "" {
		message, failed = a.failed[i], true
	}
	if failed {
		t.name = fmt.Sprintf("%s rejects because spec.validations[%d] fails", f.name, i)
		t.comment = "# The expression ends with an error: " + shorten(strings.Join(strings.Fields(message), " "))
	}
	message = strings.TrimSpace(message)
	actions := textsOf(walk(f.binding.Content, "spec", "validationActions"))
	switch {
	case !a.allowed:
		by := map[string]any{"policy": f.name}
		if len(f.validations) > 1 {
			by["validation"] = int64(i)
		}
		t.expect = map[string]any{"allowed": false, "by": by}
		if !failed {
			t.expect["message"] = map[string]any{"contains": message}
		}
	case slices.Contains(actions, "Warn"):
		t.name = fmt.Sprintf("%s warns by spec.validations[%d]", f.name, i)
		var warnings []any
		for _, w := range a.warnings {
			warnings = append(warnings, w)
		}
		t.expect = map[string]any{"allowed": true, "warnings": warnings}
	default:
		t.name = fmt.Sprintf("%s audits spec.validations[%d]", f.name, i)
		t.expect = map[string]any{"allowed": true, "auditAnnotations": map[string]any{"validation.policy.admission.k8s.io/validation_failure": map[string]any{"contains": fmt.Sprintf("%q", message)[1:]}}}
	}
	return t
}

// keep writes a test, or a comment if the test does not pass.
func (f *firstTests) keep(t written) error {
	text := f.format(t)
	test, err := f.parse(text)
	if err != nil {
		return err
	}
	o, err := f.judge(test, t.st, false)
	if err != nil {
		return err
	}
	why := "it cannot be made again"
	if o != nil {
		failures := test.compare(o)
		if len(failures) == 0 {
			f.text.WriteString(text)
			return nil
		}
		why = failures[0].Field + " is " + failures[0].Got
	}
	f.remark("%s: the test %q did not pass (%s); write one", f.name, t.name, shorten(why))
	return nil
}

// format formats a test.
func (f *firstTests) format(t written) string {
	var b strings.Builder
	if t.comment != "" {
		b.WriteString(t.comment + "\n")
	}
	// The fields are in the order in which people write them.
	fmt.Fprintf(&b, "- name: %s\n", quoted(t.name))
	for _, part := range []map[string]any{{"request": t.sj.request(f, t.st)}, {"expect": t.expect}} {
		for line := range strings.Lines(formatted(part)) {
			b.WriteString("  " + line)
		}
	}
	return b.String()
}

// formatted returns content as YAML.
func formatted(content map[string]any) string {
	data, err := yaml.Marshal(content)
	if err != nil {
		panic(fmt.Sprintf("suite: content that was made: %v", err))
	}
	return string(data)
}

// plainName matches a name that YAML reads as written.
var plainName = regexp.MustCompile(`^[A-Za-z][\w./\[\] -]*$`)

func quoted(name string) string {
	if plainName.MatchString(name) {
		return name
	}
	return strconv.Quote(name)
}

// parse reads a test that was made.
func (f *firstTests) parse(text string) (*Test, error) {
	root := &yamlv3.Node{}
	if err := yamlv3.Unmarshal([]byte(text), root); err != nil {
		return nil, err
	}
	s := *f.suite
	s.Tests = nil
	p := &parser{decoder: decoder{file: s.File}, suite: &s}
	p.elements(root.Content[0], "tests", p.test)
	if len(p.errors) > 0 {
		return nil, p.errors[0]
	}
	return s.Tests[0], nil
}

// request returns the request of a test.
func (sj *requestKind) request(f *firstTests, st *solve.State) map[string]any {
	out := map[string]any{}
	add := func(field, root string) {
		if d := st.Documents[root]; d != nil && d.Sent != nil {
			object := runtime.DeepCopyJSON(d.Sent)
			if meta, ok := object["metadata"].(map[string]any); ok && meta["namespace"] == corev1.NamespaceDefault {
				delete(meta, "namespace")
			}
			out[field] = object
		}
	}
	add("object", solve.Object)
	add("oldObject", solve.OldObject)
	if sj.parent != nil {
		out["oldObject"] = sj.parent
	}
	if sj.sub != "" {
		out["subresource"] = sj.sub
	}
	if labels := f.labelsOf(st); labels != nil {
		made := map[string]any{}
		for key, value := range labels {
			made[key] = value
		}
		out["namespaceLabels"] = made
	}
	if u := st.Info(); !slices.Equal(u.Groups, (&solve.State{User: solve.Administrator()}).Info().Groups) || u.Name != administrator.Name || len(u.Extra) > 0 || u.UID != "" {
		made := map[string]any{"name": u.Name}
		if len(u.Groups) > 0 {
			made["groups"] = st.User["groups"]
		}
		if u.UID != "" {
			made["uid"] = u.UID
		}
		if len(u.Extra) > 0 {
			made["extra"] = st.User["extra"]
		}
		out["user"] = made
	}
	return out
}

// labelsOf returns the labels that a test gives to the namespace of its request; nil if it needs none.
func (f *firstTests) labelsOf(st *solve.State) map[string]string {
	if st.Namespace == "" {
		return nil
	}
	known, there := f.namespaces()[st.Namespace]
	if there && maps.Equal(known, st.Labels) {
		return nil
	}
	labels := maps.Clone(st.Labels)
	if labels == nil {
		labels = map[string]string{}
	}
	return labels
}

// namespaces returns the labels of the namespaces of the test environment.
func (f *firstTests) namespaces() map[string]map[string]string {
	out := map[string]map[string]string{}
	for _, name := range stage.Everywhere {
		out[name] = nil
	}
	for _, o := range f.set.Objects {
		if at(o.Content, "kind") == "Namespace" && at(o.Content, "apiVersion") == "v1" {
			out[at(o.Content, "metadata", "name")] = o.Unstructured().GetLabels()
		}
	}
	return out
}
