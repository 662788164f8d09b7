package suite

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	yamlv3 "go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/authentication/user"
	"sigs.k8s.io/yaml"

	"github.com/gatehouse-dev/gatehouse/internal/commands/predict/stage"
	"github.com/gatehouse-dev/gatehouse/internal/readers/manifests"
)

// isKyvernoTest reports whether a document has tests of the Kyverno CLI, which accepts any version.
func isKyvernoTest(apiVersion, kind string) bool {
	group, _, _ := strings.Cut(apiVersion, "/")
	return kind == "Test" && (group == "cli.kyverno.io" || group == "kyverno.io")
}

// kyvernoName is the name of Kyverno's recipe.
const kyvernoName = "kyverno"

// kyvernoTest is a Test of the Kyverno CLI.
type kyvernoTest struct {
	Policies, Resources, ParamResources, ClusterResources, Exceptions []string
	Variables                                                         string
	UserInfo                                                          string `json:"userinfo"`
	Values                                                            *kyvernoValues
	Results                                                           []kyvernoResult
}

// kyvernoValues are the Values of the Kyverno CLI. Values of policies only matter to Kyverno's own policies.
type kyvernoValues struct {
	GlobalValues      map[string]any
	NamespaceSelector []struct {
		Name   string
		Labels map[string]string
	}
	Namespaces []map[string]any
}

type kyvernoResult struct {
	Policy, Rule, Kind, Result, Operation string
	Resources                             []string
	ResourceSpecs                         []struct{ Group, Version, Kind, Namespace, Subresource, Name string }
	PatchedResource, PatchedResources     string
}

// kyverno reads a Test of the Kyverno CLI.
func (f *finder) kyverno(path string, data []byte, root *yamlv3.Node) bool {
	if !isKyvernoTest(header(root)) {
		return false
	}
	k := &kyverno{foreign: newForeign(path, "kyverno", f.worldOf()), call: f.Call || f.hasEngine(kyvernoName), engine: f.hasEngine(kyvernoName), same: f.noteContents, root: root, policies: map[string]*manifests.Object{}}
	if err := decodeNode(root, &k.doc); err != nil {
		k.fail(root.Line, "%s", manifests.PlainYAML(err))
	}
	switch checks := member(root, "checks"); {
	case len(k.doc.Results) > 0:
	case checks.Kind == yamlv3.SequenceNode:
		k.add(&Test{Name: "checks", Line: checks.Line, Skip: "the checks of a Test are not read"})
	default:
		k.empty(root, "Test", "results")
	}
	k.readPolicies()
	if f.Call && !k.engine {
		k.running = f.running(k.foreign)
	}
	if k.ours || k.call {
		k.surroundings()
	}
	for i, node := range elementsOf(member(root, "results"), len(k.doc.Results))[:len(k.doc.Results)] {
		k.result(&k.doc.Results[i], node)
	}
	f.add(k.Suite, k.wrong)
	return true
}

// kyverno makes tests from a Test of the Kyverno CLI.
type kyverno struct {
	*foreign
	root *yamlv3.Node
	doc  kyvernoTest
	// skip is the reason why no result can be evaluated, and running the reason why webhooks cannot evaluate Kyverno's
	// own policies.
	skip, running string
	call          bool
	// engine reports whether Kyverno is started for its own policies.
	engine bool
	// same notes the policies that the called engine must have.
	same     func(*about, *manifests.Object)
	policies map[string]*manifests.Object
	// ours reports whether the API server evaluates a policy.
	ours      bool
	resources []*manifests.Object
	operation string
	user      *user.DefaultInfo
}

func (k *kyverno) readPolicies() {
	bound := map[string]bool{}
	for _, name := range k.doc.Policies {
		if isURL(name) {
			k.skip = "the policy at " + name + " is not read: give its file"
			continue
		}
		for _, o := range k.read(k.root.Line, name) {
			kind := at(o.Content, "kind")
			if group, _, _ := strings.Cut(at(o.Content, "apiVersion"), "/"); group == "admissionregistration.k8s.io" {
				k.objects = append(k.objects, o)
				k.ours = k.ours || isPolicy(kind)
			}
			if strings.HasSuffix(kind, "AdmissionPolicyBinding") {
				bound[at(o.Content, "spec", "policyName")] = true
				continue
			}
			if k.policies[at(o.Content, "metadata", "name")] = o; k.engine && !isPolicy(kind) {
				k.Suite.engine, k.objects = kyvernoName, append(k.objects, o)
			}
		}
	}
	for _, o := range slices.Clone(k.objects) {
		if isPolicy(at(o.Content, "kind")) && !bound[at(o.Content, "metadata", "name")] {
			k.objects = append(k.objects, k.binding(o, nil))
		}
	}
}

// surroundings reads the resources, values and users of the requests.
func (k *kyverno) surroundings() {
	if more := strange(k.root, "apiVersion", "kind", "metadata", "name", "policies", "resources", "targetResources", "variables", "paramResources", "userinfo", "results", "values", "exceptions", "context", "clusterResources", "apiCallResponses", "globalContextEntries"); more != "" && k.skip == "" {
		k.skip = more
	}
	line := func(field string) int { return member(k.root, field).Line }
	k.resources = k.readResources(line("resources"), k.doc.Resources)
	if k.Suite.engine != "" {
		for _, name := range k.doc.Exceptions {
			k.objects = append(k.objects, k.read(line("exceptions"), name)...)
		}
	}
	for _, name := range k.doc.ParamResources {
		k.objects = append(k.objects, k.read(line("paramResources"), name)...)
	}
	for _, name := range k.doc.ClusterResources {
		for _, o := range k.read(line("clusterResources"), name) {
			crds, _ := walk(o.Content, "spec", "crds").([]any)
			for _, file := range crds {
				if text, ok := file.(string); ok {
					k.objects = append(k.objects, k.read(line("clusterResources"), text)...)
				}
			}
			resources, _ := walk(o.Content, "spec", "resources").([]any)
			for _, r := range resources {
				if content, ok := r.(map[string]any); ok {
					k.objects = append(k.objects, k.generated(content))
				}
			}
		}
	}
	if k.doc.Values != nil {
		k.values(k.doc.Values)
	}
	if k.doc.Variables != "" {
		for _, o := range k.read(line("variables"), k.doc.Variables) {
			values := &kyvernoValues{}
			if err := yaml.Unmarshal(stage.Encode(o.Content), values); err != nil {
				k.fail(line("variables"), "%s: %v", k.doc.Variables, err)
			}
			k.values(values)
		}
	}
	if k.doc.UserInfo != "" {
		for _, o := range k.read(line("userinfo"), k.doc.UserInfo) {
			k.user = userOf(o.Content)
		}
	}
}

// values reads the labels of namespaces and the operation.
func (k *kyverno) values(v *kyvernoValues) {
	for _, n := range v.NamespaceSelector {
		labels := map[string]string{}
		for key, value := range n.Labels {
			labels[key] = value
		}
		k.labels[n.Name] = labels
	}
	for _, n := range v.Namespaces {
		k.labels[at(n, "metadata", "name")] = labelsOf(n)
	}
	if operation, ok := v.GlobalValues["request.operation"].(string); ok {
		k.operation = operation
	}
}

// userOf returns the user of a userInfo; nil if there is none.
func userOf(content map[string]any) *user.DefaultInfo {
	var of struct {
		UserInfo struct {
			Username, UID string
			Groups        []string
			Extra         map[string][]string
		}
	}
	// Unreadable parts are ignored.
	_ = yaml.Unmarshal(stage.Encode(content), &of)
	u := &user.DefaultInfo{Name: of.UserInfo.Username, UID: of.UserInfo.UID, Groups: of.UserInfo.Groups, Extra: of.UserInfo.Extra}
	if u.Name == "" && len(u.Groups) == 0 {
		return nil
	}
	// Possibly only the groups are given.
	u.Name = cmp.Or(u.Name, administrator.Name)
	return u
}

// result adds the tests of a result.
func (k *kyverno) result(r *kyvernoResult, node *yamlv3.Node) {
	_, policyName, namespaced := strings.Cut(r.Policy, "/")
	if !namespaced {
		policyName = r.Policy
	}
	o := k.policies[policyName]
	name := strings.Trim(r.Policy+"/"+r.Rule, "/")
	kind := ""
	if o != nil {
		kind = at(o.Content, "kind")
	}
	skip := k.skip
	switch more := strange(node, "policy", "rule", "isValidatingAdmissionPolicy", "isMutatingAdmissionPolicy", "isValidatingPolicy", "isMutatingPolicy",
		"isImageValidatingPolicy", "isGeneratingPolicy", "isDeletingPolicy", "kind", "result", "operation", "resources", "resourceSpecs", "patchedResource", "patchedResources", "failOnMissingResources"); {
	case skip != "":
	case o == nil:
		skip = "the policy is in none of the files"
	case !isPolicy(kind) && k.call:
		skip = cmp.Or(k.running, acts(o, r.Rule), more)
	case !isPolicy(kind):
		skip = fmt.Sprintf("a %s of %s is Kyverno's own: a running Kyverno evaluates it", kind, at(o.Content, "apiVersion"))
	case more != "":
		skip = more
	case len(k.doc.Exceptions) > 0 && kind == "ValidatingAdmissionPolicy":
		skip = "a ValidatingAdmissionPolicy knows no exceptions, and kyverno test refuses them"
	}
	if skip != "" {
		k.add(&Test{Name: name, Line: node.Line, Skip: skip})
		return
	}
	if !slices.Contains([]string{"pass", "fail", "skip", "error", "warn"}, r.Result) {
		k.fail(node.Line, "the result of %s is %q, and must be one of pass, fail, skip, error, warn", r.Policy, r.Result)
		return
	}
	if r.Operation != "" && !slices.Contains([]string{opCreate, opUpdate, opDelete}, r.Operation) {
		k.fail(node.Line, "the operation of %s is %q, and must be one of CREATE, UPDATE, DELETE", r.Policy, r.Operation)
		return
	}
	found, named := 0, len(r.Resources)+len(r.ResourceSpecs) > 0
	test := func(about string, means func(content map[string]any) bool) {
		any := false
		for _, o := range k.resources {
			if means(o.Content) {
				any = true
				found++
				k.test(r, name, policyName, kind, node, o.Content, named)
			}
		}
		if !any {
			k.add(&Test{Name: name + "/" + about, Line: node.Line, Skip: "the resource is in none of the files"})
		}
	}
	ofKind := func(content map[string]any) bool {
		return r.Kind == "" || at(content, "kind") == r.Kind[strings.LastIndex(r.Kind, "/")+1:]
	}
	for _, resource := range r.Resources {
		namespace, own, qualified := strings.Cut(resource, "/")
		test(r.Kind+" "+resource, func(content map[string]any) bool {
			title := at(content, "metadata", "name")
			return ofKind(content) && (title == resource || qualified && title == own && cmp.Or(at(content, "metadata", "namespace"), "default") == namespace)
		})
	}
	for _, spec := range r.ResourceSpecs {
		if spec.Subresource != "" {
			k.add(&Test{Name: name + "/" + spec.Name, Line: node.Line, Skip: "the subresource of a resource is not read"})
			continue
		}
		apiVersion := strings.TrimPrefix(spec.Group+"/"+spec.Version, "/")
		test(spec.Kind+" "+spec.Name, func(content map[string]any) bool {
			return at(content, "metadata", "name") == spec.Name && at(content, "metadata", "namespace") == spec.Namespace &&
				(spec.Version == "" || at(content, "apiVersion") == apiVersion) && (spec.Kind == "" || at(content, "kind") == spec.Kind)
		})
	}
	if !named {
		test(r.Kind, ofKind)
	}
}

// test adds the test of one resource. named reports whether the result names the resource.
func (k *kyverno) test(r *kyvernoResult, name, policy, kind string, node *yamlv3.Node, content map[string]any, named bool) {
	title, line := at(content, "metadata", "name"), node.Line
	t := &Test{Name: name + "/" + at(content, "kind") + " " + title, Line: line}
	defer k.add(t)
	operation := opCreate
	for _, o := range []string{k.operation, r.Operation} {
		if o != "" {
			operation = o
		}
	}
	t.request = request{line: line, operation: operation, object: runtime.DeepCopyJSON(content), user: k.user}
	switch operation {
	case opUpdate:
		t.request.old = runtime.DeepCopyJSON(content)
	case opDelete:
		t.request.object, t.request.old = nil, t.request.object
	}
	var patched any
	if file := r.PatchedResource + r.PatchedResources; file != "" {
		for _, o := range k.read(line, file) {
			if namespace := at(o.Content, "metadata", "namespace"); at(o.Content, "metadata", "name") == title && at(o.Content, "kind") == at(content, "kind") &&
				(namespace == at(content, "metadata", "namespace") || namespace == "") {
				patched = o.Content
			}
		}
		if patched == nil {
			if !named {
				t.Skip = "the patched resource is not in " + file
			} else {
				k.fail(line, "the patched resource of %s %s is not in %s", at(content, "kind"), title, file)
			}
			return
		}
	}
	failed := "fail"
	if at(k.policies[policy].Content, "metadata", "annotations", "policies.kyverno.io/scored") == "false" {
		failed = "warn"
	}
	if !isPolicy(kind) {
		t.running = kyvernoEngine(policy, r.Rule)
		if t.request.user == nil && k.engine {
			t.request.user = &someone
		}
		if !k.engine {
			k.same(t.running, k.policies[policy])
		}
		t.judgeBy = func(o *Outcome) ([]Failure, string) { return k.ruled(t, r, o, patched) }
		return
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
			got = failed
		case !v.evaluated || kind == "MutatingAdmissionPolicy" && !v.changed:
			got = "skip"
		}
		if got == "skip" && !named && r.Result != "skip" {
			return nil, "the policy does not apply to the resource, and the result names none"
		}
		var failures []Failure
		if got != r.Result {
			failures = append(failures, Failure{line, "result", r.Result, strings.TrimSpace(got + " " + strings.Join(slices.Concat(v.violated, v.failed), "; "))})
		}
		if patched != nil && o.Object != nil {
			failures = append(failures, unequal(line, "patchedResource", patched, o.Object)...)
		}
		return failures, ""
	}
}

// ruled compares a result with the response of a running Kyverno. A response does not distinguish a rule that passes
// from a rule that does not apply.
func (k *kyverno) ruled(t *Test, r *kyvernoResult, o *Outcome, patched any) (failures []Failure, skip string) {
	var messages []string
	messages, o.named, skip = t.running.heardOf(o)
	if skip == uncalled && k.engine && r.Result == "skip" {
		// The engine registered its webhooks for the resources in its policies.
		skip = ""
	}
	if skip != "" {
		return nil, skip
	}
	got, rejects := "pass or skip", r.Result == "fail" || r.Result == "error" || r.Result == "warn"
	if len(messages) > 0 {
		got = strings.TrimSpace("fail " + strings.Join(messages, "; "))
	}
	if rejects != (len(messages) > 0) {
		failures = append(failures, Failure{t.Line, "result", r.Result, got})
	}
	if patched != nil && o.Object != nil {
		failures = append(failures, unequal(t.Line, "patchedResource", patched, o.Object)...)
		// A change shows that the engine has the rule.
		differences("", patched, t.request.object, func(_, _, _ string) { o.named = o.named || len(failures) == 0 })
	}
	return failures, ""
}
