package snapshot

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/gatehouse-dev/gatehouse/admission/registration"
)

// store is a store of registrations, and a Reader.
type store struct {
	mu struct {
		sync.Mutex
		registrations Registrations
		err           error
		hangs         bool
		begun         []time.Time
	}
}

func (s *store) Read(ctx context.Context, since Version) (Registrations, error) {
	s.mu.Lock()
	s.mu.begun = append(s.mu.begun, time.Now())
	r, err, hangs := s.mu.registrations, s.mu.err, s.mu.hangs
	s.mu.Unlock()
	if hangs {
		<-ctx.Done()
		return Registrations{}, ctx.Err()
	}
	if since != "" && since == r.Version {
		return Registrations{Version: since, Unchanged: true, Revision: r.Revision}, err
	}
	return r, err
}

// set changes the behaviour of the store.
func (s *store) set(f func(r *Registrations, err *error, hangs *bool)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f(&s.mu.registrations, &s.mu.err, &s.mu.hangs)
}

func (s *store) put(version Version, webhooks ...string) {
	s.set(func(r *Registrations, _ *error, _ *bool) {
		*r = Registrations{Version: version, Objects: []runtime.Object{configuration("c", "u", string(version), webhooks...)}}
	})
}

func (s *store) fail(err error) { s.set(func(_ *Registrations, e *error, _ *bool) { *e = err }) }
func (s *store) hang(hangs bool) {
	s.set(func(_ *Registrations, _ *error, h *bool) { *h = hangs })
}

var (
	pods    = schema.GroupResource{Resource: "pods"}
	subject = Subject{registration.Validating, pods, admission.Create}
)

// running runs f in a synctest bubble with simulated time and a Refresher that reads from a store
// with one webhook.
func running(t *testing.T, o Options, f func(*testing.T, *store, *Refresher)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := &store{}
		s.put("1", "one")
		o.Reader = s
		r, err := NewRefresher(o)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- r.Run(ctx) }()
		synctest.Wait()
		f(t, s, r)
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("Run returned %v", err)
		}
	})
}

// acquire returns the names of the webhooks in the acquired snapshot, or the error, and the waiting
// time.
func acquire(t *testing.T, r *Refresher) (hooks []string, waited time.Duration, err error) {
	t.Helper()
	start := time.Now()
	s, err := r.Acquire(t.Context(), subject)
	if s != nil {
		hooks = names(s.Entries(registration.Validating))
	}
	return hooks, time.Since(start), err
}

func TestRegistrationsAreReadEverySecond(t *testing.T) {
	running(t, Options{}, func(t *testing.T, s *store, r *Refresher) {
		start := time.Now()
		s.put("2", "one", "two")
		time.Sleep(time.Second)
		synctest.Wait()
		if hooks, waited, err := acquire(t, r); !slices.Equal(hooks, []string{"c/one", "c/two"}) || waited > 0 || err != nil {
			t.Errorf("S11.8 after a second: %v, %v, %v", hooks, waited, err)
		}
		time.Sleep(9*time.Second + time.Millisecond)
		synctest.Wait()
		s.mu.Lock()
		defer s.mu.Unlock()
		for i, b := range s.mu.begun {
			if at := b.Sub(start); at != time.Duration(i)*time.Second {
				t.Errorf("S11.8 read %d began after %v", i, at)
			}
		}
		if len(s.mu.begun) != 11 {
			t.Errorf("S11.8 %d reads", len(s.mu.begun))
		}
	})
}

// Requests wait for the next successful read (S11.13), so failed reads are repeated sooner.
func TestReadsThatFailAreTriedAgainSoon(t *testing.T) {
	running(t, Options{}, func(t *testing.T, s *store, r *Refresher) {
		start := time.Now()
		s.fail(errors.New("etcd is away"))
		time.Sleep(1600 * time.Millisecond)
		s.fail(nil)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		s.mu.Lock()
		defer s.mu.Unlock()
		var begun []time.Duration
		for _, b := range s.mu.begun {
			begun = append(begun, b.Sub(start))
		}
		const ms = time.Millisecond
		if want := []time.Duration{0, 1000 * ms, 1250 * ms, 1500 * ms, 1750 * ms, 2750 * ms}; !slices.Equal(begun, want) {
			t.Errorf("reads began at %v, want %v", begun, want)
		}
	})
}

func TestUnchangedRegistrationsAreNotCompiled(t *testing.T) {
	var changes []bool
	observe := func(r Read) { changes = append(changes, r.Changed) }
	running(t, Options{Observer: observe}, func(t *testing.T, s *store, r *Refresher) {
		first := r.Current()
		time.Sleep(time.Second)
		synctest.Wait()
		second := r.Current()
		if second.Entries(registration.Validating)[0] != first.Entries(registration.Validating)[0] || !second.ReadAt.After(first.ReadAt) {
			t.Error("S2.37 the second snapshot is not the first one, read later")
		}
		s.put("2", "two")
		time.Sleep(time.Second)
		synctest.Wait()
		if diff := cmp.Diff([]bool{true, false, true}, changes); diff != "" {
			t.Errorf("changes (-want +got):\n%s", diff)
		}
	})
}

func TestOneFailedReadChangesNothing(t *testing.T) {
	running(t, Options{}, func(t *testing.T, s *store, r *Refresher) {
		s.fail(errors.New("etcd is away"))
		time.Sleep(4900 * time.Millisecond)
		if hooks, waited, err := acquire(t, r); len(hooks) != 1 || waited > 0 || err != nil {
			t.Errorf("S11.9 %v, %v, %v", hooks, waited, err)
		}
	})
}

// After a pause of the process, the snapshot is old and no read has failed. A new request then
// waits for a sufficiently recent read, successful or failed. S11.9.
func TestAfterAPauseARequestWaitsForARead(t *testing.T) {
	const ms = time.Millisecond
	away := errors.New("etcd is away")
	for _, c := range []struct {
		name string
		// pause is the time from the last read to the request.
		pause time.Duration
		// early makes Run begin a read right before the pause, with the state of that moment.
		early bool
		// takes is the duration of a read after the pause, and err its error.
		takes  time.Duration
		err    error
		judged string
		waited time.Duration
		fails  bool
	}{
		{name: "the last read is young enough", pause: 1250 * ms, takes: 10 * ms, judged: "c/before"},
		{name: "a read answers", pause: 1251 * ms, takes: 10 * ms, judged: "c/after", waited: 10 * ms},
		{name: "a read answers after a longer pause", pause: 3 * time.Second, takes: 10 * ms, judged: "c/after", waited: 10 * ms},
		{name: "a read answers that began before the pause", pause: 3 * time.Second, early: true, takes: 10 * ms, judged: "c/after", waited: 10 * ms},
		{name: "a read fails", pause: 3 * time.Second, takes: 10 * ms, err: away, judged: "c/before", waited: 10 * ms},
		{name: "a read fails for lack of an answer", pause: 3 * time.Second, takes: 10 * ms, err: ErrUnanswered, judged: "c/before", waited: 10 * ms},
		{name: "a read does not end in its time", pause: 1500 * ms, takes: time.Hour, judged: "c/before", waited: 2 * time.Second},
		{name: "S11.10 a read fails after the maximum staleness", pause: 6 * time.Second, takes: 10 * ms, err: away, waited: 4 * time.Second, fails: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &slowStore{}
				s.put("1", "before")
				r, err := NewRefresher(Options{Reader: s})
				if err != nil {
					t.Fatal(err)
				}
				if _, err := r.refresh(t.Context(), &Compiler{}, "", time.Now()); err != nil {
					t.Fatal(err)
				}
				if c.early {
					// The process finds the read's answer after the pause.
					r.attempts.answers <- attempt{begin: time.Now().Add(ms), found: s.mu.registrations, cancel: func() {}}
				}
				time.Sleep(c.pause)
				s.put("2", "after")
				s.took = c.takes
				s.fail(c.err)
				ctx, cancel := context.WithCancel(t.Context())
				done := make(chan error)
				go func() { done <- r.Run(ctx) }()
				hooks, waited, err := acquire(t, r)
				if got := strings.Join(hooks, " "); got != c.judged || waited != c.waited || (err != nil) != c.fails {
					t.Errorf("S11.9 judged by %q after %s: %v", got, waited, err)
				}
				cancel()
				<-done
			})
		})
	}
}

// script is a Reader that gives one answer after the other, and records the versions that it was
// called with.
type script struct {
	answers []func() (Registrations, error)
	since   []Version
}

func (s *script) Read(_ context.Context, since Version) (Registrations, error) {
	s.since = append(s.since, since)
	return s.answers[len(s.since)-1]()
}

// If changes do not fit the compiled registrations, the Refresher reads everything, and again if
// that read fails.
func TestAfterChangesThatDoNotFitEverythingIsRead(t *testing.T) {
	all := func(version Version, hooks ...string) func() (Registrations, error) {
		return func() (Registrations, error) {
			return Registrations{Version: version, Objects: []runtime.Object{configuration("c", "u", string(version), hooks...)}}, nil
		}
	}
	s := &script{answers: []func() (Registrations, error){
		all("1", "one"),
		func() (Registrations, error) {
			return Registrations{Version: "2", Partial: true, Kept: []Kept{{registration.Validating, "c", "another"}}}, nil
		},
		func() (Registrations, error) { return Registrations{}, errors.New("away") },
		all("2", "two"),
	}}
	r, err := NewRefresher(Options{Reader: s})
	if err != nil {
		t.Fatal(err)
	}
	var compiler Compiler
	var version Version
	for _, fails := range []bool{false, true, false} {
		if version, err = r.refresh(t.Context(), &compiler, version, time.Now()); (err != nil) != fails {
			t.Fatalf("the error is %v", err)
		}
	}
	if diff := cmp.Diff([]Version{"", "1", "", ""}, s.since); diff != "" {
		t.Errorf("the reads compare with other versions (-want +got):\n%s", diff)
	}
	if got := names(r.Current().Entries(registration.Validating)); !slices.Equal(got, []string{"c/two"}) {
		t.Errorf("the hooks are %v", got)
	}
}

// If the rest of the registrations cannot be read, everything is read again, and the current
// snapshot stays in use.
func TestAfterARestThatFailsEverythingIsRead(t *testing.T) {
	rest := func(err error) func() (Registrations, error) {
		return func() (Registrations, error) {
			return Registrations{Version: "2", Objects: []runtime.Object{configuration("c", "u", "2", "two")}, Rest: func(_ context.Context, take func([]runtime.Object)) error {
				take([]runtime.Object{configuration("d", "v", "2", "more")})
				return err
			}}, nil
		}
	}
	s := &script{answers: []func() (Registrations, error){
		func() (Registrations, error) {
			return Registrations{Version: "1", Objects: []runtime.Object{configuration("c", "u", "1", "one")}}, nil
		},
		rest(errors.New("away")), rest(nil),
	}}
	r, err := NewRefresher(Options{Reader: s})
	if err != nil {
		t.Fatal(err)
	}
	var compiler Compiler
	var version Version
	for i, want := range [][]string{{"c/one"}, {"c/one"}, {"c/two", "d/more"}} {
		if version, err = r.refresh(t.Context(), &compiler, version, time.Now()); (err != nil) != (i == 1) {
			t.Fatalf("read %d: the error is %v", i, err)
		}
		if got := names(r.Current().Entries(registration.Validating)); !slices.Equal(got, want) {
			t.Errorf("after read %d the hooks are %v", i, got)
		}
	}
	if diff := cmp.Diff([]Version{"", "1", ""}, s.since); diff != "" {
		t.Errorf("the reads compare with other versions (-want +got):\n%s", diff)
	}
}

func TestStaleSnapshotsAreRefused(t *testing.T) {
	for _, tt := range []struct {
		name   string
		damage func(*store)
		cause  string
	}{
		{"S11.10 reads fail", func(s *store) { s.fail(errors.New("etcd is away")) }, "etcd is away"},
		{"S11.10 reads hang", func(s *store) { s.hang(true) }, "context deadline exceeded"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			running(t, Options{}, func(t *testing.T, s *store, r *Refresher) {
				tt.damage(s)
				time.Sleep(5*time.Second + time.Millisecond)
				_, waited, err := acquire(t, r)
				var refused *NotReadyError
				if !errors.As(err, &refused) || waited != 4*time.Second {
					t.Fatalf("S11.13 waited %v and got %v", waited, err)
				}
				if refused.Never || refused.Since.IsZero() || refused.Err == nil || refused.Err.Error() != tt.cause {
					t.Errorf("facts: %+v", refused)
				}
				if _, waited, err := acquire(t, r); err == nil || waited > 0 {
					t.Errorf("S11.13 a later request waited %v and got %v", waited, err)
				}
				s.fail(nil)
				s.hang(false)
				time.Sleep(4 * time.Second)
				if _, waited, err := acquire(t, r); err != nil || waited > 0 {
					t.Errorf("S11.10 after recovery: waited %v and got %v", waited, err)
				}
			})
		})
	}
}

// S11.10: staleness counts from the beginning of a read, so slow successful reads do not help.
func TestSlowReadsGiveOldSnapshots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, err := NewRefresher(Options{Reader: slow(6 * time.Second), readTimeout: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go r.Run(ctx)
		time.Sleep(6*time.Second + time.Millisecond)
		synctest.Wait()
		if r.Current() == nil {
			t.Fatal("nothing was read")
		}
		if s, err := r.Acquire(ctx, subject); err == nil {
			t.Errorf("a snapshot of %v is usable at %v", s.ReadAt, time.Now())
		}
	})
}

type slow time.Duration

func (s slow) Read(ctx context.Context, _ Version) (Registrations, error) {
	select {
	case <-time.After(time.Duration(s)):
		return Registrations{}, nil
	case <-ctx.Done():
		return Registrations{}, ctx.Err()
	}
}

func TestAcquireIsWokenByTheNextSuccess(t *testing.T) {
	running(t, Options{}, func(t *testing.T, s *store, r *Refresher) {
		s.fail(errors.New("etcd is away"))
		time.Sleep(5400 * time.Millisecond)
		s.fail(nil)
		if hooks, waited, err := acquire(t, r); len(hooks) != 1 || waited != 100*time.Millisecond || err != nil {
			t.Errorf("S11.13 %v, %v, %v", hooks, waited, err)
		}
	})
}

func TestBeforeTheFirstReadRequestsWait(t *testing.T) {
	for _, tt := range []struct {
		name       string
		repair     time.Duration
		wantWaited time.Duration
		wantErr    bool
	}{
		{"S11.13 the first success ends the wait", 1600 * time.Millisecond, 1750 * time.Millisecond, false},
		{"S11.13 about four seconds", 10 * time.Second, 4 * time.Second, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &store{}
				s.fail(errors.New("etcd is away"))
				r, err := NewRefresher(Options{Reader: s})
				if err != nil {
					t.Fatal(err)
				}
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				go r.Run(ctx)
				time.AfterFunc(tt.repair, func() { s.fail(nil) })
				_, waited, err := acquire(t, r)
				if waited != tt.wantWaited || (err != nil) != tt.wantErr {
					t.Errorf("waited %v and got %v", waited, err)
				}
				var refused *NotReadyError
				if errors.As(err, &refused) && !refused.Never {
					t.Errorf("facts: %+v", refused)
				}
			})
		})
	}
}

func TestAcquireEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, err := NewRefresher(Options{Reader: &store{}})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start := time.Now()
		// A tenth of the time is reserved for the response.
		if _, err := r.Acquire(ctx, subject); err == nil || time.Since(start) != 900*time.Millisecond {
			t.Errorf("waited %v and got %v", time.Since(start), err)
		}
	})
}

func TestDisabledKindsDoNotHoldRequestsUp(t *testing.T) {
	running(t, Options{}, func(t *testing.T, s *store, r *Refresher) {
		s.set(func(r *Registrations, _ *error, _ *bool) {
			*r = Registrations{Disabled: []string{registration.InitializerKind}}
		})
		time.Sleep(time.Second)
		synctest.Wait()
		if hooks, waited, err := acquire(t, r); len(hooks) > 0 || waited > 0 || err != nil {
			t.Errorf("S11.12 %v, %v, %v", hooks, waited, err)
		}
		if got := r.Current().Disabled; !slices.Equal(got, []string{registration.InitializerKind}) {
			t.Errorf("S11.12 disabled: %v", got)
		}
	})
}

func TestPokeReadsNow(t *testing.T) {
	running(t, Options{}, func(t *testing.T, s *store, r *Refresher) {
		time.Sleep(300 * time.Millisecond)
		s.put("2", "two")
		r.Poke()
		r.Poke()
		synctest.Wait()
		if hooks, _, err := acquire(t, r); !slices.Equal(hooks, []string{"c/two"}) || err != nil {
			t.Errorf("%v, %v", hooks, err)
		}
	})
}

func TestStrictSeesEveryWriteBeforeTheRequest(t *testing.T) {
	running(t, Options{Strict: true}, func(t *testing.T, s *store, r *Refresher) {
		for i, webhook := range []string{"two", "three", "four"} {
			time.Sleep(10 * time.Millisecond)
			s.put(Version(webhook), webhook)
			if hooks, waited, err := acquire(t, r); !slices.Equal(hooks, []string{"c/" + webhook}) || waited > 0 || err != nil {
				t.Errorf("request %d: %v, %v, %v", i, hooks, waited, err)
			}
		}
		s.fail(errors.New("etcd is away"))
		time.Sleep(10 * time.Millisecond)
		if _, waited, err := acquire(t, r); err == nil || waited != 4*time.Second {
			t.Errorf("without a read: waited %v and got %v", waited, err)
		}
	})
}

// A request that arrives during a read waits for the next one, because the running read may have
// begun before a later acknowledged write. All requests that arrive in the meantime share the next
// read.
func TestStrictWavesDoNotShareAReadUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const took = 100 * time.Millisecond
		s := &slowStore{took: took}
		s.put("1", "one")
		r, err := NewRefresher(Options{Reader: s, Strict: true})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go r.Run(ctx)
		time.Sleep(took + time.Millisecond)
		start := time.Now()
		var waves sync.WaitGroup
		for i, c := range []struct{ begins, want time.Duration }{
			{0, took}, {30 * time.Millisecond, 2*took - 30*time.Millisecond}, {60 * time.Millisecond, 2*took - 60*time.Millisecond}, {90 * time.Millisecond, 2*took - 90*time.Millisecond},
		} {
			waves.Go(func() {
				time.Sleep(c.begins)
				version := "w" + strconv.Itoa(i)
				s.put(Version(version), version)
				hooks, waited, err := acquire(t, r)
				if err != nil || waited != c.want || len(hooks) != 1 || hooks[0] < "c/"+version {
					t.Errorf("request at %v: %v after %v, want %v: %v", c.begins, hooks, waited, c.want, err)
				}
			})
		}
		waves.Wait()
		s.mu.Lock()
		defer s.mu.Unlock()
		reads := 0
		for _, begun := range s.mu.begun {
			if !begun.Before(start) {
				reads++
			}
		}
		if reads != 2 {
			t.Errorf("%d reads for four requests in two waves", reads)
		}
	})
}

// slowStore is a store that answers with the state at the beginning of the read.
type slowStore struct {
	store
	took time.Duration
}

func (s *slowStore) Read(ctx context.Context, since Version) (Registrations, error) {
	found, err := s.store.Read(ctx, since)
	select {
	case <-time.After(s.took):
	case <-ctx.Done():
	}
	return found, err
}

// The passes of one request share the snapshot for which the first one waited.
func TestStrictCountsFromWhenTheRequestWasReceived(t *testing.T) {
	running(t, Options{Strict: true}, func(t *testing.T, s *store, r *Refresher) {
		time.Sleep(10 * time.Millisecond)
		ctx := request.WithReceivedTimestamp(t.Context(), time.Now())
		for range 3 {
			if _, err := r.Acquire(ctx, subject); err != nil {
				t.Fatal(err)
			}
			time.Sleep(10 * time.Millisecond)
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		if len(s.mu.begun) != 2 {
			t.Errorf("%d reads, want the first one and one for the request", len(s.mu.begun))
		}
	})
}

func TestNewRefresherChecksItsOptions(t *testing.T) {
	for _, o := range []Options{{}, {Reader: &store{}, Interval: 5 * time.Second}, {Reader: &store{}, Interval: -1}} {
		if _, err := NewRefresher(o); err == nil {
			t.Errorf("%+v is accepted", o)
		}
	}
}

// S11.11: clients get these responses.
func TestNotReadyStatus(t *testing.T) {
	away := errors.New("etcd is away")
	since := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for _, tt := range []struct {
		name                   string
		err                    NotReadyError
		message, detail, cause string
	}{
		{"S11.11 initializers, never read", NotReadyError{Subject: Subject{Source: registration.Initializing}, Never: true}, "Waiting for initialization configuration to load: configuration is not ready", "create", "InitializerConfigurationPending"},
		{"S11.11 initializers, failing", NotReadyError{Subject: Subject{Source: registration.Initializing}, Err: away}, "Unable to refresh the initializer configuration: etcd is away", "create", "InitializerConfigurationFailure"},
		{"S11.11 external hooks", NotReadyError{Subject: Subject{Source: registration.External, Operation: admission.Delete}, Err: away}, "Unable to refresh the ExternalAdmissionHook configuration: etcd is away", "DELETE", "ExternalAdmissionHookConfigurationFailure"},
		{"S11.11 mutating webhooks", NotReadyError{Subject: Subject{Source: registration.Mutating, Operation: admission.Update}, Err: away}, "Unable to refresh the Webhook configuration: etcd is away", "UPDATE", "MutatingWebhookConfigurationFailure"},
		{"S11.11 validating webhooks, never read", NotReadyError{Subject: Subject{Source: registration.Validating, Operation: admission.Create}, Never: true}, "Unable to refresh the Webhook configuration: configuration is not ready", "CREATE", "ValidatingWebhookConfigurationFailure"},
		{"S11.11 a read that does not end", NotReadyError{Subject: Subject{Source: registration.Validating, Operation: admission.Create}, Since: since}, "Unable to refresh the Webhook configuration: no read that began after 2026-01-02T03:04:05Z has succeeded", "CREATE", "ValidatingWebhookConfigurationFailure"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tt.err.Subject.Resource = schema.GroupResource{Group: "apps", Resource: "deployments"}
			var status apierrors.APIStatus
			if !errors.As(error(&tt.err), &status) {
				t.Fatal("the error is no API status")
			}
			got := status.Status()
			if len(got.Details.Causes) != 1 || got.Details.Causes[0].Message == "" {
				t.Fatalf("causes: %+v", got.Details.Causes)
			}
			got.Details.Causes[0].Message = ""
			want := metav1.Status{
				Status: metav1.StatusFailure, Code: http.StatusInternalServerError, Reason: "LoadingConfiguration", Message: tt.message,
				Details: &metav1.StatusDetails{
					Group: "apps", Kind: "deployments", Name: tt.detail, RetryAfterSeconds: 1,
					Causes: []metav1.StatusCause{{Type: metav1.CauseType(tt.cause)}},
				},
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("status (-want +got):\n%s", diff)
			}
			if seconds, ok := apierrors.SuggestsClientDelay(&tt.err); !ok || seconds != 1 {
				t.Errorf("clients do not try again: %v, %v", seconds, ok)
			}
		})
	}
}

func BenchmarkAcquire(b *testing.B) {
	r, err := NewRefresher(Options{Reader: &store{}})
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	go r.Run(ctx)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := r.Acquire(ctx, subject); err != nil {
			b.Fatal(err)
		}
	}
}

// TestAwait proves S11.8 for callers that wait for a known write.
func TestAwait(t *testing.T) {
	hooks := func(n int) func(*Snapshot) bool {
		return func(s *Snapshot) bool { return len(s.Entries(registration.Validating)) == n }
	}
	running(t, Options{}, func(t *testing.T, s *store, r *Refresher) {
		await := func(enough func(*Snapshot) bool) (time.Duration, error) {
			began := time.Now()
			limited, cancel := context.WithTimeout(t.Context(), 3*time.Second)
			defer cancel()
			err := r.Await(limited, enough)
			return time.Since(began), err
		}
		reads := func() int {
			s.mu.Lock()
			defer s.mu.Unlock()
			return len(s.mu.begun)
		}
		if waited, err := await(hooks(1)); waited > 0 || err != nil || reads() != 1 {
			t.Errorf("what is in use: %s, %v, %d reads", waited, err, reads())
		}
		s.put("2", "one", "two")
		if waited, err := await(hooks(2)); waited > 0 || err != nil || reads() != 2 {
			t.Errorf("what is stored: %s, %v, %d reads", waited, err, reads())
		}
		if waited, err := await(hooks(3)); waited != 3*time.Second || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("what is not: %s, %v", waited, err)
		}
		away := errors.New("etcd is away")
		s.fail(away)
		if waited, err := await(hooks(3)); waited != 3*time.Second || !errors.Is(err, away) {
			t.Errorf("what cannot be read: %s, %v", waited, err)
		}
	})
}

func TestAwaitEndsWithRun(t *testing.T) {
	r, err := NewRefresher(Options{Reader: &store{}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_ = r.Run(ctx)
	if err := r.Await(t.Context(), func(*Snapshot) bool { return false }); !errors.Is(err, errOver) {
		t.Errorf("got %v", err)
	}
}

// belated is a Reader whose answers take some time, unless they are too late.
type belated struct {
	takes func(begun int) time.Duration
	mu    sync.Mutex
	begun int
}

func (b *belated) Read(ctx context.Context, _ Version) (Registrations, error) {
	b.mu.Lock()
	b.begun++
	takes := b.takes(b.begun)
	b.mu.Unlock()
	select {
	case <-time.After(takes):
		return Registrations{Version: "1", Unchanged: false}, nil
	case <-ctx.Done():
		return Registrations{}, ctx.Err()
	}
}

// A store that answers late, later than a read's timeout and than the maximum age of a snapshot,
// does not fail a request with enough time. S11.13.
func TestAStoreThatAnswersLateIsWaitedFor(t *testing.T) {
	for _, c := range []struct {
		name string
		// takes is the duration of each read.
		takes func(begun int) time.Duration
		// asks is the time of the request, and has its time limit, 0 for no limit.
		asks, has time.Duration
		strict    bool
		// waits is the maximum waiting time.
		waits time.Duration
		err   bool
	}{
		{"at the start", func(int) time.Duration { return 6 * time.Second }, 0, 34 * time.Second, false, 9 * time.Second, false},
		{"each read takes long", func(n int) time.Duration { return map[bool]time.Duration{false: 7 * time.Second}[n == 1] }, 6 * time.Second, 34 * time.Second, false, 15 * time.Second, false},
		{"each read takes long, strict", func(n int) time.Duration { return map[bool]time.Duration{false: 7 * time.Second}[n == 1] }, 6 * time.Second, 34 * time.Second, true, 15 * time.Second, false},
		{"some answers are lost", func(n int) time.Duration { return map[bool]time.Duration{true: time.Hour}[n > 1 && n < 6] }, 6 * time.Second, 34 * time.Second, false, 15 * time.Second, false},
		{"there is no answer", func(n int) time.Duration { return map[bool]time.Duration{true: time.Hour}[n > 1] }, 6 * time.Second, 34 * time.Second, false, 33500 * time.Millisecond, true},
		{"there is no answer, and little time", func(n int) time.Duration { return map[bool]time.Duration{true: time.Hour}[n > 1] }, 6 * time.Second, 3 * time.Second, false, 2700 * time.Millisecond, true},
		{"there is no answer, and no limit", func(n int) time.Duration { return map[bool]time.Duration{true: time.Hour}[n > 1] }, 6 * time.Second, 0, false, 4 * time.Second, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r, err := NewRefresher(Options{Reader: &belated{takes: c.takes}, Strict: c.strict})
				if err != nil {
					t.Fatal(err)
				}
				ctx, cancel := context.WithCancel(t.Context())
				ended := make(chan error)
				go func() { ended <- r.Run(ctx) }()
				time.Sleep(c.asks)
				asked := time.Now()
				asking, stop := t.Context(), context.CancelFunc(func() {})
				if c.has > 0 {
					asking, stop = context.WithTimeout(asking, c.has)
				}
				s, err := r.Acquire(asking, subject)
				stop()
				waited := time.Since(asked)
				if (err != nil) != c.err || waited > c.waits || c.err && waited != c.waits {
					t.Errorf("S11.13 waited %v and got %v", waited, err)
				}
				if s != nil && s.ReadAt.Before(asked) && asked.Sub(s.ReadAt) > 5*time.Second {
					t.Errorf("S11.10 the snapshot is of %v before the request", asked.Sub(s.ReadAt))
				}
				cancel()
				<-ended
			})
		})
	}
}

// An answer that arrives after its read counted as failed is used, and reported as late; and a
// store that does not answer at all has few open attempts.
func TestLateAnswersAreUsed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var reads []Read
		reader := &belated{takes: func(int) time.Duration { return 3 * time.Second }}
		r, err := NewRefresher(Options{Reader: reader, Observer: func(r Read) { reads = append(reads, r) }})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 4*time.Second)
		defer cancel()
		if err := r.Run(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Run returned %v", err)
		}
		if len(reads) < 2 || reads[0].Err == nil || reads[0].Late || reads[1].Err != nil || !reads[1].Late || reads[1].Latency != 3*time.Second {
			t.Errorf("the reads are %+v", reads)
		}
		for range 3 * maxAttempts {
			r.attempts.begin(t.Context(), &belated{takes: func(int) time.Duration { return time.Hour }}, "", time.Now())
		}
		if n := len(r.attempts.open); n > maxAttempts {
			t.Errorf("%d attempts are open", n)
		}
		r.attempts.end()
	})
}
