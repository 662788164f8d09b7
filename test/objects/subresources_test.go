package objects

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"net/http"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gatehouse-dev/gatehouse/test/harness"
)

func TestStatus(t *testing.T) {
	t.Parallel()
	s := harness.Shared(t)
	h := s.HTTP(t, nil)
	path := "/apis/apps/v1/namespaces/" + s.Namespace(t) + "/deployments"
	h.Must(http.StatusCreated, "POST", path, deployment("apps/v1", "d"))
	r := h.Must(http.StatusOK, "PATCH", path+"/d/status", `{"spec":{"replicas":9},"status":{"replicas":2,"observedGeneration":1}}`, "Content-Type", mergePatch)
	want(t, "status", r.Text("status", "replicas"), "2")
	want(t, "spec after a write of status", r.Text("spec", "replicas"), "3")
	r = h.Must(http.StatusOK, "PATCH", path+"/d", `{"spec":{"replicas":4},"status":{"replicas":7}}`, "Content-Type", mergePatch)
	want(t, "status after a write of spec", r.Text("status", "replicas"), "2")
	want(t, "spec", r.Text("spec", "replicas"), "4")
	want(t, "get", h.Get(path+"/d/status").Text("status", "replicas"), "2")
	h.Refused(http.StatusUnprocessableEntity, metav1.StatusReasonInvalid, "PATCH", path+"/d/status", `{"status":{"replicas":-2}}`, "Content-Type", mergePatch)
}

// A DeploymentRollback is stored in the deployment, as in Kubernetes 1.7.
func TestRollback(t *testing.T) {
	t.Parallel()
	s := harness.Shared(t)
	ns := s.Namespace(t)
	for _, version := range []string{"extensions/v1beta1", "apps/v1beta1"} {
		t.Run(version, func(t *testing.T) {
			h := s.HTTP(t, nil)
			name := strings.ReplaceAll(version, "/", "-")
			current, path := "/apis/apps/v1/namespaces/"+ns+"/deployments", "/apis/"+version+"/namespaces/"+ns+"/deployments/"
			h.Must(http.StatusAccepted, "POST", current+including, uninitialized(name))
			body := func(name, annotations string) string {
				return fmt.Sprintf(`{"apiVersion":%q,"kind":"DeploymentRollback","name":%q,"updatedAnnotations":{%s},"rollbackTo":{"revision":3}}`, version, name, annotations)
			}
			h.Must(http.StatusCreated, "POST", path+name+"/rollback?dryRun=All", body(name, ""))
			want(t, "after a dry run", h.Get(path+name).At("spec", "rollbackTo"), nil)
			r := h.Must(http.StatusCreated, "POST", path+name+"/rollback", body(name, `"by":"me"`))
			want(t, "answer", r.Text("kind")+" "+r.Text("status")+" "+r.Text("message"), fmt.Sprintf("Status Success rollback request for deployment %q succeeded", name))
			if got := strings.Join(r.Header.Values("Warning"), ""); !strings.Contains(got, "this server runs no controller that performs it") {
				t.Errorf("warning %q", got)
			}
			got := h.Get(path + name)
			want(t, "spec.rollbackTo", got.At("spec", "rollbackTo"), any(map[string]any{"revision": float64(3)}))
			want(t, "annotation", got.Text("metadata", "annotations", "by"), "me")
			want(t, "what controllers of today read", h.Get(current+"/"+name).Text("metadata", "annotations", "deprecated.deployment.rollback.to"), "3")
			want(t, "S11.41 initializers", pending(got.Body), "a,b")

			h.Refused(http.StatusNotFound, metav1.StatusReasonNotFound, "POST", path+"absent/rollback", body("absent", ""))
			h.Refused(http.StatusBadRequest, metav1.StatusReasonBadRequest, "POST", path+name+"/rollback", body("another", ""))
			status := h.Refused(http.StatusBadRequest, metav1.StatusReasonBadRequest, "POST", path+name+"/rollback", body(name, `"gatehouse.dev/metadata.initializers":"{}"`))
			if !strings.Contains(status.Message, "reserved") {
				t.Errorf("%q does not say that the annotation is reserved", status.Message)
			}
			want(t, "S11.41 initializers", pending(h.Get(path+name).Body), "a,b")
		})
	}
	s.HTTP(t, nil).Must(http.StatusNotFound, "POST", "/apis/apps/v1beta2/namespaces/"+ns+"/deployments/d/rollback", "{}")
}

func TestScale(t *testing.T) {
	t.Parallel()
	s := harness.Shared(t)
	h := s.HTTP(t, nil)
	ns := s.Namespace(t)
	h.Must(http.StatusCreated, "POST", "/apis/apps/v1/namespaces/"+ns+"/deployments", deployment("apps/v1", "d"))
	replicas := 3
	for _, c := range []struct{ version, kind string }{
		{"apps/v1", "autoscaling/v1"},
		{"apps/v1beta2", "apps/v1beta2"},
		{"apps/v1beta1", "apps/v1beta1"},
		{"extensions/v1beta1", "extensions/v1beta1"},
	} {
		t.Run(c.version, func(t *testing.T) {
			h := s.HTTP(t, nil)
			path := "/apis/" + c.version + "/namespaces/" + ns + "/deployments/d"
			scale := h.Get(path + "/scale")
			want(t, "kind", scale.Text("apiVersion")+" "+scale.Text("kind"), c.kind+" Scale")
			want(t, "replicas", scale.Text("spec", "replicas"), fmt.Sprint(replicas))
			selector := any("app=d")
			if c.version != "apps/v1" {
				selector = map[string]any{"app": "d"}
			}
			want(t, "selector", scale.At("status", "selector"), selector)

			for _, write := range []func(int){
				func(n int) {
					scale.Body["spec"] = map[string]any{"replicas": n}
					body := toJSON(`{apiVersion: %s, kind: Scale, metadata: {name: d}, spec: {replicas: %d}}`, c.kind, n)
					h.Must(http.StatusOK, "PUT", path+"/scale", body)
				},
				func(n int) {
					h.Must(http.StatusOK, "PATCH", path+"/scale", fmt.Sprintf(`{"spec":{"replicas":%d}}`, n), "Content-Type", mergePatch)
				},
				func(n int) {
					h.Must(http.StatusOK, "PATCH", path+"/scale?fieldManager=t&force=true",
						toJSON(`{apiVersion: %s, kind: Scale, metadata: {name: d}, spec: {replicas: %d}}`, c.kind, n), "Content-Type", applyPatch)
				},
			} {
				replicas++
				write(replicas)
				want(t, "replicas of the deployment", h.Get(path).Text("spec", "replicas"), fmt.Sprint(replicas))
			}
			h.Refused(http.StatusUnprocessableEntity, metav1.StatusReasonInvalid, "PATCH", path+"/scale", `{"spec":{"replicas":-1}}`, "Content-Type", mergePatch)
			h.Refused(http.StatusConflict, metav1.StatusReasonConflict, "PUT", path+"/scale",
				toJSON(`{apiVersion: %s, kind: Scale, metadata: {name: d, resourceVersion: "1"}, spec: {replicas: 1}}`, c.kind))
		})
	}
	t.Run("of what is not there", func(t *testing.T) {
		h.Refused(http.StatusNotFound, metav1.StatusReasonNotFound, "GET", "/apis/apps/v1/namespaces/"+ns+"/deployments/none/scale", "")
	})
}

func TestBinding(t *testing.T) {
	t.Parallel()
	s := harness.Shared(t)
	h := s.HTTP(t, nil)
	ns := s.Namespace(t)
	path := "/api/v1/namespaces/" + ns + "/pods"
	h.Must(http.StatusCreated, "POST", path, pod("p"))
	binding := toJSON(`{apiVersion: v1, kind: Binding, metadata: {name: p, annotations: {a: b}}, target: {kind: Node, name: n1}}`)
	r := h.Must(http.StatusCreated, "POST", path+"/p/binding", binding)
	want(t, "answer", r.Text("status"), "Success")
	bound := h.Get(path + "/p")
	want(t, "nodeName", bound.Text("spec", "nodeName"), "n1")
	want(t, "annotation", bound.Text("metadata", "annotations", "a"), "b")
	want(t, "condition", bound.Text("status", "conditions", "0", "type"), "PodScheduled")
	h.Refused(http.StatusConflict, metav1.StatusReasonConflict, "POST", path+"/p/binding", binding)
	h.Must(http.StatusCreated, "POST", path, pod("q"))
	h.Must(http.StatusCreated, "POST", "/api/v1/namespaces/"+ns+"/bindings", strings.Replace(binding, `"name":"p"`, `"name":"q"`, 1))
	want(t, "nodeName", h.Get(path+"/q").Text("spec", "nodeName"), "n1")
}

func TestEviction(t *testing.T) {
	t.Parallel()
	s := harness.Shared(t)
	h := s.HTTP(t, nil)
	ns := s.Namespace(t)
	pods, budgets := "/api/v1/namespaces/"+ns+"/pods", "/apis/policy/v1/namespaces/"+ns+"/poddisruptionbudgets"
	eviction := func(name string) string {
		return toJSON(`{apiVersion: policy/v1, kind: Eviction, metadata: {name: %s}}`, name)
	}
	const ready = `{"status":{"phase":"Running","conditions":[{"type":"Ready","status":"True"}]}}`
	for _, name := range []string{"free", "guarded-1", "guarded-2"} {
		app := strings.TrimRight(name, "-12")
		h.Must(http.StatusCreated, "POST", pods, pod(name, "metadata: {labels: {app: "+app+"}}"))
		h.Must(http.StatusOK, "PATCH", pods+"/"+name+"/status", ready, "Content-Type", mergePatch)
	}
	h.Must(http.StatusCreated, "POST", pods+"/free/eviction", eviction("free"))
	h.Refused(http.StatusNotFound, metav1.StatusReasonNotFound, "GET", pods+"/free", "")

	h.Must(http.StatusCreated, "POST", budgets, toJSON(`
{apiVersion: policy/v1, kind: PodDisruptionBudget, metadata: {name: b}, spec: {minAvailable: 1, selector: {matchLabels: {app: guarded}}}}`))
	// The controller that counts does not run: the test does its work.
	status := func(allowed int) {
		h.Must(http.StatusOK, "PATCH", budgets+"/b/status", fmt.Sprintf(
			`{"status":{"observedGeneration":1,"disruptionsAllowed":%d,"currentHealthy":2,"desiredHealthy":1,"expectedPods":2}}`, allowed), "Content-Type", mergePatch)
	}
	status(1)
	h.Must(http.StatusCreated, "POST", pods+"/guarded-1/eviction", eviction("guarded-1"))
	want(t, "disruptionsAllowed", h.Get(budgets+"/b").Text("status", "disruptionsAllowed"), "0")
	h.Refused(http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests, "POST", pods+"/guarded-2/eviction", eviction("guarded-2"))
	h.Get(pods + "/guarded-2")
	status(1)
	h.Must(http.StatusCreated, "POST", pods+"/guarded-2/eviction?dryRun=All", eviction("guarded-2"))
	h.Get(pods + "/guarded-2")
}

func TestNeedsANode(t *testing.T) {
	t.Parallel()
	s := harness.Shared(t)
	h := s.HTTP(t, nil)
	ns := s.Namespace(t)
	pods := "/api/v1/namespaces/" + ns + "/pods"
	h.Must(http.StatusCreated, "POST", pods, pod("p", "spec: {nodeName: node-1}"))
	h.Must(http.StatusCreated, "POST", "/api/v1/nodes", toJSON(`{apiVersion: v1, kind: Node, metadata: {name: %s}}`, ns))
	for _, c := range []struct{ method, path string }{
		{"GET", pods + "/p/log"},
		{"GET", pods + "/p/log?follow=true"},
		{"POST", pods + "/p/exec?command=ls&stdout=true"},
		{"GET", pods + "/p/exec?command=ls&stdout=true"},
		{"POST", pods + "/p/attach?stdout=true"},
		{"POST", pods + "/p/portforward"},
		{"DELETE", "/api/v1/nodes/" + ns + "/proxy/x"},
	} {
		t.Run(c.method+" "+c.path[strings.LastIndex(c.path[:len(c.path)-1], "/")+1:], func(t *testing.T) {
			status := s.HTTP(t, nil).Do(c.method, c.path, "").Refusal(http.StatusNotImplemented, metav1.StatusReasonMethodNotAllowed)
			// Admission evaluates connections, but not reads.
			judged := "admission ran for the request, nothing else was done"
			if strings.Contains(c.path, "/log") {
				judged = "this server has none: nothing was done"
			}
			if !strings.Contains(status.Message, "needs an agent") || !strings.HasSuffix(status.Message, judged) {
				t.Errorf("message %q", status.Message)
			}
		})
	}
	h.Refused(http.StatusNotFound, metav1.StatusReasonNotFound, "GET", pods+"/none/log", "")
}

func TestNamespaceFinalize(t *testing.T) {
	t.Parallel()
	s := harness.Shared(t)
	h := s.HTTP(t, nil)
	name := s.Namespace(t)
	ns := h.Get("/api/v1/namespaces/" + name)
	want(t, "finalizers", ns.At("spec", "finalizers"), any([]any{"kubernetes"}))
	merge(ns.Body, map[string]any{"spec": map[string]any{"finalizers": []any{"kubernetes", "example.com/mine"}}})
	body := toJSON(`{apiVersion: v1, kind: Namespace, metadata: {name: %s}, spec: {finalizers: [kubernetes, example.com/mine]}}`, name)
	r := h.Must(http.StatusOK, "PUT", "/api/v1/namespaces/"+name+"/finalize", body)
	want(t, "finalizers", r.At("spec", "finalizers"), any([]any{"kubernetes", "example.com/mine"}))
	// The main resource cannot change the finalizers.
	r = h.Must(http.StatusOK, "PATCH", "/api/v1/namespaces/"+name, `{"spec":{"finalizers":[]}}`, "Content-Type", mergePatch)
	want(t, "finalizers", r.At("spec", "finalizers"), any([]any{"kubernetes", "example.com/mine"}))
}

func TestTokenRequest(t *testing.T) {
	t.Parallel()
	s := harness.Shared(t)
	h := s.HTTP(t, nil)
	ns := s.Namespace(t)
	path := "/api/v1/namespaces/" + ns + "/serviceaccounts"
	h.Must(http.StatusCreated, "POST", path, toJSON(`{apiVersion: v1, kind: ServiceAccount, metadata: {name: robot}}`))
	r := h.Must(http.StatusCreated, "POST", path+"/robot/token", toJSON(`{apiVersion: authentication.k8s.io/v1, kind: TokenRequest, spec: {expirationSeconds: 3600}}`))
	token := r.Text("status", "token")
	if token == "" || r.Text("status", "expirationTimestamp") == "" {
		t.Fatalf("no token: %s", r.Raw)
	}
	as := s.HTTP(t, s.WithToken(token))
	self := as.Must(http.StatusCreated, "POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", toJSON(`{apiVersion: authentication.k8s.io/v1, kind: SelfSubjectReview}`))
	want(t, "user", self.Text("status", "userInfo", "username"), "system:serviceaccount:"+ns+":robot")
	want(t, "groups", self.At("status", "userInfo", "groups"), any([]any{"system:serviceaccounts", "system:serviceaccounts:" + ns, "system:authenticated"}))

	h.Must(http.StatusCreated, "POST", "/api/v1/namespaces/"+ns+"/pods", pod("p", "spec: {serviceAccountName: robot}"))
	bound := h.Must(http.StatusCreated, "POST", path+"/robot/token", toJSON(`
{apiVersion: authentication.k8s.io/v1, kind: TokenRequest, spec: {boundObjectRef: {apiVersion: v1, kind: Pod, name: p}}}`)).Text("status", "token")
	asPod := s.HTTP(t, s.WithToken(bound))
	asPod.Must(http.StatusCreated, "POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", toJSON(`{apiVersion: authentication.k8s.io/v1, kind: SelfSubjectReview}`))
	h.Must(http.StatusOK, "DELETE", "/api/v1/namespaces/"+ns+"/pods/p", "")
	asPod.Refused(http.StatusUnauthorized, metav1.StatusReasonUnauthorized, "GET", "/api", "")

	h.Refused(http.StatusUnprocessableEntity, metav1.StatusReasonInvalid, "POST", path+"/robot/token",
		toJSON(`{apiVersion: authentication.k8s.io/v1, kind: TokenRequest, spec: {expirationSeconds: 5}}`))
	h.Must(http.StatusOK, "DELETE", path+"/robot", "")
	as.Refused(http.StatusUnauthorized, metav1.StatusReasonUnauthorized, "GET", "/api", "")
	h.Refused(http.StatusNotFound, metav1.StatusReasonNotFound, "POST", path+"/robot/token", toJSON(`{apiVersion: authentication.k8s.io/v1, kind: TokenRequest}`))
}

func TestCertificateApproval(t *testing.T) {
	t.Parallel()
	s := harness.Shared(t)
	h := s.HTTP(t, nil)
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: pkix.Name{CommonName: "dave"}}, key)
	if err != nil {
		t.Fatal(err)
	}
	var request bytes.Buffer
	if err := pem.Encode(&request, &pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}); err != nil {
		t.Fatal(err)
	}
	path := "/apis/certificates.k8s.io/v1/certificatesigningrequests"
	created := h.Must(http.StatusCreated, "POST", path, toJSON(`
{apiVersion: certificates.k8s.io/v1, kind: CertificateSigningRequest, metadata: {generateName: csr-},
 spec: {signerName: example.com/signer, usages: [client auth], request: %s}}`, base64.StdEncoding.EncodeToString(request.Bytes())))
	name := created.Text("metadata", "name")
	want(t, "username", created.Text("spec", "username"), "gatehouse-admin")
	condition := `{"status":{"conditions":[{"type":"Approved","status":"True","reason":"Test"}]}}`
	// Only the subresource can approve.
	r := h.Must(http.StatusOK, "PATCH", path+"/"+name, condition, "Content-Type", mergePatch)
	want(t, "conditions", r.At("status", "conditions"), nil)
	r = h.Must(http.StatusOK, "PATCH", path+"/"+name+"/approval", condition, "Content-Type", mergePatch)
	want(t, "condition", r.Text("status", "conditions", "0", "type"), "Approved")
	h.Refused(http.StatusUnprocessableEntity, metav1.StatusReasonInvalid, "PATCH", path+"/"+name+"/approval", `{"status":{"conditions":null}}`, "Content-Type", mergePatch)
}

func TestServices(t *testing.T) {
	t.Parallel()
	s := harness.Shared(t)
	h := s.HTTP(t, nil)
	path := "/api/v1/namespaces/" + s.Namespace(t) + "/services"
	service := func(name, spec string) string {
		return toJSON(`{apiVersion: v1, kind: Service, metadata: {name: %s}, spec: {ports: [{port: 80}], %s}}`, name, spec)
	}
	r := h.Must(http.StatusCreated, "POST", path, service("a", ""))
	ip := r.Text("spec", "clusterIP")
	if !strings.HasPrefix(ip, "10.0.0.") {
		t.Errorf("cluster IP %q", ip)
	}
	want(t, "clusterIPs", r.At("spec", "clusterIPs"), any([]any{ip}))
	want(t, "type", r.Text("spec", "type"), "ClusterIP")
	h.Refused(http.StatusUnprocessableEntity, metav1.StatusReasonInvalid, "POST", path, service("b", "clusterIP: "+ip))
	// The server allocates the first 16 addresses last, so no service has this address.
	h.Refused(http.StatusUnprocessableEntity, metav1.StatusReasonInvalid, "PATCH", path+"/a", `{"spec":{"clusterIP":"10.0.0.5"}}`, "Content-Type", mergePatch)

	r = h.Must(http.StatusCreated, "POST", path, service("np", "type: NodePort"))
	port := r.At("spec", "ports", "0", "nodePort").(float64)
	if port < 30000 || port > 32767 {
		t.Errorf("node port %v", port)
	}
	h.Refused(http.StatusUnprocessableEntity, metav1.StatusReasonInvalid, "POST", path,
		toJSON(`{apiVersion: v1, kind: Service, metadata: {name: m}, spec: {type: NodePort, ports: [{port: 80, nodePort: %v}]}}`, port))
	r = h.Must(http.StatusCreated, "POST", path, service("h", "clusterIP: None"))
	want(t, "headless", r.Text("spec", "clusterIP"), "None")

	// A deleted name can be used again.
	h.Must(http.StatusOK, "DELETE", path+"/a", "")
	h.Must(http.StatusCreated, "POST", path, service("b", "clusterIP: "+ip))
	h.Must(http.StatusOK, "PATCH", path+"/np", `{"spec":{"type":"ClusterIP"}}`, "Content-Type", mergePatch)
	h.Must(http.StatusCreated, "POST", path, toJSON(`{apiVersion: v1, kind: Service, metadata: {name: m}, spec: {type: NodePort, ports: [{port: 80, nodePort: %v}]}}`, port))
}

// WebSockets begin with a GET. Users with only the permission get must not run commands.
func TestCommandsInContainersAskForCreate(t *testing.T) {
	t.Parallel()
	s := harness.Shared(t)
	admin := s.HTTP(t, nil)
	ns := s.Namespace(t)
	pods, user := "/api/v1/namespaces/"+ns+"/pods", "reader-of-"+ns
	admin.Must(http.StatusCreated, "POST", pods, pod("p"))
	allow(t, s, ns, user, `{apiGroups: [""], resources: [pods/exec, pods/attach, pods/portforward, pods/proxy], verbs: [get]}`)
	for _, sub := range []string{"exec", "attach", "portforward"} {
		as := s.HTTP(t, s.As(user))
		status := as.Refused(http.StatusForbidden, metav1.StatusReasonForbidden, "GET", pods+"/p/"+sub, "")
		want(t, sub, status.Message, `pods "p" is forbidden: `)
		as.Refused(http.StatusForbidden, metav1.StatusReasonForbidden, "POST", pods+"/p/"+sub, "")
	}
	// The pod has no address yet.
	s.HTTP(t, s.As(user)).Refused(http.StatusBadRequest, metav1.StatusReasonBadRequest, "GET", pods+"/p/proxy", "")
	allow(t, s, ns, user, `{apiGroups: [""], resources: [pods/exec, pods/attach, pods/portforward], verbs: [get, create]}`)
	for _, sub := range []string{"exec", "attach", "portforward"} {
		for _, method := range []string{"GET", "POST"} {
			harness.Eventually(t, method+" "+sub+" with the right to create", func() error {
				if r := s.HTTP(t, s.As(user)).Do(method, pods+"/p/"+sub, ""); r.Code != http.StatusNotImplemented {
					return fmt.Errorf("%d: %s", r.Code, r.Raw)
				}
				return nil
			})
		}
	}
}
