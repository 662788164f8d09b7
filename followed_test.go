package gatehouse_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"go/ast"
	"go/parser"
	"go/printer"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// followed are the functions of upstream that a file here does the work of in its own way.
// When one of them changes, what is here may have to change as well.
var followed = []struct {
	// ours is the file here.
	ours string
	// module and file say where upstream's function is; name is that of the function, or
	// Type.Method.
	module, file, name string
	// sum is the hash of the function's source without its comments.
	sum string
}{
	{"server/customresources/schemas.go", apiextensions, "pkg/apiserver/customresource_handler.go", "unstructuredSchemaCoercer.apply", "46e5d64686618ca4"},
	{"server/customresources/schemas.go", apiextensions, "pkg/apiserver/customresource_handler.go", "unstructuredDefaulter.Default", "d74a0bc88af8d6c5"},
	{"server/customresources/schemas.go", apiextensions, "pkg/apiserver/customresource_handler.go", "schemaCoercingDecoder.Decode", "b5cb521cd15f054c"},
	{"server/customresources/schemas.go", apiextensions, "pkg/apiserver/customresource_handler.go", "schemaCoercingConverter.ConvertToVersion", "d1c5910b74e9169d"},
	{"server/customresources/version.go", apiextensions, "pkg/apiserver/customresource_handler.go", "crdHandler.getOrCreateServingInfoFor", "adbc8a5c03dfc3f2"},
	{"server/customresources/version.go", apiextensions, "pkg/apiserver/customresource_handler.go", "crdHandler.serveResource", "8e6fe89e4c5b8ace"},
	{"server/customresources/version.go", apiextensions, "pkg/apiserver/customresource_handler.go", "crdHandler.serveStatus", "21d9705722be6b19"},
	{"server/customresources/version.go", apiextensions, "pkg/apiserver/customresource_handler.go", "crdHandler.serveScale", "70110f46d5a8b5d5"},
	{"server/customresources/discovery.go", apiextensions, "pkg/apiserver/customresource_discovery_controller.go", "DiscoveryController.sync", "506de2e45bbcf35f"},
	{"server/customresources/webhook.go", apiextensions, "pkg/apiserver/conversion/webhook_converter.go", "webhookConverter.Convert", "2521ef4606f4a72b"},
	{"server/customresources/webhook.go", apiextensions, "pkg/apiserver/conversion/webhook_converter.go", "getConvertedObjectsFromResponse", "8b8b95955bc7d502"},
	{"server/customresources/webhook.go", apiextensions, "pkg/apiserver/conversion/webhook_converter.go", "validateConvertedObject", "0ce32728f358e6b0"},
	{"server/customresources/webhook.go", apiextensions, "pkg/apiserver/conversion/webhook_converter.go", "restoreObjectMeta", "a0ba09bd22c6fec0"},
	{"server/resources/verbs.go", apiserver, "pkg/endpoints/installer.go", "APIInstaller.registerResourceHandlers", "842ef0c7d210a2a7"},
	{"server/frame.go", apiserver, "pkg/server/config.go", "DefaultBuildHandlerChain", "1eceafc951806d26"},
	{"server/inflight/inflight.go", apiserver, "pkg/server/filters/maxinflight.go", "WithMaxInFlightLimit", "9143b1a4f7cd0ce2"},
	{"server/waiting/finish.go", apiserver, "pkg/endpoints/filters/audit.go", "WithAudit", "e56ad4af1a7f06bc"},
	{"server/waiting/finish.go", apiserver, "pkg/server/httplog/httplog.go", "respLogger.Log", "e911867c28c509e2"},
	{"admission/lifecycle.go", apiserver, "pkg/admission/plugin/namespace/lifecycle/admission.go", "Lifecycle.Admit", "b00dcf955c54e5fd"},
	{"admission/plan/decide.go", apiserver, "pkg/admission/plugin/webhook/generic/webhook.go", "Webhook.ShouldCallHook", "82f709e488e172a2"},
	{"admission/plan/rule.go", apiserver, "pkg/admission/plugin/webhook/predicates/rules/rules.go", "Matcher.Matches", "aa8002092e7c5e75"},
	{"admission/plan/rule.go", apiserver, "pkg/admission/plugin/webhook/predicates/rules/rules.go", "Matcher.scope", "8ed8cf57e1357edb"},
	{"admission/plan/rule.go", apiserver, "pkg/admission/plugin/webhook/predicates/rules/rules.go", "Matcher.resource", "dd9bb2eb6baf7810"},
	{"admission/plan/rule.go", apiserver, "pkg/admission/plugin/webhook/predicates/rules/rules.go", "Matcher.operation", "6fa55c5a94fc1645"},
	{"admission/plan/rule.go", apiserver, "pkg/admission/plugin/webhook/predicates/rules/rules.go", "IsExemptAdmissionConfigurationResource", "91ef606c8237aa6d"},
	{"admission/plan/labels.go", apiserver, "pkg/admission/plugin/webhook/predicates/namespace/matcher.go", "Matcher.GetNamespaceLabels", "0c1026d005aeb213"},
	{"admission/dispatch/mutate.go", apiserver, "pkg/admission/plugin/webhook/mutating/dispatcher.go", "mutatingDispatcher.Dispatch", "3791eb5a8f5cfa8b"},
	{"admission/dispatch/mutate.go", apiserver, "pkg/admission/plugin/webhook/mutating/dispatcher.go", "mutatingDispatcher.callAttrMutatingHook", "174283f544165e90"},
	{"admission/dispatch/validate.go", apiserver, "pkg/admission/plugin/webhook/validating/dispatcher.go", "validatingDispatcher.Dispatch", "79a8301016498e22"},
	{"admission/dispatch/validate.go", apiserver, "pkg/admission/plugin/webhook/validating/dispatcher.go", "validatingDispatcher.callHook", "0dabd1e7b185a31a"},
	{"admission/review/decode.go", apiserver, "pkg/admission/plugin/webhook/request/admissionreview.go", "VerifyAdmissionResponse", "e34709ef3f02feba"},
	{"admission/review/body.go", apiserver, "pkg/admission/plugin/webhook/request/admissionreview.go", "CreateV1AdmissionReview", "4e4a3ac6a99975e3"},
	{"admission/call/target.go", apiserver, "pkg/util/webhook/client.go", "ClientManager.hookClientConfig", "f160f0146ede42d1"},
	{"server/namespaces/controller.go", kubernetes, "pkg/controller/namespace/deletion/namespaced_resources_deleter.go", "namespacedResourcesDeleter.Delete", "5c725b0e3d3a55d2"},
	{"server/namespaces/controller.go", kubernetes, "pkg/controller/namespace/deletion/namespaced_resources_deleter.go", "namespacedResourcesDeleter.deleteAllContent", "8758f68d5d2042b6"},
	{"server/aggregation/proxy.go", aggregator, "pkg/apiserver/handler_proxy.go", "proxyHandler.ServeHTTP", "0feaa403c9898fd3"},
	{"server/aggregation/proxy.go", aggregator, "pkg/apiserver/handler_proxy.go", "proxyHandler.updateAPIService", "20eb2ee291478d78"},
	{"server/aggregation/aggregation.go", aggregator, "pkg/apiserver/apiserver.go", "APIAggregator.AddAPIService", "1d1da8bf033a731f"},
	{"server/aggregation/registrar.go", aggregator, "pkg/controllers/autoregister/autoregister_controller.go", "autoRegisterController.checkAPIService", "7feae783b6a3b03b"},
	{"server/aggregation/documents.go", aggregator, "pkg/controllers/openapiv3/aggregator/aggregator.go", "specProxier.updateAPIServiceSpecLocked", "d1d6ba52b20a1c56"},
	{"server/aggregation/documents.go", aggregator, "pkg/controllers/openapi/aggregator/aggregator.go", "specAggregator.updateServiceLocked", "db1952d28f9e6cc5"},
	{"server/auth/bootstrap.go", kubernetes, "pkg/registry/rbac/rest/storage_rbac.go", "ensureRBACPolicy", "2d6664357e8db120"},
}

const (
	apiextensions = "k8s.io/apiextensions-apiserver"
	aggregator    = "k8s.io/kube-aggregator"
	apiserver     = "k8s.io/apiserver"
	kubernetes    = "k8s.io/kubernetes"
)

// A change of upstream's code asks for a look at our code that follows it.
func TestFollowedCodeIsUnchanged(t *testing.T) {
	modules := map[string][2]string{}
	for _, path := range []string{aggregator, apiextensions, apiserver, kubernetes} {
		out, err := exec.Command("go", "list", "-m", "-f", "{{.Version}} {{.Dir}}", path).Output()
		if err != nil {
			t.Fatalf("go list -m %s: %v", path, err)
		}
		version, dir, _ := strings.Cut(strings.TrimSpace(string(out)), " ")
		modules[path] = [2]string{version, dir}
	}
	sources := map[string]map[string]string{}
	for _, f := range followed {
		version, dir := modules[f.module][0], modules[f.module][1]
		path := filepath.Join(dir, filepath.FromSlash(f.file))
		if sources[path] == nil {
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatalf("%s follows %s, which is not there: %v", f.ours, f.file, err)
			}
			sources[path] = sums(t, text)
		}
		switch sum := sources[path][f.name]; {
		case sum == "":
			t.Errorf("%s follows %s of %s in %s, which %s no longer has: find what does its work now, and name that here", f.ours, f.name, f.file, f.module, version)
		case sum != f.sum:
			t.Errorf("%s follows %s of %s in %s, which %s has changed: compare the two, change ours if it must be, and note the new sum %s here", f.ours, f.name, f.file, f.module, version, sum)
		}
		if _, err := os.Stat(filepath.FromSlash(f.ours)); err != nil {
			t.Errorf("there is no %s: say which file follows %s now", f.ours, f.name)
		}
	}
}

// sums returns the hashes of the functions of a file, by name. Comments and blank lines
// make no difference.
func sums(t *testing.T, source []byte) map[string]string {
	t.Helper()
	files := token.NewFileSet()
	parsed, err := parser.ParseFile(files, "", source, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	for _, decl := range parsed.Decls {
		f, ok := decl.(*ast.FuncDecl)
		if !ok {
			continue
		}
		name := f.Name.Name
		if f.Recv != nil {
			name = typeName(f.Recv.List[0].Type) + "." + name
		}
		var text bytes.Buffer
		if err := printer.Fprint(&text, files, f); err != nil {
			t.Fatal(err)
		}
		hash := sha256.New()
		for line := range strings.Lines(text.String()) {
			if strings.TrimSpace(line) != "" {
				hash.Write([]byte(line))
			}
		}
		found[name] = hex.EncodeToString(hash.Sum(nil)[:8])
	}
	return found
}

// typeName is the name of a receiver's type.
func typeName(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.StarExpr:
		return typeName(e.X)
	case *ast.IndexExpr:
		return typeName(e.X)
	case *ast.Ident:
		return e.Name
	}
	return ""
}

func TestSumsSeeWhatMatters(t *testing.T) {
	const source = "package p\n\n// f is a function.\nfunc (m *T[K]) f() int {\n\treturn 1\n}\n"
	sum := sums(t, []byte(source))["T.f"]
	for name, c := range map[string]struct {
		old, new string
		same     bool
	}{
		"a comment":     {"return 1", "// One.\n\n\treturn 1", true},
		"a doc comment": {"f is a", "f is the", true},
		"another file":  {"package p", "package p\n\nvar x = 1", true},
		"a statement":   {"return 1", "return 2", false},
		"the signature": {"() int", "() int64", false},
		"the name":      {"f()", "g()", false},
	} {
		if got := sums(t, []byte(strings.Replace(source, c.old, c.new, 1)))["T.f"]; sum == "" || (got == sum) != c.same {
			t.Errorf("%s: the sum was %q and is %q", name, sum, got)
		}
	}
}
