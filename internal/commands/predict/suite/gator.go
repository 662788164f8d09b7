package suite

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	yamlv3 "go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gatehouse-dev/gatehouse/internal/readers/manifests"
)

// gatorSuite is a Suite of gator.
type gatorSuite struct {
	Skip  bool        `json:"skip"`
	Tests []gatorTest `json:"tests"`
}

type gatorTest struct {
	Name, Template, Constraint, Expansion string
	Skip, Invalid                         bool
	Cases                                 []gatorCase
}

type gatorCase struct {
	Name, Object string
	Inventory    []string
	Skip         bool
	Assertions   []gatorAssertion
}

type gatorAssertion struct {
	Violations any     `json:"violations"`
	Message    *string `json:"message"`
}

// gator reads a Suite of gator.
func (f *finder) gator(path string, data []byte, root *yamlv3.Node) bool {
	apiVersion, kind := header(root)
	if !strings.HasPrefix(apiVersion, "test.gatekeeper.sh/") || kind != "Suite" {
		return false
	}
	g := &gator{finder: f, foreign: newForeign(path, "gator", f.worldOf()), engine: f.hasEngine(gatekeeperName), kinds: map[string]bool{}, of: map[string]*foreign{}}
	s := g.foreign
	var doc gatorSuite
	if err := decodeNode(root, &doc); err != nil {
		s.fail(root.Line, "%s", manifests.PlainYAML(err))
	}
	if len(doc.Tests) == 0 {
		s.empty(root, "Suite", "tests")
	}
	if f.Call && !g.engine {
		g.running = f.running(s)
	}
	for i, node := range elementsOf(member(root, "tests"), len(doc.Tests))[:len(doc.Tests)] {
		g.test(&doc.Tests[i], node, doc.Skip)
	}
	wrong := s.wrong
	for _, other := range g.others {
		wrong = append(wrong, other.wrong...)
	}
	f.add(s.Suite, wrong)
	for _, other := range g.others {
		if len(wrong) == 0 {
			f.add(other.Suite, nil)
		}
	}
	return true
}

// gatekeeperName is the name of Gatekeeper's recipe.
const gatekeeperName = "gatekeeper"

// gator makes tests from a Suite of gator.
type gator struct {
	*finder
	*foreign
	// engine reports whether Gatekeeper is started. running is the reason why no webhook can evaluate the tests.
	engine  bool
	running string
	kinds   map[string]bool
	// of has Gatekeeper's suites by template file, and others lists all suites for Gatekeeper.
	of     map[string]*foreign
	others []*foreign
}

// test adds the cases of a test.
func (g *gator) test(test *gatorTest, node *yamlv3.Node, skipped bool) {
	f, s := g.finder, g.foreign
	f.constraints++
	skip, policy, engine := "", fmt.Sprintf("gator-%d.example.com", f.constraints), (*about)(nil)
	var constraint *manifests.Object
	switch more := strange(node, "name", "template", "constraint", "expansion", "cases", "invalid", "skip"); {
	case skipped || test.Skip:
		skip = "the suite skips it"
	case more != "":
		skip = more
	case test.Expansion != "":
		skip = "expansion templates are Gatekeeper's own: a running Gatekeeper has them"
	case test.Template == "" || test.Constraint == "":
		s.fail(node.Line, "the test %q needs a template and a constraint", test.Name)
		return
	case test.Invalid:
		skip = "whether a constraint is valid is for a running Gatekeeper to say"
	default:
		templates, constraints := s.read(node.Line, test.Template), s.read(node.Line, test.Constraint)
		switch {
		case len(templates) == 0 || len(constraints) == 0:
			skip = "there is no template or no constraint"
		case g.engine:
			// Constraints of several tests have the same name.
			engine, constraint = gatekeeper(policy), s.named(constraints[0], policy)
			s = g.through(test.Template, templates)
			s.objects = append(s.objects, constraint)
		case f.Call:
			engine = gatekeeper(at(constraints[0].Content, "metadata", "name"))
			f.noteContents(engine, constraints[0])
			skip = cmp.Or(g.running, enforcesSilently(constraints[0]))
		default:
			skip = s.template(policy, templates[0], constraints[0], g.kinds)
		}
	}
	if test.Invalid && len(test.Cases) == 0 {
		s.add(&Test{Name: test.Name, Line: node.Line, Skip: skip})
	}
	for k, node := range elementsOf(member(node, "cases"), len(test.Cases))[:len(test.Cases)] {
		c, to := &test.Cases[k], s
		if constraint != nil && len(c.Inventory) > 0 {
			to = g.inventory(c, node.Line, append(s.read(node.Line, test.Template), constraint))
		}
		to.gatorCase(test, c, node, policy, engine, skip)
	}
}

// through returns the suite of the tests with one template, which Gatekeeper evaluates. Test names are unique in the
// file.
func (g *gator) through(template string, templates []*manifests.Object) *foreign {
	s := g.of[template]
	if s == nil {
		s = g.addSuite()
		s.objects = templates
		g.of[template] = s
	}
	return s
}

// addSuite adds a suite of the file, with a separate environment next to the engine.
func (g *gator) addSuite() *foreign {
	s := newForeign(g.File, "gator", g.foreign.roots)
	s.names, s.Suite.engine = g.names, gatekeeperName
	g.others = append(g.others, s)
	return s
}

// inventory returns the suite of a case whose constraint reads other objects. Gatekeeper reads the kinds of objects
// that a SyncSet names.
func (g *gator) inventory(c *gatorCase, line int, policies []*manifests.Object) *foreign {
	s := g.addSuite()
	s.Suite.inventory = true
	s.objects = policies
	var kinds []any
	for _, name := range c.Inventory {
		for _, o := range s.read(line, name) {
			s.objects = append(s.objects, o)
			gv, _ := schema.ParseGroupVersion(at(o.Content, "apiVersion"))
			kinds = append(kinds, map[string]any{"group": gv.Group, "version": gv.Version, "kind": at(o.Content, "kind")})
		}
	}
	s.objects = append(s.objects, s.generated(map[string]any{
		"apiVersion": "syncset.gatekeeper.sh/v1alpha1", "kind": "SyncSet", "metadata": map[string]any{"name": "inventory"}, "spec": map[string]any{"gvks": kinds},
	}))
	return s
}

// named returns a copy of an object under another name.
func (f *foreign) named(o *manifests.Object, name string) *manifests.Object {
	u := &unstructured.Unstructured{Object: runtime.DeepCopyJSON(o.Content)}
	u.SetName(name)
	return o.With(u.Object)
}

// gatorCase adds a case of a test. engine is set if webhooks evaluate it.
func (f *foreign) gatorCase(test *gatorTest, c *gatorCase, node *yamlv3.Node, policy string, engine *about, skip string) {
	line := node.Line
	t := &Test{Name: test.Name + "/" + c.Name, Line: line, Skip: skip, running: engine}
	defer f.add(t)
	if len(c.Assertions) == 0 {
		f.fail(line, "the case %q has no assertions", t.Name)
	}
	for i, node := range elementsOf(member(node, "assertions"), len(c.Assertions))[:len(c.Assertions)] {
		if more := strange(node, "violations", "message"); more != "" && t.Skip == "" {
			t.Skip = more
		}
		c.Assertions[i].check(f, node.Line)
	}
	if t.Skip == "" && c.Skip {
		t.Skip = "the suite skips it"
	}
	if more := strange(node, "name", "object", "inventory", "assertions", "skip"); more != "" && t.Skip == "" {
		t.Skip = more
	}
	if t.Skip != "" {
		return
	}
	objects := f.read(line, c.Object)
	if len(objects) != 1 {
		f.fail(line, "the file %s of the case %q has %d objects, and must have one", c.Object, t.Name, len(objects))
		return
	}
	t.request = reviewed(objects[0].Content)
	t.request.line = line
	// CEL sees only the namespace of the request from an inventory.
	for _, name := range c.Inventory {
		for _, o := range f.read(line, name) {
			if at(o.Content, "kind") == "Namespace" && at(o.Content, "metadata", "name") == t.request.namespaceOf() {
				t.request.labels = labelsOf(o.Content)
			} else if engine != nil && !f.Suite.inventory {
				t.Skip = "the inventory is for the cluster of the engine that is called: " + name
			}
		}
	}
	lines := elementsOf(member(node, "assertions"), len(c.Assertions))
	t.judgeBy = func(o *Outcome) ([]Failure, string) {
		messages, skip := o.verdictBy(engine, policy)
		if skip != "" {
			return nil, skip
		}
		var failures []Failure
		for i := range c.Assertions {
			if want, ok := c.Assertions[i].ok(messages); !ok {
				failures = append(failures, Failure{lines[i].Line, fmt.Sprintf("assertions[%d].violations", i), want, compact(messages)})
			}
		}
		return failures, ""
	}
}

// verdictBy returns the violations of a constraint: the violations reported by the running engine, or by the policy
// made from the constraint. skip is the reason if there is no verdict.
func (o *Outcome) verdictBy(engine *about, policy string) (messages []string, skip string) {
	if engine != nil {
		messages, o.named, skip = engine.heardOf(o)
		return messages, skip
	}
	if skip = o.unjudged(); skip != "" {
		return nil, skip
	}
	v := o.verdictOf(policy)
	return slices.Concat(v.violated, v.failed), ""
}

// check reports the faults of an assertion.
func (a *gatorAssertion) check(f *foreign, line int) {
	switch n := a.Violations.(type) {
	case nil, bool:
		// YAML reads yes and no as booleans.
	case float64:
		if n < 0 || n != float64(int(n)) {
			f.fail(line, "violations is %v, and must be a number from 0, yes or no", n)
		}
	case string:
		if n != "yes" && n != "no" {
			f.fail(line, "violations is %q, and must be a number from 0, yes or no", n)
		}
	default:
		f.fail(line, "violations must be a number from 0, yes or no")
	}
	if a.Message != nil {
		if _, err := regexp.Compile(*a.Message); err != nil {
			f.fail(line, "message: %v", err)
		}
	}
}

// ok reports whether messages meet the assertion, and returns the expected number.
func (a *gatorAssertion) ok(messages []string) (want string, ok bool) {
	matched := 0
	for _, message := range messages {
		if a.Message == nil || regexp.MustCompile(*a.Message).MatchString(message) {
			matched++
		}
	}
	want, ok = "yes", matched > 0
	switch number, isNumber := a.Violations.(float64); {
	case isNumber:
		want, ok = strconv.Itoa(int(number)), matched == int(number)
	case a.Violations == false || a.Violations == "no":
		want, ok = "no", matched == 0
	}
	if a.Message != nil {
		want += " with " + quote(*a.Message)
	}
	return want, ok
}

// labelsOf returns the labels of an object; not nil.
func labelsOf(content map[string]any) map[string]string {
	labels := map[string]string{}
	given, _ := walk(content, "metadata", "labels").(map[string]any)
	for key, value := range given {
		if text, ok := value.(string); ok {
			labels[key] = text
		}
	}
	return labels
}

// reviewed returns the request for an object, or the request in an AdmissionReview.
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
		// The review does not contain the old object, so it is assumed to be unchanged.
		q.old = runtime.DeepCopyJSON(q.object)
	}
	if q.operation == opDelete {
		if q.old == nil {
			q.old = q.object
		}
		q.object = nil
	}
	q.user = userOf(in)
	return q
}

// constraintsGroup is the group of Gatekeeper's constraints.
const constraintsGroup = "constraints.gatekeeper.sh"

// template makes a policy from a constraint template with CEL and a constraint, as Gatekeeper does. It returns the
// reason if this is not possible.
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
	if !kinds[kind] {
		kinds[kind] = true
		f.objects = append(f.objects, f.generated(definition(schema.GroupKind{Group: constraintsGroup, Kind: kind}, strings.ToLower(kind), "Cluster", "v1beta1")))
	}
	param := runtime.DeepCopyJSON(constraint.Content)
	param["apiVersion"], param["metadata"] = constraintsGroup+"/v1beta1", map[string]any{"name": name}
	f.objects = append(f.objects, f.generated(param))

	var conditions []any
	condition := func(name, expression string) {
		conditions = append(conditions, map[string]any{"name": name, "expression": expression})
	}
	operations := []any{opCreate, opUpdate}
	if len(targets) > 0 {
		if own, _ := walk(targets[0], "operations").([]any); len(own) > 0 {
			operations = own
		}
	}
	rule := map[string]any{"apiGroups": []any{"*"}, "apiVersions": []any{"*"}, "operations": operations, "resources": []any{"*"}}
	constraints := map[string]any{"resourceRules": []any{rule}}
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
			// Cluster-scoped objects have no namespace, and match both lists.
			list, _ := value.([]any)
			if len(list) == 0 {
				continue
			}
			var alternatives []string
			for _, e := range list {
				text, _ := e.(string)
				alternatives = append(alternatives, matchesGlob(subject+".metadata.namespace", text))
			}
			inside := strings.Join(alternatives, " || ")
			if key == "excludedNamespaces" {
				inside = "!(" + inside + ")"
			}
			condition(strings.ToLower(key), "!has("+subject+".metadata.namespace) || "+subject+`.metadata.namespace == "" || `+inside)
		case "name":
			text, _ := value.(string)
			name := "has(" + subject + ".metadata.name) && " + matchesGlob(subject+".metadata.name", text)
			if strings.HasSuffix(text, "*") {
				name += " || has(" + subject + ".metadata.generateName) && " + matchesGlob(subject+".metadata.generateName", text)
			}
			condition("name", name)
		case "scope":
			if value != "*" {
				rule["scope"] = value
			}
		case "source":
			if value == "Generated" {
				return "the constraint is for objects that expansion templates generate: a running Gatekeeper has them"
			}
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
		f.generated(map[string]any{"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy", "metadata": map[string]any{"name": name}, "spec": spec}),
		f.generated(map[string]any{"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding", "metadata": map[string]any{"name": name}, "spec": map[string]any{
			"policyName": name, "validationActions": []any{"Audit"}, "paramRef": map[string]any{"name": name, "parameterNotFoundAction": "Deny"},
		}}))
	return ""
}

// subject is a CEL expression for the object of a request.
const subject = "(object == null ? oldObject : object)"

// matchesGlob returns a CEL expression that is true if another matches a pattern with *.
func matchesGlob(expression, pattern string) string {
	return expression + ".matches(" + strconv.Quote("^"+strings.ReplaceAll(regexp.QuoteMeta(pattern), `\*`, ".*")+"$") + ")"
}

// oneOfTexts returns a CEL expression that is true if another equals one of some strings; * matches any.
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
