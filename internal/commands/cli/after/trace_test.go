package after

import (
	"bytes"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gatehouse-dev/gatehouse/admission/trace"
	"github.com/gatehouse-dev/gatehouse/internal/commands/cli/command"
	"github.com/gatehouse-dev/gatehouse/internal/kit/terminal"
	"github.com/gatehouse-dev/gatehouse/internal/server/reporting/traces/v1alpha1"
)

// The list of traces has these columns, which the page about traces documents.
func TestColumnsOfTraces(t *testing.T) {
	now := time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)
	one := &v1alpha1.AdmissionTrace{}
	one.Namespace = "shop"
	one.ID, one.Outcome, one.TotalMicros, one.OwnMicros, one.Start = "abc", "Denied", 2500, 500, metav1.NewMicroTime(now.Add(-90*time.Second))
	one.Request.Operation, one.Request.Name, one.Request.Resource.Resource = "CREATE", "web", "pods"
	refused := *one
	refused.ID, refused.Outcome, refused.Response = "def", "Allowed", &trace.ResponseRecord{Code: 422, Reason: "Invalid"}
	for namespaces, want := range map[bool][]string{
		false: {"ID OPERATION OBJECT OUTCOME REVIEWS TOTAL OWN AGE", "abc CREATE pods web Denied 0 2.5ms 500µs 90s", "def CREATE pods web Allowed, then 422 Invalid 0 2.5ms 500µs 90s"},
		true:  {"NAMESPACE ID OPERATION OBJECT OUTCOME REVIEWS TOTAL OWN AGE", "shop abc CREATE pods web Denied 0 2.5ms 500µs 90s", "shop def CREATE pods web Allowed, then 422 Invalid 0 2.5ms 500µs 90s"},
	} {
		var out bytes.Buffer
		if err := command.WriteTable(&out, traceTable([]*v1alpha1.AdmissionTrace{one, &refused}, namespaces, now)); err != nil {
			t.Fatal(err)
		}
		for i, line := range strings.Split(strings.TrimSpace(out.String()), "\n") {
			if got := strings.Join(strings.Fields(line), " "); i >= len(want) || got != want[i] {
				t.Errorf("line %d is %q, want %q", i, got, want)
			}
		}
	}
}

// Users copy the ID of a trace, so it stays on one line even on the narrowest terminal.
func TestIDsOfTracesAreWhole(t *testing.T) {
	one := &v1alpha1.AdmissionTrace{}
	one.Namespace, one.ID, one.Outcome = "cert-manager-test", "0123456789abcdef", "FailedOpen"
	one.Request.Operation, one.Request.Name, one.Request.Resource.Resource = "CREATE", "web-6d4b75cb6d-hx7zj-of-a-long-name", "pods"
	t.Setenv("COLUMNS", "80")
	var out bytes.Buffer
	page := terminal.NewPage(&out)
	if err := traceTable([]*v1alpha1.AdmissionTrace{one}, true, time.Now()).Print(page); err != nil {
		t.Fatal(err)
	}
	if err := page.Flush(); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(out.String(), one.ID) {
		t.Errorf("the ID is broken:\n%s", out.String())
	}
	for line := range strings.Lines(out.String()) {
		if len(line) > 81 {
			t.Errorf("longer than a terminal: %q", line)
		}
	}
}
