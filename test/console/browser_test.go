package console

import (
	"bufio"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gatehouse-dev/gatehouse/test/harness"
)

func TestMain(m *testing.M) { os.Exit(harness.Main(m)) }

var (
	update    = flag.Bool("update", false, "write the screenshots of docs/console.md")
	withRules = flag.Bool("axe", false, "check the page by the rules of axe-core, which npm gets from the network")
)

// browser is a tab of a browser.
type browser struct {
	t   testing.TB
	ctx context.Context
}

// patience is the time limit of one step on a slow machine.
const patience = 2 * time.Minute

// open starts a browser. It skips the test if none is installed.
func open(t testing.TB) *browser {
	t.Helper()
	program := ""
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome", "headless-shell"} {
		if path, err := exec.LookPath(name); err == nil && program == "" {
			program = path
		}
	}
	if program == "" {
		t.Skip("no browser is installed: apt-get install chromium installs one")
	}
	profile, err := os.MkdirTemp("", "gatehouse-browser-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		// Child processes of the browser outlive the main process, and may still write there.
		late := time.After(patience)
		for os.RemoveAll(profile) != nil {
			select {
			case <-time.After(10 * time.Millisecond):
			case <-late:
				t.Fatalf("%s cannot be removed", profile)
			}
		}
	})
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(program), chromedp.NoSandbox, chromedp.UserDataDir(profile),
		chromedp.Flag("ignore-certificate-errors", true), chromedp.Flag("disable-dev-shm-usage", true), chromedp.WindowSize(1280, 1100), chromedp.WSURLReadTimeout(patience))
	ctx, stop := chromedp.NewExecAllocator(t.Context(), options...)
	t.Cleanup(stop)
	ctx, stop = chromedp.NewContext(ctx)
	t.Cleanup(stop)
	b := &browser{t, ctx}
	chromedp.ListenTarget(ctx, func(event any) {
		switch e := event.(type) {
		case *runtime.EventExceptionThrown:
			t.Errorf("the page throws %s: %s", e.ExceptionDetails.Text, e.ExceptionDetails.Exception.Description)
		case *log.EventEntryAdded:
			if strings.Contains(e.Entry.Text, "Content Security Policy") {
				t.Errorf("the page does what its policy forbids: %s", e.Entry.Text)
			}
		case *page.EventJavascriptDialogOpening:
			t.Errorf("what somebody wrote acts: %s", e.Message)
		}
	})
	if err := chromedp.Run(ctx, log.Enable()); err != nil {
		t.Skipf("%s does not start on this machine: %v", program, err)
	}
	return b
}

// do runs actions in the page.
func (b *browser) do(actions ...chromedp.Action) {
	b.t.Helper()
	ctx, stop := context.WithTimeout(b.ctx, patience)
	defer stop()
	if b.ctx.Err() == nil && chromedp.FromContext(b.ctx).Target == nil {
		// The first run starts the browser, which ends with its context.
		ctx = b.ctx
	}
	if err := chromedp.Run(ctx, actions...); err != nil {
		var text string
		_ = chromedp.Run(b.ctx, chromedp.Evaluate(`document.body.innerText`, &text))
		b.t.Fatalf("%v; the page says:\n%s", err, text)
	}
}

// visit opens a view.
func (b *browser) visit(hash string) {
	b.t.Helper()
	quoted, err := json.Marshal(hash)
	if err != nil {
		b.t.Fatal(err)
	}
	b.do(chromedp.Evaluate(`location.hash = `+string(quoted), nil))
}

// until waits until an expression is true, and returns the elapsed time.
func (b *browser) until(expression string) time.Duration {
	b.t.Helper()
	begin := time.Now()
	b.do(chromedp.Poll(expression, nil, chromedp.WithPollingInterval(20*time.Millisecond), chromedp.WithPollingTimeout(patience)))
	return time.Since(begin)
}

// says returns an expression that is true when the page shows a text.
func says(text string) string {
	quoted, _ := json.Marshal(text)
	return `document.querySelector("main").innerText.includes(` + string(quoted) + `)`
}

// login opens the page as a user.
func (b *browser) login(s *harness.Server, token string) {
	b.t.Helper()
	b.do(chromedp.Navigate(s.URL+"/console/"), chromedp.Evaluate(`sessionStorage.clear()`, nil), chromedp.Navigate(s.URL+"/console/?again"),
		chromedp.WaitVisible("#token", chromedp.ByQuery), chromedp.SetValue("#token", token, chromedp.ByQuery), chromedp.Click("form.login button", chromedp.ByQuery),
		chromedp.WaitVisible("#nav", chromedp.ByQuery))
}

// focused is true if the heading of the view has the focus, so that a screen reader and Tab start there.
const focused = `document.activeElement.tagName === "H1"`

// hostile is HTML that an attacker could put into a message.
const hostile = `<img src=x onerror=alert(1)><script>alert(2)</script>`

const registered = `
apiVersion: v1
kind: Namespace
metadata: {name: shop}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: images}
webhooks:
- name: images.example.com
  clientConfig: {url: "https://127.0.0.1:1/judge"}
  rules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [configmaps]}]
  objectSelector: {matchLabels: {judged: "yes"}}
  admissionReviewVersions: [v1]
  sideEffects: None
  timeoutSeconds: 2
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: replicas}
spec:
  matchConstraints: {resourceRules: [{apiGroups: [apps], apiVersions: [v1], operations: [CREATE, UPDATE], resources: [deployments]}]}
  validations:
  - {expression: "has(object.metadata.labels) && object.metadata.labels.size() > 0", message: "a deployment needs a label"}
  - {expression: "object.spec.replicas <= 5 && object.spec.replicas > 0", message: "at most five replicas"}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: replicas}
spec: {policyName: replicas, validationActions: [Deny]}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: hostile}
spec:
  matchConstraints: {resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [configmaps], resourceNames: [hostile]}]}
  validations:
  - {expression: "object.data.text == ''", message: "` + hostile + `"}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: hostile}
spec: {policyName: hostile, validationActions: [Deny]}
`

const tried = `
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: no-letters}
spec:
  matchConstraints: {resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE, UPDATE], resources: [configmaps]}]}
  validations:
  - {expression: "!('a' in object.data)", message: "no letter a"}
  - {expression: "has(object.dat)", message: "no dat"}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: no-letters}
spec: {policyName: no-letters, validationActions: [Deny]}
`

// A viewer logs in, sees requests as they arrive, follows a rejected request to the policy that rejected it,
// and sees text by other users without interpreted HTML. A viewer with few rights sees exactly the data that
// the API returns to that viewer.
func TestTheConsoleInABrowser(t *testing.T) {
	b := open(t)
	tokens := filepath.Join(t.TempDir(), "tokens.csv")
	if err := os.WriteFile(tokens, []byte("bob-token,bob,1,\ncarol-token,carol,2,\ndave-token,dave,3,\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := harness.Start(t, "--token-auth-file", tokens)
	admin := harness.Client(t, s.Admin)
	if _, err := admin.RbacV1().ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "viewer"}, RoleRef: rbacv1.RoleRef{APIGroup: "rbac.authorization.k8s.io", Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects: []rbacv1.Subject{{Kind: "User", APIGroup: "rbac.authorization.k8s.io", Name: "bob"}},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	kubectl := s.Kubectl(t, "default")
	kubectl.MustWith(registered, "apply", "-f", "-")
	hooks := harness.NewWebhookServer(t, nil)
	harness.RegisterAs(t, s, "v1", "MutatingWebhookConfiguration", "defaults", harness.Webhook("team", "default",
		hooks.Hook("/team", harness.Patch(`[{"op":"add","path":"/metadata/labels/team","value":"web"}]`)), harness.Rules(harness.Rule("CREATE", "apps/v1/deployments"))))
	harness.RegisterAs(t, s, "v1", "ValidatingWebhookConfiguration", "quality", harness.Webhook("probes", "default", hooks.Hook("/probes", harness.Allow), harness.Rules(harness.Rule("CREATE", "apps/v1/deployments"))))

	// made creates a ConfigMap, and ignores a rejection.
	made := func(namespace, name, more string) {
		t.Helper()
		if r := s.HTTP(t, nil).Do("POST", "/api/v1/namespaces/"+namespace+"/configmaps", `{"metadata":{"name":"`+name+`"`+more+`}`); r.Code == http.StatusBadRequest {
			t.Fatalf("%s: %s", name, r.Raw)
		}
	}
	b.login(s, "bob-token")
	b.until(says("live"))
	b.until(focused)
	made("default", "as-it-comes", "}")
	t.Logf("a create was on the page %s after its answer", b.until(says("configmaps as-it-comes")).Round(time.Millisecond))

	// A rejected request, and the policy that rejected it.
	kubectl.Run("", "create", "deployment", "web", "--image=nginx", "--replicas=9")
	b.until(says("deployments.apps web"))
	b.do(chromedp.Click(`//tr[contains(., "Denied")]//a[contains(., "deployments.apps web")]`, chromedp.BySearch), chromedp.WaitVisible(".waterfall", chromedp.ByQuery))
	b.until(says("at most five replicas"))
	b.until(focused)
	// The values of the subexpressions.
	b.until(`[...document.querySelectorAll(".values tr")].some((r) => r.innerText.includes("object.spec.replicas\t9"))`)
	b.shot("trace")
	b.do(chromedp.Click("a.culprit", chromedp.ByQuery), chromedp.WaitVisible("details.entry.wanted", chromedp.ByQuery))
	b.until(`document.querySelector("details.wanted").dataset.entry === "ValidatingAdmissionPolicy/replicas"`)
	b.until(says("1 evaluation, 1 violated since the server started"))
	made("default", "hostile", `},"data":{"text":"`+strings.ReplaceAll(hostile, `"`, `\"`)+`"}`)
	b.visit("#/traces?name=hostile")
	b.do(chromedp.Click(`//tr[contains(., "Denied")]//a[contains(., "configmaps hostile")]`, chromedp.BySearch), chromedp.WaitVisible(".waterfall", chromedp.ByQuery))
	b.until(says(hostile))
	b.until(`document.querySelector(".values").innerText.includes("<img src=x")`)
	b.until(`document.querySelectorAll("main img, main script").length === 0`)
	made("default", "judged", `,"labels":{"judged":"yes"}}`)
	b.visit("#/traces?outcome=Failed")
	b.do(chromedp.Click(`//a[contains(., "configmaps judged")]`, chromedp.BySearch), chromedp.Click("a.culprit", chromedp.ByQuery))
	b.until(`document.querySelector("details.wanted")?.dataset.entry === "ValidatingWebhookConfiguration/images"`)

	// The chain shows the calls between two readings of the metrics.
	kubectl.Must("create", "deployment", "small", "--image=nginx")
	b.visit("#/chain")
	b.until(says("images/images.example.com"))
	b.until(`/1 call, 0 rejected, p50 .* in the last .*, 2 since the server started/.test(document.querySelector('[data-calls="admit/team.default.example.com"]').innerText)`)
	b.shot("chain")
	b.do(emulation.SetDeviceMetricsOverride(1920, 1080, 1, false))
	b.shot("wide")
	b.do(emulation.ClearDeviceMetricsOverride())
	b.visit("#/explain")
	b.do(chromedp.WaitVisible("#manifest", chromedp.ByQuery), chromedp.SetValue("#manifest", "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\nspec:\n  replicas: 7\n  selector: {matchLabels: {app: web}}\n  template:\n    metadata: {labels: {app: web}}\n    spec: {containers: [{name: web, image: nginx}]}\n", chromedp.ByQuery),
		chromedp.Click("#run", chromedp.ByQuery))
	b.until(says("The request would be rejected"))

	// What if: evaluate an unregistered policy, with its costs and type errors.
	made("default", "web", `},"data":{"a":"b"}`)
	b.do(chromedp.Click("details.fold > summary", chromedp.ByQuery), chromedp.SetValue("#pick-kind", "ConfigMap", chromedp.ByQuery), chromedp.Focus("#pick-name", chromedp.ByQuery))
	b.until(`[...document.querySelectorAll("#pick-names option")].some((o) => o.value === "web")`)
	b.do(chromedp.SetValue("#pick-name", "web", chromedp.ByQuery), chromedp.Click("#get", chromedp.ByQuery))
	b.until(`document.querySelector("#manifest").value.includes("name: web") && document.querySelector("#operation").value === "UPDATE"`)
	b.do(chromedp.Click("details.fold > summary", chromedp.ByQuery), chromedp.SetValue("#policy", tried, chromedp.ByQuery), chromedp.Click("#run", chromedp.ByQuery))
	b.until(says("no letter a"))
	b.until(says("undefined field 'dat'"))
	b.until(says("costs at most"))
	b.until(`[...document.querySelectorAll("tr")].some((r) => r.innerText.includes("what if") && r.innerText.includes("no-letters"))`)
	b.shot("explain")
	if r := s.HTTP(t, nil).Do("GET", "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies/no-letters", ""); r.Code != http.StatusNotFound {
		t.Errorf("what was tried is registered: %s", r.Raw)
	}
	b.do(chromedp.SetValue("#policy", strings.ReplaceAll(tried, "no letter a", hostile), chromedp.ByQuery), chromedp.Click("#run", chromedp.ByQuery))
	b.until(says(hostile))
	b.until(`document.querySelectorAll("main img, main script").length === 0`)
	b.visit("#/object?version=apps/v1&kind=Deployment&namespace=default&name=small")
	b.until(says("Requests about it"))
	b.until(`[...document.querySelectorAll(".ln.set")].some((l) => l.innerText.includes("team: web") && l.innerText.includes("defaults/team.default.example.com"))`)
	b.until(says("manager kubectl-create"))
	b.shot("object")
	b.visit("#/health")
	for _, text := range []string{"not active everywhere", "The database of etcd-0 has", "MiB free", "This server is ready.", "runs them itself", "of revisions up to"} {
		b.until(says(text))
	}
	b.shot("health")
	b.visit("#/traces")
	b.until(says("live"))

	// The latest request is first, and numbers align with their headings.
	b.until(`(() => { const times = [...document.querySelectorAll("tr[data-id] td:first-child")].map((d) => d.title); return times.length > 1 && times.every((t, i) => i === 0 || t <= times[i - 1]); })()`)
	b.until(`[...document.querySelectorAll("thead th")].every((h, i) => getComputedStyle(h).textAlign === getComputedStyle(document.querySelectorAll("tbody tr:first-child td")[i]).textAlign)`)
	// The page reports a missing trace, and a server that does not answer.
	b.visit("#/traces/none")
	b.until(says("Not there") + ` && document.querySelector("main h1") !== null`)
	b.do(network.EmulateNetworkConditions(true, 0, -1, -1))
	for _, view := range []string{"traces", "chain", "health"} {
		b.visit("#/" + view)
		b.until(says("The server does not answer") + ` && !` + says("Failed to fetch") + ` && !document.querySelector(".live.on, .callout.ok") && !` + says("0 registrations"))
	}
	b.do(network.EmulateNetworkConditions(false, 0, -1, -1))

	// On a narrow screen and in dark mode, nothing overflows the page.
	b.do(emulation.SetDeviceMetricsOverride(360, 740, 1, true), emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: "dark"}}))
	for _, view := range []string{"traces", "chain", "explain", "object", "health"} {
		b.visit("#/" + view)
		b.do(chromedp.WaitVisible("main h1", chromedp.ByQuery))
		b.until(`document.documentElement.scrollWidth <= innerWidth`)
		// Headings are in order, and numbers align in columns.
		b.until(`[...document.querySelectorAll("main h1, main h2, main h3")].every((h, i, all) => i === 0 ? h.tagName === "H1" : h.tagName[1] <= Number(all[i - 1].tagName[1]) + 1)`)
		if view == "health" {
			b.until(`(() => { const sums = [...document.querySelectorAll(".sums li")]; return sums.length > 3 && new Set(sums.map((l) => l.offsetLeft)).size === 3 && new Set(sums.map((l) => l.offsetWidth)).size === 1; })()`)
		}
		if view == "traces" {
			b.until(says("live"))
			b.shot("narrow")
		}
	}
	b.do(emulation.ClearDeviceMetricsOverride(), emulation.SetEmulatedMedia())

	if *withRules {
		b.accessible()
	}

	// A hidden page keeps no request open, and continues when it is shown again.
	b.visit("#/traces")
	b.until(says("live"))
	b.do(chromedp.Evaluate(`performance.clearResourceTimings(); dispatchEvent(new PageTransitionEvent("pagehide", { persisted: true }))`, nil))
	b.until(`performance.getEntriesByType("resource").some((r) => r.name.includes("watch=1"))`)
	made("default", "while-the-page-was-left", "}")
	b.do(chromedp.Evaluate(`dispatchEvent(new PageTransitionEvent("pageshow", { persisted: true }))`, nil))
	b.until(says("configmaps while-the-page-was-left"))
	b.until(says("live"))

	// By keyboard: Tab reaches a filter, Enter applies it; Tab reaches a request, Enter opens it.
	b.visit("#/traces")
	b.until(says("live"))
	b.tabTo(`document.activeElement.name === "namespace"`)
	b.do(chromedp.KeyEvent("default" + kb.Enter))
	b.until(`location.hash === "#/traces?namespace=default"`)
	b.until(says("live"))
	b.tabTo(`document.activeElement.matches("tr a") && document.activeElement.innerText.includes("deployments.apps web")`)
	made("default", "while-a-row-has-the-focus", "}")
	b.until(says("configmaps while-a-row-has-the-focus"))
	b.until(`document.activeElement.innerText.includes("deployments.apps web")`)
	b.do(chromedp.KeyEvent(kb.Enter), chromedp.WaitVisible(".waterfall", chromedp.ByQuery))
	b.tabTo(`document.activeElement.matches("a.culprit")`)
	b.do(chromedp.KeyEvent(kb.Enter), chromedp.WaitVisible("details.entry.wanted", chromedp.ByQuery))

	// dave may read some resources, and sees exactly the data that the API returns to dave.
	if _, err := admin.RbacV1().ClusterRoles().Create(t.Context(), &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "dave"}, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{"admissionregistration.k8s.io"}, Resources: []string{"validatingwebhookconfigurations"}, Verbs: []string{"list"}},
		{APIGroups: []string{"gatehouse.dev"}, Resources: []string{"admissionexplanations"}, Verbs: []string{"create"}},
	}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := admin.RbacV1().ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "dave"}, RoleRef: rbacv1.RoleRef{APIGroup: "rbac.authorization.k8s.io", Kind: "ClusterRole", Name: "dave"},
		Subjects: []rbacv1.Subject{{Kind: "User", APIGroup: "rbac.authorization.k8s.io", Name: "dave"}},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	harness.Permit(t, s, "default", "dave", `{"apiGroups":["apps"],"resources":["deployments"],"verbs":["get"]}`)
	harness.Permit(t, s, "shop", "dave", `{"apiGroups":["gatehouse.dev"],"resources":["admissiontraces"],"verbs":["get","list","watch"]}`)
	made("shop", "of-the-shop", "}")
	b.login(s, "dave-token")
	b.comparable(t, s, "dave-token", "ValidatingWebhookConfiguration/images")
	b.comparableViews(t, s.HTTP(t, s.WithToken("dave-token")))

	// carol has no permissions.
	b.login(s, "carol-token")
	for view, want := range map[string]string{
		"traces": "Not allowed", "chain": "ValidatingWebhookConfiguration: not allowed", "health": "Not allowed", "explain?run=1": "Not allowed",
		"object?version=apps/v1&kind=Deployment&namespace=default&name=small": "Not allowed", "traces?namespace=shop": "Not allowed",
	} {
		b.visit("#/" + view)
		b.until(says(want))
		b.until(`!` + says("images.example.com") + ` && !` + says("team: web") + ` && !` + says("of-the-shop"))
	}
	b.visit("#/health")
	for _, hidden := range []string{"the states of registrations", "the metrics of the server", "the labels of namespaces", "the leaders of controllers"} {
		b.until(says("Not allowed: " + hidden))
	}
	b.until(says("You may read no registrations") + ` && !document.querySelector(".callout.ok")`)
	b.comparable(t, s, "carol-token")
	b.until(`!document.querySelector(".live.on")`)
	b.behindTheCommand(t, s)
	if code, err := s.HTTP(t, s.WithToken("")).Try(t.Context(), "POST", "/console/view/calls", "{}"); err != nil || code != 401 && code != 403 {
		t.Errorf("a stranger asks for a view: status %d, %v", code, err)
	}
}

// comparableViews compares dave's other views with the responses of the API to dave.
func (b *browser) comparableViews(t *testing.T, api *harness.HTTP) {
	t.Helper()
	same := func(what, expression string, want []string) {
		t.Helper()
		slices.Sort(want)
		b.until(`JSON.stringify([...` + expression + `].sort()) === JSON.stringify(` + harness.AsJSON(slices.Compact(want)) + `)`)
		if len(want) == 0 {
			t.Errorf("%s: nothing is compared", what)
		}
	}
	// Traces: none of the whole cluster, only of one namespace.
	b.visit("#/traces")
	b.until(says("Name a namespace if you may read its traces"))
	b.visit("#/traces?namespace=shop")
	b.until(says("of-the-shop"))
	same("traces", `new Set([...document.querySelectorAll("tr[data-id]")].map((r) => r.dataset.id))`, harness.Names(api.Get(harness.TracesIn("shop"))))
	// Explain: the same plan as from the API, which hides the objects that dave may not list.
	const object = `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"small","namespace":"default","labels":{"a":"b"}},"spec":{"replicas":9,"selector":{"matchLabels":{"a":"b"}},"template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"a","image":"a"}]}}}}`
	plan := api.Must(http.StatusCreated, "POST", "/apis/gatehouse.dev/v1alpha1/admissionexplanations", `{"apiVersion":"gatehouse.dev/v1alpha1","kind":"AdmissionExplanation","spec":{"resource":{"group":"apps","version":"v1","resource":"deployments"},"namespace":"default","object":`+object+`}}`)
	var steps []string
	list, _ := plan.At("status", "plan", "steps").([]any)
	for _, step := range list {
		by := fmt.Sprint(harness.At(step, "plugin"))
		if entry, ok := harness.At(step, "entry").(map[string]any); ok {
			by = fmt.Sprint(entry["kind"], " ", entry["configuration"])
		}
		steps = append(steps, by)
	}
	b.visit("#/explain")
	b.do(chromedp.WaitVisible("#manifest", chromedp.ByQuery), chromedp.SetValue("#manifest", object, chromedp.ByQuery), chromedp.Click("#run", chromedp.ByQuery))
	b.until(says("may not list validatingadmissionpolicies"))
	b.until(`!` + says("at most five replicas"))
	b.until(fmt.Sprintf(`document.querySelectorAll("section.plan tbody tr").length === %d`, len(steps)))
	for _, by := range steps {
		kind, name, registered := strings.Cut(by, " ")
		if !registered {
			name = kind
		}
		b.until(`[...document.querySelectorAll("section.plan td.name:nth-child(4)")].some((d) => d.innerText.includes(` + harness.AsJSON(name) + `))`)
	}
	// Objects that dave may not get cannot be picked.
	b.do(chromedp.Click("details.fold > summary", chromedp.ByQuery), chromedp.SetValue("#pick-kind", "ConfigMap", chromedp.ByQuery), chromedp.SetValue("#pick-name", "web", chromedp.ByQuery), chromedp.Click("#get", chromedp.ByQuery))
	b.until(says("Not allowed: "))
	// Object: an object that dave may get, and its field managers, without the traces of its namespace.
	b.visit("#/object?version=apps/v1&kind=Deployment&namespace=default&name=small")
	b.until(says("Traces: Not allowed"))
	b.until(says("manager kubectl-create") + ` && !` + says("defaults/team") + ` && !` + says("Requests about it"))
	b.visit("#/object?version=v1&kind=ConfigMap&namespace=default&name=web")
	b.until(says("Not allowed: "))
	// Health: findings only about objects that dave may list.
	b.visit("#/health")
	b.until(says("MutatingWebhookConfiguration: not allowed"))
	var configurations []string
	for _, name := range harness.Names(api.Get("/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations")) {
		configurations = append(configurations, "ValidatingWebhookConfiguration "+name)
	}
	b.until(`[...document.querySelectorAll(".card h2")].every((h) => ` + harness.AsJSON(configurations) + `.includes(h.innerText))`)
	b.until(fmt.Sprintf(`[...document.querySelectorAll(".sums li")].some((l) => l.innerText.replace(/\s+/g, " ") === "%d registrations")`, len(configurations)))
	b.until(`!` + says("replicas") + ` && !` + says("defaults"))
}

// behindTheCommand opens the page served by gatehouse console. Its link works once, and the page explains how
// to get another link.
func (b *browser) behindTheCommand(t *testing.T, s *harness.Server) {
	t.Helper()
	command := exec.CommandContext(t.Context(), harness.Binary(t), "console", "--no-browser", "--kubeconfig", s.Kubeconfig)
	out, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = command.Process.Kill()
		_ = command.Wait()
	}()
	lines := bufio.NewScanner(out)
	link := ""
	for link == "" && lines.Scan() {
		link = regexp.MustCompile(`http://\S+`).FindString(lines.Text())
	}
	b.do(chromedp.Navigate(link), chromedp.WaitVisible("#nav", chromedp.ByQuery))
	b.until(says("deployments.apps small"))
	b.until(`document.querySelector("#who").innerText.trim() !== "" && !document.querySelector("#who button")`)
	b.do(chromedp.Evaluate(`sessionStorage.clear()`, nil), chromedp.Navigate(strings.Replace(link, "#", "?again#", 1)))
	b.until(says("This link was used") + ` && ` + says("start gatehouse console again") + ` && !document.querySelector("#token")`)
}

// tabTo presses Tab until an expression is true.
func (b *browser) tabTo(expression string) {
	b.t.Helper()
	const most = 100
	for range most {
		var there bool
		b.do(chromedp.KeyEvent(kb.Tab), chromedp.Evaluate(expression, &there))
		if there {
			return
		}
	}
	b.t.Fatalf("%d times Tab: never %s", most, expression)
}

// comparable compares the registrations on the page with the API's responses to the same user: they must be
// equal. wanted are required entries.
func (b *browser) comparable(t *testing.T, s *harness.Server, token string, wanted ...string) {
	t.Helper()
	b.visit("#/chain")
	b.until(`/(no|[0-9]) registrations/.test(document.querySelector("main").innerText)`)
	api := []string{}
	client := s.HTTP(t, s.WithToken(token))
	for kind, resource := range map[string]string{
		"MutatingWebhookConfiguration": "mutatingwebhookconfigurations", "ValidatingWebhookConfiguration": "validatingwebhookconfigurations",
		"MutatingAdmissionPolicy": "mutatingadmissionpolicies", "ValidatingAdmissionPolicy": "validatingadmissionpolicies",
	} {
		code, body, err := client.TryRead(t.Context(), "/apis/admissionregistration.k8s.io/v1/"+resource)
		if err != nil {
			t.Fatal(err)
		}
		if code == http.StatusForbidden {
			// The page is rendered in one step: when this text appears, the entries are present, too.
			b.until(says(kind + ": not allowed"))
			continue
		}
		var list metav1.PartialObjectMetadataList
		if err := json.Unmarshal(body, &list); err != nil || code != http.StatusOK {
			t.Fatalf("listing %s: status %d, %v", resource, code, err)
		}
		for i := range list.Items {
			api = append(api, kind+"/"+list.Items[i].Name)
		}
	}
	slices.Sort(api)
	for _, w := range wanted {
		if !slices.Contains(api, w) {
			t.Errorf("the API does not list %s: %v", w, api)
		}
	}
	want, err := json.Marshal(api)
	if err != nil {
		t.Fatal(err)
	}
	b.until(`JSON.stringify([...new Set([...document.querySelectorAll("details.entry")].map((e) => e.dataset.entry))].sort()) === JSON.stringify(` + string(want) + `)`)
}

// accessible checks each view with the rules of axe-core.
func (b *browser) accessible() {
	b.t.Helper()
	dir := b.t.TempDir()
	ctx, stop := context.WithTimeout(b.ctx, patience)
	defer stop()
	if out, err := exec.CommandContext(ctx, "npm", "install", "--prefix", dir, "--no-audit", "--no-fund", "axe-core@4.14.1").CombinedOutput(); err != nil {
		b.t.Fatalf("npm does not get axe-core: %v: %.200s", err, out)
	}
	axe, err := os.ReadFile(filepath.Join(dir, "node_modules/axe-core/axe.min.js"))
	if err != nil {
		b.t.Fatal(err)
	}
	for _, view := range []string{"traces", "chain", "explain", "object", "health"} {
		b.visit("#/" + view)
		b.do(chromedp.WaitVisible("main h1", chromedp.ByQuery))
		b.until(`!document.querySelector("main").innerText.includes("reading")`)
		var found []string
		b.do(chromedp.Evaluate(string(axe)+";0", nil), chromedp.Evaluate(`axe.run().then((r) => r.violations.map((v) => v.id + ": " + v.nodes.map((n) => n.target.join(" ")).slice(0, 3).join(", ")))`, &found,
			func(p *runtime.EvaluateParams) *runtime.EvaluateParams { return p.WithAwaitPromise(true) }))
		for _, f := range found {
			b.t.Errorf("%s: %s", view, f)
		}
	}
}

// shot takes a screenshot for docs/console.md, with -update.
func (b *browser) shot(name string) {
	b.t.Helper()
	if !*update {
		return
	}
	var image []byte
	b.do(chromedp.CaptureScreenshot(&image))
	if err := os.WriteFile(filepath.Join("..", "..", "docs", "console", name+".png"), image, 0o644); err != nil {
		b.t.Fatal(err)
	}
}
