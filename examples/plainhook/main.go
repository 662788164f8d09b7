// Plainhook is a webhook server that uses only the standard library: a complete webhook in
// one short file. It admits config maps at three paths:
//
//   - /label, mutating, sets the label seen=yes;
//   - /check, validating, rejects config maps with the key password;
//   - /external does the same for the external hooks of v1alpha1.
//
// docs/webhooks.md has its webhook configuration.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
)

// review is an AdmissionReview of v1 or v1beta1, as far as this program needs it.
type review struct {
	APIVersion string    `json:"apiVersion"`
	Kind       string    `json:"kind"`
	Request    *request  `json:"request,omitempty"`
	Response   *response `json:"response,omitempty"`
}

type request struct {
	UID    string `json:"uid"`
	Object struct {
		Metadata struct {
			Labels map[string]string `json:"labels"`
		} `json:"metadata"`
		Data map[string]string `json:"data"`
	} `json:"object"`
}

type response struct {
	UID       string  `json:"uid"`
	Allowed   bool    `json:"allowed"`
	Status    *status `json:"status,omitempty"`
	PatchType string  `json:"patchType,omitempty"`
	Patch     []byte  `json:"patch,omitempty"`
}

type status struct {
	Code    int    `json:"code"`
	Message string `json:"message"`
}

// label responds with a JSON patch. A response can only have a patch, not an object.
func label(in *request, out *response) {
	out.PatchType = "JSONPatch"
	out.Patch = []byte(`[{"op":"add","path":"/metadata/labels","value":{"seen":"yes"}}]`)
	if in.Object.Metadata.Labels != nil {
		out.Patch = []byte(`[{"op":"add","path":"/metadata/labels/seen","value":"yes"}]`)
	}
}

// check rejects a config map with a password. The user sees the message.
func check(in *request, out *response) {
	if _, found := in.Object.Data["password"]; found {
		out.Allowed = false
		out.Status = &status{Code: http.StatusForbidden, Message: "passwords belong in secrets"}
	}
}

// serve responds in the version of the request, with its uid.
func serve(judge func(*request, *response)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var in review
		if err := json.NewDecoder(r.Body).Decode(&in); err != nil || in.Request == nil {
			http.Error(w, "not an AdmissionReview", http.StatusBadRequest)
			return
		}
		out := &response{UID: in.Request.UID, Allowed: true}
		judge(in.Request, out)
		answer(w, review{APIVersion: in.APIVersion, Kind: in.Kind, Response: out})
	}
}

// serveExternal responds to reviews of v1alpha1, which have a spec and need a status.
func serveExternal(judge func(*request, *response)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var in struct {
			Spec *request `json:"spec"`
		}
		if err := json.NewDecoder(r.Body).Decode(&in); err != nil || in.Spec == nil {
			http.Error(w, "not an AdmissionReview", http.StatusBadRequest)
			return
		}
		out := &response{Allowed: true}
		judge(in.Spec, out)
		answer(w, map[string]any{"status": map[string]any{"allowed": out.Allowed, "status": out.Status}})
	}
}

func answer(w http.ResponseWriter, body any) {
	w.Header().Set("Content-Type", "application/json")
	if err := json.NewEncoder(w).Encode(body); err != nil {
		log.Print(err)
	}
}

func handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/label", serve(label))
	mux.HandleFunc("/check", serve(check))
	mux.HandleFunc("/external", serveExternal(check))
	return mux
}

func main() {
	address := flag.String("address", "127.0.0.1:9444", "where to listen, `HOST:PORT`")
	cert := flag.String("cert", "cert.pem", "PEM `file` with the certificate")
	key := flag.String("key", "key.pem", "PEM `file` with its key")
	flag.Parse()
	listener, err := net.Listen("tcp", *address)
	if err != nil {
		log.Fatal(err)
	}
	server := &http.Server{Handler: handler()}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, func() { server.Close() })
	fmt.Printf("plainhook is ready at https://%s\n", listener.Addr())
	if err := server.ServeTLS(listener, *cert, *key); !errors.Is(err, http.ErrServerClosed) {
		log.Fatal(err)
	}
}
