package controllers

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
)

// S9.21: repeated requests for counts of a quota are combined into one count, and the last request is
// not forgotten.
func TestCountsAreGathered(t *testing.T) {
	for _, tc := range []struct {
		name  string
		takes time.Duration
		// most is the greatest number of counts when there is a request in every millisecond of a
		// second.
		most int
	}{
		{"a count that takes no time", 0, 11},
		{"a count takes a twentieth of the time at most", 10 * time.Millisecond, 6},
		{"a count that takes very long", time.Second, 2},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				turns := newTurns()
				id, other := types.NamespacedName{Namespace: "a", Name: "q"}, types.NamespacedName{Namespace: "b", Name: "q"}
				var mu sync.Mutex
				counts, asked, counted := 0, 0, 0
				ask := func(id types.NamespacedName) {
					if !turns.begin(id) {
						return
					}
					mu.Lock()
					counts++
					counted = asked
					mu.Unlock()
					time.Sleep(tc.takes)
					turns.end(id, max(tc.takes, 1))
				}
				ctx, cancel := context.WithCancel(t.Context())
				ended := make(chan struct{})
				go func() {
					defer close(ended)
					turns.run(ctx, ask)
				}()
				for began := time.Now(); time.Since(began) < time.Second; time.Sleep(time.Millisecond) {
					mu.Lock()
					asked++
					mu.Unlock()
					go ask(id)
				}
				if !turns.begin(other) {
					t.Error("another quota waits")
				}
				turns.end(other, 0)
				time.Sleep(time.Minute)
				if counts > tc.most || counts < 2 {
					t.Errorf("%d counts, want 2 to %d", counts, tc.most)
				}
				if counted != asked {
					t.Errorf("the last count was for the first %d of %d that asked", counted, asked)
				}
				if len(turns.asked) != 0 {
					t.Errorf("still kept: %v", turns.asked)
				}
				cancel()
				<-ended
			})
		})
	}
}

// S9.21: a count that makes room in a full quota does not delay the next count.
func TestAFullQuotaIsCountedAtOnce(t *testing.T) {
	list := func(pods, cpu string) corev1.ResourceList {
		return corev1.ResourceList{"pods": resource.MustParse(pods), "requests.cpu": resource.MustParse(cpu)}
	}
	for _, tc := range []struct {
		name           string
		hard, was, now corev1.ResourceList
		want           bool
	}{
		{"much is left", list("10", "1"), list("5", "500m"), list("4", "400m"), false},
		{"it was full", list("10", "1"), list("10", "500m"), list("9", "500m"), true},
		{"too little was left for another", list("10", "1"), list("5", "950m"), list("5", "500m"), true},
		{"what is full stays so", list("0", "1"), list("0", "500m"), list("0", "400m"), false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := frees(&corev1.ResourceQuota{Status: corev1.ResourceQuotaStatus{Hard: tc.hard, Used: tc.was}}, tc.now); got != tc.want {
				t.Errorf("%t, want %t", got, tc.want)
			}
		})
	}
}
