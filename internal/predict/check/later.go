package check

import (
	"net/http"
	"strings"

	"github.com/gatehouse-dev/gatehouse/internal/predict/offline"
	"github.com/gatehouse-dev/gatehouse/internal/predict/stage"
)

// rejectLater makes the answer to an object that is sent without some fields the answer of a server
// that does not have them. What the server said of the rest becomes the lenient answer.
func (t *task) rejectLater() {
	if len(t.later) == 0 {
		return
	}
	said := ""
	if t.answer.OK() || ruleOf(t.answer.Status) != ruleUnknownField {
		t.lenient = t.answer
	} else if _, others, ok := strings.Cut(t.answer.Status.Message, stage.StrictDecoding+": "); ok {
		said = others
	}
	status := offline.StrictError(t.sent.GroupVersionKind(), said, t.later).Status()
	t.unchanged = false
	t.answer = &answer{Answer: &stage.Answer{Code: http.StatusBadRequest, Status: &status}}
}
