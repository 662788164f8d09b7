package main

import (
	"context"
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
	"strings"
	"time"

	"github.com/gatehouse-dev/gatehouse/bench/internal/peer"
)

// definition is the CRD of a kind of reports, limited to the fields that the agent writes.
const definition = `apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: PLURAL.GROUP}
spec:
  group: GROUP
  scope: SCOPE
  names: {plural: PLURAL, singular: SINGULAR, kind: KIND}
  versions:
  - name: VERSION
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

// Kinds of reports: group, version, and plural, singular and kind of both scopes.
var (
	policyReports = []string{"wgpolicyk8s.io", "v1alpha2", "policyreports", "policyreport", "PolicyReport", "clusterpolicyreports", "clusterpolicyreport", "ClusterPolicyReport"}
	openReports   = []string{"openreports.io", "v1alpha1", "reports", "report", "Report", "clusterreports", "clusterreport", "ClusterReport"}
)

func definitionsOf(k []string) string {
	named := func(scope string, names []string) string {
		return strings.NewReplacer("PLURAL", names[0], "SINGULAR", names[1], "KIND", names[2], "SCOPE", scope, "GROUP", k[0], "VERSION", k[1]).Replace(definition)
	}
	return named("Namespaced", k[2:5]) + named("Cluster", k[5:8])
}

// expiring starts a webhook whose certificate expires in three days, and returns its URL and caBundle.
func expiring() (hook *httptest.Server, bundle string, err error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, "", err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "soon"}, NotBefore: time.Now().AddDate(0, -3, 0), NotAfter: time.Now().AddDate(0, 0, 3),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return nil, "", err
	}
	hook = httptest.NewUnstartedServer(http.NotFoundHandler())
	hook.TLS = &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}
	hook.Config.ErrorLog = log.New(io.Discard, "", 0)
	hook.StartTLS()
	return hook, base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})), nil
}

// watched is the number of audited objects, and broken the number of objects that violate the policy.
const watched, broken = 2000, 200

// watch runs an agent that detects problems of the cluster: an expiring certificate, and objects that violate a
// policy. It checks the reports, the events and the metrics, and measures the memory of the agent.
func (s *session) watch(ctx context.Context) error {
	s.kill()
	hook, bundle, err := expiring()
	if err != nil {
		return err
	}
	defer hook.Close()
	var maps strings.Builder
	maps.WriteString("apiVersion: v1\nkind: List\nitems:\n")
	for i := range watched {
		key := "good"
		if i < broken {
			key = "bad"
		}
		fmt.Fprintf(&maps, "- {apiVersion: v1, kind: ConfigMap, metadata: {name: m%d, namespace: bank}, data: {%s: \"1\"}}\n", i, key)
	}
	rights, err := s.gatehouse(ctx, "agent", "--rbac", "--audit-objects", "configmaps")
	if err != nil {
		return err
	}
	registrations := fmt.Sprintf(`apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: no-bad}
spec:
  matchConstraints: {resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE, UPDATE], resources: [configmaps]}]}
  validations: [{expression: "!has(object.data) || !('bad' in object.data)", message: no bad}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: no-bad}
spec: {policyName: no-bad, validationActions: [Audit]}
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
`, hook.URL, bundle)
	for _, text := range []string{definitionsOf(policyReports), rights, registrations, maps.String()} {
		if _, err := s.kubectl(ctx, text, "apply", "--server-side", "--force-conflicts", "-f", "-"); err != nil {
			return err
		}
	}
	before := s.args
	s.args = append(append([]string{}, before...), "--audit-objects=configmaps")
	if err := s.start(ctx); err != nil {
		return err
	}
	measuring, stop := context.WithCancel(ctx)
	defer stop()
	measured := make(chan [2]int64, len(s.agents))
	for _, agent := range s.agents {
		go func() { measured <- mostMemory(measuring, agent.Process.Pid) }()
	}
	if err := s.reported(ctx, policyReports); err != nil {
		return err
	}
	events, err := s.kubectl(ctx, "", "get", "events", "-A", "--field-selector", "reason=AdmissionFinding")
	if err != nil {
		return err
	}
	for _, want := range []string{"certificate-expires", "ca-bundle-expires", "The policy no-bad"} {
		if !strings.Contains(events, want) {
			return fmt.Errorf("no event is about %s:\n%s", want, events)
		}
	}
	about, err := s.kubectl(ctx, "", "get", "events", "-n", "default", "--field-selector", "reason=AdmissionFinding,involvedObject.name=soon")
	if err != nil {
		return err
	}
	fmt.Printf("%d events of the webhook:\n%s", strings.Count(events, "\n")-1, about)
	metrics, err := s.metrics(ctx)
	if err != nil {
		return err
	}
	for _, want := range []string{
		`gatehouse_agent_findings{level="warning",rule="certificate-expires",source="lint"} 1`, fmt.Sprintf(`gatehouse_agent_findings{level="warning",rule="no-bad",source="audit"} %d`, broken),
		`use="served"`, `gatehouse_agent_reports{api_version="wgpolicyk8s.io/v1alpha2"} 1`,
	} {
		if !strings.Contains(metrics, want) {
			return fmt.Errorf("the metrics lack %s:\n%s", want, metrics)
		}
	}
	fmt.Print(metrics)
	// The cluster gets the newer kind of reports, and a change of the policy makes the agent audit again.
	if _, err := s.kubectl(ctx, definitionsOf(openReports), "apply", "--server-side", "--force-conflicts", "-f", "-"); err != nil {
		return err
	}
	if _, err := s.kubectl(ctx, "", "label", "validatingadmissionpolicy", "no-bad", "again=yes"); err != nil {
		return err
	}
	if err := s.reported(ctx, openReports); err != nil {
		return err
	}
	for _, gone := range [][]string{{"validatingwebhookconfiguration", "soon"}, {"validatingadmissionpolicybinding", "no-bad"}} {
		if _, err := s.kubectl(ctx, "", "delete", gone[0], gone[1]); err != nil {
			return err
		}
	}
	err = patiently(func() error {
		return eventually(ctx, "the reports are gone or lack the repaired findings", func() error {
			all, err := s.kubectl(ctx, "", "get", "reports,clusterreports,policyreports,clusterpolicyreports", "-A", "-o", "yaml")
			if err == nil && (strings.Contains(all, "policy: no-bad") || strings.Contains(all, "certificate-expires")) {
				err = errors.New(all)
			}
			return err
		})
	})
	if err != nil {
		return err
	}
	stop()
	var most [2]int64
	for range s.agents {
		one := <-measured
		most = [2]int64{max(most[0], one[0]), max(most[1], one[1])}
	}
	fmt.Printf("reports, events and metrics are there, move to the other kind, and go when it is repaired; %d MiB of memory at most in the agent, %d with the audit of %d objects\n", most[0]>>20, most[1]>>20, watched)
	s.kill()
	s.args = before
	return s.start(ctx)
}

// patiently tries up to five times, because an audit takes some time.
func patiently(try func() error) (err error) {
	for range 5 {
		if err = try(); err == nil {
			break
		}
	}
	return err
}

// reported waits for the reports of both sources in a kind.
func (s *session) reported(ctx context.Context, kind []string) error {
	return patiently(func() error { return s.reportedSoon(ctx, kind) })
}

func (s *session) reportedSoon(ctx context.Context, kind []string) error {
	return eventually(ctx, "the reports are there", func() error {
		of := func(resource string, args ...string) (string, error) {
			return s.kubectl(ctx, "", append([]string{"get", resource + "." + kind[0], "-o", "yaml"}, args...)...)
		}
		lint, err := of(kind[5], "gatehouse-agent-lint")
		if err == nil && (!strings.Contains(lint, "rule: certificate-expires") || !strings.Contains(lint, "name: soon")) {
			err = errors.New(lint)
		}
		if err != nil {
			return err
		}
		audit, err := of(kind[2], "gatehouse-agent-audit", "-n", "bank")
		if n := strings.Count(audit, "policy: no-bad"); err == nil && n != broken {
			err = fmt.Errorf("%d results", n)
		}
		return err
	})
}

// metrics returns the metrics of the agents.
func (s *session) metrics(ctx context.Context) (string, error) {
	ca, err := os.ReadFile(filepath.Join(s.dir, "agent", "ca.crt"))
	if err != nil {
		return "", err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca)
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}}}
	defer client.CloseIdleConnections()
	var own strings.Builder
	for _, port := range s.ports {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("https://127.0.0.1:%d/metrics", port), nil)
		if err != nil {
			return "", err
		}
		req.Header.Set("Authorization", "Bearer "+peer.Token)
		resp, err := client.Do(req)
		if err != nil {
			return "", err
		}
		data, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil {
			return "", err
		}
		for line := range strings.Lines(string(data)) {
			if strings.HasPrefix(line, "gatehouse_agent_") {
				own.WriteString(line)
			}
		}
	}
	return own.String(), nil
}

// mostMemory returns the peak memory of a process until ctx ends, and the peak together with its children, in bytes.
func mostMemory(ctx context.Context, pid int) (most [2]int64) {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for ctx.Err() == nil {
		own, _, err := memory(pid)
		if err == nil {
			all := own
			for _, task := range childrenOf(pid) {
				var child int
				if _, err := fmt.Sscan(task, &child); err == nil {
					if more, _, err := memory(child); err == nil {
						all += more
					}
				}
			}
			most = [2]int64{max(most[0], own), max(most[1], all)}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
	return most
}

// childrenOf returns the IDs of the child processes that any thread of a process has started.
func childrenOf(pid int) (children []string) {
	tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	for _, path := range tasks {
		data, _ := os.ReadFile(path)
		children = append(children, strings.Fields(string(data))...)
	}
	return children
}
