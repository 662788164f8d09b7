package announce

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/gatehouse-dev/gatehouse/admission/snapshot"
)

const (
	// minLifetime is the minimum lifetime of an announcement whose server ended without withdrawing
	// it.
	minLifetime = 15 * time.Second
	// Renewals is the number of renewals of an announcement in its lifetime.
	Renewals = 6
	// Remembered is the maximum number of announced Adoptions.
	Remembered = 32
	// MaxStatic is the maximum number of announced objects in manifest files.
	MaxStatic = 1000
	// MaxSkipped is the maximum number of announced webhooks that are not called, and MaxReason the
	// maximum number of bytes of each reason.
	MaxSkipped, MaxReason = 100, 300
)

// Announcement is the report of a server about itself.
type Announcement struct {
	// Address is where clients reach the server, for people.
	Address string `json:"address"`
	// Reports is the group version in whose paths the server serves traces and explanations of its
	// requests, such as gallery.example.com/v1; empty for none.
	Reports string `json:"reports,omitempty"`
	// Adopted are the times at which the server began to use newer registrations, oldest first.
	Adopted []Adoption `json:"adopted,omitempty"`
	// Skipped are the webhooks that the server does not call.
	Skipped []Skipped `json:"skipped,omitempty"`
	// Off are the resources of registrations of which the server enforces nothing.
	Off []string `json:"off,omitempty"`
	// ReadsManifests reports whether the server may have manifest files.
	ReadsManifests bool `json:"readsManifests,omitempty"`
	// Manifests are the hashes of the files, by plugin.
	Manifests map[string]string `json:"manifests,omitempty"`
	// Static are the names of the states of the registrations in the files.
	Static []string `json:"static,omitempty"`
}

// Adoption is the moment from which requests were evaluated against the registrations of a
// revision.
type Adoption struct {
	// Revision is a revision of the main server's store.
	Revision int64 `json:"revision"`
	// At is the time of the adoption.
	At time.Time `json:"at"`
}

// Skipped is a webhook that a server does not call, because the webhook's server
// could not be reached several times in a row.
type Skipped struct {
	// Registration is the name of the state of the webhook's registration.
	Registration string `json:"registration"`
	// Webhook is its name.
	Webhook string `json:"webhook"`
	// Target is the HOST:PORT of its server.
	Target string `json:"target"`
	// Since is when the first call failed, and Reason how a later one did.
	Since  time.Time `json:"since"`
	Reason string    `json:"reason"`
}

// Newest returns the latest adopted revision; 0 if there is none.
func (a *Announcement) Newest() int64 {
	if len(a.Adopted) == 0 {
		return 0
	}
	return a.Adopted[len(a.Adopted)-1].Revision
}

// Since returns the time at which a revision was in use; nil if it was not.
func (a *Announcement) Since(revision int64) *time.Time {
	for i := range a.Adopted {
		if a.Adopted[i].Revision >= revision {
			return &a.Adopted[i].At
		}
	}
	return nil
}

// Log is the announcement of a server, and the time until which it is guaranteed to last. Create it
// with NewLog. It does no I/O, and is safe for concurrent use.
type Log struct {
	address      string
	off          []string
	maxStaleness time.Duration
	changed      chan struct{}

	mu struct {
		sync.Mutex
		adopted []Adoption
		skipped []Skipped
		// local has the manifest files and exclusion rules that the server enforces.
		local *snapshot.Local
		// news counts the changes of the announcement.
		news int64
		// until is the time until which the announcement is guaranteed to last.
		until time.Time
	}
}

// NewLog returns a Log for a server at an address that does not enforce the resources in off.
// maxStaleness bounds the time since the beginning of a read for requests that use its result.
func NewLog(address string, maxStaleness time.Duration, off []string) *Log {
	return &Log{address: address, off: off, maxStaleness: maxStaleness, changed: make(chan struct{}, 1)}
}

// Lifetime returns the lifetime of an announcement without renewal.
func (l *Log) Lifetime() time.Duration { return max(minLifetime, 3*l.maxStaleness) }

// Changed returns a channel that receives a value after a change of the announcement.
func (l *Log) Changed() <-chan struct{} { return l.changed }

// Current returns the announcement and the number of its changes.
func (l *Log) Current() (said Announcement, news int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	static := l.mu.local.Names()
	return Announcement{
		Address: l.address, Adopted: slices.Clone(l.mu.adopted), Skipped: l.mu.skipped, Off: l.off,
		Manifests: l.mu.local.Hashes(), Static: static[:min(len(static), MaxStatic)],
	}, l.mu.news
}

// News returns the number of changes of the announcement.
func (l *Log) News() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mu.news
}

// Observe records the outcome of a read.
func (l *Log) Observe(r snapshot.Read) {
	if r.Err != nil || !r.Changed {
		return
	}
	revision, err := strconv.ParseInt(r.Snapshot.Revision, 10, 64)
	if err != nil {
		return
	}
	l.mu.Lock()
	l.mu.local = r.Snapshot.Local()
	l.mu.adopted = append(l.mu.adopted, Adoption{revision, r.Begin.Add(r.Latency).UTC()})
	if extra := len(l.mu.adopted) - Remembered; extra > 0 {
		l.mu.adopted = append([]Adoption(nil), l.mu.adopted[extra:]...)
	}
	l.mu.news++
	l.mu.Unlock()
	l.poke()
}

// Skip records the webhooks that the server currently does not call. A change of the reasons alone
// is not announced.
func (l *Log) Skip(now []Skipped) {
	now = slices.Clone(now[:min(len(now), MaxSkipped)])
	for i := range now {
		if r := now[i].Reason; len(r) > MaxReason {
			now[i].Reason = strings.ToValidUTF8(r[:MaxReason], "") + "..."
		}
	}
	l.mu.Lock()
	same := slices.EqualFunc(l.mu.skipped, now, func(x, y Skipped) bool {
		return x.Registration == y.Registration && x.Webhook == y.Webhook && x.Target == y.Target && x.Since.Equal(y.Since)
	})
	if !same {
		l.mu.skipped = now
		l.mu.news++
	}
	l.mu.Unlock()
	if !same {
		l.poke()
	}
}

func (l *Log) poke() {
	select {
	case l.changed <- struct{}{}:
	default:
	}
}

// Renewed records that the announcement was made or renewed after the given time.
func (l *Log) Renewed(began time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.until = began.Add(l.Lifetime())
}

// Covers returns an error unless the announcement is guaranteed to last as long as a request may be
// evaluated against a read that began at the given time.
func (l *Log) Covers(begin time.Time) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.until.Before(begin.Add(l.maxStaleness)) {
		// The announcement is renewed as soon as the store answers again.
		return fmt.Errorf("could not renew the announcement of this server, so other servers might not wait for it: %w", snapshot.ErrUnanswered)
	}
	return nil
}
