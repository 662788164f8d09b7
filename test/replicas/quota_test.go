package replicas

import (
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gatehouse-dev/gatehouse/test/harness"
	"github.com/gatehouse-dev/gatehouse/test/speed"
)

// With many creators on three servers, the number of objects never exceeds a quota and finally equals it, and
// deleted objects are not counted.
func TestAQuotaIsNeverExceeded(t *testing.T) {
	t.Parallel()
	allowed, creators := speed.Of(10, 40), speed.Of(16, 64)
	f := sharedFleet(t, three, controllers...)
	ns := f.servers[0].Namespace(t)
	admin := harness.Client(t, f.clients[0])
	quotas := admin.CoreV1().ResourceQuotas(ns)
	if _, err := quotas.Create(harness.Context(t), &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: "q"},
		Spec: corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{corev1.ResourceSecrets: resource.MustParse(fmt.Sprint(allowed))}}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	used := func(want int) {
		t.Helper()
		harness.Eventually(t, fmt.Sprintf("%d secrets are counted", want), func() error {
			q, err := quotas.Get(harness.Context(t), "q", metav1.GetOptions{})
			if err != nil {
				return err
			}
			if n, ok := q.Status.Used[corev1.ResourceSecrets]; !ok || n.Value() != int64(want) {
				return fmt.Errorf("%v", q.Status.Used)
			}
			return nil
		})
	}
	used(0)
	var made atomic.Int32
	create := func(round, creator int) {
		client := harness.Client(t, f.clients[creator%len(f.clients)])
		for i := 0; ; i++ {
			_, err := client.CoreV1().Secrets(ns).Create(harness.Context(t), &corev1.Secret{
				ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("s-%d-%d-%d", round, creator, i)},
			}, metav1.CreateOptions{})
			switch {
			case err == nil:
				made.Add(1)
			case apierrors.IsForbidden(err):
				return // The quota is full.
			case apierrors.IsConflict(err) || apierrors.IsTooManyRequests(err) || apierrors.IsServerTimeout(err) || apierrors.ReasonForError(err) == metav1.StatusReasonInternalError:
				// Other requests changed the quota faster; nothing was stored.
			default:
				t.Errorf("create: %v", err)
				return
			}
		}
	}
	for round := range speed.Of(1, 2) {
		made.Store(0)
		var creating sync.WaitGroup
		for creator := range creators {
			creating.Go(func() { create(round, creator) })
		}
		creating.Wait()
		list, err := admin.CoreV1().Secrets(ns).List(harness.Context(t), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if n := len(list.Items); n > allowed || n < int(made.Load()) {
			t.Errorf("round %d: %d are stored, %d were answered as created, and %d are allowed", round, n, made.Load(), allowed)
		}
		used(len(list.Items))
		f.must(http.StatusOK, round%len(f.servers), "DELETE", "/api/v1/namespaces/"+ns+"/secrets", nil)
		used(0)
	}
}
