package customresources

import (
	"compress/gzip"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/conversion"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gatehouse-dev/gatehouse/admission/call"
)

func TestWebhookConverts(t *testing.T) {
	for _, review := range []string{"v1", "v1beta1"} {
		t.Run(review, func(t *testing.T) {
			e := newEnv(t)
			hook := newHook(t, renameColor)
			e.define(widgets)
			e.update("widgets.example.com", func(spec *apiextensionsSpec) { spec.Conversion = hook.conversion("v9", review) })

			made := e.must(201, "POST", betaPath, strings.Replace(widget("a", "{colour: blue}"), "com/v1", "com/v1beta1", 1))
			if diff := cmp.Diff(map[string]any{"colour": "blue"}, made.at("spec")); diff != "" {
				t.Errorf("answer to the creator (-want +got):\n%s", diff)
			}
			e.must(201, "POST", widgetsPath, widget("b", "{color: green}"))
			for path, field := range map[string]string{widgetsPath: "color", betaPath: "colour"} {
				list := e.must(200, "GET", path, "")
				got := []any{list.at("items", "0", "spec", field), list.at("items", "1", "spec", field)}
				if diff := cmp.Diff([]any{"blue", "green"}, got); diff != "" {
					t.Errorf("list of %s (-want +got):\n%s", path, diff)
				}
				if got := list.at("items", "0", "metadata", "generation"); got != 1.0 {
					t.Errorf("generation %v: the webhook changed it", got)
				}
			}
			if !strings.Contains(hook.objects()[0], `"apiVersion":"apiextensions.k8s.io/`+review+`"`) {
				t.Errorf("review %s", hook.objects()[0])
			}
		})
	}
}

// An invalid response of a webhook fails the request, with an error that gives the reason.
func TestWebhookFails(t *testing.T) {
	convert := func(change func(object map[string]any)) func(map[string]any) any {
		return func(review map[string]any) any {
			objects := at(review, "request", "objects").([]any)
			for _, o := range objects {
				object := renameColor(o.(map[string]any), at(review, "request", "desiredAPIVersion").(string))
				change(object)
			}
			return answer(review, map[string]any{"convertedObjects": objects, "result": map[string]any{"status": "Success"}})
		}
	}
	metadata := func(object map[string]any) map[string]any { return object["metadata"].(map[string]any) }
	tests := []struct {
		name    string
		respond func(review map[string]any) any
		want    string
		// same means that the error begins with the text of upstream's error.
		same bool
	}{
		{"status code", func(map[string]any) any { return http.NotFoundHandler() }, "failed: the server could not find the requested resource: Post ", true},
		{"status code with a text", func(map[string]any) any {
			return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no disk", http.StatusInternalServerError) })
		}, `failed: an error on the server ("no disk") has prevented the request from succeeding: Post `, true},
		{"status code with a long text", func(map[string]any) any {
			return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				http.Error(w, strings.Repeat("x", 1<<20), http.StatusInternalServerError)
			})
		}, `failed: an error on the server ("` + strings.Repeat("x", maxShown) + `") has prevented`, true},
		{"redirect", func(map[string]any) any { return http.RedirectHandler("/elsewhere", http.StatusFound) }, "was answered with 302", false},
		{"garbage for a status line", func(map[string]any) any {
			return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				conn, _, err := w.(http.Hijacker).Hijack()
				if err != nil {
					panic(err)
				}
				defer conn.Close()
				fmt.Fprintf(conn, "%s\r\n\r\n", strings.Repeat("garbage", 6<<10))
			})
		}, `malformed HTTP response "garbagegarbage`, false},
		{"a status line without an end", func(map[string]any) any {
			return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				conn, _, err := w.(http.Hijacker).Hijack()
				if err != nil {
					panic(err)
				}
				defer conn.Close()
				fmt.Fprintf(conn, "HTTP/1.1 200 %s", strings.Repeat("OK", 1<<20))
			})
		}, "server response headers exceeded 65536 bytes", false},
		{"more than could be stored, compressed", func(map[string]any) any {
			return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Encoding", "gzip")
				z := gzip.NewWriter(w)
				for range 64 {
					if _, err := z.Write(make([]byte, 1<<20)); err != nil {
						// The server of the webhook is closed.
						return
					}
				}
				z.Close()
			})
		}, "objects is larger than ", false},
		{"a long message", func(review map[string]any) any {
			return answer(review, map[string]any{"result": map[string]any{"status": "Failure", "message": strings.Repeat("no ", 100_000)}})
		}, " bytes in all)", false},
		{"no JSON", func(map[string]any) any {
			return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "hello") })
		}, "the response is not a ConversionReview: invalid character 'h'", false},
		{"no response", func(review map[string]any) any {
			return map[string]any{"apiVersion": review["apiVersion"], "kind": review["kind"]}
		}, "failed: no response provided", true},
		{"another kind", func(review map[string]any) any {
			res := answer(review, map[string]any{})
			res["kind"] = "AdmissionReview"
			return res
		}, "expected webhook response of apiextensions.k8s.io/v1, Kind=ConversionReview, got apiextensions.k8s.io/v1, Kind=AdmissionReview", false},
		{"another uid", func(review map[string]any) any { return answer(review, map[string]any{"uid": "x"}) }, `, got "x"`, true},
		{"failure with a message", func(review map[string]any) any {
			return answer(review, map[string]any{"result": map[string]any{"status": "Failure", "message": "no blue today"}})
		}, "failed: no blue today", true},
		{"failure without a message", func(review map[string]any) any { return answer(review, map[string]any{}) }, `response.result.status was '', not 'Success'`, true},
		{"too few objects", func(review map[string]any) any {
			return answer(review, map[string]any{"result": map[string]any{"status": "Success"}})
		}, "returned 0 objects, expected 1", true},
		{"wrong version", convert(func(o map[string]any) { o["apiVersion"] = "example.com/v7" }), "invalid groupVersion (expected example.com/v1beta1, received example.com/v7)", true},
		{"wrong kind", convert(func(o map[string]any) { o["kind"] = "Gadget" }), "invalid kind (expected Widget, received Gadget)", true},
		{"renamed", convert(func(o map[string]any) { metadata(o)["name"] = "b" }), "must have the same name: a != b", true},
		{"moved", convert(func(o map[string]any) { metadata(o)["namespace"] = "b" }), "must have the same namespace: ", true},
		{"another object", convert(func(o map[string]any) { metadata(o)["uid"] = "1" }), "must have the same UID: 0 != 1", true},
		{"no metadata", convert(func(o map[string]any) { delete(o, "metadata") }), "must have the same name", true},
		{"metadata of another type", convert(func(o map[string]any) { o["metadata"] = "" }), "must have the same name", true},
		{"bad label", convert(func(o map[string]any) { metadata(o)["labels"] = map[string]any{"a b": "c"} }), "metadata.labels: Invalid value: ", true},
		{"label of another type", convert(func(o map[string]any) { metadata(o)["labels"] = map[string]any{"a": 1} }), "metadata.labels[a] must be a string", true},
		{"labels of another type", convert(func(o map[string]any) { metadata(o)["labels"] = 1 }), "invalid metadata.labels of type int64", true},
	}
	// The texts differ between a single object and an object in a list.
	object := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "example.com/v1", "kind": "Widget", "metadata": map[string]any{"name": "a", "uid": "0"}, "spec": map[string]any{"color": "blue"},
	}}
	list := &unstructured.UnstructuredList{
		Object: map[string]any{"apiVersion": "example.com/v1", "kind": "WidgetList"}, Items: []unstructured.Unstructured{*object.DeepCopy()},
	}
	to := schema.GroupVersion{Group: "example.com", Version: "v1beta1"}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			hook := newRawHook(t, tt.respond)
			crd := &apiextensionsv1.CustomResourceDefinition{}
			crd.Name, crd.Spec.Conversion = "widgets.example.com", hook.conversion("v1")
			crd.Spec.Group = "example.com"
			crd.Spec.Versions = []apiextensionsv1.CustomResourceDefinitionVersion{{Name: "v1"}, {Name: "v1beta1"}}
			c, err := newConvertor(crd, &Options{Webhooks: newCaller(t, call.Options{})})
			if err != nil {
				t.Fatal(err)
			}
			upstream, err := conversion.NewCRConverterFactory(nil, nil)
			if err != nil {
				t.Fatal(err)
			}
			_, reference, err := upstream.NewConverter(crd)
			if err != nil {
				t.Fatal(err)
			}
			for _, in := range []runtime.Object{object.DeepCopy(), list.DeepCopy()} {
				before := in.DeepCopyObject()
				_, err := c.ConvertToVersion(in, to)
				if err == nil || !strings.Contains(err.Error(), tt.want) {
					t.Fatalf("%T: got %v, want %q", in, err, tt.want)
				}
				if n := len(err.Error()); n > maxText+1<<10 {
					t.Errorf("%T: the error has %d bytes", in, n)
				}
				var failed *ConversionError
				if !errors.As(err, &failed) || failed.Definition != "widgets.example.com" || failed.URL != hook.URL+"/" {
					t.Errorf("%T: error %#v", in, err)
				}
				if errors.As(err, new(apierrors.APIStatus)) {
					t.Errorf("%T: the answer of the webhook would become that of the API: %v", in, err)
				}
				_, theirs := reference.ConvertToVersion(before.DeepCopyObject(), to)
				if theirs == nil {
					t.Fatalf("%T: upstream takes it", in)
				}
				if ours, want := withoutUIDs(err), withoutUIDs(theirs); tt.same && !strings.HasPrefix(ours, want) {
					t.Errorf("%T:\n%q does not begin with upstream's\n%q", in, ours, want)
				}
				if diff := cmp.Diff(before, in); diff != "" {
					t.Errorf("%T: it changed (-before +after):\n%s", in, diff)
				}
			}
		})
	}
}

var uids = regexp.MustCompile(`[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`)

// withoutUIDs is the text of an error without the uid of its request.
func withoutUIDs(err error) string { return uids.ReplaceAllString(err.Error(), "UID") }

// A webhook may change labels and annotations, but no other metadata.
func TestWebhookChangesLabels(t *testing.T) {
	e := newEnv(t)
	hook := newHook(t, func(object map[string]any, to string) map[string]any {
		object["apiVersion"] = to
		metadata := object["metadata"].(map[string]any)
		metadata["labels"] = map[string]any{"version": strings.TrimPrefix(to, "example.com/")}
		metadata["annotations"] = nil
		metadata["finalizers"] = []any{"example.com/hook"}
		return object
	})
	e.define(widgets)
	e.update("widgets.example.com", func(spec *apiextensionsSpec) { spec.Conversion = hook.conversion("v1") })
	e.must(201, "POST", widgetsPath, strings.Replace(widget("w", "{}"), `"name":"w"`, `"name":"w","annotations":{"a":"b"},"labels":{"l":"m"}`, 1))
	r := e.must(200, "GET", betaPath+"/w", "")
	got := map[string]any{}
	for _, name := range []string{"labels", "annotations", "finalizers"} {
		got[name] = r.at("metadata", name)
	}
	want := map[string]any{"labels": map[string]any{"version": "v1beta1"}, "annotations": nil, "finalizers": nil}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("metadata (-want +got):\n%s", diff)
	}
}

// A service is called by its DNS name (S8.2), at the address from the resolver, at the first
// endpoint that accepts a connection (S8.4).
func TestWebhookBehindService(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), DNSNames: []string{"hook.infra.svc"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	var path, host string
	behind := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		path, host = req.URL.Path, req.Host
		http.Error(w, "", http.StatusTeapot)
	}))
	behind.TLS = &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}
	behind.StartTLS()
	defer behind.Close()
	// The other server has a certificate of another CA.
	other := httptest.NewUnstartedServer(behind.Config.Handler)
	other.Config.ErrorLog = log.New(io.Discard, "", 0)
	other.StartTLS()
	defer other.Close()
	servers := map[string]*httptest.Server{"10.0.0.1:8443": behind, "10.0.0.4:8443": other}

	port, route := int32(8443), "/convert"
	crd := &apiextensionsv1.CustomResourceDefinition{}
	crd.Spec.Conversion = &apiextensionsv1.CustomResourceConversion{
		Strategy: apiextensionsv1.WebhookConverter,
		Webhook: &apiextensionsv1.WebhookConversion{
			ConversionReviewVersions: []string{"v1"},
			ClientConfig: &apiextensionsv1.WebhookClientConfig{
				Service:  &apiextensionsv1.ServiceReference{Namespace: "infra", Name: "hook", Path: &route, Port: &port},
				CABundle: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
			},
		},
	}
	for _, tt := range []struct {
		name      string
		endpoints []string
		err       error
		want      string
		called    bool
	}{
		{"S8.3 one endpoint", []string{"10.0.0.1:8443"}, nil, "the server responded with the status code 418", true},
		{"S8.4 the next endpoint when one refuses", []string{"10.0.0.2:8443", "10.0.0.1:8443"}, nil, "the server responded with the status code 418", true},
		{"S8.4 no other endpoint after an answer", []string{"10.0.0.1:8443", "10.0.0.2:8443"}, nil, "the server responded with the status code 418", true},
		{"S8.4 all endpoints refuse", []string{"10.0.0.2:8443", "10.0.0.3:8443"}, nil, "no endpoint of 10.0.0.2:8443, 10.0.0.3:8443 can be connected to, the last: refused", false},
		{"S8.4 no other endpoint when a certificate is wrong", []string{"10.0.0.4:8443", "10.0.0.1:8443"}, nil, "tls: failed to verify certificate", false},
		{"S8.4 no endpoint", nil, nil, `no endpoints available for service "infra/hook"`, false},
		{"S8.4 no service", nil, errors.New("service infra/hook is not there"), "service infra/hook is not there", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			path, host = "", ""
			w, err := newConversionWebhook(crd, &Options{Webhooks: newCaller(t, call.Options{
				Resolver: call.ResolverFunc(func(_ context.Context, namespace, name string, port int32) ([]string, error) {
					if namespace != "infra" || name != "hook" || port != 8443 {
						return nil, fmt.Errorf("asked for %s/%s:%d", namespace, name, port)
					}
					return tt.endpoints, tt.err
				}),
				Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
					s, ok := servers[address]
					if !ok {
						return nil, errors.New("refused")
					}
					return (&net.Dialer{}).DialContext(ctx, network, s.Listener.Addr().String())
				},
			})})
			if err != nil {
				t.Fatal(err)
			}
			u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "example.com/v1", "kind": "Widget", "metadata": map[string]any{}}}
			err = w.convert(t.Context(), u, []*unstructured.Unstructured{u}, schema.GroupVersion{Group: "example.com", Version: "v2"})
			for _, want := range []string{`Post "https://hook.infra.svc:8443/convert"`, tt.want} {
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("got %v, want %q in it", err, want)
				}
			}
			if called := path == "/convert" && host == "hook.infra.svc:8443"; called != tt.called {
				t.Errorf("called at path %q of host %q; want a call: %v", path, host, tt.called)
			}
		})
	}
}

func TestWebhookThatCannotBe(t *testing.T) {
	tests := []struct {
		name    string
		webhook *apiextensionsv1.WebhookConversion
		want    string
	}{
		{"no clientConfig", nil, "without a clientConfig"},
		{"unknown versions", &apiextensionsv1.WebhookConversion{ConversionReviewVersions: []string{"v3"}, ClientConfig: &apiextensionsv1.WebhookClientConfig{}},
			`none of the conversionReviewVersions ["v3"] is known`},
		{"no target", &apiextensionsv1.WebhookConversion{ConversionReviewVersions: []string{"v1"}, ClientConfig: &apiextensionsv1.WebhookClientConfig{}},
			"neither url nor service"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			crd := &apiextensionsv1.CustomResourceDefinition{}
			crd.Spec.Conversion = &apiextensionsv1.CustomResourceConversion{Strategy: apiextensionsv1.WebhookConverter, Webhook: tt.webhook}
			if _, err := newConversionWebhook(crd, &Options{Webhooks: newCaller(t, call.Options{})}); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
		})
	}
}
