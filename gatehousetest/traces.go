package gatehousetest

import (
	"context"
	"encoding/json"
	"net/http"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/discovery"
)

// traceHeader has the ID of the trace of a write.
const traceHeader = "Gatehouse-Trace"

// tracesPath is the path of the traces on the server.
const tracesPath = "/apis/gatehouse.dev/v1alpha1/admissiontraces/"

// traceLog writes the traces of writes that were rejected or changed to the log of a test.
type traceLog struct {
	t      testing.TB
	server *process

	mu struct {
		sync.Mutex
		// ended is set when the test is over: its log is then closed.
		ended bool
	}
}

func (l *traceLog) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.ended = true
}

// around returns a transport that logs the traces named in responses to writes.
func (l *traceLog) around(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(request *http.Request) (*http.Response, error) {
		response, err := next.RoundTrip(request)
		if err == nil {
			if id := response.Header.Get(traceHeader); id != "" {
				l.show(request.Context(), id)
			}
		}
		return response, err
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

// RoundTrip implements http.RoundTripper.
func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// record is the part of an AdmissionTrace that decides whether the trace is logged.
type record struct {
	Outcome string `json:"outcome"`
	Steps   []struct {
		Calls []struct {
			Mutated bool `json:"mutated"`
		} `json:"calls"`
	} `json:"steps"`
}

func (r *record) interesting() bool {
	if r.Outcome != "Allowed" {
		return true
	}
	for _, s := range r.Steps {
		for _, c := range s.Calls {
			if c.Mutated {
				return true
			}
		}
	}
	return false
}

// showTimeout limits the time for one trace. The context of the request is not used, since it may have little
// time left.
const showTimeout = 10 * time.Second

func (l *traceLog) show(ctx context.Context, id string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), showTimeout)
	defer cancel()
	text, err := l.read(ctx, id)
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.mu.ended:
	case err != nil:
		l.t.Logf("the trace %s cannot be shown: %v", id, err)
	case text != "":
		l.t.Logf("admission trace\n%s", text)
	}
}

// read returns a trace as text, or "" if the trace is not to be logged.
func (l *traceLog) read(ctx context.Context, id string) (string, error) {
	client, err := discovery.NewDiscoveryClientForConfig(l.server.admin)
	if err != nil {
		return "", err
	}
	data, err := client.RESTClient().Get().AbsPath(tracesPath + id).DoRaw(ctx)
	if apierrors.IsNotFound(err) {
		// The flags of the server may limit which traces it keeps.
		return "", nil
	}
	if err != nil {
		return "", err
	}
	r := &record{}
	if err := json.Unmarshal(data, r); err != nil {
		return "", err
	}
	if !r.interesting() {
		return "", nil
	}
	text, err := exec.CommandContext(ctx, l.server.binary, "trace", id, "--kubeconfig", l.server.kubeconfig).Output()
	return strings.TrimRight(string(text), "\n"), err
}
