package dev

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"time"

	admissionv1 "k8s.io/api/admission/v1"

	"github.com/gatehouse-dev/gatehouse/admission/trace"
	"github.com/gatehouse-dev/gatehouse/internal/engine/review"
	"github.com/gatehouse-dev/gatehouse/internal/kit/selfsigned"
	"github.com/gatehouse-dev/gatehouse/internal/kit/temporary"
)

// front is a proxy between a cluster and the program: it holds requests while the program is replaced, rejects requests
// that are not meant for the program, and shows each request.
type front struct {
	live *live
	gate *gate
	// way is a random path, which only the registrations contain.
	way    string
	client *http.Client
	server *http.Server
}

const (
	probePath = "/probe"
	hookPath  = "/hook/"
	// maxReview bounds a review and a response, in bytes: two objects of etcd's maximum size, and the fields around
	// them.
	maxReview = 8 << 20
	// mostPatience is the longest timeout of a webhook.
	mostPatience = 30 * time.Second
)

// newFront makes a front for the program at an address. The directory files has the certificates of the program and of
// the front.
func newFront(l *live, g *gate, address, files string) (*front, error) {
	pair, err := tls.LoadX509KeyPair(filepath.Join(files, selfsigned.CertificateFile), filepath.Join(files, selfsigned.KeyFile))
	if err != nil {
		return nil, err
	}
	trusted := x509.NewCertPool()
	trusted.AppendCertsFromPEM(l.authority)
	transport := &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: trusted}, IdleConnTimeout: time.Minute, MaxIdleConnsPerHost: 32,
		DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, network, address)
		},
	}
	f := &front{live: l, gate: g, way: "/" + strings.ToLower(rand.Text()), client: &http.Client{
		Transport: g.wrap(transport), CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
	f.server = &http.Server{Handler: f, ReadHeaderTimeout: 10 * time.Second, ReadTimeout: 30 * time.Second, IdleTimeout: 2 * time.Minute,
		ErrorLog: log.New(io.Discard, "", 0), TLSConfig: &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair}}}
	return f, nil
}

func (f *front) serve(l net.Listener) error { return f.server.ServeTLS(l, "", "") }

func (f *front) close(ctx context.Context) {
	if f.server.Shutdown(ctx) != nil {
		f.server.Close()
	}
	f.client.CloseIdleConnections()
}

// path returns the path of a webhook at the front; it ends with the webhook's path at the program.
func (f *front) path(kind, configuration string, hook map[string]any) string {
	path := text(hook, "clientConfig", "service", "path")
	return f.way + hookPath + kind + "/" + configuration + "/" + text(hook, "name") + "/" + strings.TrimPrefix(path, "/")
}

// ServeHTTP implements http.Handler.
func (f *front) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodPost && r.URL.Path == temporary.Path(f.live.base, f.way+probePath) {
		f.live.probe.Asked()
		// The API server ignores a failure of the probe webhook.
		http.NotFound(w, r)
		return
	}
	rest, ok := strings.CutPrefix(r.URL.Path, temporary.Path(f.live.base, f.way+hookPath))
	parts := strings.SplitN(rest, "/", 4)
	if !ok || len(parts) != 4 || r.Method != http.MethodPost {
		http.NotFound(w, r)
		return
	}
	at := time.Now()
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxReview))
	if err != nil {
		http.Error(w, "the review is not readable", http.StatusBadRequest)
		return
	}
	var in admissionv1.AdmissionReview
	if err := json.Unmarshal(body, &in); err != nil || in.Request == nil {
		http.Error(w, "the body is not an AdmissionReview with a request", http.StatusBadRequest)
		return
	}
	if !f.live.meant(in.Request) {
		http.Error(w, "the request is not for this program", http.StatusForbidden)
		return
	}
	patience, err := time.ParseDuration(r.URL.Query().Get("timeout"))
	if err != nil || patience <= 0 || patience > mostPatience {
		patience = mostPatience
	}
	ctx, cancel := context.WithTimeout(r.Context(), patience)
	defer cancel()
	code, header, answer, err := f.ask(ctx, "/"+parts[3]+"?"+r.URL.RawQuery, r.Header, body)
	if err != nil {
		code, answer = http.StatusBadGateway, []byte("the program of 'gatehouse dev': "+err.Error())
		header = http.Header{"Content-Type": {"text/plain; charset=utf-8"}}
	}
	w.Header()["Content-Type"] = header["Content-Type"]
	w.WriteHeader(code)
	_, _ = w.Write(answer)
	f.live.Show(recordOf(at, &in, trace.EntryRecord{Kind: parts[0], Configuration: parts[1], Name: parts[2]}, code, header.Get("Content-Type"), answer))
}

// meant reports whether a request is meant for the program.
func (l *live) meant(r *admissionv1.AdmissionRequest) bool {
	switch {
	case r.Resource.Resource == "secrets":
		return false
	case l.user != "":
		return r.UserInfo.Username == l.user
	}
	return slices.Contains(l.Namespaces, r.Namespace)
}

// ask calls the program. Its certificate must be valid for the service, as in a cluster.
func (f *front) ask(ctx context.Context, path string, header http.Header, body []byte) (int, http.Header, []byte, error) {
	service := f.live.project.services()[0]
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://"+service.Name+"."+service.Namespace+".svc"+path, bytes.NewReader(body))
	if err != nil {
		return 0, nil, nil, err
	}
	r.Header = http.Header{"Content-Type": header["Content-Type"], "Accept": header["Accept"], "User-Agent": header["User-Agent"]}
	resp, err := f.client.Do(r)
	if err != nil {
		return 0, nil, nil, err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, maxReview+1))
	if err == nil && len(answer) > maxReview {
		err = errors.New("the answer is too large")
	}
	return resp.StatusCode, resp.Header, answer, err
}

// recordOf returns the trace of one call. The response is decoded as an API server does. Changes of the webhook are
// recorded without values.
func recordOf(at time.Time, asked *admissionv1.AdmissionReview, entry trace.EntryRecord, code int, media string, answer []byte) *trace.Record {
	q := asked.Request
	took := time.Since(at).Microseconds()
	begun := trace.Time{Time: at.UTC()}
	mutating := strings.HasPrefix(entry.Kind, "Mutating")
	call := trace.CallRecord{Webhook: entry, Start: begun, Micros: took, Sent: true, Verdict: trace.Allowed.String(), Code: code, UID: string(q.UID)}
	outcome := trace.OutcomeAllowed
	version := review.Version(strings.TrimPrefix(asked.APIVersion, admissionv1.GroupName+"/"))
	out, err := review.Decode(version, mutating, q.UID, code, media, answer)
	if err == nil && out.Allowed && len(out.Patch) > 0 {
		if out.PatchType != review.PatchTypeJSONPatch {
			err = fmt.Errorf("unsupported patch type %q", out.PatchType)
		} else if _, err = review.DecodePatch(out.Patch); err == nil {
			err = json.Unmarshal(out.Patch, &call.Patch)
		}
		if err != nil {
			err = fmt.Errorf("the patch of the answer: %w", err)
		}
	}
	switch {
	case code < 200 || code > 206:
		outcome, call.Verdict, call.Error = trace.OutcomeFailed, trace.Failed.String(), fmt.Sprintf("%d: %s", code, cut(answer))
	case err != nil:
		outcome, call.Verdict, call.Error = trace.OutcomeFailed, trace.Failed.String(), cut([]byte(err.Error()))
	case !out.Allowed:
		outcome, call.Verdict = trace.OutcomeDenied, trace.Denied.String()
		call.Error = fmt.Sprintf("admission webhook %q denied the request", entry.Name)
		if s := out.Result; s != nil && s.Message != "" {
			call.Error += ": " + cut([]byte(s.Message))
		}
	default:
		call.Warnings = out.Warnings
		call.Mutated = len(call.Patch) > 0
		for i := range call.Patch {
			call.Patch[i].Value = nil
		}
	}
	plugin, pass := "ValidatingAdmissionWebhook", "validating"
	if mutating {
		plugin, pass = "MutatingAdmissionWebhook", "mutating"
	}
	r := &trace.Record{ID: string(q.UID), Start: begun, Outcome: outcome, TotalMicros: took, Redacted: true, Request: trace.RequestRecord{
		Operation: string(q.Operation), Subresource: q.SubResource, Namespace: q.Namespace, Name: q.Name, User: q.UserInfo.Username,
		Resource: trace.ResourceRecord(q.Resource), Kind: trace.KindRecord(q.Kind), DryRun: q.DryRun != nil && *q.DryRun,
	}}
	r.Steps = []trace.StepRecord{{Plugin: plugin, Pass: pass, Namespace: q.Namespace, Name: q.Name, Start: begun, Micros: took,
		Allowed: outcome == trace.OutcomeAllowed, Error: call.Error, Calls: []trace.CallRecord{call}}}
	return r
}

// cut shortens a text of the program.
func cut(data []byte) string {
	return string(data[:min(len(data), trace.MaxText)])
}
