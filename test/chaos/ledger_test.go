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

// ledger writes objects concurrently in many ways and records the acknowledged state of each, to detect lost
// writes afterwards.
type ledger struct {
	mu sync.Mutex
	// may contains the possible values of each object: the last acknowledged value, and the values of later
	// writes whose responses were lost.
	may map[string][]string
	// acknowledged is the number of acknowledged writes.
	acknowledged int
}

func newLedger() *ledger { return &ledger{may: map[string][]string{}} }

// settle records the outcome of a write that sets an object to a value.
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

// write creates, replaces, patches and deletes its own objects until ctx ends. It calls refused with the code
// of every error response, and continues.
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
				// Keep every other object.
				continue
			}
			code, err := h.Try(ctx, w.method, w.path, w.body, w.headers...)
			if err == nil && code >= 300 {
				if refused != nil {
					refused(code)
				}
				// A rejected write changed nothing; a write that timed out may have been executed.
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

// stored returns the names and values of the objects on a server.
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

// check fails the test for every object that differs from its acknowledged state.
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
