package expression

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/google/cel-go/common/types"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
)

// everything is the scope of validations of a policy with params.
var everything = Scope{Params: true, Authorizer: true}

// permissive allows everything to alice, and nothing to other users.
var permissive = authorizer.AuthorizerFunc(func(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	if a.GetUser().GetName() == "alice" {
		return authorizer.DecisionAllow, "", nil
	}
	return authorizer.DecisionNoOpinion, "", nil
})

// evaluated evaluates an expression of type bool for an object.
func evaluated(ctx context.Context, text string, object runtime.Object) (holds bool, cost uint64, err error) {
	in := &Input{Object: object, User: &user.DefaultInfo{Name: "alice"}, Authorizer: permissive}
	o, err := NewValues(in).NewRun(ctx, Options{Authorizer: true, Budget: RunBudget}).Eval(New(text, everything, nil, Bool))
	if err == nil {
		err = o.Err
	}
	return o.Value == types.True, o.Cost, err
}

// TestLanguage uses something from each library of expressions.
func TestLanguage(t *testing.T) {
	for _, tt := range []struct{ name, expression, err string }{
		{name: "S16.1 macros", expression: `[1, 2].all(x, x > 0) && [1].exists_one(x, x == 1) && [1, 2].map(x, x + 1) == [2, 3] && [1, 2].filter(x, x > 1) == [2]`},
		{name: "S16.1 URLs", expression: `url("https://example.com:80/p?q=r").getHostname() == "example.com" && !isURL("no")`},
		{name: "S16.1 regular expressions", expression: `"abc123".find("[0-9]+") == "123" && "a1b2".findAll("[0-9]") == ["1", "2"]`},
		{name: "S16.1 lists of Kubernetes", expression: `[1, 2, 3].sum() == 6 && [3, 1].max() == 3 && [1, 2].isSorted() && ["a", "b"].indexOf("b") == 1`},
		{name: "S16.1 strings", expression: `"a,b".split(",") == ["a", "b"] && "%s-%d".format(["a", 1]) == "a-1" && "ABC".lowerAscii() == "abc"`},
		{name: "S16.1 the authorizer", expression: `authorizer.group("").resource("pods").namespace("shop").check("get").allowed()`},
		{name: "S16.1 selectors for the authorizer", expression: `authorizer.group("").resource("pods").fieldSelector("metadata.name=a").labelSelector("a=b").check("list").allowed()`},
		{name: "S16.1 optional types", expression: `object.?metadata.?nothing.orValue("none") == "none" && optional.of(1).value() == 1`},
		{name: "S16.1 comparisons of numbers of different types", expression: `1 < 2.5 && 2.0 > 1u && 3u >= 3`},
		{name: "S16.1 quantities", expression: `quantity("1Gi").isGreaterThan(quantity("1M")) && isQuantity("5m") && !isQuantity("five")`},
		{name: "S16.1 sets", expression: `sets.contains([1, 2, 3], [2]) && sets.intersects([1], [1, 2])`},
		{name: "S16.1 addresses", expression: `ip("10.0.0.1").family() == 4 && cidr("10.0.0.0/8").containsIP("10.1.2.3") && !isIP("10.0")`},
		{name: "S16.1 formats", expression: `format.dns1123Label().validate("Not A Name").hasValue() && format.named("uuid").hasValue()`},
		{name: "S16.1 comprehensions with two variables", expression: `{"a": 1}.all(k, v, k == "a" && v == 1) && [5].exists(i, v, i == 0 && v == 5)`},
		{name: "S16.1 versions", expression: `semver("1.2.3").major() == 1 && isSemver("v1.0", true) && semver("1.0.0").isLessThan(semver("2.0.0"))`},
		{name: "S16.1 more of lists", expression: `lists.range(3) == [0, 1, 2] && [[1], [2]].flatten() == [1, 2] && [2, 1].sort() == [1, 2] && [1, 1].distinct() == [1]`},
		{name: "S16.1 the time zone is UTC", expression: `timestamp("2026-01-01T23:30:00Z").getHours() == 23 && timestamp("2026-01-01T23:30:00+02:00").getHours() == 21`},
		{name: "S16.1 lists of one type", expression: `[1, "a"].size() == 2`, err: "expected type 'int' but found 'string'"},
		{name: "S16.1 maps of one type", expression: `{"a": 1, "b": "c"}.size() == 2`, err: "expected type 'int' but found 'string'"},
		{name: "S16.1 literals that are tested", expression: `"a".matches("[")`, err: "invalid matches argument"},
		{name: "S16.1 durations that are tested", expression: `duration("soon") == duration("1s")`, err: "invalid duration argument"},
		{name: "S16.2 requests have what writes of this release do not have", expression: `["a", "b"].includes("b") && "a".includes("a")`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			holds, _, err := evaluated(t.Context(), tt.expression, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web"}})
			switch {
			case tt.err != "":
				if err == nil || !strings.Contains(err.Error(), tt.err) {
					t.Errorf("got %v, %v, want %s", holds, err, tt.err)
				}
			case err != nil || !holds:
				t.Errorf("got %v, %v", holds, err)
			}
		})
	}
}

// TestWritesAreHeldToTheReleaseBefore proves that a new expression may use only the language of the
// previous release, and a stored one also newer features: S16.2.
func TestWritesAreHeldToTheReleaseBefore(t *testing.T) {
	const newer = `["a"].includes("a")`
	if err := Check(newer, false); err == nil || !strings.Contains(err.Error(), "undeclared reference to 'includes'") {
		t.Errorf("written: %v", err)
	}
	if err := Check(newer, true); err != nil {
		t.Errorf("stored: %v", err)
	}
}

// TestNativeAndCustomObjectsLookAlike: S16.7.
func TestNativeAndCustomObjectsLookAlike(t *testing.T) {
	port := intstr.FromString("web")
	for _, tt := range []struct {
		name        string
		object      runtime.Object
		expressions []string
	}{
		{"quantities are strings", &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{
			Resources: corev1.ResourceRequirements{Limits: corev1.ResourceList{"cpu": resource.MustParse("500m")}},
		}}}}, []string{
			`object.spec.containers[0].resources.limits.cpu == "500m"`,
			`quantity(object.spec.containers[0].resources.limits.cpu).isLessThan(quantity("1"))`,
		}},
		{"bytes are base64", &corev1.Secret{Data: map[string][]byte{"key": []byte("hello")}}, []string{`object.data.key == "aGVsbG8="`}},
		{"an int or a string", &corev1.Service{Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{TargetPort: intstr.FromInt32(80)}, {TargetPort: port}}}}, []string{
			`object.spec.ports[0].targetPort == 80`, `object.spec.ports[1].targetPort == "web"`, `type(object.spec.ports[0].targetPort) == int`,
		}},
		{"absent fields are absent", &networkingv1.Ingress{ObjectMeta: metav1.ObjectMeta{Name: "web"}}, []string{
			`!has(object.spec.ingressClassName) && !has(object.metadata.labels) && has(object.metadata.name)`,
		}},
		{"names with a dash are not escaped", &corev1.ConfigMap{Data: map[string]string{"x-y": "z"}}, []string{
			`object.data["x-y"] == "z"`, `!has(object.data.x__dash__y)`,
		}},
	} {
		t.Run("S16.7 "+tt.name, func(t *testing.T) {
			content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(tt.object)
			if err != nil {
				t.Fatal(err)
			}
			for form, object := range map[string]runtime.Object{"native": tt.object, "custom": &unstructured.Unstructured{Object: content}} {
				for _, text := range tt.expressions {
					if holds, _, err := evaluated(t.Context(), text, object); err != nil || !holds {
						t.Errorf("%s: %s: got %v, %v", form, text, holds, err)
					}
				}
			}
		})
	}
}

// TestWhatAsksTheAuthorizerIsExpensive: a check costs 350,000, so that two fit into an expression,
// and 28 into a policy: S16.15.
func TestWhatAsksTheAuthorizerIsExpensive(t *testing.T) {
	const check = `authorizer.path("/x").check("get").allowed()`
	if _, cost, err := evaluated(t.Context(), check, nil); err != nil || cost < 350_000 || cost > 350_010 {
		t.Errorf("one check costs %d, %v", cost, err)
	}
	if _, _, err := evaluated(t.Context(), check+" && "+check, nil); err != nil {
		t.Errorf("two checks: %v", err)
	}
	if _, _, err := evaluated(t.Context(), check+" && "+check+" && "+check, nil); err == nil || !strings.Contains(err.Error(), "actual cost limit exceeded") {
		t.Errorf("three checks: %v", err)
	}
	in := &Input{User: &user.DefaultInfo{Name: "alice"}, Authorizer: permissive}
	run := NewValues(in).NewRun(t.Context(), Options{Authorizer: true, Budget: RunBudget})
	e := New(check, everything, nil, Bool)
	for i := 1; ; i++ {
		o, err := run.Eval(e)
		if errors.Is(err, ErrOutOfBudget) {
			if i != 29 {
				t.Errorf("the budget is used up by check %d", i)
			}
			return
		}
		if err != nil || o.Err != nil || i > 29 {
			t.Fatalf("check %d: %v, %v", i, err, o.Err)
		}
	}
}

// TestARequestThatIsCancelledEndsItsExpressions: S16.16.
func TestARequestThatIsCancelledEndsItsExpressions(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := evaluated(ctx, `lists.range(1000).all(x, x >= 0)`, nil); err == nil || !strings.Contains(err.Error(), "operation interrupted") {
		t.Errorf("a comprehension of 1000 steps: %v", err)
	}
	// The context is checked every 100 steps.
	if holds, _, err := evaluated(ctx, `lists.range(10).all(x, x >= 0)`, nil); err != nil || !holds {
		t.Errorf("a comprehension of 10 steps: %v, %v", holds, err)
	}
}
