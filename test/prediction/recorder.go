package prediction

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/gatehouse-dev/gatehouse/test/hooktest"
)

// Recorder is an HTTPS server on a loopback address that serves all webhooks of a World and records their
// reviews. It is safe for concurrent use.
type Recorder struct {
	listener *hooktest.Listener

	mu struct {
		sync.Mutex
		answers map[string]Answer
		calls   []Call
		// marked contains the received markers, by webhook and name.
		marked map[string]bool
	}
}

// NewRecorder starts a Recorder. Close stops it.
func NewRecorder() (*Recorder, error) {
	r := &Recorder{}
	r.mu.marked = map[string]bool{}
	var err error
	r.listener, err = hooktest.Listen(http.HandlerFunc(r.serve))
	return r, err
}

// Close stops the Recorder.
func (r *Recorder) Close() error { return r.listener.Close() }

// client returns the clientConfig of a webhook.
func (r *Recorder) client(name string) map[string]any {
	return map[string]any{"url": r.listener.URL + "/" + name, "caBundle": base64.StdEncoding.EncodeToString(r.listener.CA)}
}

// begin clears the recorded reviews and sets the answers of the webhooks.
func (r *Recorder) begin(answers map[string]Answer) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mu.answers, r.mu.calls = answers, nil
}

// received returns the reviews since begin, in order of arrival.
func (r *Recorder) received() []Call {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]Call(nil), r.mu.calls...)
}

// saw reports whether a webhook received a review of a marker.
func (r *Recorder) saw(webhook, marker string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.mu.marked[webhook+"/"+marker]
}

// review contains the fields of AdmissionReview (v1 and v1beta1) that a webhook reads.
type review struct {
	APIVersion string `json:"apiVersion"`
	Request    struct {
		UID  string `json:"uid"`
		Kind struct {
			Group, Version, Kind string
		} `json:"kind"`
		Resource struct {
			Group, Version, Resource string
		} `json:"resource"`
		SubResource string          `json:"subResource"`
		Namespace   string          `json:"namespace"`
		Name        string          `json:"name"`
		Object      json.RawMessage `json:"object"`
		UserInfo    struct {
			Username string `json:"username"`
		} `json:"userInfo"`
	} `json:"request"`
}

func (r *Recorder) serve(w http.ResponseWriter, req *http.Request) {
	name := strings.TrimPrefix(req.URL.Path, "/")
	var asked review
	if err := json.NewDecoder(req.Body).Decode(&asked); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	response := map[string]any{"uid": asked.Request.UID, "allowed": true}
	switch r.note(name, &asked) {
	case Fail:
		http.Error(w, "broken", http.StatusInternalServerError)
		return
	case Deny:
		response["allowed"], response["status"] = false, map[string]any{"message": "no"}
	case Annotate:
		if patch := annotation(asked.Request.Object, name); patch != nil {
			response["patchType"], response["patch"] = "JSONPatch", patch
		}
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]any{"apiVersion": asked.APIVersion, "kind": "AdmissionReview", "response": response})
}

// note records a review and returns the answer.
func (r *Recorder) note(name string, asked *review) Answer {
	r.mu.Lock()
	defer r.mu.Unlock()
	q := &asked.Request
	if q.Namespace == markers {
		r.mu.marked[name+"/"+q.Name] = true
		return Allow
	}
	answer, ok := r.mu.answers[name]
	if !ok || q.UserInfo.Username != User {
		// The server also writes objects itself, and webhooks of another World may still be active.
		return Allow
	}
	version := q.Kind.Version
	if q.Kind.Group != "" {
		version = q.Kind.Group + "/" + version
	}
	resource := q.Resource.Resource
	if q.SubResource != "" {
		resource += "/" + q.SubResource
	}
	r.mu.calls = append(r.mu.calls, Call{
		Webhook: name, As: fmt.Sprintf("%s %s, %s", version, q.Kind.Kind, resource), Version: strings.TrimPrefix(asked.APIVersion, "admission.k8s.io/"),
	})
	return answer
}

// annotation returns the patch by which a webhook annotates an object; nil if there is no object or it
// already has the annotation.
func annotation(raw json.RawMessage, name string) []byte {
	var object *struct {
		Metadata struct {
			Annotations map[string]string `json:"annotations"`
		} `json:"metadata"`
	}
	if err := json.Unmarshal(raw, &object); err != nil || object == nil {
		return nil
	}
	if _, ok := object.Metadata.Annotations[name]; ok {
		return nil
	}
	operation := map[string]any{"op": "add", "path": "/metadata/annotations", "value": map[string]any{name: "yes"}}
	if len(object.Metadata.Annotations) > 0 {
		operation = map[string]any{"op": "add", "path": "/metadata/annotations/" + name, "value": "yes"}
	}
	patch, err := json.Marshal([]any{operation})
	if err != nil {
		panic("a patch cannot be encoded: " + err.Error())
	}
	return patch
}

// await polls until a condition is true or ctx ends.
func await(ctx context.Context, what string, so func() (bool, error)) error {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		if ok, err := so(); ok || err != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("waiting until %s: %w", what, context.Cause(ctx))
		}
	}
}
