package etcd

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
)

const (
	// lostAfter is how long a member has no leader before calls fail at once. An election takes one to two seconds.
	lostAfter = 5 * time.Second
	// lookForLeader is how often a member checks whether there is a leader.
	lookForLeader = 250 * time.Millisecond
	// describeAgain is how often a member without a leader checks which other members answer.
	describeAgain = 10 * time.Second
	// noMajority is the prefix of the error of a call without a majority.
	noMajority = "the cluster has no majority"
)

// majority fails the calls of a member that has no leader, because a majority of the members is missing. A nil majority, which
// an etcd alone has, fails no call. It is safe for concurrent use.
type majority struct {
	mu sync.Mutex
	// led ends when the member has had no leader for lostAfter. The next leader begins another one.
	led  context.Context
	lose context.CancelFunc
	// since is when the leader was lost; zero while there is a leader. text describes the members at the time
	// described.
	since, described time.Time
	text             string
}

func newMajority() *majority {
	m := &majority{}
	m.led, m.lose = context.WithCancel(context.Background())
	return m
}

// look records whether the member has a leader, and reports whether the text for the errors is out of
// date.
func (m *majority) look(now time.Time, leader bool) (describe bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case leader:
		if m.led.Err() != nil {
			klog.Warningf("The cluster has a leader again, after %s: accepting writes", now.Sub(m.since).Round(time.Second))
			m.led, m.lose = context.WithCancel(context.Background())
		}
		m.since, m.described, m.text = time.Time{}, time.Time{}, ""
	case m.since.IsZero():
		m.since = now
	default:
		return now.Sub(m.since) >= lostAfter && now.Sub(m.described) >= describeAgain
	}
	return false
}

// describe sets the text for the errors, and ends running calls.
func (m *majority) describe(now time.Time, text string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.since.IsZero() {
		return
	}
	if m.led.Err() == nil {
		klog.Errorf("The members of the cluster have no leader for %s: %s; refusing writes, and reads that must be fresh", now.Sub(m.since).Round(time.Second), text)
	}
	m.described, m.text = now, text
	m.lose()
}

// err is the error for a new call; nil if there is a leader, or was a moment ago.
func (m *majority) err() error {
	if m == nil {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.led.Err() == nil {
		return nil
	}
	return status.Error(codes.Unavailable, fmt.Sprintf("%s, since %s: %s", noMajority, m.since.UTC().Format(time.RFC3339), m.text))
}

// call makes a call that ends when the majority is lost.
func call[T any](ctx context.Context, m *majority, make func(context.Context) (T, error)) (out T, err error) {
	if m == nil {
		return make(ctx)
	}
	if err := m.err(); err != nil {
		return out, err
	}
	m.mu.Lock()
	led := m.led
	m.mu.Unlock()
	limited, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(led, cancel)()
	out, err = make(limited)
	if err != nil && ctx.Err() == nil && led.Err() != nil {
		if lost := m.err(); lost != nil {
			err = lost
		}
	}
	return out, err
}

// run looks for the leader until ctx ends. describe reports which members answer.
func (m *majority) run(ctx context.Context, leader func() bool, describe func(context.Context) string) {
	tick := time.NewTicker(lookForLeader)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			if m.look(time.Now(), leader()) {
				m.describe(time.Now(), describe(ctx))
			}
		case <-ctx.Done():
			return
		}
	}
}

// IsNoMajority reports whether a call failed because a majority of the members is missing.
func IsNoMajority(err error) bool {
	return err != nil && strings.HasPrefix(rpctypes.ErrorDesc(err), noMajority)
}

// Refusal returns the error of writes while a majority of the members is missing, and nil otherwise. It has status 503 and names
// the missing members.
func (s *Server) Refusal() error {
	err := s.majority.err()
	if err == nil {
		return nil
	}
	refusal := apierrors.NewServiceUnavailable(rpctypes.ErrorDesc(err) + "; nothing was written")
	refusal.ErrStatus.Details = &metav1.StatusDetails{RetryAfterSeconds: 1}
	return refusal
}
