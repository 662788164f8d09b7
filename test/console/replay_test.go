package console

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/gatehouse-dev/gatehouse/test/harness"
	"github.com/gatehouse-dev/gatehouse/test/speed"
)

// The page of a replay shows the requests that a policy would have rejected, by day and by policy, in groups
// that open. Its screenshot is in docs/rollout.md.
func TestAReplayInABrowser(t *testing.T) {
	speed.Long(t)
	b := open(t)
	dir := t.TempDir()
	var lines []byte
	start := time.Date(2026, time.March, 1, 0, 0, 0, 0, time.UTC)
	users := map[string]string{"shop": "deployer", "web": "anna", "bank": "batch"}
	missing := 0
	for i := range 400 {
		namespace := []string{"shop", "web", "shop", "bank", "shop"}[i%5]
		metadata := map[string]any{"name": fmt.Sprintf("settings-%d", i), "namespace": namespace}
		if i%7 == 0 {
			missing++
		} else {
			metadata["labels"] = map[string]any{"team": "a"}
		}
		line, err := json.Marshal(map[string]any{
			"apiVersion": "gatehouse.dev/v1alpha1", "kind": "RecordedRequest", "time": start.Add(time.Duration(i*i) * 4 * time.Second), "operation": "CREATE",
			"resource": map[string]any{"version": "v1", "resource": "configmaps"}, "namespace": namespace, "name": metadata["name"],
			"user": map[string]any{"username": users[namespace]}, "object": map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata},
		})
		if err != nil {
			t.Fatal(err)
		}
		lines = append(append(lines, line...), '\n')
	}
	policy, err := os.ReadFile("../../examples/rollout/policy.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string]string{
		"requests.jsonl": string(lines),
		"policy.yaml":    strings.Replace(string(policy), "gatehouse.dev/enforcement: Warn", "example.com/none: none", 1),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	replay := harness.Run(t, "replay", filepath.Join(dir, "requests.jsonl"), "--with", filepath.Join(dir, "policy.yaml"), "-o", "html")
	if replay.Code != 0 {
		t.Fatalf("exit %d: %s", replay.Code, replay.Err)
	}
	page := filepath.Join(dir, "replay.html")
	if err := os.WriteFile(page, []byte(strings.ReplaceAll(replay.Out, dir+"/", "")), 0o600); err != nil {
		t.Fatal(err)
	}
	b.do(chromedp.EmulateViewport(1100, 1020), chromedp.Navigate("file://"+page), chromedp.WaitVisible("body", chromedp.ByQuery))
	b.until(fmt.Sprintf(`document.body.innerText.includes("newly rejected") && document.body.innerText.includes("%d")`, missing))
	b.do(chromedp.Evaluate(`document.querySelectorAll("details").forEach((d) => d.open = true)`, nil))
	b.until(`document.body.innerText.includes("each ConfigMap needs the label team") && document.body.innerText.includes("deployer")`)
	b.shot("replay")
}
