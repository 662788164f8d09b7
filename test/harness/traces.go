package harness

import (
	"fmt"
	"net/http"
	"testing"
)

const StatesPath = "/apis/gatehouse.dev/v1alpha1/registrationstates"

const TracesPath = "/apis/gatehouse.dev/v1alpha1/admissiontraces"

// TracesIn returns the path of the traces of a namespace.
func TracesIn(ns string) string {
	return "/apis/gatehouse.dev/v1alpha1/namespaces/" + ns + "/admissiontraces"
}

// TraceOf reads the trace of the request with response r. The trace is available once the response has
// arrived.
func TraceOf(t *testing.T, admin *HTTP, r *Response) *Response {
	t.Helper()
	id := r.Header.Get("Gatehouse-Trace")
	if id == "" {
		t.Fatalf("no Gatehouse-Trace in the answer %d %s", r.Code, r.Raw)
	}
	// The trace is stored when the handlers have returned, shortly after the response.
	Eventually(t, "the trace", func() error {
		if r := admin.Do("GET", TracesPath+"/"+id, ""); r.Code != http.StatusOK {
			return fmt.Errorf("%d %s", r.Code, r.Raw)
		}
		return nil
	})
	return admin.Get(TracesPath + "/" + id)
}
