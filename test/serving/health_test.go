package serving

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"

	"github.com/gatehouse-dev/gatehouse/test/harness"
	"github.com/gatehouse-dev/gatehouse/test/speed"
)

// When /healthz succeeds, the objects that every cluster has exist.
func TestHealthyMeansThatWhatEveryClusterHasIsThere(t *testing.T) {
	t.Parallel()
	// Build the program before the time of the servers below starts.
	harness.Shared(t)
	tokens := filepath.Join(t.TempDir(), "tokens.csv")
	if err := os.WriteFile(tokens, []byte(`secret,admin,1,"system:masters"`+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true}}
	get := func(ctx context.Context, url string) (int, error) {
		req, err := http.NewRequestWithContext(ctx, "GET", url, nil)
		if err != nil {
			return 0, err
		}
		req.Header.Set("Authorization", "Bearer secret")
		resp, err := client.Do(req)
		if err != nil {
			return 0, err
		}
		defer resp.Body.Close()
		_, err = io.Copy(io.Discard, resp.Body)
		return resp.StatusCode, err
	}
	// missing waits until the health path succeeds, and returns the objects that do not exist then.
	missing := func(ctx context.Context, server, health string, objects ...string) ([]string, error) {
		for {
			if code, err := get(ctx, server+health); err == nil && code == http.StatusOK {
				break
			}
			select {
			case <-ctx.Done():
				return nil, context.Cause(ctx)
			case <-time.After(time.Millisecond):
			}
		}
		var list []string
		for _, path := range objects {
			code, err := get(ctx, server+path)
			if err != nil {
				return nil, err
			}
			if code != http.StatusOK {
				list = append(list, fmt.Sprintf("%d %s", code, path))
			}
		}
		return list, nil
	}
	start := func(t *testing.T, data, health string, objects ...string) *harness.Server {
		t.Helper()
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		address := l.Addr().String()
		l.Close()
		_, port, err := net.SplitHostPort(address)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(harness.Context(t))
		defer cancel()
		done := make(chan error, 1)
		var list []string
		go func() {
			var err error
			list, err = missing(ctx, "https://"+address, health, objects...)
			done <- err
		}()
		s := harness.StartOn(t, data, "--secure-port", port, "--token-auth-file", tokens)
		if err := <-done; err != nil || len(list) > 0 {
			t.Errorf("%s is ok without %q: %v", health, list, err)
		}
		return s
	}
	objects := []string{
		"/api/v1/namespaces/kube-node-lease", "/apis/networking.k8s.io/v1/servicecidrs/kubernetes",
		"/apis/scheduling.k8s.io/v1/priorityclasses/system-node-critical",
		"/apis/rbac.authorization.k8s.io/v1/clusterroles/view", "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/system:node-proxier",
		"/apis/rbac.authorization.k8s.io/v1/namespaces/kube-system/roles/system:controller:token-cleaner",
	}
	for _, health := range speed.Some(t, 1, []string{"/healthz", "/livez", "/readyz"}) {
		t.Run(health, func(t *testing.T) {
			data := t.TempDir()
			s := start(t, data, health, objects...)
			h := s.HTTP(t, nil)
			h.Must(http.StatusCreated, "POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", toJSON(`
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: things.health.example.com}
spec:
  group: health.example.com
  scope: Cluster
  names: {plural: things, singular: thing, kind: Thing}
  versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}]
`))
			const kind = "/apis/health.example.com/v1/things"
			harness.Eventually(t, "the kind is served", func() error {
				if r := h.Do("GET", kind, ""); r.Code != http.StatusOK {
					return errors.New(string(r.Raw))
				}
				return nil
			})
			s.Stop(t)
			start(t, data, health, kind)
		})
	}
}

// Probes of kube-apiserver use these names.
func TestHealthChecksHaveTheNamesOfKubeAPIServer(t *testing.T) {
	t.Parallel()
	h := harness.Shared(t).HTTP(t, nil)
	for _, path := range []string{"/healthz", "/livez", "/readyz"} {
		text := string(h.Get(path + "?verbose").Raw)
		for _, name := range []string{
			"ping", "log", "etcd", "poststarthook/start-system-namespaces-controller", "poststarthook/start-kubernetes-service-cidr-controller",
			"poststarthook/scheduling/bootstrap-system-priority-classes", "poststarthook/rbac/bootstrap-roles",
			"poststarthook/crd-informer-synced", "poststarthook/start-service-ip-repair-controllers",
		} {
			if !strings.Contains(text, "[+]"+name+" ok\n") {
				t.Errorf("%s has no %s:\n%s", path, name, text)
			}
			h.Get(path + "/" + name)
		}
	}
}

// Since Kubernetes 1.37, histograms have both representations.
func TestMetricsHaveNativeHistograms(t *testing.T) {
	t.Parallel()
	h := harness.Shared(t).HTTP(t, nil)
	h.Get("/api/v1/namespaces")
	r := h.Get("/metrics", "Accept", string(expfmt.NewFormat(expfmt.TypeProtoDelim)))
	decoder := expfmt.NewDecoder(bytes.NewReader(r.Raw), expfmt.ResponseFormat(r.Header))
	want := []string{"apiserver_request_duration_seconds", "gatehouse_admission_registrations_read_duration_seconds"}
	var seen []string
	for {
		var family dto.MetricFamily
		if err := decoder.Decode(&family); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		if !slices.Contains(want, family.GetName()) {
			continue
		}
		seen = append(seen, family.GetName())
		for _, m := range family.GetMetric() {
			if hist := m.GetHistogram(); hist.Schema == nil || len(hist.GetPositiveSpan()) == 0 || len(hist.GetBucket()) == 0 {
				t.Errorf("%s is not in both forms: %v", family.GetName(), m)
				break
			}
		}
	}
	slices.Sort(seen)
	if !slices.Equal(seen, want) {
		t.Errorf("found %q, want %q", seen, want)
	}
}
