// Webhook is the webhook process of the comparisons. It answers immediately, or after a delay, and does as little
// work as possible, so that measurements reflect the caller. The path selects the answer:
//
//	/allow         allowed
//	/deny          denied
//	/annotate      allowed, with a patch that sets the object's annotations
//	/allow/5ms     any of these, after a delay
//
// A GET of /count returns the number of answered reviews. The process prints one line when it is ready to serve.
package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"
	"time"
)

// patch is the patch of /annotate.
const patch = `[{"op":"add","path":"/metadata/annotations","value":{"bench.gatehouse.dev/seen":"yes"}}]`

// answers are the parts of the answers after the uid, by path.
var answers = map[string]string{
	"allow":    `,"allowed":true}}`,
	"deny":     `,"allowed":false,"status":{"code":403,"reason":"Forbidden","message":"denied by the bench"}}}`,
	"annotate": `,"allowed":true,"patchType":"JSONPatch","patch":"` + base64.StdEncoding.EncodeToString([]byte(patch)) + `"}}`,
}

// answered counts reviews.
var answered atomic.Int64

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	cert := flag.String("tls-cert-file", "", "PEM file")
	key := flag.String("tls-private-key-file", "", "PEM file")
	flag.Parse()
	if err := run(ctx, *cert, *key); err != nil {
		fmt.Fprintln(os.Stderr, "webhook:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, certFile, keyFile string) error {
	cert, err := tls.LoadX509KeyPair(certFile, keyFile)
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /{answer}", review)
	mux.HandleFunc("POST /{answer}/{delay}", review)
	mux.HandleFunc("GET /count", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, answered.Load()) })
	server := &http.Server{
		Handler: mux,
		// Both servers call webhooks over HTTP/1.1, unless the address is a loopback address. Without this setting,
		// the comparison would use another protocol than a cluster.
		TLSConfig:    &tls.Config{Certificates: []tls.Certificate{cert}, NextProtos: []string{"http/1.1"}},
		TLSNextProto: map[string]func(*http.Server, *tls.Conn, http.Handler){},
		ErrorLog:     log.New(io.Discard, "", 0),
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Printf("webhook is ready at https://%s\n", listener.Addr())
	stopped := context.AfterFunc(ctx, func() { server.Close() })
	defer stopped()
	if err := server.ServeTLS(listener, "", ""); ctx.Err() == nil {
		return err
	}
	return nil
}

func review(w http.ResponseWriter, r *http.Request) {
	answer, known := answers[r.PathValue("answer")]
	if !known {
		http.NotFound(w, r)
		return
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if text := r.PathValue("delay"); text != "" {
		delay, err := time.ParseDuration(text)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		select {
		case <-time.After(delay):
		case <-r.Context().Done():
			return
		}
	}
	uid, err := uidOf(body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	answered.Add(1)
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprintf(w, `{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","response":{"uid":%q%s`, uid, answer)
}

// uidOf returns the uid of a review. Most callers send it first; only for others, uidOf decodes the whole object.
func uidOf(body []byte) (string, error) {
	if _, rest, ok := bytes.Cut(body[:min(len(body), 200)], []byte(`"request":{"uid":"`)); ok {
		if uid, _, ok := bytes.Cut(rest, []byte{'"'}); ok {
			return string(uid), nil
		}
	}
	var review struct {
		Request struct {
			UID string `json:"uid"`
		} `json:"request"`
	}
	err := json.Unmarshal(body, &review)
	return review.Request.UID, err
}
