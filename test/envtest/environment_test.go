package envtest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/gatehouse-dev/gatehouse/test/harness"
)

// gadgets returns a CRD that a suite installs.
func gadgets() *apiextensionsv1.CustomResourceDefinition {
	return &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: "gadgets.example.com"},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: "example.com", Scope: apiextensionsv1.NamespaceScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: "gadgets", Singular: "gadget", Kind: "Gadget", ListKind: "GadgetList"},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: "v1", Served: true, Storage: true,
				Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{
					Type: "object", XPreserveUnknownFields: new(true),
				}},
			}},
		},
	}
}

func gadget(name string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "example.com/v1", "kind": "Gadget",
		"metadata": map[string]any{"name": name, "namespace": "default"},
	}}
}

// judging returns a webhook for config maps and gadgets that a suite installs.
func judging() *admissionregistrationv1.ValidatingWebhookConfiguration {
	return &admissionregistrationv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: "judging"},
		Webhooks: []admissionregistrationv1.ValidatingWebhook{{
			Name: "judge.example.com",
			ClientConfig: admissionregistrationv1.WebhookClientConfig{
				Service: &admissionregistrationv1.ServiceReference{Namespace: "system", Name: "webhooks", Path: new("/judge")},
			},
			Rules: []admissionregistrationv1.RuleWithOperations{{
				Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
				Rule:       admissionregistrationv1.Rule{APIGroups: []string{"", "example.com"}, APIVersions: []string{"v1"}, Resources: []string{"configmaps", "gadgets"}},
			}},
			FailurePolicy:           new(admissionregistrationv1.Fail),
			SideEffects:             new(admissionregistrationv1.SideEffectClassNone),
			AdmissionReviewVersions: []string{"v1"},
			// This webhook does not match the server's own objects.
			ObjectSelector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
				{Key: "unjudged", Operator: metav1.LabelSelectorOpDoesNotExist},
			}},
		}},
	}
}

// judge serves the webhook at the address chosen by envtest and counts its reviews. It rejects all requests.
func judge(t *testing.T, o *envtest.WebhookInstallOptions) *atomic.Int64 {
	t.Helper()
	var asked atomic.Int64
	listener, err := net.Listen("tcp", net.JoinHostPort(o.LocalServingHost, strconv.Itoa(o.LocalServingPort)))
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		review := &admissionv1.AdmissionReview{}
		if err := json.NewDecoder(r.Body).Decode(review); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		review.Response = &admissionv1.AdmissionResponse{UID: review.Request.UID, Result: &metav1.Status{Code: http.StatusForbidden, Message: "judged"}}
		_ = json.NewEncoder(w).Encode(review)
	})}
	done := make(chan error, 1)
	go func() {
		done <- server.ServeTLS(listener, filepath.Join(o.LocalServingCertDir, "tls.crt"), filepath.Join(o.LocalServingCertDir, "tls.key"))
	}()
	t.Cleanup(func() {
		server.Close()
		if err := <-done; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})
	return &asked
}

// start starts an environment and stops it at the end of the test.
func start(t *testing.T, e *envtest.Environment) *rest.Config {
	t.Helper()
	e.BinaryAssetsDirectory = assets(t)
	config, err := e.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Stop(); err != nil {
			t.Error(err)
		}
	})
	return config
}

// The unmodified envtest of controller-runtime starts Gatehouse, installs CRDs and webhooks, adds users, and
// stops it.
func TestEnvtestRunsGatehouse(t *testing.T) {
	e := &envtest.Environment{
		CRDs:                  []*apiextensionsv1.CustomResourceDefinition{gadgets()},
		WebhookInstallOptions: envtest.WebhookInstallOptions{ValidatingWebhooks: []*admissionregistrationv1.ValidatingWebhookConfiguration{judging()}},
	}
	config := start(t, e)
	ctx := harness.Context(t)
	c, err := client.New(config, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	asked := judge(t, &e.WebhookInstallOptions)

	t.Run("a webhook judges a custom resource", func(t *testing.T) {
		if err := c.Create(ctx, gadget("judged")); !apierrors.IsForbidden(err) || asked.Load() == 0 {
			t.Errorf("got %v, and the webhook was asked %d times", err, asked.Load())
		}
	})
	t.Run("a custom resource is stored", func(t *testing.T) {
		g := gadget("stored")
		g.SetLabels(map[string]string{"unjudged": ""})
		if err := c.Create(ctx, g); err != nil {
			t.Error(err)
		}
	})
	t.Run("AddUser", func(t *testing.T) {
		user, err := e.AddUser(envtest.User{Name: "ada", Groups: []string{"readers"}}, nil)
		if err != nil {
			t.Fatal(err)
		}
		as, err := kubernetes.NewForConfig(user.Config())
		if err != nil {
			t.Fatal(err)
		}
		who, err := as.AuthenticationV1().SelfSubjectReviews().Create(ctx, selfReview(), metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if u := who.Status.UserInfo; u.Username != "ada" || len(u.Groups) != 2 || u.Groups[0] != "readers" {
			t.Errorf("the server knows %+v", u)
		}
		list := func() error {
			_, err := as.CoreV1().ConfigMaps("default").List(ctx, metav1.ListOptions{})
			return err
		}
		if err := list(); !apierrors.IsForbidden(err) {
			t.Errorf("without a role: %v", err)
		}
		if err := c.Create(ctx, &rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "readers"},
			Subjects:   []rbacv1.Subject{{Kind: "Group", APIGroup: rbacv1.GroupName, Name: "readers"}},
			RoleRef:    rbacv1.RoleRef{Kind: "ClusterRole", APIGroup: rbacv1.GroupName, Name: "view"},
		}); err != nil {
			t.Fatal(err)
		}
		harness.Eventually(t, "the role is known", list)
		kubectl, err := user.Kubectl()
		if err != nil {
			t.Fatal(err)
		}
		out, errs, err := kubectl.Run("auth", "whoami", "-o", "jsonpath={.status.userInfo.username}")
		if text := read(t, out); err != nil || text != "ada" {
			t.Errorf("kubectl says %q, %v, %s", text, err, read(t, errs))
		}
	})
	t.Run("impersonation", func(t *testing.T) {
		as := rest.CopyConfig(config)
		as.Impersonate = rest.ImpersonationConfig{UserName: "system:serviceaccount:default:builder", Groups: []string{"builders"}}
		clients, err := kubernetes.NewForConfig(as)
		if err != nil {
			t.Fatal(err)
		}
		who, err := clients.AuthenticationV1().SelfSubjectReviews().Create(ctx, selfReview(), metav1.CreateOptions{})
		if err != nil || who.Status.UserInfo.Username != "system:serviceaccount:default:builder" {
			t.Errorf("the server knows %+v, %v", who, err)
		}
	})
}

// patiencePerWrite is the average time limit of a write on a busy machine with eight concurrent clients.
const patiencePerWrite = 100 * time.Millisecond

// Every write that begins after Start has returned is sent to the webhooks that Start has installed.
func TestNoWriteEscapesWebhooksThatStartInstalled(t *testing.T) {
	e := &envtest.Environment{
		WebhookInstallOptions: envtest.WebhookInstallOptions{ValidatingWebhooks: []*admissionregistrationv1.ValidatingWebhookConfiguration{judging()}},
	}
	config := start(t, e)
	asked := judge(t, &e.WebhookInstallOptions)
	config.QPS = -1
	clients, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	// Writes are slow on a busy machine.
	ctx, cancel := context.WithTimeout(t.Context(), harness.Patience+time.Duration(*writes)*patiencePerWrite)
	defer cancel()
	var writing sync.WaitGroup
	var failed atomic.Int64
	next := make(chan int)
	for range 8 {
		writing.Go(func() {
			for i := range next {
				_, err := clients.CoreV1().ConfigMaps("default").Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("c%d", i)}}, metav1.CreateOptions{})
				if !apierrors.IsForbidden(err) && failed.Add(1) <= 10 {
					t.Errorf("write %d: %v", i, err)
				}
			}
		})
	}
	for i := range *writes {
		next <- i
	}
	close(next)
	writing.Wait()
	if n := asked.Load(); n != int64(*writes) {
		t.Errorf("the webhook judged %d of %d writes", n, *writes)
	}
}

// Suites that run at the same time do not disturb each other.
func TestEnvironmentsStartInParallel(t *testing.T) {
	dir := assets(t)
	t.Setenv("TMPDIR", t.TempDir())
	limit := make(chan struct{}, 4)
	var running sync.WaitGroup
	for i := range *starts {
		limit <- struct{}{}
		running.Go(func() {
			defer func() { <-limit }()
			e := &envtest.Environment{BinaryAssetsDirectory: dir, CRDs: []*apiextensionsv1.CustomResourceDefinition{gadgets()}}
			begin := time.Now()
			if _, err := e.Start(); err != nil {
				t.Errorf("start %d: %v", i, err)
			}
			t.Logf("start %d took %s", i, time.Since(begin).Round(time.Millisecond))
			if err := e.Stop(); err != nil {
				t.Errorf("stop %d: %v", i, err)
			}
		})
	}
	running.Wait()
	left, err := os.ReadDir(os.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range left {
		t.Errorf("%s is left behind", entry.Name())
	}
}
