package customresources

import (
	"bytes"
	"encoding/json"
	"encoding/pem"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"github.com/gatehouse-dev/gatehouse/admission/call"
)

// newCaller returns the Caller that calls conversion webhooks in a test.
func newCaller(t testing.TB, o call.Options) *call.Caller {
	t.Helper()
	c, err := NewCaller(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// hook is a conversion webhook behind TLS.
type hook struct {
	*httptest.Server
	mu   sync.Mutex
	seen []string
}

// converter converts an object from one version to another.
type converter func(object map[string]any, to string) map[string]any

// newHook starts a webhook that converts object by object.
func newHook(t testing.TB, convert converter) *hook {
	return newRawHook(t, func(review map[string]any) any {
		request := review["request"].(map[string]any)
		objects := []any{}
		for _, o := range request["objects"].([]any) {
			objects = append(objects, convert(o.(map[string]any), request["desiredAPIVersion"].(string)))
		}
		return answer(review, map[string]any{"convertedObjects": objects, "result": map[string]any{"status": "Success"}})
	})
}

// answer is a review with a response.
func answer(review map[string]any, response map[string]any) map[string]any {
	if _, ok := response["uid"]; !ok {
		response["uid"] = at(review, "request", "uid")
	}
	return map[string]any{"apiVersion": review["apiVersion"], "kind": review["kind"], "response": response}
}

// newRawHook starts a webhook that answers with the result of respond: an http.Handler, or a value
// to encode as JSON.
func newRawHook(t testing.TB, respond func(review map[string]any) any) *hook {
	h := &hook{}
	h.Server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		data, err := io.ReadAll(req.Body)
		if err != nil {
			panic(http.ErrAbortHandler)
		}
		var review map[string]any
		if err := json.Unmarshal(data, &review); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		h.mu.Lock()
		h.seen = append(h.seen, string(data))
		h.mu.Unlock()
		res := respond(review)
		if handler, ok := res.(http.Handler); ok {
			handler.ServeHTTP(w, req)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		if err := json.NewEncoder(w).Encode(res); err != nil {
			panic(err)
		}
	}))
	t.Cleanup(h.Close)
	return h
}

// objects are the bodies of the requests so far that had objects.
func (h *hook) objects() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.seen
}

func (h *hook) ca() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: h.Certificate().Raw})
}

func (h *hook) conversion(versions ...string) *apiextensionsv1.CustomResourceConversion {
	return &apiextensionsv1.CustomResourceConversion{
		Strategy: apiextensionsv1.WebhookConverter,
		Webhook: &apiextensionsv1.WebhookConversion{
			ConversionReviewVersions: versions,
			ClientConfig:             &apiextensionsv1.WebhookClientConfig{URL: &h.URL, CABundle: h.ca()},
		},
	}
}

// renameColor renames the color of v1 to colour in v1beta1. It also attempts changes that a webhook
// must not make: to remove the initializers, and to change the metadata.
func renameColor(object map[string]any, to string) map[string]any {
	spec, _ := object["spec"].(map[string]any)
	from, into := "color", "colour"
	if to == "example.com/v1" {
		from, into = into, from
	}
	if v, ok := spec[from]; ok {
		delete(spec, from)
		spec[into] = v
	}
	object["apiVersion"] = to
	metadata := object["metadata"].(map[string]any)
	delete(metadata, "initializers")
	metadata["generation"] = 99
	return object
}

func encode(t testing.TB, v any) string {
	t.Helper()
	var buf bytes.Buffer
	if err := json.NewEncoder(&buf).Encode(v); err != nil {
		t.Fatal(err)
	}
	return buf.String()
}
