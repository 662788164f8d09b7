package registration

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The webhooks of one configuration stay together.
func TestArrangeConfigurations(t *testing.T) {
	hooks := func(name, after, before string) []*Entry {
		entries, err := Entries(&v1.MutatingWebhookConfiguration{
			ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{AfterAnnotation: after, BeforeAnnotation: before}},
			Webhooks:   []v1.MutatingWebhook{{Name: name + "1"}, {Name: name + "2"}},
		})
		if err != nil {
			t.Fatal(err)
		}
		return entries
	}
	for _, tt := range []struct {
		name string
		list [][]*Entry
		want string
	}{
		{"S5.29 no wishes", [][]*Entry{hooks("a", "", ""), hooks("b", "", "")}, "a1 a2 b1 b2"},
		{"S5.29 after", [][]*Entry{hooks("a", "c", ""), hooks("b", "", ""), hooks("c", "", "")}, "c1 c2 a1 a2 b1 b2"},
		{"S5.29 before, of several", [][]*Entry{hooks("a", "", ""), hooks("b", "", ""), hooks("c", "", " b , a")}, "c1 c2 a1 a2 b1 b2"},
		{"S5.29 unknown names, the name of a webhook, itself", [][]*Entry{hooks("a", "x, b1", ""), hooks("b", "", "b")}, "a1 a2 b1 b2"},
		{"S5.29 a circle", [][]*Entry{hooks("a", "b", ""), hooks("b", "a", "")}, "b1 b2 a1 a2"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var got []string
			for _, i := range Arrange(slices.Concat(tt.list...)) {
				got = append(got, i.Name)
			}
			if strings.Join(got, " ") != tt.want {
				t.Errorf("got %v, want %v", got, tt.want)
			}
		})
	}
}

func TestValidateOrder(t *testing.T) {
	object := func(after string) *metav1.ObjectMeta {
		return &metav1.ObjectMeta{Name: "a", Annotations: map[string]string{AfterAnnotation: after}}
	}
	for after, want := range map[string]string{
		"b": "", "b, c.d": "", "a": "must not name the object itself", "b,a": "must not name the object itself",
		"": "must be names of other objects", "b,": "must be names", "B": "must be names", "b c": "must be names",
	} {
		errs := ValidateOrder(object(after), nil)
		if want == "" && len(errs) > 0 || !strings.Contains(fmt.Sprint(errs.ToAggregate()), want) {
			t.Errorf("S5.30 %q: %v, want %q", after, errs, want)
		}
		if errs := ValidateOrder(object(after), object(after)); len(errs) > 0 {
			t.Errorf("S5.30 %q, as it is stored: %v", after, errs)
		}
	}
}

func TestArrange(t *testing.T) {
	in := func(name, after, before string) *Entry {
		return &Entry{Origin: Origin{Source: Initializing, Name: name}, Order: &Order{After: strings.Fields(after), Before: strings.Fields(before)}}
	}
	for _, tt := range []struct {
		name string
		list []*Entry
		want string
	}{
		{"S11.5 no wishes", []*Entry{in("b", "", ""), in("a", "", "")}, "b a"},
		{"granted already", []*Entry{in("a", "", "c"), in("b", "a", ""), in("c", "", "")}, "a b c"},
		{"after", []*Entry{in("a", "c", ""), in("b", "", ""), in("c", "", "")}, "c a b"},
		{"before", []*Entry{in("a", "", ""), in("b", "", ""), in("c", "", "a")}, "c a b"},
		{"a chain", []*Entry{in("a", "b", ""), in("b", "c", ""), in("c", "", "")}, "c b a"},
		{"unknown names", []*Entry{in("a", "x", "y"), in("b", "", "")}, "a b"},
		{"a circle", []*Entry{in("a", "b", ""), in("b", "a", ""), in("c", "", "")}, "b a c"},
		{"itself", []*Entry{in("a", "a", "a")}, "a"},
		{"a name twice", []*Entry{in("a", "", ""), in("b", "a", ""), in("a", "", "")}, "a b a"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var got []string
			for _, i := range Arrange(tt.list) {
				got = append(got, i.Name)
			}
			if strings.Join(got, " ") != tt.want {
				t.Errorf("got %v, want %v", got, tt.want)
			}
		})
	}
}

// S9.3: the plugins have one order, and the time that webhooks leave for later ones follows it.
func TestInOrder(t *testing.T) {
	want := map[Source]int{Initializing: 3, MutatingPolicies: 3, Mutating: 2, ValidatingPolicies: 2, External: 1, Validating: 0}
	if len(InOrder()) != len(want) {
		t.Errorf("%d plugins act on registrations, want %d", len(InOrder()), len(want))
	}
	pass := MutatingPass
	for _, source := range InOrder() {
		if d := source.Descriptor(); d.Pass < pass || d.Binds {
			t.Errorf("%s is out of place", d.Plugin)
		} else {
			pass = d.Pass
		}
		if got := source.CallsAfter(); got != want[source] {
			t.Errorf("after %s, %d plugins call webhooks, want %d", source.Descriptor().Plugin, got, want[source])
		}
	}
}
