package audits

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"

	"github.com/gatehouse-dev/gatehouse/internal/commands/predict/auditreport"
	"github.com/gatehouse-dev/gatehouse/internal/kit/bounds"
)

// path is the only path of the socket.
const path = "/audit"

// maxError bounds the bytes of an error that are read.
const maxError = 64 << 10

// At returns a function that has objects audited by the process that serves a unix socket.
func At(socket string) func(context.Context) (*auditreport.Report, error) {
	client := &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", socket)
		},
	}}
	return func(ctx context.Context) (*auditreport.Report, error) {
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://audit"+path, nil)
		if err != nil {
			return nil, err
		}
		response, err := client.Do(req)
		if err != nil {
			return nil, fmt.Errorf("asking for an audit at %s: %w", socket, err)
		}
		defer response.Body.Close()
		if response.StatusCode != http.StatusOK {
			text, _ := io.ReadAll(io.LimitReader(response.Body, maxError))
			return nil, fmt.Errorf("the audit at %s: %s", socket, strings.TrimSpace(string(text)))
		}
		report := &auditreport.Report{}
		body := io.LimitReader(response.Body, maxReport)
		if err := json.NewDecoder(body).Decode(report); err != nil {
			return nil, fmt.Errorf("the report of the audit at %s: %w", socket, err)
		}
		if report.Kind != auditreport.Kind {
			return nil, fmt.Errorf("the audit at %s made no report, but a %q", socket, report.Kind)
		}
		return report, nil
	}
}

// Listen returns a listener at a unix socket for this user and group. It replaces the socket of an earlier process, and
// nothing else.
func Listen(socket string) (net.Listener, error) {
	switch info, err := os.Lstat(socket); {
	case err == nil && info.Mode().Type() != fs.ModeSocket:
		return nil, fmt.Errorf("%s exists and is not a socket", socket)
	case err == nil:
		if err := os.Remove(socket); err != nil {
			return nil, err
		}
	case !errors.Is(err, fs.ErrNotExist):
		return nil, err
	}
	listener, err := net.Listen("unix", socket)
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(socket, 0o660); err != nil {
		listener.Close()
		return nil, err
	}
	return listener, nil
}

// Serve answers requests of At with the reports of audit, one at a time, until ctx ends. The context of an audit ends
// with its request.
func Serve(ctx context.Context, listener net.Listener, audit func(context.Context) (*auditreport.Report, error)) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var running sync.Mutex
	mux := http.NewServeMux()
	mux.HandleFunc("POST "+path, func(w http.ResponseWriter, req *http.Request) {
		if !running.TryLock() {
			http.Error(w, "an audit runs already", http.StatusServiceUnavailable)
			return
		}
		defer running.Unlock()
		report, err := audit(req.Context())
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		// The client sees an incomplete report.
		_ = json.NewEncoder(w).Encode(report)
	})
	server := &http.Server{
		Handler: mux, ReadHeaderTimeout: bounds.Time, MaxHeaderBytes: 4 << 10,
		BaseContext: func(net.Listener) context.Context { return ctx },
	}
	defer context.AfterFunc(ctx, func() { server.Close() })()
	err := server.Serve(listener)
	if ctx.Err() != nil {
		err = nil
	}
	// An audit that runs ends with the server.
	cancel()
	running.Lock()
	return err
}
