package election

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/klog/v2"
)

// Leases reads and writes the Lease. Errors are those of the API; Update fails with a
// conflict when the Lease was changed since it was read.
type Leases interface {
	Get(ctx context.Context, namespace, name string) (*coordinationv1.Lease, error)
	Create(ctx context.Context, lease *coordinationv1.Lease) (*coordinationv1.Lease, error)
	Update(ctx context.Context, lease *coordinationv1.Lease) (*coordinationv1.Lease, error)
}

// Options are what an Election needs. Leases, Namespace, Name and Identity must be set.
type Options struct {
	Leases          Leases
	Namespace, Name string
	// Identity is the name of this run of this server in the Lease.
	Identity string
	// Duration is for how long after its last renewal other servers leave the Lease alone.
	// Deadline is how long a server that cannot renew the Lease goes on. Retry is how often a
	// server reads or renews the Lease. 0 means 15 s, 10 s and 2 s, as in a
	// kube-controller-manager.
	Duration, Deadline, Retry time.Duration
}

// Election is the part that one server takes in electing who acts. It is safe for
// concurrent use.
type Election struct {
	options Options
	mu      struct {
		sync.Mutex
		// until is when the server must stop acting if the Lease is not renewed.
		until time.Time
	}
}

// New checks the options and starts nothing.
func New(o Options) (*Election, error) {
	o.Duration = cmp.Or(o.Duration, 15*time.Second)
	o.Deadline = cmp.Or(o.Deadline, 10*time.Second)
	o.Retry = cmp.Or(o.Retry, 2*time.Second)
	e := &Election{options: o}
	// The elector checks the durations.
	_, err := leaderelection.NewLeaderElector(e.config(&lock{Election: e}, leaderelection.LeaderCallbacks{
		OnStartedLeading: func(context.Context) {}, OnStoppedLeading: func() {},
	}))
	if err != nil {
		return nil, fmt.Errorf("election: %w", err)
	}
	return e, nil
}

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
	for ctx.Err() == nil {
		e.once(ctx, act)
		select {
		case <-ctx.Done():
		case <-time.After(e.options.Retry):
		}
	}
}

// once waits for the Lease, calls act until the Lease is lost or ctx ends, and gives the Lease
// back.
func (e *Election) once(ctx context.Context, act func(context.Context)) {
	acted := make(chan struct{})
	l := &lock{Election: e}
	elector, err := leaderelection.NewLeaderElector(e.config(l, leaderelection.LeaderCallbacks{
		OnStartedLeading: func(acting context.Context) {
			defer close(acted)
			klog.V(1).InfoS("This server runs the controllers from now on", "lease", l.Describe())
			act(acting)
		},
		OnStoppedLeading: func() {},
	}))
	if err != nil {
		panic("election: what New has checked is refused: " + err.Error())
	}
	elector.Run(ctx)
	if !l.acquired {
		return
	}
	if ctx.Err() == nil {
		klog.InfoS("This server does not run the controllers any more: it could not renew its lease", "lease", l.Describe())
	}
	<-acted
	l.giveBack(context.WithoutCancel(ctx))
}

func (e *Election) config(l *lock, callbacks leaderelection.LeaderCallbacks) leaderelection.LeaderElectionConfig {
	return leaderelection.LeaderElectionConfig{
		Lock: l, LeaseDuration: e.options.Duration, RenewDeadline: e.options.Deadline, RetryPeriod: e.options.Retry,
		Callbacks: callbacks, Name: e.options.Name,
	}
}

// lock is the Lease as an elector uses it. The elector calls its methods from one goroutine.
type lock struct {
	*Election
	lease *coordinationv1.Lease
	// acquired reports whether this server has held the Lease.
	acquired bool
}

var _ resourcelock.Interface = (*lock)(nil)

// Get implements resourcelock.Interface.
func (l *lock) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	lease, err := l.options.Leases.Get(ctx, l.options.Namespace, l.options.Name)
	if err != nil {
		return nil, nil, err
	}
	l.lease = lease
	record := resourcelock.LeaseSpecToLeaderElectionRecord(&lease.Spec)
	raw, err := json.Marshal(record)
	return record, raw, err
}

// Create implements resourcelock.Interface.
func (l *lock) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return l.write(record, func(spec coordinationv1.LeaseSpec) (*coordinationv1.Lease, error) {
		return l.options.Leases.Create(ctx, &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Namespace: l.options.Namespace, Name: l.options.Name}, Spec: spec,
		})
	})
}

// Update implements resourcelock.Interface.
func (l *lock) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	if l.lease == nil {
		return errors.New("the lease was not read before")
	}
	return l.write(record, func(spec coordinationv1.LeaseSpec) (*coordinationv1.Lease, error) {
		next := l.lease.DeepCopy()
		next.Spec = spec
		return l.options.Leases.Update(ctx, next)
	})
}

// write stores a record, and notes until when this server may act. Other servers count from when
// they see the record, which is after the write began.
func (l *lock) write(record resourcelock.LeaderElectionRecord, store func(coordinationv1.LeaseSpec) (*coordinationv1.Lease, error)) error {
	until := time.Now().Add(l.options.Deadline)
	lease, err := store(resourcelock.LeaderElectionRecordToLeaseSpec(&record))
	if err != nil {
		return err
	}
	l.lease, l.acquired = lease, true
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.until = until
	return nil
}

// parting is how long giving the Lease back may take.
const parting = time.Second

// giveBack lets another server take the Lease at once, if this server still holds it.
func (l *lock) giveBack(ctx context.Context) {
	l.mu.Lock()
	l.mu.until = time.Time{}
	l.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, parting)
	defer cancel()
	record, _, err := l.Get(ctx)
	if err == nil && record.HolderIdentity == l.options.Identity {
		next := l.lease.DeepCopy()
		next.Spec.HolderIdentity, next.Spec.LeaseDurationSeconds = nil, new(int32(1))
		_, err = l.options.Leases.Update(ctx, next)
	}
	if err != nil {
		klog.V(1).InfoS("The lease of the controllers could not be given back; it runs out by itself", "err", err)
	}
}

// RecordEvent implements resourcelock.Interface.
func (l *lock) RecordEvent(string) {}

// Identity implements resourcelock.Interface.
func (l *lock) Identity() string { return l.options.Identity }

// Describe implements resourcelock.Interface.
func (l *lock) Describe() string { return l.options.Namespace + "/" + l.options.Name }
