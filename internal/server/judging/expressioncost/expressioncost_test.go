package expressioncost

import (
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"github.com/gatehouse-dev/gatehouse/admission/registration"
	"github.com/gatehouse-dev/gatehouse/admission/snapshot"
	"github.com/gatehouse-dev/gatehouse/internal/engine/expression"
)

func TestHighCosts(t *testing.T) {
	worst := func(n uint64) *uint64 { return &n }
	for _, tt := range []struct {
		name string
		cost Cost
		says string // empty when the cost is not high
	}{
		{"nothing is known", Cost{Limit: 100}, ""},
		{"less than half", Cost{WorstCase: worst(49), Measured: 49, Limit: 100}, ""},
		{"half in the worst case", Cost{WorstCase: worst(50), Measured: 1, Limit: 100}, "f: it costs 50 in the worst case that the schema allows, and fails when it costs more than 100"},
		{"half so far", Cost{Measured: 50, Limit: 100}, "f: it cost 50 so far, and fails when it costs more than 100"},
		{"both", Cost{WorstCase: worst(200), Measured: 60, Limit: 100}, "f: it cost 60 so far, and it costs 200 in the worst case that the schema allows, and fails when it costs more than 100"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tt.cost.Field = "f"
			if tt.cost.High() != (tt.says != "") {
				t.Errorf("high: %v", tt.cost.High())
			} else if tt.says != "" && tt.cost.Message() != tt.says {
				t.Errorf("it says %q", tt.cost.Message())
			}
		})
	}
}

// The bounds that a schema sets.
func TestBound(t *testing.T) {
	number := func(n int64) *int64 { return &n }
	text := func(most *int64, words ...any) spec.Schema {
		return spec.Schema{SchemaProps: spec.SchemaProps{Type: []string{"string"}, MaxLength: most, Enum: words}}
	}
	item, value := text(number(7)), text(nil, "a", "long", 3)
	parent := spec.Schema{SchemaProps: spec.SchemaProps{Properties: map[string]spec.Schema{"inherited": text(number(9))}}}
	s := &spec.Schema{SchemaProps: spec.SchemaProps{AllOf: []spec.Schema{parent}, Properties: map[string]spec.Schema{
		"text": text(number(5)), "free": text(nil), "wrong": text(number(-1)), "enum": value,
		"list":     {SchemaProps: spec.SchemaProps{MaxItems: number(3), Items: &spec.SchemaOrArray{Schema: &item}}},
		"map":      {SchemaProps: spec.SchemaProps{MaxProperties: number(4), AdditionalProperties: &spec.SchemaOrBool{Schema: &value}}},
		"metadata": {SchemaProps: spec.SchemaProps{Properties: map[string]spec.Schema{"name": text(nil), "other": text(nil)}}},
	}}}
	for path, want := range map[string]int64{
		"text": 5, "free": -1, "wrong": -1, "enum": 4, "list": 3, "list.@items": 7, "map": 4, "map.@values": 4, "inherited": 9,
		"metadata.name": 253, "metadata.namespace": 63, "metadata.other": -1, "list.@items.name": -1, "absent": -1, "text.@items": -1,
	} {
		got, ok := bound(s, strings.Split(path, "."))
		if ok != (want >= 0) || ok && int64(got) != want {
			t.Errorf("%s: %d, %v, want %d", path, got, ok, want)
		}
	}
}

func mapper() meta.RESTMapper {
	m := meta.NewDefaultRESTMapper(nil)
	for _, kind := range []schema.GroupVersionKind{
		{Version: "v1", Kind: "Pod"}, {Version: "v1", Kind: "Service"}, {Group: "apps", Version: "v1", Kind: "Deployment"}, {Group: "apps", Version: "v1beta1", Kind: "Deployment"},
	} {
		m.Add(kind, meta.RESTScopeNamespace)
	}
	return m
}

func TestKindsOfRules(t *testing.T) {
	list := func(words string) []string { return strings.Split(words, ",") }
	rule := func(groups, versions, resources string) registration.Rule {
		return registration.Rule{APIGroups: list(groups), APIVersions: list(versions), Resources: list(resources)}
	}
	for _, tt := range []struct {
		name  string
		rules []registration.Rule
		want  string
	}{
		{"no rules", nil, ""},
		{"one kind", []registration.Rule{rule("", "v1", "pods")}, "Pod"},
		{"several", []registration.Rule{rule("", "v1", "pods,services"), rule("apps", "v1", "deployments")}, "Pod Service Deployment"},
		{"each once", []registration.Rule{rule("", "v1", "pods"), rule("", "v1", "pods,services")}, "Pod Service"},
		{"each version", []registration.Rule{rule("apps", "v1,v1beta1", "deployments")}, "Deployment Deployment"},
		{"any group names not all", []registration.Rule{rule("", "v1", "pods"), rule("*", "v1", "pods")}, ""},
		{"any version", []registration.Rule{rule("", "*", "pods")}, ""},
		{"any resource", []registration.Rule{rule("", "v1", "*")}, ""},
		{"a subresource", []registration.Rule{rule("", "v1", "pods/status")}, ""},
		{"a kind that nobody serves", []registration.Rule{rule("", "v1", "pods,things")}, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var got []string
			for _, kind := range New(nil, mapper()).kindsOf(tt.rules) {
				got = append(got, kind.Kind)
			}
			if diff := cmp.Diff(tt.want, strings.Join(got, " ")); diff != "" {
				t.Error(diff)
			}
		})
	}
	many := meta.NewDefaultRESTMapper(nil)
	var resources []string
	for i := range maxKinds + 1 {
		kind := "Kind" + string(rune('a'+i))
		many.Add(schema.GroupVersionKind{Version: "v1", Kind: kind}, meta.RESTScopeNamespace)
		resources = append(resources, strings.ToLower(kind)+"s")
	}
	if got := New(nil, many).kindsOf([]registration.Rule{rule("", "v1", strings.Join(resources[:maxKinds], ","))}); len(got) != maxKinds {
		t.Errorf("of as many kinds as may be: %d", len(got))
	}
	if got := New(nil, many).kindsOf([]registration.Rule{rule("", "v1", strings.Join(resources, ","))}); got != nil {
		t.Errorf("of more kinds: %v", got)
	}
}

// schemas has the schemas of some kinds, and counts how often they are requested.
type schemas struct {
	known map[string]*spec.Schema
	asked int
	// waits, when set, delays an answer until the channel is closed.
	waits chan struct{}
}

func (s *schemas) ResolveSchema(kind schema.GroupVersionKind) (*spec.Schema, error) {
	s.asked++
	if s.waits != nil {
		<-s.waits
	}
	if found, ok := s.known[kind.Kind]; ok {
		return found, nil
	}
	return nil, errors.New("no schema")
}

func TestOf(t *testing.T) {
	object := func(most int64) *spec.Schema {
		field := spec.Schema{SchemaProps: spec.SchemaProps{Type: []string{"string"}, MaxLength: &most}}
		return &spec.Schema{SchemaProps: spec.SchemaProps{Type: []string{"object"}, Properties: map[string]spec.Schema{"text": field}}}
	}
	for _, tt := range []struct {
		name, resource string
		known          map[string]*spec.Schema
		want           string
	}{
		{"a kind with a schema", "pods", map[string]*spec.Schema{"Pod": object(1000)}, "bounded"},
		{"a kind without one", "pods", nil, "unknown"},
		{"one of two kinds without one", "pods,services", map[string]*spec.Schema{"Pod": object(1000)}, "unknown"},
		{"any kind", "*", map[string]*spec.Schema{"Pod": object(1000)}, "unknown"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := &schemas{known: tt.known}
			e := New(s, mapper())
			list := e.Of(policyFor(t, tt.resource))
			if len(list) != 1 || list[0].Field != "spec.validations[0].expression" || list[0].Limit != expression.PerExpression || list[0].Measured != 0 {
				t.Fatalf("%+v", list)
			}
			if (list[0].WorstCase != nil) != (tt.want == "bounded") {
				t.Errorf("%+v", list[0])
			}
			asked := s.asked
			if e.Of(policyFor(t, tt.resource)); s.asked != asked {
				t.Error("a schema is asked for twice in a row")
			}
		})
	}
	of := func(s *schemas, resources string) uint64 {
		return *New(s, mapper()).Of(policyFor(t, resources))[0].WorstCase
	}
	s := &schemas{known: map[string]*spec.Schema{"Pod": object(1000), "Service": object(10)}}
	if both, pod, service := of(s, "services,pods"), of(s, "pods"), of(s, "services"); both != pod || service >= pod {
		t.Errorf("of two kinds the worst counts: %d, of %d and %d", both, pod, service)
	}
	if list := New(s, mapper()).Of(&snapshot.Entry{Entry: &registration.Entry{}}); list != nil {
		t.Errorf("of an entry that is no policy: %v", list)
	}
}

// When many policies for one kind are written at the same time, its schema is read once.
func TestTypesAreMadeOnce(t *testing.T) {
	s := &schemas{known: map[string]*spec.Schema{"Pod": {SchemaProps: spec.SchemaProps{Type: []string{"object"}}}}, waits: make(chan struct{})}
	e, entry := New(s, mapper()), policyFor(t, "pods")
	var begun, group sync.WaitGroup
	for range 16 {
		begun.Add(1)
		group.Go(func() {
			begun.Done()
			e.Of(entry)
		})
	}
	begun.Wait()
	close(s.waits)
	group.Wait()
	if s.asked != 1 {
		t.Errorf("16 policies at once ask for the schema %d times", s.asked)
	}
}

// Types are dropped after a while: they take memory, and the schema may change.
func TestTypesAreDropped(t *testing.T) {
	entry := policyFor(t, "pods")
	synctest.Test(t, func(t *testing.T) {
		s := &schemas{known: map[string]*spec.Schema{"Pod": {SchemaProps: spec.SchemaProps{Type: []string{"object"}}}}}
		e := New(s, mapper())
		for want := 1; want <= 2; want++ {
			if e.Of(entry); s.asked != want {
				t.Errorf("the schema is asked for %d times, want %d", s.asked, want)
			}
			time.Sleep(remembered)
			synctest.Wait()
			if len(e.mu.types) != 0 {
				t.Errorf("%d types are kept after %s", len(e.mu.types), remembered)
			}
		}
	})
}

// policyFor compiles a policy for resources.
func policyFor(t *testing.T, resources string) *snapshot.Entry {
	t.Helper()
	p := &v1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: "p"}, Spec: v1.ValidatingAdmissionPolicySpec{
		MatchConstraints: &v1.MatchResources{ResourceRules: []v1.NamedRuleWithOperations{{RuleWithOperations: v1.RuleWithOperations{
			Operations: []v1.OperationType{"*"}, Rule: v1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: strings.Split(resources, ",")},
		}}}},
		Validations: []v1.Validation{{Expression: "object.text.contains('x')"}},
	}}
	registration.Default(p)
	b := &v1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: "b"}, Spec: v1.ValidatingAdmissionPolicyBindingSpec{PolicyName: "p", ValidationActions: []v1.ValidationAction{v1.Deny}}}
	registration.Default(b)
	entries := snapshot.Compile(snapshot.Registrations{Objects: []runtime.Object{p, b}}).Entries(registration.ValidatingPolicies)
	if len(entries) != 1 {
		t.Fatalf("%d policies", len(entries))
	}
	return entries[0]
}
