package controllers

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gatehouse-dev/gatehouse/test/harness"
)

func TestSystemNamespaces(t *testing.T) {
	t.Parallel()
	h := harness.Shared(t).HTTP(t, nil)
	for _, name := range []string{"default", "kube-system", "kube-public", "kube-node-lease"} {
		ns := h.Get("/api/v1/namespaces/" + name)
		want(t, "label", ns.Text("metadata", "labels", "kubernetes.io/metadata.name"), name)
		want(t, "phase", ns.Text("status", "phase"), "Active")
	}
	for _, name := range []string{"default", "kube-system", "kube-public"} {
		h.Refused(http.StatusForbidden, metav1.StatusReasonForbidden, "DELETE", "/api/v1/namespaces/"+name, "")
	}
}

// namespaced lists the namespaced kinds, with one object of each.
var namespaced = []struct{ path, body string }{
	{"/api/v1/namespaces/NS/configmaps", configMap("x")},
	{"/api/v1/namespaces/NS/secrets", `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"x"}}`},
	{"/api/v1/namespaces/NS/pods", pod("x")},
	{"/api/v1/namespaces/NS/pods", pod("on-a-node", "spec: {nodeName: somewhere}")},
	{"/api/v1/namespaces/NS/services", `{"apiVersion":"v1","kind":"Service","metadata":{"name":"x"},"spec":{"ports":[{"port":80}]}}`},
	{"/api/v1/namespaces/NS/serviceaccounts", `{"apiVersion":"v1","kind":"ServiceAccount","metadata":{"name":"x"}}`},
	{"/api/v1/namespaces/NS/events", `{"apiVersion":"v1","kind":"Event","metadata":{"name":"x"},"involvedObject":{"namespace":"NS"}}`},
	{"/apis/extensions/v1beta1/namespaces/NS/deployments", deployment("extensions/v1beta1", "x")},
	{"/apis/batch/v1/namespaces/NS/jobs", toJSON(`{apiVersion: batch/v1, kind: Job, metadata: {name: x}, spec: {template: {spec: {restartPolicy: Never, containers: [{name: c, image: i}]}}}}`)},
	{"/apis/rbac.authorization.k8s.io/v1/namespaces/NS/roles", `{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"Role","metadata":{"name":"x"}}`},
	{"/apis/coordination.k8s.io/v1/namespaces/NS/leases", `{"apiVersion":"coordination.k8s.io/v1","kind":"Lease","metadata":{"name":"x"}}`},
	{"/apis/networking.k8s.io/v1/namespaces/NS/networkpolicies", `{"apiVersion":"networking.k8s.io/v1","kind":"NetworkPolicy","metadata":{"name":"x"},"spec":{"podSelector":{}}}`},
}

func TestNamespaceDeletion(t *testing.T) {
	t.Parallel()
	s := harness.Shared(t)
	h := s.HTTP(t, nil)
	ns, other := s.Namespace(t), s.Namespace(t)
	for _, in := range []string{ns, other} {
		for _, o := range namespaced {
			h.Must(http.StatusCreated, "POST", strings.ReplaceAll(o.path, "NS", in), strings.ReplaceAll(o.body, "NS", in))
		}
	}
	// Uninitialized objects are deleted, too.
	h.Must(http.StatusAccepted, "POST", "/apis/apps/v1/namespaces/"+ns+"/deployments"+including, uninitialized("waiting"))
	w := h.Watch("/api/v1/namespaces?watch=1&fieldSelector=metadata.name=" + ns + "&resourceVersion=" + h.Get("/api/v1/namespaces").Text("metadata", "resourceVersion"))
	deleted := h.Must(http.StatusOK, "DELETE", "/api/v1/namespaces/"+ns, "")
	want(t, "phase", deleted.Text("status", "phase"), "Terminating")
	// New objects are rejected.
	r := h.Do("POST", "/api/v1/namespaces/"+ns+"/configmaps", configMap("late"))
	if r.Code != http.StatusForbidden && r.Code != http.StatusNotFound {
		t.Errorf("create in a namespace that is being deleted: %d %s", r.Code, r.Raw)
	}
	for {
		e, err := w.Read()
		if err != nil {
			t.Fatalf("watch ended: %v; the namespace is %s", err, h.Do("GET", "/api/v1/namespaces/"+ns, "").Raw)
		}
		if e.Type == "DELETED" {
			break
		}
	}
	h.Refused(http.StatusNotFound, metav1.StatusReasonNotFound, "GET", "/api/v1/namespaces/"+ns, "")
	for _, o := range namespaced {
		want(t, "left of "+o.path, names(h.Get(strings.ReplaceAll(o.path, "NS", ns)+including)), []string{})
		if got := names(h.Get(strings.ReplaceAll(o.path, "NS", other))); len(got) == 0 {
			t.Errorf("nothing left of %s in another namespace", o.path)
		}
	}
	// The name can be used again.
	h.Must(http.StatusCreated, "POST", "/api/v1/namespaces", toJSON(`{apiVersion: v1, kind: Namespace, metadata: {name: %s}}`, ns))
	h.Must(http.StatusCreated, "POST", "/api/v1/namespaces/"+ns+"/configmaps", configMap("again"))
}

func TestNamespaceDeletionWaitsForFinalizers(t *testing.T) {
	t.Parallel()
	s := harness.Shared(t)
	h := s.HTTP(t, nil)
	ns := s.Namespace(t)
	path := "/api/v1/namespaces/" + ns
	h.Must(http.StatusCreated, "POST", path+"/configmaps", toJSON(`{apiVersion: v1, kind: ConfigMap, metadata: {name: held, finalizers: [example.com/hold]}}`))
	h.Must(http.StatusCreated, "POST", path+"/configmaps", configMap("free"))
	h.Must(http.StatusOK, "DELETE", path, "")
	condition := func(kind string) (status, message string) {
		conditions, _ := h.Get(path).At("status", "conditions").([]any)
		for _, c := range conditions {
			if harness.At(c, "type") == kind {
				return fmt.Sprint(harness.At(c, "status")), fmt.Sprint(harness.At(c, "message"))
			}
		}
		return "", ""
	}
	harness.Eventually(t, "the conditions say what the deletion waits for", func() error {
		for kind, text := range map[string]string{
			"NamespaceContentRemaining":    "configmaps. has 1 resource instances",
			"NamespaceFinalizersRemaining": "example.com/hold in 1 resource instances",
		} {
			if status, message := condition(kind); status != "True" || !strings.Contains(message, text) {
				return fmt.Errorf("%s is %q: %q", kind, status, message)
			}
		}
		return nil
	})
	want(t, "phase", h.Get(path).Text("status", "phase"), "Terminating")
	var all []string
	conditions, _ := h.Get(path).At("status", "conditions").([]any)
	for _, c := range conditions {
		all = append(all, fmt.Sprint(harness.At(c, "type"), " ", harness.At(c, "status"), " ", harness.At(c, "reason"), ": ", harness.At(c, "message")))
	}
	// The messages of kube-controller-manager.
	want(t, "conditions", all, []string{
		"NamespaceDeletionDiscoveryFailure False ResourcesDiscovered: All resources successfully discovered",
		"NamespaceDeletionGroupVersionParsingFailure False ParsedGroupVersions: All legacy kube types successfully parsed",
		"NamespaceDeletionContentFailure False ContentDeleted: All content successfully deleted, may be waiting on finalization",
		"NamespaceContentRemaining True SomeResourcesRemain: Some resources are remaining: configmaps. has 1 resource instances",
		"NamespaceFinalizersRemaining True SomeFinalizersRemain: Some content in the namespace has finalizers remaining: example.com/hold in 1 resource instances",
	})
	h.Must(http.StatusOK, "PATCH", path+"/configmaps/held", `{"metadata":{"finalizers":null}}`, "Content-Type", mergePatch)
	harness.Eventually(t, "the namespace is gone", func() error {
		if r := h.Do("GET", path, ""); r.Code != http.StatusNotFound {
			return fmt.Errorf("%s", r.Raw)
		}
		return nil
	})
}

// Pods may need the other objects in their namespace until they are gone.
func TestNamespaceDeletionBeginsWithPods(t *testing.T) {
	t.Parallel()
	s := harness.Shared(t)
	h := s.HTTP(t, nil)
	ns := s.Namespace(t)
	path := "/api/v1/namespaces/" + ns
	h.Must(http.StatusCreated, "POST", path+"/configmaps", configMap("needed"))
	h.Must(http.StatusCreated, "POST", path+"/pods", toJSON(`{apiVersion: v1, kind: Pod, metadata: {name: held, finalizers: [example.com/hold]}, spec: {containers: [{name: c, image: i}]}}`))
	h.Must(http.StatusOK, "DELETE", path, "")
	harness.Eventually(t, "the deletion waits for the pod", func() error {
		if conditions := fmt.Sprint(h.Get(path).At("status", "conditions")); !strings.Contains(conditions, "pods. has 1 resource instances") {
			return fmt.Errorf("conditions: %s", conditions)
		}
		return nil
	})
	h.Get(path + "/configmaps/needed")
	if held := h.Get(path + "/pods/held"); held.Text("metadata", "deletionTimestamp") == "" {
		t.Errorf("the pod is not being deleted: %s", held.Raw)
	}
	h.Must(http.StatusOK, "PATCH", path+"/pods/held", `{"metadata":{"finalizers":null}}`, "Content-Type", mergePatch)
	harness.Eventually(t, "the namespace is gone", func() error {
		if r := h.Do("GET", path, ""); r.Code != http.StatusNotFound {
			return fmt.Errorf("%s", r.Raw)
		}
		return nil
	})
}

// A create that is delayed by a webhook was admitted before its namespace was deleted. The namespace is not
// removed before the create ends: otherwise the object would be stored without a namespace, and belong to the
// next creator of a namespace with that name (S9.10).
func TestNamespaceDeletionWaitsForCreates(t *testing.T) {
	t.Parallel()
	s := harness.Start(t, "--admission-consistency", "strict")
	h := s.HTTP(t, nil)
	ns, other := s.Namespace(t), s.Namespace(t)
	asked, answer := make(chan struct{}), make(chan struct{})
	release := sync.OnceFunc(func() { close(answer) })
	hook := harness.NewWebhookServer(t, nil).Hook("/", func(w http.ResponseWriter, r *harness.Review) {
		close(asked)
		<-answer
		harness.Allow(w, r)
	})
	t.Cleanup(release)
	h.Must(http.StatusCreated, "POST", registrationsPath("v1", validating), configuration(validating, "slow", map[string]any{
		"name": "slow.example.com", "clientConfig": hook.ClientConfig(), "rules": []any{rule("CREATE", "/v1/configmaps")},
		"sideEffects": "None", "timeoutSeconds": 30, "admissionReviewVersions": []any{"v1"},
	}))
	var created sync.WaitGroup
	created.Go(func() {
		if code, err := h.Try(harness.Context(t), "POST", configMaps(ns), configMap("late")); err != nil || code != http.StatusCreated {
			t.Errorf("create: %d, %v", code, err)
		}
	})
	gone := func(name string) {
		t.Helper()
		harness.Eventually(t, "the namespace is gone", func() error {
			if r := h.Do("GET", "/api/v1/namespaces/"+name, ""); r.Code != http.StatusNotFound {
				return fmt.Errorf("%s", r.Raw)
			}
			return nil
		})
	}
	select {
	case <-asked:
	case <-harness.Context(t).Done():
		t.Fatal("the webhook was not called")
	}
	h.Must(http.StatusOK, "DELETE", "/api/v1/namespaces/"+ns, "")
	// Another namespace without pending creates, deleted later, does not wait.
	h.Must(http.StatusOK, "DELETE", "/api/v1/namespaces/"+other, "")
	gone(other)
	want(t, "phase of the one that waits", h.Get("/api/v1/namespaces/"+ns).Text("status", "phase"), "Terminating")
	release()
	created.Wait()
	gone(ns)
	h.Refused(http.StatusNotFound, metav1.StatusReasonNotFound, "GET", configMaps(ns)+"/late", "")
}
