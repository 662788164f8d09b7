package after

import (
	"bytes"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gatehouse-dev/gatehouse/internal/cli/command"
	"github.com/gatehouse-dev/gatehouse/internal/server/reporting/traces/v1alpha1"
)

// The list of traces has these columns; the page about traces and users' eyes rely on them.
func TestColumnsOfTraces(t *testing.T) {
	now := time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)
	one := &v1alpha1.AdmissionTrace{}
	one.Namespace = "shop"
	one.ID, one.Outcome, one.TotalMicros, one.OwnMicros, one.Start = "abc", "Denied", 2500, 500, metav1.NewMicroTime(now.Add(-90*time.Second))
	one.Request.Operation, one.Request.Name, one.Request.Resource.Resource = "CREATE", "web", "pods"
	for namespaces, want := range map[bool][]string{
		false: {"ID OPERATION OBJECT OUTCOME REVIEWS TOTAL OWN AGE", "abc CREATE pods web Denied 0 2.5ms 500µs 90s"},
		true:  {"NAMESPACE ID OPERATION OBJECT OUTCOME REVIEWS TOTAL OWN AGE", "shop abc CREATE pods web Denied 0 2.5ms 500µs 90s"},
	} {
		var out bytes.Buffer
		if err := command.WriteTable(&out, traceTable([]*v1alpha1.AdmissionTrace{one}, namespaces, now)); err != nil {
			t.Fatal(err)
		}
		for i, line := range strings.Split(strings.TrimSpace(out.String()), "\n") {
			if got := strings.Join(strings.Fields(line), " "); i >= len(want) || got != want[i] {
				t.Errorf("line %d is %q, want %q", i, got, want)
			}
		}
	}
}
