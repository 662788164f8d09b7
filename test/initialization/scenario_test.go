package initialization

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gatehouse-dev/gatehouse/test/harness"
)

// TestInitializers runs on a server with a long initializer timeout.
func TestInitializers(t *testing.T) {
	t.Parallel()
	s := newSite(t, harness.Sole(t, "--initializer-timeout", "10m", "--admission-consistency", "strict"))
	// Configurations apply to all namespaces, so each case has its own resource or runs after the others.
	for _, test := range []struct {
		name string
		run  func(*site)
	}{
		{"S11.5 S11.24 configurations in order; creators wait", testOrderAndWaiting},
		{"S11.26 S11.27 who does not wait gets 202", testAccepted},
		{"S11.23 creates by PUT and PATCH do not wait", testCreateOnUpdate},
		{"S11.29 dry run", testDryRun},
		{"S11.40 S11.25 failure results", testFailure},
		{"S11.17 S11.18 lists by hand", testByHand},
		{"S11.37 to S11.41 updates while uninitialized", testUpdates},
		{"S11.31 to S11.35 visibility", testVisibility},
		{"S11.33 protobuf", testProtobuf},
		{"S11.19 mirror pods", testMirrorPods},
		{"S11.39 pods of which everything may be changed", testPods},
		{"S11.21 reinvocation", testReinvocation},
		{"S11.36 namespaces", testNamespaces},
		{"order and cycles", testOrderAndCycles},
		{"S2.39 configurations are not initialized", testExempt},
	} {
		t.Run(test.name, func(t *testing.T) { test.run(s.with(t)) })
	}
}

func testOrderAndWaiting(s *site) {
	s.register("two", "configmaps", "c,a", "c.example.com", "a.example.com")
	s.register("one", "configmaps", "a,b,c", "a.example.com", "b.example.com")
	done := s.create(s.HTTP, "configmaps", body("configmaps", "o"))
	s.await("configmaps", "o", "a,b,c")
	s.act("configmaps", "o", "")
	s.act("configmaps", "o", "")
	// S11.30: the name is in use.
	s.Refused(http.StatusConflict, metav1.StatusReasonAlreadyExists, "POST", s.path("configmaps"), body("configmaps", "o"))
	s.act("configmaps", "o", `{"data":{"by":"c"}}`)
	r := s.answer(done)
	if r.Code != http.StatusCreated || waits(r.Body) != "-" || r.Text("data", "by") != "c" {
		s.t.Errorf("S11.25 (a): %d %s", r.Code, r.Raw)
	}
	// S11.43: the field has no effect in a template.
	var obj = strings.Replace(body("deployments", "d"), `"template":{"metadata":{`, `"template":{"metadata":{"initializers":{"pending":[{"name":"x.example.com"}]},`, 1)
	if r := s.Do("POST", s.path("deployments"), obj); r.Code != http.StatusCreated || waits(r.Body) != "-" {
		s.t.Errorf("S11.43: %d %s", r.Code, r.Raw)
	}
}

func testAccepted(s *site) {
	s.register("one", "configmaps", "a", "a.example.com")
	for parameter, code := range map[string]int{"includeUninitialized": 202, "includeUninitialized=1": 202, "includeUninitialized=TRUE": 202} {
		name := strings.ToLower(strings.NewReplacer("=", "-").Replace(parameter))
		r := s.Must(code, "POST", s.path("configmaps")+"?"+parameter, body("configmaps", name))
		if got := waits(r.Body); got != "a" {
			s.t.Errorf("%s: waits for %s", parameter, got)
		}
	}
	s.Must(http.StatusCreated, "POST", s.path("secrets")+including, body("secrets", "no-initializers"))
	for _, parameter := range []string{"includeUninitialized=false", "includeUninitialized=0"} {
		name := strings.ToLower(strings.NewReplacer("=", "-").Replace(parameter))
		r := s.Do("POST", s.path("configmaps")+"?timeout=1s&"+parameter, body("configmaps", name))
		if r.Refusal(http.StatusGatewayTimeout, metav1.StatusReasonTimeout); !strings.Contains(r.Text("message"), `waits for initializer "a.example.com"`) {
			s.t.Errorf("S11.25 (f): %s", r.Raw)
		}
		s.await("configmaps", name, "a")
	}
}

func testCreateOnUpdate(s *site) {
	s.register("one", "configmaps", "a", "a.example.com")
	apply := `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"applied"}}`
	r := s.Must(http.StatusAccepted, "PATCH", s.path("configmaps")+"/applied?fieldManager=t", apply, "Content-Type", "application/apply-patch+yaml")
	if got := waits(r.Body); got != "a" {
		s.t.Errorf("applied: waits for %s", got)
	}
	s.register("two", "endpoints", "b", "b.example.com")
	r = s.Must(http.StatusAccepted, "PUT", s.path("endpoints")+"/put", body("endpoints", "put"))
	if got := waits(r.Body); got != "b" {
		s.t.Errorf("put: waits for %s", got)
	}
	// Applying again does not change the field, and returns 200.
	s.Must(http.StatusOK, "PATCH", s.path("configmaps")+"/applied?fieldManager=t", apply, "Content-Type", "application/apply-patch+yaml")
	s.Must(http.StatusCreated, "PATCH", s.path("secrets")+"/plain?fieldManager=t", `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"plain"}}`,
		"Content-Type", "application/apply-patch+yaml")
}

func testDryRun(s *site) {
	s.register("one", "configmaps", "a", "a.example.com")
	r := s.Must(http.StatusAccepted, "POST", s.path("configmaps")+"?dryRun=All", body("configmaps", "o"))
	if got := waits(r.Body); got != "a" {
		s.t.Errorf("waits for %s", got)
	}
	s.Must(http.StatusNotFound, "GET", s.path("configmaps")+"/o"+including, "")
}

func testFailure(s *site) {
	s.register("one", "configmaps", "a", "a.example.com")
	version := s.Get(s.path("configmaps")).Text("metadata", "resourceVersion")
	all := s.Watch(s.path("configmaps") + including + "&watch=1&resourceVersion=" + version)
	done := s.create(s.HTTP, "configmaps", merged("configmaps", "o", `{"finalizers":["example.com/hold"]}`))
	s.await("configmaps", "o", "a")
	result := `{"metadata":{"initializers":{"result":{"status":"Failure","code":409,"reason":"TooMany","message":"no more","details":{"kind":"quota"}}}}}`
	r := s.Must(http.StatusOK, "PATCH", s.path("configmaps")+"/o", result, "Content-Type", mergePatch)
	if got := r.Text("metadata", "initializers", "result", "message"); got != "no more" {
		s.t.Errorf("the updating client got %s", r.Raw)
	}
	r = s.answer(done)
	if r.Code != http.StatusConflict || r.Text("reason") != "TooMany" || r.Text("message") != `initializer "a.example.com" rejected the object: no more` || r.Text("details", "kind") != "quota" {
		s.t.Errorf("the creator got %d %s", r.Code, r.Raw)
	}
	for _, want := range []string{"ADDED o a", "MODIFIED o a", "DELETED o a"} {
		e := all.Next()
		if got := line(e); got != want {
			s.t.Errorf("event %q, want %q", got, want)
		}
		if e.Type != "ADDED" && harness.At(e.Object, "metadata", "initializers", "result", "message") != "no more" {
			s.t.Errorf("%s without the result: %v", e.Type, e.Object)
		}
	}
	s.Must(http.StatusNotFound, "GET", s.path("configmaps")+"/o"+including, "")
	// S11.28: created with a failure result.
	r = s.Do("POST", s.path("configmaps"), merged("configmaps", "dead", `{"initializers":{"pending":[],"result":{"status":"Failure","code":418,"message":"never"}}}`))
	if r.Code != http.StatusTeapot || r.Text("message") != "never" {
		s.t.Errorf("S11.28: %d %s", r.Code, r.Raw)
	}
	s.Must(http.StatusNotFound, "GET", s.path("configmaps")+"/dead"+including, "")
	// S11.25 (c).
	done = s.create(s.HTTP, "configmaps", body("configmaps", "gone"))
	s.await("configmaps", "gone", "a")
	s.Must(http.StatusOK, "DELETE", s.path("configmaps")+"/gone", "")
	r = s.answer(done)
	if status := r.Refusal(http.StatusInternalServerError, metav1.StatusReasonInternalError); !strings.Contains(status.Message, "object deleted while waiting for creation") {
		s.t.Errorf("S11.25 (c): %s", status.Message)
	}
}

func testByHand(s *site) {
	s.register("one", "configmaps", "a", "a.example.com")
	alice, bob := s.as("alice", "configmaps"), s.as("bob", "configmaps", "initialize")
	for i, list := range []string{`{}`, `{"pending":[]}`, `{"pending":[{"name":"x.example.com"}]}`} {
		obj := merged("configmaps", fmt.Sprint("o", i), `{"initializers":`+list+`}`)
		status := alice.Refused(http.StatusForbidden, metav1.StatusReasonForbidden, "POST", s.path("configmaps")+including, obj)
		if !strings.Contains(status.Message, fmt.Sprintf(`configmaps "o%d" is forbidden: create with initializers denied`, i)) {
			s.t.Errorf("S11.17: %s", status.Message)
		}
		code, want := http.StatusCreated, "-"
		if i == 2 {
			code, want = http.StatusAccepted, "x"
		}
		if got := waits(bob.Must(code, "POST", s.path("configmaps")+including, obj).Body); got != want {
			s.t.Errorf("S11.18: %s: waits for %s, want %s", list, got, want)
		}
	}
	for field, at := range map[string]string{
		`{"pending":[{"name":"short"}]}`:                                     "metadata.initializers.pending[0].name",
		`{"pending":[{"name":"x.example.com"},{"name":"x.example.com"}]}`:    "metadata.initializers.pending[1].name",
		`{"pending":[{"name":"x.example.com"}],"result":{"status":"Great"}}`: "metadata.initializers.result.status",
	} {
		status := bob.Refused(http.StatusUnprocessableEntity, metav1.StatusReasonInvalid, "POST", s.path("configmaps")+including, merged("configmaps", "bad", `{"initializers":`+field+`}`))
		if len(status.Details.Causes) != 1 || status.Details.Causes[0].Field != at {
			s.t.Errorf("S11.2: %s: %v", field, status.Details.Causes)
		}
	}
}

func testUpdates(s *site) {
	s.register("one", "deployments", "a,b", "a.example.com", "b.example.com")
	alice, bob := s.as("alice", "deployments"), s.as("bob", "deployments", "initialize")
	path := s.path("deployments") + "/o"
	alice.Must(http.StatusAccepted, "POST", s.path("deployments")+including, body("deployments", "o"))

	label := `{"metadata":{"labels":{"x":"y"}}}`
	status := alice.Refused(http.StatusForbidden, metav1.StatusReasonForbidden, "PATCH", path, label, "Content-Type", mergePatch)
	if !strings.Contains(status.Message, `deployments.apps "o" is forbidden: update to uninitialized resource denied`) {
		s.t.Errorf("S11.37: %s", status.Message)
	}
	// S11.41: subresources do not need the verb initialize, and do not change the field.
	for _, metadata := range []string{`{"name":"o"}`, `{"name":"o","initializers":null}`, `{"name":"o","initializers":{"pending":[]}}`} {
		alice.Must(http.StatusOK, "PATCH", path+"/status", `{"metadata":`+metadata+`,"status":{"replicas":3}}`, "Content-Type", mergePatch)
		s.await("deployments", "o", "a,b")
	}
	// S11.39: while the old and the new object have the field, names may be added, moved and removed.
	for _, list := range []string{"b,a", "c,b,a", "b"} {
		var pending []any
		for _, name := range strings.Split(list, ",") {
			pending = append(pending, map[string]any{"name": name + ".example.com"})
		}
		r := bob.Must(http.StatusOK, "PATCH", path, text(map[string]any{"metadata": map[string]any{"initializers": map[string]any{"pending": pending}}}), "Content-Type", mergePatch)
		if got := waits(r.Body); got != list {
			s.t.Errorf("S11.39: waits for %s, want %s", got, list)
		}
	}
	// A strategic merge patch removes a name from the list by its key.
	bob.Must(http.StatusOK, "PATCH", path, `{"metadata":{"initializers":{"pending":[{"name":"z.example.com"}]}}}`, "Content-Type", "application/strategic-merge-patch+json")
	r := bob.Must(http.StatusOK, "PATCH", path, `{"metadata":{"initializers":{"pending":[{"$patch":"delete","name":"b.example.com"}]}}}`, "Content-Type", "application/strategic-merge-patch+json")
	if got := waits(r.Body); got != "z" {
		s.t.Errorf("strategic merge patch: waits for %s", got)
	}
	// S11.38: the last name is removed.
	r = bob.Must(http.StatusOK, "PATCH", path, `[{"op":"remove","path":"/metadata/initializers/pending/0"}]`, "Content-Type", "application/json-patch+json")
	if got := waits(r.Body); got != "-" {
		s.t.Errorf("S11.38: waits for %s", got)
	}
	alice.Must(http.StatusOK, "PATCH", path, `{"metadata":{"initializers":{"pending":[]},"labels":{"x":"z"}}}`, "Content-Type", mergePatch)
	for _, client := range []*harness.HTTP{alice, bob} {
		status = client.Refused(http.StatusUnprocessableEntity, metav1.StatusReasonInvalid, "PATCH", path, `{"metadata":{"initializers":{"pending":[{"name":"x.example.com"}]}}}`, "Content-Type", mergePatch)
		if !strings.Contains(status.Message, "field is immutable once initialization has completed") {
			s.t.Errorf("S11.39: %s", status.Message)
		}
	}
	s.Get(path)
}

func testVisibility(s *site) {
	s.register("one", "configmaps", "a", "a.example.com")
	carol := s.as("carol", "configmaps")
	version := ""
	for _, name := range []string{"o1", "o2", "o3"} {
		s.Must(http.StatusAccepted, "POST", s.path("configmaps")+including, merged("configmaps", name, `{"labels":{"l":"v"}}`))
		r := s.Must(http.StatusCreated, "POST", s.path("configmaps")+including, merged("configmaps", "i"+name, `{"labels":{"l":"v"},"initializers":{"pending":[]}}`))
		version = r.Text("metadata", "resourceVersion")
	}
	// A list at version 0 may be older than the writes. When the cache has answered for the last version, it
	// contains all of them.
	s.Get(s.path("configmaps") + "?resourceVersionMatch=NotOlderThan&resourceVersion=" + version)
	list := func(query string) string {
		r := s.Get(s.path("configmaps") + query)
		items, _ := r.At("items").([]any)
		var names []string
		for _, item := range items {
			names = append(names, fmt.Sprint(harness.At(item, "metadata", "name")))
		}
		slices.Sort(names)
		return strings.Join(names, ",")
	}
	for query, want := range map[string]string{
		"?":                                 "io1,io2,io3",
		"?labelSelector=l%3Dv":              "io1,io2,io3",
		"?fieldSelector=metadata.name%3Do1": "",
		"?resourceVersion=0":                "io1,io2,io3",
		including + "&labelSelector=l%3Dv":  "io1,io2,io3,o1,o2,o3",
		including + "&fieldSelector=metadata.name%3Do1": "o1",
	} {
		if got := list(query); got != want {
			s.t.Errorf("S11.31: list %s: %s, want %s", query, got, want)
		}
	}
	if r := s.Do("GET", s.path("configmaps")+"?fieldSelector=metadata.initialized%3Dfalse", ""); r.Code != http.StatusBadRequest {
		s.t.Errorf("S11.36: clients can select by initialization: %d", r.Code)
	}
	// Pages.
	var paged []string
	for next := ""; ; {
		r := s.Get(s.path("configmaps") + "?limit=1&continue=" + next)
		for _, item := range r.At("items").([]any) {
			paged = append(paged, fmt.Sprint(harness.At(item, "metadata", "name")))
		}
		if next = r.Text("metadata", "continue"); next == "" {
			break
		}
	}
	if got := strings.Join(paged, ","); got != "io1,io2,io3" {
		s.t.Errorf("S11.31: pages: %s", got)
	}
	// S11.33: get. A user with permission to initialize gets the object, and a warning.
	status := carol.Refused(http.StatusNotFound, metav1.StatusReasonNotFound, "GET", s.path("configmaps")+"/o1", "")
	absent := carol.Refused(http.StatusNotFound, metav1.StatusReasonNotFound, "GET", s.path("configmaps")+"/o9", "")
	if strings.ReplaceAll(absent.Message, "o9", "o1") != status.Message {
		s.t.Errorf("S11.33: %q gives the object away", status.Message)
	}
	dave := s.as("dave", "configmaps", "initialize")
	for _, client := range []*harness.HTTP{s.HTTP, dave} {
		r := client.Get(s.path("configmaps") + "/o1")
		if got := waits(r.Body); got != "a" {
			s.t.Errorf("S11.33: waits for %s", got)
		}
		if got := strings.Join(r.Header.Values("Warning"), ""); !strings.Contains(got, `configmaps \"o1\" is not initialized and waits for initializer \"a.example.com\"`) {
			s.t.Errorf("S11.33: warning %q", got)
		}
	}
	if r := dave.Get(s.path("configmaps") + "/io1"); len(r.Header.Values("Warning")) != 0 {
		s.t.Errorf("S11.33: an initialized object comes with the warning %q", r.Header.Values("Warning"))
	}
	dave.Refused(http.StatusNotFound, metav1.StatusReasonNotFound, "GET", s.path("configmaps")+"/o9", "")
	if got := waits(carol.Get(s.path("configmaps") + "/o1" + including).Body); got != "a" {
		s.t.Errorf("S11.33: waits for %s", got)
	}
	// S11.32: watch.
	version = s.Get(s.path("configmaps")).Text("metadata", "resourceVersion")
	plain := s.Watch(s.path("configmaps") + "?watch=1&resourceVersion=" + version)
	all := s.Watch(s.path("configmaps") + including + "&watch=1&resourceVersion=" + version)
	s.Must(http.StatusOK, "PATCH", s.path("configmaps")+"/o1", `{"data":{"x":"y"}}`, "Content-Type", mergePatch)
	s.act("configmaps", "o1", "")
	s.Must(http.StatusOK, "DELETE", s.path("configmaps")+"/o2", "")
	s.Must(http.StatusOK, "DELETE", s.path("configmaps")+"/o1", "")
	for watch, want := range map[*harness.Stream][]string{
		plain: {"ADDED o1 -", "DELETED o1 -"},
		all:   {"MODIFIED o1 a", "MODIFIED o1 -", "DELETED o2 a", "DELETED o1 -"},
	} {
		for _, w := range want {
			if got := line(watch.Next()); got != w {
				s.t.Errorf("S11.32: event %q, want %q", got, w)
			}
		}
	}
	// S11.35: deletecollection deletes uninitialized objects, too.
	s.Must(http.StatusOK, "DELETE", s.path("configmaps"), "")
	if got := list(including); got != "" {
		s.t.Errorf("S11.35: left are %s", got)
	}
}

func testProtobuf(s *site) {
	s.register("one", "configmaps", "a", "a.example.com")
	client := harness.Client(s.t, harness.Protobuf(s.Admin)).CoreV1().ConfigMaps(s.ns)
	ctx := harness.Context(s.t)
	w, err := client.Watch(ctx, metav1.ListOptions{})
	if err != nil {
		s.t.Fatal(err)
	}
	defer w.Stop()
	s.Must(http.StatusAccepted, "POST", s.path("configmaps")+including, body("configmaps", "o"))
	if got, err := client.Get(ctx, "o", metav1.GetOptions{}); err != nil || len(got.Annotations) != 0 {
		s.t.Errorf("S11.33: %v, %v", got, err)
	}
	list, err := client.List(ctx, metav1.ListOptions{})
	if err != nil || len(list.Items) != 0 {
		s.t.Errorf("S11.31: %v, %v", list, err)
	}
	// The current typed client drops the field: its update initializes the object, which requires the verb
	// initialize.
	alice := harness.Client(s.t, harness.Protobuf(s.As("alice"))).CoreV1().ConfigMaps(s.ns)
	s.as("alice", "configmaps")
	next := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "o"}, Data: map[string]string{"x": "y"}}
	if _, err := alice.Update(ctx, next, metav1.UpdateOptions{}); !apierrors.IsForbidden(err) {
		s.t.Errorf("S11.37: %v", err)
	}
	s.await("configmaps", "o", "a")
	if _, err := client.Update(ctx, next, metav1.UpdateOptions{}); err != nil {
		s.t.Fatal(err)
	}
	s.await("configmaps", "o", "-")
	e := <-w.ResultChan()
	if c, ok := e.Object.(*corev1.ConfigMap); !ok || e.Type != "ADDED" || c.Name != "o" || c.Data["x"] != "y" || len(c.Annotations) != 0 {
		s.t.Errorf("S11.32: event %v", e)
	}
}

func testMirrorPods(s *site) {
	s.register("one", "pods", "a", "a.example.com")
	r := s.Do("POST", s.path("pods")+including, merged("pods", "mirror", `{"annotations":{"kubernetes.io/config.mirror":"x"}}`))
	if r.Code/100 == 2 && waits(r.Body) != "-" || r.Code == http.StatusAccepted {
		s.t.Errorf("%d %s", r.Code, r.Raw)
	}
	s.Must(http.StatusAccepted, "POST", s.path("pods")+including, body("pods", "plain"))
}

// The spec of a pod is immutable, but an initializer's change of an uninitialized pod is part of its
// creation.
func testPods(s *site) {
	s.register("one", "pods", "a", "a.example.com")
	s.Must(http.StatusAccepted, "POST", s.path("pods")+including, body("pods", "o"))
	s.act("pods", "o", `{"spec":{"containers":[{"name":"web","image":"registry.example.com/web:1.0"},{"name":"sidecar","image":"registry.example.com/sidecar:1.0"}]}}`)
	r := s.Get(s.path("pods") + "/o")
	if got := r.Text("spec", "containers", "1", "name"); got != "sidecar" {
		s.t.Errorf("the second container is %q", got)
	}
	s.Refused(http.StatusUnprocessableEntity, metav1.StatusReasonInvalid, "PATCH", s.path("pods")+"/o", `{"spec":{"containers":[{"name":"web","image":"x"}]}}`, "Content-Type", mergePatch)
}

// After a webhook has changed the object, the plugins run again. They must not mistake their own list for a
// list from the user.
func testReinvocation(s *site) {
	s.register("one", "configmaps", "a", "a.example.com")
	hooks := harness.NewWebhookServer(s.t, nil)
	for _, name := range []string{"x", "y"} {
		hook := hooks.Hook("/"+name, harness.Patch(`[{"op":"add","path":"/data","value":{"by":"`+name+`"}}]`))
		path := "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
		s.Must(http.StatusCreated, "POST", path, text(map[string]any{
			"metadata": map[string]any{"name": name},
			"webhooks": []any{map[string]any{
				"name": name + ".hooks.example.com", "clientConfig": hook.ClientConfig(), "sideEffects": "None",
				"admissionReviewVersions": []any{"v1"}, "reinvocationPolicy": "IfNeeded",
				"rules": []any{map[string]any{"operations": []any{"CREATE"}, "apiGroups": []any{""}, "apiVersions": []any{"v1"}, "resources": []any{"configmaps"}}},
			}},
		}))
		defer s.Must(http.StatusOK, "DELETE", path+"/"+name, "")
		defer func() {
			reviews := hook.Reviews()
			if len(reviews) < 2 && name == "x" {
				s.t.Errorf("the webhook was called %d times", len(reviews))
			}
			for _, r := range reviews {
				if got := waits(r.Request("object")); got != "a" {
					s.t.Errorf("S11.22: the webhook was shown an object that waits for %s", got)
				}
			}
		}()
	}
	alice := s.as("alice", "configmaps")
	r := alice.Must(http.StatusAccepted, "POST", s.path("configmaps")+including, body("configmaps", "o"))
	if got := waits(r.Body); got != "a" {
		s.t.Errorf("waits for %s", got)
	}
}

// The server itself handles uninitialized namespaces: their initializers can create objects in them, and they
// can be deleted.
func testNamespaces(s *site) {
	s.Must(http.StatusCreated, "POST", s.path("configurations"), configuration("one", "namespaces", "a.example.com"))
	name := "new-" + s.ns
	harness.Eventually(s.t, "new namespaces wait", func() error {
		if r := s.Do("POST", "/api/v1/namespaces"+including, body("namespaces", name)); r.Code != http.StatusAccepted {
			s.Do("DELETE", "/api/v1/namespaces/"+name, "")
			return fmt.Errorf("%d", r.Code)
		}
		return nil
	})
	s.Must(http.StatusOK, "DELETE", s.path("configurations")+"/one", "")
	inside := "/api/v1/namespaces/" + name + "/secrets"
	s.Must(http.StatusCreated, "POST", inside, body("secrets", "o"))
	if items, _ := s.Get("/api/v1/namespaces?fieldSelector=metadata.name%3D" + name).At("items").([]any); len(items) != 0 {
		s.t.Errorf("S11.31: listed %v", items)
	}
	s.Must(http.StatusOK, "DELETE", "/api/v1/namespaces/"+name, "")
	harness.Eventually(s.t, "the namespace is gone", func() error {
		if r := s.Do("GET", "/api/v1/namespaces/"+name+including, ""); r.Code != http.StatusNotFound {
			return fmt.Errorf("%d %s", r.Code, r.Raw)
		}
		return nil
	})
}

func testOrderAndCycles(s *site) {
	s.register("one", "configmaps", "a,b", "a.example.com", "b.example.com")
	s.register("two", "configmaps", "a,c,b", "c.example.com before=b.example.com after=a.example.com")
	status := s.Refused(http.StatusUnprocessableEntity, metav1.StatusReasonInvalid, "POST", s.path("configurations"),
		configuration("three", "configmaps", "d.example.com after=b.example.com before=a.example.com"))
	for _, part := range []string{`"d.example.com" is before "a.example.com" (configuration "three")`, `"d.example.com" is after "b.example.com" (configuration "three")`} {
		if !strings.Contains(status.Message, part) {
			s.t.Errorf("the message does not say %s: %s", part, status.Message)
		}
	}
	s.Refused(http.StatusUnprocessableEntity, metav1.StatusReasonInvalid, "PATCH", s.path("configurations")+"/one",
		`{"initializers":[{"name":"a.example.com","after":["c.example.com"],"rules":[]}]}`, "Content-Type", mergePatch)
}

func testExempt(s *site) {
	s.Must(http.StatusCreated, "POST", s.path("configurations"), configuration("all", "*", "a.example.com"))
	defer s.Must(http.StatusOK, "DELETE", s.path("configurations")+"/all", "")
	s.inForce("configmaps", "a")
	s.Must(http.StatusCreated, "POST", s.path("configurations"), configuration("more", "secrets", "b.example.com"))
	s.Must(http.StatusOK, "DELETE", s.path("configurations")+"/more", "")
}
