package customresources

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiserver/pkg/admission"
)

// A CRD that changes does not disturb the running requests, and ends the watches, which clients
// resume.
func TestUpdateWhileInUse(t *testing.T) {
	e := newEnv(t)
	e.define(widgets)
	e.must(201, "POST", widgetsPath, widget("before", "{size: 1}"))
	w := e.watch(widgetsPath + "?watch=true&resourceVersion=0")
	if _, err := w.next(); err != nil {
		t.Fatal(err)
	}

	// A creation is delayed in admission while the CRD changes.
	held, release := make(chan struct{}), make(chan struct{})
	e.admit.set(func(a admission.Attributes) error {
		if a.GetName() == "held" {
			close(held)
			<-release
		}
		return nil
	})
	created := make(chan *response, 1)
	go func() { created <- e.do("POST", widgetsPath, widget("held", "{size: 2}")) }()
	<-held
	old := (*e.snapshot.Load())[e.key("widgets")].definition
	e.update("widgets.example.com", func(spec *apiextensionsSpec) {
		props := spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"]
		props.Properties["extra"] = apiextensionsv1.JSONSchemaProps{Type: "string"}
		spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"] = props
	})

	// The new schema takes effect at once, and the old watch is over.
	r := e.must(201, "POST", widgetsPath, widget("after", "{extra: kept}"))
	if got := r.at("spec", "extra"); got != "kept" {
		t.Errorf("spec.extra is %v", got)
	}
	var err error
	for err == nil {
		_, err = w.next()
	}
	if err != io.EOF {
		t.Errorf("the watch ended with %v, want the end of the response", err)
	}
	select {
	case <-old.requests.empty:
		t.Error("the old definition was given up while a request used it")
	default:
	}
	close(release)
	if r := <-created; r.code != 201 {
		t.Errorf("the creation under way: %d %s", r.code, r.raw)
	}
	<-old.requests.empty

	// A client that watches again finds all objects.
	w = e.watch(widgetsPath + "?watch=true&resourceVersion=0")
	names := map[string]bool{}
	for range 3 {
		event, err := w.next()
		if err != nil {
			t.Fatal(err)
		}
		names[fmt.Sprint(event.Type, " ", at(event.Object, "metadata", "name"))] = true
	}
	if diff := cmp.Diff([]string{"ADDED after", "ADDED before", "ADDED held"}, sorted(names)); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
}

func TestVersionsComeAndGo(t *testing.T) {
	e := newEnv(t)
	e.define(widgets)
	e.must(201, "POST", widgetsPath, widget("w", "{}"))
	e.update("widgets.example.com", func(spec *apiextensionsSpec) {
		spec.Versions[1].Served = false
		added := *spec.Versions[0].DeepCopy()
		added.Name, added.Storage = "v2", false
		spec.Versions = append(spec.Versions, added)
	})
	e.must(404, "GET", betaPath+"/w", "")
	if got := e.must(200, "GET", "/apis/example.com/v2/namespaces/ns/widgets/w", "").at("apiVersion"); got != "example.com/v2" {
		t.Errorf("apiVersion %v", got)
	}
	e.update("widgets.example.com", func(spec *apiextensionsSpec) {
		spec.Versions[0].Storage, spec.Versions[2].Storage = false, true
	})
	e.must(200, "PATCH", widgetsPath+"/w", `{"metadata":{"labels":{"a":"b"}}}`, "Content-Type", mergePatch)
	if keys := e.keys("/example.com/widgets/"); len(keys) != 1 {
		t.Errorf("keys %q", keys)
	}
	stored, err := store.KV.Get(e.ctx, e.prefix+"/example.com/widgets/ns/w")
	if err != nil || len(stored.Kvs) != 1 || !strings.Contains(string(stored.Kvs[0].Value), `"apiVersion":"example.com/v2"`) {
		t.Errorf("stored: %v %v", stored, err)
	}
}

// Two CRDs want the same short name and kind: the second CRD gets them when the first is deleted.
func TestNamingConflict(t *testing.T) {
	e := newEnv(t)
	e.define(widgets)
	rival := strings.NewReplacer("widgets", "gadgets", "singular: widget", "singular: gadget").Replace(widgets)
	e.create(rival)
	crd := e.until("gadgets.example.com", func(crd *apiextensionsv1.CustomResourceDefinition) bool {
		return apihelpers.IsCRDConditionFalse(crd, apiextensionsv1.NamesAccepted)
	})
	if c := apihelpers.FindCRDCondition(crd, apiextensionsv1.NamesAccepted); c.Reason == "" || !strings.Contains(c.Message, "already in use") {
		t.Errorf("condition %+v", c)
	}
	e.must(404, "GET", "/apis/example.com/v1/namespaces/ns/gadgets", "")
	e.must(200, "DELETE", definitionsPath+"/widgets.example.com", "")
	e.until("gadgets.example.com", func(crd *apiextensionsv1.CustomResourceDefinition) bool {
		return apihelpers.IsCRDConditionTrue(crd, apiextensionsv1.Established)
	})
	e.must(201, "POST", "/apis/example.com/v1/namespaces/ns/gadgets", widget("g", "{}"))
}

// CRDs cannot use group versions of built-in kinds.
func TestBuiltinGroupVersionsAreNotServed(t *testing.T) {
	e := newEnv(t, func(o *Options) {
		o.Builtin = func(gv groupVersion) bool { return gv.String() == "example.com/v1beta1" }
	})
	e.define(widgets)
	e.must(404, "GET", betaPath, "")
	e.must(200, "GET", widgetsPath, "")
	e.await(func() bool { return len(e.Versions()) == 1 })
}

// Deleting a CRD first deletes its objects, and nothing stays in etcd. While the deletion is in
// progress no object can be created.
func TestDeletion(t *testing.T) {
	e := newEnv(t)
	e.define(widgets)
	for i := range 20 {
		path := strings.Replace(widgetsPath, "/ns/", fmt.Sprintf("/ns%d/", i%3), 1)
		e.must(201, "POST", path, uninitialized("example.com/v1", fmt.Sprintf("w%d", i), "{}"))
	}
	finalized := strings.Replace(widget("last", "{}"), `"name":"last"`, `"name":"last","finalizers":["example.com/wait"]`, 1)
	e.must(201, "POST", widgetsPath, finalized)

	// One creation is past mutating admission when deletion begins.
	held, release := make(chan struct{}), make(chan struct{})
	e.admit.set(func(a admission.Attributes) error {
		if a.GetName() == "held" {
			close(held)
			<-release
		}
		return nil
	})
	created := make(chan *response, 1)
	go func() { created <- e.do("POST", widgetsPath, widget("held", "{}")) }()
	<-held
	e.must(200, "DELETE", definitionsPath+"/widgets.example.com", "")
	e.await(func() bool {
		served, ok := (*e.snapshot.Load())[e.key("widgets")]
		return ok && terminating(served.crd)
	})
	r := e.must(http.StatusForbidden, "POST", widgetsPath, widget("late", "{}"))
	if want := `widgets.example.com "late" is forbidden: create not allowed while custom resource definition is terminating`; r.at("message") != want {
		t.Errorf("message %q, want %q", r.at("message"), want)
	}
	e.must(http.StatusForbidden, "PATCH", widgetsPath+"/late?fieldManager=m", "apiVersion: example.com/v1\nkind: Widget\nmetadata: {name: late}\n", "Content-Type", applyPatch)
	e.await(func() bool {
		versions := e.Versions()
		return len(versions) == 2 && cmp.Equal([]string(versions[0].Resources[0].Verbs), []string(terminatingVerbs))
	})
	close(release)
	if r := <-created; r.code != 201 {
		t.Errorf("the creation under way: %d %s", r.code, r.raw)
	}
	// The finalizer of the last object delays the deletion.
	w := e.watch(widgetsPath + "?watch=true&resourceVersion=0&fieldSelector=metadata.name=last")
	for {
		event, err := w.next()
		if err != nil {
			t.Fatal(err)
		}
		if at(event.Object, "metadata", "deletionTimestamp") != nil {
			break
		}
	}
	e.must(200, "PATCH", widgetsPath+"/last", `{"metadata":{"finalizers":null}}`, "Content-Type", mergePatch)
	e.until("widgets.example.com", nil)
	if keys := e.keys("/"); len(keys) != 0 {
		t.Errorf("left in etcd: %q", keys)
	}
	e.await(func() bool { return len(*e.snapshot.Load()) == 0 })
	e.must(404, "GET", widgetsPath, "")

	// The same CRD can be created again, without the objects of the old one.
	e.define(widgets)
	if items := e.must(200, "GET", widgetsPath, "").at("items"); len(items.([]any)) != 0 {
		t.Errorf("items %v", items)
	}
}

// CRDs that were established before a restart are served when Ready returns. The status of a CRD
// whose objects cannot be deleted names such an object, and the finalizers for which it waits.
func TestDeletionSaysWhatItWaitsFor(t *testing.T) {
	e := newEnv(t)
	crd := e.define(widgets)
	e.must(201, "POST", widgetsPath, strings.Replace(widget("w", "{}"), `"name":"w"`, `"name":"w","finalizers":["foregroundDeletion"]`, 1))
	e.must(200, "DELETE", widgetsPath+"/w", "")
	left, err := finalizing{e.Server}.GetCustomResourceListerCollectionDeleter(crd)
	if err != nil {
		t.Fatal(err)
	}
	const want = `objects still there: 1; ns/w waits for its finalizers ["foregroundDeletion"]`
	for _, c := range []struct {
		name string
		left time.Duration
		want string
	}{
		{"with time for another list", time.Hour, ""},
		{"without", finalizerPeriod - time.Millisecond, want},
	} {
		t.Run(c.name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), c.left)
			defer cancel()
			_, err := left.List(ctx, nil)
			if got := fmt.Sprint(err); err == nil && c.want != "" || err != nil && got != c.want {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
	// A list without a deadline gets no error.
	if _, err := left.List(t.Context(), nil); err != nil {
		t.Error(err)
	}
}

func TestRestart(t *testing.T) {
	e := newEnv(t)
	e.define(widgets)
	e.must(201, "POST", widgetsPath, widget("w", "{}"))
	again := newEnv(t, func(o *Options) { o.Storage.Prefix = e.prefix })
	again.must(200, "GET", widgetsPath+"/w", "")
}

// While a CRD changes repeatedly, no request fails.
func TestUpdatesUnderLoad(t *testing.T) {
	e := newEnv(t)
	e.define(widgets)
	e.must(201, "POST", widgetsPath, widget("w", "{}"))
	ctx, stop := context.WithCancel(e.ctx)
	var group sync.WaitGroup
	for i := range 4 {
		path := []string{widgetsPath, betaPath}[i%2]
		group.Go(func() {
			for ctx.Err() == nil {
				for _, r := range []*response{
					e.do("GET", path+"/w", ""),
					e.do("GET", path, ""),
					e.do("PATCH", path+"/w", fmt.Sprintf(`{"metadata":{"labels":{"l%d":"x"}}}`, i), "Content-Type", mergePatch),
				} {
					if r.code != 200 {
						t.Errorf("%d %s", r.code, r.raw)
					}
				}
			}
		})
	}
	for i := range 10 {
		e.update("widgets.example.com", func(spec *apiextensionsSpec) {
			spec.Versions[0].Schema.OpenAPIV3Schema.Description = fmt.Sprint("state ", i)
		})
	}
	stop()
	group.Wait()
}
