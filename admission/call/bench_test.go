package call

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net/http"
	"testing"

	"github.com/gatehouse-dev/gatehouse/internal/engine/review"
)

// BenchmarkCall compares a call with a plain round trip of the same bytes over the same kind of
// connection, to a server that reads and answers.
func BenchmarkCall(b *testing.B) {
	ca := newAuthority(b, "ca")
	answer := fmt.Appendf(nil, `{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","response":{"uid":%q,"allowed":true}}`, testUID)
	s := serve(b, ca.serving(b, "check.shop.svc"), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "application/json")
		w.Write(answer)
	}), nil)
	hook := serviceHook(443, "/", ca.bundle)
	for _, size := range []int{1_000, 100_000} {
		r := &review.Header{Operation: "CREATE"}
		object := append(append([]byte(`"`), bytes.Repeat([]byte("x"), size-2)...), '"')
		body := review.NewBody(review.V1, r, &review.Payload{Object: object})
		b.Run(fmt.Sprintf("object=%d/call", size), func(b *testing.B) {
			c := newCaller(b, Options{Resolver: fixed(s.Listener.Addr().String())})
			inv := &Invocation{Hook: hook, Body: body, UID: testUID}
			b.ReportAllocs()
			for b.Loop() {
				if r, err := c.Call(b.Context(), inv); err != nil || !r.Allowed {
					b.Fatal(err)
				}
			}
		})
		b.Run(fmt.Sprintf("object=%d/bare", size), func(b *testing.B) {
			pool := x509.NewCertPool()
			pool.AddCert(ca.cert)
			client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, ServerName: "check.shop.svc"}}}
			defer client.CloseIdleConnections()
			raw := body.Bytes(testUID)
			b.ReportAllocs()
			for b.Loop() {
				resp, err := client.Post(s.URL, "application/json", bytes.NewReader(raw))
				if err != nil {
					b.Fatal(err)
				}
				got, err := io.ReadAll(resp.Body)
				resp.Body.Close()
				if err != nil || !bytes.Equal(got, answer) {
					b.Fatal(err, string(got))
				}
			}
		})
	}
}
