package serving

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/gatehouse-dev/gatehouse/test/harness"
	"github.com/gatehouse-dev/gatehouse/test/speed"
)

// quotaRace lets clients create and delete objects under a quota, and checks that the quota is never
// exceeded.
type quotaRace struct {
	*testing.T
	clients                       []*kubernetes.Clientset
	ns                            string
	limit                         int
	created, refused, lists, over atomic.Int64
}

func newQuotaRace(t *testing.T, ns string, servers ...*harness.Server) *quotaRace {
	q := &quotaRace{T: t, ns: ns, limit: 10}
	for _, s := range servers {
		q.clients = append(q.clients, harness.Client(t, s.Admin))
	}
	hard := corev1.ResourceList{"count/secrets": resource.MustParse(fmt.Sprint(q.limit)), "count/configmaps": resource.MustParse("0")}
	if _, err := q.clients[0].CoreV1().ResourceQuotas(ns).Create(harness.Context(t), &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Name: "race"}, Spec: corev1.ResourceQuotaSpec{Hard: hard},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	harness.Eventually(t, "the quota is counted", func() error {
		found, err := q.clients[0].CoreV1().ResourceQuotas(ns).Get(harness.Context(t), "race", metav1.GetOptions{})
		if err == nil && len(found.Status.Used) == 0 {
			err = fmt.Errorf("%v", found.Status)
		}
		return err
	})
	// The other servers observe the quota with a delay.
	for i, c := range q.clients[1:] {
		harness.Eventually(t, fmt.Sprintf("server %d knows the quota", i+1), func() error {
			_, err := c.CoreV1().ConfigMaps(ns).Create(harness.Context(t), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "refused"}}, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
			if !apierrors.IsForbidden(err) {
				return fmt.Errorf("%v", err)
			}
			return nil
		})
	}
	return q
}

// run runs a number of clients until ctx ends.
func (q *quotaRace) run(ctx context.Context, writers int) {
	var running sync.WaitGroup
	for w := range writers {
		secrets := q.clients[w%len(q.clients)].CoreV1().Secrets(q.ns)
		running.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				name := fmt.Sprintf("s-%d-%d", w, n)
				_, err := secrets.Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
				switch {
				case err == nil:
					q.created.Add(1)
				case apierrors.IsForbidden(err):
					q.refused.Add(1)
				default:
					// The client's server is down.
					select {
					case <-ctx.Done():
					case <-time.After(50 * time.Millisecond):
					}
				}
				// Each client occasionally deletes objects.
				if list, err := secrets.List(ctx, metav1.ListOptions{}); err == nil {
					q.lists.Add(1)
					if len(list.Items) > q.limit {
						q.over.Add(1)
					}
					if len(list.Items) > 0 && rand.N(2) == 0 {
						_ = secrets.Delete(ctx, list.Items[rand.N(len(list.Items))].Name, metav1.DeleteOptions{})
					}
				}
			}
		})
	}
	running.Wait()
}

func (q *quotaRace) check() {
	q.Helper()
	q.Logf("%d creates, %d refused, %d lists, %d of them over the quota", q.created.Load(), q.refused.Load(), q.lists.Load(), q.over.Load())
	if q.over.Load() > 0 {
		q.Errorf("%d of %d lists had more than %d objects", q.over.Load(), q.lists.Load(), q.limit)
	}
	if q.created.Load() == 0 {
		q.Error("nothing was created")
	}
	// When the clients have stopped, the quota's use equals the number of objects.
	harness.Eventually(q, "the use is what is there", func() error {
		list, err := q.clients[0].CoreV1().Secrets(q.ns).List(harness.Context(q), metav1.ListOptions{})
		if err != nil {
			return err
		}
		quota, err := q.clients[0].CoreV1().ResourceQuotas(q.ns).Get(harness.Context(q), "race", metav1.GetOptions{})
		if err != nil {
			return err
		}
		if used := quota.Status.Used["count/secrets"]; used.Value() != int64(len(list.Items)) {
			return fmt.Errorf("%s are used, %d are there", used.String(), len(list.Items))
		}
		return nil
	})
}

// raceFor returns the duration of a race in seconds; GATEHOUSE_RACE changes it.
func raceFor(t *testing.T, seconds int) time.Duration {
	given := os.Getenv("GATEHOUSE_RACE")
	if given == "" {
		return time.Duration(seconds) * time.Second
	}
	d, err := time.ParseDuration(given)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// S9.21: concurrent creates and deletes never exceed a quota.
func TestAQuotaIsNeverExceeded(t *testing.T) {
	t.Parallel()
	s := harness.Sole(t, "--controllers", "*")
	q := newQuotaRace(t, s.Namespace(t), s)
	ctx, cancel := context.WithTimeout(t.Context(), raceFor(t, speed.Of(2, 5)))
	defer cancel()
	q.run(ctx, 24)
	q.check()
}

// S9.21, with three servers on one etcd, one of which is killed and restarted.
func TestAQuotaIsNeverExceededByThreeServers(t *testing.T) {
	speed.Long(t)
	t.Parallel()
	etcd := harness.StartEtcd(t)
	var servers []*harness.Server
	for range 3 {
		servers = append(servers, harness.Start(t, "--etcd-servers", etcd.URL, "--controllers", "*"))
	}
	q := newQuotaRace(t, servers[0].Namespace(t), servers...)
	ctx, cancel := context.WithTimeout(t.Context(), 2*raceFor(t, 5))
	defer cancel()
	var killed sync.WaitGroup
	killed.Go(func() {
		select {
		case <-time.After(raceFor(t, 5)):
			servers[0].Kill(t)
			// The killed server ran the controllers. The others take over when its Lease has expired or is
			// deleted.
			leases := q.clients[1].CoordinationV1().Leases(metav1.NamespaceSystem)
			if err := leases.Delete(harness.Context(t), "gatehouse-controllers", metav1.DeleteOptions{}); err != nil {
				t.Error(err)
			}
		case <-ctx.Done():
		}
	})
	q.run(ctx, 24)
	killed.Wait()
	servers[0].Restart(t)
	q.check()
}

// S9.21: a quota is enforced as soon as its counted use is visible.
func TestACountedQuotaHolds(t *testing.T) {
	t.Parallel()
	s := harness.Sole(t, "--controllers", "*")
	c, ns := harness.Client(t, s.Admin), s.Namespace(t)
	quotas := c.CoreV1().ResourceQuotas(ns)
	rounds := speed.Of(10, 40)
	late := 0
	for n := range rounds {
		name := fmt.Sprintf("none-%d", n)
		hard := corev1.ResourceList{corev1.ResourceName("count/secrets"): resource.MustParse("0")}
		if _, err := quotas.Create(t.Context(), &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.ResourceQuotaSpec{Hard: hard}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		ctx := harness.Context(t)
		for counted := false; !counted; {
			found, err := quotas.Get(ctx, name, metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			counted = len(found.Status.Hard) > 0
		}
		if _, err := c.CoreV1().Secrets(ns).Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err == nil {
			late++
		} else if !apierrors.IsForbidden(err) {
			t.Fatal(err)
		}
		if err := quotas.Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	if late > 0 {
		t.Errorf("%d of %d secrets were let in by a quota of none that was counted", late, rounds)
	}
}

// S9.21: nothing of a quota stays in etcd after its namespace is deleted in any way.
func TestNothingOfAQuotaStaysWhenItsNamespaceIsGone(t *testing.T) {
	speed.Long(t)
	t.Parallel()
	etcd := harness.StartEtcd(t)
	stored, err := clientv3.New(clientv3.Config{Endpoints: []string{etcd.URL}})
	if err != nil {
		t.Fatal(err)
	}
	defer stored.Close()
	const fences = "/registry/gatehouse/quotas/"
	// A namespace that was deleted while no server ran.
	if _, err := stored.Put(harness.Context(t), fences+"long-gone", ""); err != nil {
		t.Fatal(err)
	}
	s := harness.Start(t, "--etcd-servers", etcd.URL, "--controllers", "*")
	c, ns := harness.Client(t, s.Admin), s.Namespace(t)
	left := func() (string, error) {
		found, err := stored.Get(harness.Context(t), fences, clientv3.WithPrefix(), clientv3.WithKeysOnly())
		if err != nil {
			return "", err
		}
		var names []string
		for _, kv := range found.Kvs {
			names = append(names, strings.TrimPrefix(string(kv.Key), fences))
		}
		return strings.Join(names, " "), nil
	}
	hard := corev1.ResourceList{"count/secrets": resource.MustParse("10")}
	quota := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: "q"}, Spec: corev1.ResourceQuotaSpec{Hard: hard}}
	if _, err := c.CoreV1().ResourceQuotas(ns).Create(harness.Context(t), quota, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	secrets := c.CoreV1().Secrets(ns)
	harness.Eventually(t, "a count makes a fence, and that of a namespace that is gone goes", func() error {
		if _, err := secrets.Create(harness.Context(t), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "s"}}, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
			return err
		}
		if err := secrets.Delete(harness.Context(t), "s", metav1.DeleteOptions{}); err != nil {
			return err
		}
		if got, err := left(); err != nil || got != ns {
			return fmt.Errorf("fences of %q, %v", got, err)
		}
		return nil
	})
	if err := c.CoreV1().Namespaces().Delete(harness.Context(t), ns, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	harness.Eventually(t, "no fence is left", func() error {
		if got, err := left(); err != nil || got != "" {
			return fmt.Errorf("fences of %q, %v", got, err)
		}
		return nil
	})
}
