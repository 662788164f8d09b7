package registration

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	v1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/api/admissionregistration/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/gatehouse-dev/gatehouse/admission/registration/v1alpha1"
)

func ptr[T any](v T) *T { return &v }

// mutating is a valid configuration with one webhook, changed by edit.
func mutating(edit ...func(*v1.MutatingWebhook)) *v1.MutatingWebhookConfiguration {
	c := &v1.MutatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: "config"},
		Webhooks: []v1.MutatingWebhook{{
			Name:                    "a.example.com",
			ClientConfig:            v1.WebhookClientConfig{URL: ptr("https://a.example.com/x")},
			SideEffects:             ptr(v1.SideEffectClassNone),
			AdmissionReviewVersions: []string{"v1"},
			Rules: []v1.RuleWithOperations{{
				Operations: []v1.OperationType{"CREATE"},
				Rule:       v1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods"}},
			}},
		}},
	}
	Default(c)
	for _, e := range edit {
		e(&c.Webhooks[0])
	}
	return c
}

// texts returns the errors as "Type field: detail" without values.
func texts(errs field.ErrorList) []string {
	var out []string
	for _, e := range errs {
		out = append(out, strings.TrimSuffix(fmt.Sprintf("%s %s: %s", strings.TrimPrefix(string(e.Type), "FieldValue"), e.Field, e.Detail), ": "))
	}
	return out
}

// compare compares errors with the expected texts: each the whole text, or its beginning followed
// by "…".
func compare(t *testing.T, want []string, errs field.ErrorList) {
	t.Helper()
	got := texts(errs)
	for i := range got {
		if i < len(want) {
			if head, ok := strings.CutSuffix(want[i], "…"); ok && strings.HasPrefix(got[i], head) {
				got[i] = want[i]
			}
		}
	}
	if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("errors (-want +got):\n%s", diff)
	}
}

func rule(edit func(*v1.RuleWithOperations)) func(*v1.MutatingWebhook) {
	return func(w *v1.MutatingWebhook) { edit(&w.Rules[0]) }
}

func resources(entries ...string) func(*v1.MutatingWebhook) {
	return rule(func(r *v1.RuleWithOperations) { r.Resources = entries })
}

func service(edit func(*v1.ServiceReference)) func(*v1.MutatingWebhook) {
	return func(w *v1.MutatingWebhook) {
		w.ClientConfig = v1.WebhookClientConfig{Service: &v1.ServiceReference{Namespace: "ns", Name: "svc", Port: ptr[int32](443)}}
		edit(w.ClientConfig.Service)
	}
}

func at(path string) func(*v1.MutatingWebhook) {
	return service(func(s *v1.ServiceReference) { s.Path = &path })
}

func atURL(text string) func(*v1.MutatingWebhook) {
	return func(w *v1.MutatingWebhook) { w.ClientConfig.URL = &text }
}

func selector(s metav1.LabelSelector) func(*v1.MutatingWebhook) {
	return func(w *v1.MutatingWebhook) { w.ObjectSelector = &s }
}

func requirement(key string, operator metav1.LabelSelectorOperator, values ...string) func(*v1.MutatingWebhook) {
	return selector(metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: key, Operator: operator, Values: values}}})
}

func conditions(list ...v1.MatchCondition) func(*v1.MutatingWebhook) {
	return func(w *v1.MutatingWebhook) { w.MatchConditions = list }
}

const (
	label     = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character…"
	urlFormat = "; desired format: https://host[/path]"
)

func TestValidate(t *testing.T) {
	for _, tt := range []struct {
		name string
		edit func(*v1.MutatingWebhook)
		want []string
	}{
		{name: "S1.10 valid", edit: func(*v1.MutatingWebhook) {}},
		{name: "S1.10 no name", edit: func(w *v1.MutatingWebhook) { w.Name = "" }, want: []string{"Required webhooks[0].name"}},
		{name: "S1.10 no domain", edit: func(w *v1.MutatingWebhook) { w.Name = "A.b.c" }, want: []string{"Invalid webhooks[0].name: " + label}},
		{name: "S1.10 two segments", edit: func(w *v1.MutatingWebhook) { w.Name = "b.c" }, want: []string{"Invalid webhooks[0].name: should be a domain with at least three segments separated by dots"}},

		{name: "S1.12 neither", edit: func(w *v1.MutatingWebhook) { w.ClientConfig.URL = nil }, want: []string{"Required webhooks[0].clientConfig: exactly one of url or service is required"}},
		{name: "S1.12 both", edit: func(w *v1.MutatingWebhook) { w.ClientConfig.Service = &v1.ServiceReference{} }, want: []string{"Required webhooks[0].clientConfig: exactly one of url or service is required"}},
		{name: "S1.13 unparsable", edit: atURL("https://a b/"), want: []string{"Required webhooks[0].clientConfig.url: url must be a valid URL: …"}},
		{name: "S1.13 empty", edit: atURL(""), want: []string{
			"Invalid webhooks[0].clientConfig.url: 'https' is the only allowed URL scheme" + urlFormat,
			"Invalid webhooks[0].clientConfig.url: host must be specified" + urlFormat,
		}},
		{name: "S1.13 everything else", edit: atURL("https://u:p@h/?q=1#f"), want: []string{
			"Invalid webhooks[0].clientConfig.url: user information is not permitted in the URL",
			"Invalid webhooks[0].clientConfig.url: fragments are not permitted in the URL",
			"Invalid webhooks[0].clientConfig.url: query parameters are not permitted in the URL",
		}},
		{name: "S1.14 no name", edit: service(func(s *v1.ServiceReference) { s.Name = "" }), want: []string{"Required webhooks[0].clientConfig.service.name"}},
		{name: "S1.14 no namespace", edit: service(func(s *v1.ServiceReference) { s.Namespace = "" }), want: []string{"Required webhooks[0].clientConfig.service.namespace"}},
		{name: "S1.14 port", edit: service(func(s *v1.ServiceReference) { s.Port = ptr[int32](65536) }), want: []string{"Invalid webhooks[0].clientConfig.service.port: port is not valid: must be between 1 and 65535, inclusive"}},
		{name: "S1.15 empty", edit: at("")},
		{name: "S1.15 root", edit: at("/")},
		{name: "S1.15 one trailing slash", edit: at("/a/b/")},
		{name: "S1.15 two slashes", edit: at("//"), want: []string{"Invalid webhooks[0].clientConfig.service.path: segment[0] may not be empty"}},
		{name: "S1.15 empty segments", edit: at("/a//b//"), want: []string{
			"Invalid webhooks[0].clientConfig.service.path: segment[1] may not be empty",
			"Invalid webhooks[0].clientConfig.service.path: segment[3] may not be empty",
		}},
		{name: "S1.15 relative", edit: at("ab"), want: []string{"Invalid webhooks[0].clientConfig.service.path: must start with a '/'"}},
		{name: "S1.15 upper case", edit: at("/a/B"), want: []string{"Invalid webhooks[0].clientConfig.service.path: segment[1]: " + label}},
		{name: "S1.16 a bundle that is none", edit: func(w *v1.MutatingWebhook) { w.ClientConfig.CABundle = []byte("x") }},

		{name: "S1.17 empty lists", edit: func(w *v1.MutatingWebhook) { w.Rules = []v1.RuleWithOperations{{}} }, want: []string{
			"Required webhooks[0].rules[0].operations", "Required webhooks[0].rules[0].apiGroups",
			"Required webhooks[0].rules[0].apiVersions", "Required webhooks[0].rules[0].resources",
		}},
		{
			name: "S1.17 wildcards with others", edit: rule(func(r *v1.RuleWithOperations) {
				r.Operations, r.APIGroups, r.APIVersions = []v1.OperationType{"*", "CREATE"}, []string{"apps", "*"}, []string{"*", "v1"}
			}), want: []string{
				"Invalid webhooks[0].rules[0].operations: if '*' is present, must not specify other operations",
				"Invalid webhooks[0].rules[0].apiGroups: if '*' is present, must not specify other API groups",
				"Invalid webhooks[0].rules[0].apiVersions: if '*' is present, must not specify other API versions",
			},
		},
		{name: "S1.17 unknown operation", edit: rule(func(r *v1.RuleWithOperations) { r.Operations = []v1.OperationType{"CREATE", "PATCH"} }), want: []string{`NotSupported webhooks[0].rules[0].operations[1]: supported values: "*", "CONNECT", "CREATE", "DELETE", "UPDATE"`}},
		{name: "S1.17 empty version", edit: rule(func(r *v1.RuleWithOperations) { r.APIVersions = []string{"v1", ""} }), want: []string{"Required webhooks[0].rules[0].apiVersions[1]"}},
		{name: "S1.18 empty resource", edit: resources("pods", ""), want: []string{"Required webhooks[0].rules[0].resources[1]"}},
		{name: "S1.18 everything with others", edit: resources("*/*", "pods"), want: []string{"Invalid webhooks[0].rules[0].resources: if '*/*' is present, must not specify other resources"}},
		{name: "S1.18 star with subresources", edit: resources("*", "*/status")},
		{name: "S1.18 star before a plain one", edit: resources("*", "pods"), want: []string{"Invalid webhooks[0].rules[0].resources: if '*' is present, must not specify other resources without subresources"}},
		{name: "S1.18 star after a plain one", edit: resources("pods", "*"), want: []string{"Invalid webhooks[0].rules[0].resources: if '*' is present, must not specify other resources without subresources"}},
		{name: "S1.18 wider first", edit: resources("pods/*", "pods/exec"), want: []string{"Invalid webhooks[0].rules[0].resources[1]: if 'pods/*' is present, must not specify pods/exec"}},
		{name: "S1.18 wider first, the other way", edit: resources("*/exec", "pods/exec"), want: []string{"Invalid webhooks[0].rules[0].resources[1]: if '*/exec' is present, must not specify pods/exec"}},
		{name: "S1.18 narrower first", edit: resources("pods/exec", "pods/*", "*/exec"), want: nil},

		{name: "S1.19 no side effects", edit: func(w *v1.MutatingWebhook) { w.SideEffects = nil }, want: []string{"Required webhooks[0].sideEffects: must specify one of None, NoneOnDryRun"}},
		{name: "S1.19 unknown ones", edit: func(w *v1.MutatingWebhook) { w.SideEffects = ptr(v1.SideEffectClassUnknown) }, want: []string{`NotSupported webhooks[0].sideEffects: supported values: "None", "NoneOnDryRun"`}},
		{
			name: "S1.20 unknown values", edit: func(w *v1.MutatingWebhook) {
				w.FailurePolicy, w.MatchPolicy = ptr(v1.FailurePolicyType("a")), ptr(v1.MatchPolicyType("b"))
				w.ReinvocationPolicy, w.Rules[0].Scope = ptr(v1.ReinvocationPolicyType("c")), ptr(v1.ScopeType("d"))
				w.TimeoutSeconds = ptr[int32](31)
			}, want: []string{
				`NotSupported webhooks[0].rules[0].scope: supported values: "*", "Cluster", "Namespaced"`,
				`NotSupported webhooks[0].failurePolicy: supported values: "Fail", "Ignore"`,
				`NotSupported webhooks[0].matchPolicy: supported values: "Equivalent", "Exact"`,
				"Invalid webhooks[0].timeoutSeconds: the timeout value must be between 1 and 30 seconds",
				`NotSupported webhooks[0].reinvocationPolicy: supported values: "IfNeeded", "Never"`,
			},
		},
		{name: "S1.20 no time", edit: func(w *v1.MutatingWebhook) { w.TimeoutSeconds = ptr[int32](0) }, want: []string{"Invalid webhooks[0].timeoutSeconds: the timeout value must be between 1 and 30 seconds"}},
		{name: "S1.21 none", edit: func(w *v1.MutatingWebhook) { w.AdmissionReviewVersions = nil }, want: []string{"Required webhooks[0].admissionReviewVersions: must specify one of v1, v1beta1"}},
		{
			name: "S1.21 repeated, odd and unknown", edit: func(w *v1.MutatingWebhook) { w.AdmissionReviewVersions = []string{"v2", "v2", "1"} }, want: []string{
				"Invalid webhooks[0].admissionReviewVersions[1]: duplicate version",
				"Invalid webhooks[0].admissionReviewVersions[2]: a DNS-1035 label must consist of…",
				"Invalid webhooks[0].admissionReviewVersions: must include at least one of v1, v1beta1",
			},
		},
		{name: "S1.21 unknown beside a known one", edit: func(w *v1.MutatingWebhook) { w.AdmissionReviewVersions = []string{"v2", "v1beta1"} }},

		{name: "S1.22 operator", edit: requirement("a", "Like"), want: []string{"Invalid webhooks[0].objectSelector.matchExpressions[0].operator: not a valid selector operator"}},
		{name: "S1.22 In without values", edit: requirement("a", "In"), want: []string{"Required webhooks[0].objectSelector.matchExpressions[0].values: must be specified when `operator` is 'In' or 'NotIn'"}},
		{name: "S1.22 Exists with values", edit: requirement("a", "Exists", "b"), want: []string{"Forbidden webhooks[0].objectSelector.matchExpressions[0].values: may not be specified when `operator` is 'Exists' or 'DoesNotExist'"}},
		{name: "S1.22 key", edit: requirement("a b", "Exists"), want: []string{"Invalid webhooks[0].objectSelector.matchExpressions[0].key: …"}},
		{name: "S1.22 value", edit: requirement("a", "In", "b", "c d"), want: []string{"Invalid webhooks[0].objectSelector.matchExpressions[0].values[1]: …"}},
		{name: "S1.22 labels", edit: selector(metav1.LabelSelector{MatchLabels: map[string]string{"a b": "c"}}), want: []string{"Invalid webhooks[0].objectSelector.matchLabels: …"}},

		{name: "S1.23 valid", edit: conditions(v1.MatchCondition{Name: "example.com/a", Expression: " request.name == 'x' "})},
		{name: "S1.23 nothing", edit: conditions(v1.MatchCondition{Expression: "  "}), want: []string{"Required webhooks[0].matchConditions[0].expression", "Required webhooks[0].matchConditions[0].name"}},
		{
			name: "S1.23 expressions and names", edit: conditions(v1.MatchCondition{Name: "a", Expression: "1"}, v1.MatchCondition{Name: "a", Expression: "1 +"}, v1.MatchCondition{Name: "b c", Expression: "true"}), want: []string{
				"Invalid webhooks[0].matchConditions[0].expression: must evaluate to bool but got int",
				"Invalid webhooks[0].matchConditions[1].expression: compilation failed: …",
				"Duplicate webhooks[0].matchConditions[1].name",
				"Invalid webhooks[0].matchConditions[2].name: …",
			},
		},
		{
			name: "S1.23 too many", edit: func(w *v1.MutatingWebhook) {
				for i := range 65 {
					w.MatchConditions = append(w.MatchConditions, v1.MatchCondition{Name: fmt.Sprint("c", i), Expression: "true"})
				}
			}, want: []string{"TooMany webhooks[0].matchConditions: must have at most 64 items"},
		},
	} {
		t.Run(tt.name, func(t *testing.T) { compare(t, tt.want, Validate(mutating(tt.edit))) })
	}
}

func TestValidateConfigurations(t *testing.T) {
	twice := mutating()
	twice.Webhooks = append(twice.Webhooks, twice.Webhooks[0])
	beta, err := Convert(twice, "v1beta1")
	if err != nil {
		t.Fatal(err)
	}
	loose := beta.DeepCopyObject().(*v1beta1.MutatingWebhookConfiguration)
	loose.Webhooks[0].SideEffects = ptr(v1beta1.SideEffectClassSome)
	loose.Webhooks[1].SideEffects = ptr(v1beta1.SideEffectClass("x"))
	validating := &v1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "x y"}, Webhooks: []v1.ValidatingWebhook{{Name: "a"}}}
	Default(validating)
	for _, tt := range []struct {
		name string
		obj  runtime.Object
		want []string
	}{
		{"S1.11 a name twice in v1", twice, []string{"Duplicate webhooks[1].name"}},
		{"S1.11 a name twice in v1beta1", beta, nil},
		{"S1.19 side effects in v1beta1", loose, []string{`NotSupported webhooks[1].sideEffects: supported values: "None", "NoneOnDryRun", "Some", "Unknown"`}},
		{"S1.6 S1.10 validating webhooks have the same checks", validating, []string{
			"Invalid metadata.name: " + label,
			"Invalid webhooks[0].name: should be a domain with at least three segments separated by dots",
			"Required webhooks[0].sideEffects: must specify one of None, NoneOnDryRun",
			"Required webhooks[0].clientConfig: exactly one of url or service is required",
			"Required webhooks[0].admissionReviewVersions: must specify one of v1, v1beta1",
		}},
		{"another kind", &metav1.Status{}, []string{"InternalError <nil>: *v1.Status is not a registration"}},
	} {
		t.Run(tt.name, func(t *testing.T) { compare(t, tt.want, Validate(tt.obj)) })
	}
}

func TestValidateUpdate(t *testing.T) {
	newName := func(w *v1.MutatingWebhook) { w.Name = "b.example.com" }
	twice := func(w ...func(*v1.MutatingWebhook)) *v1.MutatingWebhookConfiguration {
		c := mutating(w...)
		c.Webhooks = append(c.Webhooks, *c.Webhooks[0].DeepCopy())
		return c
	}
	effects := func(e v1.SideEffectClass) func(*v1.MutatingWebhook) {
		return func(w *v1.MutatingWebhook) { w.SideEffects = &e }
	}
	versions := func(v ...string) func(*v1.MutatingWebhook) {
		return func(w *v1.MutatingWebhook) { w.AdmissionReviewVersions = v }
	}
	broken, renamed := v1.MatchCondition{Name: "a", Expression: "1 +"}, v1.MatchCondition{Name: "b", Expression: "1 +"}
	for _, tt := range []struct {
		name     string
		obj, old runtime.Object
		want     []string
	}{
		{"S1.24 side effects stay", mutating(effects("Some"), newName), mutating(effects("Unknown")), nil},
		{"S1.24 side effects do not come back", mutating(effects("Some")), mutating(effects("None")), []string{`NotSupported webhooks[0].sideEffects: supported values: "None", "NoneOnDryRun"`}},
		{"S1.24 unknown versions stay", mutating(versions("v3")), mutating(versions("v2")), nil},
		{"S1.24 unknown versions do not come back", mutating(versions("v3")), mutating(), []string{"Invalid webhooks[0].admissionReviewVersions: must include at least one of v1, v1beta1"}},
		{"S1.24 an empty list of versions is strict", mutating(versions("v3")), mutating(versions()), []string{"Invalid webhooks[0].admissionReviewVersions: must include at least one of v1, v1beta1"}},
		{"S1.24 repeated names stay", twice(newName), twice(), nil},
		{"S1.24 repeated names do not come back", twice(), mutating(), []string{"Duplicate webhooks[1].name"}},
		{"S1.24 bad values stay", mutating(requirement("a", "In", "x y")), mutating(requirement("a", "In", "b c")), nil},
		{"S1.24 bad values do not come back", mutating(requirement("a", "In", "x y")), mutating(), []string{"Invalid webhooks[0].objectSelector.matchExpressions[0].values[0]: …"}},
		{"S1.24 unchanged conditions are not checked", mutating(conditions(broken), newName), mutating(conditions(broken)), nil},
		{"S1.24 changed ones are", mutating(conditions(renamed)), mutating(conditions(broken)), []string{"Invalid webhooks[0].matchConditions[0].expression: compilation failed: …"}},
		{"S1.24 so are those of another number of webhooks", twice(conditions(broken)), mutating(conditions(broken)), []string{
			"Invalid webhooks[0].matchConditions[0].expression: compilation failed: …",
			"Invalid webhooks[1].matchConditions[0].expression: compilation failed: …",
			"Duplicate webhooks[1].name",
		}},
		{"another kind", mutating(), &metav1.Status{}, []string{"InternalError <nil>: *v1.Status is not a registration"}},
	} {
		t.Run(tt.name, func(t *testing.T) { compare(t, tt.want, ValidateUpdate(tt.obj, tt.old)) })
	}
}

func initializer(edit ...func(*v1alpha1.Initializer)) *v1alpha1.InitializerConfiguration {
	c := &v1alpha1.InitializerConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "c"}}
	for i, e := range edit {
		in := v1alpha1.Initializer{
			Name:  fmt.Sprintf("i%d.example.com", i),
			Rules: []v1alpha1.Rule{{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods"}}},
		}
		e(&in)
		c.Initializers = append(c.Initializers, in)
	}
	Default(c)
	return c
}

func external(edit func(*v1alpha1.ExternalAdmissionHook)) *v1alpha1.ExternalAdmissionHookConfiguration {
	h := v1alpha1.ExternalAdmissionHook{
		Name: "h.example.com",
		ClientConfig: v1alpha1.AdmissionHookClientConfig{
			Service: v1alpha1.ServiceReference{Namespace: "ns", Name: "svc"}, CABundle: []byte("x"),
		},
		Rules: []v1alpha1.RuleWithOperations{{
			Operations: []v1alpha1.OperationType{"CREATE"},
			Rule:       v1alpha1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods/*"}},
		}},
	}
	c := &v1alpha1.ExternalAdmissionHookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "c"}, ExternalAdmissionHooks: []v1alpha1.ExternalAdmissionHook{h}}
	edit(&c.ExternalAdmissionHooks[0])
	Default(c)
	return c
}

func TestValidateAlpha(t *testing.T) {
	entries := func(list ...string) runtime.Object {
		return initializer(func(in *v1alpha1.Initializer) { in.Rules[0].Resources = list })
	}
	fail := func(in *v1alpha1.Initializer) { in.FailurePolicy = ptr(v1alpha1.Fail) }
	same := func(*v1alpha1.Initializer) {}
	hook := func(*v1alpha1.ExternalAdmissionHook) {}
	failHook := func(h *v1alpha1.ExternalAdmissionHook) { h.FailurePolicy = ptr(v1alpha1.Fail) }
	for _, tt := range []struct {
		name     string
		obj, old runtime.Object
		want     []string
	}{
		{"S1.25 valid", initializer(same), nil, nil},
		{"S1.26 name and rules", initializer(func(in *v1alpha1.Initializer) { in.Name, in.Rules = "a", []v1alpha1.Rule{{}} }), nil, []string{
			"Invalid initializers[0].name: should be a domain with at least three segments separated by dots",
			"Required initializers[0].rules[0].apiGroups", "Required initializers[0].rules[0].apiVersions", "Required initializers[0].rules[0].resources",
		}},
		{"S1.26 everything, in the old spelling", entries("*/*"), nil, nil},
		{"S1.26 subresources", entries("pods", "pods/status", "*/scale"), nil, []string{
			"Invalid initializers[0].rules[0].resources[1]: must not specify subresources",
			"Invalid initializers[0].rules[0].resources[2]: must not specify subresources",
		}},
		{"S1.26 star with others", entries("*", "pods"), nil, []string{"Invalid initializers[0].rules[0].resources: if '*' is present, must not specify other resources"}},
		{"S1.27 Fail on create", initializer(fail), nil, []string{`NotSupported initializers[0].failurePolicy: supported values: "Ignore"`}},
		{"S1.28 Fail by update", initializer(fail), initializer(same), nil},
		{"S1.28 Fail for a new name", initializer(fail, fail), initializer(same), []string{`NotSupported initializers[1].failurePolicy: supported values: "Ignore"`}},
		{"S1.28 neither", initializer(func(in *v1alpha1.Initializer) { in.FailurePolicy = ptr(v1alpha1.FailurePolicyType("x")) }), initializer(same), []string{`NotSupported initializers[0].failurePolicy: supported values: "Fail", "Ignore"`}},
		{"S1.29 a name twice", initializer(same, func(in *v1alpha1.Initializer) { in.Name = "i0.example.com" }), nil, []string{"Duplicate initializers[1].name"}},
		{"S1.29 names of others", initializer(func(in *v1alpha1.Initializer) {
			in.After, in.Before = []string{"a.example.com", "i0.example.com"}, []string{"x"}
		}), nil, []string{
			"Invalid initializers[0].after[1]: must not be the initializer itself",
			"Invalid initializers[0].before[0]: should be a domain with at least three segments separated by dots",
		}},
		{"S1.39 finalizers", initializer(func(in *v1alpha1.Initializer) { in.Finalizer = "example.com/a" }, func(in *v1alpha1.Initializer) { in.Finalizer = "example.com/b" }), nil, nil},
		{"S1.39 a finalizer without a domain, one of Kubernetes, one that is none", initializer(
			func(in *v1alpha1.Initializer) { in.Finalizer = "address" },
			func(in *v1alpha1.Initializer) { in.Finalizer = "kubernetes.io/pvc-protection" },
			func(in *v1alpha1.Initializer) { in.Finalizer = "example.com/a b" },
		), nil, []string{
			"Invalid initializers[0].finalizer: must have a domain before a slash, such as example.com/address",
			"Invalid initializers[1].finalizer: must not be in the domain of Kubernetes, whose controllers remove such finalizers",
			"Invalid initializers[2].finalizer: …",
		}},
		{"S1.39 a finalizer twice", initializer(func(in *v1alpha1.Initializer) { in.Finalizer = "example.com/a" }, func(in *v1alpha1.Initializer) { in.Finalizer = "example.com/a" }), nil,
			[]string{"Duplicate initializers[1].finalizer"}},
		{"S1.33 valid", external(hook), nil, nil},
		{"S1.33 S1.35 all of it", external(func(h *v1alpha1.ExternalAdmissionHook) {
			*h = v1alpha1.ExternalAdmissionHook{Rules: []v1alpha1.RuleWithOperations{{}}, NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b c"}}}
		}), nil, []string{
			"Required externalAdmissionHooks[0].name",
			"Required externalAdmissionHooks[0].rules[0].operations", "Required externalAdmissionHooks[0].rules[0].apiGroups",
			"Required externalAdmissionHooks[0].rules[0].apiVersions", "Required externalAdmissionHooks[0].rules[0].resources",
			"Invalid externalAdmissionHooks[0].namespaceSelector.matchLabels: …",
			"Required externalAdmissionHooks[0].clientConfig.service.name", "Required externalAdmissionHooks[0].clientConfig.service.namespace",
			"Required externalAdmissionHooks[0].clientConfig.caBundle",
		}},
		{"S1.31 verbs", external(func(h *v1alpha1.ExternalAdmissionHook) {
			h.Rules[0].Operations, h.Rules[0].Verbs = nil, []v1alpha1.OperationType{"CREATE"}
		}), nil, nil},
		{"S1.31 unknown verbs are unknown operations", external(func(h *v1alpha1.ExternalAdmissionHook) {
			h.Rules[0].Operations, h.Rules[0].Verbs = nil, []v1alpha1.OperationType{"create"}
		}), nil, []string{`NotSupported externalAdmissionHooks[0].rules[0].operations[0]: supported values: "*", "CONNECT", "CREATE", "DELETE", "UPDATE"`}},
		{"S1.31 both", external(func(h *v1alpha1.ExternalAdmissionHook) { h.Rules[0].Verbs = []v1alpha1.OperationType{"CREATE"} }), nil,
			[]string{"Invalid externalAdmissionHooks[0].rules[0].verbs: is another name of operations; only one of them may be present"}},
		{"S1.30 path", external(func(h *v1alpha1.ExternalAdmissionHook) { h.ClientConfig.URLPath = ptr("x") }), nil, []string{"Invalid externalAdmissionHooks[0].clientConfig.urlPath: must start with a '/'", "Invalid externalAdmissionHooks[0].clientConfig.urlPath: segment[0] may not be empty"}},
		{"S1.34 Fail on create", external(failHook), nil, []string{`NotSupported externalAdmissionHooks[0].failurePolicy: supported values: "Ignore"`}},
		{"S1.34 Fail by update", external(failHook), external(hook), nil},
		{"S1.34 Fail for a new name", external(func(h *v1alpha1.ExternalAdmissionHook) { failHook(h); h.Name = "new.example.com" }), external(hook), []string{`NotSupported externalAdmissionHooks[0].failurePolicy: supported values: "Ignore"`}},
		{"kinds do not mix", external(hook), initializer(same), []string{"InternalError <nil>: *v1alpha1.InitializerConfiguration is not a registration"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if tt.old == nil {
				compare(t, tt.want, Validate(tt.obj))
				return
			}
			compare(t, tt.want, ValidateUpdate(tt.obj, tt.old))
		})
	}
}
