package console

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"github.com/gatehouse-dev/gatehouse/test/harness"
)

// BenchmarkTheConsoleWithMuch shows the chain of 5,000 webhooks, and 10,000 traces. It reports the time to
// the first paint, the time until the view is complete, and the longest pause while scrolling.
func BenchmarkTheConsoleWithMuch(b *testing.B) {
	const configurations, webhooks, traces = 500, 10, 10000
	page := open(b)
	tokens := filepath.Join(b.TempDir(), "tokens.csv")
	if err := os.WriteFile(tokens, []byte("bob-token,bob,1,\"system:masters\"\n"), 0o600); err != nil {
		b.Fatal(err)
	}
	s := harness.Start(b, "--token-auth-file", tokens)
	admin := s.HTTP(b, s.Admin)
	jobs := make(chan func())
	var workers sync.WaitGroup
	for range 8 {
		workers.Go(func() {
			for f := range jobs {
				f()
			}
		})
	}
	post := func(path, body string) {
		jobs <- func() {
			if code, err := admin.Try(b.Context(), "POST", path, body); err != nil || code != http.StatusCreated {
				b.Errorf("POST %s: status %d, %v", path, code, err)
			}
		}
	}
	for i := range configurations {
		list := ""
		for k := range webhooks {
			if k > 0 {
				list += ","
			}
			list += fmt.Sprintf(`{"name":"w%d.c%d.example.com","clientConfig":{"url":"https://127.0.0.1:1/judge"},"rules":[{"apiGroups":["apps"],"apiVersions":["v1"],"operations":["CREATE"],"resources":["deployments"]}],"admissionReviewVersions":["v1"],"sideEffects":"None"}`, k, i)
		}
		post("/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations", fmt.Sprintf(`{"apiVersion":"admissionregistration.k8s.io/v1","kind":"ValidatingWebhookConfiguration","metadata":{"name":"c%d"},"webhooks":[%s]}`, i, list))
	}
	for i := range traces {
		post("/api/v1/namespaces/default/configmaps?dryRun=All", fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"m%d"}}`, i))
	}
	close(jobs)
	workers.Wait()
	page.login(s, "bob-token")
	for b.Loop() {
		for _, view := range []struct{ name, drawn, items string }{
			{"traces", `document.querySelector(".live.on") !== null && document.querySelectorAll("tr[data-id]").length > 0`, "tr[data-id]"},
			{"chain", `/500 registrations/.test(document.querySelector("main").innerText) && document.querySelector("details.entry") !== null`, "details.entry"},
			{"health", `document.querySelector("main").innerText.includes("Not seen")`, "main li"},
		} {
			begin := time.Now()
			page.do(chromedp.Navigate(fmt.Sprintf("%s/console/?%d#/%s", s.URL, begin.UnixNano(), view.name)))
			page.until(view.drawn)
			took := time.Since(begin)
			var painted, pause float64
			var items int
			page.do(chromedp.Evaluate(`performance.getEntriesByName("first-contentful-paint")[0]?.startTime ?? -1`, &painted),
				chromedp.Evaluate(`document.querySelectorAll("`+view.items+`").length`, &items),
				chromedp.Evaluate(`new Promise((done) => { let n = 0, last = performance.now(), worst = 0; const step = (now) => { worst = Math.max(worst, now - last); last = now; scrollBy(0, 200); if (++n < 120) requestAnimationFrame(step); else done(worst); }; requestAnimationFrame(step); })`, &pause,
					func(p *runtime.EvaluateParams) *runtime.EvaluateParams { return p.WithAwaitPromise(true) }))
			var slow []string
			page.do(chromedp.Evaluate(`performance.getEntriesByType("resource").sort((a, b) => b.duration - a.duration).slice(0, 3).map((r) => Math.round(r.duration) + " ms " + new URL(r.name).pathname + " from " + Math.round(r.startTime))`, &slow))
			b.Logf("%s: the slowest requests: %v", view.name, slow)
			b.Logf("%s: first paint %.0f ms, drawn after %s, %d items, longest pause while it scrolls %.0f ms", view.name, painted, took.Round(time.Millisecond), items, pause)
			b.ReportMetric(painted, view.name+"-paint-ms")
			b.ReportMetric(float64(took.Milliseconds()), view.name+"-drawn-ms")
			b.ReportMetric(pause, view.name+"-pause-ms")
			if items > 1000 {
				b.Errorf("%s draws %d items at once", view.name, items)
			}
		}
	}
}
