package rollout

import (
	"strings"
	"testing"
)

// A registration is named as kubectl names it, or by a short name; initializers are always
// enforced.
func TestRegistrationsAsUsersNameThem(t *testing.T) {
	for _, c := range []struct {
		text, state string
		err, soft   string
	}{
		{text: "validating/podpolicy", state: "validatingwebhookconfigurations.podpolicy"},
		{text: "MutatingWebhookConfiguration/a.b", state: "mutatingwebhookconfigurations.a.b"},
		{text: "validatingadmissionpolicies.admissionregistration.k8s.io/p", state: "validatingadmissionpolicies.p"},
		{text: "external/e", state: "externaladmissionhookconfigurations.e"},
		{text: "initializerconfigurations.admissionregistration.k8s.io/i", state: "initializerconfigurations.i",
			soft: `"initializerconfigurations.admissionregistration.k8s.io" has no enforcement mode: use one of externaladmissionhookconfigurations, mutating`},
		{text: "podpolicy", err: "not of the form KIND/NAME", soft: "not of the form KIND/NAME"},
		{text: "validating/", err: "not of the form KIND/NAME", soft: "not of the form KIND/NAME"},
		{text: "pods/x", err: `"pods" is not a kind of registration`, soft: `"pods" has no enforcement mode`},
	} {
		for _, parsed := range []struct {
			by   func(string) (Target, error)
			want string
		}{{ParseTarget, c.err}, {ParseSoft, c.soft}} {
			got, err := parsed.by(c.text)
			if parsed.want != "" {
				if err == nil || !strings.Contains(err.Error(), parsed.want) {
					t.Errorf("%s: %v, want an error about %q", c.text, err, parsed.want)
				}
				continue
			}
			if err != nil || got.State() != c.state {
				t.Errorf("%s: %q, %v", c.text, got.State(), err)
			}
		}
	}
}
