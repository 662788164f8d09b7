package check

import (
	"fmt"
	"net/http"
	"reflect"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/gatehouse-dev/gatehouse/internal/predict/stage"
)

// takeLater takes the fields out of the object that is sent that the cluster's release does not
// have. A server that emulates the release knows them, and drops or keeps them without a word; the
// strict decoder of a server of the release itself rejects the object (S26.12).
func (r *run) takeLater(t *task) {
	if r.Fields == nil {
		return
	}
	if typed, err := scheme.Scheme.New(t.sent.GroupVersionKind()); err == nil {
		t.later = r.Fields.Remove(t.sent.Object, reflect.TypeOf(typed))
	}
}

// rejectLater makes the answer to an object that is sent without some fields the answer of a server
// that does not have them. What the server said of the rest becomes the lenient answer.
func (t *task) rejectLater() {
	if len(t.later) == 0 {
		return
	}
	unknown := make([]string, len(t.later))
	for i, path := range t.later {
		unknown[i] = fmt.Sprintf("unknown field %q", path)
	}
	said := ""
	if t.answer.OK() || ruleOf(t.answer.Status) != ruleUnknownField {
		t.lenient = t.answer
	} else if _, others, ok := strings.Cut(t.answer.Status.Message, stage.StrictDecoding+": "); ok {
		said = others + ", "
	}
	gvk := t.sent.GroupVersionKind()
	status := apierrors.NewBadRequest(fmt.Sprintf("%s in version %q cannot be handled as a %s: %s: %s%s",
		gvk.Kind, gvk.Version, gvk.Kind, stage.StrictDecoding, said, strings.Join(unknown, ", "))).Status()
	t.unchanged = false
	t.answer = &answer{Answer: &stage.Answer{Code: http.StatusBadRequest, Status: &status}}
}
