package reference

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/test/pagetest"
)

// answer is an error that Gatehouse itself makes, as a client gets it.
type answer struct {
	// text is a part of the message; ... is its variable part.
	text string
	// status is "CODE Reason".
	status string
	// cause is the reason of the error, and remedy the advice.
	cause, remedy string
	// file is where the text is written.
	file string
}

// answers are the errors of the page, by the parts of the page.
var answers = []struct {
	title, text string
	answers     []answer
}{
	{"Webhooks", "Each message about a failed webhook also names its configuration, its `failurePolicy`, and what to check.\n[S7](../dev/rules/07-failures.md) has the rules.", []answer{
		{`admission webhook "..." denied the request: ...`, "400 to 599, from the webhook", "The webhook answered `allowed: false`.", "Read the message: it is the webhook's. Change the object, or ask the owner of the webhook.", "internal/engine/review/denial.go"},
		{`failed calling webhook "...": `, "500 InternalError", "The webhook failed and its `failurePolicy` is `Fail`. The rest of the message says how; the rows below have the cases.", "Repair the webhook, or [take it out](../troubleshooting.md#recover-from-a-bad-webhook).", "admission/call/error.go"},
		{`failed to call webhook: `, "500 InternalError", "No connection, no trusted certificate, no answer in time, or an HTTP status other than 200. The cause follows.", "Check that the webhook's server runs, that its certificate is valid for the name and signed by `caBundle`, and that it answers within `timeoutSeconds`.", "admission/call/error.go"},
		{`not called: `, "500 InternalError", "The webhook's server failed several calls in a row (the breaker), or too many calls to it are waiting.", "Repair or scale the webhook's server. Gatehouse calls it again by itself.", "admission/call/error.go"},
		{`received invalid webhook response: `, "500 InternalError", "The answer has another `uid`, `apiVersion` or `kind` than the review, or no response.", "Correct the webhook: repeat the `uid`, the `apiVersion` and the `kind` of the review.", "admission/call/error.go"},
		{`received undecodable patch in webhook response: `, "500 InternalError", "`response.patch` is not a list of JSON Patch operations.", "Correct the webhook: send RFC 6902 operations in base64.", "admission/call/error.go"},
		{`unsupported patch type "..."`, "500 InternalError", "`response.patchType` is not `JSONPatch`.", "Correct the webhook.", "internal/engine/dispatch/patch.go"},
		{`could not create admission objects: `, "500 InternalError", "`admissionReviewVersions` names no version that the server knows.", "Add `v1` or `v1beta1`.", "admission/call/error.go"},
		{`could not get REST client: `, "500 InternalError", "`clientConfig` or the credentials for the webhook cannot be used.", "Correct `caBundle`, the URL, or the [credentials](../webhooks.md#credentials).", "admission/call/error.go"},
		{`admission webhook "..." returned a patch that could not be applied: `, "500 InternalError", "The patch does not fit the object, for example because its parent is missing.", "Correct the webhook. `gatehouse trace` shows the patches that were applied before.", "admission/call/error.go"},
		{`admission webhook "..." returned a patch that is not allowed: ...`, "500 InternalError", "The patch changes `apiVersion` or `kind`, or removes the metadata.", "Correct the webhook.", "internal/engine/dispatch/patch.go"},
		{`admission webhook "..." attempted to modify the object, which is not supported for this operation`, "500 InternalError", "The webhook patched a DELETE or a CONNECT.", "Correct the webhook: send no patch for these operations.", "internal/engine/dispatch/patch.go"},
		{`admission webhook "..." does not support dry run`, "400 BadRequest", "The request is a dry run, and the webhook may have side effects.", "Set `sideEffects` to `None` or `NoneOnDryRun` if that is true, or send the request without dry run.", "internal/engine/dispatch/ask.go"},
		{`.../... has panicked: `, "500 InternalError", "A fault in Gatehouse while it called the webhook.", "Report it with the stack from the log.", "admission/call/error.go"},
		{`request did not complete within requested timeout`, "504 Timeout", "The client went away, or the time of the request ended, while webhooks were called.", "Find the slow webhook with `gatehouse trace`. Give the request more time, or the webhook less.", "internal/engine/dispatch/dispatch.go"},
		{`Unable to refresh the ... configuration: ...`, "500 LoadingConfiguration", "The server could not read registrations for longer than `--admission-max-staleness`, so it does not know which webhooks apply.", "Repair etcd. Clients retry; registrations themselves can be changed.", "admission/snapshot/gate.go"},
		{`Unable to refresh the ... configuration: ...`, "503 ServiceUnavailable", "The message goes on with `this server is not announced to the main server`: an aggregated server that uses the engine cannot announce itself, so it does not read registrations.", "Read why: the main server does not answer, or rejects the announcement. The server retries.", "admission/snapshot/gate.go"},
		{`Waiting for initialization configuration to load: ...`, "500 LoadingConfiguration", "The server has just started and has not read the registrations.", "Retry after a second.", "admission/snapshot/gate.go"},
	}},
	{"Admission policies", "[S17](../dev/rules/17-validating-policies.md) and [S18](../dev/rules/18-mutating-policies.md) have the rules.", []answer{
		{`ValidatingAdmissionPolicy '...' with binding '...' denied request: ...`, "422 Invalid, or as the policy says", "A validation is false, or failed and `failurePolicy` is `Fail`, and the binding denies.", "Read the message: it is the policy's. Change the object, the policy or the binding.", "admission/plan/judge.go"},
		{`policy '...' with binding '...' denied request: ...`, "422 Invalid", "An expression of a MutatingAdmissionPolicy failed and `failurePolicy` is `Fail`.", "Correct the expression.", "admission/plan/judge.go"},
	}},
	{"Initializers", "[Initializers](../initializers.md) explains the words; [S11](../dev/rules/11-initializers.md) has the rules.", []answer{
		{`initializer "..." did not act on ... "..." within ... and its failurePolicy is Fail: the object is stored and stays uninitialized until the initializer acts`, "504 Timeout", "An initializer that must act is away.", "Start it. Or act for it with `gatehouse initializers complete`, or delete the object.", "initialization/timeout.go"},
		{`request did not complete within requested timeout: ... "..." is stored and waits for ...`, "504 Timeout", "The request's time ended before the initializers did.", "Nothing: the object goes on being initialized. Watch it with `gatehouse initializers watch`.", "initialization/creation.go"},
		{`the server is shutting down: ... "..." is stored and not yet initialized`, "503 ServiceUnavailable", "The server ends while a create waits.", "Look at the object through another server, or after the restart.", "initialization/creation.go"},
		{`object deleted while waiting for creation`, "500 InternalError", "The object was deleted before it was initialized.", "Create it again.", "initialization/tracker.go"},
		{`... registered initializers apply to the object, more than the limit of ...: remove some from the InitializerConfigurations`, "403 Forbidden", "More than 64 initializers apply.", "Remove some of them, or narrow their rules.", "internal/engine/initializers/plugin.go"},
		{`create with initializers denied`, "403 Forbidden", "The object came with `metadata.initializers`, and its user lacks the verb `initialize`.", "Leave the field out, or grant the verb.", "internal/engine/initializers/plugin.go"},
		{`update to uninitialized resource denied`, "403 Forbidden", "A user without the verb `initialize` changed an uninitialized object.", "Wait until it is initialized, or grant the verb.", "internal/engine/initializers/plugin.go"},
		{`field is immutable once initialization has completed`, "422 Invalid", "A write gives `metadata.initializers` to an object that is initialized.", "Leave the field out.", "internal/engine/initializers/plugin.go"},
		{`metadata.annotations[...] is reserved: write metadata.initializers instead`, "400 BadRequest", "The annotation is the server's own form of the field.", "Write the field.", "internal/server/api/resources/patch.go"},
		{`updatedAnnotations[...] is reserved: write metadata.initializers of the deployment instead`, "400 BadRequest", "The same, in a rollback of a deployment.", "Write the field.", "internal/server/api/stores/legacy.go"},
	}},
	{"Storage and load", "[One server](../one-server.md) has remedies for disks and databases.", []answer{
		{`too many concurrent requests, please try again later`, "429 TooManyRequests", "More requests run than `--max-requests-inflight` or `--max-mutating-requests-inflight` allows.", "Retry after a second; most clients do. Raise the limit if the machine has room.", "internal/server/handling/inflight/inflight.go"},
		{`too many bytes of requests wait to be handled, please try again later`, "429 TooManyRequests", "The bodies of requests that wait need more memory than the server, or than one user, may have ([S27.6](../dev/rules/27-fairness.md)).", "Retry after a second. Send fewer large requests at a time.", "internal/server/handling/inflight/clients.go"},
		{`limit is ..., after aliases of the YAML are expanded`, "413 RequestEntityTooLarge", "The body is in YAML, and its aliases repeat more than a body may have ([S27.9](../dev/rules/27-fairness.md)).", "Send the object in JSON, or in several parts.", "internal/server/api/resources/body.go"},
		{`limit is ... bytes, for the paths of all fields together`, "413 RequestEntityTooLarge", "The body nests very long names, or very many fields below a long name ([S27.13](../dev/rules/27-fairness.md)).", "Shorten the names, or send the request with `fieldValidation=Ignore`.", "internal/server/api/resources/paths.go"},
		{`limit is ... pairs of list elements of the patch and the object`, "413 RequestEntityTooLarge", "A strategic merge patch has very many list elements ([S27.14](../dev/rules/27-fairness.md)).", "Send the patch in several parts, or as a JSON patch.", "internal/server/api/resources/lists.go"},
		{`too many bytes of patches are being applied, please try again later`, "429 TooManyRequests", "The patches that are being applied need more memory than the server, or than one user, may have ([S27.12](../dev/rules/27-fairness.md)).", "Retry after a second. Send fewer large patches at a time.", "internal/server/handling/inflight/patches.go"},
		{`the body of the request did not arrive within ...`, "504 Timeout", "The client sent its body too slowly.", "Look at the client and at the network.", "internal/server/handling/inflight/clients.go"},
		{`too many requests wait to change this object, please try again later`, "429 TooManyRequests", "100 requests wait to change one object ([S27.8](../dev/rules/27-fairness.md)).", "Retry after a second. Have fewer clients write the object.", "internal/server/handling/inflight/lines.go"},
		{`the time of the request was over before its turn to change the object, which it has not changed`, "504 Timeout", "Requests before this one took all of its time to change the same object.", "Retry. Have fewer clients write the object, or look at webhooks that are slow.", "internal/server/handling/inflight/lines.go"},
		{`the disk of the storage is nearly full: ... are free, less than the ... of --min-free-disk; nothing was written, please try again when more space is free`, "503 ServiceUnavailable", "Less than `--min-free-disk` is free on the disk of the embedded etcd.", "[Free some space](../one-server.md#disk); the server needs no restart.", "internal/server/storage/etcd/space.go"},
		{`the database of the storage is full: nothing was written, and only deletions are accepted until its administrator frees space: ...`, "503 ServiceUnavailable", "etcd's database has reached its quota.", "[Delete objects or raise `--etcd-quota`](../one-server.md#disk).", "internal/server/storage/outage.go"},
		{`the cluster has no majority`, "503 ServiceUnavailable", "The cluster has no majority of members that run. The message names the missing ones.", "Start the missing members, or see [three servers](../three-servers.md).", "internal/server/storage/etcd/majority.go"},
		{`the storage does not answer, please try again later: ...`, "503 ServiceUnavailable", "etcd did not answer a read.", "Retry. Look at etcd.", "internal/server/storage/outage.go"},
		{`the storage did not answer within the time of the request`, "504 Timeout", "etcd did not answer a read before the request's time was over.", "Retry. Look at etcd.", "internal/server/storage/outage.go"},
		{`the storage did not answer; it may or may not have stored the change: ...`, "504 Timeout", "etcd did not answer a write.", "Read the object before you send the write again.", "internal/server/storage/outage.go"},
		{`conversion webhook for ...: to ..., CustomResourceDefinition "...", POST ...: `, "429 TooManyRequests", "The conversion webhook is slow, and as many requests as may wait for it do.", "Retry after a second. Make the webhook faster.", "internal/server/api/customresources/webhook.go"},
	}},
	{"Namespaces and resources", "", []answer{
		{`unable to create new content in namespace ... because it is being terminated`, "403 Forbidden", "The namespace is being deleted.", "Wait until it is gone, and create it again.", "internal/server/controllers/namespaces/fence.go"},
		{`this namespace may not be deleted`, "403 Forbidden", "The namespaces `default`, `kube-system` and `kube-public` stay.", "Delete their contents instead.", "admission/lifecycle.go"},
		{`create not allowed while custom resource definition is terminating`, "403 Forbidden", "The CustomResourceDefinition is being deleted.", "Wait until it is gone, and create it again.", "internal/server/api/customresources/terminating.go"},
		{`the server could not find the requested resource`, "404 NotFound", "The resource is not served in this version.", "Look at `gatehouse kubectl api-resources`.", "internal/server/api/resources/notfound.go"},
		{`must be a version that the server returned`, "422 Invalid", "`metadata.resourceVersion` is not a number.", "Send the version that a read returned, or none.", "internal/server/api/resources/mistakes.go"},
		{`invalid resource version: `, "400 BadRequest", "The parameter `resourceVersion` is not a number.", "Send the version that a list returned, or none.", "internal/server/api/resources/mistakes.go"},
		{`reading the request's body: `, "504 Timeout", "The connection was too slow, or ended, before the whole body was there.", "Send it again.", "internal/server/api/resources/patch.go"},
		{`... needs an agent on the node, but this server has none: ...`, "501 MethodNotAllowed", "Logs and commands of containers need nodes, and there are none.", "Use a cluster.", "internal/server/api/stores/nodes.go"},
	}},
	{"Aggregated API servers", "[Aggregated API servers](../aggregation.md) and [S22](../dev/rules/22-aggregation.md) have more.", []answer{
		{`... is not available: ...`, "503 ServiceUnavailable", "The condition `Available` of the APIService that the message names is not true; the rest says why.", "Start or repair the server, its Service, or `caBundle`. Gatehouse looks again by itself.", "internal/server/api/aggregation/proxy.go"},
		{`... cannot be reached: ...`, "503 ServiceUnavailable", "The Service that the APIService names leads nowhere.", "Give it endpoints, or `gatehouse serve` a `--service-address`.", "internal/server/api/aggregation/proxy.go"},
		{`... did not answer: ...`, "503 ServiceUnavailable", "The aggregated server broke the connection, was too slow, or did not answer in HTTP.", "Look at its log, and try again.", "internal/server/api/aggregation/proxy.go"},
		{`too many concurrent requests for ..., please try again later`, "429 TooManyRequests", "As many requests as `--max-requests-inflight` allows wait for one aggregated server.", "Retry after a second. Make the server faster.", "internal/server/api/aggregation/proxy.go"},
	}},
	{"Explanations and traces", "", []answer{
		{`spec.groups needs spec.user`, "400 BadRequest", "An explanation names groups without a user.", "Add `spec.user`, or `--as` with `--as-group`.", "internal/engine/question/question.go"},
		{`the registrations may have ... bytes in total`, "422 Invalid", "The policies that an explanation takes to be registered are too large.", "Try fewer of them at once.", "internal/server/reporting/explain/tried.go"},
		{`to explain a request of others, user "..." needs the verb impersonate on ... "..."`, "403 Forbidden", "The caller may not act as that user or group.", "Grant the verb `impersonate`, or explain a request of your own.", "internal/engine/question/question.go"},
		{`to explain a change of ... "..." you need to be allowed to get it`, "403 Forbidden", "An explanation of an UPDATE or a DELETE shows parts of the stored object.", "Grant the verb `get`.", "internal/engine/question/question.go"},
		{`the resourceVersion is from another server, or from an earlier run of this one: list again, then watch`, "410 Expired", "Traces live in the memory of one server.", "List, then watch from there; client-go does so by itself.", "internal/server/reporting/traces/storage.go"},
		{`the watch is too far behind the new traces: list again, then watch`, "410 Expired", "The client reads more slowly than traces come.", "List, then watch from there.", "internal/server/reporting/traces/watcher.go"},
	}},
}

// elsewhere are the files that make API errors which the page does not have, with the
// reason.
var elsewhere = map[string]string{
	"admission/plan/decide.go":                           "a match condition that fails under Fail is a 403 with the text of the expression; a namespace that is gone a 404",
	"internal/engine/review/decode.go":                   "what a webhook answered, as the cause of its failure",
	"internal/server/handling/auth/bootstrap.go":         "upstream's reconciliation of roles gets it inside the server when a role is missing; no client does",
	"internal/server/controllers/lazyinformer/stored.go": "the watches of the collector and of quotas get it inside the server, as from any API; no client does",
	"internal/server/api/discovery/discovery.go":         "a version that is not served, as in any cluster",
	"internal/server/api/customresources/storage.go":     "a watch of a custom resource that changes: clients watch again by themselves",
	"internal/server/reporting/explain/planning.go":      "ends the explained request inside the server; no client gets it",
	"internal/commands/predict/offline/files.go":         "gatehouse explain reads files; no server answers it",
	"internal/commands/predict/offline/refused.go":       "gatehouse explain says what the server of a cluster would answer",
	"internal/commands/predict/offline/world.go":         "gatehouse explain reads files; no server answers it",
	"internal/server/judging/params/reader.go":           "params that are not there; the policy's parameterNotFoundAction decides",
	"internal/server/reporting/replicas/servers.go":      "what a server announces, when it is not there or does not fit its fields, as any object",
	"internal/server/reporting/replicas/states.go":       "a registration state that is not there, as any object",
	"internal/server/api/resources/later.go":             "a field that the emulated release does not have, as a server of that release answers (S26.13)",
	"internal/server/api/resources/handler.go":           "a verb that the resource does not have, as in any cluster",
	"internal/server/api/stores/addresses.go":            "the first check of the addresses of services gets it inside the server; no client does",
	"internal/server/api/catalog/prepare.go":             "an explanation says what the allocator of a cluster would answer",
	"internal/server/api/stores/unstored.go":             "an explanation of a token says what the registry of tokens would answer",
	"internal/server/handling/waiting/visit.go":          "a request that waits outside of its handler; no client gets it",
	"admission/reports.go":                               "the resource of traces and explanations of an embedded server: what any resource answers to a request that it does not serve",
	"internal/server/api/userpatch/patch.go":             "a patch that does not apply, in the words of upstream",
	"admission/plan/policy.go":                           "what admission/plan/judge.go says, as a status",
}

// constructors are the functions of the API errors, with their code and reason.
var constructors = map[string]string{
	"NewBadRequest": "400 BadRequest", "NewForbidden": "403 Forbidden", "NewNotFound": "404 NotFound",
	"NewInvalid": "422 Invalid", "NewTooManyRequests": "429 TooManyRequests", "NewInternalError": "500 InternalError",
	"NewServiceUnavailable": "503 ServiceUnavailable", "NewTimeoutError": "504 Timeout", "NewResourceExpired": "410 Expired",
	"NewGenericServerResponse": "", "NewUnauthorized": "401 Unauthorized", "NewServerTimeout": "500 ServerTimeout",
	"NewMethodNotSupported": "405 MethodNotAllowed", "NewRequestEntityTooLargeError": "413 RequestEntityTooLarge", "NewConflict": "409 Conflict",
}

const root = "../.."

// docs/reference/errors.md has the errors of the tables above, and each of them stands in
// the code, with that text and that status.
func TestTheReferenceHasTheErrorsOfGatehouse(t *testing.T) {
	var b strings.Builder
	b.WriteString("The errors that Gatehouse itself makes, with the part of the message to look for; `...` is the variable part.\n" +
		"Errors of validation, of RBAC and of conflicts come from the libraries of Kubernetes and are the same as in any cluster.\n" +
		"`gatehouse trace` shows for each rejected request which webhook or plugin rejected it.\n")
	files := map[string]*source{}
	for _, part := range answers {
		fmt.Fprintf(&b, "\n## %s\n\n", part.title)
		if part.text != "" {
			fmt.Fprintf(&b, "%s\n\n", part.text)
		}
		b.WriteString("| message | status | cause | what to do |\n|---|---|---|---|\n")
		for _, a := range part.answers {
			if files[a.file] == nil {
				files[a.file] = parse(t, a.file)
			}
			files[a.file].check(t, a)
			fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", pagetest.Cell(a.text), a.status, a.cause, a.remedy)
		}
	}
	check(t, "errors.md", "Errors", b.String())
	used := map[string]bool{}
	for _, file := range sources(t) {
		if made := parse(t, file).errors; len(made) > 0 && files[file] == nil {
			if elsewhere[file] == "" {
				t.Errorf("%s makes API errors (%s), and no row of answers is about it: add one, or a reason to elsewhere", file, strings.Join(made, ", "))
			}
			used[file] = true
		}
	}
	for file := range elsewhere {
		if !used[file] {
			t.Errorf("elsewhere: %s makes no API error, or answers has it; remove it", file)
		}
	}
}

// sources are the Go files of the engine, of the server and of plans without one, without tests.
func sources(t *testing.T) []string {
	t.Helper()
	var files []string
	for _, dir := range []string{"admission", "internal/engine", "initialization", "internal/server", "internal/commands/predict/offline"} {
		err := filepath.WalkDir(filepath.Join(root, dir), func(file string, d fs.DirEntry, err error) error {
			if err == nil && path.Ext(file) == ".go" && !strings.HasSuffix(file, "_test.go") && !strings.HasSuffix(filepath.Dir(file), "test") {
				rel, err := filepath.Rel(root, file)
				if err != nil {
					return err
				}
				files = append(files, filepath.ToSlash(rel))
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return files
}

// source is the data of a Go file for the pages.
type source struct {
	// texts are its strings, with ... in place of verbs. made has the constructor of the error around each
	// string; empty if it is unknown.
	texts []string
	made  []string
	// errors are the constructors of API errors that it calls.
	errors []string
}

var verb = regexp.MustCompile(`%(\[\d+\])?[-+# 0-9.]*[a-zA-Z]`)

func parse(t *testing.T, file string) *source {
	t.Helper()
	code, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(file)))
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := parser.ParseFile(token.NewFileSet(), file, code, 0)
	if err != nil {
		t.Fatal(err)
	}
	s := &source{}
	s.read(parsed, "")
	return s
}

// read takes in a part of a file, which is an argument of the constructor made.
func (s *source) read(n ast.Node, made string) {
	ast.Inspect(n, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.ImportSpec:
			return false
		case *ast.CallExpr:
			f, ok := n.Fun.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			if pkg, ok := f.X.(*ast.Ident); !ok || pkg.Name != "apierrors" {
				return true
			}
			if _, known := constructors[f.Sel.Name]; !known {
				return true
			}
			// Internal errors of the server are not listed.
			if f.Sel.Name != "NewInternalError" {
				s.errors = append(s.errors, f.Sel.Name)
			}
			for _, argument := range n.Args {
				s.read(argument, f.Sel.Name)
			}
			return false
		case *ast.CompositeLit:
			if kind, ok := n.Type.(*ast.SelectorExpr); ok && kind.Sel.Name == "StatusError" {
				s.errors = append(s.errors, "StatusError")
			}
		case *ast.BinaryExpr:
			if text, ok := joined(n); ok {
				s.add(text, made)
			}
		case *ast.BasicLit:
			if text, err := strconv.Unquote(n.Value); n.Kind == token.STRING && err == nil {
				s.add(text, made)
			}
		}
		return true
	})
}

// joined is the text of strings that are added.
func joined(e ast.Expr) (string, bool) {
	switch e := e.(type) {
	case *ast.BasicLit:
		text, err := strconv.Unquote(e.Value)
		return text, e.Kind == token.STRING && err == nil
	case *ast.BinaryExpr:
		x, ok := joined(e.X)
		y, also := joined(e.Y)
		return x + y, ok && also && e.Op == token.ADD
	}
	return "", false
}

func (s *source) add(text, made string) {
	text = strings.ReplaceAll(text, "%q", `"..."`)
	s.texts, s.made = append(s.texts, verb.ReplaceAllString(text, "...")), append(s.made, made)
}

// check fails the test unless an error stands in the code, with its status where that is
// seen.
func (s *source) check(t *testing.T, a answer) {
	t.Helper()
	i := slices.IndexFunc(s.texts, func(text string) bool { return strings.Contains(text, a.text) })
	if i < 0 {
		t.Errorf("%s does not say %q: correct the row of answers", a.file, a.text)
		return
	}
	if status := constructors[s.made[i]]; status != "" && status != a.status {
		t.Errorf("%s answers %s with %q; the row says %s", a.file, status, a.text, a.status)
	}
	code, _, _ := strings.Cut(a.status, " ")
	if n, err := strconv.Atoi(code); err != nil || http.StatusText(n) == "" {
		t.Errorf("%q: the status %q does not begin with a code of HTTP", a.text, a.status)
	}
	if a.cause == "" || a.remedy == "" {
		t.Errorf("%q has no cause or no remedy", a.text)
	}
}
