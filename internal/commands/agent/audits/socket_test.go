package audits

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gatehouse-dev/gatehouse/internal/commands/predict/auditreport"
)

// served returns the path of a socket at which an audit is served until the test ends.
func served(t *testing.T, audit func(context.Context) (*auditreport.Report, error)) string {
	t.Helper()
	// The path of a socket has at most 100 bytes.
	dir, err := os.MkdirTemp("", "audits")
	if err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(dir, "s")
	listener, err := Listen(socket)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- Serve(ctx, listener, audit) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("serving: %v", err)
		}
		os.RemoveAll(dir)
	})
	return socket
}

// S32.20: a report and an error arrive as they are.
func TestAnAuditIsAnswered(t *testing.T) {
	validation := 1
	want := &auditreport.Report{
		Kind: auditreport.Kind, Judged: 2, Passed: 1, Webhooks: []auditreport.Share{{Name: "w", Count: 1}},
		Findings: []*auditreport.Finding{{Policy: "p", Validation: &validation, ObjectKind: "Pod", Name: "web", Result: auditreport.Fails}},
	}
	var fails error
	socket := served(t, func(context.Context) (*auditreport.Report, error) { return want, fails })
	got, err := At(socket)(t.Context())
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("%v %s", err, diff)
	}
	fails = errors.New("the cluster has gone")
	if _, err := At(socket)(t.Context()); err == nil || !strings.HasSuffix(err.Error(), ": the cluster has gone") {
		t.Errorf("%v", err)
	}
	want, fails = &auditreport.Report{Kind: "Pod"}, nil
	if _, err := At(socket)(t.Context()); err == nil || !strings.Contains(err.Error(), `made no report, but a "Pod"`) {
		t.Errorf("%v", err)
	}
	if _, err := At(socket + "2")(t.Context()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no socket: %v", err)
	}
}

// S32.20: one audit runs at a time, and ends with its request.
func TestAnAuditEndsWithItsRequest(t *testing.T) {
	begun, ended := make(chan struct{}), make(chan struct{})
	socket := served(t, func(ctx context.Context) (*auditreport.Report, error) {
		close(begun)
		<-ctx.Done()
		close(ended)
		return nil, ctx.Err()
	})
	ctx, cancel := context.WithCancel(t.Context())
	answered := make(chan error)
	go func() {
		_, err := At(socket)(ctx)
		answered <- err
	}()
	<-begun
	if _, err := At(socket)(t.Context()); err == nil || !strings.Contains(err.Error(), "an audit runs already") {
		t.Errorf("a second audit: %v", err)
	}
	cancel()
	if err := <-answered; !errors.Is(err, context.Canceled) {
		t.Errorf("the first audit: %v", err)
	}
	<-ended
}

// S32.20: the size of a report is bounded.
func TestAReportIsBounded(t *testing.T) {
	dir, err := os.MkdirTemp("", "audits")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	listener, err := net.Listen("unix", filepath.Join(dir, "s"))
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		block := []byte(strings.Repeat(" ", 1<<20))
		for range maxReport>>20 + 1 {
			if _, err := w.Write(block); err != nil {
				return
			}
		}
		_, _ = w.Write([]byte(`{"kind": "AuditReport"}`))
	})}
	go func() { _ = server.Serve(listener) }()
	defer server.Close()
	if _, err := At(filepath.Join(dir, "s"))(t.Context()); !errors.Is(err, io.EOF) {
		t.Errorf("%v", err)
	}
}

// A socket of an ended process is replaced, a file is not.
func TestOnlySocketsAreReplaced(t *testing.T) {
	dir, err := os.MkdirTemp("", "audits")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	socket := filepath.Join(dir, "s")
	first, err := net.ListenUnix("unix", &net.UnixAddr{Name: socket})
	if err != nil {
		t.Fatal(err)
	}
	first.SetUnlinkOnClose(false)
	first.Close()
	second, err := Listen(socket)
	if err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(socket)
	if err != nil || info.Mode().Perm() != 0o660 {
		t.Errorf("%v, %v", info, err)
	}
	second.Close()
	if err := os.WriteFile(socket, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Listen(socket); err == nil || !strings.HasSuffix(err.Error(), "exists and is not a socket") {
		t.Errorf("%v", err)
	}
}
