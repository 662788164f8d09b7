package main

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/yaml"

	"github.com/gatehouse-dev/gatehouse/examples/aggregated/gallery"
	galleryv1 "github.com/gatehouse-dev/gatehouse/examples/aggregated/gallery/v1"
	galleryv1beta1 "github.com/gatehouse-dev/gatehouse/examples/aggregated/gallery/v1beta1"
	"github.com/gatehouse-dev/gatehouse/initializer"
	"github.com/gatehouse-dev/gatehouse/internal/server"
)

// patience is the timeout of each wait in these tests.
const patience = 2 * time.Minute

// in runs a function until the end of the test, and waits for its return. It returns when the function has
// reported its value.
func in[T any](t *testing.T, run func(context.Context, func(T)) error) T {
	t.Helper()
	value, _ := inUntil(t, run)
	return value
}

// inUntil is in with a function that ends the run earlier.
func inUntil[T any](t *testing.T, run func(context.Context, func(T)) error) (T, func()) {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	ended, ready := make(chan error, 1), make(chan T, 1)
	go func() { ended <- run(ctx, func(value T) { ready <- value }) }()
	select {
	case value := <-ready:
		end := sync.OnceFunc(func() {
			stop()
			if err := <-ended; err != nil {
				t.Error(err)
			}
		})
		t.Cleanup(end)
		return value, end
	case err := <-ended:
		stop()
		t.Fatalf("ended before it was ready: %v", err)
	case <-time.After(patience):
		stop()
		t.Fatal("not ready in time")
	}
	panic("unreachable")
}

// cluster is a main server and a gallery behind it.
type cluster struct {
	main *kubernetes.Clientset
	// admin is the administrator's configuration for the main server, and gallery the configuration for the
	// gallery itself.
	admin, gallery *rest.Config
	// restart stops the gallery and starts it again.
	restart func()
}

func start(t *testing.T) *cluster {
	t.Helper()
	return startWith(t, false)
}

func startWith(t *testing.T, strict bool) *cluster {
	t.Helper()
	if testing.Short() {
		t.Skip("starts two servers, which -short leaves out")
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := listener.Addr().(*net.TCPAddr).Port
	listener.Close()
	dir, mainDir := t.TempDir(), t.TempDir()
	tokens := filepath.Join(dir, "tokens.csv")
	if err := os.WriteFile(tokens, []byte("alice-token,alice,alice\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := server.New(server.Options{DataDir: mainDir, TokenAuthFile: tokens, ServiceAddresses: []string{fmt.Sprintf("gallery/api=127.0.0.1:%d", port)}})
	if err != nil {
		t.Fatal(err)
	}
	address := in(t, s.Run)
	main, err := kubernetes.NewForConfig(address.Admin)
	if err != nil {
		t.Fatal(err)
	}
	serve := func(ctx context.Context, ready func(string)) error {
		return Run(ctx, Options{
			MainKubeconfig: address.Kubeconfig, BindAddress: "127.0.0.1", SecurePort: port, DataDir: dir, Strict: strict,
		}, ready)
	}
	var url string
	var stop func()
	restart := func() {
		if stop != nil {
			stop()
		}
		url, stop = inUntil(t, serve)
	}
	restart()
	gallery := rest.CopyConfig(address.Admin)
	gallery.Host, gallery.CAData, gallery.CAFile = url, nil, filepath.Join(dir, "serving.crt")
	c := &cluster{main: main, admin: address.Admin, gallery: gallery, restart: restart}
	c.aggregate(t, filepath.Join(dir, "serving.crt"))
	return c
}

// aggregate puts the gallery behind the main server, as apiservice.yaml does, and waits until the main server
// forwards requests.
func (c *cluster) aggregate(t *testing.T, bundle string) {
	t.Helper()
	manifest, err := os.ReadFile("apiservice.yaml")
	if err != nil {
		t.Fatal(err)
	}
	certificate, err := os.ReadFile(bundle)
	if err != nil {
		t.Fatal(err)
	}
	text := strings.ReplaceAll(string(manifest), "${CA_BUNDLE}", base64.StdEncoding.EncodeToString(certificate))
	client, err := dynamic.NewForConfig(c.admin)
	if err != nil {
		t.Fatal(err)
	}
	mapper := restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(c.main.Discovery()))
	for _, document := range strings.Split(text, "\n---\n") {
		obj := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(document), &obj.Object); err != nil {
			t.Fatal(err)
		}
		mapping, err := mapper.RESTMapping(obj.GroupVersionKind().GroupKind(), obj.GroupVersionKind().Version)
		if err != nil {
			t.Fatal(err)
		}
		var resource dynamic.ResourceInterface = client.Resource(mapping.Resource)
		if obj.GetNamespace() != "" {
			resource = client.Resource(mapping.Resource).Namespace(obj.GetNamespace())
		}
		if _, err := resource.Create(t.Context(), obj, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for end := time.After(patience); ; {
		_, err := paintings(t, c.admin, "v1", "default").List(t.Context(), metav1.ListOptions{})
		if err == nil {
			if _, err = paintings(t, c.admin, "v1beta1", "default").List(t.Context(), metav1.ListOptions{}); err == nil {
				return
			}
		}
		select {
		case <-tick.C:
		case <-end:
			t.Fatalf("the main server does not pass requests on: %v", err)
		}
	}
}

// replicas returns the main server's status of a webhook or policy: whether it is active, and on which servers,
// without the random part of their names.
func (c *cluster) replicas(t *testing.T, name string) (inForce bool, by []string) {
	t.Helper()
	client, err := dynamic.NewForConfig(c.admin)
	if err != nil {
		t.Fatal(err)
	}
	state, err := client.Resource(schema.GroupVersionResource{Group: "gatehouse.dev", Version: "v1alpha1", Resource: "registrationstates"}).Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	inForce, _, _ = unstructured.NestedBool(state.Object, "inForce")
	list, _, _ := unstructured.NestedSlice(state.Object, "replicas")
	for _, one := range list {
		if name, _ := one.(map[string]any)["name"].(string); strings.HasPrefix(name, "gallery-") {
			by = append(by, "gallery")
		} else {
			by = append(by, "main")
		}
	}
	slices.Sort(by)
	return inForce, by
}

// paintings returns a client for one version of paintings.
func paintings(t *testing.T, config *rest.Config, version, namespace string) dynamic.ResourceInterface {
	t.Helper()
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return client.Resource(schema.GroupVersionResource{Group: "gallery.example.com", Version: version, Resource: "paintings"}).Namespace(namespace)
}

func paint(version, name string, spec map[string]any) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "gallery.example.com/" + version, "kind": "Painting",
		"metadata": map[string]any{"name": name}, "spec": spec,
	}}
}

// critic is a webhook server that knows paintings of version v1: one webhook signs paintings without an artist,
// the other rejects forgeries.
type critic struct {
	*httptest.Server
	mu struct {
		sync.Mutex
		seen []string
	}
}

func newCritic(t *testing.T) *critic {
	c := &critic{}
	c.Server = httptest.NewTLSServer(http.HandlerFunc(c.review))
	t.Cleanup(c.Close)
	return c
}

func (c *critic) review(w http.ResponseWriter, r *http.Request) {
	var review admissionv1.AdmissionReview
	var painting galleryv1.Painting
	err := json.NewDecoder(r.Body).Decode(&review)
	if err == nil {
		err = json.Unmarshal(review.Request.Object.Raw, &painting)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	c.mu.Lock()
	c.mu.seen = append(c.mu.seen, strings.Join([]string{r.URL.Path, painting.APIVersion, review.Request.RequestKind.Version, painting.Spec.Artist}, " "))
	c.mu.Unlock()
	review.Response = &admissionv1.AdmissionResponse{UID: review.Request.UID, Allowed: true}
	switch {
	case r.URL.Path == "/sign" && painting.Spec.Artist == "":
		jsonPatch := admissionv1.PatchTypeJSONPatch
		review.Response.Patch = []byte(`[{"op":"add","path":"/spec/artist","value":"anonymous"}]`)
		review.Response.PatchType = &jsonPatch
	case r.URL.Path == "/judge" && painting.Spec.Artist == "van Meegeren":
		review.Response.Allowed = false
		review.Response.Result = &metav1.Status{Code: http.StatusForbidden, Message: "this is a forgery"}
	}
	_ = json.NewEncoder(w).Encode(review)
}

// saw returns the reviews since the last call.
func (c *critic) saw() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	seen := c.mu.seen
	c.mu.seen = nil
	return seen
}

// register registers the webhooks on the main server, for namespaces that are open to the public.
func (c *critic) register(t *testing.T, main kubernetes.Interface) {
	t.Helper()
	client := func(path string) admissionregistrationv1.WebhookClientConfig {
		url := c.URL + path
		return admissionregistrationv1.WebhookClientConfig{
			URL: &url, CABundle: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Certificate().Raw}),
		}
	}
	rules := []admissionregistrationv1.RuleWithOperations{{
		Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
		Rule:       admissionregistrationv1.Rule{APIGroups: []string{"gallery.example.com"}, APIVersions: []string{"v1"}, Resources: []string{"paintings"}},
	}}
	public := &metav1.LabelSelector{MatchLabels: map[string]string{"open": "public"}}
	none := admissionregistrationv1.SideEffectClassNone
	_, err := main.AdmissionregistrationV1().MutatingWebhookConfigurations().Create(t.Context(), &admissionregistrationv1.MutatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: "gallery"},
		Webhooks: []admissionregistrationv1.MutatingWebhook{{
			Name: "sign.gallery.example.com", ClientConfig: client("/sign"), Rules: rules, NamespaceSelector: public,
			SideEffects: &none, AdmissionReviewVersions: []string{"v1"},
		}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	_, err = main.AdmissionregistrationV1().ValidatingWebhookConfigurations().Create(t.Context(), &admissionregistrationv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: "gallery"},
		Webhooks: []admissionregistrationv1.ValidatingWebhook{{
			Name: "judge.gallery.example.com", ClientConfig: client("/judge"), Rules: rules, NamespaceSelector: public,
			SideEffects: &none, AdmissionReviewVersions: []string{"v1"},
		}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
}

// await sends dry-run creates of a painting until the critic is called in both passes: webhooks take effect
// within about a second.
func (c *critic) await(t *testing.T, client dynamic.ResourceInterface) {
	t.Helper()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for end := time.After(patience); ; {
		if _, err := client.Create(t.Context(), paint("v1", "trial", map[string]any{"title": "Trial"}), metav1.CreateOptions{DryRun: []string{"All"}}); err != nil {
			t.Fatal(err)
		}
		if len(c.saw()) == 2 {
			return
		}
		select {
		case <-tick.C:
		case <-end:
			t.Fatal("the registrations are not in force")
		}
	}
}

// TestWebhooksOfTheMainServerJudgePaintings proves S9.15: the gallery admits requests with the webhooks and
// policies, the namespaces and the users of the main server.
func TestWebhooksOfTheMainServerJudgePaintings(t *testing.T) {
	t.Parallel()
	c := start(t)
	for name, labels := range map[string]map[string]string{"louvre": {"open": "public"}, "vault": nil} {
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}
		if _, err := c.main.CoreV1().Namespaces().Create(t.Context(), namespace, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	critic := newCritic(t)
	critic.register(t, c.main)
	critic.await(t, paintings(t, c.gallery, "v1", "louvre"))

	alice := rest.AnonymousClientConfig(c.gallery)
	alice.BearerToken = "alice-token"
	mona := map[string]any{"title": "Mona Lisa", "artist": "Leonardo", "year": int64(1503)}
	for _, tc := range []struct {
		name               string
		as                 *rest.Config
		version, namespace string
		spec               map[string]any
		want               map[string]any
		// reason and message are the expected rejection.
		reason  metav1.StatusReason
		message string
		// seen are the expected reviews of the critic, in order.
		seen []string
	}{
		{
			name: "S5.4 mutated", version: "v1", namespace: "louvre",
			spec: map[string]any{"title": "Untitled"},
			want: map[string]any{"title": "Untitled", "artist": "anonymous"},
			seen: []string{"/sign gallery.example.com/v1 v1 ", "/judge gallery.example.com/v1 v1 anonymous"},
		},
		{
			name: "S2.22 another version of the same thing", version: "v1beta1", namespace: "louvre",
			spec: map[string]any{"title": "Untitled"},
			want: map[string]any{"title": "Untitled", "painter": "anonymous"},
			seen: []string{"/sign gallery.example.com/v1 v1beta1 ", "/judge gallery.example.com/v1 v1beta1 anonymous"},
		},
		{
			name: "S4.11 rejected", version: "v1beta1", namespace: "louvre",
			spec:    map[string]any{"title": "Supper at Emmaus", "painter": "van Meegeren"},
			message: `admission webhook "judge.gallery.example.com" denied the request: this is a forgery`,
			seen:    []string{"/sign gallery.example.com/v1 v1beta1 van Meegeren", "/judge gallery.example.com/v1 v1beta1 van Meegeren"},
		},
		{
			name: "S6.6 invalid, so validating hooks are not asked", version: "v1", namespace: "louvre",
			spec: map[string]any{"artist": "Leonardo"}, reason: metav1.StatusReasonInvalid,
			message: `Painting.gallery.example.com "s6-6" is invalid: spec.title: Required value: a painting needs a title`,
			seen:    []string{"/sign gallery.example.com/v1 v1 Leonardo"},
		},
		{
			name: "S2.14 the labels of the main server's namespace", version: "v1", namespace: "vault",
			spec: mona, want: mona,
		},
		{
			name: "S9.10 a namespace that the main server does not have", version: "v1", namespace: "nowhere",
			spec: mona, reason: metav1.StatusReasonNotFound, message: `namespaces "nowhere" not found`,
		},
		{
			name: "what the main server does not allow", as: alice, version: "v1", namespace: "louvre",
			spec: mona, reason: metav1.StatusReasonForbidden,
			message: `paintings.gallery.example.com is forbidden: User "alice" cannot create resource "paintings" in API group "gallery.example.com" in the namespace "louvre"`,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			critic.saw()
			config := tc.as
			if config == nil {
				config = c.gallery
			}
			name := strings.ToLower(strings.ReplaceAll(strings.Fields(tc.name)[0], ".", "-"))
			got, err := paintings(t, config, tc.version, tc.namespace).Create(t.Context(), paint(tc.version, name, tc.spec), metav1.CreateOptions{})
			if tc.message != "" {
				if err == nil || err.Error() != tc.message || apierrors.ReasonForError(err) != tc.reason {
					t.Errorf("got %v, want %s %s", err, tc.reason, tc.message)
				}
			} else if err != nil {
				t.Error(err)
			} else if diff := cmp.Diff(tc.want, got.Object["spec"]); diff != "" {
				t.Errorf("spec (-want +got)\n%s", diff)
			}
			if diff := cmp.Diff(tc.seen, critic.saw()); diff != "" {
				t.Errorf("reviews (-want +got)\n%s", diff)
			}
		})
	}
}

// Behind the main server, a webhook is called for paintings within about a second. A second later the main
// server and the gallery report it as active (S22.20, S22.11). In strict mode it applies to every request that
// begins after its write was acknowledged.
func TestRegistrationsAreInForceBehindTheMainServer(t *testing.T) {
	for _, strict := range []bool{false, true} {
		t.Run(map[bool]string{false: "bounded", true: "S11.8 strict"}[strict], func(t *testing.T) {
			t.Parallel()
			c := startWith(t, strict)
			namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "louvre", Labels: map[string]string{"open": "public"}}}
			if _, err := c.main.CoreV1().Namespaces().Create(t.Context(), namespace, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
			critic := newCritic(t)
			behind := paintings(t, c.admin, "v1", "louvre")
			forgery := map[string]any{"title": "Supper at Emmaus", "artist": "van Meegeren"}
			if _, err := behind.Create(t.Context(), paint("v1", "before", forgery), metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
			critic.register(t, c.main)
			if strict {
				_, err := behind.Create(t.Context(), paint("v1", "after", forgery), metav1.CreateOptions{})
				if err == nil || !strings.Contains(err.Error(), "this is a forgery") {
					t.Errorf("right after the registration: %v", err)
				}
			} else {
				critic.await(t, behind)
			}
			tick := time.NewTicker(50 * time.Millisecond)
			defer tick.Stop()
			for end := time.After(patience); ; {
				inForce, by := c.replicas(t, "validatingwebhookconfigurations.gallery")
				if inForce && slices.Equal(by, []string{"gallery", "main"}) {
					break
				}
				select {
				case <-tick.C:
				case <-end:
					t.Fatalf("in force %t by %v", inForce, by)
				}
			}
			if _, err := behind.Create(t.Context(), paint("v1", "later", forgery), metav1.CreateOptions{}); err == nil || !strings.Contains(err.Error(), "this is a forgery") {
				t.Errorf("when it is shown in force: %v", err)
			}
		})
	}
}

// If the gallery cannot reach a webhook, the gallery reports the webhook as skipped, with the reason. The main
// server does not, since it never calls that webhook (S22.20, S7.16).
func TestSkippedWebhooksAreShownOfTheGallery(t *testing.T) {
	t.Parallel()
	c := start(t)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	down := listener.Addr().String()
	listener.Close()
	url, none, ignore := "https://"+down, admissionregistrationv1.SideEffectClassNone, admissionregistrationv1.Ignore
	if _, err := c.main.AdmissionregistrationV1().ValidatingWebhookConfigurations().Create(t.Context(), &admissionregistrationv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: "down"},
		Webhooks: []admissionregistrationv1.ValidatingWebhook{{
			Name: "down.gallery.example.com", ClientConfig: admissionregistrationv1.WebhookClientConfig{URL: &url}, FailurePolicy: &ignore,
			Rules: []admissionregistrationv1.RuleWithOperations{{
				Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
				Rule:       admissionregistrationv1.Rule{APIGroups: []string{"gallery.example.com"}, APIVersions: []string{"*"}, Resources: []string{"paintings"}},
			}},
			SideEffects: &none, AdmissionReviewVersions: []string{"v1"},
		}},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	client, err := dynamic.NewForConfig(c.admin)
	if err != nil {
		t.Fatal(err)
	}
	states := client.Resource(schema.GroupVersionResource{Group: "gatehouse.dev", Version: "v1alpha1", Resource: "registrationstates"})
	behind := paintings(t, c.admin, "v1", "default")
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for end := time.After(patience); ; {
		// Several consecutive calls must fail.
		if _, err := behind.Create(t.Context(), paint("v1", "trial", map[string]any{"title": "Trial"}), metav1.CreateOptions{DryRun: []string{"All"}}); err != nil {
			t.Fatal(err)
		}
		state, err := states.Get(t.Context(), "validatingwebhookconfigurations.down", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		shown := map[string]map[string]any{}
		list, _, _ := unstructured.NestedSlice(state.Object, "replicas")
		for _, one := range list {
			name, _ := one.(map[string]any)["name"].(string)
			server := "main"
			if strings.HasPrefix(name, "gallery-") {
				server = "gallery"
			}
			skipped, _, _ := unstructured.NestedSlice(one.(map[string]any), "skipped")
			if len(skipped) > 0 {
				shown[server], _ = skipped[0].(map[string]any)
			}
		}
		if one := shown["gallery"]; one != nil {
			if reason, _ := one["reason"].(string); one["webhook"] != "down.gallery.example.com" || one["target"] != down || !strings.Contains(reason, "connection refused") {
				t.Errorf("the gallery shows %v", one)
			}
			if shown["main"] != nil {
				t.Errorf("the main server shows %v", shown["main"])
			}
			return
		}
		select {
		case <-tick.C:
		case <-end:
			t.Fatalf("nobody shows the webhook: %v", list)
		}
	}
}

// S22.30: traces and plans of paintings are read through the main server, with the rights of its roles. Reading
// them needs no webhooks or policies.
func TestReportsBehindTheMainServer(t *testing.T) {
	t.Parallel()
	c := startWith(t, true)
	critic := newCritic(t)
	critic.register(t, c.main)
	if _, err := c.main.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "museum", Labels: map[string]string{"open": "public"}}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	client, err := dynamic.NewForConfig(c.admin)
	if err != nil {
		t.Fatal(err)
	}
	announced, err := client.Resource(schema.GroupVersionResource{Group: "gatehouse.dev", Version: "v1alpha1", Resource: "admissionservers"}).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var reports []string
	for i := range announced.Items {
		if text, _, _ := unstructured.NestedString(announced.Items[i].Object, "reports"); text != "" {
			reports = append(reports, text)
		}
	}
	if !slices.Equal(reports, []string{"gallery.example.com/v1"}) {
		t.Fatalf("the servers announce %q", reports)
	}
	request := func(verb, path, body, token string) (*http.Response, *unstructured.Unstructured) {
		t.Helper()
		config := rest.CopyConfig(c.admin)
		if token != "" {
			config = rest.AnonymousClientConfig(c.admin)
			config.BearerToken = token
		}
		client, err := rest.HTTPClientFor(config)
		if err != nil {
			t.Fatal(err)
		}
		req, err := http.NewRequestWithContext(t.Context(), verb, c.admin.Host+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/json")
		response, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		answer := &unstructured.Unstructured{}
		if err := json.NewDecoder(response.Body).Decode(&answer.Object); err != nil {
			t.Fatalf("%s %s: %s, %v", verb, path, response.Status, err)
		}
		return response, answer
	}
	const group, collection = "/apis/gallery.example.com/v1", "/apis/gallery.example.com/v1/namespaces/museum/paintings"
	const forgery = `{"apiVersion":"gallery.example.com/v1","kind":"Painting","metadata":{"name":"emmaus","namespace":"museum"},"spec":{"title":"The Supper at Emmaus","artist":"van Meegeren"}}`
	response, _ := request("POST", collection, forgery, "")
	id := response.Header.Get("Gatehouse-Trace")
	if response.StatusCode == http.StatusCreated || id == "" {
		t.Fatalf("the forgery got %s and the trace %q", response.Status, id)
	}
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	var trace *unstructured.Unstructured
	for end := time.After(patience); ; {
		// The trace is stored after the handlers have returned, which is after the response.
		if response, trace = request("GET", group+"/namespaces/museum/admissiontraces/"+id, "", ""); response.StatusCode == http.StatusOK {
			break
		}
		select {
		case <-tick.C:
		case <-end:
			t.Fatalf("no trace: %v", trace)
		}
	}
	if outcome, _, _ := unstructured.NestedString(trace.Object, "outcome"); trace.GetAPIVersion() != "gatehouse.dev/v1alpha1" || trace.GetKind() != "AdmissionTrace" || trace.GetName() != id || trace.GetNamespace() != "museum" || outcome != "Denied" {
		t.Errorf("the trace is %v", trace)
	}
	for selector, want := range map[string]int{"outcome%3DDenied": 1, "outcome%3DAllowed": 0, "webhook%3Djudge.gallery.example.com": 1, "metadata.name%3D" + id: 1, "metadata.name%21%3D" + id: 0} {
		_, list := request("GET", group+"/admissiontraces?fieldSelector="+selector, "", "")
		if items, _, _ := unstructured.NestedSlice(list.Object, "items"); len(items) != want {
			t.Errorf("%s selects %d traces: %v", selector, len(items), list)
		}
	}
	if response, status := request("GET", group+"/admissiontraces?fieldSelector=color%3Dred", "", ""); response.StatusCode != http.StatusBadRequest {
		t.Errorf("a field that there is not: %v", status)
	}
	if response, status := request("DELETE", group+"/namespaces/museum/admissiontraces/"+id, "", ""); response.StatusCode != http.StatusMethodNotAllowed {
		t.Errorf("a deletion: %v", status)
	}
	for _, path := range []string{group + "/admissiontraces", group + "/namespaces/museum/admissiontraces/" + id} {
		if response, status := request("GET", path, "", "alice-token"); response.StatusCode != http.StatusForbidden {
			t.Errorf("alice reads %s: %v", path, status)
		}
	}

	explain := func(spec, token string) (*http.Response, *unstructured.Unstructured) {
		return request("POST", group+"/admissionexplanations", `{"apiVersion":"gatehouse.dev/v1alpha1","kind":"AdmissionExplanation","metadata":{"name":"e"},"spec":`+spec+`}`, token)
	}
	const create = `{"resource":{"group":"gallery.example.com","version":"v1","resource":"paintings"},"object":` + forgery
	critic.saw()
	response, e := explain(create+`}`, "")
	steps, _, _ := unstructured.NestedSlice(e.Object, "status", "plan", "steps")
	if response.StatusCode != http.StatusCreated || !strings.Contains(fmt.Sprint(steps), "judge.gallery.example.com") {
		t.Errorf("%s, the steps are %v in %v", response.Status, steps, e)
	}
	if saw := critic.saw(); len(saw) > 0 {
		t.Errorf("the explanation called webhooks: %q", saw)
	}
	if _, err := paintings(t, c.admin, "v1", "museum").Get(t.Context(), "emmaus", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("the explained painting: %v", err)
	}
	if _, e := explain(`{"resource":{"group":"gallery.example.com","version":"v1","resource":"statues"},"object":{"metadata":{"name":"a"}}}`, ""); !strings.Contains(fmt.Sprint(e.Object["status"]), "404") {
		t.Errorf("a kind that there is not: %v", e)
	}
	if response, e := explain(create+`,"registrations":[{"apiVersion":"v1"}]}`, ""); response.StatusCode != http.StatusBadRequest {
		t.Errorf("policies that are not stored: %v", e)
	}
	if response, e := explain(create+`,"operation":"PATCH"}`, ""); response.StatusCode != http.StatusUnprocessableEntity {
		t.Errorf("an operation that there is not: %v", e)
	}
	if response, e := explain(create+`}`, "alice-token"); response.StatusCode != http.StatusForbidden {
		t.Errorf("alice explains without a role: %v", e)
	}
	_, err = c.main.RbacV1().ClusterRoles().Create(t.Context(), &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "explains"}, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{"gallery.example.com"}, Resources: []string{"admissionexplanations"}, Verbs: []string{"create"}},
	}}, metav1.CreateOptions{})
	if err == nil {
		_, err = c.main.RbacV1().ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: "explains"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "explains"},
			Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: "alice"}},
		}, metav1.CreateOptions{})
	}
	if err != nil {
		t.Fatal(err)
	}
	for end := time.After(patience); ; {
		if response, e = explain(create+`}`, "alice-token"); response.StatusCode == http.StatusCreated {
			break
		}
		select {
		case <-tick.C:
		case <-end:
			t.Fatalf("alice has the role: %v", e)
		}
	}
	if text := fmt.Sprint(e.Object["status"]); strings.Contains(text, "judge.gallery.example.com") || !strings.Contains(text, "may not list validatingwebhookconfigurations") || !strings.Contains(text, "is forbidden") {
		t.Errorf("alice, who may not read webhooks or create paintings, sees %s", text)
	}
	for spec, want := range map[string]string{
		create + `,"user":"bob"}`: "impersonate",
		`{"operation":"DELETE","name":"emmaus","namespace":"museum","resource":{"group":"gallery.example.com","version":"v1","resource":"paintings"}}`: "to be allowed to get it",
	} {
		if response, e := explain(spec, "alice-token"); response.StatusCode != http.StatusForbidden || !strings.Contains(fmt.Sprint(e), want) {
			t.Errorf("%s: %v", spec, e)
		}
	}
}

// S22.20: a webhook of the main server for all kinds that is down does not prevent the start of the gallery: no
// webhook is called for announcements (S2.41).
func TestTheGalleryStartsWhileAWebhookOfTheMainServerIsDown(t *testing.T) {
	t.Parallel()
	c := start(t)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	url, none := "https://"+listener.Addr().String(), admissionregistrationv1.SideEffectClassNone
	listener.Close()
	all := []string{"*"}
	hooks := c.main.AdmissionregistrationV1().ValidatingWebhookConfigurations()
	if _, err := hooks.Create(t.Context(), &admissionregistrationv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: "all"},
		Webhooks: []admissionregistrationv1.ValidatingWebhook{{
			Name: "all.example.com", ClientConfig: admissionregistrationv1.WebhookClientConfig{URL: &url},
			Rules: []admissionregistrationv1.RuleWithOperations{{
				Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.OperationAll},
				Rule:       admissionregistrationv1.Rule{APIGroups: all, APIVersions: all, Resources: []string{"*/*"}},
			}},
			SideEffects: &none, AdmissionReviewVersions: []string{"v1"},
		}},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	c.restart()
	on := paintings(t, c.gallery, "v1", "default")
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for end := time.After(patience); ; {
		_, err := on.Create(t.Context(), paint("v1", "wake", map[string]any{"title": "Wake"}), metav1.CreateOptions{})
		if err != nil && strings.Contains(err.Error(), `failed calling webhook "all.example.com"`) {
			return
		}
		// The gallery cannot authenticate the administrator until it has read the CA of the main server.
		if !apierrors.IsForbidden(err) {
			t.Fatalf("the gallery does not call the webhook: %v", err)
		}
		select {
		case <-tick.C:
		case <-end:
			t.Fatal(err)
		}
	}
}

// S22.20: a gallery starts without webhooks and policies, and recovers, if the main server rejects its
// announcement, as an older server does while a webhook for all kinds is down.
func TestAGalleryThatIsNotAnnounced(t *testing.T) {
	t.Parallel()
	s, err := server.New(server.Options{DataDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	address := in(t, s.Run)
	transport, err := rest.TransportFor(address.Admin)
	if err != nil {
		t.Fatal(err)
	}
	target, err := url.Parse(address.Admin.Host)
	if err != nil {
		t.Fatal(err)
	}
	var down atomic.Bool
	var reads atomic.Int64
	down.Store(true)
	proxy := httputil.NewSingleHostReverseProxy(target)
	proxy.Transport, proxy.FlushInterval = transport, -1
	older := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if down.Load() && strings.Contains(r.URL.Path, "/admissionregistration.k8s.io/") {
			reads.Add(1)
		}
		if down.Load() && r.Method == http.MethodPut && strings.Contains(r.URL.Path, "/admissionservers/") {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusInternalServerError)
			fmt.Fprint(w, `{"apiVersion":"v1","kind":"Status","status":"Failure","code":500,"reason":"InternalError","message":"failed calling webhook \"all.example.com\""}`)
			return
		}
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(older.Close)
	dir := t.TempDir()
	kubeconfig := filepath.Join(dir, "kubeconfig")
	if err := clientcmd.WriteToFile(clientcmdapi.Config{
		Clusters: map[string]*clientcmdapi.Cluster{"c": {Server: older.URL}}, Contexts: map[string]*clientcmdapi.Context{"c": {Cluster: "c"}}, CurrentContext: "c",
	}, kubeconfig); err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := listener.Addr().(*net.TCPAddr).Port
	listener.Close()
	ctx, stop := context.WithCancel(context.Background())
	ended, ready := make(chan error, 1), make(chan string, 1)
	go func() {
		ended <- Run(ctx, Options{MainKubeconfig: kubeconfig, BindAddress: "127.0.0.1", SecurePort: port, DataDir: dir, Strict: true}, func(url string) { ready <- url })
	}()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	config := rest.CopyConfig(address.Admin)
	config.Host, config.CAData, config.CAFile = fmt.Sprintf("https://127.0.0.1:%d", port), nil, ""
	config.Insecure = true
	gallery, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	check := func(path string) (string, error) {
		body, err := gallery.Discovery().RESTClient().Get().AbsPath(path).Param("verbose", "true").Do(t.Context()).Raw()
		return string(body), err
	}
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for end := time.After(patience); ; {
		body, err := check("/livez")
		if err == nil {
			break
		}
		select {
		case <-tick.C:
		case err := <-ended:
			ended <- err
			t.Fatalf("the gallery ended: %v", err)
		case <-end:
			t.Fatalf("the gallery does not live: %v %s", err, body)
		}
	}
	if body, err := check("/readyz"); err == nil || !strings.Contains(body, "[-]registrations failed") {
		t.Errorf("the gallery is ready: %v, %s", err, body)
	}
	on := paintings(t, config, "v1", "default")
	painting := paint("v1", "wake", map[string]any{"title": "Wake"})
	// The gallery lives before it has the main server's CA of clients. Until then, a client is anonymous.
	for end := time.After(patience); ; {
		_, err := on.List(t.Context(), metav1.ListOptions{})
		if err == nil {
			break
		}
		if !apierrors.IsForbidden(err) {
			t.Fatalf("a list got %v", err)
		}
		select {
		case <-tick.C:
		case <-end:
			t.Fatalf("the gallery does not know its clients: %v", err)
		}
	}
	if _, err := on.Create(t.Context(), painting, metav1.CreateOptions{}); !apierrors.IsServiceUnavailable(err) || !strings.Contains(err.Error(), "not announced to the main server") {
		t.Errorf("a create got %v", err)
	}
	if n := reads.Load(); n != 0 {
		t.Errorf("registrations were read %d times without an announcement", n)
	}
	down.Store(false)
	select {
	case <-ready:
	case <-time.After(patience):
		t.Fatal("the gallery does not recover")
	}
	if body, err := check("/readyz"); err != nil {
		t.Errorf("the gallery is not ready: %v %s", err, body)
	}
	if _, err := on.Create(t.Context(), painting, metav1.CreateOptions{}); err != nil {
		t.Errorf("a create got %v", err)
	}
}

// S22.26: initializers of the main server initialize paintings like its own objects: creates wait, other
// clients do not see the object before, an initializer that does not act in time is removed, and allocations
// for a rejected painting are released.
func TestInitializersOfTheMainServer(t *testing.T) {
	t.Parallel()
	c := startWith(t, true)
	const collection = "/apis/gallery.example.com/v1/namespaces/default/paintings"
	request := func(verb, path, body string) (int, *unstructured.Unstructured) {
		t.Helper()
		r := c.main.RESTClient().Verb(verb).RequestURI(path).Body([]byte(body))
		if verb == http.MethodPatch {
			r = r.SetHeader("Content-Type", "application/merge-patch+json")
		}
		var code int
		result := r.Do(t.Context()).StatusCode(&code)
		data, _ := result.Raw()
		obj := &unstructured.Unstructured{}
		_ = json.Unmarshal(data, &obj.Object)
		return code, obj
	}
	body := func(name string) string {
		data, err := paint("v1", name, map[string]any{"title": name}).MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		return string(data)
	}
	pending := func(obj *unstructured.Unstructured) string {
		list, _, _ := unstructured.NestedSlice(obj.Object, "metadata", "initializers", "pending")
		return fmt.Sprint(list)
	}
	code, obj := request(http.MethodPost, "/apis/admissionregistration.k8s.io/v1alpha1/initializerconfigurations", `{
		"apiVersion": "admissionregistration.k8s.io/v1alpha1", "kind": "InitializerConfiguration", "metadata": {"name": "gallery"},
		"initializers": [
			{"name": "frame.gallery.example.com", "finalizer": "gallery.example.com/frame", "rules": [{"apiGroups": ["gallery.example.com"], "apiVersions": ["*"], "resources": ["paintings"]}]},
			{"name": "hang.gallery.example.com", "rules": [{"apiGroups": ["gallery.example.com"], "apiVersions": ["*"], "resources": ["paintings"]}]}
		]}`)
	if code != http.StatusCreated {
		t.Fatalf("%d: %v", code, obj)
	}

	// S11.26, S11.27, S11.31, S11.33.
	const both = "[map[name:frame.gallery.example.com] map[name:hang.gallery.example.com]]"
	if code, obj = request(http.MethodPost, collection+"?includeUninitialized=true", body("mona")); code != http.StatusAccepted || pending(obj) != both || len(obj.GetAnnotations()) > 0 {
		t.Fatalf("S11.27: %d: %v", code, obj)
	}
	if _, list := request(http.MethodGet, collection, ""); strings.Contains(fmt.Sprint(list.Object["items"]), "mona") {
		t.Errorf("S11.31: %v", list)
	}
	if _, list := request(http.MethodGet, collection+"?includeUninitialized=true", ""); !strings.Contains(fmt.Sprint(list.Object["items"]), both) {
		t.Errorf("S11.31: %v", list)
	}
	alice := rest.CopyConfig(c.admin)
	alice.CertData, alice.CertFile, alice.KeyData, alice.KeyFile, alice.BearerToken = nil, "", nil, "", "alice-token"
	c.mayGet(t, "alice")
	if _, err := paintings(t, alice, "v1", "default").Get(t.Context(), "mona", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("S11.33: %v", err)
	}
	if code, obj = request(http.MethodGet, collection+"/mona", ""); code != http.StatusOK || pending(obj) != both {
		t.Errorf("S11.33: %d: %v", code, obj)
	}
	if code, obj = request(http.MethodDelete, collection+"/mona", ""); code != http.StatusOK {
		t.Errorf("S11.60: %d: %v", code, obj)
	}
	if code, obj = request(http.MethodGet, collection+"/mona?includeUninitialized=true", ""); code != http.StatusNotFound {
		t.Errorf("S11.60: %d: %v", code, obj)
	}

	// The gallery stops while a creator waits. The painting stays hidden, and is initialized after the restart.
	waited := make(chan int, 1)
	creator := c.main.RESTClient().Post().RequestURI(collection).Body([]byte(body("watch")))
	go func() {
		var code int
		creator.MaxRetries(0).Do(context.Background()).StatusCode(&code)
		waited <- code
	}()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	stored := func() bool {
		code, obj := request(http.MethodGet, collection+"/watch?includeUninitialized=true", "")
		return code == http.StatusOK && pending(obj) != "[]"
	}
	for end := time.After(patience); !stored(); {
		select {
		case <-tick.C:
		case <-end:
			t.Fatal("the painting is not stored")
		}
	}
	c.restart()
	if code := <-waited; code < 500 {
		t.Errorf("S11.24: the creator got %d", code)
	}
	// The gallery serves before it has read the certificate authorities for its callers.
	for end := time.After(patience); ; {
		code, list := request(http.MethodGet, collection, "")
		if code == http.StatusOK {
			if items, ok := list.Object["items"].([]any); !ok || len(items) > 0 {
				t.Errorf("S11.31: after the restart: %v", list)
			}
			break
		}
		select {
		case <-tick.C:
		case <-end:
			t.Fatalf("after the restart: %d: %v", code, list)
		}
	}
	if !stored() {
		t.Error("S11.24: the painting did not outlive the restart")
	}

	// S11.24, S11.25, S11.56.
	frames := make(chan string, 100)
	stop := c.run(t, initializer.Options{
		Name: "frame.gallery.example.com", Finalizer: "gallery.example.com/frame",
		Initialize: func(_ context.Context, painting *unstructured.Unstructured) error {
			frames <- "framed " + painting.GetName()
			painting.SetLabels(map[string]string{"frame": "oak"})
			return nil
		},
		Release: func(_ context.Context, painting *unstructured.Unstructured) error {
			frames <- "released " + painting.GetName()
			return nil
		},
	})
	c.run(t, initializer.Options{
		Name: "hang.gallery.example.com",
		Initialize: func(_ context.Context, painting *unstructured.Unstructured) error {
			if painting.GetName() == "forgery" {
				return initializer.Fail(http.StatusForbidden, "Forbidden", "no forgeries")
			}
			return nil
		},
	})
	expect := func(wants ...string) {
		t.Helper()
		for _, want := range wants {
			select {
			case got := <-frames:
				if got != want {
					t.Errorf("S11.61: %s, not %s", got, want)
				}
			case <-time.After(patience):
				t.Fatalf("S11.61: not %s", want)
			}
		}
	}
	expect("framed watch")
	if code, obj = request(http.MethodPost, collection, body("milkmaid")); code != http.StatusCreated || obj.GetLabels()["frame"] != "oak" || pending(obj) != "[]" {
		t.Errorf("S11.25: %d: %v", code, obj)
	}
	if code, obj = request(http.MethodPost, collection, body("forgery")); code != http.StatusForbidden || obj.Object["message"] != `initializer "hang.gallery.example.com" rejected the object: no forgeries` {
		t.Errorf("S11.25: %d: %v", code, obj)
	}
	expect("framed milkmaid", "framed forgery", "released forgery")

	// S11.45, S11.57: the initializer of frames is stopped.
	stop()
	if code, obj = request(http.MethodPost, collection, body("emmaus")); code != http.StatusCreated || pending(obj) != "[]" || len(obj.GetFinalizers()) > 0 {
		t.Errorf("S11.45: %d: %v", code, obj)
	}
}

// mayGet grants a user the right to read paintings, but not to initialize them.
func (c *cluster) mayGet(t *testing.T, name string) {
	t.Helper()
	if _, err := c.main.RbacV1().ClusterRoles().Create(t.Context(), &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Rules:      []rbacv1.PolicyRule{{APIGroups: []string{"gallery.example.com"}, Resources: []string{"paintings"}, Verbs: []string{"get"}}},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.main.RbacV1().ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: name}},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// run runs an initializer of paintings until the end of the test, or until stop is called.
func (c *cluster) run(t *testing.T, o initializer.Options) (stop func()) {
	t.Helper()
	o.Config, o.Resources = c.admin, []schema.GroupVersionResource{{Group: "gallery.example.com", Version: "v1", Resource: "paintings"}}
	controller, err := initializer.New(o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- controller.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(stop)
	return stop
}

// Conversion between the versions loses nothing.
func TestConversionKeepsEverything(t *testing.T) {
	for _, tc := range []struct{ from, to schema.GroupVersion }{
		{galleryv1beta1.SchemeGroupVersion, galleryv1.SchemeGroupVersion},
		{galleryv1.SchemeGroupVersion, galleryv1beta1.SchemeGroupVersion},
	} {
		t.Run(tc.from.Version+" to "+tc.to.Version, func(t *testing.T) {
			mona := func(gv schema.GroupVersion) *unstructured.Unstructured {
				artist := map[string]string{"v1": "artist", "v1beta1": "painter"}[gv.Version]
				return paint(gv.Version, "mona-lisa", map[string]any{"title": "Mona Lisa", artist: "Leonardo", "year": int64(1503)})
			}
			data, err := mona(tc.from).MarshalJSON()
			if err != nil {
				t.Fatal(err)
			}
			obj, err := runtime.Decode(codecs.UniversalDecoder(gallery.SchemeGroupVersion), data)
			if err != nil {
				t.Fatal(err)
			}
			if data, err = runtime.Encode(codecs.LegacyCodec(tc.to), obj); err != nil {
				t.Fatal(err)
			}
			got := &unstructured.Unstructured{}
			if err := got.UnmarshalJSON(data); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(mona(tc.to), got); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}
