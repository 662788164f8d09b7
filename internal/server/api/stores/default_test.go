package stores

import (
	"testing"

	"github.com/gatehouse-dev/gatehouse/internal/server/api/catalog"
)

// The versions that are served by default equal upstream's, for every version of every group.
func TestUpstreamsDefaultVersionsAreServed(t *testing.T) {
	served := 0
	for gv, want := range Default().GroupVersionConfigs {
		if got := catalog.ServedByDefault(gv); got != want {
			t.Errorf("%s: served %t, want %t", gv, got, want)
		}
		if want {
			served++
		}
	}
	if served < 20 {
		t.Errorf("upstream serves %d versions by default", served)
	}
	for _, gv := range catalog.Scheme.PrioritizedVersionsAllGroups() {
		if _, known := Default().GroupVersionConfigs[gv]; !known && catalog.ServedByDefault(gv) {
			t.Errorf("%s is served, and upstream does not have it", gv)
		}
	}
}
