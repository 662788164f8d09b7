package offline_test

import (
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/internal/commands/predict/offline"
)

// The tables use the resource names of discovery.
func TestLivesNameResources(t *testing.T) {
	served := map[string]bool{}
	for _, r := range offline.Builtin().All() {
		served[r.Resource.GroupVersion().String()+" "+r.Kind.Kind+" "+r.Resource.Resource] = true
	}
	known, same := 0, 0
	for _, l := range offline.Lives() {
		prefix := l.GroupVersion().String() + " " + l.Kind + " "
		for key := range served {
			if strings.HasPrefix(key, prefix) {
				known++
				if key == prefix+l.Resource {
					same++
				} else {
					t.Errorf("%s: the table has %s", key, l.Resource)
				}
			}
		}
	}
	if known < 60 {
		t.Errorf("%d kinds of the tables are served, too few to compare", known)
	}
}
