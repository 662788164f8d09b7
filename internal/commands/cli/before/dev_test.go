package before

import (
	"bytes"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gatehouse-dev/gatehouse/admission/trace"
	"github.com/gatehouse-dev/gatehouse/internal/commands/cli/command"
)

// S33.4: a request that admission allowed and the server rejected later is shown as refused, with the response.
func TestRefusedRequestsAreShown(t *testing.T) {
	var out bytes.Buffer
	s := &shown{streams: command.Streams{Out: &out}, output: "text"}
	r := &trace.Record{Outcome: trace.OutcomeAllowed, Response: &trace.ResponseRecord{Code: 422, Reason: "Invalid"}, Request: trace.RequestRecord{
		Operation: "CREATE", Resource: trace.ResourceRecord{Version: "v1", Resource: "pods"}, Namespace: "shop", Name: "web", User: "anna",
	}}
	if err := s.show(r, nil); err != nil {
		t.Fatal(err)
	}
	if got := out.String(); !strings.Contains(got, " refused  CREATE pods web in shop by anna") || !strings.Contains(got, "; allowed, then 422 Invalid\n") {
		t.Errorf("got %s", got)
	}
}

// S33.4: repeated requests are counted: the count is printed after a second, then less and less often, and at
// the latest when another request arrives or the session ends.
func TestRepeatsAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		s := &shown{streams: command.Streams{Out: &out}, output: "text"}
		request := func(outcome trace.Outcome, name string) {
			t.Helper()
			r := &trace.Record{Outcome: outcome, Request: trace.RequestRecord{
				Operation: "CREATE", Resource: trace.ResourceRecord{Version: "v1", Resource: "pods"}, Namespace: "shop", Name: name, User: "controller",
			}}
			if err := s.show(r, nil); err != nil {
				t.Fatal(err)
			}
		}
		says := func(want ...string) {
			t.Helper()
			synctest.Wait()
			got := regexp.MustCompile(`(?m)^(\d\d:\d\d:\d\d |  +)`).ReplaceAllString(out.String(), "")
			got = regexp.MustCompile(`(CREATE pods) (\S*).*`).ReplaceAllString(got, "$2")
			if want := strings.Join(want, "\n"); strings.TrimSpace(got) != want {
				t.Errorf("got:\n%s\nwant:\n%s", got, want)
			}
			out.Reset()
		}
		// Rejected requests with generated names are alike; allowed requests with generated names are not.
		for i := range 4 {
			request(trace.OutcomeDenied, fmt.Sprint("web-", i))
		}
		says("rejected web-0")
		time.Sleep(firstAgain)
		says("... again, 3 times")
		request(trace.OutcomeDenied, "web-5")
		time.Sleep(firstAgain)
		says("")
		time.Sleep(firstAgain)
		says("... again")
		request(trace.OutcomeDenied, "web-6")
		request(trace.OutcomeAllowed, "web-7")
		request(trace.OutcomeAllowed, "web-8")
		says("... again", "allowed  web-7", "allowed  web-8")
		request(trace.OutcomeAllowed, "web-8")
		s.sayAgain()
		says("... again")
		time.Sleep(time.Hour)
		says("")
	})
}

// The fields of a change are sorted, in any order of the patch (S33.4).
func TestChangedFieldsAreSorted(t *testing.T) {
	line := func(paths ...string) string {
		r := &trace.Record{Outcome: trace.OutcomeAllowed, Steps: []trace.StepRecord{{Plugin: "MutatingAdmissionWebhook", Allowed: true, Calls: []trace.CallRecord{{
			Webhook: trace.EntryRecord{Kind: "MutatingWebhookConfiguration", Configuration: "c", Name: "n.example.com"}, Verdict: trace.Allowed.String(), Mutated: true,
		}}}}}
		for _, path := range paths {
			r.Steps[0].Calls[0].Patch = append(r.Steps[0].Calls[0].Patch, trace.PatchOperation{Op: "add", Path: path})
		}
		return happened(r)
	}
	if got := line("/c", "/a", "/d", "/b"); got != line("/a", "/b", "/c", "/d") || !strings.Contains(got, "/a, /b, /c, 1 more") {
		t.Errorf("got %q", got)
	}
}

// S33.16: the printed section is a configuration that dev reads, with references in place of values.
func TestThePrintedSectionIsRead(t *testing.T) {
	const manifests = `
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: a}
webhooks: [{name: a.example.com, clientConfig: {service: {namespace: shop, name: hook}}}]
---
apiVersion: v1
kind: Service
metadata: {namespace: shop, name: hook}
spec: {selector: {app: hook}, ports: [{port: 443, targetPort: 10250}]}
---
apiVersion: v1
kind: Secret
metadata: {namespace: shop, name: own}
stringData: {token: hidden}
---
apiVersion: apps/v1
kind: Deployment
metadata: {namespace: shop, name: hook}
spec:
  template:
    metadata: {labels: {app: hook}}
    spec:
      containers:
      - {name: hook, image: "hook:1", args: [--a=1], env: [{name: A, value: b}, {name: TOKEN, valueFrom: {secretKeyRef: {name: own, key: token}}},
          {name: NS, valueFrom: {fieldRef: {fieldPath: metadata.namespace}}}, {name: C, valueFrom: {configMapKeyRef: {name: c, key: d, optional: true}}}]}
`
	t.Chdir(t.TempDir())
	if err := os.WriteFile("all.yaml", []byte(manifests), 0o600); err != nil {
		t.Fatal(err)
	}
	explain := func(args ...string) string {
		t.Helper()
		var out bytes.Buffer
		cmd := NewDev(command.Streams{In: strings.NewReader(""), Out: &out, Err: &out}, nil)
		cmd.SetArgs(append([]string{"--print"}, args...))
		if err := cmd.Execute(); err != nil {
			t.Fatalf("%v: %s", err, &out)
		}
		return out.String()
	}
	first := explain("-f", "all.yaml", "--", "/bin/true")
	if strings.Contains(first, "hidden") || !strings.Contains(first, "secretKeyRef:") || !strings.Contains(first, "port: 10250") {
		t.Errorf("it prints:\n%s", first)
	}
	if err := os.WriteFile(command.ConfigFile, []byte(first), 0o600); err != nil {
		t.Fatal(err)
	}
	if again := explain(); again != first {
		t.Errorf("from the file it prints:\n%s\nwant:\n%s", again, first)
	}
}
