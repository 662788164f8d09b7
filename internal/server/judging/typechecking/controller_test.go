package typechecking

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/kube-openapi/pkg/validation/spec"
)

// policy returns a policy for resources of groups; "/" means a policy without constraints.
func policy(param string, groups ...string) *v1.ValidatingAdmissionPolicy {
	p := &v1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: "p", Generation: 2}}
	if param != "" {
		p.Spec.ParamKind = &v1.ParamKind{APIVersion: param, Kind: "Param"}
	}
	for _, group := range groups {
		if p.Spec.MatchConstraints == nil {
			p.Spec.MatchConstraints = &v1.MatchResources{}
		}
		p.Spec.MatchConstraints.ResourceRules = append(p.Spec.MatchConstraints.ResourceRules, v1.NamedRuleWithOperations{
			RuleWithOperations: v1.RuleWithOperations{Rule: v1.Rule{APIGroups: []string{group}, APIVersions: []string{"v1"}, Resources: []string{"things"}}},
		})
	}
	return p
}

func TestGroups(t *testing.T) {
	for _, tt := range []struct {
		name string
		p    *v1.ValidatingAdmissionPolicy
		want string
	}{
		{"none", policy(""), ""},
		{"of rules", policy("", "apps", "example.com"), "apps,example.com"},
		{"of params, first", policy("rules.example.com/v1", "apps"), "rules.example.com,apps"},
		{"of params of the core", policy("v1", "apps"), ",apps"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := strings.Join(groups(tt.p), ","); got != tt.want {
				t.Errorf("got %q", got)
			}
			// The part of a policy that the controller keeps has the same groups.
			kept, err := outline(tt.p)
			if err != nil {
				t.Fatal(err)
			}
			if got := strings.Join(groups(kept.(*v1.ValidatingAdmissionPolicy)), ","); got != tt.want {
				t.Errorf("of its outline: %q", got)
			}
		})
	}
	if got, err := outline("something else"); got != "something else" || err != nil {
		t.Errorf("of another object: %v, %v", got, err)
	}
}

func builtin(group string) bool { return group == "" || group == "apps" }

// controller returns a running controller without its goroutines.
func controller(t *testing.T) *run {
	c := New(Options{Builtin: builtin})
	c.mu.again, c.mu.checked = map[string]bool{}, map[string]time.Time{}
	r := &run{Controller: c, store: cache.NewStore(cache.MetaNamespaceKeyFunc), queue: workqueue.NewTypedRateLimitingQueue(
		workqueue.NewTypedItemExponentialFailureRateLimiter[string](firstRetry, lastRetry))}
	t.Cleanup(r.queue.ShutDown)
	c.mu.run = r
	return r
}

func TestWhatIsChecked(t *testing.T) {
	observed := func(p *v1.ValidatingAdmissionPolicy) *v1.ValidatingAdmissionPolicy {
		p.Status.ObservedGeneration = 2
		return p
	}
	for _, tt := range []struct {
		name          string
		obj           any
		initial       bool
		queued, again bool
	}{
		{"S16.17 a generation that was not observed", policy("", "apps"), false, true, false},
		{"S16.17 one that was observed", observed(policy("", "apps")), false, false, false},
		{"one that was observed before this server ran, of built-in kinds", observed(policy("v1", "", "apps")), true, false, false},
		{"one that was observed before this server ran, of a custom kind: its schema may have changed", observed(policy("", "example.com")), true, true, true},
		{"the same of a custom param", observed(policy("example.com/v1", "apps")), true, true, true},
		{"any group names no custom kind", observed(policy("", "*")), true, false, false},
		{"a custom kind while this server runs", observed(policy("", "example.com")), false, false, false},
		{"another object", "policy", true, false, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := controller(t)
			r.changed(tt.obj, tt.initial)
			if (r.queue.Len() == 1) != tt.queued || r.mu.again["p"] != tt.again {
				t.Errorf("%d are queued, again: %v", r.queue.Len(), r.mu.again)
			}
		})
	}
}

func TestASchemaThatChanged(t *testing.T) {
	for group, want := range map[string]bool{"example.com": true, "other.example.com": false} {
		r := controller(t)
		if err := r.store.Add(policy("", "apps", "example.com")); err != nil {
			t.Fatal(err)
		}
		r.SchemaChanged(group)
		if !r.mu.stale || r.mu.again["p"] != want || (r.queue.Len() == 1) != want {
			t.Errorf("%s: stale %v, again %v, %d queued", group, r.mu.stale, r.mu.again, r.queue.Len())
		}
	}
	c := New(Options{})
	c.SchemaChanged("example.com")
	if !c.mu.stale {
		t.Error("a change is forgotten when the controller does not run")
	}
}

// D61: a policy is checked once a second at most.
func TestDue(t *testing.T) {
	r := controller(t)
	now := time.Date(2024, 5, 1, 0, 0, 0, 0, time.UTC)
	r.mu.again["p"] = true
	for _, step := range []struct {
		name  string
		after time.Duration
		wait  time.Duration
		again bool
	}{
		{"the first time", 0, 0, true},
		{"too early", 300 * time.Millisecond, 700 * time.Millisecond, false},
		{"in time, and nobody asked again", time.Second, 0, false},
		{"too early after that", 1999 * time.Millisecond, time.Millisecond, false},
	} {
		if wait, again := r.due("p", now.Add(step.after)); wait != step.wait || again != step.again {
			t.Errorf("%s: wait %v, again %v", step.name, wait, again)
		}
	}
	r.mu.again["p"] = true
	if _, again := r.due("p", now.Add(1500*time.Millisecond)); again || !r.mu.again["p"] {
		t.Error("who asks again while it is too early is forgotten")
	}
	r.deleted(cache.DeletedFinalStateUnknown{Key: "p"})
	if len(r.mu.again)+len(r.mu.checked) != 0 {
		t.Errorf("of a policy that is gone there is %v, %v", r.mu.again, r.mu.checked)
	}
}

type noSchemas struct{}

func (noSchemas) ResolveSchema(schema.GroupVersionKind) (*spec.Schema, error) {
	n := int64(10)
	text := spec.Schema{SchemaProps: spec.SchemaProps{Type: []string{"string"}, MaxLength: &n}}
	return &spec.Schema{SchemaProps: spec.SchemaProps{Type: []string{"object"}, Properties: map[string]spec.Schema{"text": text}}}, nil
}

// steady is a mapper with all kinds.
type steady struct{ meta.RESTMapper }

func (steady) Reset() {}

func checker() *Checker {
	m := meta.NewDefaultRESTMapper(nil)
	m.Add(schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "Thing"}, meta.RESTScopeNamespace)
	m.Add(schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Thing"}, meta.RESTScopeNamespace)
	return &Checker{Schemas: noSchemas{}, Kinds: steady{m}}
}

// S16.20: each validation with a type error has a warning. F28: authorizer.requestResource is a
// known variable.
func TestWarnings(t *testing.T) {
	p := policy("", "apps")
	p.Spec.Validations = []v1.Validation{
		{Expression: "object.text == 'x'", MessageExpression: "object.absent"},
		{Expression: "object.absent == 1"},
		{Expression: "object.text == 1", MessageExpression: "object.text"},
		{Expression: "authorizer.requestResource.check('get').allowed() && authorizer.group('apps').resource('things').check('get').allowed()"},
		{Expression: "authorizer.requestResource.absent"},
	}
	var c contexts
	check := checker()
	var got []string
	for _, w := range c.of(check, p, builtin).warnings(p) {
		got = append(got, w.FieldRef)
	}
	want := []string{"spec.validations[0].messageExpression", "spec.validations[1].expression", "spec.validations[2].expression", "spec.validations[4].expression"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("warnings (-want +got):\n%s", diff)
	}
}

func TestContextsAreSharedWhileNothingCanDiffer(t *testing.T) {
	check := checker()
	with := func(edit func(*v1.ValidatingAdmissionPolicy)) *v1.ValidatingAdmissionPolicy {
		p := policy("", "apps")
		edit(p)
		return p
	}
	for _, tt := range []struct {
		name   string
		p      *v1.ValidatingAdmissionPolicy
		shared bool
	}{
		{"the same kinds", with(func(p *v1.ValidatingAdmissionPolicy) {
			p.Name = "q"
			p.Spec.Validations = []v1.Validation{{Expression: "true"}}
		}), true},
		{"other kinds", policy("", "apps", "apps"), false},
		{"a variable more", with(func(p *v1.ValidatingAdmissionPolicy) { p.Spec.Variables = []v1.Variable{{Name: "v", Expression: "1"}} }), false},
		{"a param", policy("apps/v1", "apps"), false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var c contexts
			first := c.of(check, policy("", "apps"), builtin)
			if got := c.of(check, tt.p, builtin) == first; got != tt.shared {
				t.Errorf("shared: %v", got)
			}
		})
	}
	var c contexts
	first := c.of(check, policy("", "example.com"), builtin)
	if again := c.of(check, policy("", "example.com"), builtin); again == first || len(c) != 0 {
		t.Error("the types of a custom kind are remembered, whose schema may change")
	}
	for i := range mostContexts + 1 {
		c.of(check, with(func(p *v1.ValidatingAdmissionPolicy) {
			p.Spec.Variables = []v1.Variable{{Name: "v" + string(rune('a'+i)), Expression: "1"}}
		}), builtin)
	}
	if len(c) > mostContexts {
		t.Errorf("%d are remembered", len(c))
	}
}
