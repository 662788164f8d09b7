package stage

import (
	"encoding/json"
	"net/http"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/gatehouse-dev/gatehouse/admission/trace"
	"github.com/gatehouse-dev/gatehouse/internal/commands/predict/offline"
	"github.com/gatehouse-dev/gatehouse/internal/commands/predict/rejection"
)

// releaseBody returns the body of a question without the fields that do not exist in the release. rejects returns the
// rejection by the release's strict decoder; it is nil if there is none.
func (s *Stage) releaseBody(q *Question) (body []byte, rejects func(*Answer) *Answer) {
	whole := q.Method == http.MethodPost || q.Method == http.MethodPut || q.ContentType == string(types.ApplyYAMLPatchType)
	content := map[string]any{}
	if s.Fields == nil || !whole || len(q.Body) == 0 || utiljson.Unmarshal(q.Body, &content) != nil {
		return q.Body, nil
	}
	version, _ := content["apiVersion"].(string)
	name, _ := content["kind"].(string)
	kind := schema.FromAPIVersionAndKind(version, name)
	later := rejection.TakeLater(s.Fields, content, kind)
	body, err := json.Marshal(content)
	switch {
	case err != nil:
		return q.Body, nil
	case len(later) == 0:
		return body, nil
	}
	return body, func(a *Answer) *Answer {
		if !q.Authorized() {
			return a
		}
		said := ""
		if !a.OK() {
			if _, others, strict := strings.Cut(a.Status.Message, rejection.StrictDecoding+": "); strict {
				said = others
			}
		}
		status := offline.StrictError(kind, said, later).Status()
		return &Answer{Code: http.StatusBadRequest, Status: &status, Trace: trace.New()}
	}
}
