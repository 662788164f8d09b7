package registration

import (
	"regexp"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/api/admissionregistration/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/randfill"
	"sigs.k8s.io/yaml"

	"github.com/gatehouse-dev/gatehouse/admission/registration/v1alpha1"
)

// content decodes YAML.
func content(t *testing.T, text string) map[string]any {
	t.Helper()
	var c map[string]any
	if err := yaml.Unmarshal([]byte(text), &c); err != nil {
		t.Fatal(err)
	}
	return c
}

const bare = `
metadata: {name: c, uid: u, resourceVersion: "7"}
webhooks:
- name: a.example.com
  clientConfig: {service: {namespace: ns, name: svc}}
  rules: [{operations: ["*"], apiGroups: [""], apiVersions: [v1], resources: [pods]}]
`

// S1.2, S1.9, S1.32: an absent field gets the default of its version, which can be read through the
// other version.
func TestDefaults(t *testing.T) {
	for _, tt := range []struct{ name, head, want string }{
		{
			name: "S1.2 v1beta1 mutating", head: "apiVersion: admissionregistration.k8s.io/v1beta1\nkind: MutatingWebhookConfiguration",
			want: `{failurePolicy: Ignore, matchPolicy: Exact, sideEffects: Unknown, timeoutSeconds: 30, reinvocationPolicy: Never, admissionReviewVersions: [v1beta1]}`,
		},
		{
			name: "S1.2 v1beta1 validating", head: "apiVersion: admissionregistration.k8s.io/v1beta1\nkind: ValidatingWebhookConfiguration",
			want: `{failurePolicy: Ignore, matchPolicy: Exact, sideEffects: Unknown, timeoutSeconds: 30, admissionReviewVersions: [v1beta1]}`,
		},
		{
			name: "S1.2 v1 mutating", head: "apiVersion: admissionregistration.k8s.io/v1\nkind: MutatingWebhookConfiguration",
			want: `{failurePolicy: Fail, matchPolicy: Equivalent, sideEffects: null, timeoutSeconds: 10, reinvocationPolicy: Never, admissionReviewVersions: null}`,
		},
		{
			name: "S1.2 v1 validating", head: "apiVersion: admissionregistration.k8s.io/v1\nkind: ValidatingWebhookConfiguration",
			want: `{failurePolicy: Fail, matchPolicy: Equivalent, sideEffects: null, timeoutSeconds: 10, admissionReviewVersions: null}`,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			obj, err := Parse(content(t, tt.head+bare))
			if err != nil {
				t.Fatal(err)
			}
			asV1, err := Convert(obj, "v1")
			if err != nil {
				t.Fatal(err)
			}
			text, err := yaml.Marshal(asV1)
			if err != nil {
				t.Fatal(err)
			}
			got := content(t, string(text))
			webhook := got["webhooks"].([]any)[0].(map[string]any)
			want := content(t, tt.want)
			want["name"] = "a.example.com"
			want["namespaceSelector"], want["objectSelector"] = map[string]any{}, map[string]any{}
			want["clientConfig"] = content(t, "service: {namespace: ns, name: svc, port: 443}")
			want["rules"] = content(t, `r: [{operations: ["*"], apiGroups: [""], apiVersions: [v1], resources: [pods], scope: "*"}]`)["r"]
			if diff := cmp.Diff(want, webhook); diff != "" {
				t.Errorf("webhook (-want +got):\n%s", diff)
			}
		})
	}
	t.Run("S1.32 v1alpha1", func(t *testing.T) {
		h := external(func(*v1alpha1.ExternalAdmissionHook) {}).ExternalAdmissionHooks[0]
		if *h.FailurePolicy != v1alpha1.Ignore || h.NamespaceSelector == nil {
			t.Errorf("got %+v", h)
		}
		if in := initializer(func(*v1alpha1.Initializer) {}).Initializers[0]; *in.FailurePolicy != v1alpha1.Ignore {
			t.Errorf("got %+v", in)
		}
	})
}

// S1.2: random objects survive the conversion to the other version and back, and have the same JSON
// in both, except for the version.
func TestConvertThereAndBack(t *testing.T) {
	fill := randfill.NewWithSeed(1).NilChance(.3).NumElements(1, 3).Funcs(
		// These are raw JSON, which random bytes are not.
		func(*metav1.FieldsV1, randfill.Continue) {},
		func(s *[]string, c randfill.Continue) { *s = []string{c.String(0)} },
	)
	for _, obj := range []runtime.Object{
		&v1.MutatingWebhookConfiguration{}, &v1.ValidatingWebhookConfiguration{},
		&v1beta1.MutatingWebhookConfiguration{}, &v1beta1.ValidatingWebhookConfiguration{},
	} {
		for range 50 {
			fill.Fill(obj)
			version, other := "v1", "v1beta1"
			if _, ok := obj.(interface{ APILifecycleRemoved() (int, int) }); ok {
				version, other = other, version
			}
			obj.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{Group: GroupName, Version: version, Kind: kindOf(obj)})
			there, err := Convert(obj, other)
			if err != nil {
				t.Fatal(err)
			}
			back, err := Convert(there, version)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(obj, back); diff != "" {
				t.Fatalf("%T (-want +got):\n%s", obj, diff)
			}
			there.GetObjectKind().SetGroupVersionKind(obj.GetObjectKind().GroupVersionKind())
			if diff := cmp.Diff(present(t, obj), present(t, there)); diff != "" {
				t.Fatalf("%T in the other version (-want +got):\n%s", obj, diff)
			}
			if same, err := Convert(obj, version); err != nil || same != obj {
				t.Fatalf("conversion to its own version: %v, %v", same, err)
			}
		}
	}
	list := &v1.ValidatingWebhookConfigurationList{
		ListMeta: metav1.ListMeta{ResourceVersion: "7", Continue: "next"},
		Items:    []v1.ValidatingWebhookConfiguration{{ObjectMeta: metav1.ObjectMeta{Name: "a"}}},
	}
	there, err := Convert(list, "v1beta1")
	if err != nil {
		t.Fatal(err)
	}
	// As on kube-apiserver, the elements of a list have no kind of their own.
	want := &v1beta1.ValidatingWebhookConfigurationList{
		TypeMeta: metav1.TypeMeta{APIVersion: "admissionregistration.k8s.io/v1beta1", Kind: "ValidatingWebhookConfigurationList"},
		ListMeta: list.ListMeta, Items: []v1beta1.ValidatingWebhookConfiguration{{ObjectMeta: metav1.ObjectMeta{Name: "a"}}},
	}
	if diff := cmp.Diff(runtime.Object(want), there); diff != "" {
		t.Errorf("a list (-want +got):\n%s", diff)
	}
	if _, err := Convert(&v1.MutatingWebhookConfiguration{}, "v2"); err == nil {
		t.Error("there is a version v2")
	}
	if _, err := Convert(&metav1.Status{}, "v1"); err == nil {
		t.Error("a Status was converted")
	}
}

// present returns an object as YAML. A field that only one version requires is left out if it is
// nil.
func present(t *testing.T, obj runtime.Object) string {
	t.Helper()
	text, err := yaml.Marshal(obj)
	if err != nil {
		t.Fatal(err)
	}
	return regexp.MustCompile(`(?m)^ *sideEffects: null\n`).ReplaceAllString(string(text), "")
}

func kindOf(obj runtime.Object) string {
	switch obj.(type) {
	case *v1.MutatingWebhookConfiguration, *v1beta1.MutatingWebhookConfiguration:
		return MutatingKind
	}
	return ValidatingKind
}

func TestHooks(t *testing.T) {
	full := `
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingWebhookConfiguration
metadata: {name: c, uid: u, resourceVersion: "7"}
webhooks:
- name: a.example.com
  clientConfig: {url: "https://a.example.com/x", caBundle: QQ==}
  rules: [{operations: [CREATE], apiGroups: [""], apiVersions: [v1], resources: [pods], scope: Namespaced}]
  failurePolicy: Ignore
  sideEffects: NoneOnDryRun
  timeoutSeconds: 3
  reinvocationPolicy: IfNeeded
  admissionReviewVersions: [v1, v1beta1]
  matchConditions: [{name: m, expression: "true"}]
- name: a.example.com
  matchPolicy: Exact
  clientConfig: {service: {namespace: ns, name: svc, path: /p, port: 8443}}
`
	all := &metav1.LabelSelector{}
	id := func(h Entry) *Entry {
		h.Configuration, h.ConfigurationUID, h.ConfigurationVersion = "c", "u", "7"
		return &h
	}
	for _, tt := range []struct {
		name, text string
		want       []*Entry
	}{
		{name: "S5.2 all fields, and a name twice", text: full, want: []*Entry{
			id(Entry{
				Origin: Origin{Name: "a.example.com"},
				Match: &Match{
					Rules:      []Rule{{[]string{"CREATE"}, []string{""}, []string{"v1"}, []string{"pods"}, nil, "Namespaced"}},
					Equivalent: true, NamespaceSelector: all, ObjectSelector: all,
					MatchConditions: []MatchCondition{{Name: "m", Expression: "true"}},
				},
				FailurePolicy: Ignore,
				Webhook: &Webhook{
					ClientConfig: ClientConfig{URL: "https://a.example.com/x", CABundle: []byte("A")}, SideEffects: "NoneOnDryRun",
					Timeout: 3 * time.Second, ReviewVersions: []string{"v1", "v1beta1"}, MayReinvoke: true,
				},
			}),
			id(Entry{
				Origin:        Origin{Name: "a.example.com", Index: 1, Ordinal: 1},
				Match:         &Match{NamespaceSelector: all, ObjectSelector: all},
				FailurePolicy: Fail,
				Webhook:       &Webhook{ClientConfig: ClientConfig{Service: &Service{"ns", "svc", "/p", 8443}}, Timeout: 10 * time.Second},
			}),
		}},
		{name: "S1.2 v1beta1", text: "apiVersion: admissionregistration.k8s.io/v1beta1\nkind: ValidatingWebhookConfiguration" + bare, want: []*Entry{
			id(Entry{
				Origin: Origin{Source: Validating, Name: "a.example.com"},
				Match: &Match{
					Rules:             []Rule{{[]string{"*"}, []string{""}, []string{"v1"}, []string{"pods"}, nil, "*"}},
					NamespaceSelector: all, ObjectSelector: all,
				},
				FailurePolicy: Ignore,
				Webhook: &Webhook{
					ClientConfig: ClientConfig{Service: &Service{"ns", "svc", "", 443}}, SideEffects: "Unknown",
					Timeout: 30 * time.Second, ReviewVersions: []string{"v1beta1"},
				},
			}),
		}},
		{name: "S12.12 S12.13 S12.16 external", text: `
apiVersion: admissionregistration.k8s.io/v1alpha1
kind: ExternalAdmissionHookConfiguration
metadata: {name: c, uid: u, resourceVersion: "7"}
externalAdmissionHooks:
- name: a.example.com
  clientConfig: {service: {namespace: ns, name: svc}, urlPath: /p, caBundle: QQ==}
  rules: [{verbs: [CREATE], apiGroups: ["*"], apiVersions: [v1], resources: [pods]}]
`, want: []*Entry{
			id(Entry{
				Origin: Origin{Source: External, Name: "a.example.com"},
				Match: &Match{
					Rules:             []Rule{{[]string{"CREATE"}, []string{"*"}, []string{"v1"}, []string{"pods"}, nil, "*"}},
					NamespaceSelector: all, ObjectSelector: all,
				},
				FailurePolicy: Ignore,
				Webhook: &Webhook{
					ClientConfig: ClientConfig{Service: &Service{"ns", "svc", "/p", 0}, CABundle: []byte("A")}, SideEffects: "Unknown",
					Timeout: 30 * time.Second, ReviewVersions: []string{"v1alpha1"},
				},
			}),
		}},
		{name: "S1.25 initializers", text: "apiVersion: admissionregistration.k8s.io/v1alpha1\nkind: InitializerConfiguration\nmetadata: {name: c}", want: []*Entry{}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			obj, err := Parse(content(t, tt.text))
			if err != nil {
				t.Fatal(err)
			}
			got, err := Entries(obj)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("hooks (-want +got):\n%s", diff)
			}
		})
	}
}

// Objects without defaults: S7.1 has the applicable failure policies, S1.3 the selectors.
func TestHooksWithoutDefaults(t *testing.T) {
	u := &unstructured.Unstructured{Object: content(t, "apiVersion: admissionregistration.k8s.io/v1\nkind: ValidatingWebhookConfiguration"+bare)}
	hooks, err := Entries(u)
	if err != nil {
		t.Fatal(err)
	}
	h := hooks[0]
	if h.FailurePolicy != Fail || h.Equivalent || h.NamespaceSelector != nil || h.ObjectSelector != nil || h.Timeout != 10*time.Second || h.SideEffects != "" {
		t.Errorf("got %+v", h)
	}
	hooks, err = Entries(&v1alpha1.ExternalAdmissionHookConfiguration{ExternalAdmissionHooks: []v1alpha1.ExternalAdmissionHook{{Name: "a.example.com"}}})
	if err != nil || len(hooks) != 1 || hooks[0].FailurePolicy != Ignore || hooks[0].NamespaceSelector != nil {
		t.Errorf("S7.1 v1alpha1: got %+v, %v", hooks, err)
	}
	for _, obj := range []runtime.Object{&metav1.Status{}, &unstructured.Unstructured{Object: map[string]any{"kind": "X"}}} {
		if _, err := Entries(obj); err == nil {
			t.Errorf("%T has hooks", obj)
		}
	}
	broken := content(t, "apiVersion: admissionregistration.k8s.io/v1\nkind: ValidatingWebhookConfiguration\nmetadata: {name: c}\nwebhooks: {}")
	if _, err := Entries(&unstructured.Unstructured{Object: broken}); err == nil {
		t.Error("a map is a list")
	}
}

// A webhook without a timeout has the timeout of its version, whether or not the API set it (S1.2,
// S1.9, S3.4).
func TestTimeoutsThatNobodyNamed(t *testing.T) {
	for _, c := range []struct {
		kind string
		want time.Duration
	}{
		{"admissionregistration.k8s.io/v1\nkind: MutatingWebhookConfiguration", 10 * time.Second},
		{"admissionregistration.k8s.io/v1\nkind: ValidatingWebhookConfiguration", 10 * time.Second},
		{"admissionregistration.k8s.io/v1beta1\nkind: MutatingWebhookConfiguration", 30 * time.Second},
		{"admissionregistration.k8s.io/v1beta1\nkind: ValidatingWebhookConfiguration", 30 * time.Second},
		{"admissionregistration.k8s.io/v1alpha1\nkind: ExternalAdmissionHookConfiguration", 30 * time.Second},
	} {
		body := "\nmetadata: {name: c}\nwebhooks: [{name: a.example.com}]\nexternalAdmissionHooks: [{name: a.example.com}]"
		u := &unstructured.Unstructured{Object: content(t, "apiVersion: "+c.kind+body)}
		bare, err := Entries(u)
		if err != nil {
			t.Fatal(err)
		}
		typed, err := FromContent(u.Object)
		if err != nil {
			t.Fatal(err)
		}
		Default(typed)
		filled, err := Entries(typed)
		if err != nil {
			t.Fatal(err)
		}
		if bare[0].Timeout != c.want || filled[0].Timeout != c.want {
			t.Errorf("%s: %v without defaults, %v with them, want %v", c.kind, bare[0].Timeout, filled[0].Timeout, c.want)
		}
	}
}

func TestInitializers(t *testing.T) {
	obj, err := Parse(content(t, `
apiVersion: admissionregistration.k8s.io/v1alpha1
kind: InitializerConfiguration
metadata: {name: c, uid: u, resourceVersion: "7"}
initializers:
- name: a.example.com
  rules: [{apiGroups: [""], apiVersions: [v1], resources: [pods]}]
- {name: b.example.com, failurePolicy: Fail, after: [x.example.com], before: [y.example.com], parallel: true}
`))
	if err != nil {
		t.Fatal(err)
	}
	got, err := Entries(obj)
	if err != nil {
		t.Fatal(err)
	}
	all := &metav1.LabelSelector{}
	want := []*Entry{
		{
			Origin: Origin{Source: Initializing, Configuration: "c", ConfigurationUID: "u", ConfigurationVersion: "7", Name: "a.example.com"},
			Match: &Match{
				Rules:             []Rule{{[]string{"CREATE"}, []string{""}, []string{"v1"}, []string{"pods"}, nil, "*"}},
				NamespaceSelector: all, ObjectSelector: all,
			},
			FailurePolicy: Ignore, Initializer: &Initializer{},
		},
		{
			Origin:        Origin{Source: Initializing, Configuration: "c", ConfigurationUID: "u", ConfigurationVersion: "7", Index: 1, Name: "b.example.com"},
			Match:         &Match{NamespaceSelector: all, ObjectSelector: all},
			FailurePolicy: Fail,
			Order:         &Order{After: []string{"x.example.com"}, Before: []string{"y.example.com"}},
			Initializer:   &Initializer{Parallel: true},
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("initializers (-want +got):\n%s", diff)
	}
}

func TestSpecChanged(t *testing.T) {
	relabelled := mutating()
	relabelled.Labels = map[string]string{"a": "b"}
	beta, _ := Convert(mutating(), "v1beta1")
	same := func(*v1alpha1.Initializer) {}
	for _, tt := range []struct {
		name     string
		obj, old runtime.Object
		want     bool
	}{
		{"S1.5 metadata", relabelled, mutating(), false},
		{"S1.5 a webhook", mutating(atURL("https://b.example.com")), mutating(), true},
		{"S1.5 the other version", beta, mutating(), false},
		{"S1.5 an empty list", &v1.MutatingWebhookConfiguration{Webhooks: []v1.MutatingWebhook{}}, &v1.MutatingWebhookConfiguration{}, true},
		{"S1.5 an empty list of validating webhooks", &v1.ValidatingWebhookConfiguration{Webhooks: []v1.ValidatingWebhook{}}, &v1.ValidatingWebhookConfiguration{}, true},
		{"S1.5 an empty list of rules", mutating(func(w *v1.MutatingWebhook) { w.Rules = []v1.RuleWithOperations{} }), mutating(func(w *v1.MutatingWebhook) { w.Rules = nil }), true},
		{"S1.5 initializers", initializer(same), initializer(same), false},
		{"S1.5 one more initializer", initializer(same, same), initializer(same), true},
		{"S1.5 external hooks", external(func(*v1alpha1.ExternalAdmissionHook) {}), external(func(h *v1alpha1.ExternalAdmissionHook) { h.Rules = nil }), true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := SpecChanged(tt.obj, tt.old); got != tt.want {
				t.Errorf("got %v", got)
			}
		})
	}
}

func TestWarnings(t *testing.T) {
	reviews := func(groups, resources []string) func(*v1.MutatingWebhook) {
		return rule(func(r *v1.RuleWithOperations) { r.APIGroups, r.Resources = groups, resources })
	}
	authentication, tokens := []string{"authentication.k8s.io"}, []string{"tokenreviews", "tokenreviews", "pods"}
	hook := external(func(h *v1alpha1.ExternalAdmissionHook) {
		h.Rules[0].APIGroups, h.Rules[0].Resources = authentication, tokens
	})
	initial := initializer(func(i *v1alpha1.Initializer) {
		i.Rules = []v1alpha1.Rule{{APIGroups: authentication, APIVersions: []string{"v1"}, Resources: tokens}}
	})
	own := mutating(reviews([]string{"gatehouse.dev"}, []string{"admissionexplanations", "pods"}))
	warning := []string{"webhooks[0].rules[0]: admissionexplanations.gatehouse.dev is excluded from admission webhooks; this rule will have no effect"}
	for _, tt := range []struct {
		name string
		obj  runtime.Object
		// before has the warnings of releases before 1.37.
		want, before []string
	}{
		{"S1.36 none", mutating(), nil, nil},
		{"S1.36 S26.4 resources of Gatehouse", own, warning, warning},
		{"S1.36 initializers", initial, []string{"initializers[0].rules[0]: tokenreviews.authentication.k8s.io is excluded from initializers; this rule will have no effect"}, nil},
		{"S1.36 once per resource", mutating(reviews(authentication, tokens)), []string{"webhooks[0].rules[0]: tokenreviews.authentication.k8s.io is excluded from admission webhooks; this rule will have no effect"}, nil},
		{"S1.36 wildcards", mutating(reviews([]string{"*"}, tokens)), nil, nil},
		{"S1.36 external", hook, []string{"externalAdmissionHooks[0].rules[0]: tokenreviews.authentication.k8s.io is excluded from admission webhooks; this rule will have no effect"}, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, Warnings(tt.obj, false)); diff != "" {
				t.Errorf("warnings (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tt.before, Warnings(tt.obj, true)); diff != "" {
				t.Errorf("S26.4 warnings before 1.37 (-want +got):\n%s", diff)
			}
		})
	}
}

func TestKindsAreKnownToTheScheme(t *testing.T) {
	s := runtime.NewScheme()
	if err := AddToScheme(s); err != nil {
		t.Fatal(err)
	}
	for _, k := range Sources() {
		for _, v := range k.Versions {
			gvk := schema.GroupVersionKind{Group: GroupName, Version: v, Kind: k.Kind}
			if newObject(gvk) == nil || !s.Recognizes(gvk) || !s.Recognizes(gvk.GroupVersion().WithKind(k.Kind+"List")) {
				t.Errorf("%s is not known", gvk)
			}
		}
	}
}
