package chaos

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/gatehouse-dev/gatehouse/test/harness"
)

const configMaps = "/api/v1/namespaces/default/configmaps"

// gone is the value of an object that does not exist.
const gone = ""

// ledger writes objects in many ways at once and keeps, for each, what the server
// acknowledged, so that it can tell afterwards what was lost.
type ledger struct {
	mu sync.Mutex
	// may has the values that each object may have: one when its last write was
	// acknowledged, and those of later writes whose answers got lost.
	may map[string][]string
	// acknowledged is how many writes were.
	acknowledged int
}

func newLedger() *ledger { return &ledger{may: map[string][]string{}} }

// settle notes the outcome of a write that gives an object a value.
func (l *ledger) settle(name, value string, acknowledged bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !acknowledged {
		if len(l.may[name]) == 0 {
			l.may[name] = []string{gone}
		}
		l.may[name] = append(l.may[name], value)
		return
	}
	l.may[name] = []string{value}
	l.acknowledged++
}

func (l *ledger) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.acknowledged
}

// write creates, replaces, patches and deletes objects of its own until ctx ends. It
// tells refused of every answer that is neither success nor lost, and goes on.
func (l *ledger) write(ctx context.Context, t *testing.T, s *harness.Server, id string, refused func(code int)) {
	t.Helper()
	h := s.HTTP(t, nil)
	for i := 0; ctx.Err() == nil; i++ {
		name := fmt.Sprintf("%s-%d", id, i)
		object := func(value string) string {
			return fmt.Sprintf(`{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": %q}, "data": {"value": %q}}`, name, value)
		}
		for _, w := range []struct {
			method, path, body, value string
			headers                   []string
		}{
			{"POST", configMaps, object("created"), "created", nil},
			{"PUT", configMaps + "/" + name, object("replaced"), "replaced", nil},
			{"PATCH", configMaps + "/" + name, `{"data": {"value": "patched"}}`, "patched", []string{"Content-Type", "application/merge-patch+json"}},
			{"DELETE", configMaps + "/" + name, "", gone, nil},
		} {
			if i%2 == 1 && w.method == "DELETE" {
				// Every other object stays.
				continue
			}
			code, err := h.Try(ctx, w.method, w.path, w.body, w.headers...)
			if err == nil && code >= 300 {
				if refused != nil {
					refused(code)
				}
				// A refused write changed nothing; a write that timed out may have been done.
				if code == http.StatusGatewayTimeout || code == http.StatusInternalServerError {
					l.settle(name, w.value, false)
				}
				break
			}
			l.settle(name, w.value, err == nil)
			if err != nil {
				break
			}
		}
	}
}

// stored reads what a server has.
func stored(t *testing.T, s *harness.Server) map[string]string {
	t.Helper()
	var list corev1.ConfigMapList
	if err := json.Unmarshal(s.HTTP(t, nil).Get(configMaps).Raw, &list); err != nil {
		t.Fatal(err)
	}
	values := map[string]string{}
	for _, item := range list.Items {
		values[item.Name] = item.Data["value"]
	}
	return values
}

// check fails the test for every object that is not as the server acknowledged.
func (l *ledger) check(t *testing.T, s *harness.Server) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	has := stored(t, s)
	for name, may := range l.may {
		if !slices.Contains(may, has[name]) {
			t.Errorf("%s: acknowledged %q, found %q", name, may, has[name])
		}
	}
}
