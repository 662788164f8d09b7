package announce

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"github.com/gatehouse-dev/gatehouse/admission/snapshot"
)

var noon = time.Date(2024, 5, 1, 12, 0, 0, 0, time.UTC)

func TestLifetime(t *testing.T) {
	for stale, want := range map[time.Duration]time.Duration{0: 15 * time.Second, 5 * time.Second: 15 * time.Second, 10 * time.Second: 30 * time.Second} {
		if got := NewLog("a", stale, nil).Lifetime(); got != want {
			t.Errorf("with registrations of %v: %v, want %v", stale, got, want)
		}
	}
	if l := New(Options{}).Lifetime(); l != 15*time.Second {
		t.Errorf("by default: %v", l)
	}
}

// An announcement must outlast the requests that use a read.
func TestCovers(t *testing.T) {
	const stale = 5 * time.Second
	for _, tt := range []struct {
		name string
		read time.Duration // after the last renewal
		want bool
	}{
		{"a read at once", 0, true},
		{"the last read that is covered", 10 * time.Second, true},
		{"one after it", 10*time.Second + 1, false},
		{"one when it has ended", 20 * time.Second, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l := NewLog("a", stale, nil)
			if err := l.Covers(noon); !errors.Is(err, snapshot.ErrUnanswered) {
				t.Errorf("before it was announced: %v", err)
			}
			l.Renewed(noon)
			if err := l.Covers(noon.Add(tt.read)); (err == nil) != tt.want {
				t.Errorf("covered: %v", err)
			}
		})
	}
}

func TestObserve(t *testing.T) {
	read := func(revision string) snapshot.Read {
		return snapshot.Read{Begin: noon, Latency: time.Second, Changed: true, Snapshot: &snapshot.Snapshot{Revision: revision}}
	}
	failed, same := read("3"), read("3")
	failed.Err, same.Changed = errors.New("no answer"), false
	for _, tt := range []struct {
		name string
		r    snapshot.Read
		want int64
	}{
		{"a read is taken in", read("3"), 3},
		{"a read that failed is not", failed, 0},
		{"a read that found nothing new is not", same, 0},
		{"a revision that is no number is not", read("x"), 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l := NewLog("a", 0, []string{"off"})
			l.Observe(tt.r)
			said, news := l.Current()
			if said.Newest() != tt.want || (news > 0) != (tt.want > 0) || news != l.News() || said.Address != "a" || len(said.Off) != 1 {
				t.Errorf("%+v, %d changes", said, news)
			}
			select {
			case <-l.Changed():
				if tt.want == 0 {
					t.Error("the log reports a change")
				}
			default:
				if tt.want > 0 {
					t.Error("the log reports no change")
				}
			}
		})
	}
	l := NewLog("a", 0, nil)
	for revision := int64(1); revision <= 2*Remembered; revision++ {
		r := read(fmt.Sprint(revision * 10))
		r.Begin = noon.Add(time.Duration(revision) * time.Minute)
		l.Observe(r)
	}
	said, _ := l.Current()
	if len(said.Adopted) != Remembered || said.Newest() != 20*Remembered {
		t.Errorf("%d are remembered, the newest is %d", len(said.Adopted), said.Newest())
	}
	// Since is the latest time at which a revision was in use.
	for revision, minute := range map[int64]int{500: 50, 491: 50, 501: 51, 1: Remembered + 1} {
		if at := said.Since(revision); at == nil || !at.Equal(noon.Add(time.Duration(minute)*time.Minute+time.Second)) {
			t.Errorf("revision %d is in force since %v, want minute %d", revision, at, minute)
		}
	}
	if at := said.Since(20*Remembered + 1); at != nil {
		t.Errorf("a revision that was not taken in is in force since %v", at)
	}
}

func TestSkip(t *testing.T) {
	one := Skipped{Registration: "r", Webhook: "w", Target: "t:443", Since: noon, Reason: "refused"}
	with := func(edit func(*Skipped)) []Skipped {
		s := one
		edit(&s)
		return []Skipped{s}
	}
	for _, tt := range []struct {
		name string
		next []Skipped
		news bool
	}{
		{"the same", []Skipped{one}, false},
		{"another reason is no news", with(func(s *Skipped) { s.Reason = "reset" }), false},
		{"another server", with(func(s *Skipped) { s.Target = "u:443" }), true},
		{"another webhook", with(func(s *Skipped) { s.Webhook = "v" }), true},
		{"another registration", with(func(s *Skipped) { s.Registration = "q" }), true},
		{"since another time", with(func(s *Skipped) { s.Since = noon.Add(1) }), true},
		{"none any more", nil, true},
		{"two", []Skipped{one, one}, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l := NewLog("a", 0, nil)
			l.Skip([]Skipped{one})
			<-l.Changed()
			l.Skip(tt.next)
			said, news := l.Current()
			if (news == 2) != tt.news || (len(l.Changed()) > 0) != tt.news {
				t.Errorf("the log has %d changes and reports %d", news, len(l.Changed()))
			}
			if !tt.news && said.Skipped[0].Reason != one.Reason {
				t.Errorf("the reason is now %q", said.Skipped[0].Reason)
			}
		})
	}
	l := NewLog("a", 0, nil)
	many := make([]Skipped, MaxSkipped+1)
	many[0].Reason = strings.Repeat("x", MaxReason-1) + "é and more"
	many[1].Reason = strings.Repeat("x", MaxReason)
	l.Skip(many)
	said, _ := l.Current()
	if len(said.Skipped) != MaxSkipped || said.Skipped[0].Reason != strings.Repeat("x", MaxReason-1)+"..." || said.Skipped[1].Reason != many[1].Reason {
		t.Errorf("the log lists %d skipped registrations, the first for %q", len(said.Skipped), said.Skipped[0].Reason)
	}
	if many[0].Reason == said.Skipped[0].Reason {
		t.Error("the caller's list was changed")
	}
}

// mainServer records its requests.
type mainServer struct {
	mu     sync.Mutex
	fails  bool
	bodies []map[string]any
	asked  chan string
}

func (m *mainServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var body map[string]any
	_ = json.NewDecoder(r.Body).Decode(&body)
	m.bodies = append(m.bodies, body)
	if m.fails {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusInternalServerError)
		fmt.Fprint(w, `{"apiVersion":"v1","kind":"Status","status":"Failure","code":500,"reason":"InternalError","message":"failed calling webhook \"all\""}`)
	}
	m.asked <- r.Method + " " + r.URL.Path
}

func (m *mainServer) set(fails bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.fails = fails
}

func announcer(t *testing.T) (*Announcer, *mainServer) {
	m := &mainServer{asked: make(chan string, 100)}
	s := httptest.NewServer(m)
	t.Cleanup(s.Close)
	client, err := rest.RESTClientFor(&rest.Config{Host: s.URL, ContentConfig: rest.ContentConfig{
		GroupVersion: &schema.GroupVersion{Version: "v1"}, NegotiatedSerializer: scheme.Codecs.WithoutConversion(),
	}})
	if err != nil {
		t.Fatal(err)
	}
	return New(Options{Main: client, Name: "run-1", Address: "https://a", Off: []string{"x"}}), m
}

func TestAnAnnouncementIsMadeRenewedAndWithdrawn(t *testing.T) {
	a, m := announcer(t)
	if err := a.Announce(t.Context()); err != nil {
		t.Fatal(err)
	}
	const place = " /apis/gatehouse.dev/v1alpha1/admissionservers/run-1"
	if got := <-m.asked; got != "PUT"+place {
		t.Errorf("asked %s", got)
	}
	if err := a.Covers(time.Now()); err != nil {
		t.Errorf("it is not covered: %v", err)
	}
	if b := m.bodies[0]; b["kind"] != "AdmissionServer" || b["lifetimeSeconds"] != float64(15) || b["address"] != "https://a" {
		t.Errorf("the announcement is %v", b)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); a.Run(ctx) }()
	a.Skip([]Skipped{{Registration: "r"}})
	if got := <-m.asked; got != "PUT"+place {
		t.Errorf("after a change, asked %s", got)
	}
	cancel()
	<-done
	if got := <-m.asked; got != "DELETE"+place {
		t.Errorf("at the end, asked %s", got)
	}
}

// S22.20: without an announcement the main server would not wait for this server, so nothing is
// read, and requests get 503.
func TestNothingIsReadWithoutAnAnnouncement(t *testing.T) {
	a, m := announcer(t)
	read := 0
	reads := a.Reader(readerFunc(func() { read++ }))
	if _, err := reads.Read(t.Context(), ""); !errors.Is(err, snapshot.ErrUnannounced) || read != 0 {
		t.Errorf("before the announcement: %d reads, %v", read, err)
	}
	m.set(true)
	if err := a.Announce(t.Context()); err == nil || !strings.HasPrefix(err.Error(), "announcing this server to the main one: ") {
		t.Errorf("an announcement that failed: %v", err)
	}
	_, err := reads.Read(t.Context(), "")
	if !errors.Is(err, snapshot.ErrUnannounced) || errors.Is(err, snapshot.ErrUnanswered) || !strings.Contains(err.Error(), `failed calling webhook "all"`) || read != 0 {
		t.Errorf("after an announcement that was rejected: %d reads, %v", read, err)
	}
	status := (&snapshot.NotReadyError{Err: err}).Status()
	if status.Code != http.StatusServiceUnavailable || status.Reason != metav1.StatusReasonServiceUnavailable || status.Details.RetryAfterSeconds != 1 || !strings.Contains(status.Message, "not announced") {
		t.Errorf("a request gets %+v", status)
	}
	m.set(false)
	if err := a.Announce(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := reads.Read(t.Context(), ""); err != nil || read != 1 {
		t.Errorf("after the announcement: %d reads, %v", read, err)
	}
}

// A registration that becomes active during the read would not wait for this server, which the main
// server does not know yet.
func TestAReadThatBeganWithoutAnAnnouncementDoesNotCount(t *testing.T) {
	l := NewLog("a", time.Second, nil)
	reads := Covered(readerFunc(func() { l.Renewed(time.Now()) }), l.Covers)
	if _, err := reads.Read(t.Context(), ""); err == nil {
		t.Error("the read counts")
	}
	l.Renewed(time.Now())
	if _, err := reads.Read(t.Context(), ""); err != nil {
		t.Errorf("a read that began with the announcement: %v", err)
	}
	lost := Covered(readerFunc(func() { l.Renewed(time.Now().Add(-time.Hour)) }), l.Covers)
	if _, err := lost.Read(t.Context(), ""); err == nil {
		t.Error("a read counts whose announcement ended")
	}
}

// An older main server calls webhooks for announcements. A webhook that is down rejects them, and
// this server recovers when the webhook does, including in strict mode.
func TestAServerRecoversWithTheWebhookOfTheMainServer(t *testing.T) {
	for _, strict := range []bool{false, true} {
		t.Run(fmt.Sprintf("strict %v", strict), func(t *testing.T) {
			a, m := announcer(t)
			m.set(true)
			r, err := snapshot.NewRefresher(snapshot.Options{Reader: a.Reader(reading{}), Interval: 10 * time.Millisecond, Strict: strict})
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			var running sync.WaitGroup
			running.Go(func() { a.Run(ctx) })
			running.Go(func() { _ = r.Run(ctx) })
			t.Cleanup(func() { cancel(); running.Wait() })
			for range 2 {
				<-m.asked
			}
			short, end := context.WithTimeout(t.Context(), 50*time.Millisecond)
			defer end()
			_, err = r.Acquire(short, snapshot.Subject{})
			refusal := apierrors.APIStatus(nil)
			if !errors.As(err, &refusal) || refusal.Status().Code != http.StatusServiceUnavailable || r.Current() != nil {
				t.Errorf("a request got %v by %v", err, r.Current())
			}
			m.set(false)
			if err := r.Await(t.Context(), func(*snapshot.Snapshot) bool { return true }); err != nil {
				t.Fatal(err)
			}
			if _, err := r.Acquire(t.Context(), snapshot.Subject{}); err != nil {
				t.Errorf("after the webhook recovered: %v", err)
			}
		})
	}
}

type readerFunc func()

func (f readerFunc) Read(context.Context, snapshot.Version) (snapshot.Registrations, error) {
	f()
	return snapshot.Registrations{}, nil
}

type reading struct{}

func (reading) Read(context.Context, snapshot.Version) (snapshot.Registrations, error) {
	return snapshot.Registrations{}, nil
}
