package policy

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gatehouse-dev/gatehouse/admission/registration"
	"github.com/gatehouse-dev/gatehouse/internal/engine/expression"
)

var pods = schema.GroupVersionResource{Version: "v1", Resource: "pods"}

// compiled returns a policy; conditions are its match conditions.
func compiled(p *registration.Policy, conditions ...string) *Policy {
	e := &registration.Entry{Match: &registration.Match{}, Policy: p}
	for i, c := range conditions {
		e.MatchConditions = append(e.MatchConditions, registration.MatchCondition{Name: fmt.Sprintf("c%d", i), Expression: c})
	}
	return Compile(&expression.Cache{}, e)
}

// pod returns an input for the policies: spec.size is 3.
func pod() *Input {
	object := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Pod", "metadata": map[string]any{"name": "web"}, "spec": map[string]any{"size": int64(3), "text": strings.Repeat("a", 12_000)},
	}}
	return &Input{Own: pods, Matched: pods, Request: expression.NewValues(&expression.Input{
		Object: object, Kind: object.GroupVersionKind(), RequestKind: object.GroupVersionKind(), Resource: pods, Name: "web", Operation: "CREATE",
	})}
}

// costly is true and costs about 840,000 units. The limits are 1,000,000 for an expression and
// 10,000,000 for an evaluation.
var costly = "object.spec.text.matches('" + strings.Repeat("a", 2_800) + "')"

const (
	broken = `object.spec.nothing == 1`
	nokey  = `expression 'object.spec.nothing == 1' resulted in error: no such key: nothing`
)

// told describes a result: each finding with its type, reason and message.
func told(r *Result) []string {
	var list []string
	for _, f := range r.Findings {
		text := ""
		switch {
		case f.Holds():
			list = append(list, "holds")
			continue
		case f.Whole:
			text = "whole"
		case f.Violated:
			text = "violated"
		default:
			text = "failed"
		}
		list = append(list, fmt.Sprintf("%s %s: %s", text, f.Reason, f.Message))
	}
	for _, a := range r.Annotations {
		text := fmt.Sprintf("annotation %s: %s", a.Key, a.Value)
		if a.Err != nil {
			text = fmt.Sprintf("annotation %s failed", a.Key)
		}
		list = append(list, text)
	}
	return list
}

func TestValidate(t *testing.T) {
	forbidden := metav1.StatusReasonForbidden
	violated := func(v registration.Validation) *registration.Policy {
		v.Expression, v.Reason = "object.spec.size < 2", forbidden
		return &registration.Policy{Validations: []registration.Validation{v}}
	}
	annotated := func(expression string) *registration.Policy {
		return &registration.Policy{AuditAnnotations: []registration.AuditAnnotation{{Key: "k", ValueExpression: expression}}}
	}
	for _, tt := range []struct {
		name       string
		policy     *registration.Policy
		conditions []string
		want       []string
	}{
		{name: "S17.4 a condition is false", policy: violated(registration.Validation{}), conditions: []string{"true", "false"}},
		{name: "S17.4 a condition fails", policy: violated(registration.Validation{}), conditions: []string{broken}, want: []string{"whole Invalid: " + nokey}},
		{name: "S17.4 the conditions are true", policy: violated(registration.Validation{Message: "m"}), conditions: []string{"true"}, want: []string{"violated Forbidden: m"}},
		{name: "a validation holds", policy: &registration.Policy{Validations: []registration.Validation{{Expression: "object.spec.size == 3"}}}, want: []string{"holds"}},
		{name: "S17.6 a validation fails, and has not its own reason", policy: &registration.Policy{Validations: []registration.Validation{{Expression: broken, Reason: forbidden, Message: "m"}}}, want: []string{"failed Invalid: " + nokey}},
		{name: "S17.9 the message", policy: violated(registration.Validation{Message: "  too large\n"}), want: []string{"violated Forbidden: too large"}},
		{name: "S17.9 without a message the expression says it", policy: violated(registration.Validation{}), want: []string{"violated Forbidden: failed expression: object.spec.size < 2"}},
		{name: "S17.9 the messageExpression comes first", policy: violated(registration.Validation{Message: "m", MessageExpression: "'size ' + string(object.spec.size)"}), want: []string{"violated Forbidden: size 3"}},
		{name: "S17.9 an empty text is none", policy: violated(registration.Validation{Message: "m", MessageExpression: "'  '"}), want: []string{"violated Forbidden: m"}},
		{name: "S17.9 several lines are none", policy: violated(registration.Validation{Message: "m", MessageExpression: `'a\nb'`}), want: []string{"violated Forbidden: m"}},
		{name: "S17.9 a text of 5 KiB", policy: violated(registration.Validation{MessageExpression: "'" + strings.Repeat("x", 5<<10) + "'"}), want: []string{"violated Forbidden: " + strings.Repeat("x", 5<<10)}},
		{name: "S17.9 a longer one is none", policy: violated(registration.Validation{Message: "m", MessageExpression: "'" + strings.Repeat("x", 5<<10+1) + "'"}), want: []string{"violated Forbidden: m"}},
		{name: "S17.9 a messageExpression that fails", policy: violated(registration.Validation{Message: "m", MessageExpression: "object.spec.nothing"}), want: []string{"violated Forbidden: m"}},
		{name: "S16.12 messages do not know the authorizer", policy: violated(registration.Validation{Message: "m", MessageExpression: "string(authorizer.path('/').check('get').allowed())"}), want: []string{"violated Forbidden: m"}},
		{name: "all validations are evaluated, in order",
			policy: &registration.Policy{Validations: []registration.Validation{
				{Expression: "false", Message: "one", Reason: forbidden}, {Expression: "true"}, {Expression: broken}, {Expression: "false", Message: "two", Reason: "Invalid"},
			}}, want: []string{"violated Forbidden: one", "holds", "failed Invalid: " + nokey, "violated Invalid: two"}},
		{name: "S17.10 the budget is used up: what was violated before stays, with the message of its field",
			policy: &registration.Policy{Validations: append([]registration.Validation{
				{Expression: "false", Reason: forbidden, Message: "m", MessageExpression: "'never'"}, {Expression: "true"},
			}, times(20, registration.Validation{Expression: costly})...), AuditAnnotations: []registration.AuditAnnotation{{Key: "k", ValueExpression: "'never'"}}},
			want: []string{"whole Invalid: validation failed due to running out of cost budget, no further validation rules will be run", "violated Forbidden: m"}},
		{name: "S17.10 the messages use the budget up: every violation fails with its message",
			policy: &registration.Policy{Validations: append([]registration.Validation{{Expression: "false", Reason: forbidden, MessageExpression: "'first'"}},
				times(20, registration.Validation{Expression: "false", Reason: forbidden, MessageExpression: costly + " ? 'x' : 'y'"})...)},
			want: times(21, "violated Invalid: failed messageExpression: validation failed due to running out of cost budget, no further validation rules will be run")},
		{name: "S17.19 an audit annotation", policy: annotated("' size ' + string(object.spec.size) + ' '"), want: []string{"annotation k: size 3"}},
		{name: "S17.19 null records nothing", policy: annotated("null"), want: []string{"annotation k: "}},
		{name: "S17.19 a value of more than 10 KiB is cut", policy: annotated("'" + strings.Repeat("x", 10<<10+1) + "'"), want: []string{"annotation k: " + strings.Repeat("x", 10<<10)}},
		{name: "S17.19 a value that fails", policy: annotated("object.spec.nothing"), want: []string{"annotation k failed"}},
		{name: "S16.10 variables", policy: &registration.Policy{
			Variables:   []registration.Variable{{Name: "size", Expression: "object.spec.size"}, {Name: "double", Expression: "variables.size * 2"}},
			Validations: []registration.Validation{{Expression: "variables.double == 6"}},
		}, want: []string{"holds"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := compiled(tt.policy, tt.conditions...)
			r := p.Validate(t.Context(), pod())
			if diff := cmp.Diff(tt.want, told(&r)); diff != "" {
				t.Errorf("result (-want +got):\n%s", diff)
			}
			for _, c := range p.Costs() {
				if c.Most > expression.RunBudget {
					t.Errorf("%s cost %d", c.Field, c.Most)
				}
			}
		})
	}
}

// times returns n copies of a value.
func times[T any](n int, one T) []T {
	list := make([]T, n)
	for i := range list {
		list[i] = one
	}
	return list
}

func TestProblemsAndCostsAreInTheOrderOfTheFields(t *testing.T) {
	p := compiled(&registration.Policy{
		Variables:        []registration.Variable{{Name: "v", Expression: "object."}},
		Validations:      []registration.Validation{{Expression: "true", MessageExpression: "'x' +"}, {Expression: "1 +"}},
		AuditAnnotations: []registration.AuditAnnotation{{Key: "k", ValueExpression: "1"}},
		Mutations:        []registration.Mutation{{JSONPatch: true, Expression: "'x'"}, {Expression: "'x'"}},
	}, "true", "'text'")
	var fields []string
	for _, problem := range p.Problems() {
		fields = append(fields, problem.Field)
	}
	want := []string{
		"spec.matchConditions[1].expression", "spec.variables[v].expression", "spec.validations[0].messageExpression", "spec.validations[1].expression",
		"spec.auditAnnotations[0].valueExpression", "spec.mutations[0].jsonPatch.expression", "spec.mutations[1].applyConfiguration.expression",
	}
	if diff := cmp.Diff(want, fields); diff != "" {
		t.Errorf("problems (-want +got):\n%s", diff)
	}
	fields = nil
	for _, c := range p.Costs() {
		fields = append(fields, c.Field)
	}
	want = []string{
		"spec.matchConditions[0].expression", "spec.matchConditions[1].expression", "spec.validations[0].expression", "spec.validations[0].messageExpression",
		"spec.validations[1].expression", "spec.auditAnnotations[0].valueExpression", "spec.mutations[0].jsonPatch.expression", "spec.mutations[1].applyConfiguration.expression",
	}
	if diff := cmp.Diff(want, fields); diff != "" {
		t.Errorf("costs (-want +got):\n%s", diff)
	}
}

// S16.12: the message of a rejection cannot query the permissions of its user.
func TestMessagesDoNotKnowTheAuthorizer(t *testing.T) {
	const asks = "authorizer.path('/').check('get').allowed()"
	p := compiled(&registration.Policy{Validations: []registration.Validation{{Expression: asks, MessageExpression: "string(" + asks + ")"}}})
	if list := p.Problems(); len(list) != 1 || list[0].Field != "spec.validations[0].messageExpression" {
		t.Errorf("problems %v", list)
	}
}

// The highest cost of an expression is kept; an expression that was not evaluated cost nothing.
func TestCosts(t *testing.T) {
	p := compiled(&registration.Policy{
		Validations:      []registration.Validation{{Expression: costly, MessageExpression: "'never'"}, {Expression: "object.spec.size == 3"}},
		AuditAnnotations: []registration.AuditAnnotation{{Key: "k", ValueExpression: "'v'"}},
	})
	for range 2 {
		p.Validate(t.Context(), pod())
	}
	costs := p.Costs()
	if c := costs[0]; c.Most < 500_000 || c.Most > 1_000_000 || c.Text != costly || c.Limit != expression.PerExpression {
		t.Errorf("the validation: %+v", c)
	}
	if c := costs[1]; c.Most != 0 {
		t.Errorf("a message that was not needed: %+v", c)
	}
	if c := costs[2]; c.Most == 0 || c.Most > 100 {
		t.Errorf("a cheap one: %+v", c)
	}
}

func TestMutate(t *testing.T) {
	for _, tt := range []struct {
		name      string
		m         registration.Mutation
		err, want string
	}{
		{name: "S18.10 operations", m: registration.Mutation{JSONPatch: true, Expression: `[JSONPatch{op: "add", path: "/spec/x", value: 1}]`}, want: `[{"op":"add","path":"/spec/x","value":1}]`},
		{name: "S18.10 no operations", m: registration.Mutation{JSONPatch: true, Expression: `[JSONPatch{op: "add", path: "/x", value: 1}].filter(p, false)`}},
		{name: "S18.10 operations must be a list", m: registration.Mutation{JSONPatch: true, Expression: `1`}, err: "must evaluate to"},
		{name: "S18.8 an object to merge", m: registration.Mutation{Expression: `Object{spec: Object.spec{x: 1}}`}, want: `{"spec":{"x":1}}`},
		{name: "S18.8 an object to merge must be one", m: registration.Mutation{Expression: `1`}, err: "must evaluate to"},
		{name: "S16.3 what does not compile", m: registration.Mutation{JSONPatch: true, Expression: `[`}, err: "Syntax error"},
		{name: "S18.24 what cannot be evaluated", m: registration.Mutation{Expression: `object.spec.nothing ? Object{} : Object{}`}, err: "no such key"},
		{name: "S16.9 what costs too much", m: registration.Mutation{Expression: costly + " && " + costly + ` ? Object{} : Object{}`}, err: "cost limit exceeded"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := compiled(&registration.Policy{Mutations: []registration.Mutation{tt.m}})
			o := p.Mutate(t.Context(), pod(), 0)
			if tt.err != "" {
				if o.Err == nil || !strings.Contains(o.Err.Error(), tt.err) || o.Change != nil {
					t.Errorf("change %v, error %v, want %q", o.Change, o.Err, tt.err)
				}
				return
			}
			if o.Err != nil || o.Change == nil {
				t.Fatalf("change %v, error %v", o.Change, o.Err)
			}
			if o.Change.Empty() != (tt.want == "") {
				t.Errorf("it changes nothing: %v", o.Change.Empty())
			}
			if got := p.Mutations[0].Type(); (string(got) == "JSONPatch") != tt.m.JSONPatch {
				t.Errorf("type %s", got)
			}
		})
	}
}

// Why returns the part of a validation that is false, and the values of parts that come from the
// object. It reveals no params, no namespace, and no permissions of users (S17.24).
func TestWhy(t *testing.T) {
	for _, c := range []struct{ expression, part, values string }{
		{"object.spec.size == 3 && object.spec.size < 2", "object.spec.size < 2", "object.spec.size < 2 = false; object.spec.size = 3; object.spec.size == 3 = true"},
		{"true", "", ""},
		{"object.spec.size > int(params.data.most)", "", "object.spec.size = 3"},
		{"string(object.spec.size) + params.data.most == ''", "", "string(object.spec.size) = \"3\"; object.spec.size = 3"},
		{"[params.data.most].all(x, x == string(object.spec.size))", "", "string(object.spec.size) = \"3\"; object.spec.size = 3"},
		{"variables.size == 4 && variables.most == ''", "variables.size == 4", "variables.size == 4 = false; variables.size = 3"},
		{"variables.most == '' || variables.size == variables.itself", "", ""},
		{"namespaceObject.metadata.name == 'x'", "", ""},
		{"request.userInfo.groups.size() == 100", "", ""},
		{"request.operation == 'NONE'", "", "request.operation = \"CREATE\""},
		{"request.userInfo == null", "", ""},
		{"has(authorizer.requestResource.check('get').reason) ? false : authorizer.requestResource.check('get').allowed()", "", ""},
	} {
		p := compiled(&registration.Policy{Variables: []registration.Variable{
			{Name: "size", Expression: "object.spec.size"}, {Name: "most", Expression: "string(params.data.most)"}, {Name: "itself", Expression: "1"}, {Name: "itself", Expression: "variables.itself + 1"},
		}, Validations: []registration.Validation{{Expression: c.expression}}, ParamKind: &schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}})
		in := pod()
		in.Params = &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "data": map[string]any{"most": "9"}}}
		got := p.Why(t.Context(), in, 0)
		var values []string
		for _, v := range got.Values {
			values = append(values, v.Expression+" = "+v.Value)
		}
		if joined := strings.Join(values, "; "); got.Part != c.part || joined != c.values {
			t.Errorf("%s: part %q, values %q; want %q, %q", c.expression, got.Part, joined, c.part, c.values)
		}
	}
}
