package webhooks

import (
	"reflect"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/gatehouse-dev/gatehouse/test/harness"
	"github.com/gatehouse-dev/gatehouse/test/speed"
)

// TestManifestsOfOldVersions verifies that manifests written for Kubernetes 1.7 to 1.15 can be applied
// unchanged, get the defaults of their time, are read back by kubectl, and can be changed and deleted with
// their files.
func TestManifestsOfOldVersions(t *testing.T) {
	t.Parallel()
	k := harness.Sole(t, "--admission-consistency", "strict").Kubectl(t, "default")
	const rule = "rules: [{operations: [CREATE], apiGroups: ['*'], apiVersions: ['*'], resources: ['*'], scope: '*'}], clientConfig: {url: 'https://hook.example.com'}"
	v1beta1 := func(kind, fields string) string {
		return "{apiVersion: admissionregistration.k8s.io/v1beta1, kind: " + kind + ", metadata: {name: example-config}, webhooks: [{name: my-webhook.example.com, " + fields + "}]}"
	}
	external := func(fields string) string {
		return `
apiVersion: admissionregistration.k8s.io/v1alpha1
kind: ExternalAdmissionHookConfiguration
metadata:
  name: example-config
externalAdmissionHooks:
- name: pod-image.k8s.io
  clientConfig:
    caBundle: Q0E=
    service:
      name: front
      namespace: hooks
  ` + fields
	}
	cases := []struct {
		name, resource, manifest string
		// stored lists additional stored fields of the first webhook or initializer.
		stored string
		// change is a later change of the file.
		change [2]string
	}{
		{"S1.25 S1.32 an initializer", "initializerconfigurations.v1alpha1.admissionregistration.k8s.io", `
apiVersion: admissionregistration.k8s.io/v1alpha1
kind: InitializerConfiguration
metadata:
  name: example-config
initializers:
  # the name needs at least two dots
  - name: podimage.example.com
    rules:
      - apiGroups:
          - ""
        apiVersions:
          - v1
        resources:
          - pods
`, `{failurePolicy: Ignore, rules: [{apiGroups: [""], apiVersions: [v1], resources: [pods]}]}`, [2]string{"rules:", "failurePolicy: Fail\n    rules:"}},
		{"S1.30 S1.32 an external hook", "externaladmissionhookconfigurations", external(`rules: [{operations: [CREATE], apiGroups: [""], apiVersions: [v1], resources: [pods]}]
  failurePolicy: Ignore`),
			`{failurePolicy: Ignore, namespaceSelector: {}, rules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}]}`, [2]string{"Ignore", "Fail"}},
		{"S1.31 an external hook with verbs", "externaladmissionhookconfigurations", external(`rules: [{verbs: [CREATE, UPDATE], apiGroups: [""], apiVersions: [v1], resources: [pods]}]`),
			`{failurePolicy: Ignore, rules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE, UPDATE], resources: [pods]}]}`, [2]string{"[CREATE, UPDATE]", "[DELETE]"}},
		{"S1.30 S1.34 an external hook that spares namespaces", "externaladmissionhookconfigurations", external(`rules: [{operations: ["*"], apiGroups: [""], apiVersions: [v1], resources: [pods, pods/*]}]
  namespaceSelector: {matchExpressions: [{key: runlevel, operator: NotIn, values: ["0", "1"]}]}`),
			`{failurePolicy: Ignore, namespaceSelector: {matchExpressions: [{key: runlevel, operator: NotIn, values: ["0", "1"]}]}}`, [2]string{"rules:", "failurePolicy: Fail\n  rules:"}},
		{"S1.9 a validating webhook behind a service", "validatingwebhookconfigurations.v1beta1.admissionregistration.k8s.io", v1beta1(validating,
			`rules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods], scope: Namespaced}],
			clientConfig: {service: {namespace: hooks, name: front}, caBundle: Q0E=}, admissionReviewVersions: [v1beta1], timeoutSeconds: 1`),
			`{failurePolicy: Ignore, matchPolicy: Exact, sideEffects: Unknown, timeoutSeconds: 1, admissionReviewVersions: [v1beta1], namespaceSelector: {}, objectSelector: {},
			clientConfig: {service: {namespace: hooks, name: front, port: 443}, caBundle: Q0E=}}`, [2]string{"timeoutSeconds: 1", "timeoutSeconds: 2"}},
		{"S1.9 a mutating webhook at a URL", "mutatingwebhookconfigurations.v1beta1.admissionregistration.k8s.io", v1beta1(mutating, `clientConfig: {url: "https://my-webhook.example.com:9443/my-webhook-path"}`),
			`{failurePolicy: Ignore, matchPolicy: Exact, sideEffects: Unknown, timeoutSeconds: 30, admissionReviewVersions: [v1beta1], reinvocationPolicy: Never,
			clientConfig: {url: "https://my-webhook.example.com:9443/my-webhook-path"}}`, [2]string{"my-webhook-path", "another"}},
		{"S1.9 a mutating webhook with a path and a port", "mutatingwebhookconfigurations", v1beta1(mutating,
			`clientConfig: {caBundle: Q0E=, service: {namespace: my-service-namespace, name: my-service-name, path: /my-path, port: 1234}}, reinvocationPolicy: IfNeeded, failurePolicy: Fail`),
			`{failurePolicy: Fail, reinvocationPolicy: IfNeeded, clientConfig: {caBundle: Q0E=, service: {namespace: my-service-namespace, name: my-service-name, path: /my-path, port: 1234}}}`,
			[2]string{"failurePolicy: Fail", "failurePolicy: Ignore"}},
		{"S1.9 selectors", "mutatingwebhookconfigurations", v1beta1(mutating, rule+`, objectSelector: {matchLabels: {foo: bar}}, namespaceSelector: {matchExpressions: [{key: environment, operator: In, values: [prod, staging]}]}`),
			`{objectSelector: {matchLabels: {foo: bar}}, namespaceSelector: {matchExpressions: [{key: environment, operator: In, values: [prod, staging]}]}}`, [2]string{"foo: bar", "foo: baz"}},
		{"S1.9 matchPolicy and sideEffects", "validatingwebhookconfigurations", v1beta1(validating, rule+`, matchPolicy: Equivalent, sideEffects: NoneOnDryRun`),
			`{matchPolicy: Equivalent, sideEffects: NoneOnDryRun, failurePolicy: Ignore}`, [2]string{"NoneOnDryRun", "Some"}},
	}
	// The tests of package registrations cover the conversions of all versions.
	for _, i := range speed.Pick(t, speed.Of(1, len(cases)), len(cases)) {
		c := cases[i]
		t.Run(c.name, func(t *testing.T) {
			defer k.For(t)()
			apply := func(manifest, verb string) {
				t.Helper()
				if out := k.MustWith(manifest, "apply", "-f", "-"); !strings.HasSuffix(out, "/example-config "+verb+"\n") {
					t.Errorf("apply: %q, not %q", out, verb)
				}
			}
			first := func() map[string]any {
				t.Helper()
				var obj map[string]any
				if err := yaml.Unmarshal([]byte(k.Must("get", c.resource, "example-config", "-o", "yaml")), &obj); err != nil {
					t.Fatal(err)
				}
				for _, list := range []string{"initializers", "externalAdmissionHooks", "webhooks"} {
					if entry, ok := harness.At(obj, list, "0").(map[string]any); ok {
						return entry
					}
				}
				t.Fatalf("there is no list in %v", obj)
				return nil
			}
			apply(c.manifest, "created")
			got := first()
			for field, value := range parsed(t, c.stored) {
				want(t, field, got[field], value)
			}
			if r := k.Run(c.manifest, "diff", "-f", "-"); r.Code != 0 {
				t.Errorf("diff of what was applied: %d %s%s", r.Code, r.Out, r.Err)
			}
			changed := strings.ReplaceAll(c.manifest, c.change[0], c.change[1])
			apply(changed, "configured")
			if r := k.Run(changed, "diff", "-f", "-"); r.Code != 0 {
				t.Errorf("diff of what was changed: %d %s%s", r.Code, r.Out, r.Err)
			}
			if now := first(); reflect.DeepEqual(now, got) {
				t.Errorf("nothing changed: %v", now)
			}
			k.MustWith(changed, "delete", "-f", "-")
		})
	}
}
