package reporting

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/gatehouse-dev/gatehouse/test/harness"
)

// reportDefinitions are CRDs of OpenReports, reduced to the fields of results.
const reportDefinitions = `apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: PLURAL.openreports.io}
spec:
  group: openreports.io
  scope: SCOPE
  names: {plural: PLURAL, singular: SINGULAR, kind: KIND}
  versions:
  - name: v1alpha1
    served: true
    storage: true
    schema:
      openAPIV3Schema:
        type: object
        properties:
          summary: {type: object, additionalProperties: {type: integer}}
          results:
            type: array
            items:
              type: object
              required: [policy]
              properties:
                source: {type: string}
                policy: {type: string}
                rule: {type: string}
                result: {type: string, enum: [pass, fail, warn, error, skip]}
                severity: {type: string, enum: [critical, high, medium, low, info]}
                message: {type: string}
                properties: {type: object, additionalProperties: {type: string}}
                resources:
                  type: array
                  items: {type: object, properties: {apiVersion: {type: string}, kind: {type: string}, namespace: {type: string}, name: {type: string}, uid: {type: string}}}
---
`

// expiring returns a self-signed certificate for 127.0.0.1 that expires in three days.
func expiring(t *testing.T) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "soon"}, NotBefore: time.Now().AddDate(0, -3, 0), NotAfter: time.Now().AddDate(0, 0, 3),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// patiently is harness.Eventually with more time, for audits: an audit starts a program with a server.
func patiently(t *testing.T, what string, condition func() error) {
	t.Helper()
	tick, end := time.NewTicker(100*time.Millisecond), time.After(4*time.Minute)
	defer tick.Stop()
	for {
		err := condition()
		if err == nil {
			return
		}
		select {
		case <-tick.C:
		case <-end:
			t.Fatalf("%s: not within four minutes: %v", what, err)
		}
	}
}

// S32.12, S32.13, S32.14, S32.15, S32.16: problems of a cluster are reported once in reports, events and
// metrics, and disappear when they are repaired.
func TestTheAgentReportsWhatIsWrong(t *testing.T) {
	t.Parallel()
	hook := httptest.NewUnstartedServer(http.NotFoundHandler())
	hook.TLS = &tls.Config{Certificates: []tls.Certificate{expiring(t)}}
	hook.Config.ErrorLog = log.New(io.Discard, "", 0)
	hook.StartTLS()
	t.Cleanup(hook.Close)
	bundle := base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: hook.Certificate().Raw}))

	dir := t.TempDir()
	s := sole(t)
	admin := s.HTTP(t, nil)
	definitions := ""
	for _, names := range [][]string{{"reports", "Namespaced", "report", "Report"}, {"clusterreports", "Cluster", "clusterreport", "ClusterReport"}} {
		definitions += strings.NewReplacer("PLURAL", names[0], "SCOPE", names[1], "SINGULAR", names[2], "KIND", names[3]).Replace(reportDefinitions)
	}
	apply(t, s, definitions)
	harness.Eventually(t, "reports are served", func() error {
		for _, plural := range []string{"reports", "clusterreports"} {
			if r := admin.Do("GET", "/apis/openreports.io/v1alpha1/"+plural, ""); r.Code != http.StatusOK {
				return fmt.Errorf("%s: %d", plural, r.Code)
			}
		}
		return nil
	})
	token := agentToken(t, s, harness.Run(t, "agent", "--rbac", "--audit-objects", "configmaps").Out)
	apply(t, s, `
apiVersion: v1
kind: Namespace
metadata: {name: shop}
---
apiVersion: v1
kind: Namespace
metadata: {name: bank}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: bad, namespace: shop}
data: {x: "1"}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: bad, namespace: bank}
data: {x: "1"}
---
# This report is somebody else's, and has the name that the agent gives its own.
apiVersion: openreports.io/v1alpha1
kind: Report
metadata: {name: gatehouse-agent-audit, namespace: bank}
results: [{policy: theirs, result: pass}]
---
apiVersion: openreports.io/v1alpha1
kind: ClusterReport
metadata: {name: theirs}
results: [{policy: theirs, result: pass}]
`)
	apply(t, s, fmt.Sprintf(`
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: no-x}
spec:
  matchConstraints: {resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE, UPDATE], resources: [configmaps]}]}
  validations: [{expression: "!has(object.data) || !('x' in object.data)", message: no x}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: no-x}
spec: {policyName: no-x, validationActions: [Deny]}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: soon}
webhooks:
- name: soon.example.com
  clientConfig: {url: %q, caBundle: %s}
  rules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [podtemplates]}]
  sideEffects: None
  admissionReviewVersions: [v1]
  failurePolicy: Ignore
`, hook.URL, bundle))
	kubeconfig := kubeconfigOf(t, s, token)
	flags := []string{"--kubeconfig", kubeconfig, "--credentials", filepath.Join(dir, "agent"), "--bind-address", "127.0.0.1", "--secure-port", "0"}
	const (
		reports  = "/apis/openreports.io/v1alpha1/"
		lintOf   = reports + "clusterreports/gatehouse-agent-lint"
		auditOf  = reports + "namespaces/shop/reports/gatehouse-agent-audit"
		theirs   = reports + "namespaces/bank/reports/gatehouse-agent-audit"
		eventsOf = "/api/v1/events"
	)
	untouched := string(admin.Get(theirs).Raw)
	// ran waits until the agent has completed all checks, and returns its metrics.
	ran := func(t *testing.T, address string) string {
		t.Helper()
		ca, err := os.ReadFile(filepath.Join(dir, "agent", "ca.crt"))
		if err != nil {
			t.Fatal(err)
		}
		agent := s.HTTP(t, &rest.Config{Host: address, BearerToken: "bob-token", TLSClientConfig: rest.TLSClientConfig{CAData: ca}})
		var metrics string
		// The report in bank belongs to another tool, so that the audit finally fails.
		for _, want := range []string{`gatehouse_agent_last_run_timestamp_seconds{source="lint"}`, `gatehouse_agent_run_failures_total{source="audit"} 1`} {
			patiently(t, "the agent has looked", func() error {
				if metrics = string(agent.Get("/metrics").Raw); !strings.Contains(metrics, want) {
					return fmt.Errorf("no %s", want)
				}
				return nil
			})
		}
		return metrics
	}
	event := func() []string {
		return regexp.MustCompile(`"message":"[^"]*(?:certificate-expires|no-x)[^"]*"`).FindAllString(string(admin.Get(eventsOf).Raw), -1)
	}
	var before [2]string
	t.Run("once", func(t *testing.T) {
		metrics := ran(t, harness.StartCommand(t, append([]string{"agent", "--audit-objects", "configmaps"}, flags...)...))
		harness.Contains(t, "the metrics", metrics,
			`gatehouse_agent_findings{level="warning",rule="certificate-expires",source="lint"} 1`,
			`gatehouse_agent_findings{level="error",rule="no-x",source="audit"} 2`,
			`gatehouse_agent_certificate_expiration_timestamp_seconds{configuration="soon",kind="ValidatingWebhookConfiguration",use="served",webhook="soon.example.com"}`,
			`gatehouse_agent_reports{api_version="openreports.io/v1alpha1"} 1`, `gatehouse_agent_reports{api_version="wgpolicyk8s.io/v1alpha2"} 0`)
		before = [2]string{string(admin.Get(lintOf).Raw), string(admin.Get(auditOf).Raw)}
		harness.Contains(t, "the report of lint", before[0], `"rule":"certificate-expires"`, `"rule":"ca-bundle-expires"`, `"name":"soon"`, `"apiVersion":"admissionregistration.k8s.io/v1"`)
		harness.Contains(t, "the report of the audit", before[1], `"policy":"no-x"`, `"result":"fail"`, `"kind":"ConfigMap"`, `"fail":1`)
		if now := string(admin.Get(theirs).Raw); now != untouched {
			t.Errorf("the report of somebody else is now %s", now)
		}
		if got := event(); len(got) != 3 {
			t.Errorf("events %q", got)
		}
		if out := s.Kubectl(t, "default").Must("describe", "validatingwebhookconfiguration", "soon"); !strings.Contains(out, "AdmissionFinding") {
			t.Errorf("kubectl describe shows no event:\n%s", out)
		}
	})
	// Events expire after an hour, before the report.
	for _, item := range admin.Get(eventsOf).At("items").([]any) {
		admin.Do("DELETE", fmt.Sprintf("/api/v1/namespaces/%v/events/%v", harness.At(item, "metadata", "namespace"), harness.At(item, "metadata", "name")), "")
	}
	// S32.20: the program without a server has another process audit.
	t.Run("not again, by the program of the agent", func(t *testing.T) {
		socket, _ := strings.CutPrefix(harness.StartCommand(t, "agent", "--kubeconfig", kubeconfig, "--audit-objects", "configmaps", "--serve-audits", filepath.Join(socketDir(t), "audit")), "unix:")
		ran(t, harness.StartAgent(t, append([]string{"--audit-socket", socket}, flags...)...))
		if after := [2]string{string(admin.Get(lintOf).Raw), string(admin.Get(auditOf).Raw)}; after != before {
			t.Errorf("reports that say the same were written again:\n%s\n%s", before, after)
		}
		// The report of bank was not written, so the agent cannot know that its event was.
		if got := event(); len(got) > 1 {
			t.Errorf("events are written again: %q", got)
		}
		// Repaired problems are no longer reported.
		for _, registration := range []string{"validatingwebhookconfigurations/soon", "validatingadmissionpolicybindings/no-x"} {
			admin.Must(http.StatusOK, "DELETE", "/apis/admissionregistration.k8s.io/v1/"+registration, "")
		}
		patiently(t, "the findings are gone", func() error {
			if r := admin.Do("GET", lintOf, ""); strings.Contains(string(r.Raw), "certificate-expires") {
				return errors.New("lint still reports the webhook")
			}
			if r := admin.Do("GET", auditOf, ""); r.Code != http.StatusNotFound {
				return fmt.Errorf("the report of the audit: %d", r.Code)
			}
			return nil
		})
		for path, want := range map[string]string{theirs: untouched, reports + "clusterreports/theirs": ""} {
			if r := admin.Get(path); want != "" && string(r.Raw) != want {
				t.Errorf("%s is now %s", path, r.Raw)
			}
		}
		if r := admin.Get("/apis/coordination.k8s.io/v1/namespaces/gatehouse-agent/leases/gatehouse-agent"); r.At("spec", "holderIdentity") == "" {
			t.Error("nobody holds the Lease")
		}
	})
}

// socketDir returns a directory whose path is short enough for a socket.
func socketDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "audit")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}
