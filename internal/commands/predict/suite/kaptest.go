package suite

import (
	"fmt"
	"slices"
	"strings"

	yamlv3 "go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/gatehouse-dev/gatehouse/internal/readers/manifests"
)

// kaptestFile is a file of kaptest: in the format of its version 0.1, or in a later one.
type kaptestFile struct {
	ValidatingAdmissionPolicies, Policies, Resources []string
	CRDs                                             []string       `json:"crds"`
	TestSuites                                       []kaptestSuite `json:"testSuites"`
	VAP                                              []kaptestSuite `json:"vapTestSuites"`
	MAP                                              []kaptestSuite `json:"mapTestSuites"`
}

type kaptestSuite struct {
	Policy string
	Tests  []kaptestTest
}

type kaptestTest struct {
	Object, OldObject, Param, ExpectObject *kaptestName
	UserInfo                               *struct {
		Name, User string
		Groups     []string
		Extra      map[string][]string
	}
	Expect               string
	DeniedMessage        *string
	DisableNameOverwrite bool
}

// kaptestName names an object of the resources.
type kaptestName struct{ Group, Version, Kind, Namespace, Name string }

func (n *kaptestName) means(content map[string]any) bool {
	group, version, found := strings.Cut(at(content, "apiVersion"), "/")
	if !found {
		group, version = "", group
	}
	return at(content, "kind") == n.Kind && at(content, "metadata", "name") == n.Name &&
		(n.Namespace == "" || at(content, "metadata", "namespace") == n.Namespace) &&
		(n.Group == "" || n.Group == group && (n.Version == "" || n.Version == version))
}

func (n *kaptestName) String() string {
	return strings.TrimPrefix(n.Namespace+"/", "/") + n.Name
}

// kaptest reads a file of kaptest.
func (f *finder) kaptest(path string, data []byte, root *yamlv3.Node) bool {
	var doc kaptestFile
	if decodeNode(root, &doc) != nil || len(doc.TestSuites)+len(doc.VAP)+len(doc.MAP) == 0 || len(doc.ValidatingAdmissionPolicies)+len(doc.Policies) == 0 {
		return false
	}
	k := &kaptester{foreign: newForeign(path, "kaptest", f.worldOf()), policies: map[string]*manifests.Object{}, worlds: map[string]*foreign{}}
	k.strange = strange(root, "version", "policies", "validatingAdmissionPolicies", "resources", "schemaLocations", "crds", "skipSchemaValidation", "testSuites", "vapTestSuites", "mapTestSuites")
	for _, name := range slices.Concat(doc.ValidatingAdmissionPolicies, doc.Policies) {
		for _, o := range k.read(root.Line, name) {
			if kind := at(o.Content, "kind"); isPolicy(kind) {
				k.policies[kind+" "+at(o.Content, "metadata", "name")] = o
			}
		}
	}
	for _, name := range doc.CRDs {
		if isURL(name) {
			k.strange = "the definition at " + name + " is not read: give its file"
			continue
		}
		k.objects = append(k.objects, k.read(root.Line, name)...)
	}
	k.resources = k.readResources(root.Line, doc.Resources)
	k.suites(root, "testSuites", "ValidatingAdmissionPolicy", doc.TestSuites)
	k.suites(root, "vapTestSuites", "ValidatingAdmissionPolicy", doc.VAP)
	k.suites(root, "mapTestSuites", "MutatingAdmissionPolicy", doc.MAP)
	for _, w := range k.order {
		f.add(w.Suite, k.wrong)
	}
	if len(k.order) == 0 {
		f.add(k.Suite, k.wrong)
	}
	return true
}

func isPolicy(kind string) bool {
	return kind == "ValidatingAdmissionPolicy" || kind == "MutatingAdmissionPolicy"
}

// kaptester makes tests from a file of kaptest.
type kaptester struct {
	// foreign has the common part of all test environments of the file.
	*foreign
	// strange is the reason why no test can be evaluated.
	strange   string
	policies  map[string]*manifests.Object
	resources []*manifests.Object
	// worlds are the suites made from the tests, each with one policy and one param, because kaptest evaluates one
	// policy at a time. order lists them in the order of the file.
	worlds map[string]*foreign
	order  []*foreign
}

func (k *kaptester) suites(root *yamlv3.Node, field, kind string, suites []kaptestSuite) {
	for i, node := range elementsOf(member(root, field), len(suites))[:len(suites)] {
		for n, node := range elementsOf(member(node, "tests"), len(suites[i].Tests))[:len(suites[i].Tests)] {
			k.test(kind, suites[i].Policy, n, &suites[i].Tests[n], node)
		}
	}
}

// object returns a resource; nil if there is none.
func (k *kaptester) object(n *kaptestName) *manifests.Object {
	for _, o := range k.resources {
		if n != nil && n.means(o.Content) {
			return o
		}
	}
	return nil
}

// find returns a copy of the content of a resource; nil if there is none.
func (k *kaptester) find(n *kaptestName) map[string]any {
	if o := k.object(n); o != nil {
		return runtime.DeepCopyJSON(o.Content)
	}
	return nil
}

// kaptestResults has the possible expectations of a test, by kind of policy.
var kaptestResults = map[string][]string{
	"ValidatingAdmissionPolicy": {"admit", "deny", "skip", "error"},
	"MutatingAdmissionPolicy":   {"mutate", "skip", "error"},
}

func (k *kaptester) test(kind, policy string, n int, test *kaptestTest, node *yamlv3.Node) {
	line := node.Line
	t := &Test{Name: fmt.Sprintf("%s/%d %s", policy, n+1, test.Expect), Line: line, Skip: k.strange}
	o := k.policies[kind+" "+policy]
	if o == nil {
		k.fail(line, "there is no %s %q in the files", kind, policy)
		return
	}
	if results := kaptestResults[kind]; !slices.Contains(results, test.Expect) {
		k.fail(line, "test %d of %s expects %q, which is not one of %s", n+1, policy, test.Expect, strings.Join(results, ", "))
		return
	}
	if more := strange(node, "object", "oldObject", "param", "userInfo", "expect", "deniedMessage", "expectObject", "disableNameOverwrite"); more != "" && t.Skip == "" {
		t.Skip = more
	}
	defer k.bind(t, o, test).add(t)
	q := request{line: line, object: k.find(test.Object), old: k.find(test.OldObject)}
	if u := test.UserInfo; u != nil {
		name := u.Name
		if name == "" {
			name = u.User
		}
		q.user = &user.DefaultInfo{Name: name, Groups: u.Groups, Extra: u.Extra}
	}
	missing := func(what string, n *kaptestName, found map[string]any) {
		if n != nil && n.Name != "" && found == nil && t.Skip == "" {
			t.Skip = fmt.Sprintf("%s %s %s is in none of the files", what, n.Kind, n)
		}
	}
	missing("the object", test.Object, q.object)
	missing("the old object", test.OldObject, q.old)
	switch {
	case q.object == nil && q.old == nil:
		if t.Skip == "" {
			t.Skip = "the test names no object"
		}
	case q.object == nil:
		q.operation = opDelete
	case q.old == nil:
		q.operation = opCreate
	default:
		q.operation = opUpdate
		// An update cannot change the name of an object; kaptest compares any two objects.
		q.old["metadata"].(map[string]any)["name"] = at(q.object, "metadata", "name")
	}
	t.request = q
	var wanted map[string]any
	if test.Expect == "mutate" {
		if wanted = k.find(test.ExpectObject); wanted == nil {
			k.fail(line, "test %d of %s expects mutate, and its expectObject is in none of the files", n+1, policy)
			return
		}
		if meta, ok := wanted["metadata"].(map[string]any); ok && !test.DisableNameOverwrite {
			meta["name"] = at(q.object, "metadata", "name")
		}
	}
	t.judgeBy = func(o *Outcome) ([]Failure, string) {
		v := o.verdictOf(policy)
		if why := o.unjudged(); why != "" && !v.evaluated {
			return nil, why
		}
		got := "admit"
		switch {
		case len(v.failed) > 0:
			got = "error"
		case !v.evaluated:
			got = "skip"
		case kind == "MutatingAdmissionPolicy":
			got = "mutate"
		case len(v.violated) > 0:
			got = "deny"
		}
		said := strings.Join(slices.Concat(v.violated, v.failed), "; ")
		if got != test.Expect {
			return []Failure{{line, "expect", test.Expect, strings.TrimSpace(got + " " + said)}}, ""
		}
		var failures []Failure
		if test.DeniedMessage != nil && !slices.Contains(v.violated, *test.DeniedMessage) {
			failures = append(failures, Failure{line, "deniedMessage", *test.DeniedMessage, said})
		}
		if wanted != nil {
			failures = append(failures, unequal(line, "expectObject", wanted, o.Object)...)
		}
		return failures, ""
	}
}

// bind returns the test environment of a test: its policy, the param that it names, and their binding.
func (k *kaptester) bind(t *Test, policy *manifests.Object, test *kaptestTest) *foreign {
	key, why := at(policy.Content, "kind")+" "+at(policy.Content, "metadata", "name"), ""
	var param *manifests.Object
	var ref map[string]any
	if paramKind := at(policy.Content, "spec", "paramKind", "kind"); paramKind != "" {
		// The policy names the kind of its params.
		named := kaptestName{Kind: paramKind}
		if test.Param != nil {
			named.Namespace, named.Name = test.Param.Namespace, test.Param.Name
		}
		key += " " + named.String()
		if param = k.object(&named); named.Name == "" {
			why = "the test names no param, and its policy has a paramKind"
		} else if param == nil {
			why = fmt.Sprintf("the param %s %s is in none of the files", paramKind, &named)
		}
		ref = map[string]any{"name": named.Name, "parameterNotFoundAction": "Deny"}
		if param != nil && at(param.Content, "metadata", "namespace") != "" {
			ref["namespace"] = at(param.Content, "metadata", "namespace")
		}
	}
	if t.Skip == "" {
		t.Skip = why
	}
	if w := k.worlds[key]; w != nil {
		return w
	}
	w := newForeign(k.File, k.Format, k.roots)
	w.world, w.names, w.labels = key, k.names, k.labels
	w.objects = append(slices.Clone(k.objects), policy)
	if param != nil {
		w.objects = append(w.objects, param)
	}
	w.objects = append(w.objects, w.binding(policy, ref))
	k.worlds[key] = w
	k.order = append(k.order, w)
	return w
}
