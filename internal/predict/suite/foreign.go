package suite

import (
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	yamlv3 "go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/authentication/user"
	"sigs.k8s.io/yaml"

	"github.com/gatehouse-dev/gatehouse/admission/trace"
	"github.com/gatehouse-dev/gatehouse/internal/manifests"
)

// foreign is what the suites of other tools have in common.
type foreign struct {
	*Suite
	wrong []*FileError
	// objects are added to the world. names are the tests there are.
	objects []*manifests.Object
	names   map[string]int
}

func newForeign(path, format string) *foreign {
	f := &foreign{Suite: &Suite{File: path, Format: format, own: true, referenced: map[string]bool{}}, names: map[string]int{}}
	f.extend = func(w *worldSet) {
		w.Objects = append(w.Objects, f.objects...)
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

// add adds a test, under a name of its own.
func (f *foreign) add(t *Test) {
	t.Suite = f.Suite
	if f.names[t.Name]++; f.names[t.Name] > 1 {
		t.Name += fmt.Sprintf(" (%d)", f.names[t.Name])
	}
	f.Tests = append(f.Tests, t)
}

// read returns the objects of a file that a suite names.
func (f *foreign) read(line int, name string) []*manifests.Object {
	set, err := manifests.Read([]string{filepath.Join(filepath.Dir(f.File), filepath.FromSlash(name))}, nil)
	if err != nil {
		f.fail(line, "%v", err)
		return nil
	}
	for _, p := range set.Problems {
		if !p.Warning {
			f.fail(line, "%s:%d: %s", p.File, p.Line, p.Message)
		}
	}
	return set.Objects
}

// made is an object of the world that no file has.
func (f *foreign) made(content map[string]any) *manifests.Object {
	data, err := yaml.Marshal(content)
	if err != nil {
		panic(fmt.Sprintf("suite: an object that was made: %v", err))
	}
	o := manifests.Parse(f.File, data).Objects[0]
	o.Line = 1
	return o
}

// surround adds what a request needs around its object: the namespace and the service account.
func (w *worldSet) surround(q *request) {
	there := func(kind, namespace, name string) bool {
		return slices.ContainsFunc(w.Objects, func(o *manifests.Object) bool {
			return at(o.Content, "kind") == kind && at(o.Content, "metadata", "name") == name && (kind == "Namespace" || at(o.Content, "metadata", "namespace") == namespace)
		})
	}
	add := func(content map[string]any) {
		w.Objects = append(w.Objects, &manifests.Object{File: "the tests", Line: 1, Content: content})
	}
	namespace := q.namespaceOf()
	if at(q.object, "kind") != "Namespace" && !slices.Contains([]string{"default", "kube-system", "kube-public", "kube-node-lease", ""}, namespace) && !there("Namespace", "", namespace) {
		add(map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": namespace}})
	}
	if account := at(q.object, "spec", "serviceAccountName"); at(q.object, "kind") == "Pod" && account != "" && account != "default" && !there("ServiceAccount", namespace, account) {
		add(map[string]any{"apiVersion": "v1", "kind": "ServiceAccount", "metadata": map[string]any{"name": account, "namespace": namespace}})
	}
}

// verdict is what one policy said about a request.
type verdict struct {
	// evaluated is false when the policy did not apply.
	evaluated bool
	violated  []string
	failed    []string
	changed   bool
}

// verdictOf reads from a trace what a policy said.
func (o *Outcome) verdictOf(policy string) verdict {
	var v verdict
	for _, s := range o.trace.Steps() {
		if s.Run == nil {
			continue
		}
		for i := range s.Run.Judgements {
			j := &s.Run.Judgements[i]
			if j.Policy.Configuration != policy {
				continue
			}
			for k := range j.Evaluations {
				e := &j.Evaluations[k]
				v.evaluated = v.evaluated || e.False == ""
				v.changed = v.changed || e.Mutated()
				v.each(e)
			}
			for k := range j.Consequences {
				if c := &j.Consequences[k]; c.Configuration {
					v.failed = append(v.failed, c.Message)
				}
			}
		}
	}
	return v
}

func (v *verdict) each(e *trace.Evaluation) {
	for i := range e.Validations {
		switch x := &e.Validations[i]; {
		case x.Violated:
			v.violated = append(v.violated, x.Message)
		case x.Err != nil:
			v.failed = append(v.failed, x.Message)
		}
	}
	if e.Err != nil {
		v.failed = append(v.failed, e.Err.Error())
	}
	for i := range e.Mutations {
		if err := e.Mutations[i].Err; err != nil {
			v.failed = append(v.failed, err.Error())
		}
	}
}

// unjudged says why no policy judged a request; empty when policies did.
func (o *Outcome) unjudged() string {
	if o.Allowed || len(o.By) == 0 || o.By[0].Policy != "" {
		return ""
	}
	return fmt.Sprintf("the API server rejects the request before this policy judges it (%s): %s", o.By[0].Plugin, o.Message)
}

// decodeNode decodes a document into a Go value.
func decodeNode(root *yamlv3.Node, into any) error {
	data, err := yamlv3.Marshal(root)
	if err != nil {
		return err
	}
	return yaml.Unmarshal(data, into)
}

// linesOf are the lines of the elements of a list in a document.
func linesOf(root *yamlv3.Node, name string) []int {
	var lines []int
	for i := 0; root.Kind == yamlv3.MappingNode && i+1 < len(root.Content); i += 2 {
		if root.Content[i].Value == name {
			for _, e := range root.Content[i+1].Content {
				lines = append(lines, e.Line)
			}
		}
	}
	return lines
}

func lineAt(lines []int, i int) int {
	if i < len(lines) {
		return lines[i]
	}
	return 1
}

// gator reads a Suite of gator.
func (f *finder) gator(path string, data []byte, root *yamlv3.Node) bool {
	apiVersion, kind := header(root)
	if !strings.HasPrefix(apiVersion, "test.gatekeeper.sh/") || kind != "Suite" {
		return false
	}
	s := newForeign(path, "gator")
	var doc struct {
		Skip  bool `json:"skip"`
		Tests []struct {
			Name, Template, Constraint string
			Expansion                  string
			Skip                       bool
			Cases                      []struct {
				Name, Object string
				Inventory    []string
				Skip         bool
				Assertions   []struct {
					Violations any     `json:"violations"`
					Message    *string `json:"message"`
				}
			}
		}
	}
	if err := decodeNode(root, &doc); err != nil {
		s.fail(root.Line, "%s", plainYAML(err))
	}
	lines := linesOf(root, "tests")
	kinds := map[string]bool{}
	for i, test := range doc.Tests {
		line := lineAt(lines, i)
		skip, policy := "", fmt.Sprintf("gator-%d.example.com", i+1)
		switch {
		case doc.Skip || test.Skip:
			skip = "the suite skips it"
		case test.Expansion != "":
			skip = "expansion templates are Gatekeeper's own: a running Gatekeeper has them"
		case test.Template == "" || test.Constraint == "":
			s.fail(line, "the test %q needs a template and a constraint", test.Name)
			continue
		default:
			templates, constraints := s.read(line, test.Template), s.read(line, test.Constraint)
			if len(templates) == 0 || len(constraints) == 0 {
				skip = "there is no template or no constraint"
				break
			}
			skip = s.template(policy, templates[0], constraints[0], kinds)
		}
		for k, c := range test.Cases {
			t := &Test{Name: test.Name + "/" + c.Name, Line: line, Skip: skip}
			if c.Skip && skip == "" {
				t.Skip = "the suite skips it"
			}
			if t.Skip == "" {
				objects := s.read(line, c.Object)
				if len(objects) != 1 {
					s.fail(line, "case %d of %q: the file %s has %d objects, and must have one", k+1, test.Name, c.Object, len(objects))
					continue
				}
				t.request = reviewed(objects[0].Content)
				t.request.line = line
				assertions := c.Assertions
				t.judgeBy = func(o *Outcome) ([]Failure, string) {
					if why := o.unjudged(); why != "" {
						return nil, why
					}
					v := o.verdictOf(policy)
					var failures []Failure
					for n, a := range assertions {
						matched := 0
						for _, message := range slices.Concat(v.violated, v.failed) {
							if a.Message == nil {
								matched++
							} else if re, err := regexp.Compile(*a.Message); err != nil {
								return []Failure{{line, "message", *a.Message, err.Error()}}, ""
							} else if re.MatchString(message) {
								matched++
							}
						}
						want, ok := "yes", matched > 0
						switch n := a.Violations.(type) {
						case nil:
						case float64:
							want, ok = strconv.Itoa(int(n)), matched == int(n)
						case bool:
							want, ok = strconv.FormatBool(n), n == (matched > 0)
						case string:
							if want = n; n == "no" {
								ok = matched == 0
							} else if count, err := strconv.Atoi(n); err == nil {
								ok = matched == count
							}
						}
						if a.Message != nil {
							want += " with " + quote(*a.Message)
						}
						if !ok {
							failures = append(failures, Failure{line, fmt.Sprintf("assertions[%d].violations", n), want, compact(slices.Concat(v.violated, v.failed))})
						}
					}
					return failures, ""
				}
			}
			s.add(t)
		}
	}
	f.add(s.Suite, s.wrong)
	return true
}

// reviewed is the request of an object, or of an AdmissionReview that has one.
func reviewed(content map[string]any) request {
	if at(content, "kind") != "AdmissionReview" {
		return request{operation: opCreate, object: runtime.DeepCopyJSON(content)}
	}
	in, _ := content["request"].(map[string]any)
	q := request{operation: at(in, "operation"), namespace: at(in, "namespace"), subresource: at(in, "subResource")}
	if object, ok := in["object"].(map[string]any); ok {
		q.object = runtime.DeepCopyJSON(object)
	}
	if old, ok := in["oldObject"].(map[string]any); ok && q.operation != opCreate {
		q.old = runtime.DeepCopyJSON(old)
	}
	if q.operation == "" {
		q.operation = opCreate
	}
	if q.operation == opUpdate && q.old == nil && q.object != nil {
		// The review says nothing of what was there: nothing changes.
		q.old = runtime.DeepCopyJSON(q.object)
	}
	if q.operation == opDelete {
		if q.old == nil {
			q.old = q.object
		}
		q.object = nil
	}
	if name := at(in, "userInfo", "username"); name != "" {
		q.user = &user.DefaultInfo{Name: name, UID: at(in, "userInfo", "uid")}
		groups, _ := walk(in, "userInfo", "groups").([]any)
		for _, g := range groups {
			if text, ok := g.(string); ok {
				q.user.Groups = append(q.user.Groups, text)
			}
		}
	}
	return q
}

// constraints is the group of Gatekeeper's constraints.
const constraintsGroup = "constraints.gatekeeper.sh"

// template makes a policy of a constraint template that has CEL, and of a constraint, as Gatekeeper
// does. It returns why that is not possible.
func (f *foreign) template(name string, template, constraint *manifests.Object, kinds map[string]bool) (skip string) {
	var source map[string]any
	targets, _ := walk(template.Content, "spec", "targets").([]any)
	for _, t := range targets {
		code, _ := walk(t, "code").([]any)
		for _, c := range code {
			if m, _ := c.(map[string]any); at(m, "engine") == "K8sNativeValidation" {
				source, _ = m["source"].(map[string]any)
			}
		}
	}
	if source == nil {
		return "the constraint template has no CEL: its Rego needs a running Gatekeeper"
	}
	kind := at(template.Content, "spec", "crd", "spec", "names", "kind")
	plural := strings.ToLower(kind)
	if !kinds[kind] {
		kinds[kind] = true
		f.objects = append(f.objects, f.made(map[string]any{
			"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": map[string]any{"name": plural + "." + constraintsGroup},
			"spec": map[string]any{
				"group": constraintsGroup, "scope": "Cluster",
				"names":    map[string]any{"kind": kind, "plural": plural, "singular": plural},
				"versions": []any{map[string]any{"name": "v1beta1", "served": true, "storage": true, "schema": map[string]any{"openAPIV3Schema": map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}},
			},
		}))
	}
	param := runtime.DeepCopyJSON(constraint.Content)
	param["apiVersion"], param["metadata"] = constraintsGroup+"/v1beta1", map[string]any{"name": name}
	f.objects = append(f.objects, f.made(param))

	var conditions []any
	condition := func(name, expression string) {
		conditions = append(conditions, map[string]any{"name": name, "expression": expression})
	}
	constraints := map[string]any{"resourceRules": []any{map[string]any{"apiGroups": []any{"*"}, "apiVersions": []any{"*"}, "operations": []any{"CREATE", "UPDATE"}, "resources": []any{"*"}}}}
	match, _ := walk(constraint.Content, "spec", "match").(map[string]any)
	for key, value := range match {
		switch key {
		case "kinds":
			list, _ := value.([]any)
			var alternatives []string
			for _, e := range list {
				alternatives = append(alternatives, "("+oneOfTexts("request.kind.group", walk(e, "apiGroups"))+" && "+oneOfTexts("request.kind.kind", walk(e, "kinds"))+")")
			}
			if len(alternatives) > 0 {
				condition("kinds", strings.Join(alternatives, " || "))
			}
		case "labelSelector":
			constraints["objectSelector"] = value
		case "namespaceSelector":
			constraints["namespaceSelector"] = value
		case "namespaces", "excludedNamespaces":
			list, _ := value.([]any)
			var alternatives []string
			for _, e := range list {
				text, _ := e.(string)
				pattern := "^" + strings.ReplaceAll(regexp.QuoteMeta(text), `\*`, ".*") + "$"
				alternatives = append(alternatives, "request.namespace.matches("+strconv.Quote(pattern)+")")
			}
			expression := "has(request.namespace) && (" + strings.Join(alternatives, " || ") + ")"
			if key == "excludedNamespaces" {
				expression = "!(" + expression + ")"
			}
			condition(strings.ToLower(key), expression)
		default:
			return fmt.Sprintf("the constraint has match.%s, which only Gatekeeper knows", key)
		}
	}
	more, _ := source["matchConditions"].([]any)
	variables := []any{
		map[string]any{"name": "anyObject", "expression": `has(request.operation) && request.operation == "DELETE" && object == null ? oldObject : object`},
		map[string]any{"name": "params", "expression": `!has(params.spec) ? null : !has(params.spec.parameters) ? null : params.spec.parameters`},
	}
	given, _ := source["variables"].([]any)
	failure := at(source, "failurePolicy")
	if failure == "" {
		failure = "Fail"
	}
	spec := map[string]any{
		"failurePolicy": failure, "matchConstraints": constraints, "paramKind": map[string]any{"apiVersion": constraintsGroup + "/v1beta1", "kind": kind},
		"variables": append(variables, given...), "validations": source["validations"],
	}
	if conditions = append(conditions, more...); len(conditions) > 0 {
		spec["matchConditions"] = conditions
	}
	f.objects = append(f.objects,
		f.made(map[string]any{"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy", "metadata": map[string]any{"name": name}, "spec": spec}),
		f.made(map[string]any{"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding", "metadata": map[string]any{"name": name}, "spec": map[string]any{
			"policyName": name, "validationActions": []any{"Audit"}, "paramRef": map[string]any{"name": name, "parameterNotFoundAction": "Deny"},
		}}))
	return ""
}

// oneOfTexts is an expression that is true when another one is one of some texts; * is any.
func oneOfTexts(expression string, list any) string {
	texts, _ := list.([]any)
	var quoted []string
	for _, e := range texts {
		text, _ := e.(string)
		if text == "*" {
			return "true"
		}
		quoted = append(quoted, strconv.Quote(text))
	}
	if len(quoted) == 0 {
		return "true"
	}
	return expression + " in [" + strings.Join(quoted, ", ") + "]"
}

// kyverno reads a Test of the Kyverno CLI.
func (f *finder) kyverno(path string, data []byte, root *yamlv3.Node) bool {
	apiVersion, kind := header(root)
	if !strings.HasPrefix(apiVersion, "cli.kyverno.io/") || kind != "Test" {
		return false
	}
	s := newForeign(path, "kyverno")
	var doc struct {
		Policies, Resources []string
		Variables           string
		UserInfo            string `json:"userinfo"`
		Results             []struct {
			Policy, Rule, Kind, Result string
			Resources                  []string
			PatchedResource            string `json:"patchedResource"`
			PatchedResources           string `json:"patchedResources"`
		}
	}
	if err := decodeNode(root, &doc); err != nil {
		s.fail(root.Line, "%s", plainYAML(err))
	}
	policies := map[string]*manifests.Object{}
	bound := map[string]bool{}
	for _, name := range doc.Policies {
		for _, o := range s.read(root.Line, name) {
			kind := at(o.Content, "kind")
			switch kind {
			case "ValidatingAdmissionPolicy", "MutatingAdmissionPolicy":
				s.objects = append(s.objects, o)
			case "ValidatingAdmissionPolicyBinding", "MutatingAdmissionPolicyBinding":
				bound[at(o.Content, "spec", "policyName")] = true
				s.objects = append(s.objects, o)
			}
			policies[at(o.Content, "metadata", "name")] = o
		}
	}
	for name, o := range policies {
		if kind := at(o.Content, "kind"); (kind == "ValidatingAdmissionPolicy" || kind == "MutatingAdmissionPolicy") && !bound[name] {
			spec := map[string]any{"policyName": name}
			if kind == "ValidatingAdmissionPolicy" {
				spec["validationActions"] = []any{"Deny"}
			}
			s.objects = append(s.objects, s.made(map[string]any{"apiVersion": at(o.Content, "apiVersion"), "kind": kind + "Binding", "metadata": map[string]any{"name": name}, "spec": spec}))
		}
	}
	var resources []*manifests.Object
	ours := false
	for _, o := range policies {
		ours = ours || strings.HasSuffix(at(o.Content, "kind"), "AdmissionPolicy")
	}
	if ours {
		for _, name := range doc.Resources {
			resources = append(resources, s.read(root.Line, name)...)
		}
	}
	for i, line := range append(linesOf(root, "results"), root.Line)[:len(doc.Results)] {
		r := &doc.Results[i]
		o := policies[r.Policy]
		name := strings.Trim(r.Policy+"/"+r.Rule, "/")
		kind := ""
		if o != nil {
			kind = at(o.Content, "kind")
		}
		if kind != "ValidatingAdmissionPolicy" && kind != "MutatingAdmissionPolicy" {
			reason := "the policy is in none of the files"
			if o != nil {
				reason = fmt.Sprintf("a %s of %s is Kyverno's own: a running Kyverno judges by it", kind, at(o.Content, "apiVersion"))
			}
			s.add(&Test{Name: name, Line: line, Skip: reason})
			continue
		}
		for _, resource := range r.Resources {
			var found *manifests.Object
			namespace, own, qualified := strings.Cut(resource, "/")
			for _, o := range resources {
				title := at(o.Content, "metadata", "name")
				if (r.Kind == "" || at(o.Content, "kind") == r.Kind) && (title == resource || qualified && title == own && at(o.Content, "metadata", "namespace") == namespace) {
					found = o
				}
			}
			t := &Test{Name: name + "/" + r.Kind + " " + resource, Line: line}
			if found == nil {
				t.Skip = "the resource is in none of the files"
				s.add(t)
				continue
			}
			t.request = request{line: line, operation: opCreate, object: runtime.DeepCopyJSON(found.Content)}
			policy, want := r.Policy, r.Result
			var patched any
			if file := r.PatchedResource + r.PatchedResources; file != "" {
				for _, o := range s.read(line, file) {
					if at(o.Content, "metadata", "name") == at(found.Content, "metadata", "name") {
						patched = o.Content
					}
				}
			}
			t.judgeBy = func(o *Outcome) ([]Failure, string) {
				v := o.verdictOf(policy)
				if why := o.unjudged(); why != "" && !v.evaluated {
					return nil, why
				}
				got := "pass"
				switch {
				case len(v.failed) > 0:
					got = "error"
				case len(v.violated) > 0:
					got = "fail"
				case !v.evaluated || kind == "MutatingAdmissionPolicy" && !v.changed:
					got = "skip"
				}
				var failures []Failure
				if got != want {
					failures = append(failures, Failure{line, "result", want, strings.TrimSpace(got + " " + strings.Join(slices.Concat(v.violated, v.failed), "; "))})
				}
				if patched != nil && o.Object != nil {
					differences("patchedResource", patched, o.Object, func(path, want, got string) {
						failures = append(failures, Failure{line, path, want, got})
					})
				}
				return failures, ""
			}
			s.add(t)
		}
	}
	f.add(s.Suite, s.wrong)
	return true
}

// kaptest reads a file of kaptest.
func (f *finder) kaptest(path string, data []byte, root *yamlv3.Node) bool {
	type named struct{ Kind, Namespace, Name string }
	var doc struct {
		Policies, Resources []string
		Suites              []struct {
			Policy string
			Tests  []struct {
				Object, OldObject, Param *named
				UserInfo                 *user.DefaultInfo
				Expect                   string
			}
		} `json:"vapTestSuites"`
	}
	if decodeNode(root, &doc) != nil || len(doc.Suites) == 0 {
		return false
	}
	s := newForeign(path, "kaptest")
	policies := map[string]*manifests.Object{}
	for _, name := range doc.Policies {
		for _, o := range s.read(root.Line, name) {
			if at(o.Content, "kind") == "ValidatingAdmissionPolicy" {
				policies[at(o.Content, "metadata", "name")] = o
				s.objects = append(s.objects, o)
			}
		}
	}
	var resources []*manifests.Object
	for _, name := range doc.Resources {
		resources = append(resources, s.read(root.Line, name)...)
	}
	find := func(n *named) map[string]any {
		for _, o := range resources {
			if n != nil && at(o.Content, "kind") == n.Kind && at(o.Content, "metadata", "name") == n.Name && (n.Namespace == "" || at(o.Content, "metadata", "namespace") == n.Namespace) {
				return runtime.DeepCopyJSON(o.Content)
			}
		}
		return nil
	}
	bindings := map[string]bool{}
	for i, line := range append(linesOf(root, "vapTestSuites"), root.Line)[:len(doc.Suites)] {
		for k, test := range doc.Suites[i].Tests {
			policy := doc.Suites[i].Policy
			t := &Test{Name: fmt.Sprintf("%s/%d %s", policy, k+1, test.Expect), Line: line}
			o := policies[policy]
			if o == nil {
				s.fail(line, "there is no policy %q in the files", policy)
				continue
			}
			if !slices.Contains([]string{"admit", "deny", "skip", "error"}, test.Expect) {
				s.fail(line, "test %d of %s expects %q, which is not one of admit, deny, skip, error", k+1, policy, test.Expect)
				continue
			}
			spec := map[string]any{"policyName": policy, "validationActions": []any{"Deny"}}
			binding := policy
			if param := find(test.Param); param != nil {
				ref := map[string]any{"name": at(param, "metadata", "name"), "parameterNotFoundAction": "Deny"}
				if namespace := at(param, "metadata", "namespace"); namespace != "" {
					ref["namespace"] = namespace
				}
				spec["paramRef"] = ref
				binding += "-" + at(param, "metadata", "name")
				if !bindings[binding] {
					s.objects = append(s.objects, s.made(param))
				}
			}
			if !bindings[binding] {
				bindings[binding] = true
				s.objects = append(s.objects, s.made(map[string]any{"apiVersion": at(o.Content, "apiVersion"), "kind": "ValidatingAdmissionPolicyBinding", "metadata": map[string]any{"name": binding}, "spec": spec}))
			}
			t.request = request{line: line, object: find(test.Object), old: find(test.OldObject), user: test.UserInfo}
			switch {
			case t.request.object == nil && t.request.old == nil:
				t.Skip = "the object is in none of the files"
			case t.request.object == nil:
				t.request.operation = opDelete
			case t.request.old == nil:
				t.request.operation = opCreate
			default:
				t.request.operation = opUpdate
			}
			want := test.Expect
			t.judgeBy = func(o *Outcome) ([]Failure, string) {
				v := o.verdictOf(policy)
				if why := o.unjudged(); why != "" && !v.evaluated {
					return nil, why
				}
				got := "admit"
				switch {
				case len(v.violated) > 0:
					got = "deny"
				case len(v.failed) > 0:
					got = "error"
				case !v.evaluated:
					got = "skip"
				}
				if got != want {
					return []Failure{{line, "expect", want, strings.TrimSpace(got + " " + strings.Join(slices.Concat(v.violated, v.failed), "; "))}}, ""
				}
				return nil, ""
			}
			s.add(t)
		}
	}
	f.add(s.Suite, s.wrong)
	return true
}
