package suite

import (
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"

	"github.com/gatehouse-dev/gatehouse/test/hooktest"
	"github.com/gatehouse-dev/gatehouse/test/speed"
)

// A test binary with this variable is a webhook that converts widgets.
const asConverter = "GATEHOUSE_TEST_CONVERTS"

func TestMain(m *testing.M) {
	klog.SetLogger(logr.Discard())
	if os.Getenv(asEngine) != "" {
		fmt.Fprintln(os.Stderr, engineMain())
		os.Exit(1)
	}
	if os.Getenv(asConverter) == "" {
		os.Exit(speed.Main(m, "TestObjectsAreComparedByParts", "TestExpectationsFail", "TestThePageShowsTheSource", "TestLCOVHasLinesAndBranches",
			"TestTheSchemaHasTheFieldsThatAreRead", "TestBrokenTestFilesAreErrors"))
	}
	dir := os.Getenv("CERT_DIR")
	err := http.ListenAndServeTLS("127.0.0.1:"+os.Getenv("PORT"), filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key"), http.HandlerFunc(hooktest.ConvertWidgets))
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

// widgets has a CRD with two versions, and a policy about the fields of one.
const widgets = `
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {kind: Widget, plural: widgets, singular: widget}
  conversion:
    strategy: Webhook
    webhook: {conversionReviewVersions: [v1], clientConfig: {service: {namespace: hooks, name: convert}}}
  versions:
  - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object, properties: {replicas: {type: integer}}}}}}}
  - {name: v1beta1, served: true, storage: false, schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object, properties: {size: {type: integer}}}}}}}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: limit}
spec:
  matchConstraints: {resourceRules: [{apiGroups: [example.com], apiVersions: [v1], operations: [CREATE, UPDATE], resources: [widgets]}]}
  validations: [{expression: object.spec.replicas <= 4, message: at most 4}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: limit}
spec: {policyName: limit, validationActions: [Deny]}
`

// widget is an object of the test environment that is stored in another version.
const widget = "---\n{apiVersion: example.com/v1beta1, kind: Widget, metadata: {name: old, namespace: default}, spec: {size: 2}}\n"

const widgetTests = `- name: too many in the other version
  request: {object: {apiVersion: example.com/v1beta1, kind: Widget, metadata: {name: a}, spec: {size: 5}}}
  expect: {allowed: false, code: 422, by: {policy: limit}, message: {contains: at most 4}}
- name: few in the other version
  request: {object: {apiVersion: example.com/v1beta1, kind: Widget, metadata: {name: a}, spec: {size: 3}}}
  expect: {allowed: true, object: {spec: {size: 3}}}
- name: in the version of the policy
  request: {object: {apiVersion: example.com/v1, kind: Widget, metadata: {name: a}, spec: {replicas: 5}}}
  expect: {allowed: false, by: {policy: limit}}
`

const widgetUpdate = `- name: an update of what the world has
  request: {of: example.com/v1beta1 Widget old, patch: {merge: {spec: {size: 5}}}}
  expect: {allowed: false, by: {policy: limit}}
`

// S24.19: a conversion webhook is called if the file starts it, or with --call. Otherwise tests that need it are not
// run.
func TestConversionWebhooksAreCalled(t *testing.T) {
	server := httptest.NewTLSServer(http.HandlerFunc(hooktest.ConvertWidgets))
	t.Cleanup(server.Close)
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	const begin = "apiVersion: gatehouse.dev/v1alpha1\nkind: AdmissionTests\n"
	insecure := strings.Replace(widgets, "service: {namespace: hooks, name: convert}", fmt.Sprintf("url: %s, caBundle: %s", server.URL, base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}))), 1)
	const notCalled = "the webhook that converts widgets.example.com is not called: "
	for _, tc := range speed.Some(t, 1, []struct {
		name, text string
		options    Options
		want       []Status
		message    string
	}{
		{"a program", begin + fmt.Sprintf("programs: [{command: [%q], service: hooks/convert, env: {%s: yes please}}]\ntests:\n", program, asConverter) + widgetTests + widgetUpdate + widgets + widget,
			Options{StartPrograms: true}, []Status{Passed, Passed, Passed, Passed}, ""},
		{"--call", begin + "tests:\n" + widgetTests + widgetUpdate + insecure + widget, Options{Call: true}, []Status{Passed, Passed, Passed, Passed}, ""},
		{"neither, with a service", begin + "tests:\n" + widgetTests + widgets, Options{}, []Status{Broken, Broken, Passed}, notCalled},
		{"neither, with a URL", begin + "tests:\n" + widgetTests + insecure, Options{}, []Status{Broken, Broken, Passed}, notCalled},
		{"neither, for the world", begin + "tests:\n" + widgetTests + insecure + widget, Options{}, []Status{Broken, Broken, Broken}, noWorld},
	}) {
		t.Run(tc.name, func(t *testing.T) {
			for i, r := range runWith(t, tc.text, tc.options).Tests {
				if r.Status != tc.want[i] || r.Status == Broken && !strings.HasPrefix(r.Message, tc.message) || i == 0 && r.Status == Broken && !strings.Contains(r.Message, notCalled) {
					t.Errorf("%s: %s %q %+v", r.Name, r.Status, r.Message, r.Failures)
				}
			}
		})
	}
}
