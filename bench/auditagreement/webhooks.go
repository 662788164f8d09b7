package main

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"sync"

	"github.com/gatehouse-dev/gatehouse/test/hooktest"
)

// call is a call that a webhook received, and its action.
type call struct {
	validating             bool
	configuration, webhook string
	// ignores reports whether a failure is ignored.
	ignores bool
	// did is the letter of the action, see behaviours.
	did string
	// patch is the patch that it sent.
	patch string
}

// is reports whether the action is one of the given letters.
func (c *call) is(letters string) bool { return c.did != "" && strings.Contains(letters, c.did) }

// failedOpen reports whether the call failed, and the request continued.
func (c *call) failedOpen() bool { return c.is("eguh") && c.ignores }

// rejects reports whether the request ends with the call. A patch that cannot be applied ends it even if failures are
// ignored.
func (c *call) rejects() bool { return c.is("drbx") || c.is("eguh") && !c.ignores }

// behaviours are the possible actions of webhooks. The value of the label with the name of a webhook is the letter of
// its action:
//
// d denies, r denies with its own status, e answers 500, g answers without a review, u with another UID, b with a
// patch that does not apply, x with a patch of an unknown type, h too late, p changes the object, n sends a patch
// that changes nothing, w warns, a annotates.
const mutatingBehaviours, validatingBehaviours = "dregubxpppppnwa", "dregunwa"

// webhook is a registered webhook.
type webhook struct {
	validating           bool
	configuration, label string
	ignores, again       bool
	selects, only, blue  bool
	name                 string
}

// registered are the webhooks, in the order of the configurations' names. Two names occur in both passes.
var registered = []webhook{
	{configuration: "a-first", label: "m0", name: "m0.example.com"},
	{configuration: "a-first", label: "m1", name: "m1.example.com", ignores: true, again: true},
	{configuration: "b-second", label: "m2", name: "shared.example.com", again: true, selects: true},
	{configuration: "b-second", label: "m3", name: "m3.example.com", ignores: true, only: true},
	{configuration: "c-third", label: "m4", name: "last.example.com", ignores: true, again: true},
	{validating: true, configuration: "a-checks", label: "v0", name: "v0.example.com"},
	{validating: true, configuration: "a-checks", label: "v1", name: "v1.example.com", ignores: true},
	{validating: true, configuration: "b-checks", label: "v2", name: "shared.example.com", selects: true},
	{validating: true, configuration: "b-checks", label: "v3", name: "last.example.com", only: true},
	{validating: true, configuration: "c-checks", label: "v4", name: "v4.example.com", ignores: true, blue: true},
}

// hooks is an HTTPS server for all webhooks. It keeps the received calls by user.
type hooks struct {
	listener *hooktest.Listener

	mu    sync.Mutex
	calls map[string][]call
}

func newHooks() (*hooks, error) {
	h := &hooks{calls: map[string][]call{}}
	var err error
	h.listener, err = hooktest.Listen(h)
	return h, err
}

// configurations returns the webhook configurations.
func (h *hooks) configurations() (list []object) {
	lists := map[string][]any{}
	for i := range registered {
		w := &registered[i]
		one := map[string]any{
			"name": w.name, "sideEffects": "None", "admissionReviewVersions": []string{"v1"}, "timeoutSeconds": 1,
			"clientConfig":      map[string]any{"url": fmt.Sprintf("%s/%d", h.listener.URL, i), "caBundle": h.listener.CA},
			"namespaceSelector": map[string]any{"matchLabels": map[string]any{"judged": "yes"}},
			"failurePolicy":     map[bool]string{true: "Ignore", false: "Fail"}[w.ignores],
			"rules":             []any{map[string]any{"apiGroups": []string{"", "apps"}, "apiVersions": []string{"v1"}, "operations": []string{"CREATE", "UPDATE", "DELETE"}, "resources": []string{"configmaps", "pods", "pods/*", "deployments", "deployments/scale"}}},
		}
		if w.again {
			one["reinvocationPolicy"] = "IfNeeded"
		}
		if w.selects {
			one["objectSelector"] = map[string]any{"matchExpressions": []any{map[string]any{"key": w.label, "operator": "Exists"}}}
		}
		if w.only {
			one["matchConditions"] = []any{map[string]any{"name": "labelled", "expression": fmt.Sprintf("[object, oldObject].exists(o, o != null && has(o.metadata.labels) && '%s' in o.metadata.labels)", w.label)}}
		}
		if w.blue {
			one["namespaceSelector"] = map[string]any{"matchLabels": map[string]any{"colour": "blue"}}
		}
		key := fmt.Sprint(w.validating, w.configuration)
		lists[key] = append(lists[key], one)
	}
	for key, webhooks := range lists {
		validating, configuration := strings.HasPrefix(key, "true"), strings.TrimPrefix(strings.TrimPrefix(key, "true"), "false")
		path := "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
		if validating {
			path = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
		}
		list = append(list, object{path, encode(map[string]any{"metadata": map[string]any{"name": configuration}, "webhooks": webhooks})})
	}
	return list
}

// take returns the calls that webhooks received for the request of a user, in order, and deletes them.
func (h *hooks) take(user string) []call {
	h.mu.Lock()
	defer h.mu.Unlock()
	list := h.calls[user]
	delete(h.calls, user)
	return list
}

func (h *hooks) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var index int
	var asked struct {
		Request struct {
			UID               string
			Object, OldObject *struct {
				Metadata struct{ Labels, Annotations map[string]string }
			}
			UserInfo struct{ Username string }
		}
	}
	if _, err := fmt.Sscanf(r.URL.Path, "/%d", &index); err != nil || json.NewDecoder(r.Body).Decode(&asked) != nil {
		http.Error(w, "what?", http.StatusBadRequest)
		return
	}
	q, hook := &asked.Request, &registered[index]
	labels, annotations := map[string]string{}, map[string]string{}
	if q.OldObject != nil {
		maps.Copy(labels, q.OldObject.Metadata.Labels)
	}
	if q.Object != nil {
		maps.Copy(labels, q.Object.Metadata.Labels)
		annotations = q.Object.Metadata.Annotations
	}
	c := call{validating: hook.validating, configuration: hook.configuration, webhook: hook.name, ignores: hook.ignores, did: labels[hook.label]}
	response := map[string]any{"uid": q.UID, "allowed": true}
	if q.Object == nil && strings.Contains("pnbx", c.did) {
		c.did = ""
	}
	key := "seen-" + hook.label
	at := "/metadata/annotations/" + key
	switch c.did {
	case "p":
		// The first change adds the annotation, the later ones replace it and add a label.
		switch seen := annotations[key]; {
		case annotations == nil:
			c.patch = `[{"op":"add","path":"/metadata/annotations","value":{"` + key + `":"1"}}]`
		case seen == "":
			c.patch = `[{"op":"add","path":"` + at + `","value":"1"}]`
		case len(seen) < 3:
			c.patch = `[{"op":"test","path":"` + at + `","value":"` + seen + `"},{"op":"replace","path":"` + at + `","value":"` + seen + `1"},{"op":"add","path":"/metadata/labels/again","value":"` + hook.label + `"}]`
		}
	case "n":
		c.patch = `[{"op":"replace","path":"/metadata/labels/` + hook.label + `","value":"n"}]`
	case "b":
		c.patch = `[{"op":"remove","path":"/metadata/annotations/never~1there"}]`
	case "x":
		c.patch = `[{"op":"add","path":"/metadata/annotations","value":7}]`
	case "d":
		response["allowed"], response["status"] = false, map[string]any{"message": `admission webhook "other.example.com" denied the request: no`}
	case "r":
		response["allowed"], response["status"] = false, map[string]any{"code": 409, "reason": "Conflict", "message": "taken"}
	case "w":
		response["warnings"] = []string{"careful"}
	case "a":
		response["auditAnnotations"] = map[string]string{"found": "by " + hook.label}
	case "u":
		response["uid"] = "other"
	}
	if c.did == "p" && c.patch == "" {
		c.did = ""
	}
	if c.patch != "" && !hook.validating {
		response["patchType"], response["patch"] = "JSONPatch", base64.StdEncoding.EncodeToString([]byte(c.patch))
	}
	h.mu.Lock()
	h.calls[q.UserInfo.Username] = append(h.calls[q.UserInfo.Username], c)
	h.mu.Unlock()
	switch c.did {
	case "e":
		http.Error(w, "broken", http.StatusInternalServerError)
		return
	case "g":
		fmt.Fprint(w, "<html>")
		return
	case "h":
		<-r.Context().Done()
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]any{"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response})
}
