package policies

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gatehouse-dev/gatehouse/test/harness"
)

// TestPolicyObjects verifies the rules of section S13 about policy objects that need a server.
func TestPolicyObjects(t *testing.T) {
	t.Parallel()
	s := harness.Shared(t)
	admin := s.HTTP(t, nil)
	prefix := s.Namespace(t)
	name := func(suffix string) string { return prefix + "." + suffix }

	t.Run("S13.1 kinds, scope and the status subresource", func(t *testing.T) {
		served := map[string]any{}
		for _, r := range admin.Get(registrationGroup + "v1").At("resources").([]any) {
			if path := harness.At(r, "name").(string); strings.Contains(path, "admissionpolic") {
				served[path] = harness.At(r, "kind")
				if harness.At(r, "namespaced") == true {
					t.Errorf("%s is namespaced", path)
				}
			}
		}
		want := map[string]any{"validatingadmissionpolicies/status": "ValidatingAdmissionPolicy"}
		for _, k := range policyKinds {
			want[strings.TrimPrefix(k.Path, registrationGroup+"v1/")] = k.Kind
		}
		if fmt.Sprint(served) != fmt.Sprint(want) {
			t.Errorf("served: %v, want %v", served, want)
		}
	})

	t.Run("S13.2 categories, short names and columns", func(t *testing.T) {
		for _, r := range admin.Get(registrationGroup + "v1").At("resources").([]any) {
			path := harness.At(r, "name").(string)
			if !strings.Contains(path, "admissionpolic") || strings.Contains(path, "/") {
				continue
			}
			if got := fmt.Sprint(harness.At(r, "categories"), harness.At(r, "shortNames")); got != "[api-extensions] <nil>" {
				t.Errorf("%s: categories and short names %s", path, got)
			}
		}
		for path, want := range map[string]string{
			validatingPolicies: "Name Validations ParamKind Age", mutatingPolicies: "Name Mutations ParamKind Age",
			validatingBindings: "Name PolicyName ParamRef Age", mutatingBindings: "Name PolicyName ParamRef Age",
		} {
			table := admin.Get(path+"?limit=1", "Accept", "application/json;as=Table;v=v1;g=meta.k8s.io")
			var columns []string
			for _, c := range table.At("columnDefinitions").([]any) {
				columns = append(columns, harness.At(c, "name").(string))
			}
			if got := strings.Join(columns, " "); got != want {
				t.Errorf("%s: columns %q, want %q", path, got, want)
			}
		}
		admin.Must(http.StatusCreated, "POST", validatingPolicies, policyObject(name("table"), onNothing+`, paramKind: {apiVersion: v1, kind: Secret}, validations: [{expression: "true"}, {expression: "true"}]`))
		cells := admin.Get(validatingPolicies+"/"+name("table"), "Accept", "application/json;as=Table;v=v1;g=meta.k8s.io").At("rows", "0", "cells")
		if got := fmt.Sprint(cells.([]any)[1:3]); got != "[2 v1/Secret]" {
			t.Errorf("cells %s, want [2 v1/Secret]", got)
		}
	})

	t.Run("S13.4 S13.6 S13.7 defaults", func(t *testing.T) {
		const rule = `{apiGroups: [never.example.com], apiVersions: [v1], operations: [CREATE], resources: [nothings]}`
		const match = `resourceRules: [` + rule + `], excludeResourceRules: [` + rule + `]`
		for path, spec := range map[string]string{
			validatingPolicies: "matchConstraints: {" + match + "}, " + alwaysTrue,
			mutatingPolicies:   "matchConstraints: {" + match + "}, " + noMutation,
		} {
			got := admin.Must(http.StatusCreated, "POST", path+"?dryRun=All", policyObject(name("defaults"), spec))
			for field, want := range map[string]string{
				"failurePolicy": "Fail", "matchConstraints/matchPolicy": "Equivalent", "matchConstraints/namespaceSelector": "map[]",
				"matchConstraints/objectSelector": "map[]", "matchConstraints/resourceRules/0/scope": "*", "matchConstraints/excludeResourceRules/0/scope": "*",
			} {
				if value := got.At(slices.Concat([]string{"spec"}, strings.Split(field, "/"))...); fmt.Sprint(value) != want {
					t.Errorf("%s: %s is %v, want %s", path, field, value, want)
				}
			}
		}
		for _, b := range []struct{ path, spec string }{{validatingBindings, ", validationActions: [Deny]"}, {mutatingBindings, ""}} {
			got := admin.Must(http.StatusCreated, "POST", b.path+"?dryRun=All", policyObject(name("defaults"), "policyName: none"+b.spec))
			if match := got.At("spec", "matchResources"); match != nil {
				t.Errorf("%s: matchResources is %v, want none", b.path, match)
			}
			status := admin.Refused(http.StatusUnprocessableEntity, metav1.StatusReasonInvalid, "POST", b.path,
				policyObject(name("defaults"), "policyName: none, paramRef: {name: a}"+b.spec))
			if !strings.Contains(status.Message, "spec.paramRef.parameterNotFoundAction: Required") {
				t.Errorf("%s: %s", b.path, status.Message)
			}
		}
	})

	t.Run("S13.8 lists of apply", func(t *testing.T) {
		list := func(of string) string {
			return fmt.Sprintf(`matchConditions: [{name: %s, expression: "true"}], variables: [{name: %[1]s, expression: "1"}]`, of)
		}
		for _, c := range []struct{ path, kind, spec, want string }{
			{validatingPolicies, "ValidatingAdmissionPolicy", onNothing + ", " + alwaysTrue, "2 conditions, 2 variables"},
			{mutatingPolicies, "MutatingAdmissionPolicy", onNothing + ", " + noMutation, "2 conditions, 1 variables"},
		} {
			admin.Must(http.StatusCreated, "POST", c.path, policyObject(name("lists"), c.spec+", "+list("a")))
			got := admin.Must(http.StatusOK, "PATCH", c.path+"/"+name("lists")+"?fieldManager=m&force=true",
				toJSON(`{apiVersion: admissionregistration.k8s.io/v1, kind: %s, metadata: {name: %s}, spec: {%s}}`, c.kind, name("lists"), list("b")), policyApply...)
			if n := fmt.Sprintf("%d conditions, %d variables", len(got.At("spec", "matchConditions").([]any)), len(got.At("spec", "variables").([]any))); n != c.want {
				t.Errorf("%s: %s, want %s", c.kind, n, c.want)
			}
		}
		actions := func(actions string) string { return "policyName: none, validationActions: [" + actions + "]" }
		admin.Must(http.StatusCreated, "POST", validatingBindings, policyObject(name("lists"), actions("Audit")))
		got := admin.Must(http.StatusOK, "PATCH", validatingBindings+"/"+name("lists")+"?fieldManager=m&force=true",
			toJSON(`{apiVersion: admissionregistration.k8s.io/v1, kind: ValidatingAdmissionPolicyBinding, metadata: {name: %s}, spec: {%s}}`, name("lists"), actions("Warn")), policyApply...)
		if n := fmt.Sprint(got.At("spec", "validationActions")); n != "[Audit Warn]" {
			t.Errorf("validationActions %s, want [Audit Warn]", n)
		}
	})

	t.Run("S13.10 S13.26 any field may change, and generation counts changes of the spec", func(t *testing.T) {
		for path, change := range map[string]string{
			validatingPolicies: `{"spec":{"paramKind":{"apiVersion":"v1","kind":"Pod"}}}`, mutatingPolicies: `{"spec":{"reinvocationPolicy":"IfNeeded"}}`,
			validatingBindings: `{"spec":{"policyName":"other"}}`, mutatingBindings: `{"spec":{"policyName":"other","paramRef":{"name":"a","parameterNotFoundAction":"Allow"}}}`,
		} {
			i := slices.IndexFunc(policyKinds, func(k struct{ Path, Kind, Spec string }) bool { return k.Path == path })
			object := policyObject(name("life"), policyKinds[i].Spec)
			at := path + "/" + name("life")
			admin.Refused(http.StatusNotFound, metav1.StatusReasonNotFound, "PUT", at, object)
			created := admin.Must(http.StatusCreated, "POST", path, object)
			admin.Refused(http.StatusUnprocessableEntity, metav1.StatusReasonInvalid, "PUT", at, object)
			labelled := admin.Must(http.StatusOK, "PATCH", at, `{"metadata":{"labels":{"a":"b"}}}`, policyMerge...)
			changed := admin.Must(http.StatusOK, "PATCH", at, change, policyMerge...)
			if got := fmt.Sprint(created.At("metadata", "generation"), labelled.At("metadata", "generation"), changed.At("metadata", "generation")); got != "1 1 2" {
				t.Errorf("%s: generations %s, want 1 1 2", path, got)
			}
		}
	})

	t.Run("S13.11 S13.12 the status is written through its subresource alone, and validated", func(t *testing.T) {
		at := validatingPolicies + "/" + name("status")
		created := admin.Must(http.StatusCreated, "POST", validatingPolicies, toJSON(`{metadata: {name: %s}, spec: {%s, %s}, status: {observedGeneration: 77}}`, name("status"), onNothing, alwaysTrue))
		if got := fmt.Sprint(created.At("status")); got != "map[]" {
			t.Errorf("status after the create: %s", got)
		}
		awaitChecked(t, admin, at, 1)
		const conditions = `status: {conditions: [{type: T, status: "True", reason: R, message: m, lastTransitionTime: "2026-01-01T00:00:00Z"}]}`
		through := admin.Must(http.StatusOK, "PATCH", at+"/status", toJSON(`{metadata: {labels: {a: b}}, spec: {failurePolicy: Ignore}, %s}`, conditions), policyMerge...)
		if got := []any{through.At("metadata", "labels"), through.At("spec", "failurePolicy"), through.At("status", "conditions", "0", "reason")}; fmt.Sprint(got) != "[<nil> Fail R]" {
			t.Errorf("labels, failurePolicy and condition are %v, want [<nil> Fail R]", got)
		}
		main := admin.Must(http.StatusOK, "PATCH", at, `{"status":{"conditions":null}}`, policyMerge...)
		if got := main.Text("status", "conditions", "0", "reason"); got != "R" {
			t.Errorf("a write of the policy changed its status: %v", main.At("status"))
		}
		for status, want := range map[string]string{
			`typeChecking: {expressionWarnings: [{fieldRef: "", warning: ""}]}`:          "expressionWarnings[0].warning: Required",
			`typeChecking: {expressionWarnings: [{fieldRef: "spec..x[", warning: "w"}]}`: "invalid JSONPath",
			`conditions: [{type: T, status: Odd}]`:                                       "conditions[0].status",
		} {
			refused := admin.Refused(http.StatusUnprocessableEntity, metav1.StatusReasonInvalid, "PATCH", at+"/status", toJSON("{status: {%s}}", status), policyMerge...)
			if !strings.Contains(refused.Message, want) {
				t.Errorf("%s: %s, want %s", status, refused.Message, want)
			}
		}
	})

	t.Run("S13.13 names of static manifests are reserved", func(t *testing.T) {
		paths := map[string]string{
			registrationGroup + "v1/validatingwebhookconfigurations": `{"metadata":{"name":"a.static.k8s.io"}}`,
			registrationGroup + "v1/mutatingwebhookconfigurations":   `{"metadata":{"name":"a.static.k8s.io"}}`,
		}
		for _, k := range policyKinds {
			paths[k.Path] = policyObject("a.static.k8s.io", k.Spec)
		}
		for path, object := range paths {
			status := admin.Refused(http.StatusUnprocessableEntity, metav1.StatusReasonInvalid, "POST", path, object)
			const want = `names ending with ".static.k8s.io" are reserved for static manifest-based configurations and cannot be managed via the API`
			if len(status.Details.Causes) != 1 || status.Details.Causes[0].Field != "metadata.name" || !strings.Contains(status.Message, want) {
				t.Errorf("%s: %s", path, status.Message)
			}
		}
	})

	t.Run("S13 validation", func(t *testing.T) {
		validations := func(v string) string { return onNothing + ", validations: [" + v + "]" }
		annotations := func(a string) string { return onNothing + ", auditAnnotations: [" + a + "]" }
		mutations := func(m string) string { return onNothing + ", reinvocationPolicy: Never, mutations: [" + m + "]" }
		for _, c := range []struct{ name, path, spec, want string }{
			{"S13.14 a validation of type dyn", validatingPolicies, validations(`{expression: "object.spec.paused"}`), "spec.validations[0].expression: Invalid value: \"object.spec.paused\": must evaluate to bool but got dyn"},
			{"S13.14 a message of type dyn", validatingPolicies, validations(`{expression: "true", messageExpression: "object.metadata.name"}`), "must evaluate to string but got dyn"},
			{"S13.15 the reason Unauthorized", validatingPolicies, validations(`{expression: "true", reason: Unauthorized}`), "spec.validations[0].reason: Unsupported value: \"Unauthorized\""},
			{"S13.15 several lines without a message", validatingPolicies, validations(`{expression: "true\n&& true"}`), ""},
			{"S13.16 hundreds of validations, and one that costs much", validatingPolicies, validations(strings.Repeat(`{expression: "true"}, `, 300) +
				`{expression: "lists.range(1000).all(x, lists.range(1000).all(y, true))"}`), ""},
			{"S16.2 what this release has brought", validatingPolicies, validations(`{expression: "['a'].includes('a')"}`), "undeclared reference to 'includes'"},
			{"S18.17 a JSON patch that is always empty", mutatingPolicies, mutations(`{patchType: JSONPatch, jsonPatch: {expression: "[]"}}`), "must evaluate to list(JSONPatch) but got list(dyn)"},
			{"S13.17 a variable that is defined twice", validatingPolicies, `variables: [{name: v, expression: "1"}, {name: v, expression: "true"}], ` + validations(`{expression: "variables.v"}`), ""},
			{"S13.18 a binding to nothing", validatingBindings, "policyName: none, validationActions: [Deny], paramRef: {name: none, parameterNotFoundAction: Deny}", ""},
			{"S13.18 a policy with params of no kind", mutatingPolicies, "paramKind: {apiVersion: none.example.com/v1, kind: None}, " + onNothing + ", " + noMutation, ""},
			{"S13.25 a bad label value in a selector", mutatingBindings, `policyName: none, matchResources: {objectSelector: {matchLabels: {a: "not valid!"}}}`, "spec.matchResources.objectSelector.matchLabels"},
			{"no validations", validatingPolicies, onNothing, "validations or auditAnnotations must contain at least one item"},
			{"no rules", validatingPolicies, "matchConstraints: {}, " + alwaysTrue, "spec.matchConstraints.resourceRules: Required"},
			{"a bad paramKind", validatingPolicies, "paramKind: {apiVersion: a/b/c, kind: \"\"}, " + onNothing + ", " + alwaysTrue, "unexpected GroupVersion string"},
			{"a key that is none", validatingPolicies, annotations(`{key: "not a key!", valueExpression: "'x'"}`), "spec.auditAnnotations[0].key: Invalid value"},
			{"a rule of a mutating policy with DELETE", mutatingPolicies, strings.Replace(onNothing, "CREATE", "DELETE", 1) + ", " + noMutation, "spec.matchConstraints.resourceRules.operations: Unsupported value"},
			{"no reinvocationPolicy", mutatingPolicies, strings.TrimSuffix(onNothing+", "+noMutation, ", reinvocationPolicy: Never"), "spec.reinvocationPolicy: Required"},
			{"the wrong patch", mutatingPolicies, mutations(`{patchType: JSONPatch, applyConfiguration: {expression: "Object{}"}}`), "must be specified when patchType is JSONPatch"},
			{"an apply configuration of another type", mutatingPolicies, mutations(`{patchType: ApplyConfiguration, applyConfiguration: {expression: "1"}}`), "must evaluate to Object but got int"},
			{"no action", validatingBindings, "policyName: none", "spec.validationActions: Required value"},
			{"Deny with Warn", validatingBindings, "policyName: none, validationActions: [Deny, Warn]", "must not contain both Deny and Warn"},
			{"name and selector", mutatingBindings, "policyName: none, paramRef: {name: a, selector: {}, parameterNotFoundAction: Deny}", "name and selector are mutually exclusive"},
		} {
			t.Run(c.name, func(t *testing.T) {
				object := policyObject(name("validation"), c.spec)
				if c.want == "" {
					admin.Must(http.StatusCreated, "POST", c.path+"?dryRun=All", object)
					return
				}
				if status := admin.Refused(http.StatusUnprocessableEntity, metav1.StatusReasonInvalid, "POST", c.path+"?dryRun=All", object); !strings.Contains(status.Message, c.want) {
					t.Errorf("%s\nwant: %s", status.Message, c.want)
				}
			})
		}
	})

	t.Run("what cannot work is accepted with a warning", func(t *testing.T) {
		for _, c := range []struct{ name, path, spec, want string }{
			{"S13.18 D58 a binding to a policy that does not exist", validatingBindings, "policyName: none, validationActions: [Deny]", "there is no policy"},
			{"D68 a binding to a policy of a static manifest", mutatingBindings, "policyName: a.static.k8s.io", "only a binding from a static manifest can bind"},
			{"S13.17 D77 a variable that is defined twice", mutatingPolicies, `variables: [{name: v, expression: "1"}, {name: v, expression: "2"}], ` + onNothing + ", " + noMutation, "the last definition counts"},
			{"D59 an audit value that asks the authorizer", validatingPolicies, onNothing + `, auditAnnotations: [{key: a, valueExpression: "authorizer.path('/x').check('get').reason()"}]`, "authorizer is not available here"},
		} {
			t.Run(c.name, func(t *testing.T) {
				got := admin.Must(http.StatusCreated, "POST", c.path+"?dryRun=All", policyObject(name("warned"), c.spec))
				if warnings := got.Header.Values("Warning"); !slices.ContainsFunc(warnings, func(w string) bool { return strings.Contains(w, c.want) }) {
					t.Errorf("warnings %q, want %q", warnings, c.want)
				}
			})
		}
	})

	t.Run("who may refer to what", func(t *testing.T) {
		user := name("author")
		admin.Must(http.StatusCreated, "POST", rbacPath+"clusterroles", toJSON(`{metadata: {name: %s}, rules: [{apiGroups: [admissionregistration.k8s.io], resources: ["*"], verbs: ["*"]}]}`, user))
		admin.Must(http.StatusCreated, "POST", rbacPath+"clusterrolebindings", toJSON(`{metadata: {name: %s}, roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: %[1]s}, subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: %[1]s}]}`, user))
		author := s.HTTP(t, s.As(user, "system:authenticated"))
		plain := policyObject(name("rights"), onNothing+", "+alwaysTrue)
		harness.Eventually(t, "the role is heard of", func() error {
			if r := author.Do("POST", validatingPolicies+"?dryRun=All", plain); r.Code != http.StatusCreated {
				return fmt.Errorf("%d: %s", r.Code, r.Raw)
			}
			return nil
		})
		refused := func(method, path, object, field, want string, headers ...string) {
			t.Helper()
			status := author.Refused(http.StatusUnprocessableEntity, metav1.StatusReasonInvalid, method, path, object, headers...)
			if len(status.Details.Causes) != 1 || status.Details.Causes[0].Type != "FieldValueForbidden" || status.Details.Causes[0].Field != field || !strings.Contains(status.Message, want) {
				t.Errorf("%v: %s\nwant %s at %s", status.Details.Causes, status.Message, want, field)
			}
		}
		const ofSecrets = "paramKind: {apiVersion: v1, kind: Secret}, "
		for path, spec := range map[string]string{validatingPolicies: onNothing + ", " + alwaysTrue, mutatingPolicies: onNothing + ", " + noMutation} {
			object := policyObject(name("rights"), ofSecrets+spec)
			// S13.19: the author of a policy needs permission to read all objects of its paramKind.
			refused("POST", path, object, "spec.paramKind", `must have "get" permission on all objects of the referenced paramKind (kind=Secret, apiVersion=v1)`)
			admin.Must(http.StatusCreated, "POST", path, object)
			author.Must(http.StatusOK, "PATCH", path+"/"+name("rights"), `{"spec":{"failurePolicy":"Ignore"}}`, policyMerge...)
			refused("PATCH", path+"/"+name("rights"), `{"spec":{"paramKind":{"kind":"ConfigMap"}}}`, "spec.paramKind", "kind=ConfigMap", policyMerge...)
			invalid := author.Refused(http.StatusUnprocessableEntity, metav1.StatusReasonInvalid, "POST", path, policyObject(name("rights"), ofSecrets+"failurePolicy: Maybe, "+spec))
			if strings.Contains(invalid.Message, "permission") {
				t.Errorf("an object that is invalid otherwise was judged by rights: %s", invalid.Message)
			}
		}
		for path, spec := range map[string]string{validatingBindings: "validationActions: [Deny], ", mutatingBindings: ""} {
			spec += "policyName: " + name("rights") + ", paramRef: {%s, namespace: default, parameterNotFoundAction: Deny}"
			// S13.20: the author of a binding needs permission to read the params.
			refused("POST", path, policyObject(name("rights"), fmt.Sprintf(spec, "name: a")), "spec.paramRef", "permission on the object referenced by paramRef")
			refused("POST", path, policyObject(name("rights"), fmt.Sprintf(spec, "selector: {}")), "spec.paramRef", "list")
			refused("POST", path, policyObject(name("rights"), strings.ReplaceAll(fmt.Sprintf(spec, "name: a"), name("rights"), "none")), "spec.paramRef", "unable to get policy none to determine minimum required permissions")
			admin.Must(http.StatusCreated, "POST", path, policyObject(name("rights"), fmt.Sprintf(spec, "name: a")))
			// S13.21, D75: an update that does not change the reference needs no such permission.
			author.Must(http.StatusOK, "PATCH", path+"/"+name("rights"), `{"metadata":{"labels":{"a":"b"}}}`, policyMerge...)
			refused("PATCH", path+"/"+name("rights"), `{"spec":{"paramRef":{"name":"b"}}}`, "spec.paramRef", "permission", policyMerge...)
		}
		allow(t, s, "default", user, `{apiGroups: [""], resources: [secrets], resourceNames: [b], verbs: [get]}`)
		author.Must(http.StatusOK, "PATCH", validatingBindings+"/"+name("rights"), `{"spec":{"paramRef":{"name":"b"}}}`, policyMerge...)
	})
}

// awaitChecked waits until the type checking of a generation of a policy is complete, and returns the
// warnings as "FIELD: TEXT".
func awaitChecked(t *testing.T, h *harness.HTTP, path string, generation int) []string {
	t.Helper()
	var warnings []string
	harness.Eventually(t, fmt.Sprintf("generation %d of %s is checked", generation, path), func() error {
		policy := h.Get(path)
		if fmt.Sprint(policy.At("status", "observedGeneration")) != fmt.Sprint(generation) {
			return fmt.Errorf("status %v", policy.At("status"))
		}
		// As on kube-apiserver, the field is removed with the last warning.
		if generation == 1 && policy.At("status", "typeChecking") == nil {
			return errors.New("there is no typeChecking")
		}
		warnings = typeWarnings(policy)
		return nil
	})
	return warnings
}

func typeWarnings(policy *harness.Response) []string {
	var warnings []string
	list, _ := policy.At("status", "typeChecking", "expressionWarnings").([]any)
	for _, w := range list {
		warnings = append(warnings, fmt.Sprintf("%v: %v", harness.At(w, "fieldRef"), harness.At(w, "warning")))
	}
	return warnings
}

// TestTypesOfPoliciesAreChecked verifies S16.17 to S16.21, with D61.
func TestTypesOfPoliciesAreChecked(t *testing.T) {
	t.Parallel()
	s := harness.Shared(t)
	admin := s.HTTP(t, nil)
	prefix := s.Namespace(t)
	name := func(suffix string) string { return prefix + "." + suffix }
	rules := func(groups, versions, resources string) string {
		return fmt.Sprintf(`matchConstraints: {namespaceSelector: {matchLabels: {no: where}}, resourceRules: [{apiGroups: [%s], apiVersions: [%s], operations: [CREATE], resources: [%s]}]}, `, groups, versions, resources)
	}
	const typo = `validations: [{expression: "object.spec.replica > 1"}]`
	const undefined = "undefined field 'replica'"
	for _, c := range []struct {
		name, spec string
		// want lists the beginning and a part of each warning, in order.
		want [][2]string
	}{
		{"S16.17 no warnings", rules("apps", "v1", "deployments") + `validations: [{expression: "object.spec.replicas > 1"}]`, nil},
		{"S16.17 a misspelt field", rules("apps", "v1", "deployments") + typo,
			[][2]string{{"spec.validations[0].expression: apps/v1, Kind=Deployment: ERROR:", undefined}}},
		{"S16.20 one warning per expression, and the kinds in order", rules("apps", "v1", "statefulsets, deployments") +
			`validations: [{expression: "true"}, {expression: "object.spec.replica > 1", messageExpression: "'have ' + object.spec.replica"}]`,
			[][2]string{{"spec.validations[1].expression: apps/v1, Kind=Deployment: ", "\n\napps/v1, Kind=StatefulSet: "}, {"spec.validations[1].messageExpression: ", undefined}}},
		{"S16.19 wildcards, subresources and kinds without a schema are skipped", `matchConstraints: {namespaceSelector: {matchLabels: {no: where}}, resourceRules: [
			{apiGroups: ["*"], apiVersions: [v1], operations: [CREATE], resources: [deployments]}, {apiGroups: [apps], apiVersions: ["*"], operations: [CREATE], resources: [deployments]},
			{apiGroups: [apps], apiVersions: [v1], operations: [CREATE], resources: [deployments/scale]}, {apiGroups: [none.example.com], apiVersions: [v1], operations: [CREATE], resources: [nones]}]}, ` + typo, nil},
		{"S16.21 conditions and audit values are not checked", rules("apps", "v1", "deployments") +
			`matchConditions: [{name: c, expression: "object.spec.replica > 1"}], auditAnnotations: [{key: k, valueExpression: "string(object.spec.replica)"}]`, nil},
		{"S16.17 params have types", rules("apps", "v1", "deployments") +
			`paramKind: {apiVersion: v1, kind: ConfigMap}, validations: [{expression: "params.dat.a == 'x'"}]`,
			[][2]string{{"spec.validations[0].expression: ", "undefined field 'dat'"}}},
		{"S16.17 variables have types", rules("apps", "v1", "deployments") +
			`variables: [{name: v, expression: "object.spec.replicas"}], validations: [{expression: "variables.v == 'x'"}]`,
			[][2]string{{"spec.validations[0].expression: ", "found no matching overload for '_==_' applied to '(int, string)'"}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			policy := name(fmt.Sprintf("checked-%d", len(c.spec)))
			admin.Must(http.StatusCreated, "POST", validatingPolicies, policyObject(policy, c.spec))
			got := awaitChecked(t, admin, validatingPolicies+"/"+policy, 1)
			if !slices.EqualFunc(got, c.want, func(w string, want [2]string) bool {
				return strings.HasPrefix(w, want[0]) && strings.Contains(w, want[1])
			}) {
				t.Errorf("warnings %q, want %q", got, c.want)
			}
		})
	}

	t.Run("S16.18 warnings reject nothing", func(t *testing.T) {
		admin.Must(http.StatusCreated, "POST", validatingPolicies, policyObject(name("written"), rules("apps", "v1", "deployments")+typo))
		awaitChecked(t, admin, validatingPolicies+"/"+name("written"), 1)
		admin.Must(http.StatusOK, "PATCH", validatingPolicies+"/"+name("written"), `{"spec":{"validations":[{"expression":"object.spec.replicas > 1"}]}}`, policyMerge...)
		if got := awaitChecked(t, admin, validatingPolicies+"/"+name("written"), 2); len(got) > 0 {
			t.Errorf("warnings after the update: %q", got)
		}
	})

	t.Run("S16.21 D61 a schema that comes, changes and goes", func(t *testing.T) {
		group := prefix + ".example.com"
		policy := validatingPolicies + "/" + name("custom")
		admin.Must(http.StatusCreated, "POST", validatingPolicies, policyObject(name("custom"), rules(group, "v1", "widgets")+typo))
		if got := awaitChecked(t, admin, policy, 1); len(got) > 0 {
			t.Errorf("warnings without a schema: %q", got)
		}
		definition := func(field string) string {
			return toJSON(`{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: widgets.%s}, spec: {group: %[1]s, scope: Namespaced,
				names: {plural: widgets, kind: Widget}, versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, properties: {
				spec: {type: object, properties: {%s: {type: integer}}}}}}}]}}`, group, field)
		}
		const definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
		awaitWarnings := func(what string, n int) {
			t.Helper()
			harness.Eventually(t, what, func() error {
				got := admin.Get(policy)
				if warnings := typeWarnings(got); len(warnings) != n {
					return fmt.Errorf("warnings %q", warnings)
				}
				if observed := fmt.Sprint(got.At("status", "observedGeneration")); observed != "1" {
					return fmt.Errorf("observedGeneration is %s", observed)
				}
				return nil
			})
		}
		admin.Must(http.StatusCreated, "POST", definitions, definition("replicas"))
		awaitWarnings("the definition has come", 1)
		live := admin.Get(definitions + "/widgets." + group)
		admin.Must(http.StatusOK, "PUT", definitions+"/widgets."+group,
			strings.Replace(definition("replica"), `"metadata":{`, fmt.Sprintf(`"metadata":{"resourceVersion":%q,`, live.Text("metadata", "resourceVersion")), 1))
		awaitWarnings("the field is there", 0)
		live = admin.Get(definitions + "/widgets." + group)
		admin.Must(http.StatusOK, "PUT", definitions+"/widgets."+group,
			strings.Replace(definition("replicas"), `"metadata":{`, fmt.Sprintf(`"metadata":{"resourceVersion":%q,`, live.Text("metadata", "resourceVersion")), 1))
		awaitWarnings("the field is gone", 1)
		admin.Must(http.StatusOK, "DELETE", definitions+"/widgets."+group, "")
		awaitWarnings("the definition is gone", 0)
	})
}

// A binding to a missing object causes a warning when it is written, and an error in its state (S20.9, F6).
func TestABindingThatLeadsNowhereSaysSo(t *testing.T) {
	t.Parallel()
	s := harness.Sole(t)
	h := s.HTTP(t, nil)
	// apply creates or changes an object, and returns the warnings.
	apply := func(text string) []string {
		t.Helper()
		object := harness.Parsed(t, text)
		path := map[any]string{"ValidatingAdmissionPolicy": validatingPolicies, "ValidatingAdmissionPolicyBinding": validatingBindings}[object["kind"]]
		r := h.Do("POST", path, harness.AsJSON(object))
		if r.Code == http.StatusConflict {
			r = h.Do("PATCH", path+"/"+harness.At(object, "metadata", "name").(string), harness.AsJSON(object), policyMerge...)
		}
		if r.Code != http.StatusOK && r.Code != http.StatusCreated {
			t.Fatalf("%d %s", r.Code, r.Raw)
		}
		return r.Header.Values("Warning")
	}
	const policy = `
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: limits.example.com}
spec:
  paramKind: {apiVersion: %s, kind: %s}
  matchConstraints: {resourceRules: [{apiGroups: [apps], apiVersions: [v1], operations: [CREATE], resources: [deployments]}]}
  variables: [{name: twice, expression: "1"}, {name: twice, expression: "2"}]
  validations: [{expression: "variables.twice == 2"}]
`
	const binding = `
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: limits, labels: {written: "%d"}}
spec: {policyName: limits.example.com, validationActions: [Deny], paramRef: {name: limits, namespace: default, parameterNotFoundAction: Deny}}
`
	problems := func(name string) string {
		var state *harness.Response
		harness.Eventually(t, name+" is in force", func() error {
			state = h.Get("/apis/gatehouse.dev/v1alpha1/registrationstates/" + name)
			if state.At("inForce") != true {
				return fmt.Errorf("%s", state.Raw)
			}
			return nil
		})
		var codes []string
		list, _ := state.At("problems").([]any)
		for _, p := range list {
			codes = append(codes, harness.At(p, "code").(string))
		}
		return strings.Join(codes, ",")
	}
	for i, step := range []struct {
		name, applied string
		// warns is part of a warning, and warnings the number of warnings; code is in the state of the
		// binding.
		warns    string
		warnings int
		code     string
	}{
		{"no policy", fmt.Sprintf(binding, 1), `there is no policy "limits.example.com"`, 1, "PolicyNotFound"},
		{"no kind", fmt.Sprintf(policy, "example.com/v1", "Limit"), "no resource with kind Limit in example.com/v1 is served", 2, "ParamKindNotFound"},
		{"no kind, written again", fmt.Sprintf(binding, 2), "the policy's paramKind example.com/v1, Kind=Limit is not served", 1, "ParamKindNotFound"},
		{"a variable twice", fmt.Sprintf(policy, "v1", "ConfigMap"), `"twice" is defined in spec.variables[0] too`, 1, "ParamsNotFound"},
		{"no param", fmt.Sprintf(binding, 3), "there is no ConfigMap that it refers to", 1, "ParamsNotFound"},
	} {
		warned := apply(step.applied)
		if len(warned) != step.warnings || !strings.Contains(strings.ReplaceAll(strings.Join(warned, " "), `\"`, `"`), step.warns) {
			t.Errorf("%d, %s: %q; want %d warnings, one with %q", i, step.name, warned, step.warnings, step.warns)
		}
		if got := problems("validatingadmissionpolicybindings.limits"); got != step.code {
			t.Errorf("%d, %s: the state has the problems %q, want %q", i, step.name, got, step.code)
		}
	}
	if got := problems("validatingadmissionpolicies.limits.example.com"); got != "RepeatedVariable" {
		t.Errorf("D77: the state of the policy has the problems %q", got)
	}
	h.Must(http.StatusCreated, "POST", configMaps("default"), configMap("limits"))
	harness.Eventually(t, "the state without a problem", func() error {
		if got := problems("validatingadmissionpolicybindings.limits"); got != "" {
			return fmt.Errorf("problems %q", got)
		}
		return nil
	})
	if warned := apply(fmt.Sprintf(binding, 4)); len(warned) > 0 {
		t.Errorf("a binding that leads somewhere was applied with %q", warned)
	}
	waited := harness.Run(t, "wait-in-force", "--kubeconfig", s.Kubeconfig, "validatingadmissionpolicybinding/limits")
	if waited.Code != 0 {
		t.Errorf("S20.9: wait-in-force: %d %s%s", waited.Code, waited.Out, waited.Err)
	}
}
