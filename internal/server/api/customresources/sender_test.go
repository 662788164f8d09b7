package customresources

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"maps"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/component-base/metrics/legacyregistry"

	"github.com/gatehouse-dev/gatehouse/admission/call"
)

var v1beta1Version = schema.GroupVersion{Group: "example.com", Version: "v1beta1"}

// webhookConvertor converts widgets by a webhook.
func webhookConvertor(t *testing.T, name string, conversion *apiextensionsv1.CustomResourceConversion, o call.Options) *convertor {
	t.Helper()
	crd := &apiextensionsv1.CustomResourceDefinition{}
	crd.Name, crd.Spec.Group, crd.Spec.Conversion = name, "example.com", conversion
	crd.Spec.Versions = []apiextensionsv1.CustomResourceDefinitionVersion{{Name: "v1"}, {Name: "v1beta1"}}
	c, err := newConvertor(crd, &Options{Webhooks: newCaller(t, o)})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func aWidget() *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "example.com/v1", "kind": "Widget", "metadata": map[string]any{"name": "a"}, "spec": map[string]any{"color": "blue"},
	}}
}

// counted returns the samples of metrics whose names have a prefix: how often each set of labels
// was counted.
func counted(t *testing.T, prefix string) map[string]float64 {
	t.Helper()
	families, err := legacyregistry.DefaultGatherer.Gather()
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]float64{}
	for _, f := range families {
		if !strings.HasPrefix(f.GetName(), prefix) {
			continue
		}
		for _, m := range f.GetMetric() {
			id := f.GetName()
			for _, l := range m.GetLabel() {
				id += " " + l.GetName() + "=" + l.GetValue()
			}
			found[id] = m.GetCounter().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
	}
	return found
}

// increase returns by how much f increases the metrics.
func increase(t *testing.T, prefix string, f func()) map[string]float64 {
	t.Helper()
	before := counted(t, prefix)
	f()
	after := counted(t, prefix)
	for id, n := range before {
		after[id] -= n
	}
	maps.DeleteFunc(after, func(_ string, n float64) bool { return n == 0 })
	return after
}

// Conversions are counted as upstream counts them.
func TestConversionsAreCounted(t *testing.T) {
	for i, tt := range []struct {
		name    string
		respond func(review map[string]any) any
		failure string
	}{
		{"success", func(review map[string]any) any {
			o := at(review, "request", "objects", "0").(map[string]any)
			return answer(review, map[string]any{"convertedObjects": []any{renameColor(o, "example.com/v1beta1")}, "result": map[string]any{"status": "Success"}})
		}, ""},
		{"HTTP error", func(map[string]any) any { return http.NotFoundHandler() }, "conversion_webhook_call_failure"},
		{"no response", func(review map[string]any) any {
			return map[string]any{"apiVersion": review["apiVersion"], "kind": review["kind"]}
		}, "conversion_webhook_malformed_response_failure"},
		{"too few objects", func(review map[string]any) any {
			return answer(review, map[string]any{"result": map[string]any{"status": "Success"}})
		}, "conversion_webhook_partial_response_failure"},
		{"not converted", func(review map[string]any) any {
			return answer(review, map[string]any{"convertedObjects": at(review, "request", "objects"), "result": map[string]any{"status": "Success"}})
		}, "conversion_webhook_invalid_converted_object_failure"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			name := fmt.Sprintf("counted%d.example.com", i)
			c := webhookConvertor(t, name, newRawHook(t, tt.respond).conversion("v1"), call.Options{})
			var err error
			convert := func() { _, err = c.ConvertToVersion(aWidget(), v1beta1Version) }
			result := "success"
			if tt.failure != "" {
				result = "failure"
			}
			labels := " failure_type=" + tt.failure + " result=" + result
			want := map[string]float64{
				"apiserver_conversion_webhook_request_total" + labels:    1,
				"apiserver_conversion_webhook_duration_seconds" + labels: 1,
			}
			if diff := cmp.Diff(want, increase(t, "apiserver_conversion_webhook_", convert)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if (err != nil) != (tt.failure != "") {
				t.Errorf("error %v", err)
			}
			want = map[string]float64{fmt.Sprintf("apiserver_crd_conversion_webhook_duration_seconds crd_name=%s from_version=v1 succeeded=%v to_version=v1beta1",
				name, tt.failure == ""): 1}
			if diff := cmp.Diff(want, increase(t, "apiserver_crd_conversion_webhook_", convert)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// S10: a certificate without names is counted, as for admission webhooks.
func TestDeprecatedCertificatesOfConversionWebhooksAreCounted(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "localhost"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewUnstartedServer(http.NotFoundHandler())
	s.TLS = &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.StartTLS()
	t.Cleanup(s.Close)
	url := strings.Replace(s.URL, "127.0.0.1", "localhost", 1)
	c := webhookConvertor(t, "widgets.example.com", &apiextensionsv1.CustomResourceConversion{
		Strategy: apiextensionsv1.WebhookConverter,
		Webhook: &apiextensionsv1.WebhookConversion{
			ConversionReviewVersions: []string{"v1"},
			ClientConfig:             &apiextensionsv1.WebhookClientConfig{URL: &url, CABundle: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})},
		},
	}, call.Options{})
	got := increase(t, "apiserver_webhooks_x509_missing_san_total", func() {
		if _, err := c.ConvertToVersion(aWidget(), v1beta1Version); err == nil || !strings.Contains(err.Error(), "tls: failed to verify certificate") {
			t.Errorf("got %v", err)
		}
	})
	if diff := cmp.Diff(map[string]float64{"apiserver_webhooks_x509_missing_san_total": 1}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// After some failed connections, a conversion webhook is not called.
func TestConversionWebhookThatIsDownIsNotCalled(t *testing.T) {
	dials := 0
	c := webhookConvertor(t, "widgets.example.com", newHook(t, renameColor).conversion("v1"), call.Options{
		Dial: func(context.Context, string, string) (net.Conn, error) {
			dials++
			return nil, errors.New("refused")
		},
	})
	for range 5 {
		if _, err := c.ConvertToVersion(aWidget(), v1beta1Version); err == nil || !strings.Contains(err.Error(), `: refused`) {
			t.Fatalf("got %v", err)
		}
	}
	_, err := c.ConvertToVersion(aWidget(), v1beta1Version)
	if err == nil || !strings.Contains(err.Error(), "failed: not called: the last 5 calls to ") || errors.As(err, new(apierrors.APIStatus)) {
		t.Errorf("got %v", err)
	}
	if dials != 5 {
		t.Errorf("%d attempts to connect", dials)
	}
}

// A conversion that gets no place among the calls of its webhook's server in its time fails
// with an error after which the client may retry.
func TestConversionWithoutAPlaceIsRefused(t *testing.T) {
	called, release := make(chan struct{}), make(chan struct{})
	hook := newRawHook(t, func(map[string]any) any {
		close(called)
		<-release
		return http.NotFoundHandler()
	})
	c := webhookConvertor(t, "widgets.example.com", hook.conversion("v1"), call.Options{MaxInFlight: 1})
	done := make(chan struct{})
	go func() {
		defer close(done)
		if _, err := c.ConvertToVersion(aWidget(), v1beta1Version); err == nil {
			t.Error("converted")
		}
	}()
	<-called
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err := c.with(ctx).ConvertToVersion(aWidget(), v1beta1Version)
	if !apierrors.IsTooManyRequests(err) || !strings.Contains(err.Error(), "1 calls to ") {
		t.Errorf("got %v", err)
	}
	close(release)
	<-done
}

// The conversions of admission end with their request.
func TestConversionForAdmissionEndsWithTheRequest(t *testing.T) {
	e := newEnv(t)
	called := make(chan struct{}, 1)
	left := make(chan struct{})
	hook := newRawHook(t, func(map[string]any) any {
		return http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
			called <- struct{}{}
			<-req.Context().Done()
			close(left)
		})
	})
	e.define(widgets)
	e.update("widgets.example.com", func(spec *apiextensionsSpec) { spec.Conversion = hook.conversion("v1") })
	failed := make(chan error, 1)
	e.admit.Lock()
	e.admit.convert = func(c runtime.ObjectConvertor, object runtime.Object) error {
		other := &unstructured.Unstructured{}
		other.SetGroupVersionKind(v1beta1Version.WithKind("Widget"))
		err := c.Convert(object, other, nil)
		failed <- err
		return err
	}
	e.admit.Unlock()

	ctx, cancel := context.WithCancel(e.ctx)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, "POST", e.url+widgetsPath, strings.NewReader(widget("w", "{}")))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	done := make(chan struct{})
	go func() {
		defer close(done)
		if res, err := http.DefaultClient.Do(req); err == nil {
			res.Body.Close()
		}
	}()
	<-called
	begin := time.Now()
	cancel()
	<-done
	if err := <-failed; err == nil || !strings.Contains(err.Error(), "context canceled") {
		t.Errorf("got %v", err)
	}
	<-left
	if took := time.Since(begin); took >= conversionTimeout {
		t.Errorf("it took %v", took)
	}
}
