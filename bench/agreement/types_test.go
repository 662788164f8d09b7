package agreement

import (
	"regexp"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	"k8s.io/apiserver/pkg/cel/openapi/resolver"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/kubernetes/pkg/generated/openapi"

	"github.com/gatehouse-dev/gatehouse/internal/server/judging/typechecking"
)

// steadyMapper knows the kinds of the scheme. Reset does not discover more kinds.
type steadyMapper struct{ meta.RESTMapper }

func (steadyMapper) Reset() {}

// drawn matches the name of a type: upstream appends a random number, Gatehouse a fixed word.
var drawn = regexp.MustCompile(`\b([A-Z][A-Za-z]+?)(Params|\d+)\b`)

// The type errors of policies are the same as from upstream's checker (S16.17 to S16.20), except the names of types,
// which are random in upstream.
func TestTypeErrors(t *testing.T) {
	known := meta.NewDefaultRESTMapper(nil)
	for kind := range scheme.Scheme.AllKnownTypes() {
		known.Add(kind, meta.RESTScopeNamespace)
	}
	schemas := resolver.NewDefinitionsSchemaResolver(openapi.GetOpenAPIDefinitions, scheme.Scheme)
	theirs := &validating.TypeChecker{SchemaResolver: schemas, RestMapper: steadyMapper{known}}
	ours := &typechecking.Checker{Schemas: schemas, Kinds: steadyMapper{known}}

	rule := func(group, version string, resources ...string) v1.NamedRuleWithOperations {
		return v1.NamedRuleWithOperations{RuleWithOperations: v1.RuleWithOperations{Rule: v1.Rule{APIGroups: []string{group}, APIVersions: []string{version}, Resources: resources}}}
	}
	rules := map[string][]v1.NamedRuleWithOperations{
		"one kind":         {rule("apps", "v1", "deployments")},
		"two kinds":        {rule("apps", "v1", "statefulsets", "deployments"), rule("", "v1", "pods")},
		"a kind twice":     {rule("", "v1", "pods"), rule("", "v1", "pods", "pods/status")},
		"any version":      {rule("apps", "*", "deployments"), rule("", "v1", "pods")},
		"unknown":          {rule("example.com", "v1", "widgets"), rule("", "v1", "pods")},
		"only subresource": {rule("", "v1", "pods/exec", "*")},
		"eleven kinds": {rule("", "v1", "pods", "configmaps", "secrets", "services", "endpoints", "events", "nodes", "namespaces", "limitranges",
			"resourcequotas", "serviceaccounts"), rule("apps", "v1", "deployments")},
		"none": nil,
	}
	params := map[string]*v1.ParamKind{
		"no params": nil, "of a kind": {APIVersion: "v1", Kind: "ConfigMap"}, "of the same kind": {APIVersion: "apps/v1", Kind: "Deployment"},
		"of an unknown kind": {APIVersion: "example.com/v1", Kind: "Widget"}, "of no version": {APIVersion: "a/b/c", Kind: "Widget"},
	}
	variables := []v1.Variable{
		{Name: "replicas", Expression: "object.spec.replicas"}, {Name: "wrong", Expression: "object.spec.nothing"},
		{Name: "names", Expression: "object.metadata.name.split('-')"}, {Name: "later", Expression: "variables.absent"},
	}
	var validations []v1.Validation
	for _, e := range []string{
		"true", "object.spec.replicas > 1", "object.spec.replicas == 'a'", "object.spec.nothing == 1", "oldObject.metadata.labels.a == 1",
		"params.data.a == 'b'", "params.data.a == 1", "params.nothing", "variables.replicas > 'a'", "variables.wrong == 1", "variables.names[0] == 1",
		"variables.nothing", "variables.later", "request.userInfo.username == 1", "namespaceObject.metadata.absent",
		"authorizer.group('').resource('pods').check('get').allowed()", "authorizer.nothing", "object.spec == oldObject.status", "object.spec.replicas +",
		"object.spec == params", "1 + 'a'", "absent", "dyn(object).nothing == 1", "object.metadata.creationTimestamp == 1",
	} {
		validations = append(validations, v1.Validation{Expression: e, MessageExpression: e})
	}
	found := 0
	for ruleName, rules := range rules {
		for paramName, param := range params {
			t.Run(ruleName+", "+paramName, func(t *testing.T) {
				p := &v1.ValidatingAdmissionPolicy{Spec: v1.ValidatingAdmissionPolicySpec{
					ParamKind: param, MatchConstraints: &v1.MatchResources{ResourceRules: rules}, Variables: variables, Validations: validations,
				}}
				plain := func(list []v1.ExpressionWarning) []v1.ExpressionWarning {
					for i := range list {
						list[i].Warning = drawn.ReplaceAllString(list[i].Warning, "$1")
					}
					return list
				}
				want, got := plain(theirs.Check(p)), plain(ours.Check(p))
				found += len(want)
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("(-upstream +gatehouse):\n%s", diff)
				}
			})
		}
	}
	// F28 is a defect of upstream.
	p := &v1.ValidatingAdmissionPolicy{Spec: v1.ValidatingAdmissionPolicySpec{
		MatchConstraints: &v1.MatchResources{ResourceRules: rules["one kind"]},
		Validations:      []v1.Validation{{Expression: "authorizer.requestResource.check('get').allowed()"}},
	}}
	if theirs, ours := theirs.Check(p), ours.Check(p); len(theirs) != 1 || len(ours) != 0 {
		t.Errorf("authorizer.requestResource: upstream warns %v, gatehouse %v", theirs, ours)
	}
	if found < 500 {
		t.Errorf("only %d errors were compared", found)
	}
}
