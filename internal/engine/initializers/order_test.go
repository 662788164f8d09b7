package initializers

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/gatehouse-dev/gatehouse/admission/registration"
	"github.com/gatehouse-dev/gatehouse/admission/registration/v1alpha1"
)

// parse reads lines of the form "configuration: name after x,y before z".
func parse(text string) []*registration.Entry {
	var list []*registration.Entry
	for _, line := range strings.Split(strings.TrimSpace(text), "\n") {
		words := strings.Fields(line)
		i := &registration.Entry{
			Origin:      registration.Origin{Source: registration.Initializing, Configuration: strings.TrimSuffix(words[0], ":"), Name: words[1]},
			Initializer: &registration.Initializer{}, Order: &registration.Order{},
		}
		for n := 2; n < len(words); n += 2 {
			names := strings.Split(words[n+1], ",")
			if words[n] == "after" {
				i.Order.After = names
			} else {
				i.Order.Before = names
			}
		}
		list = append(list, i)
	}
	return list
}

func TestCheckOrder(t *testing.T) {
	for _, test := range []struct {
		name, list string
		want       string
	}{
		{name: "no wishes", list: "one: a\none: b"},
		{name: "wishes that agree", list: "one: a after b\none: b after c\ntwo: c before a"},
		{name: "names that are not there mean nothing", list: "one: a after x before x"},
		{name: "several ways to the same", list: "one: a after b,c\none: b after d\none: c after d\none: d"},
		{name: "itself", list: "one: a after a", want: `"a" is after "a" (configuration "one")`},
		{name: "two against each other", list: "one: a after b\ntwo: b after a",
			want: `"b" is after "a" (configuration "two"), "a" is after "b" (configuration "one")`},
		{name: "one against itself", list: "one: a after b before b\none: b",
			want: `"a" is before "b" (configuration "one"), "a" is after "b" (configuration "one")`},
		{name: "the way to the cycle is left out", list: "one: start after a\none: a after b\none: b after c\none: c after a",
			want: `"a" is after "b" (configuration "one")`},
	} {
		t.Run(test.name, func(t *testing.T) {
			err := CheckOrder(parse(test.list))
			if test.want == "" {
				if err != nil {
					t.Fatal(err)
				}
				return
			}
			var cycle *CycleError
			if !errors.As(err, &cycle) || !strings.Contains(err.Error(), test.want) || strings.Contains(err.Error(), "start") {
				t.Fatalf("error %v, want a cycle with %s", err, test.want)
			}
			for n, c := range cycle.Constraints {
				if next := cycle.Constraints[(n+1)%len(cycle.Constraints)]; c.Later != next.Earlier {
					t.Errorf("%v: %q does not lead to %q", err, c.Later, next.Earlier)
				}
			}
		})
	}
}

func TestLeading(t *testing.T) {
	parallel := func(name string) bool { return strings.HasPrefix(name, "p") }
	for pending, want := range map[string]int{
		"": 0, "a": 1, "a b": 1, "p": 1, "p1 p2 a p3": 2, "a p1 p2": 1, "p1 p2 p3": 3,
	} {
		var list []Initializer
		for _, name := range strings.Fields(pending) {
			list = append(list, Initializer{Name: name})
		}
		if got := len(Leading(list, parallel)); got != want {
			t.Errorf("of %q the first %d may act, want %d", pending, got, want)
		}
	}
}

func configuration(name string, list ...v1alpha1.Initializer) *v1alpha1.InitializerConfiguration {
	return &v1alpha1.InitializerConfiguration{ObjectMeta: metav1.ObjectMeta{Name: name}, Initializers: list}
}

func TestValidatingPass(t *testing.T) {
	exempt := schema.GroupVersionKind{Group: "admissionregistration.k8s.io", Version: "v1alpha1", Kind: "InitializerConfiguration"}
	p := New(Options{
		Authorizer: allow{},
		Exempt:     func(k schema.GroupVersionKind, _ schema.GroupResource) bool { return k == exempt },
		Registered: func(context.Context, registration.Source) ([]*registration.Entry, error) {
			return parse("one: old.example.com after x.example.com\ntwo: b.example.com after a.example.com"), nil
		},
	})
	const create, update = admission.Create, admission.Update
	for _, test := range []struct {
		name     string
		op       admission.Operation
		old, new *Initializers
		config   *v1alpha1.InitializerConfiguration
		want     string
	}{
		{name: "S11.2 what a webhook adds is checked", op: create, new: pending("short"), want: "pending[0].name"},
		{name: "S11.2 a name is there once", op: create, new: pending("a.example.com", "a.example.com"), want: `pending[1].name: Duplicate value: "a.example.com"`},
		{name: "S11.2 a list that is right", op: create, new: pending("a.example.com")},
		{name: "S11.39 a webhook cannot make an object uninitialized", op: update, new: pending("a.example.com"), want: "field is immutable once initialization has completed"},
		{name: "S11.39 nor change a result", op: update, old: failed("Failure"), new: pending("a.example.com"), want: "immutable once it is set"},
		{name: "S11.38 an empty list is none", op: update, new: pending()},
		{name: "S11.39 an uninitialized object may change", op: update, old: pending("a.example.com"), new: pending("b.example.com")},
		{name: "S11.39 initialized", op: update},
		{name: "order: a cycle with another configuration is refused", op: create,
			config: configuration("zero", v1alpha1.Initializer{Name: "a.example.com", After: []string{"b.example.com"}}),
			want:   `"b.example.com" is after "a.example.com" (configuration "two"), "a.example.com" is after "b.example.com" (configuration "zero")`},
		{name: "order: what the configuration said before does not count", op: update,
			config: configuration("one", v1alpha1.Initializer{Name: "x.example.com", After: []string{"old.example.com"}})},
		{name: "order: none is asked for", op: create, config: configuration("zero", v1alpha1.Initializer{Name: "a.example.com"})},
		{name: "order: an empty configuration", op: create, config: configuration("zero")},
	} {
		t.Run(test.name, func(t *testing.T) {
			object, old, kind, resource := newObject("typed", nil, test.new), newObject("typed", nil, test.old), podKind, podResource
			if test.config != nil {
				object, kind, resource = test.config, exempt, exempt.GroupVersion().WithResource("initializerconfigurations")
			}
			a := admission.NewAttributesRecord(object, old, kind, "ns", "p", resource, "", test.op, nil, false, &user.DefaultInfo{Name: "eve"})
			err := p.Validate(context.Background(), a, nil)
			if got := fmt.Sprint(err); test.want == "" && err != nil || !strings.Contains(got, test.want) {
				t.Errorf("error %v, want %q", err, test.want)
			}
		})
	}
}

// S5.30: order constraints cannot contradict each other through a name that no object has yet, so
// that creating the object of that name without constraints cannot complete a cycle.
func TestOrderOfWebhooks(t *testing.T) {
	gvk := admissionregistrationv1.SchemeGroupVersion.WithKind("MutatingWebhookConfiguration")
	webhooks := func(name, after, before string) *admissionregistrationv1.MutatingWebhookConfiguration {
		c := &admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{}}}
		for annotation, names := range map[string]string{registration.AfterAnnotation: after, registration.BeforeAnnotation: before} {
			if names != "" {
				c.Annotations[annotation] = names
			}
		}
		return c
	}
	for _, test := range []struct {
		name   string
		stored string
		old    *admissionregistrationv1.MutatingWebhookConfiguration
		new    *admissionregistrationv1.MutatingWebhookConfiguration
		want   string
	}{
		{name: "before and after the same name", new: webhooks("a", "x", "x"), want: `"a" is before "x" (its annotation gatehouse.dev/before), "a" is after "x"`},
		{name: "through a name between two", stored: "b: _ after x before a", new: webhooks("a", "", "x"), want: `"a" is before "x"`},
		{name: "two of one mind about a name", stored: "b: _ before x", new: webhooks("a", "", "x")},
		{name: "no wish", stored: "b: _ after x before x", new: webhooks("x", "", "")},
		{name: "the wishes are as before", stored: "b: _ after a\na: _ after b", old: webhooks("a", "b", ""), new: webhooks("a", "b", "")},
		{name: "the wishes have changed", stored: "b: _ after a\na: _ after c", old: webhooks("a", "c", ""), new: webhooks("a", "b", ""), want: `"b" is after "a"`},
	} {
		t.Run(test.name, func(t *testing.T) {
			p := New(Options{
				Authorizer: allow{}, Exempt: func(schema.GroupVersionKind, schema.GroupResource) bool { return true },
				Registered: func(context.Context, registration.Source) (list []*registration.Entry, err error) {
					if test.stored != "" {
						list = parse(test.stored)
					}
					for _, e := range list {
						e.Source = registration.Mutating
					}
					return list, nil
				},
			})
			operation, old := admission.Create, runtime.Object(nil)
			if test.old != nil {
				operation, old = admission.Update, test.old
			}
			a := admission.NewAttributesRecord(test.new, old, gvk, "", test.new.Name, gvk.GroupVersion().WithResource("mutatingwebhookconfigurations"), "", operation, nil, false, &user.DefaultInfo{Name: "eve"})
			err := p.Validate(context.Background(), a, nil)
			if got := fmt.Sprint(err); test.want == "" && err != nil || !strings.Contains(got, test.want) {
				t.Errorf("error %v, want %q", err, test.want)
			}
		})
	}
}

func TestOff(t *testing.T) {
	for _, test := range []struct {
		name     string
		old, new *Initializers
	}{
		{name: "S11.3 the field is cleared from what is sent", new: pending("a.example.com")},
		{name: "S11.3 and from what is stored", old: pending("a.example.com"), new: pending("a.example.com")},
		{name: "S11.3 nothing to clear"},
	} {
		t.Run(test.name, func(t *testing.T) {
			object, old := newObject("typed", nil, test.new), newObject("typed", nil, test.old)
			a := admission.NewAttributesRecord(object, old, podKind, "ns", "p", podResource, "", admission.Update, nil, false, &user.DefaultInfo{Name: "eve"})
			if err := (Off{}).Admit(context.Background(), a, nil); err != nil {
				t.Fatal(err)
			}
			if Has(object) || Has(old) {
				t.Error("the field is still there")
			}
		})
	}
}
