package rejection

import "testing"

// Each field set in an expected decider must match; an empty field matches anything.
func TestWhatAnExpectedDeciderMeans(t *testing.T) {
	zero, one := int64(0), int64(1)
	decided := Decider{Plugin: "ValidatingAdmissionPolicy", Policy: "replicas", Binding: "all", Validation: &one}
	called := Decider{Plugin: "ValidatingAdmissionWebhook", Webhook: "hooks/pods.example.com"}
	for _, tc := range []struct {
		name string
		want Decider
		got  Decider
		ok   bool
	}{
		{"nothing is expected", Decider{}, decided, true},
		{"the plugin", Decider{Plugin: "ValidatingAdmissionPolicy"}, decided, true},
		{"another plugin", Decider{Plugin: "LimitRanger"}, decided, false},
		{"the policy", Decider{Policy: "replicas"}, decided, true},
		{"another policy", Decider{Policy: "images"}, decided, false},
		{"the binding", Decider{Policy: "replicas", Binding: "all"}, decided, true},
		{"another binding", Decider{Policy: "replicas", Binding: "some"}, decided, false},
		{"the validation", Decider{Validation: &one}, decided, true},
		{"another validation", Decider{Validation: &zero}, decided, false},
		{"a validation, and none decided", Decider{Validation: &zero}, called, false},
		{"the webhook with its configuration", Decider{Webhook: "hooks/pods.example.com"}, called, true},
		{"the webhook alone", Decider{Webhook: "pods.example.com"}, called, true},
		{"another webhook", Decider{Webhook: "nodes.example.com"}, called, false},
		{"a webhook, and none decided", Decider{Webhook: "pods.example.com"}, decided, false},
	} {
		if got := tc.want.Means(tc.got); got != tc.ok {
			t.Errorf("%s: %t, want %t", tc.name, got, tc.ok)
		}
	}
}
