package agreement

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	registrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// answer is the answer of a webhook. The zero value denies without a message.
type answer struct {
	// Wire is the way in which the connection breaks before there is an answer: "hang", "reset", "garbage" or
	// "truncated". Empty means that it does not break.
	Wire string `json:"wire,omitempty"`
	// Status is the HTTP status; 0 means 200.
	Status int `json:"status,omitempty"`
	// Header contains additional headers.
	Header map[string]string `json:"header,omitempty"`
	// Body is sent instead of a review, unless it is nil.
	Body *string `json:"body,omitempty"`
	// Gzip compresses the body.
	Gzip bool `json:"gzip,omitempty"`
	// Version is the apiVersion of the answer. Empty means the version of the review, "none" that the field is
	// absent. Kind works in the same way.
	Version string `json:"version,omitempty"`
	Kind    string `json:"kind,omitempty"`
	// UID is "absent", "wrong", or empty for the UID of the review.
	UID string `json:"uid,omitempty"`
	// Absent leaves out the response.
	Absent bool `json:"absent,omitempty"`
	// Allowed is true, false, or a value of another type.
	Allowed any `json:"allowed,omitempty"`
	// Result is the status of a denial.
	Result *metav1.Status `json:"result,omitempty"`
	// Patch contains the names of recipes; nil means no patch. A nil PatchType leaves out the field.
	Patch     []string `json:"patch,omitempty"`
	PatchType *string  `json:"patchType,omitempty"`

	Warnings         []string          `json:"warnings,omitempty"`
	AuditAnnotations map[string]string `json:"auditAnnotations,omitempty"`
}

// received is a request that a webhook received.
type received struct {
	hook   int
	method string
	// url is the host, path and query, as received.
	url    string
	header http.Header
	body   string
}

// webhooks are the webhook servers of one side. They record their requests.
type webhooks struct {
	answers map[int]answer
	// translate changes an answer to a review for this side; it may be nil.
	translate func(answer, *reviewed) answer
	mu        struct {
		sync.Mutex
		received []received
	}
}

// take returns the requests received since its last call.
func (w *webhooks) take() []received {
	w.mu.Lock()
	defer w.mu.Unlock()
	list := w.mu.received
	w.mu.received = nil
	return list
}

// reviewed contains the parts of a review that an answer depends on.
type reviewed struct {
	hook       int
	mutating   bool
	APIVersion string `json:"apiVersion"`
	Request    struct {
		UID    string         `json:"uid"`
		Object map[string]any `json:"object"`
	} `json:"request"`
}

// hookID matches the ID in the host or the path of every hook.
var hookID = regexp.MustCompile(`\b[mv]h(\d+)\b`)

// hookOf returns the ID of the hook that a request is for, or -1.
func hookOf(host, path string) int {
	if m := hookID.FindStringSubmatch(host + " " + path); m != nil {
		return must(strconv.Atoi(m[1]))
	}
	return -1
}

// idOf returns the ID of the hook with an address.
func idOf(c *registrationv1.WebhookClientConfig) int {
	if c.Service != nil {
		return hookOf(c.Service.Name, "")
	}
	return hookOf(*c.URL, "")
}

// delay is the response time of a hook. Hooks that are called at the same time answer in the order of their IDs.
func delay(hook int) time.Duration { return time.Duration(hook+2) * time.Millisecond }

func (w *webhooks) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	id := hookOf(r.Host, r.URL.Path)
	w.mu.Lock()
	w.mu.received = append(w.mu.received, received{id, r.Method, r.Host + r.RequestURI, r.Header.Clone(), string(body)})
	w.mu.Unlock()
	in := reviewed{hook: id, mutating: strings.Contains(r.Host+r.URL.Path, "mh")}
	d := json.NewDecoder(bytes.NewReader(body))
	d.UseNumber()
	if err := d.Decode(&in); err != nil {
		http.Error(rw, err.Error(), http.StatusBadRequest)
		return
	}
	a := w.answers[id]
	if w.translate != nil {
		a = w.translate(a, &in)
	}
	sleep(r.Context(), delay(id))
	a.write(rw, r, &in)
}

func (a *answer) write(rw http.ResponseWriter, r *http.Request, in *reviewed) {
	switch a.Wire {
	case "hang":
		<-r.Context().Done()
		return
	case "reset", "garbage", "truncated":
		c, _, err := rw.(http.Hijacker).Hijack()
		if err != nil {
			panic(err)
		}
		defer c.Close()
		switch a.Wire {
		case "garbage":
			io.WriteString(c, "SSH-2.0-OpenSSH_9.9\r\n\r\n")
		case "truncated":
			io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n{\"apiVersion\":")
		}
		return
	}
	rw.Header().Set("Content-Type", "application/json")
	for _, name := range slices.Sorted(maps.Keys(a.Header)) {
		if a.Header[name] == "" {
			rw.Header()[name] = nil
		} else {
			rw.Header().Set(name, a.Header[name])
		}
	}
	body := a.body(in)
	if a.Gzip && strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
		var b bytes.Buffer
		z := gzip.NewWriter(&b)
		z.Write(body)
		z.Close()
		body = b.Bytes()
		rw.Header().Set("Content-Encoding", "gzip")
	}
	if a.Status != 0 {
		rw.WriteHeader(a.Status)
	}
	rw.Write(body)
}

func (a *answer) body(in *reviewed) []byte {
	if a.Body != nil {
		return []byte(*a.Body)
	}
	out := map[string]any{"apiVersion": in.APIVersion, "kind": "AdmissionReview"}
	for name, value := range map[string]string{"apiVersion": a.Version, "kind": a.Kind} {
		switch value {
		case "":
		case "none":
			delete(out, name)
		default:
			out[name] = value
		}
	}
	response := map[string]any{"uid": in.Request.UID, "allowed": a.Allowed}
	switch a.UID {
	case "absent":
		delete(response, "uid")
	case "wrong":
		response["uid"] = "7"
	}
	if a.Result != nil {
		response["status"] = a.Result
	}
	if a.Patch != nil {
		response["patch"] = patch(a.Patch, in.Request.Object)
	}
	if a.PatchType != nil {
		response["patchType"] = *a.PatchType
	}
	if a.Warnings != nil {
		response["warnings"] = a.Warnings
	}
	if a.AuditAnnotations != nil {
		response["auditAnnotations"] = a.AuditAnnotations
	}
	if !a.Absent {
		out["response"] = response
	}
	return must(json.Marshal(out))
}

// recipe creates the operations of a patch for an object. The object is nil if the request has none.
type recipe struct {
	name string
	// fails reports whether the patch cannot be applied to any object, or its result cannot be decoded.
	fails bool
	make  func(object map[string]any) []operation
}

type operation map[string]any

// recipes are the patches in the answers of webhooks. undecodable and rename have a special meaning.
var recipes = []recipe{
	{name: "nothing", make: func(map[string]any) []operation { return nil }},
	{name: "label", make: func(o map[string]any) []operation { return set(o, "labels", "env", "prod") }},
	{name: "relabel", make: func(o map[string]any) []operation { return set(o, "labels", "team", "red") }},
	{name: "unlabel", make: func(o map[string]any) []operation {
		if member(o, "metadata", "labels", "team") == nil {
			return nil
		}
		return []operation{{"op": "remove", "path": "/metadata/labels/team"}}
	}},
	{name: "annotate", make: func(o map[string]any) []operation { return set(o, "annotations", "a~1b.example/c~0d", "yes") }},
	{name: "bump", make: func(o map[string]any) []operation {
		n, _ := member(o, "metadata", "annotations", "count").(string)
		return set(o, "annotations", "count", n+"i")
	}},
	{name: "test", make: func(o map[string]any) []operation {
		return []operation{{"op": "test", "path": "/kind", "value": o["kind"]}}
	}},
	{name: "same", make: func(o map[string]any) []operation {
		return []operation{{"op": "replace", "path": "/kind", "value": o["kind"]}}
	}},
	{name: "twice", make: func(o map[string]any) []operation {
		return append(set(o, "labels", "app", "x"), operation{"op": "replace", "path": "/metadata/labels/app", "value": "a"})
	}},
	{name: "copy", make: func(o map[string]any) []operation {
		return append(set(o, "annotations", "from", "here"),
			operation{"op": "copy", "from": "/metadata/annotations/from", "path": "/metadata/annotations/copied"},
			operation{"op": "move", "from": "/metadata/annotations/from", "path": "/metadata/annotations/moved"})
	}},
	{name: "null", make: func(map[string]any) []operation {
		return []operation{{"op": "add", "path": "/metadata/annotations", "value": nil}}
	}},
	{name: "unknown", make: func(o map[string]any) []operation {
		return []operation{{"op": "add", "path": "/unknownMember", "value": map[string]any{"a": 1}}}
	}},
	{name: "finalizer", make: func(o map[string]any) []operation {
		return []operation{{"op": "add", "path": "/metadata/finalizers", "value": []string{"example.com/hold"}}}
	}},
	{name: "undefault", make: func(o map[string]any) []operation {
		for _, path := range [][]string{{"spec", "replicas"}, {"spec", "restartPolicy"}, {"spec", "mode"}} {
			if member(o, path...) != nil {
				return []operation{{"op": "remove", "path": "/" + strings.Join(path, "/")}}
			}
		}
		return nil
	}},
	{name: "replicas", make: func(o map[string]any) []operation {
		if member(o, "spec", "replicas") == nil {
			return nil
		}
		return []operation{{"op": "replace", "path": "/spec/replicas", "value": 7}}
	}},
	{name: "numbers", make: func(o map[string]any) []operation {
		if member(o, "spec", "size") == nil {
			return nil
		}
		// Not 1.0: when upstream has written and read an object with 1.0, it considers the object changed.
		return []operation{{"op": "add", "path": "/spec/numbers", "value": []any{
			json.RawMessage("9007199254740993"), json.RawMessage("0.1"), json.RawMessage("-5"), json.RawMessage("1.5e-1"),
		}}}
	}},
	{name: "container", make: func(o map[string]any) []operation {
		if member(o, "spec", "containers") == nil {
			return nil
		}
		return []operation{
			{"op": "replace", "path": "/spec/containers/-1/image", "value": "replaced"},
			{"op": "add", "path": "/spec/containers/-", "value": map[string]any{"name": "sidecar", "image": "sidecar"}},
			{"op": "add", "path": "/spec/containers/0", "value": map[string]any{"name": "first", "image": "first"}},
		}
	}},
	{name: "failing test", fails: true, make: func(o map[string]any) []operation {
		return append(set(o, "labels", "env", "prod"), operation{"op": "test", "path": "/kind", "value": "Other"})
	}},
	{name: "remove what is not there", fails: true, make: func(map[string]any) []operation {
		return []operation{{"op": "remove", "path": "/metadata/nowhere"}}
	}},
	{name: "add below nothing", fails: true, make: func(map[string]any) []operation {
		return []operation{{"op": "add", "path": "/nowhere/at/all", "value": 1}}
	}},
	{name: "unknown operation", fails: true, make: func(map[string]any) []operation {
		return []operation{{"op": "frobnicate", "path": "/metadata/labels"}}
	}},
	{name: "wrong type", fails: true, make: func(map[string]any) []operation {
		// No other recipe corrects this finalizer later.
		return []operation{{"op": "add", "path": "/metadata/finalizers", "value": "a finalizer"}}
	}},
	{name: rename, make: func(map[string]any) []operation {
		return []operation{{"op": "replace", "path": "/kind", "value": "ReplicaSet"}}
	}},
	{name: undecodable},
}

const (
	undecodable = "undecodable"
	rename      = "other kind"
)

var recipeOf = func() map[string]*recipe {
	all := map[string]*recipe{}
	for i := range recipes {
		all[recipes[i].name] = &recipes[i]
	}
	return all
}()

// patch returns the operations of recipes in the form of an answer's patch.
func patch(names []string, object map[string]any) []byte {
	all := []operation{}
	for _, name := range names {
		if name == undecodable {
			return []byte(`{"op": "add"`)
		}
		all = append(all, recipeOf[name].make(object)...)
	}
	return must(json.Marshal(all))
}

// set returns the operations that set a label or an annotation.
func set(object map[string]any, field, key, value string) []operation {
	var all []operation
	if existing, ok := member(object, "metadata", field).(map[string]any); !ok || len(existing) == 0 {
		all = append(all, operation{"op": "add", "path": "/metadata/" + field, "value": map[string]any{}})
	}
	return append(all, operation{"op": "add", "path": fmt.Sprintf("/metadata/%s/%s", field, key), "value": value})
}

func member(object map[string]any, path ...string) any {
	var at any = object
	for _, name := range path {
		m, ok := at.(map[string]any)
		if !ok {
			return nil
		}
		at = m[name]
	}
	return at
}
