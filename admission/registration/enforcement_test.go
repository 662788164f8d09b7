package registration

import (
	"fmt"
	"strings"
	"testing"

	v1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestEnforcementOfEntries(t *testing.T) {
	for _, test := range []struct {
		name, enforcement, rollout string
		want                       string
	}{
		{"S28.1 nothing", "", "", "a - b -"},
		{"S28.1 for all", "Warn", "", "a Warn b Warn"},
		{"S28.1 one counts more than all", "Warn, b.x.y=Audit", "", "a Warn b Audit"},
		{"S28.1 the order does not matter", "b.x.y=Deny,Audit", "", "a Audit b Deny"},
		{"S28.1 one only", "a.x.y=Warn", "", "a Warn b -"},
		{"S28.4 an unknown mode is none", "warn", "", "a - b -"},
		{"S28.3 a share", "Warn", "20%", "a Warn 20 b Warn 20"},
		{"S28.3 a selector", "Audit", "stage in (dev, test)", "a Audit stage in (dev,test) b Audit stage in (dev,test)"},
		{"S28.4 an unreadable rollout leaves the entry hard", "Warn", "20 percent of", "a - b -"},
		{"S28.4 more than all", "Warn", "101%", "a - b -"},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := &v1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "c", Annotations: map[string]string{}}}
			c.Webhooks = []v1.ValidatingWebhook{{Name: "a.x.y"}, {Name: "b.x.y"}}
			if test.enforcement != "" {
				c.Annotations[EnforcementAnnotation] = test.enforcement
			}
			if test.rollout != "" {
				c.Annotations[RolloutAnnotation] = test.rollout
			}
			entries, err := Entries(c)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, e := range entries {
				text := e.Name[:1] + " -"
				if e.Enforcement != nil {
					text = e.Name[:1] + " " + string(e.Enforcement.Mode)
					if r := e.Enforcement.Rollout; r != nil && r.Selector != nil {
						text += " " + r.Selector.String()
					} else if r != nil {
						text += fmt.Sprint(" ", r.Percent())
					}
				}
				got = append(got, text)
			}
			if got := strings.Join(got, " "); got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

func TestValidateEnforcement(t *testing.T) {
	object := func(enforcement, rollout string) *metav1.ObjectMeta {
		m := &metav1.ObjectMeta{Name: "c", Annotations: map[string]string{}}
		if enforcement != "-" {
			m.Annotations[EnforcementAnnotation] = enforcement
		}
		if rollout != "-" {
			m.Annotations[RolloutAnnotation] = rollout
		}
		return m
	}
	webhooks := []string{"a.x.y", "b.x.y"}
	for _, test := range []struct {
		name, enforcement, rollout string
		names                      []string
		want                       string
	}{
		{"fine", "Warn, a.x.y=Audit", "10%", webhooks, ""},
		{"fine for a policy", "Audit", "stage=dev", nil, ""},
		{"an unknown mode", "Block", "-", webhooks, `Unsupported value: "Block": supported values: "Deny", "Warn", "Audit"`},
		{"empty", "", "-", webhooks, `Unsupported value: ""`},
		{"no such webhook", "c.x.y=Warn", "-", webhooks, `names "c.x.y", and this object has no such webhook`},
		{"a webhook of a policy", "a.x.y=Warn", "-", nil, "must be one mode"},
		{"twice", "Warn,Audit", "-", webhooks, "must have one mode for all webhooks"},
		{"a rollout of nothing", "-", "10%", webhooks, "has a meaning only with the annotation gatehouse.dev/enforcement"},
		{"a share above all", "Warn", "120%", webhooks, "must be a whole number from 0% to 100%"},
		{"a broken selector", "Warn", "in in in", webhooks, "must be a share such as 25%, or a selector"},
		{"an empty rollout", "Warn", " ", webhooks, "must be a share such as 25%"},
	} {
		t.Run("S28.4 "+test.name, func(t *testing.T) {
			m := object(test.enforcement, test.rollout)
			errs := ValidateEnforcement(m, nil, test.names)
			if test.want == "" && len(errs) > 0 || test.want != "" && (errs == nil || !strings.Contains(errs.ToAggregate().Error(), test.want)) {
				t.Errorf("got %v, want %q", errs, test.want)
			}
			if errs := ValidateEnforcement(m, m, test.names); len(errs) > 0 {
				t.Errorf("as it is stored: %v", errs)
			}
		})
	}
}

// S28.3: shares have approximately their size, include smaller shares, and do not depend on any
// order.
func TestSharesOfNamespaces(t *testing.T) {
	share := func(text string) *Rollout {
		r, err := parseRollout(text, "policy")
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	const all = 5000
	var last *Rollout
	for _, percent := range []int{0, 1, 10, 25, 50, 90, 100} {
		r, n := share(fmt.Sprintf("%d%%", percent)), 0
		for i := range all {
			name := fmt.Sprintf("team-%d", i)
			in := r.Share(name)
			if in {
				n++
			}
			if last != nil && last.Share(name) && !in {
				t.Fatalf("%s is in %d%%, and not in %d%%", name, last.Percent(), percent)
			}
		}
		if want := all * percent / 100; n < want-all/50 || n > want+all/50 {
			t.Errorf("%d%% of %d names are %d", percent, all, n)
		}
		last = r
	}
	if share("99%").Share("") || !share("100%").Share("") {
		t.Error("an object without a namespace is in the share of 100% only")
	}
}
