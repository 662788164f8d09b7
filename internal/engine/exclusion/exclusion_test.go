package exclusion

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/gatehouse-dev/gatehouse/admission/registration"
)

func TestRulesAreChecked(t *testing.T) {
	// S23.2: field, value and remedy.
	good := Rule{Name: "a", Effect: Skip, Resources: []string{"leases"}}
	with := func(change func(*Rule)) []Rule {
		r := good
		change(&r)
		return []Rule{r}
	}
	for _, tt := range []struct {
		name  string
		rules []Rule
		want  string
	}{
		{"good", []Rule{good}, ""},
		{"no name", with(func(r *Rule) { r.Name = "" }), "exclusionRules[0].name: Required value: traces, audit events and metrics name the rule"},
		{"a bad name", with(func(r *Rule) { r.Name = "A B" }), `exclusionRules[0].name: Invalid value: "A B": a lowercase RFC 1123 label`},
		{"a name twice", []Rule{good, good}, `exclusionRules[1].name: Duplicate value: "a"`},
		{"no effect", with(func(r *Rule) { r.Effect = "" }), "exclusionRules[0].effect: Required value: must be one of skip, ignoreFailures, capTimeout"},
		{"an unknown effect", with(func(r *Rule) { r.Effect = "Skip" }), `exclusionRules[0].effect: Unsupported value: "Skip": supported values: "skip", "ignoreFailures", "capTimeout"`},
		{"no time", with(func(r *Rule) { r.Effect = CapTimeout }), "exclusionRules[0].timeoutSeconds: Invalid value: 0: must be between 1 and 29"},
		{"too much time", with(func(r *Rule) { r.Effect, r.TimeoutSeconds = CapTimeout, 30 }), "exclusionRules[0].timeoutSeconds: Invalid value: 30: must be between 1 and 29"},
		{"time without meaning", with(func(r *Rule) { r.TimeoutSeconds = 5 }), "exclusionRules[0].timeoutSeconds: Invalid value: 5: has a meaning only with the effect capTimeout"},
		{"an unknown plugin", with(func(r *Rule) { r.Plugins = []string{"PodSecurity"} }), `exclusionRules[0].plugins[0]: Unsupported value: "PodSecurity"`},
		{"a plugin that has no timeouts", with(func(r *Rule) {
			r.Effect, r.TimeoutSeconds, r.Plugins = CapTimeout, 2, []string{registration.ValidatingPolicyPlugin}
		}), `exclusionRules[0].plugins[0]: Invalid value: "ValidatingAdmissionPolicy": the effect capTimeout does nothing for this plugin: remove the plugin, or use skip`},
		{"an unknown operation", with(func(r *Rule) { r.Operations = []string{"PATCH"} }), `exclusionRules[0].operations[0]: Unsupported value: "PATCH"`},
		{"a bad resource", with(func(r *Rule) { r.Resources = []string{"nodes/"} }), `exclusionRules[0].resources[0]: Invalid value: "nodes/": must be RESOURCE or RESOURCE/SUBRESOURCE`},
		{"a kind for a resource", with(func(r *Rule) { r.Resources = []string{"Lease"} }), `exclusionRules[0].resources[0]: Invalid value: "Lease": must be the plural in lower case`},
		{"a wildcard in names", with(func(r *Rule) { r.Names = []string{"a*"} }), `exclusionRules[0].names[0]: Invalid value: "a*": no wildcards here`},
		{"an empty user", with(func(r *Rule) { r.Users = []string{""} }), "exclusionRules[0].users[0]: Required value"},
		{"everything", with(func(r *Rule) { r.Resources = nil }), `exclusionRules[0]: Invalid value: "a": this matches every request`},
		{"everything, in so many words", with(func(r *Rule) { r.Resources, r.APIGroups = []string{"*/*"}, []string{"*"} }), `exclusionRules[0]: Invalid value: "a": this matches every request`},
		{"everything but subresources", with(func(r *Rule) { r.Resources, r.APIGroups = []string{"*"}, []string{"*"} }), `exclusionRules[0]: Invalid value: "a": this matches every request`},
		{"everything by everybody", with(func(r *Rule) { r.Resources, r.Groups = nil, []string{"system:authenticated"} }), `exclusionRules[0]: Invalid value: "a": this matches every request`},
		{"S28.5 a mode of a configuration", []Rule{{Name: "a", Effect: Audit, Configurations: []string{"c"}}}, ""},
		{"S28.5 a mode of everything", []Rule{{Name: "a", Effect: Deny}}, `exclusionRules[0]: Invalid value: "a": this matches every request`},
		{"S28.5 a mode of initializers", []Rule{{Name: "a", Effect: Warn, Configurations: []string{"c"}, Plugins: []string{registration.InitializersPlugin}}}, "the effect warn does nothing for this plugin"},
		{"S28.5 configurations of another effect", with(func(r *Rule) { r.Configurations = []string{"c"} }), "exclusionRules[0].configurations: Forbidden: has a meaning only with the effects deny, warn and audit"},
		{"everything of a group", with(func(r *Rule) { r.Resources, r.APIGroups = []string{"*"}, []string{"coordination.k8s.io"} }), ""},
		{"everything by some", with(func(r *Rule) { r.Resources, r.Groups = nil, []string{"system:nodes"} }), ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := New(tt.rules)
			if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
				t.Errorf("got %v\nwant %s", err, tt.want)
			}
		})
	}
}

func TestRequestsAreMatched(t *testing.T) {
	lease := Attributes{Operation: "UPDATE", Group: "coordination.k8s.io", Resource: "leases", Namespace: "kube-node-lease", Name: "node-1",
		User: &user.DefaultInfo{Name: "system:node:node-1", Groups: []string{"system:nodes", "system:authenticated"}}}
	status := Attributes{Operation: "UPDATE", Resource: "nodes", Subresource: "status", Name: "node-1"}
	node := status
	node.Subresource = ""
	for _, tt := range []struct {
		name string
		rule Rule
		// matches has the answers for lease, status and node.
		matches [3]bool
	}{
		{"S23.3 a resource", Rule{Resources: []string{"leases"}}, [3]bool{true, false, false}},
		{"S23.3 a group", Rule{APIGroups: []string{"coordination.k8s.io"}}, [3]bool{true, false, false}},
		{"S23.3 any group", Rule{APIGroups: []string{"*"}, Resources: []string{"nodes"}}, [3]bool{false, false, true}},
		{"S23.3 the core group", Rule{APIGroups: []string{""}}, [3]bool{false, true, true}},
		{"S23.3 a subresource", Rule{Resources: []string{"nodes/status"}}, [3]bool{false, true, false}},
		{"S23.3 all subresources", Rule{Resources: []string{"nodes/*"}}, [3]bool{false, true, true}},
		{"S23.3 a subresource of any", Rule{Resources: []string{"*/status"}}, [3]bool{false, true, false}},
		{"S23.3 no subresource", Rule{Resources: []string{"*"}}, [3]bool{true, false, true}},
		{"S23.3 a namespace", Rule{Namespaces: []string{"kube-node-lease"}}, [3]bool{true, false, false}},
		{"S23.3 a name", Rule{Names: []string{"node-1"}}, [3]bool{true, true, true}},
		{"S23.3 a user", Rule{Users: []string{"system:node:node-1"}}, [3]bool{true, false, false}},
		{"S23.3 a group of users", Rule{Groups: []string{"system:nodes"}}, [3]bool{true, false, false}},
		{"S23.3 a user and a group, of which one is another", Rule{Users: []string{"system:node:node-1"}, Groups: []string{"others"}}, [3]bool{}},
		{"S23.3 an operation", Rule{Operations: []string{"CREATE", "DELETE"}}, [3]bool{}},
		{"S23.3 all lists count", Rule{Resources: []string{"leases"}, Namespaces: []string{"default"}}, [3]bool{}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for i, q := range []Attributes{lease, status, node} {
				if got := tt.rule.matches(&q); got != tt.matches[i] {
					t.Errorf("%s %s/%s: %v", q.Operation, q.Resource, q.Subresource, got)
				}
			}
		})
	}
}

func TestRulesAreCombined(t *testing.T) {
	// S23.4.
	all := []string{"leases"}
	rules, err := New([]Rule{
		{Name: "slow", Effect: CapTimeout, TimeoutSeconds: 5, Resources: all},
		{Name: "slower", Effect: CapTimeout, TimeoutSeconds: 2, Resources: all},
		{Name: "one", Effect: IgnoreFailures, Resources: all},
		{Name: "two", Effect: IgnoreFailures, Resources: all},
		{Name: "hooks", Effect: Skip, Resources: all, Plugins: []string{registration.ExternalPlugin}},
	})
	if err != nil {
		t.Fatal(err)
	}
	q := &Attributes{Resource: "leases"}
	if x := rules.For(registration.ValidatingPlugin, q); x.Skips() || x.IgnoreFailures.Name != "one" || x.Timeout(30*time.Second) != 2*time.Second || x.Timeout(time.Second) != time.Second {
		t.Errorf("got %+v", x)
	}
	if x := rules.For(registration.ValidatingPolicyPlugin, q); x.CapTimeout != nil || !x.Forgives() {
		t.Errorf("S23.4 a policy has no timeout: %+v", x)
	}
	if x := rules.For(registration.InitializersPlugin, q); x != nil {
		t.Errorf("S23.4 an initializer has neither: %+v", x)
	}
	if x := rules.For(registration.ExternalPlugin, q); !x.Skips() || x.Skip.Name != "hooks" || x.IgnoreFailures != nil {
		t.Errorf("got %+v", x)
	}
	if x := rules.For("PodSecurity", q); x != nil {
		t.Errorf("S23.4 a compiled-in plugin is excluded: %+v", x)
	}
}

func TestRulesThatDoNotMatchAllocateNothing(t *testing.T) {
	rules, err := New([]Rule{{Name: "a", Effect: Skip, Resources: []string{"leases", "nodes/status"}, Groups: []string{"system:nodes"}}})
	if err != nil {
		t.Fatal(err)
	}
	caller := &user.DefaultInfo{Name: "bob", Groups: []string{"system:authenticated"}}
	if n := testing.AllocsPerRun(100, func() {
		if rules.For(registration.ValidatingPlugin, &Attributes{Operation: "CREATE", Resource: "leases", User: caller}) != nil {
			t.Error("it matches")
		}
	}); n != 0 {
		t.Errorf("S23.12 %v allocations", n)
	}
}

func BenchmarkRulesThatDoNotMatch(b *testing.B) {
	for _, n := range []int{0, 1, 10, 100} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			var list []Rule
			for range n {
				list = append(list, Rule{Resources: []string{"leases"}, Effect: Skip})
			}
			var rules *Rules
			if n > 0 {
				rules = &Rules{list: list}
			}
			b.ReportAllocs()
			for b.Loop() {
				rules.For(registration.ValidatingPlugin, &Attributes{Operation: "CREATE", Resource: "pods"})
			}
		})
	}
}

func TestTheHardestModeCounts(t *testing.T) {
	rules, err := New([]Rule{
		{Name: "soft", Effect: Audit, Configurations: []string{"a", "b"}},
		{Name: "softer", Effect: Warn, Namespaces: []string{"shop"}},
		{Name: "hard", Effect: Deny, Configurations: []string{"b"}, Users: []string{"bob"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name, namespace, user string
		configurations        []string
		want                  string
	}{
		{"S28.5 none", "office", "alice", []string{"c"}, ""},
		{"S28.5 one", "office", "alice", []string{"a"}, "Audit by soft"},
		{"S28.5 Warn is harder than Audit", "shop", "alice", []string{"a"}, "Warn by softer"},
		{"S28.5 Deny is the hardest", "shop", "bob", []string{"b"}, "Deny by hard"},
		{"S28.5 a binding or its policy", "office", "bob", []string{"policy", "b"}, "Deny by hard"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			x := rules.For(registration.ValidatingPlugin, &Attributes{Operation: "CREATE", Resource: "pods", Namespace: tt.namespace, User: &user.DefaultInfo{Name: tt.user}})
			got := ""
			if mode, rule := x.Mode(tt.configurations...); rule != nil {
				got = fmt.Sprintf("%s by %s", mode, rule.Name)
			}
			if got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}
