package engine

import (
	"encoding/json"
	"testing"

	"github.com/gatehouse-dev/gatehouse/admission/plan"
	"github.com/gatehouse-dev/gatehouse/admission/trace"
	"github.com/gatehouse-dev/gatehouse/test/harness"
)

// RecordOf decodes the record of an AdmissionTrace.
func RecordOf(t *testing.T, found *harness.Response) *trace.Record {
	t.Helper()
	record := &trace.Record{}
	if err := json.Unmarshal(found.Raw, record); err != nil {
		t.Fatalf("%v in %s", err, found.Raw)
	}
	return record
}

// PlanOf decodes the plan of an AdmissionExplanation.
func PlanOf(t *testing.T, explanation []byte) *plan.Plan {
	t.Helper()
	var e struct {
		Status struct{ Plan *plan.Plan }
	}
	if err := json.Unmarshal(explanation, &e); err != nil || e.Status.Plan == nil {
		t.Fatalf("no plan (%v) in %s", err, explanation)
	}
	return e.Status.Plan
}
