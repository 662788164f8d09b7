package check

import (
	"net/http"
	"strings"

	"github.com/gatehouse-dev/gatehouse/internal/commands/predict/offline"
	"github.com/gatehouse-dev/gatehouse/internal/commands/predict/rejection"
	"github.com/gatehouse-dev/gatehouse/internal/commands/predict/stage"
)

// rejectLater replaces the response to an object that was sent without later fields with the rejection by a server that
// does not have these fields. The original response becomes the lenient response.
func (t *task) rejectLater() {
	if len(t.later) == 0 {
		return
	}
	said := ""
	if t.answer.OK() || t.answer.rule() != ruleUnknownField {
		t.lenient = t.answer
	} else if _, others, ok := strings.Cut(t.answer.Status.Message, rejection.StrictDecoding+": "); ok {
		said = others
	}
	status := offline.StrictError(t.sent.GroupVersionKind(), said, t.later).Status()
	t.unchanged = false
	t.answer = &answer{Answer: &stage.Answer{Code: http.StatusBadRequest, Status: &status}}
}
