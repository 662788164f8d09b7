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
	"github.com/gatehouse-dev/gatehouse/internal/view"
)

const (
	// maxAsked bounds what the page asks, and maxDrawn a drawing, in bytes.
	maxAsked = 1 << 20
	maxDrawn = 8 << 20
	// viewTime bounds how long it takes to read and draw a view.
	viewTime = 30 * time.Second
	// maxViews is how many views are drawn at once.
	maxViews = 2
)

// group and version are those of the kinds of Gatehouse.
const group, version = "gatehouse.dev", "v1alpha1"

// links are the addresses of the page.
var links = view.Links{
	Trace: func(id string) string { return "#/traces/" + id },
	Entry: func(kind, configuration string) string { return "#/chain/" + kind + "/" + configuration },
}

// views answer what the page asks, with what the viewer may read: a drawing, or data.
var views = map[string]func(v *viewer, asked []byte) (any, error){
	"trace":    viewTrace,
	"explain":  viewExplanation,
	"object":   viewObject,
	"manifest": viewManifest,
	"chain":    viewChain,
	"health":   viewHealth,
	"calls":    viewCalls,
}

// drawing is a picture, with what the page needs besides.
type drawing struct {
	view  *view.Document
	Title string `json:"title"`
	HTML  string `json:"html"`
	// Notes say what the drawing lacks, and why.
	Notes []string `json:"notes,omitempty"`
	// Status says how much was read of the registrations, and Whole reports whether that is all.
	Status string `json:"status,omitempty"`
	Whole  bool   `json:"whole"`
	// Counts are what the metrics count now.
	Counts counts `json:"counts,omitempty"`
}

// ownOrigin refuses what pages of others ask: a browser sends them the client certificate of its user.
var ownOrigin = http.NewCrossOriginProtection()

// serveView answers what the page asks for a view. turns has a place for each view that is drawn.
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
	// A client that is gone needs no answer.
	_, _ = w.Write(made)
}

// answerTo makes the answer to what a request asks for a view.
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

// read reads what a request asks.
func read(w http.ResponseWriter, req *http.Request) ([]byte, error) {
	asked, err := io.ReadAll(http.MaxBytesReader(w, req.Body, maxAsked))
	switch {
	case errors.As(err, new(*http.MaxBytesError)):
		return nil, &refused{http.StatusRequestEntityTooLarge, fmt.Sprintf("what is asked has more than %d MiB", maxAsked>>20)}
	case err != nil:
		return nil, &refused{http.StatusBadRequest, "what is asked cannot be read: " + err.Error()}
	}
	return asked, nil
}

// bounded is a text of maxDrawn bytes at most.
type bounded struct{ strings.Builder }

func (b *bounded) Write(text []byte) (int, error) {
	if b.Len()+len(text) > maxDrawn {
		return 0, &refused{http.StatusRequestEntityTooLarge, fmt.Sprintf("the drawing has more than %d MiB", maxDrawn>>20)}
	}
	return b.Builder.Write(text)
}

// decode reads what the page asks: it has the fields of into, and no others.
func decode(asked []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(asked))
	d.DisallowUnknownFields()
	err := d.Decode(into)
	if err == nil && d.More() {
		err = errors.New("something follows it")
	}
	if err != nil {
		return &refused{http.StatusBadRequest, "what is asked is not what the page asks: " + err.Error()}
	}
	return nil
}

func viewTrace(v *viewer, asked []byte) (any, error) {
	var wanted struct {
		ID string `json:"id"`
		// Namespace is one whose traces the viewer may read.
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

// sorted are the keys of a map, in order.
func sorted[K cmp.Ordered, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }
