package snapshot

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gatehouse-dev/gatehouse/admission/registration"
	"github.com/gatehouse-dev/gatehouse/internal/engine/exclusion"
)

// policyOf returns a policy, and bindingOf its binding.
func policyOf(name string, generation int64, version string) *v1.ValidatingAdmissionPolicy {
	p := &v1.ValidatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid-" + name), ResourceVersion: version, Generation: generation},
		Spec: v1.ValidatingAdmissionPolicySpec{
			MatchConstraints: &v1.MatchResources{ResourceRules: []v1.NamedRuleWithOperations{{RuleWithOperations: v1.RuleWithOperations{
				Operations: []v1.OperationType{"CREATE"}, Rule: v1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods"}},
			}}}},
			Validations: []v1.Validation{{Expression: "true"}},
		},
	}
	registration.Default(p)
	return p
}

func bindingOf(name, policy string) *v1.ValidatingAdmissionPolicyBinding {
	return &v1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1.ValidatingAdmissionPolicyBindingSpec{PolicyName: policy}}
}

func TestManifestsComeFirst(t *testing.T) {
	local, err := NewLocal([]Manifest{
		{configuration("z.static.k8s.io", "", "", "one"), "f"}, {configuration("y.static.k8s.io", "", "", "two"), "f"},
		{policyOf("p.static.k8s.io", 0, ""), "f"}, {bindingOf("b.static.k8s.io", "p.static.k8s.io"), "f"},
		{policyOf("unbound.static.k8s.io", 0, ""), "f"},
	}, map[string]string{"ValidatingAdmissionPolicy": "sha256:1"})
	if err != nil {
		t.Fatal(err)
	}
	s := Compile(Registrations{Local: local, Objects: []runtime.Object{
		configuration("a", "", "", "api"), policyOf("p.example.com", 1, "1"), bindingOf("a.example.com", "p.example.com"),
		bindingOf("crossing.example.com", "unbound.static.k8s.io"),
	}})
	if diff := cmp.Diff([]string{"y.static.k8s.io/two", "z.static.k8s.io/one", "a/api"}, names(s.Entries(registration.Validating))); diff != "" {
		t.Errorf("S21.13 (-want +got):\n%s", diff)
	}
	if n := s.Table(registration.Validating).Manifests(); n != 2 {
		t.Errorf("%d come from manifests", n)
	}
	bound := map[string]int{}
	for _, p := range s.Entries(registration.ValidatingPolicies) {
		if p.Bindings != nil {
			bound[p.Configuration] = len(p.Bindings.All)
		}
	}
	if diff := cmp.Diff(map[string]int{"p.static.k8s.io": 1, "p.example.com": 1}, bound); diff != "" {
		t.Errorf("S21.15 bindings of policies (-want +got):\n%s", diff)
	}
	for _, b := range s.Entries(registration.ValidatingBindings) {
		p := s.Bound(b)
		if (p == nil) != (b.Configuration == "crossing.example.com") {
			t.Errorf("S21.15 %s puts %v into force", b.Configuration, p)
		}
	}
	if diff := cmp.Diff([]string{
		"validatingadmissionpolicies.p.static.k8s.io", "validatingadmissionpolicies.unbound.static.k8s.io",
		"validatingadmissionpolicybindings.b.static.k8s.io",
		"validatingwebhookconfigurations.y.static.k8s.io", "validatingwebhookconfigurations.z.static.k8s.io",
	}, local.Names()); diff != "" {
		t.Errorf("names (-want +got):\n%s", diff)
	}
}

// unchanging is a reader of registrations that never change.
type unchanging struct{ reads int }

func (r *unchanging) Read(_ context.Context, since Version) (Registrations, error) {
	r.reads++
	if since == "1" {
		return Registrations{Version: "1", Unchanged: true, Revision: "8"}, nil
	}
	return Registrations{Version: "1", Revision: "7", Objects: []runtime.Object{configuration("a", "u", "1", "api")}}, nil
}

// Local changes take effect although the registrations of the API are the same (S21.22, S23.8).
func TestLocalChangesTakeEffect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var local *Local
		var changed []bool
		r, err := NewRefresher(Options{Reader: &unchanging{}, Local: func() *Local { return local }, Observer: func(read Read) { changed = append(changed, read.Changed) }})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		over := make(chan error)
		go func() { over <- r.Run(ctx) }()
		synctest.Wait()
		if r.Static() != nil {
			t.Error("there are manifests")
		}
		if local, err = NewLocal([]Manifest{{configuration("m.static.k8s.io", "", "", "file"), "f"}}, nil); err != nil {
			t.Fatal(err)
		}
		rules, err := exclusion.New([]exclusion.Rule{{Name: "r", Effect: exclusion.Skip, Resources: []string{"leases"}}})
		if err != nil {
			t.Fatal(err)
		}
		local = local.WithExclusions(rules)
		r.Poke()
		synctest.Wait()
		s := r.Current()
		if diff := cmp.Diff([]string{"m.static.k8s.io/file", "a/api"}, names(s.Entries(registration.Validating))); diff != "" || s.Exclusions() != rules || s.Revision != "8" {
			t.Errorf("%v at %s (-want +got):\n%s", s.Exclusions(), s.Revision, diff)
		}
		if static := r.Static(); len(static.Entries(registration.Validating)) != 1 || static.Exclusions() != rules {
			t.Errorf("S21.17 got %v", static)
		}
		time.Sleep(1500 * time.Millisecond)
		synctest.Wait()
		if diff := cmp.Diff([]bool{true, true, false}, changed); diff != "" {
			t.Errorf("changes (-want +got):\n%s", diff)
		}
		cancel()
		<-over
	})
}

// TestPoliciesAreCompiledAgainWhenTheirSpecChanged proves S20.2, and S16.22 for the measured costs.
func TestPoliciesAreCompiledAgainWhenTheirSpecChanged(t *testing.T) {
	var c Compiler
	compiled := func(generation int64, version string) any {
		s := c.Compile(Registrations{Objects: []runtime.Object{policyOf("p", generation, version), bindingOf("b", "p")}})
		e := s.Entries(registration.ValidatingPolicies)[0]
		if e.ConfigurationVersion != version {
			t.Errorf("the entry is of version %s, not %s", e.ConfigurationVersion, version)
		}
		return e.Policy
	}
	first := compiled(1, "1")
	if compiled(1, "1") != first {
		t.Error("the same object is compiled again")
	}
	if compiled(1, "2") != first {
		t.Error("an update of the status has the policy compiled again")
	}
	if compiled(2, "3") == first {
		t.Error("another spec is not compiled")
	}
}
