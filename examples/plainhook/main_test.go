package main

import (
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestAnswers(t *testing.T) {
	const question = `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"u","object":{`
	const answer = `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","response":{"uid":"u",`
	for _, tc := range []struct{ name, path, body, want string }{
		{"S5.4 a patch in base64", "/label", question + `"metadata":{}}}}`,
			answer + `"allowed":true,"patchType":"JSONPatch","patch":"W3sib3AiOiJhZGQiLCJwYXRoIjoiL21ldGFkYXRhL2xhYmVscyIsInZhbHVlIjp7InNlZW4iOiJ5ZXMifX1d"}}`},
		{"S5.7 the parent must exist", "/label", question + `"metadata":{"labels":{"a":"b"}}}}}`,
			answer + `"allowed":true,"patchType":"JSONPatch","patch":"W3sib3AiOiJhZGQiLCJwYXRoIjoiL21ldGFkYXRhL2xhYmVscy9zZWVuIiwidmFsdWUiOiJ5ZXMifV0="}}`},
		{"allowed", "/check", question + `"data":{"color":"blue"}}}}`, answer + `"allowed":true}}`},
		{"S4.11 denied", "/check", question + `"data":{"password":"x"}}}}`,
			answer + `"allowed":false,"status":{"code":403,"message":"passwords belong in secrets"}}}`},
		{"S12.5 allowed by an external hook", "/external", `{"spec":{"object":{"data":{}}}}`, `{"status":{"allowed":true,"status":null}}`},
		{"S12.5 denied by an external hook", "/external", `{"spec":{"object":{"data":{"password":"x"}}}}`,
			`{"status":{"allowed":false,"status":{"code":403,"message":"passwords belong in secrets"}}}`},
		{"no review", "/check", `{}`, "not an AdmissionReview"},
		{"no external review", "/external", question + `}}}`, "not an AdmissionReview"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := httptest.NewRecorder()
			handler().ServeHTTP(w, httptest.NewRequest("POST", tc.path, strings.NewReader(tc.body)))
			if diff := cmp.Diff(tc.want, strings.TrimSpace(w.Body.String())); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}
