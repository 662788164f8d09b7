package quotas

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"

	clientv3 "go.etcd.io/etcd/client/v3"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/endpoints/request"
	listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/gatehouse-dev/gatehouse/test/etcdtest"
)

// counting is a plugin that counts how often it charges, and refuses after a number of charges.
type counting struct {
	admission.Interface
	charges, most int
}

var errFull = errors.New("exceeded quota")

func (c *counting) Validate(context.Context, admission.Attributes, admission.ObjectInterfaces) error {
	if c.charges == c.most {
		return errFull
	}
	c.charges++
	return nil
}

// S9.21: a write that was charged before the fence moved is charged again before it is stored,
// or is refused.
func TestWhatWasChargedBeforeACountIsChargedAgain(t *testing.T) {
	etcd := etcdtest.Start(t)
	cache := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
	_ = cache.Add(&corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "limits"}})
	limits := Limits{Cached: listers.NewResourceQuotaLister(cache)}
	for _, tc := range []struct {
		name string
		// moves returns the server that moves the fence between the charge and the write.
		moves             func(own, other *Fences) *Fences
		most, charges     int
		taken, dry, fails bool
		want              error
	}{
		{name: "nobody counts", most: 9, charges: 1},
		{name: "this server counts", moves: func(own, _ *Fences) *Fences { return own }, most: 9, charges: 2},
		{name: "another server counts", moves: func(_, other *Fences) *Fences { return other }, most: 9, charges: 2},
		{name: "nothing is left after the count", moves: func(_, other *Fences) *Fences { return other }, most: 1, charges: 1, want: errFull},
		{name: "the name is taken", taken: true, most: 9, charges: 1, fails: true},
		{name: "a dry run is not charged", dry: true, moves: func(_, other *Fences) *Fences { return other }, most: 9, charges: 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			root := "/" + t.Name()
			own, other := New(etcd.KV, root), New(etcd.KV, root)
			plugin := &counting{most: tc.most}
			charging := own.Charging(plugin, limits)
			key := root + "/secrets/ns/name"
			if tc.taken {
				if _, err := etcd.Put(t.Context(), key, "first"); err != nil {
					t.Fatal(err)
				}
			}
			info := &request.RequestInfo{IsResourceRequest: true, Namespace: "ns", Verb: "create"}
			req := httptest.NewRequestWithContext(request.WithRequestInfo(t.Context(), info), "POST", "/", nil)
			Handler(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
				a := admission.NewAttributesRecord(nil, nil, corev1.SchemeGroupVersion.WithKind("Secret"), "ns", "name",
					corev1.SchemeGroupVersion.WithResource("secrets"), "", admission.Create, nil, tc.dry, nil)
				if err := charging.Validate(req.Context(), a, nil); err != nil {
					t.Fatal(err)
				}
				if tc.moves != nil {
					if err := tc.moves(own, other).Move(t.Context(), "ns"); err != nil {
						t.Fatal(err)
					}
				}
				response, err := own.KV(etcd.KV).Txn(req.Context()).If(clientv3.Compare(clientv3.ModRevision(key), "=", 0)).
					Then(clientv3.OpPut(key, "second")).Else(clientv3.OpGet(key)).Commit()
				if !errors.Is(err, tc.want) {
					t.Fatalf("error %v, want %v", err, tc.want)
				}
				if err == nil && response.Succeeded == tc.fails {
					t.Errorf("succeeded: %t", response.Succeeded)
				}
				// A caller that asked for the key if the write fails gets the key, and not the
				// fence.
				if tc.fails && (len(response.Responses) != 1 || string(response.Responses[0].GetResponseRange().Kvs[0].Value) != "first") {
					t.Errorf("responses: %v", response.Responses)
				}
			})).ServeHTTP(httptest.NewRecorder(), req)
			if plugin.charges != tc.charges {
				t.Errorf("charged %d times, want %d", plugin.charges, tc.charges)
			}
			if len(own.busy) != 0 {
				t.Errorf("still busy: %v", own.busy)
			}
		})
	}
}

// S9.21: the fence of a namespace is deleted with the namespace, and a write cannot bypass the
// fence with a cached one.
func TestAFenceEndsWithItsNamespace(t *testing.T) {
	etcd := etcdtest.Start(t)
	f := New(etcd.KV, "/registry")
	for _, ns := range []string{"a", "b", "c"} {
		if err := f.Move(t.Context(), ns); err != nil {
			t.Fatal(err)
		}
	}
	names := func() string {
		t.Helper()
		var all []string
		for after := ""; ; {
			page, err := f.Namespaces(t.Context(), after, 2)
			if err != nil {
				t.Fatal(err)
			}
			if len(page) == 0 {
				return strings.Join(all, " ")
			}
			all = append(all, page...)
			after = page[len(page)-1]
		}
	}
	if got := names(); got != "a b c" {
		t.Errorf("fences of %q, want a b c", got)
	}
	if _, err := etcd.Put(t.Context(), "/registry/namespaces/b", "b"); err != nil {
		t.Fatal(err)
	}
	for _, ns := range []string{"a", "b"} {
		if err := f.Forget(t.Context(), ns); err != nil {
			t.Fatal(err)
		}
	}
	if got := names(); got != "b c" {
		t.Errorf("fences of %q are left, want those of b, which is there, and c, which nobody asked for", got)
	}
	// The server still has the old fence of a.
	known, err := f.read(t.Context(), "a")
	if err != nil || known == 0 {
		t.Fatalf("fence %d, error %v: this test needs one that is remembered", known, err)
	}
	charged := 0
	c := &charge{namespace: "a", fence: known, again: func() error { charged++; return nil }}
	response, err := f.KV(etcd.KV).Txn(context.WithValue(t.Context(), chargeKey{}, c)).Then(clientv3.OpPut("/registry/secrets/a/name", "")).Commit()
	if err != nil || !response.Succeeded || charged != 1 {
		t.Errorf("error %v, stored %t, charged again %d times, want once", err, response.Succeeded, charged)
	}
}

// A count of a namespace waits for the charged writes in progress. Later writes are charged after the count.
func TestWritesWaitForACount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, ctx := New(nil, "/registry"), t.Context()
		leave := f.enter(ctx, "shop")
		paused, charged := make(chan func(), 1), make(chan struct{})
		go func() { paused <- f.Pause(ctx, "shop") }()
		synctest.Wait()
		select {
		case <-paused:
			t.Fatal("the count does not wait for the write before it")
		default:
		}
		leave()
		resume := <-paused
		go func() {
			f.enter(ctx, "shop")()
			close(charged)
		}()
		synctest.Wait()
		select {
		case <-charged:
			t.Error("a write is charged while the count runs")
		default:
		}
		resume()
		<-charged
		if len(f.busy) > 0 {
			t.Errorf("%d namespaces are remembered in which nothing runs", len(f.busy))
		}
	})
}
