package lint_test

import (
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/version"

	"github.com/gatehouse-dev/gatehouse/internal/commands/predict/offline"
	"github.com/gatehouse-dev/gatehouse/internal/readers/lint"
)

// TestUpgrades checks whether registrations work with other releases (S2.42).
func TestUpgrades(t *testing.T) {
	release := func(text string) *version.Version {
		if text == "" {
			return nil
		}
		return version.MustParseGeneric(text)
	}
	webhook := func(group, versions, resources, more string) string {
		return `apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: policies}
webhooks:
- name: check.policies.example.com
  clientConfig: {url: "https://localhost/"}
  admissionReviewVersions: [v1]
  sideEffects: None
  failurePolicy: Ignore
  rules:
  - {apiGroups: [` + group + `], apiVersions: [` + versions + `], operations: [CREATE], resources: [` + resources + `]}
` + more
	}
	apiServer := func(flags ...string) string {
		return "apiVersion: v1\nkind: Pod\nmetadata: {namespace: kube-system, name: kube-apiserver}\nspec:\n  containers:\n  - {name: a, command: [kube-apiserver, \"" + strings.Join(flags, "\", \"") + "\"]}\n"
	}
	for _, tc := range []struct {
		name, file, from, to string
		// want lists the rules with findings, each with a part of its message.
		want []string
	}{
		{"a version that is gone", webhook("flowcontrol.apiserver.k8s.io", "v1beta3", "flowschemas", ""), "", "1.32",
			[]string{"upgrade-rule-removed: matches nothing on Kubernetes 1.32: flowschemas of flowcontrol.apiserver.k8s.io/v1beta3 was removed in 1.32; write flowcontrol.apiserver.k8s.io/v1 FlowSchema"}},
		{"a version that is still there", webhook("flowcontrol.apiserver.k8s.io", "v1beta3", "flowschemas", ""), "", "1.31", nil},
		{"one version of several", webhook("flowcontrol.apiserver.k8s.io", "v1beta3, v1", "flowschemas", ""), "", "1.38",
			[]string{"upgrade-rule-removed: names more than Kubernetes 1.38 serves"}},
		{"a subresource", webhook("policy", "v1beta1", "poddisruptionbudgets/status", ""), "", "1.25",
			[]string{"upgrade-rule-removed: matches nothing on Kubernetes 1.25"}},
		{"a kind of such a version that no table has", webhook("policy", "v1beta1", "podsecuritypolicies, poddisruptionbudgets", ""), "", "1.37",
			[]string{"upgrade-rule-removed: matches nothing on Kubernetes 1.37: poddisruptionbudgets of policy/v1beta1 was removed in 1.25"}},
		{"a version that comes later", webhook("resource.k8s.io", "v1", "resourceclaims", ""), "", "1.33",
			[]string{"upgrade-rule-removed: resourceclaims of resource.k8s.io/v1 comes with 1.34"}},
		{"custom resources", webhook("stable.example.com", "v1beta1", "crontabs", ""), "", "1.38", nil},
		{"wildcards", webhook(`"*"`, `"*"`, `"*"`, ""), "", "1.38", nil},
		{"Exact, from before the new version", webhook("autoscaling", "v1", "horizontalpodautoscalers", "  matchPolicy: Exact\n"), "1.22", "1.23",
			[]string{"upgrade-rule-misses-version: name horizontalpodautoscalers of autoscaling/v1 and not autoscaling/v2, which Kubernetes serves since 1.23"}},
		{"Exact, when the new version is not new", webhook("autoscaling", "v1", "horizontalpodautoscalers", "  matchPolicy: Exact\n"), "1.23", "1.38", nil},
		{"Equivalent", webhook("autoscaling", "v1", "horizontalpodautoscalers", "  matchPolicy: Equivalent\n"), "1.22", "1.23", nil},
		{"a registration of old", strings.Replace(webhook("apps", "v1", "deployments", ""), "k8s.io/v1", "k8s.io/v1beta1", 1), "", "1.38",
			[]string{"upgrade-registration: ValidatingWebhookConfiguration of admissionregistration.k8s.io/v1beta1 was removed in 1.22; write admissionregistration.k8s.io/v1"}},
		{"an initializer", "apiVersion: admissionregistration.k8s.io/v1alpha1\nkind: InitializerConfiguration\nmetadata: {name: old}\ninitializers: []\n", "", "1.38",
			[]string{"upgrade-registration: Kubernetes 1.38 serves no InitializerConfiguration"}},
		{"params", `apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: limits}
spec:
  paramKind: {apiVersion: policy/v1beta1, kind: PodDisruptionBudget}
  matchConstraints: {resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}]}
  validations: [{expression: "params != null"}]
`, "", "1.37", []string{"upgrade-rule-removed: the params of limits are of policy/v1beta1 PodDisruptionBudget, which was removed in 1.25; write policy/v1 PodDisruptionBudget"}},
		{"a function", webhook("apps", "v1", "deployments", "  matchConditions:\n  - {name: new, expression: \"isSemver(object.metadata.name)\"}\n"), "", "1.32",
			[]string{"upgrade-expression: Kubernetes 1.32 does not have isSemver; Kubernetes 1.33 does"}},
		{"a function that is there", webhook("apps", "v1", "deployments", "  matchConditions:\n  - {name: new, expression: \"isSemver(object.metadata.name)\"}\n"), "", "1.37", nil},
		{"kubeadm", "apiVersion: kubeadm.k8s.io/v1beta4\nkind: ClusterConfiguration\napiServer:\n  extraArgs:\n  - {name: insecure-port, value: \"0\"}\n", "", "1.38",
			[]string{"upgrade-server-options: no flag --insecure-port"}},
		{"a list of plugins", "apiVersion: apiserver.config.k8s.io/v1\nkind: AdmissionConfiguration\nplugins: [{name: PodSecurityPolicy}]\n", "", "1.38",
			[]string{"upgrade-server-options: no admission plugin PodSecurityPolicy: PodSecurity replaces it"}},
		{"a kind that is gone", "apiVersion: resource.k8s.io/v1beta1\nkind: ResourceClaim\nmetadata: {name: gpu}\nspec: {}\n", "", "1.38",
			[]string{"upgrade-kind: ResourceClaim of resource.k8s.io/v1beta1 was removed in 1.38; write resource.k8s.io/v1 ResourceClaim"}},
		{"a kind that is still there", "apiVersion: resource.k8s.io/v1beta1\nkind: ResourceClaim\nmetadata: {name: gpu}\nspec: {}\n", "", "1.37", nil},
		{"one name in two versions", "apiVersion: resource.k8s.io/v1\nkind: ResourceClaim\nmetadata: {name: gpu}\nspec: {}\n---\napiVersion: resource.k8s.io/v1beta1\nkind: ResourceClaim\nmetadata: {name: gpu}\nspec: {}\n", "", "1.38",
			[]string{"upgrade-kind: ResourceClaim of resource.k8s.io/v1beta1"}},
		{"a removal that was planned only", "apiVersion: admissionregistration.k8s.io/v1alpha1\nkind: MutatingAdmissionPolicy\nmetadata: {name: p}\nspec: {}\n", "", "1.38", nil},
		{"another kind of that version", "apiVersion: admissionregistration.k8s.io/v1alpha1\nkind: ValidatingAdmissionPolicy\nmetadata: {name: p}\nspec: {}\n", "", "1.38",
			[]string{"upgrade-registration: ValidatingAdmissionPolicy of admissionregistration.k8s.io/v1alpha1 was removed in 1.32"}},
		{"gates of a server", apiServer("--feature-gates=DynamicResourceAllocation=true,kube:StrictIPCIDRValidation=false,EnvFiles=true,Other=true"), "", "1.38", []string{
			"upgrade-server-options: Kubernetes 1.38 has no feature gate DynamicResourceAllocation: a component that sets it does not start (kubernetes/kubernetes#141946)",
			"upgrade-server-options: Kubernetes 1.38 locks the feature gate StrictIPCIDRValidation to true: a component that sets it to false does not start (kubernetes/kubernetes#141979)"}},
		{"gates of a server that stays", apiServer("--feature-gates=DynamicResourceAllocation=true"), "", "1.37", nil},
		{"new options", apiServer("--enable-endpoint-load-metrics", "--enable-admission-plugins=AuthorizationConditionsEnforcer"), "", "1.38", nil},
		{"a version that a server enables", apiServer("--runtime-config=resource.k8s.io/v1beta1=true,admissionregistration.k8s.io/v1alpha1=true,batch/v1=false,api/beta=true"), "", "1.38",
			[]string{"upgrade-server-options: --runtime-config enables resource.k8s.io/v1beta1, which Kubernetes 1.38 does not serve"}},
		{"kind", "apiVersion: kind.x-k8s.io/v1alpha4\nkind: Cluster\nfeatureGates: {NodeSwap: true}\nruntimeConfig: {resource.k8s.io/v1beta1: \"true\"}\n", "", "1.38",
			[]string{"upgrade-server-options: has no feature gate NodeSwap", "upgrade-server-options: enables resource.k8s.io/v1beta1"}},
		{"a kubelet", "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nfeatureGates: {KubeletTracing: true}\n", "", "1.38",
			[]string{"upgrade-server-options: has no feature gate KubeletTracing"}},
		{"kubeadm's scheduler", "apiVersion: kubeadm.k8s.io/v1beta3\nkind: ClusterConfiguration\nscheduler: {extraArgs: {profiling: \"false\", feature-gates: PodSchedulingReadiness=true}}\n", "", "1.38",
			[]string{"upgrade-server-options: has no feature gate PodSchedulingReadiness"}},
	} {
		t.Run("S2.42 "+tc.name, func(t *testing.T) {
			report, world := lintFile(t, tc.file, func(w *lint.Input) {
				w.Upgrade = &lint.Upgrade{
					From: release(tc.from), To: release(tc.to), Known: release("1.37"), Lives: offline.Lives(),
					Flags: map[string]bool{"secure-port": true, "feature-gates": true, "runtime-config": true, "enable-admission-plugins": true}, Plugins: map[string]bool{"PodSecurity": true},
					Dropped: map[string]string{"PodSecurityPolicy": "PodSecurity replaces it"},
				}
				w.Upgrade.AddLater()
			})
			var got []string
			for _, f := range report.Findings {
				if f.Rule.Upgrade {
					got = append(got, f.Rule.ID+": "+f.Message)
					at, _ := world.Locate(f.Object, f.Path)
					if line := strings.Split(tc.file, "\n")[max(at.Line-1, 0)]; f.Rule.ID == "upgrade-kind" && !strings.Contains(line, "resource.k8s.io/v1beta1") {
						t.Errorf("%s is at %q", f.Message, line)
					}
				}
			}
			if len(got) != len(tc.want) || !slices.EqualFunc(got, tc.want, func(g, w string) bool {
				rule, text, _ := strings.Cut(w, ": ")
				return strings.HasPrefix(g, rule+": ") && strings.Contains(g, text)
			}) {
				t.Errorf("found %q, want %q", got, tc.want)
			}
		})
	}
}
