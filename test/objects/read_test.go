package objects

import (
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gatehouse-dev/gatehouse/test/harness"
)

func TestListPages(t *testing.T) {
	t.Parallel()
	s := harness.Shared(t)
	h := s.HTTP(t, nil)
	path := "/api/v1/namespaces/" + s.Namespace(t) + "/configmaps"
	var all []string
	for i := range 7 {
		name := fmt.Sprintf("c%d", i)
		all = append(all, name)
		h.Must(http.StatusCreated, "POST", path, configMap(name))
	}

	list := h.Get(path)
	want(t, "all", names(list), all)
	want(t, "kind", list.Text("kind"), "ConfigMapList")
	version := list.Text("metadata", "resourceVersion")

	var got []string
	var sizes []int
	versions := map[string]bool{}
	next := ""
	for {
		page := h.Get(path + "?limit=3&continue=" + url.QueryEscape(next))
		got = append(got, names(page)...)
		sizes = append(sizes, len(names(page)))
		versions[page.Text("metadata", "resourceVersion")] = true
		// An object created during a paginated list is not part of the list.
		h.Do("POST", path, configMap("late"))
		if next = page.Text("metadata", "continue"); next == "" {
			want(t, "versions of the pages", len(versions), 1)
			break
		}
	}
	want(t, "paged", got, all)
	want(t, "page sizes", sizes, []int{3, 3, 1})

	exact := h.Get(path + "?resourceVersionMatch=Exact&resourceVersion=" + version)
	want(t, "exact", names(exact), all)
	for _, query := range []string{"resourceVersionMatch=NotOlderThan&resourceVersion=" + version, "resourceVersion=0", "resourceVersion=0&resourceVersionMatch=NotOlderThan"} {
		if list := h.Get(path + "?" + query); len(names(list)) < 7 {
			t.Errorf("%s: %v", query, names(list))
		}
	}
	for _, query := range []string{
		"resourceVersionMatch=Exact", "resourceVersionMatch=Newest&resourceVersion=1", "resourceVersionMatch=Exact&resourceVersion=0",
		"resourceVersion=1&continue=" + url.QueryEscape(h.Get(path+"?limit=1").Text("metadata", "continue")) + "&resourceVersionMatch=Exact",
	} {
		h.Refused(http.StatusUnprocessableEntity, metav1.StatusReasonInvalid, "GET", path+"?"+query, "")
	}
	for _, query := range []string{"limit=x", "continue=%25", "resourceVersion=abc", "labelSelector=a+in+b", "fieldSelector=no.such=x"} {
		h.Refused(http.StatusBadRequest, metav1.StatusReasonBadRequest, "GET", path+"?"+query, "")
	}
	late, err := strconv.Atoi(version)
	if err != nil {
		t.Fatal(err)
	}
	// A read cannot wait for a version in the far future.
	h.Refused(http.StatusGatewayTimeout, metav1.StatusReasonTimeout, "GET", path+"?resourceVersionMatch=NotOlderThan&resourceVersion="+strconv.Itoa(late+1_000_000), "")
}

func TestSelectors(t *testing.T) {
	t.Parallel()
	s := harness.Shared(t)
	h := s.HTTP(t, nil)
	ns, other := s.Namespace(t), s.Namespace(t)
	path := func(ns, resource string) string { return "/api/v1/namespaces/" + ns + "/" + resource }

	h.Must(http.StatusCreated, "POST", path(ns, "pods"), pod("on-a", "spec: {nodeName: a}", "metadata: {labels: {app: web, tier: front}}"))
	h.Must(http.StatusCreated, "POST", path(ns, "pods"), pod("on-b", "spec: {nodeName: b, restartPolicy: Never}", "metadata: {labels: {app: web}}"))
	h.Must(http.StatusCreated, "POST", path(ns, "pods"), pod("nowhere", "metadata: {labels: {app: db}}"))
	h.Must(http.StatusCreated, "POST", path(other, "pods"), pod("on-a", "spec: {nodeName: a}"))
	h.Must(http.StatusOK, "PATCH", path(ns, "pods/on-b/status"), `{"status":{"phase":"Running","podIP":"10.1.2.3"}}`, "Content-Type", "application/merge-patch+json")

	h.Must(http.StatusCreated, "POST", path(ns, "secrets"), toJSON(`{apiVersion: v1, kind: Secret, metadata: {name: plain}}`))
	h.Must(http.StatusCreated, "POST", path(ns, "secrets"), toJSON(`{apiVersion: v1, kind: Secret, metadata: {name: auth}, type: kubernetes.io/basic-auth, stringData: {username: u, password: p}}`))
	h.Must(http.StatusCreated, "POST", path(ns, "events"), toJSON(`
{apiVersion: v1, kind: Event, metadata: {name: e1}, involvedObject: {kind: Pod, namespace: %s, name: on-a, uid: "1"}, reason: Started, type: Normal}`, ns))
	h.Must(http.StatusCreated, "POST", path(ns, "events"), toJSON(`
{apiVersion: v1, kind: Event, metadata: {name: e2}, involvedObject: {kind: Pod, namespace: %s, name: on-b, uid: "2"}, reason: Failed, type: Warning}`, ns))

	for _, c := range []struct {
		name, path, query string
		want              []string
	}{
		{"metadata.name", path(ns, "pods"), "fieldSelector=metadata.name=on-a", []string{"on-a"}},
		{"metadata.name, unequal", path(ns, "pods"), "fieldSelector=metadata.name!=on-a", []string{"nowhere", "on-b"}},
		{"metadata.namespace over all", "/api/v1/pods", "fieldSelector=metadata.namespace=" + ns, []string{"nowhere", "on-a", "on-b"}},
		{"name and namespace over all", "/api/v1/pods", "fieldSelector=metadata.name=on-a,metadata.namespace=" + other, []string{"on-a"}},
		{"spec.nodeName", path(ns, "pods"), "fieldSelector=spec.nodeName=a", []string{"on-a"}},
		{"spec.nodeName, unset", path(ns, "pods"), "fieldSelector=spec.nodeName=", []string{"nowhere"}},
		{"spec.nodeName, from the cache", path(ns, "pods"), "resourceVersion=0&fieldSelector=spec.nodeName=a", []string{"on-a"}},
		{"spec.restartPolicy", path(ns, "pods"), "fieldSelector=spec.restartPolicy=Never", []string{"on-b"}},
		{"status.phase", path(ns, "pods"), "fieldSelector=status.phase=Running", []string{"on-b"}},
		{"status.podIP", path(ns, "pods"), "fieldSelector=status.podIP=10.1.2.3", []string{"on-b"}},
		{"type", path(ns, "secrets"), "fieldSelector=type=kubernetes.io/basic-auth", []string{"auth"}},
		{"type, unequal", path(ns, "secrets"), "fieldSelector=type!=kubernetes.io/basic-auth", []string{"plain"}},
		{"involvedObject.name", path(ns, "events"), "fieldSelector=involvedObject.name=on-b", []string{"e2"}},
		{"involvedObject.uid and kind", path(ns, "events"), "fieldSelector=involvedObject.uid=1,involvedObject.kind=Pod", []string{"e1"}},
		{"reason", path(ns, "events"), "fieldSelector=reason=Started", []string{"e1"}},
		{"type of an event", path(ns, "events"), "fieldSelector=type=Warning", []string{"e2"}},
		{"status.phase of a namespace", "/api/v1/namespaces", "fieldSelector=status.phase=Active,metadata.name=" + ns, []string{ns}},
		{"label", path(ns, "pods"), "labelSelector=app=web", []string{"on-a", "on-b"}},
		{"label, absent", path(ns, "pods"), "labelSelector=app=web,!tier", []string{"on-b"}},
		{"label in a set", path(ns, "pods"), "labelSelector=app+in+(db,web),tier+notin+(front)", []string{"nowhere", "on-b"}},
		{"label and field", path(ns, "pods"), "labelSelector=app=web&fieldSelector=spec.nodeName=b", []string{"on-b"}},
		{"nothing", path(ns, "pods"), "labelSelector=app=none", []string{}},
	} {
		t.Run(c.name, func(t *testing.T) {
			want(t, "names", names(h.Get(c.path+"?"+c.query)), c.want)
		})
	}
	t.Run("unknown field", func(t *testing.T) {
		h.Refused(http.StatusBadRequest, metav1.StatusReasonBadRequest, "GET", path(ns, "pods")+"?fieldSelector=spec.hostname=x", "")
	})
	t.Run("the field by which uninitialized objects are hidden is not for clients", func(t *testing.T) {
		h.Refused(http.StatusBadRequest, metav1.StatusReasonBadRequest, "GET", path(ns, "pods")+"?fieldSelector=metadata.initialized=true", "")
	})
}

func TestGet(t *testing.T) {
	t.Parallel()
	s := harness.Shared(t)
	h := s.HTTP(t, nil)
	path := "/api/v1/namespaces/" + s.Namespace(t) + "/configmaps"
	created := h.Must(http.StatusCreated, "POST", path, configMap("one"))
	// The cache contains the object when it has answered for the object's version.
	for _, query := range []string{"", "?resourceVersion=" + created.Text("metadata", "resourceVersion"), "?resourceVersion=0"} {
		want(t, "object"+query, h.Get(path+"/one"+query).Body, created.Body)
	}
	// As on kube-apiserver.
	if r := h.Do("HEAD", path+"/one", ""); r.Code != http.StatusMethodNotAllowed || len(r.Raw) != 0 {
		t.Errorf("HEAD: %d with %d bytes", r.Code, len(r.Raw))
	}
	status := h.Refused(http.StatusNotFound, metav1.StatusReasonNotFound, "GET", path+"/two", "")
	want(t, "message", status.Message, `configmaps "two" not found`)
	want(t, "details", status.Details, &metav1.StatusDetails{Name: "two", Kind: "configmaps"})
}
