package call_test

import (
	"context"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/gatehouse-dev/gatehouse/admission/call"
	"github.com/gatehouse-dev/gatehouse/admission/registration"
	"github.com/gatehouse-dev/gatehouse/internal/engine/review"
)

func Example() {
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, `{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","response":{"uid":"1","allowed":false,"status":{"message":"no Mondays"}}}`)
	}))
	defer server.Close()

	hook := &registration.Entry{
		Origin:        registration.Origin{Name: "days.example.com"},
		FailurePolicy: registration.Fail,
		Webhook: &registration.Webhook{
			Timeout:        10 * time.Second,
			ReviewVersions: []string{"v1"},
			ClientConfig: registration.ClientConfig{
				URL:      server.URL,
				CABundle: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}),
			},
		},
	}
	caller, err := call.New(call.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer caller.Close()

	version, _ := review.Choose(hook.ReviewVersions)
	body := review.NewBody(version, &review.Header{Operation: "CREATE"}, &review.Payload{Object: []byte(`{"kind":"Pod"}`)})
	response, failed := caller.Call(context.Background(), &call.Invocation{Hook: hook, Body: body, UID: "1"})
	switch {
	case failed != nil:
		fmt.Println(failed.Status())
	case !response.Allowed:
		fmt.Println(review.Denial(hook.Name, response))
	}
	// Output: admission webhook "days.example.com" denied the request: no Mondays
}
