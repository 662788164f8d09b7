package condition

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/gatehouse-dev/gatehouse/internal/engine/expression"
)

// granted is an authorizer that allows one verb on one resource.
type granted struct{ verb, resource string }

func (g granted) Authorize(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	if a.GetVerb() == g.verb && a.GetResource() == g.resource {
		return authorizer.DecisionAllow, "", nil
	}
	return authorizer.DecisionNoOpinion, "not granted", nil
}

// update is an update of a deployment's scale, sent as apps/v1beta1, for a webhook that is
// registered for apps/v1.
func update() *expression.Input {
	pod := func(replicas int64) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "apps/v1", "kind": "Scale",
			"metadata": map[string]any{"name": "web", "namespace": "shop", "labels": map[string]any{"app": "web"}},
			"spec":     map[string]any{"replicas": replicas},
		}}
	}
	return &expression.Input{
		Object:      pod(3),
		OldObject:   pod(1),
		Kind:        schema.GroupVersionKind{Group: "autoscaling", Version: "v1", Kind: "Scale"},
		RequestKind: schema.GroupVersionKind{Group: "apps", Version: "v1beta1", Kind: "Scale"},
		Resource:    schema.GroupVersionResource{Group: "apps", Version: "v1beta1", Resource: "deployments"},
		Subresource: "scale",
		Name:        "web",
		Namespace:   "shop",
		Operation:   "UPDATE",
		Options:     &metav1.UpdateOptions{FieldManager: "kubectl"},
		User: &user.DefaultInfo{
			Name: "ada", UID: "7", Groups: []string{"dev", "ops"},
			Extra: map[string][]string{"scopes": {"a", "b"}},
		},
		Authorizer: granted{"scale", "deployments"},
	}
}

func set(expressions ...string) *Set {
	var conditions []Condition
	for i, e := range expressions {
		conditions = append(conditions, Condition{Name: "c" + string(rune('0'+i)), Expression: e})
	}
	return Compile(&expression.Cache{}, expression.Scope{Authorizer: true}, conditions)
}

// eval evaluates a set for an input.
func eval(ctx context.Context, s *Set, in *expression.Input) Result {
	return s.Eval(ctx, expression.NewValues(in), in.Resource, nil)
}

const (
	// costly costs about 700,000 units, 350,000 for each question to the authorizer (S16.15), and is true.
	costly = `(!authorizer.path('/').check('get').allowed() && !authorizer.path('/').check('put').allowed())`
	broken = `object.spec.nothing == 1`
)

func TestEval(t *testing.T) {
	for _, tt := range []struct {
		name        string
		expressions []string
		in          func(*expression.Input)
		want        string // the false condition, or the error
		errors      int
	}{
		{name: "S2.29 no conditions"},
		{name: "S2.29 all true", expressions: []string{"true", "1 < 2"}},
		{name: "S2.32 one false", expressions: []string{"true", "false", "true"}, want: "false: c1"},
		{name: "S2.32 false after an error", expressions: []string{broken, "false"}, want: "false: c1", errors: 1},
		{name: "S2.32 false before an error", expressions: []string{"false", broken}, want: "false: c0"},
		{
			name: "S2.33 one error prints as it is", expressions: []string{"true", broken},
			want: "expression 'object.spec.nothing == 1' resulted in error: no such key: nothing", errors: 1,
		},
		{
			name: "S2.33 several errors", expressions: []string{broken, "object.metadata.absent"},
			want: "[expression 'object.spec.nothing == 1' resulted in error: no such key: nothing, " +
				"compilation error: must evaluate to bool but got dyn]", errors: 2,
		},
		{
			name: "S2.33 identical errors are merged", expressions: []string{broken, broken},
			want: "expression 'object.spec.nothing == 1' resulted in error: no such key: nothing", errors: 2,
		},
		{
			name: "S2.33 what does not compile", expressions: []string{"object.("},
			want: "compilation error: compilation failed: ERROR: <input>:1:8: Syntax error: no viable alternative at input '.('\n | object.(\n | .......^", errors: 1,
		},
		{
			name: "S2.34 cost of one expression", expressions: []string{costly + " && " + costly},
			want: "expression '" + costly + " && " + costly + "' resulted in error: operation cancelled: actual cost limit exceeded", errors: 1,
		},
		{name: "S2.34 three fit the budget", expressions: []string{costly, costly, costly}},
		{
			name: "S2.34 cost of all", expressions: []string{costly, costly, costly, costly},
			want: "validation failed due to running out of cost budget, no further validation rules will be run",
		},
		{
			name: "S2.34 errors do not save the budget", expressions: []string{broken, costly, costly, costly, costly, "false"},
			want: "validation failed due to running out of cost budget, no further validation rules will be run", errors: 1,
		},
		{name: "S2.30 objects", expressions: []string{
			"object.spec.replicas == 3 && oldObject.spec.replicas == 1",
			"object.metadata.labels['app'] == 'web' && !has(object.metadata.annotations)",
		}},
		{
			name: "S2.30 objects that are absent", expressions: []string{"object == null && oldObject == null"},
			in: func(in *expression.Input) { in.Object, in.OldObject = nil, nil },
		},
		{
			name:        "S2.30 typed objects",
			expressions: []string{"object.metadata.name == 'p' && object.spec.containers[0].image == 'x' && !has(object.spec.hostNetwork)"},
			in: func(in *expression.Input) {
				in.Object = &corev1.Pod{
					ObjectMeta: metav1.ObjectMeta{Name: "p"},
					Spec:       corev1.PodSpec{Containers: []corev1.Container{{Image: "x"}}},
				}
			},
		},
		{name: "S2.30 request", expressions: []string{
			"request.operation == 'UPDATE' && request.name == 'web' && request.namespace == 'shop' && !request.dryRun",
			"request.userInfo.username == 'ada' && request.userInfo.uid == '7' && 'ops' in request.userInfo.groups",
			"request.userInfo.extra['scopes'] == ['a', 'b']",
			"request.options.fieldManager == 'kubectl'",
			"request.subResource == 'scale' && request.requestSubResource == 'scale'",
		}},
		{
			name: "S2.30 what is empty is absent", expressions: []string{
				"!has(request.subResource) && !has(request.namespace) && !has(request.userInfo.extra) && request.name == ''",
				"request.options == null",
			},
			in: func(in *expression.Input) {
				in.Subresource, in.Namespace, in.Name, in.User, in.Options = "", "", "", nil, nil
			},
			want:   "expression '!has(request.subResource) && !has(request.namespace) && !has(request.userInfo.extra) && request.name == ''' resulted in error: no such key: name",
			errors: 1,
		},
		{name: "S2.31 request.resource is original, request.kind is converted", expressions: []string{
			"request.resource.version == 'v1beta1' && request.requestResource.version == 'v1beta1'",
			"request.kind.group == 'autoscaling' && request.requestKind.group == 'apps'",
		}},
		{name: "S2.30 namespaceObject is null", expressions: []string{"namespaceObject == null"}},
		{name: "S2.30 authorizer", expressions: []string{
			"authorizer.group('apps').resource('deployments').namespace('shop').check('scale').allowed()",
			"authorizer.requestResource.check('scale').allowed() && !authorizer.requestResource.check('delete').allowed()",
		}},
		{
			name: "S2.30 no authorizer", expressions: []string{"authorizer.requestResource.check('scale').allowed()"},
			in:     func(in *expression.Input) { in.Authorizer = nil },
			want:   "expression 'authorizer.requestResource.check('scale').allowed()' resulted in error: no such attribute(s): authorizer.requestResource",
			errors: 1,
		},
		{
			name: "S2.35 three checks are too many for one expression",
			expressions: []string{
				"[1, 2, 3].all(i, authorizer.requestResource.check('scale').allowed())",
			},
			want: "expression '[1, 2, 3].all(i, authorizer.requestResource.check('scale').allowed())' resulted in error: operation cancelled: actual cost limit exceeded", errors: 1,
		},
		{
			name: "S2.30 params and variables do not exist", expressions: []string{"params == null", "variables == null"},
			want: "[compilation error: compilation failed: ERROR: <input>:1:1: undeclared reference to 'params' (in container '')\n | params == null\n | ^, " +
				"compilation error: compilation failed: ERROR: <input>:1:1: undeclared reference to 'variables' (in container '')\n | variables == null\n | ^]", errors: 2,
		},
		{
			name: "S2.30 request has no uid and no objects", expressions: []string{"request.uid == '' || request.object == null"},
			want: "compilation error: compilation failed: ERROR: <input>:1:8: undefined field 'uid'\n | request.uid == '' || request.object == null\n | .......^\n" +
				"ERROR: <input>:1:29: undefined field 'object'\n | request.uid == '' || request.object == null\n | ............................^", errors: 1,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			in := update()
			if tt.in != nil {
				tt.in(in)
			}
			r := eval(t.Context(), set(tt.expressions...), in)
			got := ""
			switch {
			case r.False != nil && r.Err != nil:
				t.Fatalf("both false and error: %+v", r)
			case r.False != nil:
				got = "false: " + r.False.Name
			case r.Err != nil:
				got = r.Err.Error()
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("result (-want +got):\n%s", diff)
			}
			if r.Errors != tt.errors {
				t.Errorf("%d errors, want %d", r.Errors, tt.errors)
			}
			if want := strings.HasPrefix(tt.want, "validation failed"); errors.Is(r.Err, expression.ErrOutOfBudget) != want {
				t.Errorf("out of budget: %v, want %v", !want, want)
			}
		})
	}
}

func TestEvalEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	const loops = `[1,2,3,4,5,6,7,8,9,10].all(a, [1,2,3,4,5,6,7,8,9,10].all(b, [1,2,3,4,5,6,7,8,9,10].all(c, [1,2,3,4,5].all(d, a+b+c+d > 0))))`
	if r := eval(ctx, set(loops), update()); r.Err == nil || !strings.Contains(r.Err.Error(), "interrupted") {
		t.Errorf("got %+v", r)
	}
}

func BenchmarkEval(b *testing.B) {
	for _, bb := range []struct{ name, expression string }{
		{"uses=object", "object.metadata.labels['app'] == 'web'"},
		{"uses=request", "request.userInfo.username != 'system:node'"},
	} {
		b.Run(bb.name, func(b *testing.B) {
			s, in := set(bb.expression), update()
			b.ReportAllocs()
			for b.Loop() {
				if r := eval(b.Context(), s, in); r.False != nil || r.Err != nil {
					b.Fatalf("%+v", r)
				}
			}
		})
	}
}
