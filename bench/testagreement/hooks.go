package main

import (
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gatehouse-dev/gatehouse/internal/selfsigned"
)

// service is the service of the webhooks that this program serves, as the cases name it.
const service = "hooks/hook"

// hooks are webhooks that both servers call. By their paths:
//
//	/convert  what is spec.size in v1beta1 is spec.replicas in v1
//	/judge    denies more than 4 replicas or a size of more than 4, and what the label hook=deny has; warns of hook=warn
//	/count    counts in the label count how often it was called
//	/sidecar  gives a Pod a container that is called sidecar, if the Pod has none
type hooks struct {
	address   string
	authority []byte
	server    *http.Server
}

func startHooks(dir string) (*hooks, error) {
	authority, err := selfsigned.Write(dir, "127.0.0.1", "hook.hooks.svc")
	if err != nil {
		return nil, err
	}
	// Registrations without a caBundle are trusted by the authorities of the system.
	file := filepath.Join(dir, "authority.crt")
	if err := errors.Join(os.WriteFile(file, authority, 0o600), os.Setenv("SSL_CERT_FILE", file)); err != nil {
		return nil, err
	}
	certificate, err := tls.LoadX509KeyPair(filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key"))
	if err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/convert", convert)
	mux.HandleFunc("/judge", review(judge))
	mux.HandleFunc("/count", review(count))
	mux.HandleFunc("/sidecar", review(sidecar))
	h := &hooks{address: l.Addr().String(), authority: authority, server: &http.Server{Handler: mux, TLSConfig: &tls.Config{Certificates: []tls.Certificate{certificate}}}}
	go func() { _ = h.server.ServeTLS(l, "", "") }()
	return h, nil
}

// reached has the registrations of an object that name the service call its address.
func (h *hooks) reached(u *unstructured.Unstructured) {
	at := func(config map[string]any) {
		if s, ok := config["service"].(map[string]any); ok && fmt.Sprintf("%v/%v", s["namespace"], s["name"]) == service {
			delete(config, "service")
			config["url"], config["caBundle"] = fmt.Sprintf("https://%s%v", h.address, s["path"]), base64.StdEncoding.EncodeToString(h.authority)
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

func convert(w http.ResponseWriter, r *http.Request) {
	var sent struct {
		APIVersion string `json:"apiVersion"`
		Request    struct {
			UID               string           `json:"uid"`
			DesiredAPIVersion string           `json:"desiredAPIVersion"`
			Objects           []map[string]any `json:"objects"`
		} `json:"request"`
	}
	if err := json.NewDecoder(r.Body).Decode(&sent); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	from, to := "size", "replicas"
	if strings.HasSuffix(sent.Request.DesiredAPIVersion, "/v1beta1") {
		from, to = to, from
	}
	for _, o := range sent.Request.Objects {
		o["apiVersion"] = sent.Request.DesiredAPIVersion
		if spec, ok := o["spec"].(map[string]any); ok {
			if value, ok := spec[from]; ok {
				spec[to] = value
				delete(spec, from)
			}
		}
	}
	_ = json.NewEncoder(w).Encode(map[string]any{"apiVersion": sent.APIVersion, "kind": "ConversionReview", "response": map[string]any{
		"uid": sent.Request.UID, "result": map[string]any{"status": "Success"}, "convertedObjects": sent.Request.Objects,
	}})
}

// review serves a webhook. What it returns are the fields of the response; a patch is a list of operations.
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
