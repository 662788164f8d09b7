package election

import (
	"context"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	clients "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/klog/v2"
)

// Options are the inputs of an Election. All must be set.
type Options struct {
	Leases          clients.LeasesGetter
	Namespace, Name string
	// Identity is the name of this run of this server in the Lease.
	Identity string
}

// The times of an election, as in a kube-controller-manager.
const (
	// duration is how long after its last renewal other servers do not take the Lease.
	duration = 15 * time.Second
	// deadline is how long a server that cannot renew the Lease continues to act.
	deadline = 10 * time.Second
	// retry is how often a server reads or renews the Lease.
	retry = 2 * time.Second
)

// Election is one server's part in the election. It is safe for concurrent use.
type Election struct {
	options Options
	mu      struct {
		sync.Mutex
		// until is when the server must stop acting if the Lease is not renewed.
		until time.Time
	}
}

// New starts nothing.
func New(o Options) *Election { return &Election{options: o} }

// Held reports whether this server holds the Lease, by its own clock. While it is true, no other
// server can have taken the Lease.
func (e *Election) Held() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return time.Now().Before(e.mu.until)
}

// Run calls act whenever this server holds the Lease. The context of act ends when the server
// loses the Lease. Run returns when ctx has ended and act has returned.
func (e *Election) Run(ctx context.Context, act func(context.Context)) {
	wait.UntilWithContext(ctx, func(ctx context.Context) { e.once(ctx, act) }, retry)
}

// once waits for the Lease, calls act until the Lease is lost or ctx ends, and gives the Lease
// back.
func (e *Election) once(ctx context.Context, act func(context.Context)) {
	acted := make(chan struct{})
	l := e.lock()
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: l, LeaseDuration: duration, RenewDeadline: deadline, RetryPeriod: retry, Name: e.options.Name,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(acting context.Context) {
				defer close(acted)
				klog.V(1).InfoS("This process holds the lease from now on", "lease", l.Describe())
				act(acting)
			},
			OnStoppedLeading: func() {},
		},
	})
	if err != nil {
		panic("election: an elector refuses constant times: " + err.Error())
	}
	elector.Run(ctx)
	if !l.acquired {
		return
	}
	if ctx.Err() == nil {
		klog.InfoS("This process does not hold the lease any more: it could not renew it", "lease", l.Describe())
	}
	<-acted
	l.giveBack(context.WithoutCancel(ctx))
}

// lock is the Lease as an elector uses it. The elector calls its methods from one goroutine.
type lock struct {
	*resourcelock.LeaseLock
	election *Election
	// acquired reports whether this server has held the Lease.
	acquired bool
}

func (e *Election) lock() *lock {
	return &lock{election: e, LeaseLock: &resourcelock.LeaseLock{
		LeaseMeta: metav1.ObjectMeta{Namespace: e.options.Namespace, Name: e.options.Name}, Client: e.options.Leases,
		LockConfig: resourcelock.ResourceLockConfig{Identity: e.options.Identity},
	}}
}

// Create implements resourcelock.Interface.
func (l *lock) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return l.write(func() error { return l.LeaseLock.Create(ctx, record) })
}

// Update implements resourcelock.Interface.
func (l *lock) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return l.write(func() error { return l.LeaseLock.Update(ctx, record) })
}

// write stores a record, and records until when this server may act. Other servers count from when
// they see the record, which is after the write began.
func (l *lock) write(store func() error) error {
	until := time.Now().Add(deadline)
	if err := store(); err != nil {
		return err
	}
	l.acquired = true
	l.election.hold(until)
	return nil
}

// hold records until when this server may act.
func (e *Election) hold(until time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.mu.until = until
}

// parting bounds the time for giving the Lease back.
const parting = time.Second

// giveBack lets another server take the Lease at once, if this server still holds it.
func (l *lock) giveBack(ctx context.Context) {
	l.election.hold(time.Time{})
	ctx, cancel := context.WithTimeout(ctx, parting)
	defer cancel()
	record, _, err := l.Get(ctx)
	if err == nil && record.HolderIdentity == l.Identity() {
		record.HolderIdentity, record.LeaseDurationSeconds = "", 1
		err = l.LeaseLock.Update(ctx, *record)
	}
	if err != nil {
		klog.V(1).InfoS("The lease could not be given back; it runs out by itself", "err", err)
	}
}
