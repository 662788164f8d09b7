package console

import (
	"bytes"
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

	"github.com/gatehouse-dev/gatehouse/admission/trace"
	"github.com/gatehouse-dev/gatehouse/internal/readers/view"
)

const (
	// maxAsked bounds a question of the page, and maxDrawn a drawing, in bytes.
	maxAsked = 1 << 20
	maxDrawn = 8 << 20
	// viewTime bounds the reading and drawing of a view.
	viewTime = 30 * time.Second
	// maxViews is the number of views that are drawn at once.
	maxViews = 2
)

// group and version of Gatehouse's API kinds.
const group, version = "gatehouse.dev", "v1alpha1"

// links are the addresses of the page.
var links = view.Links{
	Trace: func(id string) string { return "#/traces/" + id },
	Entry: func(kind, configuration string) string { return "#/chain/" + kind + "/" + configuration },
}

// views are the functions that answer the page: each returns a drawing, or data, from objects that the
// viewer can read.
var views = map[string]func(v *viewer, asked []byte) (any, error){
	"trace":    viewTrace,
	"explain":  viewExplanation,
	"object":   viewObject,
	"manifest": viewManifest,
	"chain":    viewChain,
	"health":   viewHealth,
	"calls":    viewCalls,
}

// drawing is a Document and the data that the page needs with it.
type drawing struct {
	view  *view.Document
	Title string `json:"title"`
	HTML  string `json:"html"`
	// Notes lists missing parts of the drawing, and the reasons.
	Notes []string `json:"notes,omitempty"`
	// Status counts the registrations that were read, and Whole is set if that is all of them.
	Status string `json:"status,omitempty"`
	Whole  bool   `json:"whole"`
	// Counts are the current values of the metrics.
	Counts counts `json:"counts,omitempty"`
}

// ownOrigin rejects requests from pages of other origins, to which a browser attaches the client
// certificate of its user.
var ownOrigin = http.NewCrossOriginProtection()

// serveView answers the page's request for a view. turns has a slot for each view that is drawn.
func serveView(w http.ResponseWriter, req *http.Request, name string, api http.Handler, turns chan struct{}) {
	Secure(w.Header())
	view, ok := views[name]
	switch {
	case !ok:
		http.Error(w, "the console has no such view", http.StatusNotFound)
		return
	case req.Method != http.MethodPost:
		w.Header().Set("Allow", http.MethodPost)
		http.Error(w, "a view is asked for by POST", http.StatusMethodNotAllowed)
		return
	case ownOrigin.Check(req) != nil:
		http.Error(w, "another page asks: only the console may", http.StatusForbidden)
		return
	}
	made, err := answerTo(w, req, view, api, turns)
	if err != nil {
		code := codeOf(err)
		if code == http.StatusTooManyRequests {
			w.Header().Set("Retry-After", "1")
		}
		http.Error(w, err.Error(), code)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	// An error means that the client has disconnected.
	_, _ = w.Write(made)
}

// answerTo returns the response to a request for a view.
func answerTo(w http.ResponseWriter, req *http.Request, view func(*viewer, []byte) (any, error), api http.Handler, turns chan struct{}) ([]byte, error) {
	asked, err := read(w, req)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(req.Context(), viewTime)
	defer cancel()
	v := &viewer{api: api, asks: req, context: ctx, left: maxRead}
	works := false
	defer func() {
		if works {
			<-turns
		}
	}()
	v.work = func() error {
		if works {
			return nil
		}
		select {
		case turns <- struct{}{}:
			works = true
			return nil
		case <-ctx.Done():
			return &refused{http.StatusTooManyRequests, "too many views are drawn at this moment: try again"}
		}
	}
	made, err := view(v, asked)
	if err != nil {
		return nil, err
	}
	if d, ok := made.(*drawing); ok {
		b := &bounded{}
		if err := d.view.Fragment(b); err != nil {
			return nil, err
		}
		d.Title, d.HTML = d.view.Title, b.String()
	}
	return json.Marshal(made)
}

// read reads the body of a request.
func read(w http.ResponseWriter, req *http.Request) ([]byte, error) {
	asked, err := io.ReadAll(http.MaxBytesReader(w, req.Body, maxAsked))
	switch {
	case errors.As(err, new(*http.MaxBytesError)):
		return nil, &refused{http.StatusRequestEntityTooLarge, fmt.Sprintf("the request body has more than %d MiB", maxAsked>>20)}
	case err != nil:
		return nil, &refused{http.StatusBadRequest, "the request body cannot be read: " + err.Error()}
	}
	return asked, nil
}

// bounded collects at most maxDrawn bytes.
type bounded struct{ strings.Builder }

func (b *bounded) Write(text []byte) (int, error) {
	if b.Len()+len(text) > maxDrawn {
		return 0, &refused{http.StatusRequestEntityTooLarge, fmt.Sprintf("the drawing has more than %d MiB", maxDrawn>>20)}
	}
	return b.Builder.Write(text)
}

// decode decodes the question of the page. Unknown fields are errors.
func decode(asked []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(asked))
	d.DisallowUnknownFields()
	err := d.Decode(into)
	if err == nil && d.More() {
		err = errors.New("something follows it")
	}
	if err != nil {
		return &refused{http.StatusBadRequest, "the request body has the wrong form: " + err.Error()}
	}
	return nil
}

func viewTrace(v *viewer, asked []byte) (any, error) {
	var wanted struct {
		ID string `json:"id"`
		// Namespace is a namespace whose traces the viewer can read.
		Namespace string `json:"namespace"`
	}
	if err := decode(asked, &wanted); err != nil {
		return nil, err
	}
	r := &trace.Record{}
	err := v.get(inside(group, version, "", "admissiontraces", wanted.ID), r)
	if err != nil && codeOf(err) == http.StatusForbidden && wanted.Namespace != "" {
		err = v.get(inside(group, version, wanted.Namespace, "admissiontraces", wanted.ID), r)
	}
	return &drawing{view: view.OfTrace(r, links)}, err
}

// sorted returns the keys of a map, sorted.
func sorted[K cmp.Ordered, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }
