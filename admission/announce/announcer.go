package announce

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/gatehouse-dev/gatehouse/admission/snapshot"
)

// path is the path of AdmissionServers.
const path = "/apis/gatehouse.dev/v1alpha1/admissionservers"

const (
	// timeout bounds one write of the announcement.
	timeout = 2 * time.Second
	// retryAfter is how long the Announcer waits after a failed write.
	retryAfter = 500 * time.Millisecond
)

// Options configure an Announcer.
type Options struct {
	// Main is a client of the main server with permission to update and delete admissionservers of
	// gatehouse.dev. Its group and version do not matter.
	Main rest.Interface
	// Name is unique for this run of this server; no other run of any server may ever use it.
	// Address is the server's address for clients, for people.
	Name, Address string
	// Reports is the group version of the server's admission.Reports, such as
	// gallery.example.com/v1; empty for none.
	Reports string
	// MaxStaleness is the MaxStaleness of the snapshot.Refresher; 0 means 5 s.
	MaxStaleness time.Duration
	// Off are the resources of webhook configurations and policies that the server does not
	// enforce.
	Off []string
}

// Announcer announces a server to the main server. It is safe for concurrent use.
type Announcer struct {
	*Log
	options Options

	mu struct {
		sync.Mutex
		// err is the error of the last write; nil if it succeeded.
		err error
		// announced reports whether a write has succeeded.
		announced bool
	}
}

// New returns an Announcer without an announcement.
func New(o Options) *Announcer {
	o.MaxStaleness = cmp.Or(o.MaxStaleness, 5*time.Second)
	return &Announcer{Log: NewLog(o.Address, o.MaxStaleness, o.Off), options: o}
}

// Covered returns a reader that reads only while an announcement is guaranteed to last as long as
// requests may be evaluated against the result. covers has the contract of Log.Covers. It is called
// before a read: during a read that began without an announcement, a registration could have become
// active without this server.
func Covered(r snapshot.Reader, covers func(begin time.Time) error) snapshot.Reader {
	return covered{r, covers}
}

type covered struct {
	snapshot.Reader
	covers func(time.Time) error
}

// Read implements snapshot.Reader.
func (r covered) Read(ctx context.Context, since snapshot.Version) (snapshot.Registrations, error) {
	begin := time.Now()
	if err := r.covers(begin); err != nil {
		return snapshot.Registrations{}, err
	}
	found, err := r.Reader.Read(ctx, since)
	if err == nil {
		err = r.covers(begin)
	}
	return found, err
}

// Reader returns a reader that fails unless the announcement of this server is guaranteed to last
// as long as requests may be evaluated against the result.
func (a *Announcer) Reader(r snapshot.Reader) snapshot.Reader { return Covered(r, a.Covers) }

// Covers returns an error unless the announcement is guaranteed to last as long as a request may be
// evaluated against a read that began at the given time. The error wraps snapshot.ErrUnannounced,
// so requests that need admission get 503. Covers(time.Now()) is also a readiness check.
func (a *Announcer) Covers(begin time.Time) error {
	if a.Log.Covers(begin) == nil {
		return nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	rejected := apierrors.APIStatus(nil)
	switch err := a.mu.err; {
	case err == nil:
		return fmt.Errorf("%w yet", snapshot.ErrUnannounced)
	case a.mu.announced && !errors.As(err, &rejected):
		// The announcement is renewed as soon as the main server answers again.
		return fmt.Errorf("%w: %w: %v", snapshot.ErrUnannounced, snapshot.ErrUnanswered, err)
	default:
		return fmt.Errorf("%w: %v", snapshot.ErrUnannounced, err)
	}
}

// Announce writes the announcement once. A server need not call Announce, because Run writes it,
// too.
func (a *Announcer) Announce(ctx context.Context) error {
	if err := a.tell(ctx); err != nil {
		return fmt.Errorf("announcing this server to the main one: %w", err)
	}
	return nil
}

// Run announces the server, keeps the announcement up to date until ctx ends, and then withdraws
// it. While the main server does not accept the announcement, Run retries twice a second.
func (a *Announcer) Run(ctx context.Context) {
	period := a.Lifetime() / Renewals
	first := period
	if a.Covers(time.Now()) != nil {
		first = 0
	}
	timer := time.NewTimer(first)
	defer timer.Stop()
	logged := ""
	for {
		select {
		case <-ctx.Done():
			a.withdraw(context.WithoutCancel(ctx))
			return
		case <-a.Changed():
		case <-timer.C:
		}
		next := period
		switch err := a.tell(ctx); {
		case ctx.Err() != nil:
		case err == nil && logged != "":
			klog.InfoS("Announced this server to the main one")
			logged = ""
		case err != nil:
			next = retryAfter
			if a.Covers(time.Now()) != nil && err.Error() != logged {
				klog.ErrorS(err, "Cannot announce this server to the main one; requests that need admission get 503 until the announcement succeeds; will retry")
				logged = err.Error()
			} else {
				klog.V(1).InfoS("Could not announce this server to the main one; will retry", "err", err)
			}
		}
		timer.Reset(next)
	}
}

// admissionServer is the object written by an Announcer.
type admissionServer struct {
	APIVersion string            `json:"apiVersion"`
	Kind       string            `json:"kind"`
	Metadata   map[string]string `json:"metadata"`
	// LifetimeSeconds is the lifetime of the announcement.
	LifetimeSeconds int64 `json:"lifetimeSeconds"`
	Announcement
}

// tell writes the announcement.
func (a *Announcer) tell(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	said, _ := a.Current()
	said.Reports = a.options.Reports
	data, err := json.Marshal(admissionServer{
		APIVersion: "gatehouse.dev/v1alpha1", Kind: "AdmissionServer", Metadata: map[string]string{"name": a.options.Name},
		LifetimeSeconds: int64(a.Lifetime() / time.Second), Announcement: said,
	})
	if err != nil {
		return err
	}
	began := time.Now()
	err = a.options.Main.Put().AbsPath(path, a.options.Name).SetHeader("Content-Type", "application/json").Body(data).Do(ctx).Error()
	a.mu.Lock()
	defer a.mu.Unlock()
	a.mu.err = err
	if err != nil {
		return err
	}
	a.mu.announced = true
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
