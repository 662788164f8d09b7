package requestlog

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// S25.22: recorded requests get their answers from the events of an audit log, in any order of the files.
func TestAnswersOfRecordedRequests(t *testing.T) {
	recorded := func(id, name, more string) string {
		return fmt.Sprintf(`{"apiVersion":"gatehouse.dev/v1alpha1","kind":"RecordedRequest","id":%q,"operation":"CREATE","resource":{"group":"","version":"v1","resource":"configmaps"},"namespace":"shop","name":%q,"user":{"username":"jane"},"object":{"data":{"k":"1"}}%s}`, id, name, more)
	}
	event := func(id, name, code, annotations string) string {
		text := auditEvent("create", "Metadata", "configmaps", name, `,"responseStatus":{"code":`+code+`,"message":"no"},"annotations":{`+annotations+`}`)
		return strings.Replace(text, `"auditID":"a"`, fmt.Sprintf(`"auditID":%q`, id), 1)
	}
	lines := []string{
		recorded("1", "by-audit-id", ""), recorded("2", "by-annotation", ""), recorded("3", "refused-elsewhere", ""), recorded("4", "without-event", ""), recorded("5", "with-answer", `,"response":{"allowed":true,"code":201}`),
		event("1", "by-audit-id", "403", ""), event("x", "by-annotation", "201", `"record.gatehouse.dev/recorded-request":"2"`), event("3", "refused-elsewhere", "409", ""), event("5", "with-answer", "403", ""), event("y", "other", "201", ""),
	}
	const title = "CREATE configmaps shop/"
	want := []string{
		title + "by-audit-id by jane sends 1 -> false 403", title + "by-annotation by jane sends 1 -> true 201", title + "refused-elsewhere by jane sends 1", title + "without-event by jane sends 1", title + "with-answer by jane sends 1 -> true 201",
		"left out 2: an event of level Metadata has no objects", "other 3: an event of a recorded request, which gets its answer",
	}
	for name, text := range map[string]string{
		"recording first": strings.Join(lines, "\n"),
		"log first":       strings.Join(append(append([]string{}, lines[5:]...), lines[:5]...), "\n"),
		"in a list": strings.Join(lines[:5], "\n") + `
{"kind":"EventList","apiVersion":"audit.k8s.io/v1","items":[` + strings.Join(lines[5:], ",") + "]}",
	} {
		if diff := cmp.Diff(want, readAll(t, []byte(text), nil)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}
