package webhooks

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"

	"github.com/gatehouse-dev/gatehouse/admission/registration/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/test/harness"
)

// neverCalled returns a configuration whose webhooks match no request of these tests.
func neverCalled(version, kind, name, hooks string) string {
	return fmt.Sprintf(`{"apiVersion":"admissionregistration.k8s.io/%s","kind":%q,"metadata":{"name":%q},"webhooks":[%s]}`, version, kind, name, hooks)
}

func hook(name, fields string) string {
	return fmt.Sprintf(`{"name":%q,"clientConfig":{"url":"https://127.0.0.1:1/"},"sideEffects":"None","admissionReviewVersions":["v1"],`+
		`"rules":[{"apiGroups":["never.example.com"],"apiVersions":["*"],"resources":["*"],"operations":["*"]}]%s}`, name, fields)
}

// TestRegistrations verifies the rules of section 1 about the registration API that need a server.
func TestRegistrations(t *testing.T) {
	t.Parallel()
	s := harness.Shared(t)
	admin := s.HTTP(t, nil)
	prefix := s.Namespace(t)
	name := func(suffix string) string { return prefix + "." + suffix }

	t.Run("S1.1 kinds, versions and scope", func(t *testing.T) {
		for version, resources := range map[string][]string{
			"v1alpha1": {"initializerconfigurations", "externaladmissionhookconfigurations"},
			"v1beta1":  {"mutatingwebhookconfigurations", "validatingwebhookconfigurations"},
			"v1":       {"mutatingwebhookconfigurations", "validatingwebhookconfigurations"},
		} {
			var served []string
			for _, r := range admin.Get(registrationGroup + version).At("resources").([]any) {
				if harness.At(r, "namespaced") == true {
					t.Errorf("%s: %v is namespaced", version, harness.At(r, "name"))
				}
				served = append(served, harness.At(r, "name").(string))
			}
			for _, resource := range resources {
				if !slices.Contains(served, resource) {
					t.Errorf("%s has no %s, only %v", version, resource, served)
				}
				list := admin.Get(registrationGroup + version + "/" + resource)
				if kind := list.Text("kind"); !strings.HasSuffix(kind, "ConfigurationList") {
					t.Errorf("%s %s: list has kind %q", version, resource, kind)
				}
			}
		}
	})

	t.Run("S1.2 S1.9 written in v1beta1, read in v1", func(t *testing.T) {
		const minimal = `{"name":"a.example.com","clientConfig":{"url":"https://127.0.0.1:1/"}}`
		for _, kind := range []string{"MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"} {
			resource := strings.ToLower(kind) + "s"
			admin.Must(http.StatusCreated, "POST", registrationGroup+"v1beta1/"+resource, neverCalled("v1beta1", kind, name("beta"), minimal))
			got := admin.Get(registrationGroup + "v1/" + resource + "/" + name("beta"))
			for field, want := range map[string]any{
				"failurePolicy": "Ignore", "matchPolicy": "Exact", "sideEffects": "Unknown", "timeoutSeconds": int64(30),
			} {
				if value := got.At("webhooks", "0", field); fmt.Sprint(value) != fmt.Sprint(want) {
					t.Errorf("%s: %s is %v, want %v", kind, field, value, want)
				}
			}
			if got.Text("apiVersion") != "admissionregistration.k8s.io/v1" {
				t.Errorf("apiVersion is %q", got.Text("apiVersion"))
			}
		}
	})

	path := registrationGroup + "v1/mutatingwebhookconfigurations"
	t.Run("S1.4 updates need the object and its version", func(t *testing.T) {
		object := neverCalled("v1", "MutatingWebhookConfiguration", name("update"), hook("a.example.com", ""))
		at := path + "/" + name("update")
		admin.Refused(http.StatusNotFound, metav1.StatusReasonNotFound, "PUT", at, object)
		created := admin.Must(http.StatusCreated, "POST", path, object)
		admin.Refused(http.StatusUnprocessableEntity, metav1.StatusReasonInvalid, "PUT", at, object)
		current := strings.Replace(object, `"metadata":{`, `"metadata":{"resourceVersion":"`+created.Text("metadata", "resourceVersion")+`","labels":{"a":"b"},`, 1)
		admin.Must(http.StatusOK, "PUT", at, current)
		admin.Refused(http.StatusConflict, metav1.StatusReasonConflict, "PUT", at, current)
	})

	t.Run("S1.5 generation counts changes of the webhooks", func(t *testing.T) {
		object := neverCalled("v1", "MutatingWebhookConfiguration", name("generation"), hook("a.example.com", ""))
		at := path + "/" + name("generation")
		merge := []string{"Content-Type", "application/merge-patch+json"}
		for _, step := range []struct {
			what       string
			response   *harness.Response
			generation string
		}{
			{"created", admin.Must(http.StatusCreated, "POST", path, object), "1"},
			{"labelled", admin.Must(http.StatusOK, "PATCH", at, `{"metadata":{"labels":{"a":"b"}}}`, merge...), "1"},
			{"changed", admin.Must(http.StatusOK, "PATCH", at, `{"webhooks":[`+hook("b.example.com", "")+`]}`, merge...), "2"},
		} {
			if got := fmt.Sprint(step.response.At("metadata", "generation")); got != step.generation {
				t.Errorf("%s: generation %s, want %s", step.what, got, step.generation)
			}
		}
	})

	t.Run("S1.6 names are DNS subdomains", func(t *testing.T) {
		status := admin.Refused(http.StatusUnprocessableEntity, metav1.StatusReasonInvalid, "POST", path,
			neverCalled("v1", "MutatingWebhookConfiguration", "Not_A_Name", hook("a.example.com", "")))
		if len(status.Details.Causes) != 1 || status.Details.Causes[0].Field != "metadata.name" {
			t.Errorf("causes %v, want one at metadata.name", status.Details.Causes)
		}
	})

	t.Run("S1.7 lists merge by name", func(t *testing.T) {
		strategic := []string{"Content-Type", "application/strategic-merge-patch+json"}
		object := neverCalled("v1", "MutatingWebhookConfiguration", name("merge"), hook("a.example.com", "")+","+
			hook("b.example.com", `,"matchConditions":[{"name":"one","expression":"true"}]`))
		admin.Must(http.StatusCreated, "POST", path, object)
		got := admin.Must(http.StatusOK, "PATCH", path+"/"+name("merge"),
			`{"webhooks":[{"name":"b.example.com","timeoutSeconds":3,"matchConditions":[{"name":"two","expression":"true"}]}]}`, strategic...)
		if n := len(got.At("webhooks").([]any)); n != 2 {
			t.Errorf("%d webhooks after a strategic merge patch of one, want 2", n)
		}
		if n := len(got.At("webhooks", "1", "matchConditions").([]any)); n != 2 {
			t.Errorf("%d match conditions, want 2", n)
		}
		if got.At("webhooks", "0", "name") != "a.example.com" || fmt.Sprint(got.At("webhooks", "1", "timeoutSeconds")) != "3" {
			t.Errorf("patched object: %v", got.At("webhooks"))
		}
		alpha := registrationGroup + "v1alpha1/initializerconfigurations"
		rule := `"rules":[{"apiGroups":["never.example.com"],"apiVersions":["*"],"resources":["*"]}]`
		admin.Must(http.StatusCreated, "POST", alpha, `{"apiVersion":"admissionregistration.k8s.io/v1alpha1","kind":"InitializerConfiguration","metadata":{"name":"`+
			name("merge")+`"},"initializers":[{"name":"a.example.com",`+rule+`},{"name":"b.example.com",`+rule+`}]}`)
		got = admin.Must(http.StatusOK, "PATCH", alpha+"/"+name("merge"), `{"initializers":[{"name":"b.example.com","failurePolicy":"Fail"}]}`, strategic...)
		if n := len(got.At("initializers").([]any)); n != 2 || got.At("initializers", "1", "failurePolicy") != "Fail" {
			t.Errorf("patched object: %v", got.At("initializers"))
		}
		alpha = registrationGroup + "v1alpha1/externaladmissionhookconfigurations"
		client := `"clientConfig":{"service":{"namespace":"n","name":"s"},"caBundle":"eA=="},"rules":[{"apiGroups":["never.example.com"],"apiVersions":["*"],"resources":["*"],"operations":["*"]}]`
		admin.Must(http.StatusCreated, "POST", alpha, `{"apiVersion":"admissionregistration.k8s.io/v1alpha1","kind":"ExternalAdmissionHookConfiguration","metadata":{"name":"`+
			name("merge")+`"},"externalAdmissionHooks":[{"name":"a.example.com",`+client+`},{"name":"b.example.com",`+client+`}]}`)
		got = admin.Must(http.StatusOK, "PATCH", alpha+"/"+name("merge"), `{"externalAdmissionHooks":[{"name":"b.example.com","failurePolicy":"Fail"}]}`, strategic...)
		if n := len(got.At("externalAdmissionHooks").([]any)); n != 2 || got.At("externalAdmissionHooks", "1", "failurePolicy") != "Fail" {
			t.Errorf("patched object: %v", got.At("externalAdmissionHooks"))
		}
	})

	t.Run("S1.8 v1beta1 warns", func(t *testing.T) {
		r := admin.Get(registrationGroup + "v1beta1/mutatingwebhookconfigurations")
		if w := r.Header.Get("Warning"); !strings.Contains(w, "admissionregistration.k8s.io/v1beta1 MutatingWebhookConfiguration is deprecated") {
			t.Errorf("Warning: %q", w)
		}
	})

	t.Run("S1.31 verbs is another name of operations", func(t *testing.T) {
		alpha := registrationGroup + "v1alpha1/externaladmissionhookconfigurations"
		object := func(name, operations string) string {
			return `{"apiVersion":"admissionregistration.k8s.io/v1alpha1","kind":"ExternalAdmissionHookConfiguration","metadata":{"name":"` + name + `"},` +
				`"externalAdmissionHooks":[{"name":"a.example.com","clientConfig":{"service":{"namespace":"n","name":"s"},"caBundle":"eA=="},` +
				`"rules":[{` + operations + `,"apiGroups":["never.example.com"],"apiVersions":["*"],"resources":["*"]}]}]}`
		}
		got := admin.Must(http.StatusCreated, "POST", alpha+"?fieldValidation=Strict", object(name("verbs"), `"verbs":["CREATE"]`))
		if op := got.At("externalAdmissionHooks", "0", "rules", "0", "operations", "0"); op != "CREATE" {
			t.Errorf("operations: %v", op)
		}
		applied := admin.Must(http.StatusCreated, "PATCH", alpha+"/"+name("applied")+"?fieldManager=tester", object(name("applied"), `"verbs":["DELETE"]`), "Content-Type", "application/apply-patch+yaml")
		if op, verbs := applied.At("externalAdmissionHooks", "0", "rules", "0", "operations", "0"), applied.At("externalAdmissionHooks", "0", "rules", "0", "verbs"); op != "DELETE" || verbs != nil {
			t.Errorf("applied: operations %v, verbs %v", op, verbs)
		}
		for _, refused := range []*harness.Response{
			admin.Do("POST", alpha, object(name("both"), `"verbs":["CREATE"],"operations":["CREATE"]`)),
			admin.Do("PATCH", alpha+"/"+name("verbs"), `[{"op":"add","path":"/externalAdmissionHooks/0/rules/0/verbs","value":["DELETE"]}]`, "Content-Type", jsonPatch),
		} {
			status := refused.Refusal(http.StatusUnprocessableEntity, metav1.StatusReasonInvalid)
			if len(status.Details.Causes) != 1 || status.Details.Causes[0].Type != metav1.CauseTypeFieldValueInvalid || status.Details.Causes[0].Field != "externalAdmissionHooks[0].rules[0].verbs" {
				t.Errorf("causes %v", status.Details.Causes)
			}
		}
	})
}

// Controllers of 2017 write webhook configurations in protobuf. (bench/legacy tests their original client.)
func TestRegistrationsInProtobuf(t *testing.T) {
	t.Parallel()
	s := harness.Sole(t, "--admission-consistency", "strict")
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	config := harness.Protobuf(s.Admin)
	config.AcceptContentTypes = runtime.ContentTypeProtobuf
	config.APIPath, config.GroupVersion = "/apis", &v1alpha1.SchemeGroupVersion
	config.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	client, err := rest.RESTClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	ctx := harness.Context(t)
	const resource = "initializerconfigurations"
	w, err := client.Get().Resource(resource).Param("watch", "true").Watch(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	rules := []v1alpha1.Rule{{APIGroups: []string{"never.example.com"}, APIVersions: []string{"*"}, Resources: []string{"things"}}}
	sent := &v1alpha1.InitializerConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: "mesh"},
		Initializers: []v1alpha1.Initializer{
			{Name: "a.example.com", Rules: rules, Parallel: true},
			{Name: "b.example.com", Rules: rules, After: []string{"a.example.com"}},
		},
	}
	created := &v1alpha1.InitializerConfiguration{}
	if err := client.Post().Resource(resource).Body(sent).Do(ctx).Into(created); err != nil {
		t.Fatal(err)
	}
	ignore := v1alpha1.Ignore
	for i := range sent.Initializers {
		sent.Initializers[i].FailurePolicy = &ignore
	}
	want(t, "created", created.Initializers, sent.Initializers)
	created.Initializers = created.Initializers[:1]
	if err := client.Put().Resource(resource).Name("mesh").Body(created).Do(ctx).Into(created); err != nil {
		t.Fatal(err)
	}
	list := &v1alpha1.InitializerConfigurationList{}
	if err := client.Get().Resource(resource).Do(ctx).Into(list); err != nil {
		t.Fatal(err)
	}
	want(t, "listed", list.Items[0].Initializers, sent.Initializers[:1])
	for _, n := range []int{2, 1} {
		e := <-w.ResultChan()
		want(t, "watched", e.Object.(*v1alpha1.InitializerConfiguration).Initializers, sent.Initializers[:n])
	}

	path := "/things"
	hook := &v1alpha1.ExternalAdmissionHookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: "hook"},
		ExternalAdmissionHooks: []v1alpha1.ExternalAdmissionHook{{
			Name: "h.example.com",
			ClientConfig: v1alpha1.AdmissionHookClientConfig{
				Service: v1alpha1.ServiceReference{Namespace: "ns", Name: "svc"}, URLPath: &path, CABundle: s.Admin.CAData,
			},
			Rules:             []v1alpha1.RuleWithOperations{{Operations: []v1alpha1.OperationType{"CREATE"}, Rule: rules[0]}},
			FailurePolicy:     &ignore,
			NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"team": "red"}},
		}},
	}
	stored := &v1alpha1.ExternalAdmissionHookConfiguration{}
	if err := client.Post().Resource("externaladmissionhookconfigurations").Body(hook).Do(ctx).Into(stored); err != nil {
		t.Fatal(err)
	}
	want(t, "created", stored.ExternalAdmissionHooks, hook.ExternalAdmissionHooks)
}

// Creating a policy whose plugin does not run causes a warning.
func TestPoliciesWarn(t *testing.T) {
	t.Parallel()
	h := harness.Sole(t, withoutPolicies...).HTTP(t, nil)
	for _, c := range []struct{ resource, kind string }{
		{"validatingadmissionpolicies", "ValidatingAdmissionPolicy"},
		{"validatingadmissionpolicybindings", "ValidatingAdmissionPolicyBinding"},
	} {
		spec := `{matchConstraints: {resourceRules: [{operations: [CREATE], apiGroups: [""], apiVersions: [v1], resources: [configmaps]}]}, validations: [{expression: "false"}]}`
		if strings.HasSuffix(c.kind, "Binding") {
			spec = `{policyName: p, validationActions: [Deny]}`
		}
		path := "/apis/admissionregistration.k8s.io/v1/" + c.resource
		r := h.Must(http.StatusCreated, "POST", path+"?dryRun=All", toJSON(`{apiVersion: admissionregistration.k8s.io/v1, kind: %s, metadata: {name: p}, spec: %s}`, c.kind, spec))
		if w := r.Header.Get("Warning"); !strings.Contains(w, c.resource+" are stored, but this server does not enforce them") {
			t.Errorf("%s: Warning: %q", c.kind, w)
		}
	}
}
