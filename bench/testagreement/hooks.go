package main

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gatehouse-dev/gatehouse/test/hooktest"
)

// service is the name of this program's webhook service in the cases.
const service = "hooks/hook"

// hooks are webhooks that both servers call. Their paths:
//
// /convert  renames spec.size of v1beta1 to spec.replicas of v1
// /judge    denies more than 4 replicas, a size of more than 4, and the label hook=deny; warns about hook=warn
// /count    counts its calls in the label count
// /sidecar  adds a container named sidecar to a Pod without one
type hooks struct {
	*hooktest.Listener
	address string
}

func startHooks(dir string) (*hooks, error) {
	mux := http.NewServeMux()
	mux.HandleFunc("/convert", hooktest.ConvertWidgets)
	mux.HandleFunc("/judge", review(judge))
	mux.HandleFunc("/count", review(count))
	mux.HandleFunc("/sidecar", review(sidecar))
	l, err := hooktest.Listen(mux, "hook.hooks.svc")
	if err != nil {
		return nil, err
	}
	// Without a caBundle, the CAs of the system are used.
	file := filepath.Join(dir, "authority.crt")
	if err := errors.Join(os.WriteFile(file, l.CA, 0o600), os.Setenv("SSL_CERT_FILE", file)); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return &hooks{l, strings.TrimPrefix(l.URL, "https://")}, nil
}

// reached replaces the service in the webhooks of an object by its address.
func (h *hooks) reached(u *unstructured.Unstructured) {
	at := func(config map[string]any) {
		if s, ok := config["service"].(map[string]any); ok && fmt.Sprintf("%v/%v", s["namespace"], s["name"]) == service {
			delete(config, "service")
			config["url"], config["caBundle"] = fmt.Sprint(h.URL, s["path"]), base64.StdEncoding.EncodeToString(h.CA)
		}
	}
	list, _, _ := unstructured.NestedFieldNoCopy(u.Object, "webhooks")
	if list, ok := list.([]any); ok {
		for _, one := range list {
			if config, ok, _ := unstructured.NestedFieldNoCopy(one.(map[string]any), "clientConfig"); ok {
				at(config.(map[string]any))
			}
		}
	}
	if config, ok, _ := unstructured.NestedFieldNoCopy(u.Object, "spec", "conversion", "webhook", "clientConfig"); ok {
		at(config.(map[string]any))
	}
}

// review serves a webhook. answer returns the fields of the response; a patch is a list of operations.
func review(answer func(u *unstructured.Unstructured) map[string]any) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var sent struct {
			APIVersion string `json:"apiVersion"`
			Request    struct {
				UID    string         `json:"uid"`
				Object map[string]any `json:"object"`
			} `json:"request"`
		}
		if err := json.NewDecoder(r.Body).Decode(&sent); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		response := answer(&unstructured.Unstructured{Object: sent.Request.Object})
		response["uid"] = sent.Request.UID
		if patch, ok := response["patch"]; ok {
			data, err := json.Marshal(patch)
			if err != nil {
				http.Error(w, err.Error(), http.StatusInternalServerError)
				return
			}
			response["patch"], response["patchType"] = data, "JSONPatch"
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"apiVersion": sent.APIVersion, "kind": "AdmissionReview", "response": response})
	}
}

func judge(u *unstructured.Unstructured) map[string]any {
	for _, field := range []string{"replicas", "size"} {
		if value, ok, _ := unstructured.NestedFieldNoCopy(u.Object, "spec", field); ok {
			if n, ok := value.(float64); ok && n > 4 {
				return map[string]any{"allowed": false, "status": map[string]any{"message": "the hook wants at most 4 " + field}}
			}
		}
	}
	switch u.GetLabels()["hook"] {
	case "deny":
		return map[string]any{"allowed": false, "status": map[string]any{"code": 409, "message": "the hook says no"}}
	case "warn":
		return map[string]any{"allowed": true, "warnings": []string{"the hook warns"}}
	}
	return map[string]any{"allowed": true}
}

func count(u *unstructured.Unstructured) map[string]any {
	n, _ := strconv.Atoi(u.GetLabels()["count"])
	patch := map[string]any{"op": "add", "path": "/metadata/labels/count", "value": strconv.Itoa(n + 1)}
	if len(u.GetLabels()) == 0 {
		patch = map[string]any{"op": "add", "path": "/metadata/labels", "value": map[string]any{"count": "1"}}
	}
	return map[string]any{"allowed": true, "patch": []any{patch}}
}

func sidecar(u *unstructured.Unstructured) map[string]any {
	list, _, _ := unstructured.NestedSlice(u.Object, "spec", "containers")
	for _, c := range list {
		if c.(map[string]any)["name"] == "sidecar" {
			return map[string]any{"allowed": true}
		}
	}
	return map[string]any{"allowed": true, "patch": []any{map[string]any{"op": "add", "path": "/spec/containers/-", "value": map[string]any{"name": "sidecar", "image": "sidecar:1"}}}}
}
