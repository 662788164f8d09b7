package etcd

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// S31.21: a member without a leader fails new and running calls at once. It tolerates the time of an election.
func TestCallsWithoutAMajorityFailAtOnce(t *testing.T) {
	s := &Server{majority: newMajority()}
	m, begin := s.majority, time.Now()
	at := func(after time.Duration) time.Time { return begin.Add(after) }
	succeeds := func(context.Context) (string, error) { return "done", nil }

	m.look(at(0), false)
	if m.look(at(lostAfter-time.Millisecond), false) {
		t.Error("an election is a loss")
	}
	if _, err := call(t.Context(), m, succeeds); err != nil {
		t.Errorf("during an election: %v", err)
	}
	started, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		_, err := call(t.Context(), m, func(ctx context.Context) (string, error) {
			close(started)
			<-ctx.Done()
			return "", ctx.Err()
		})
		ended <- err
	}()
	<-started
	if !m.look(at(lostAfter), false) {
		t.Fatal("the loss is not noticed")
	}
	m.describe(at(lostAfter), "1 of 3 members answer")
	for name, err := range map[string]error{"a call that runs": <-ended, "a new call": func() error { _, err := call(t.Context(), m, succeeds); return err }()} {
		if !IsNoMajority(err) || !strings.Contains(err.Error(), "1 of 3 members answer") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := s.Refusal(); !apierrors.IsServiceUnavailable(err) || !strings.Contains(err.Error(), "nothing was written") {
		t.Error(err)
	}
	if m.look(at(lostAfter+describeAgain-time.Millisecond), false) {
		t.Error("the members are asked again too early")
	}
	if !m.look(at(lostAfter+describeAgain), false) {
		t.Error("the members are not asked again")
	}

	m.look(at(time.Minute), true)
	m.describe(at(time.Minute), "an answer that came late")
	if _, err := call(t.Context(), m, succeeds); err != nil || s.Refusal() != nil {
		t.Errorf("with a leader: %v, %v", err, s.Refusal())
	}
	// The error of the caller's own context is kept.
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := call(ctx, m, func(ctx context.Context) (string, error) { return "", ctx.Err() }); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// An etcd alone has no majority to lose.
func TestAnEtcdAloneHasItsMajority(t *testing.T) {
	s := &Server{}
	if _, err := call(t.Context(), s.majority, func(context.Context) (int, error) { return 0, nil }); err != nil || s.Refusal() != nil {
		t.Errorf("%v, %v", err, s.Refusal())
	}
}

// The text reports how many members answer, which do not, and whose certificates are refused.
func TestTheMissingMembersAreNamed(t *testing.T) {
	b, c := Peer{Name: "b", Address: "10.0.0.2:2380"}, Peer{Name: "c", Address: "10.0.0.3:2380"}
	refused := errors.New("remote error: tls: expired certificate")
	for name, tc := range map[string]struct {
		others  []asked
		expired []string
		want    string
		lost    bool
	}{
		"nobody":    {[]asked{{Peer: b}, {Peer: c}}, nil, "1 of 3 members answer, and 2 are needed; start b (10.0.0.2:2380), c (10.0.0.3:2380)", true},
		"one":       {[]asked{{Peer: b, answers: true}, {Peer: c}}, nil, "2 of 3 members answer, and 2 are needed; start c (10.0.0.3:2380)", false},
		"removed":   {[]asked{{b, true, refused}, {c, true, refused}}, nil, "3 of 3 members answer, and 2 are needed; the connection fails with b (10.0.0.2:2380) (remote error: tls: expired certificate), c (10.0.0.3:2380) (remote error: tls: expired certificate); a member that the cluster has removed joins again with an empty data directory and a new token", false},
		"a refusal": {[]asked{{b, true, refused}}, []string{"the certificate expired"}, "2 of 2 members answer, and 2 are needed; the connection fails with b (10.0.0.2:2380) (remote error: tls: expired certificate); the certificate expired", false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := describe(tc.others, tc.expired); got != tc.want {
				t.Errorf("%q, want %q", got, tc.want)
			}
			if recoverable(tc.others) != tc.lost {
				t.Errorf("recoverable: %t", !tc.lost)
			}
		})
	}
}
