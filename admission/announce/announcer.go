package announce

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/gatehouse-dev/gatehouse/admission/snapshot"
)

// path is where AdmissionServers are written.
const path = "/apis/gatehouse.dev/v1alpha1/admissionservers"

const (
	// timeout bounds one write of the announcement.
	timeout = 2 * time.Second
	// retryAfter is how long the Announcer waits after a failed write.
	retryAfter = 500 * time.Millisecond
)

// Options are what an Announcer needs.
type Options struct {
	// Main reaches the main server, with the right to update and delete admissionservers of
	// gatehouse.dev. Its group and version do not matter.
	Main rest.Interface
	// Name names this run of this server. No other run of a server may ever have the same name.
	// Address is where clients reach the server, for people.
	Name, Address string
	// MaxStaleness is that of the snapshot.Refresher; 0 means 5 s.
	MaxStaleness time.Duration
	// Off are the resources of registrations that the server judges no request by.
	Off []string
}

// Announcer announces a server to the main one. It is made by New and safe for concurrent use.
type Announcer struct {
	*Log
	options Options
}

// New returns an Announcer that has announced nothing.
func New(o Options) *Announcer {
	o.MaxStaleness = cmp.Or(o.MaxStaleness, 5*time.Second)
	return &Announcer{Log: NewLog(o.Address, o.MaxStaleness, o.Off), options: o}
}

// Reader returns a reader that fails unless the announcement of this server is sure to last as
// long as requests may be judged by the result.
func (a *Announcer) Reader(r snapshot.Reader) snapshot.Reader { return reader{r, a} }

type reader struct {
	snapshot.Reader
	announcer *Announcer
}

// Read implements snapshot.Reader.
func (r reader) Read(ctx context.Context, since snapshot.Version) (snapshot.Registrations, error) {
	begin := time.Now()
	found, err := r.Reader.Read(ctx, since)
	if err == nil {
		err = r.announcer.Covers(begin)
	}
	return found, err
}

// Announce writes the announcement for the first time. It must have returned before the first
// read begins whose result may judge requests.
func (a *Announcer) Announce(ctx context.Context) error {
	if err := a.tell(ctx); err != nil {
		return fmt.Errorf("announcing this server to the main one: %w", err)
	}
	return nil
}

// Run keeps the announcement up to date until ctx ends, and then withdraws it.
func (a *Announcer) Run(ctx context.Context) {
	period := a.Lifetime() / Renewals
	timer := time.NewTimer(period)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			a.withdraw(context.WithoutCancel(ctx))
			return
		case <-a.Changed():
		case <-timer.C:
		}
		next := period
		if err := a.tell(ctx); err != nil && ctx.Err() == nil {
			klog.V(1).InfoS("Could not announce this server to the main one; will retry", "err", err)
			next = retryAfter
		}
		timer.Reset(next)
	}
}

// admissionServer is the object that an Announcer writes.
type admissionServer struct {
	APIVersion string            `json:"apiVersion"`
	Kind       string            `json:"kind"`
	Metadata   map[string]string `json:"metadata"`
	// LifetimeSeconds is how long the announcement lasts.
	LifetimeSeconds int64 `json:"lifetimeSeconds"`
	Announcement
}

// tell writes the announcement.
func (a *Announcer) tell(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	said, _ := a.Current()
	data, err := json.Marshal(admissionServer{
		APIVersion: "gatehouse.dev/v1alpha1", Kind: "AdmissionServer", Metadata: map[string]string{"name": a.options.Name},
		LifetimeSeconds: int64(a.Lifetime() / time.Second), Announcement: said,
	})
	if err != nil {
		return err
	}
	began := time.Now()
	err = a.options.Main.Put().AbsPath(path, a.options.Name).SetHeader("Content-Type", "application/json").Body(data).Do(ctx).Error()
	if err != nil {
		return err
	}
	a.Renewed(began)
	return nil
}

func (a *Announcer) withdraw(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	if err := a.options.Main.Delete().AbsPath(path, a.options.Name).Do(ctx).Error(); err != nil {
		klog.V(1).InfoS("Could not withdraw the announcement of this server; it will expire", "err", err)
	}
}
