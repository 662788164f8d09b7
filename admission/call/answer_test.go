package call

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
)

// The class of an answer that is read to its end, or not.
func TestAnswersHaveAClass(t *testing.T) {
	allowed := `{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","response":{"uid":"` + string(testUID) + `","allowed":true}}`
	over, cancel := context.WithCancel(t.Context())
	cancel()
	for _, tt := range []struct {
		name string
		ctx  context.Context
		code int
		body io.Reader
		want Class
		ok   bool
	}{
		{name: "S4.1 a whole answer", ctx: t.Context(), body: strings.NewReader(allowed), ok: true},
		{name: "a whole answer counts, although the time is over", ctx: over, body: strings.NewReader(allowed), ok: true},
		{name: "S4.1 an answer that is cut", ctx: t.Context(), body: strings.NewReader(allowed[:40]), want: Answer},
		{name: "S7.4 an answer that is cut because the time is over is none", ctx: over, body: strings.NewReader(allowed[:40]), want: Transport},
		{name: "S7.4 an answer that cannot be read", ctx: t.Context(), body: io.MultiReader(strings.NewReader(allowed[:40]), broken{}), want: Transport},
		{name: "S4.21 an answer that is too large", ctx: t.Context(), body: strings.NewReader(strings.Repeat(" ", 2000) + allowed), want: Answer},
		{name: "S7.4 an error of HTTP", ctx: t.Context(), code: 500, body: strings.NewReader("no"), want: HTTPStatus},
		{name: "S7.4 an error of HTTP when the time is over", ctx: over, code: 500, body: strings.NewReader("no"), want: Transport},
	} {
		t.Run(tt.name, func(t *testing.T) {
			code := tt.code
			if code == 0 {
				code = 200
			}
			a := admissionCall{inv: invocation(urlHook("", nil)), max: 1000}
			class, err := a.read(tt.ctx, &http.Response{
				StatusCode: code, ContentLength: -1, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(tt.body),
			})
			if tt.ok {
				if err != nil || a.response == nil || !a.response.Allowed {
					t.Errorf("response %+v, error %v", a.response, err)
				}
				return
			}
			if err == nil || class != tt.want {
				t.Errorf("class %v, error %v, want class %v", class, err, tt.want)
			}
		})
	}
}

type broken struct{}

func (broken) Read([]byte) (int, error) { return 0, errors.New("connection reset by peer") }
