package webhooks

import (
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/gatehouse-dev/gatehouse/test/harness"
)

// S27.11: a merge patch with very many levels costs little. S27.12: while one user's patches fill the memory for patches,
// webhooks patch another user's objects with 64 KiB, and the other user's own patches are applied.
func TestPatchesOfAUserLeaveOthersAlone(t *testing.T) {
	t.Parallel()
	s := harness.Shared(t)
	ns := s.Namespace(t)
	hook := harness.NewWebhookServer(t, nil).Hook("/grow", harness.Patch(`[{"op":"add","path":"/data/more","value":"`+strings.Repeat("x", 64<<10)+`"}]`))
	register(t, s, "v1", mutating, webhook("grow", ns, hook, rules(rule("CREATE", "/v1/configmaps"))))
	for _, user := range []string{"mallory", "bob"} {
		harness.Permit(t, s, ns, user, `{apiGroups: [""], resources: [configmaps], verbs: [create, patch]}`)
	}
	mallory, bob := s.HTTP(t, s.As("mallory")), s.HTTP(t, s.As("bob"))
	bob.Must(http.StatusCreated, "POST", configMaps(ns), configMap("c"))

	deep := strings.Repeat(`{"`+strings.Repeat("k", 320)+`":`, 9000) + "1" + strings.Repeat("}", 9000)
	mallory.Must(http.StatusOK, "PATCH", configMaps(ns)+"/c?dryRun=All", `{"unknown":`+deep+"}", "Content-Type", mergePatch)

	lists := `{"unknown":[` + strings.Repeat("[],", 1<<20-100) + "[]]}"
	var full, done atomic.Bool
	var all sync.WaitGroup
	defer all.Wait()
	defer done.Store(true)
	for range 6 {
		all.Go(func() {
			for !done.Load() {
				code, err := mallory.Try(harness.Context(t), "PATCH", configMaps(ns)+"/c?dryRun=All", lists, "Content-Type", mergePatch)
				switch {
				case err != nil:
					t.Error(err)
					return
				case code == http.StatusTooManyRequests:
					full.Store(true)
				case code != http.StatusOK:
					t.Errorf("a patch of the user that fills the memory: %d", code)
					return
				}
			}
		})
	}
	for i := 0; (i < 5 || !full.Load()) && !t.Failed(); i++ {
		name := "o" + string(rune('a'+i%26)) + strings.Repeat("x", i/26)
		r := bob.Must(http.StatusCreated, "POST", configMaps(ns), configMap(name))
		want(t, "what the webhook added", len(r.Text("data", "more")), 64<<10)
		bob.Must(http.StatusOK, "PATCH", configMaps(ns)+"/"+name, `{"data":{"key":"other"}}`, "Content-Type", mergePatch)
	}
}
