package house

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

// followed maps functions of upstream to the file here that reimplements them. A change of an upstream function
// may require a change here.
var followed = []struct {
	// ours is the file in this tree.
	ours string
	// module and file are the place of upstream's function. name is Function or Type.Method.
	module, file, name string
	// sum is the hash of the function's source without its comments.
	sum string
}{
	{"internal/server/api/customresources/schemas.go", apiextensions, "pkg/apiserver/customresource_handler.go", "unstructuredSchemaCoercer.apply", "46e5d64686618ca4"},
	{"internal/server/api/customresources/schemas.go", apiextensions, "pkg/apiserver/customresource_handler.go", "unstructuredDefaulter.Default", "d74a0bc88af8d6c5"},
	{"internal/server/api/customresources/schemas.go", apiextensions, "pkg/apiserver/customresource_handler.go", "schemaCoercingDecoder.Decode", "b5cb521cd15f054c"},
	{"internal/server/api/customresources/schemas.go", apiextensions, "pkg/apiserver/customresource_handler.go", "schemaCoercingConverter.ConvertToVersion", "d1c5910b74e9169d"},
	{"internal/server/api/customresources/version.go", apiextensions, "pkg/apiserver/customresource_handler.go", "crdHandler.getOrCreateServingInfoFor", "adbc8a5c03dfc3f2"},
	{"internal/server/api/customresources/version.go", apiextensions, "pkg/apiserver/customresource_handler.go", "crdHandler.serveResource", "8e6fe89e4c5b8ace"},
	{"internal/server/api/customresources/version.go", apiextensions, "pkg/apiserver/customresource_handler.go", "crdHandler.serveStatus", "21d9705722be6b19"},
	{"internal/server/api/customresources/version.go", apiextensions, "pkg/apiserver/customresource_handler.go", "crdHandler.serveScale", "70110f46d5a8b5d5"},
	{"internal/server/api/customresources/discovery.go", apiextensions, "pkg/apiserver/customresource_discovery_controller.go", "DiscoveryController.sync", "506de2e45bbcf35f"},
	{"internal/server/api/customresources/webhook.go", apiextensions, "pkg/apiserver/conversion/webhook_converter.go", "webhookConverter.Convert", "2521ef4606f4a72b"},
	{"internal/server/api/customresources/webhook.go", apiextensions, "pkg/apiserver/conversion/webhook_converter.go", "getConvertedObjectsFromResponse", "8b8b95955bc7d502"},
	{"internal/server/api/customresources/webhook.go", apiextensions, "pkg/apiserver/conversion/webhook_converter.go", "validateConvertedObject", "0ce32728f358e6b0"},
	{"internal/server/api/customresources/webhook.go", apiextensions, "pkg/apiserver/conversion/webhook_converter.go", "restoreObjectMeta", "a0ba09bd22c6fec0"},
	{"internal/server/api/resources/verbs.go", apiserver, "pkg/endpoints/installer.go", "APIInstaller.registerResourceHandlers", "842ef0c7d210a2a7"},
	{"internal/server/handling/filters/filters.go", apiserver, "pkg/server/config.go", "DefaultBuildHandlerChain", "1eceafc951806d26"},
	{"internal/server/handling/inflight/inflight.go", apiserver, "pkg/server/filters/maxinflight.go", "WithMaxInFlightLimit", "9143b1a4f7cd0ce2"},
	{"internal/server/handling/waiting/finish.go", apiserver, "pkg/endpoints/filters/audit.go", "WithAudit", "e56ad4af1a7f06bc"},
	{"internal/server/handling/waiting/finish.go", apiserver, "pkg/server/httplog/httplog.go", "respLogger.Log", "e911867c28c509e2"},
	{"admission/lifecycle.go", apiserver, "pkg/admission/plugin/namespace/lifecycle/admission.go", "Lifecycle.Admit", "b00dcf955c54e5fd"},
	{"admission/plan/decide.go", apiserver, "pkg/admission/plugin/webhook/generic/webhook.go", "Webhook.ShouldCallHook", "82f709e488e172a2"},
	{"admission/plan/rule.go", apiserver, "pkg/admission/plugin/webhook/predicates/rules/rules.go", "Matcher.Matches", "aa8002092e7c5e75"},
	{"admission/plan/rule.go", apiserver, "pkg/admission/plugin/webhook/predicates/rules/rules.go", "Matcher.scope", "8ed8cf57e1357edb"},
	{"admission/plan/rule.go", apiserver, "pkg/admission/plugin/webhook/predicates/rules/rules.go", "Matcher.resource", "dd9bb2eb6baf7810"},
	{"admission/plan/rule.go", apiserver, "pkg/admission/plugin/webhook/predicates/rules/rules.go", "Matcher.operation", "6fa55c5a94fc1645"},
	{"admission/plan/rule.go", apiserver, "pkg/admission/plugin/webhook/predicates/rules/rules.go", "IsExemptAdmissionConfigurationResource", "91ef606c8237aa6d"},
	{"admission/plan/labels.go", apiserver, "pkg/admission/plugin/webhook/predicates/namespace/matcher.go", "Matcher.GetNamespaceLabels", "0c1026d005aeb213"},
	{"internal/engine/dispatch/mutate.go", apiserver, "pkg/admission/plugin/webhook/mutating/dispatcher.go", "mutatingDispatcher.Dispatch", "3791eb5a8f5cfa8b"},
	{"internal/engine/dispatch/mutate.go", apiserver, "pkg/admission/plugin/webhook/mutating/dispatcher.go", "mutatingDispatcher.callAttrMutatingHook", "174283f544165e90"},
	{"internal/engine/dispatch/validate.go", apiserver, "pkg/admission/plugin/webhook/validating/dispatcher.go", "validatingDispatcher.Dispatch", "79a8301016498e22"},
	{"internal/engine/dispatch/validate.go", apiserver, "pkg/admission/plugin/webhook/validating/dispatcher.go", "validatingDispatcher.callHook", "0dabd1e7b185a31a"},
	{"internal/engine/review/decode.go", apiserver, "pkg/admission/plugin/webhook/request/admissionreview.go", "VerifyAdmissionResponse", "e34709ef3f02feba"},
	{"internal/engine/review/body.go", apiserver, "pkg/admission/plugin/webhook/request/admissionreview.go", "CreateV1AdmissionReview", "4e4a3ac6a99975e3"},
	{"admission/call/target.go", apiserver, "pkg/util/webhook/client.go", "ClientManager.hookClientConfig", "f160f0146ede42d1"},
	{"internal/server/controllers/namespaces/controller.go", kubernetes, "pkg/controller/namespace/deletion/namespaced_resources_deleter.go", "namespacedResourcesDeleter.Delete", "5c725b0e3d3a55d2"},
	{"internal/server/controllers/namespaces/controller.go", kubernetes, "pkg/controller/namespace/deletion/namespaced_resources_deleter.go", "namespacedResourcesDeleter.deleteAllContent", "8758f68d5d2042b6"},
	{"internal/server/api/aggregation/proxy.go", aggregator, "pkg/apiserver/handler_proxy.go", "proxyHandler.ServeHTTP", "0feaa403c9898fd3"},
	{"internal/server/api/aggregation/proxy.go", aggregator, "pkg/apiserver/handler_proxy.go", "proxyHandler.updateAPIService", "20eb2ee291478d78"},
	{"internal/server/api/aggregation/aggregation.go", aggregator, "pkg/apiserver/apiserver.go", "APIAggregator.AddAPIService", "1d1da8bf033a731f"},
	{"internal/server/api/aggregation/registrar.go", aggregator, "pkg/controllers/autoregister/autoregister_controller.go", "autoRegisterController.checkAPIService", "7feae783b6a3b03b"},
	{"internal/server/api/aggregation/documents.go", aggregator, "pkg/controllers/openapiv3/aggregator/aggregator.go", "specProxier.updateAPIServiceSpecLocked", "d1d6ba52b20a1c56"},
	{"internal/server/api/aggregation/documents.go", aggregator, "pkg/controllers/openapi/aggregator/aggregator.go", "specAggregator.updateServiceLocked", "db1952d28f9e6cc5"},
	{"internal/server/handling/auth/bootstrap.go", kubernetes, "pkg/registry/rbac/rest/storage_rbac.go", "ensureRBACPolicy", "2d6664357e8db120"},
	{"admission/plan/policies.go", apiserver, "pkg/admission/plugin/policy/generic/policy_dispatcher.go", "policyDispatcher.Dispatch", "45bb8fd9becf5e02"},
	{"admission/plan/policy.go", apiserver, "pkg/admission/plugin/policy/generic/policy_dispatcher.go", "CollectParams", "9e47b139f5396b34"},
	{"admission/plan/policy.go", apiserver, "pkg/admission/plugin/policy/generic/policy_matcher.go", "matcher.DefinitionMatches", "24cdd60508d75a89"},
	{"admission/plan/policy.go", apiserver, "pkg/admission/plugin/policy/generic/policy_matcher.go", "matcher.BindingMatches", "aa7c3a4ded46319b"},
	{"admission/plan/policy.go", apiserver, "pkg/admission/plugin/policy/generic/plugin.go", "Plugin.Dispatch", "4311f6a99dd491c1"},
	{"admission/plan/policy.go", apiserver, "pkg/admission/plugin/policy/generic/plugin.go", "Plugin.isExcludedFromAllHooks", "3bafe73a20c480b5"},
	{"admission/plan/policy.go", apiserver, "pkg/admission/plugin/policy/generic/plugin.go", "Plugin.isExcludedFromAPIHooks", "4a76695325dd80c5"},
	{"admission/plan/rule.go", apiserver, "pkg/admission/plugin/policy/matching/matching.go", "Matcher.Matches", "6d2ff7239cbd96ee"},
	{"admission/plan/rule.go", apiserver, "pkg/admission/plugin/policy/matching/matching.go", "matchesResourceRules", "b92e1233ff2285e1"},
	{"admission/plan/judge.go", apiserver, "pkg/admission/plugin/policy/validating/dispatcher.go", "dispatcher.Dispatch", "0c370b8d77c3ade0"},
	{"admission/plan/judge.go", apiserver, "pkg/admission/plugin/policy/validating/dispatcher.go", "formatPoliciesBindings", "3da9bb310349b2f3"},
	{"admission/plan/policy.go", apiserver, "pkg/admission/plugin/policy/validating/policy_decision.go", "reasonToCode", "acf3174bbeaa0b9c"},
	{"admission/trace/policy_publish.go", apiserver, "pkg/admission/plugin/policy/validating/dispatcher.go", "publishValidationFailureAnnotations", "bd01896f31642239"},
	{"admission/trace/policy_publish.go", apiserver, "pkg/admission/plugin/policy/validating/dispatcher.go", "auditAnnotationCollector.publish", "7a514d987edc7640"},
	{"internal/server/judging/typechecking/contexts.go", apiserver, "pkg/admission/plugin/policy/validating/typechecking.go", "TypeChecker.Check", "ac4e6f4049ebeb9f"},
	{"internal/server/judging/typechecking/contexts.go", apiserver, "pkg/admission/plugin/policy/validating/typechecking.go", "TypeChecker.CreateContext", "3af92df4a55499f2"},
	{"internal/server/judging/typechecking/contexts.go", apiserver, "pkg/admission/plugin/policy/validating/typechecking.go", "TypeChecker.CheckExpression", "e3a1fbd2e4a8651c"},
	{"internal/server/judging/typechecking/contexts.go", apiserver, "pkg/admission/plugin/policy/validating/typechecking.go", "TypeChecker.typesToCheck", "31131dd95c8e1813"},
	{"internal/server/judging/typechecking/contexts.go", apiserver, "pkg/admission/plugin/policy/validating/typechecking.go", "TypeCheckingResult.String", "08cf0d0b030254c0"},
	{"internal/engine/expression/typed.go", apiserver, "pkg/admission/plugin/policy/validating/typechecking.go", "buildEnvSet", "d899765d94dcc4c7"},
	{"internal/engine/policy/policy.go", apiserver, "pkg/admission/plugin/policy/validating/plugin.go", "compilePolicy", "7d1715621e566ab1"},
	{"internal/engine/policy/validate.go", apiserver, "pkg/admission/plugin/policy/validating/validator.go", "validator.Validate", "6c0bd7fd7d9040a9"},
	{"internal/engine/policy/validate.go", apiserver, "pkg/admission/plugin/policy/validating/validator.go", "policyDecisionActionForError", "9f6dde7147bd8062"},
	{"internal/engine/policy/validate.go", apiserver, "pkg/admission/plugin/policy/validating/validator.go", "auditAnnotationEvaluationForError", "876c300d4f8bbee1"},
	{"internal/engine/policy/mutate.go", apiserver, "pkg/admission/plugin/policy/mutating/compilation.go", "compilePolicy", "463a1fbfc6fa587d"},
	{"admission/plan/mutate.go", apiserver, "pkg/admission/plugin/policy/mutating/dispatcher.go", "dispatcher.dispatchInvocations", "90a888103c5c3fe0"},
	{"admission/plan/mutate.go", apiserver, "pkg/admission/plugin/policy/mutating/dispatcher.go", "dispatcher.dispatchOne", "8a5145ffd9b56a58"},
	{"admission/plan/mutate.go", apiserver, "pkg/admission/plugin/policy/mutating/reinvocationcontext.go", "policyReinvokeContext.ShouldReinvoke", "5bf635c171f35c9e"},
	{"admission/plan/mutate.go", apiserver, "pkg/admission/plugin/policy/mutating/reinvocationcontext.go", "policyReinvokeContext.RequireReinvokingPreviouslyInvokedPlugins", "ac04c45527266493"},
	{"internal/engine/mutation/mutation.go", apiserver, "pkg/admission/plugin/policy/mutating/patch/json_patch.go", "jsonPatcher.Patch", "6b3955ffc3d9a115"},
	{"internal/engine/mutation/mutation.go", apiserver, "pkg/admission/plugin/policy/mutating/patch/json_patch.go", "jsonPatcher.evaluatePatchExpression", "a16b2ef3b9eb415a"},
	{"internal/engine/mutation/merge.go", apiserver, "pkg/admission/plugin/policy/mutating/patch/smd.go", "ApplyStructuredMergeDiff", "d06c73435a6df942"},
	{"internal/engine/mutation/merge.go", apiserver, "pkg/admission/plugin/policy/mutating/patch/smd.go", "applyConfigPatcher.Patch", "236d9b2ea53cfbf7"},
	{"internal/engine/mutation/merge.go", apiserver, "pkg/admission/plugin/policy/mutating/patch/smd.go", "validatePatch", "00fb4470ed98c687"},
	{"internal/engine/mutation/merge.go", apiserver, "pkg/admission/plugin/policy/mutating/patch/smd.go", "findAtomics", "b37ee77404e4e50a"},
	{"internal/server/judging/schemas/applied.go", apiserver, "pkg/admission/plugin/policy/mutating/patch/typeconverter.go", "typeConverterManager.GetTypeConverter", "76178bbebb3722d0"},
	{"internal/engine/expression/environment.go", apiserver, "pkg/admission/plugin/cel/compile.go", "compiler.CompileCELExpression", "43ebe6220533efbe"},
	{"internal/engine/expression/environment.go", apiserver, "pkg/admission/plugin/cel/compile.go", "mustBuildEnvs", "e30bb7b9df2b80ed"},
	{"internal/engine/expression/environment.go", apiserver, "pkg/admission/plugin/cel/compile.go", "createEnvForOpts", "f2678d38ca018908"},
	{"internal/engine/expression/environment.go", apiserver, "pkg/admission/plugin/cel/compile.go", "BuildRequestType", "4e6d2f6531128398"},
	{"internal/engine/expression/environment.go", apiserver, "pkg/admission/plugin/cel/compile.go", "BuildNamespaceType", "fd4f9b987d33f5f2"},
	{"internal/engine/expression/request.go", apiserver, "pkg/admission/plugin/cel/condition.go", "CreateAdmissionRequest", "8fb0e476ae2f4668"},
	{"internal/engine/expression/request.go", apiserver, "pkg/admission/plugin/cel/condition.go", "CreateNamespaceObject", "6dd040b52254a098"},
	{"internal/engine/expression/request.go", apiserver, "pkg/admission/plugin/cel/activation.go", "newActivation", "d44aaa3bf7599d67"},
	{"internal/engine/expression/request.go", apiserver, "pkg/admission/plugin/cel/activation.go", "evaluationActivation.ResolveName", "6a2459aea050d7f0"},
	{"internal/engine/expression/variables.go", apiserver, "pkg/admission/plugin/cel/composition.go", "CompositedCompiler.CompileAndStoreVariables", "bc6d4ef6a551f162"},
	{"internal/engine/expression/variables.go", apiserver, "pkg/admission/plugin/cel/composition.go", "variableAccessor.Callback", "d0cab0bcdf2f1020"},
	{"internal/engine/condition/condition.go", apiserver, "pkg/admission/plugin/webhook/matchconditions/matcher.go", "matcher.Match", "8c867e8cb0ba9392"},
	{"internal/server/judging/manifests/load.go", apiserver, "pkg/admission/plugin/policy/manifest/loader/loader.go", "LoadPolicyManifests", "ba9e01778ea1e5fb"},
	{"internal/server/judging/manifests/load.go", apiserver, "pkg/admission/plugin/policy/manifest/loader/loader.go", "acceptFileObject", "3d647e48522bb215"},
	{"internal/server/judging/manifests/load.go", apiserver, "pkg/admission/plugin/policy/manifest/loader/loader.go", "validateAcceptedItem", "f232941d4528b9f4"},
	{"internal/server/judging/manifests/load.go", apiserver, "pkg/admission/plugin/policy/manifest/loader/loader.go", "validatePolicyManifestConstraints", "9b7ad1a36d6a0cc9"},
	{"internal/server/judging/manifests/load.go", apiserver, "pkg/admission/plugin/policy/manifest/loader/loader.go", "validateBindingConstraints", "092cc0391a4c7bd7"},
	{"internal/server/judging/manifests/load.go", apiserver, "pkg/admission/plugin/policy/manifest/loader/loader.go", "validateBindingReferences", "91dc7714da17b4b2"},
	{"internal/server/judging/manifests/manifests.go", apiserver, "pkg/admission/plugin/policy/manifest/source/source.go", "StaticPolicySource.checkAndReload", "255a8d48d823c334"},
	{"internal/server/judging/manifests/manifests.go", apiserver, "pkg/admission/plugin/policy/manifest/source/source.go", "StaticPolicySource.RunReloadLoop", "c903210ab219d551"},
	{"internal/server/controllers/garbage.go", kubernetes, "cmd/kube-controller-manager/app/core.go", "newGarbageCollectorController", "9acbba03405d026d"},
	{"internal/server/controllers/quota.go", kubernetes, "cmd/kube-controller-manager/app/core.go", "newResourceQuotaController", "ad3b32362c2fdf8e"},
	{"internal/server/controllers/identity.go", kubernetes, "cmd/kube-controller-manager/app/core.go", "newServiceAccountController", "ca3571efa1d19c22"},
	{"internal/server/controllers/identity.go", kubernetes, "cmd/kube-controller-manager/app/certificates.go", "newRootCACertificatePublisherController", "6adf3800d19696fd"},
	{"internal/server/controllers/certificates.go", kubernetes, "cmd/kube-controller-manager/app/certificates.go", "newCertificateSigningRequestApprovingController", "c356a5b9b2dfe0e3"},
	{"internal/server/controllers/certificates.go", kubernetes, "cmd/kube-controller-manager/app/certificates.go", "newCertificateSigningRequestCleanerController", "6416aa1b8bd92b54"},
	{"internal/server/controllers/certificates.go", kubernetes, "cmd/kube-controller-manager/app/certificates.go", "newCertificateSigningRequestSigningController", "155bbec95e509d84"},
	{"internal/server/controllers/services.go", kubernetes, "cmd/kube-controller-manager/app/core.go", "newEndpointsController", "a6e65cb439f4b586"},
	{"internal/server/controllers/services.go", kubernetes, "cmd/kube-controller-manager/app/discovery.go", "newEndpointSliceController", "b752b18534b65de0"},
	{"internal/server/controllers/services.go", kubernetes, "cmd/kube-controller-manager/app/discovery.go", "newEndpointSliceMirroringController", "59d31e0fd8479673"},
	{"internal/server/controllers/volumes.go", kubernetes, "cmd/kube-controller-manager/app/core.go", "newPersistentVolumeBinderController", "a03d5ad80a0fe945"},
	{"internal/server/controllers/volumes.go", kubernetes, "cmd/kube-controller-manager/app/core.go", "newEphemeralVolumeController", "f26dd83dc7e30204"},
	{"internal/server/controllers/workloads.go", kubernetes, "cmd/kube-controller-manager/app/apps.go", "newDaemonSetController", "473489a226ed1db1"},
	{"internal/server/controllers/workloads.go", kubernetes, "cmd/kube-controller-manager/app/apps.go", "newStatefulSetController", "6409d5976fb07540"},
	{"internal/server/controllers/workloads.go", kubernetes, "cmd/kube-controller-manager/app/apps.go", "newReplicaSetController", "da1ab7d5ab430936"},
	{"internal/server/controllers/workloads.go", kubernetes, "cmd/kube-controller-manager/app/apps.go", "newDeploymentController", "8674b0e4700b98f6"},
	{"internal/server/controllers/workloads.go", kubernetes, "cmd/kube-controller-manager/app/batch.go", "newJobController", "2cd2769e341ba066"},
	{"internal/server/controllers/workloads.go", kubernetes, "cmd/kube-controller-manager/app/batch.go", "newCronJobController", "8e14148c8c8fb31e"},
	{"internal/server/controllers/fakenodes/status.go", kubernetes, "pkg/kubelet/status/generate.go", "GeneratePodReadyCondition", "134f0c5cac619018"},
	{"internal/server/controllers/fakenodes/status.go", kubernetes, "pkg/kubelet/status/generate.go", "GenerateContainersReadyCondition", "0d253da77eda6bd1"},
	{"internal/server/api/aggregation/availability.go", aggregator, "pkg/controllers/status/remote/remote_available_controller.go", "AvailableConditionController.sync", "f1add977b5d73c67"},
}

const (
	apiextensions = "k8s.io/apiextensions-apiserver"
	aggregator    = "k8s.io/kube-aggregator"
	apiserver     = "k8s.io/apiserver"
	kubernetes    = "k8s.io/kubernetes"
)

// A change of upstream's code requires a review of our code that follows it.
func TestFollowedCodeIsUnchanged(t *testing.T) {
	t.Chdir(root)
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
	case *ast.IndexListExpr:
		return typeName(e.X)
	case *ast.Ident:
		return e.Name
	}
	return ""
}

func TestSumsSeeWhatMatters(t *testing.T) {
	t.Chdir(root)
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
