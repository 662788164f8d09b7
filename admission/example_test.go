package admission_test

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"

	admissionv1 "k8s.io/api/admission/v1"
	v1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	k8sadmission "k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/gatehouse-dev/gatehouse/admission"
	"github.com/gatehouse-dev/gatehouse/admission/registration"
	"github.com/gatehouse-dev/gatehouse/admission/snapshot"
)

// registrations is a snapshot.Reader of one webhook configuration. A server reads its own storage
// here, or uses a snapshot.ClientReader.
type registrations struct {
	configuration *v1.ValidatingWebhookConfiguration
}

func (r registrations) Read(context.Context, snapshot.Version) (snapshot.Registrations, error) {
	return snapshot.Registrations{Objects: []runtime.Object{r.configuration}}, nil
}

// noNamespaces knows no namespaces; most servers use admission.ClusterNamespaces.
type noNamespaces struct{}

func (noNamespaces) Cached(string) *corev1.Namespace { return nil }
func (noNamespaces) Live(_ context.Context, name string) (*corev1.Namespace, error) {
	return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "namespaces"}, name)
}

// A webhook is registered, and denies the creation of an object.
func Example() {
	webhook := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var review admissionv1.AdmissionReview
		if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		review.Response = &admissionv1.AdmissionResponse{UID: review.Request.UID, Result: &metav1.Status{Message: "gadgets are sold out"}}
		_ = json.NewEncoder(w).Encode(review)
	}))
	defer webhook.Close()

	none := v1.SideEffectClassNone
	configuration := &v1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: "shop"},
		Webhooks: []v1.ValidatingWebhook{{
			Name: "gadgets.shop.example.com",
			ClientConfig: v1.WebhookClientConfig{
				URL:      &webhook.URL,
				CABundle: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: webhook.Certificate().Raw}),
			},
			Rules: []v1.RuleWithOperations{{
				Operations: []v1.OperationType{v1.Create},
				Rule:       v1.Rule{APIGroups: []string{"shop.example.com"}, APIVersions: []string{"v1"}, Resources: []string{"gadgets"}},
			}},
			SideEffects:             &none,
			AdmissionReviewVersions: []string{"v1"},
		}},
	}
	registration.Default(configuration)

	refresher, err := snapshot.NewRefresher(snapshot.Options{Reader: registrations{configuration}})
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- refresher.Run(ctx) }()
	defer func() { stop(); <-ended }()

	engine, err := admission.New(admission.Options{Snapshots: refresher, Namespaces: noNamespaces{}})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer engine.Close()
	plugins, err := engine.Plugins([]string{admission.MutatingWebhookName, admission.ValidatingWebhookName}, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	chain := admission.Chain(plugins...)

	// A server's handlers call the chain like this.
	gadget := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "shop.example.com/v1", "kind": "Gadget", "metadata": map[string]any{"name": "torch"},
	}}
	request := k8sadmission.NewAttributesRecord(gadget, nil, gadget.GroupVersionKind(), "", "torch",
		schema.GroupVersionResource{Group: "shop.example.com", Version: "v1", Resource: "gadgets"}, "",
		k8sadmission.Create, &metav1.CreateOptions{}, false, &user.DefaultInfo{Name: "jane"})
	scheme := k8sadmission.NewObjectInterfacesFromScheme(runtime.NewScheme())
	if err := chain.Admit(ctx, request, scheme); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(chain.Validate(ctx, request, scheme))
	// Output: admission webhook "gadgets.shop.example.com" denied the request: gadgets are sold out
}

// The flags of a server select its plugins.
func ExampleSelection_Names() {
	names, err := admission.Selection{Disable: []string{admission.InitializersName}}.Names(admission.Recommended())
	fmt.Println(names, err)
	_, err = admission.Selection{Control: []string{"NamespaceLifecycle", "PodPreset"}}.Names(admission.Recommended())
	fmt.Println(err)
	// Output:
	// [NamespaceLifecycle MutatingAdmissionPolicy MutatingAdmissionWebhook ValidatingAdmissionPolicy GenericAdmissionWebhook ValidatingAdmissionWebhook] <nil>
	// admission-control: unknown plugin "PodPreset"; known plugins: NamespaceLifecycle, Initializers, MutatingAdmissionPolicy, MutatingAdmissionWebhook, ValidatingAdmissionPolicy, GenericAdmissionWebhook, ValidatingAdmissionWebhook
}
