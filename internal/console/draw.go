package console

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/gatehouse-dev/gatehouse/admission/plan"
	"github.com/gatehouse-dev/gatehouse/admission/trace"
	"github.com/gatehouse-dev/gatehouse/internal/pages"
)

const (
	// MaxBody bounds what a drawing is made of, in bytes.
	MaxBody = 16 << 20
	// maxObjects is how many objects are read of a text.
	maxObjects = 100
	// drawTime bounds what a drawing works out.
	drawTime = time.Second
)

// links are the addresses of the page.
var links = pages.Links{
	Trace: func(id string) string { return "#/traces/" + id },
	Entry: func(kind, configuration string) string { return "#/chain/" + kind + "/" + configuration },
}

// drawings make a View, or data, of a body.
var drawings = map[string]func(ctx context.Context, body []byte) (any, error){
	"trace":  drawTrace,
	"traces": drawTraces,
	"plan":   drawPlan,
	"chain":  drawChain,
	"health": drawHealth,
	"object": drawObject,
	"read":   read,
	"write":  write,
	"calls":  drawCalls,
}

// drawing is the answer: a picture, for what it is a picture of.
type drawing struct {
	Title string `json:"title"`
	HTML  string `json:"html"`
}

// Draw answers requests below DrawPrefix. The caller has authenticated the client.
func Draw() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		Secure(w.Header())
		draw, ok := drawings[strings.TrimPrefix(req.URL.Path, DrawPrefix)]
		switch {
		case !ok:
			http.Error(w, "the console draws no such thing", http.StatusNotFound)
			return
		case req.Method != http.MethodPost:
			w.Header().Set("Allow", "POST")
			http.Error(w, "a drawing is made of what is sent: use POST", http.StatusMethodNotAllowed)
			return
		}
		body, err := io.ReadAll(http.MaxBytesReader(w, req.Body, MaxBody))
		if err != nil {
			code := http.StatusBadRequest
			if errors.As(err, new(*http.MaxBytesError)) {
				code = http.StatusRequestEntityTooLarge
			}
			http.Error(w, "cannot read what is to be drawn: "+err.Error(), code)
			return
		}
		ctx, cancel := context.WithTimeout(req.Context(), drawTime)
		defer cancel()
		made, err := draw(ctx, body)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		if v, ok := made.(pages.View); ok {
			var b strings.Builder
			if err := v.Fragment(&b); err != nil {
				http.Error(w, err.Error(), http.StatusInternalServerError)
				return
			}
			made = drawing{v.Title, b.String()}
		}
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Cache-Control", "no-store")
		// A client that is gone needs no answer.
		_ = json.NewEncoder(w).Encode(made)
	})
}

func decode(body []byte, v any) error {
	if err := json.Unmarshal(body, v); err != nil {
		return fmt.Errorf("what is to be drawn is not what the page sends: %w", err)
	}
	return nil
}

func drawTrace(_ context.Context, body []byte) (any, error) {
	r := &trace.Record{}
	if err := decode(body, r); err != nil {
		return nil, err
	}
	return pages.OfTrace(r, links), nil
}

// drawTraces draws rows of a Table of traces.
func drawTraces(_ context.Context, body []byte) (any, error) {
	var rows []struct {
		ID, Operation, Object, Namespace, User, Outcome, Total, Own string
		At                                                          time.Time
		Calls                                                       int
	}
	if err := decode(body, &rows); err != nil {
		return nil, err
	}
	list := make([]pages.Summary, len(rows))
	for i := range rows {
		r := &rows[i]
		// A text that is not a duration counts as none.
		total, _ := time.ParseDuration(r.Total)
		own, _ := time.ParseDuration(r.Own)
		list[i] = pages.Summary{
			ID: r.ID, Operation: r.Operation, Object: r.Object, Namespace: r.Namespace, User: r.User, Outcome: trace.Outcome(r.Outcome), At: r.At, Calls: r.Calls,
			TotalMicros: total.Microseconds(), OwnMicros: own.Microseconds(),
		}
	}
	return pages.OfSummaries(list, links), nil
}

// drawPlan draws an AdmissionExplanation.
func drawPlan(_ context.Context, body []byte) (any, error) {
	var e struct {
		Spec struct {
			Operation string                      `json:"operation"`
			Resource  metav1.GroupVersionResource `json:"resource"`
			Namespace string                      `json:"namespace"`
			Name      string                      `json:"name"`
		} `json:"spec"`
		Status struct {
			Plan  *plan.Plan     `json:"plan"`
			Error *metav1.Status `json:"error"`
			Tried []struct {
				Kind     string   `json:"kind"`
				Name     string   `json:"name"`
				Problems []string `json:"problems"`
				Costs    []struct {
					Field     string `json:"field"`
					WorstCase *int64 `json:"worstCase"`
					Limit     int64  `json:"limit"`
				} `json:"costs"`
			} `json:"tried"`
		} `json:"status"`
	}
	if err := decode(body, &e); err != nil {
		return nil, err
	}
	one := pages.Explained{
		Asked: strings.Join(strings.Fields(e.Spec.Operation+" "+e.Spec.Resource.Resource+" "+e.Spec.Namespace+" "+e.Spec.Name), " "), Plan: e.Status.Plan,
	}
	if e.Status.Error != nil {
		one.Error = e.Status.Error.Message
	}
	for _, t := range e.Status.Tried {
		tried := pages.Tried{Name: t.Kind + " " + t.Name, Problems: t.Problems}
		for _, c := range t.Costs {
			tried.Costs = append(tried.Costs, pages.NewCost(c.Field, c.WorstCase, c.Limit))
		}
		one.Tried = append(one.Tried, tried)
	}
	return pages.OfPlans([]pages.Explained{one}, links), nil
}

// read reads the objects of a text in YAML or JSON.
func read(_ context.Context, body []byte) (any, error) {
	objects := []map[string]any{}
	for i, document := range strings.Split("\n"+strings.ReplaceAll(string(body), "\r\n", "\n"), "\n---") {
		var content map[string]any
		if err := yaml.Unmarshal([]byte(document), &content); err != nil {
			return nil, fmt.Errorf("document %d cannot be read: %w", i+1, err)
		}
		if len(content) == 0 {
			continue
		}
		items := []any{content}
		if list, ok := content["items"].([]any); ok && strings.HasSuffix(fmt.Sprint(content["kind"]), "List") {
			items = list
		}
		for _, item := range items {
			object, ok := item.(map[string]any)
			if !ok || object["kind"] == nil || object["apiVersion"] == nil {
				return nil, fmt.Errorf("document %d is not an object: it has no apiVersion or no kind", i+1)
			}
			objects = append(objects, object)
		}
	}
	if len(objects) > maxObjects {
		return nil, fmt.Errorf("the text has %d objects, more than %d", len(objects), maxObjects)
	}
	return objects, nil
}

// write writes an object as YAML, as users write it.
func write(_ context.Context, body []byte) (any, error) {
	var content map[string]any
	if err := decode(body, &content); err != nil {
		return nil, err
	}
	unstructured.RemoveNestedField(content, "metadata", "managedFields")
	text, err := yaml.Marshal(content)
	return map[string]string{"text": string(text)}, err
}

// sorted are the keys of a map, in order.
func sorted[K cmp.Ordered, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }
