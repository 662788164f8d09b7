package election

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clients "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// memory has one Lease.
type memory struct {
	clients.LeaseInterface
	mu    sync.Mutex
	lease *coordinationv1.Lease
}

var errAway = errors.New("the storage is away")

func (m *memory) Leases(string) clients.LeaseInterface { return m }

func (m *memory) Get(context.Context, string, metav1.GetOptions) (*coordinationv1.Lease, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.lease == nil {
		return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "leases"}, "controllers")
	}
	return m.lease.DeepCopy(), nil
}

func (m *memory) Create(_ context.Context, lease *coordinationv1.Lease, _ metav1.CreateOptions) (*coordinationv1.Lease, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.lease != nil {
		return nil, apierrors.NewAlreadyExists(schema.GroupResource{Resource: "leases"}, lease.Name)
	}
	m.lease = lease.DeepCopy()
	m.lease.ResourceVersion = "1"
	return m.lease.DeepCopy(), nil
}

func (m *memory) Update(_ context.Context, lease *coordinationv1.Lease, _ metav1.UpdateOptions) (*coordinationv1.Lease, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.lease == nil || m.lease.ResourceVersion != lease.ResourceVersion {
		return nil, apierrors.NewConflict(schema.GroupResource{Resource: "leases"}, lease.Name, errors.New("changed"))
	}
	version, err := strconv.Atoi(lease.ResourceVersion)
	if err != nil {
		return nil, err
	}
	m.lease = lease.DeepCopy()
	m.lease.ResourceVersion = strconv.Itoa(version + 1)
	return m.lease.DeepCopy(), nil
}

// server is one of several servers that want to act.
type server struct {
	*Election
	acting atomic.Int32
	cancel context.CancelFunc
	ended  chan struct{}
}

func start(t *testing.T, name string, storage clients.LeasesGetter, all *atomic.Int32) *server {
	t.Helper()
	e := New(Options{Leases: storage, Namespace: "kube-system", Name: "controllers", Identity: name})
	ctx, cancel := context.WithCancel(t.Context())
	s := &server{Election: e, cancel: cancel, ended: make(chan struct{})}
	go func() {
		defer close(s.ended)
		e.Run(ctx, func(ctx context.Context) {
			if !e.Held() {
				t.Errorf("%s acts without the lease", name)
			}
			if n := all.Add(1); n > 1 {
				t.Errorf("%d servers act", n)
			}
			s.acting.Add(1)
			<-ctx.Done()
			s.acting.Add(-1)
			all.Add(-1)
		})
	}()
	return s
}

func TestOneServerActsAndAnotherTakesOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var all atomic.Int32
		storage := &memory{}
		one := start(t, "one", storage, &all)
		time.Sleep(3 * time.Second)
		two := start(t, "two", storage, &all)
		time.Sleep(time.Minute)
		if one.acting.Load() != 1 || two.acting.Load() != 0 || !one.Held() || two.Held() {
			t.Fatal("the first server does not act alone")
		}
		// A server that ends gives the lease back, so that no other server waits until the lease
		// expires.
		one.cancel()
		<-one.ended
		before := time.Now()
		for two.acting.Load() == 0 {
			time.Sleep(100 * time.Millisecond)
		}
		if took := time.Since(before); took > 6*time.Second {
			t.Errorf("the second server waited %s", took)
		}
		if one.Held() {
			t.Error("the first server believes that it has the lease")
		}
		two.cancel()
		<-two.ended
	})
}

// cut is a storage that one server cannot reach any more.
type cut struct {
	*memory
	off atomic.Bool
}

func (c *cut) Leases(string) clients.LeaseInterface { return c }

func (c *cut) Get(ctx context.Context, name string, o metav1.GetOptions) (*coordinationv1.Lease, error) {
	if c.off.Load() {
		return nil, errAway
	}
	return c.memory.Get(ctx, name, o)
}

func (c *cut) Update(ctx context.Context, lease *coordinationv1.Lease, o metav1.UpdateOptions) (*coordinationv1.Lease, error) {
	if c.off.Load() {
		return nil, errAway
	}
	return c.memory.Update(ctx, lease, o)
}

// A server that cannot renew the lease has stopped before another server begins, and acts again
// when it gets the lease back.
func TestAServerThatLosesTheLeaseStopsActing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var all atomic.Int32
		storage := &memory{}
		link := &cut{memory: storage}
		one := start(t, "one", link, &all)
		time.Sleep(3 * time.Second)
		two := start(t, "two", storage, &all)
		time.Sleep(3 * time.Second)
		link.off.Store(true)
		for two.acting.Load() == 0 {
			if one.Held() && two.Held() {
				t.Fatal("two servers have the lease")
			}
			time.Sleep(50 * time.Millisecond)
		}
		if one.acting.Load() != 0 || one.Held() {
			t.Error("the first server goes on")
		}
		link.off.Store(false)
		two.cancel()
		<-two.ended
		for one.acting.Load() == 0 {
			time.Sleep(100 * time.Millisecond)
		}
		one.cancel()
		<-one.ended
	})
}

// A server that was paused for longer than the duration of the lease detects at once, by its own
// clock, that it does not have it.
func TestAServerThatWasPausedDoesNotHoldTheLease(t *testing.T) {
	e := New(Options{Leases: &memory{}, Namespace: "n", Name: "l", Identity: "one"})
	synctest.Test(t, func(t *testing.T) {
		l := e.lock()
		if err := l.Create(t.Context(), resourcelock.LeaderElectionRecord{HolderIdentity: "one", LeaseDurationSeconds: 15}); err != nil {
			t.Fatal(err)
		}
		if !e.Held() {
			t.Error("it does not have the lease")
		}
		time.Sleep(deadline)
		if e.Held() {
			t.Error("it believes that it has the lease")
		}
	})
}
