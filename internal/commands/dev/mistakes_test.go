package dev

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// S33.5: a program may end at a pod without a container, which no API server sends.
func TestThePodOfTheFirstReviewHasAContainer(t *testing.T) {
	containers, _, err := unstructured.NestedSlice(example(podKind).Object, "spec", "containers")
	if err != nil || len(containers) != 1 {
		t.Errorf("containers %v, %v", containers, err)
	}
}

// S33.5: a program may listen before it has written the caBundle of its own certificate. A certificate that stays untrusted
// is a mistake.
func TestAnAuthorityOfTheProgramIsAwaited(t *testing.T) {
	for name, tc := range map[string]struct {
		trustedAfter time.Duration
		want         []string
	}{
		"at once":       {0, []string{"another"}},
		"soon":          {trustWithin / 2, []string{"another"}},
		"after a while": {2 * trustWithin, []string{"another", "untrusted"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began, asked := time.Now(), 0
				got := settled(t.Context(), func(context.Context) ([]string, bool) {
					if asked++; time.Since(began) >= tc.trustedAfter {
						return []string{"another"}, false
					}
					return []string{"another", "untrusted"}, true
				})
				if !slices.Equal(got, tc.want) || time.Since(began) > trustWithin || asked > 10 {
					t.Errorf("got %q after %s and %d attempts, want %q", got, time.Since(began), asked, tc.want)
				}
			})
		})
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if got := settled(ctx, func(context.Context) ([]string, bool) { return []string{"untrusted"}, true }); got != nil {
		t.Errorf("after the end of the session: %q", got)
	}
}
