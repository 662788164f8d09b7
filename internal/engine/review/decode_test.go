package review

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

func TestDecodeAnswers(t *testing.T) {
	const uid = "u-1"
	meta := func(v string) string { return `"kind":"AdmissionReview","apiVersion":"admission.k8s.io/` + v + `",` }
	patch := base64.StdEncoding.EncodeToString([]byte(`[{"op":"add","path":"/x","value":1}]`))
	cases := []struct {
		name       string
		version    Version
		validating bool
		body       string
		want       *Response
		err        string
		invalid    bool
	}{
		{name: "S4.2 full v1 answer, echoed request and unknown fields ignored", version: V1,
			body: `{` + meta("v1") + `"request":{"uid":5,"object":"any"},"more":1,"response":{"uid":"u-1","allowed":true,"zzz":{},
				"patch":"` + patch + `","patchType":"JSONPatch","warnings":["w"],"auditAnnotations":{"k":"v"},"status":{"message":"m","code":403}}}`,
			want: &Response{UID: uid, Allowed: true, Patch: []byte(`[{"op":"add","path":"/x","value":1}]`), PatchType: "JSONPatch",
				Warnings: []string{"w"}, AuditAnnotations: map[string]string{"k": "v"}, Result: &metav1.Status{Message: "m", Code: 403}}},
		{name: "S4.4 wrong type", version: V1, body: `{` + meta("v1") + `"response":{"uid":"u-1","allowed":"true"}}`, err: "cannot unmarshal string"},
		{name: "S4.2 not JSON", version: V1, body: `<html>`, err: "the answer is not an AdmissionReview of admission.k8s.io/v1: "},
		{name: "S4.2 not an object", version: V1beta1, body: `[]`, err: "the answer is not an AdmissionReview of admission.k8s.io/v1beta1: "},
		{name: "S4.2 member names are case-sensitive", version: V1, body: `{` + meta("v1") + `"Response":{"uid":"u-1","allowed":true}}`, err: "webhook response was absent", invalid: true},

		{name: "S4.5 v1 both absent, after the uid check", version: V1, body: `{"response":{"uid":"u-1","allowed":true}}`,
			err: "expected webhook response of admission.k8s.io/v1, Kind=AdmissionReview, got /, Kind=", invalid: true},
		{name: "S4.8 v1 both absent and wrong uid gives the uid", version: V1, body: `{"response":{"uid":"u-2","allowed":true}}`,
			err: `expected response.uid="u-1", got "u-2"`, invalid: true},
		{name: "S4.8 v1 no response and both absent gives the response", version: V1, body: `{"request":{}}`,
			err: "webhook response was absent", invalid: true},
		{name: "S4.8 v1 wrong uid and a bad patch gives the uid", version: V1, body: `{` + meta("v1") + `"response":{"uid":"u-2","allowed":true,"patch":"` + patch + `"}}`,
			err: `expected response.uid="u-1", got "u-2"`, invalid: true},
		{name: "S4.8 v1 both absent and a bad patch gives the kind", version: V1, body: `{"response":{"uid":"u-1","allowed":true,"patch":"` + patch + `"}}`,
			err: "expected webhook response of admission.k8s.io/v1, Kind=AdmissionReview, got /, Kind=", invalid: true},
		{name: "S4.5 v1 kind absent", version: V1, body: `{"apiVersion":"admission.k8s.io/v1","response":{"uid":"u-1"}}`,
			err: "expected webhook response of admission.k8s.io/v1, Kind=AdmissionReview, got admission.k8s.io/v1, Kind=", invalid: true},
		{name: "S4.5 v1beta1 both absent is ok", version: V1beta1, body: `{"response":{"allowed":true}}`, want: &Response{Allowed: true}},
		{name: "S4.5 v1beta1 apiVersion absent is ok", version: V1beta1, body: `{"kind":"AdmissionReview","response":{"allowed":true}}`, want: &Response{Allowed: true}},
		{name: "S4.5 asked v1, got v1beta1", version: V1, body: `{` + meta("v1beta1") + `"response":{"uid":"u-1","allowed":true}}`,
			err: "converting (v1beta1.AdmissionReview) to (v1.AdmissionReview): unknown conversion"},
		{name: "S4.5 asked v1beta1, got v1", version: V1beta1, body: `{` + meta("v1") + `"response":{"uid":"u-1","allowed":true}}`,
			err: "converting (v1.AdmissionReview) to (v1beta1.AdmissionReview): unknown conversion"},
		{name: "S4.5 unknown kind", version: V1, body: `{"kind":"Pod","apiVersion":"v1","response":{"uid":"u-1"}}`, err: `no kind "Pod" is registered for version "v1"`},
		{name: "S4.5 unknown group", version: V1beta1, body: `{"kind":"AdmissionReview","apiVersion":"example.com/v1","response":{"uid":"u-1"}}`,
			err: `no kind "AdmissionReview" is registered for version "example.com/v1"`},
		{name: "S4.5 unknown kind wins over wrong types", version: V1, body: `{"kind":"Pod","apiVersion":"v1","response":7}`, err: `no kind "Pod"`},
		{name: "S4.5 apiVersion no group version", version: V1, body: `{"kind":"AdmissionReview","apiVersion":"a/b/c"}`, err: "unexpected GroupVersion string: a/b/c"},

		{name: "S4.6 v1 response absent", version: V1, body: `{` + meta("v1") + `"request":{}}`, err: "webhook response was absent", invalid: true},
		{name: "S4.6 v1beta1 response absent", version: V1beta1, body: `{}`, err: "webhook response was absent", invalid: true},
		{name: "S4.7 v1 uid absent", version: V1, body: `{` + meta("v1") + `"response":{"allowed":true}}`, err: `expected response.uid="u-1", got ""`, invalid: true},
		{name: "S4.7 v1beta1 uid not checked", version: V1beta1, body: `{"response":{"uid":"other","allowed":true}}`, want: &Response{UID: "other", Allowed: true}},

		{name: "S4.9 v1 patch without patchType", version: V1, body: `{` + meta("v1") + `"response":{"uid":"u-1","patch":"` + patch + `"}}`,
			err: "webhook returned response.patch but not response.patchType", invalid: true},
		{name: "S4.9 v1beta1 patch without patchType", version: V1beta1, body: `{"response":{"allowed":true,"patch":"W10="}}`,
			want: &Response{Allowed: true, Patch: []byte(`[]`), PatchType: "JSONPatch"}},
		{name: "S4.9 v1 validating patch", version: V1, validating: true, body: `{` + meta("v1") + `"response":{"uid":"u-1","patch":"W10=","patchType":"JSONPatch"}}`,
			err: "validating webhook may not return response.patch", invalid: true},
		{name: "S4.9 v1beta1 validating patch ignored", version: V1beta1, validating: true, body: `{"response":{"allowed":true,"patch":"W10=","patchType":"JSONPatch"}}`,
			want: &Response{Allowed: true}},
		{name: "S4.9 v1 patchType without patch", version: V1, body: `{` + meta("v1") + `"response":{"uid":"u-1","patchType":"JSONPatch"}}`,
			err: "webhook returned response.patchType but not response.patch", invalid: true},
		{name: "S4.9 v1beta1 patchType without patch ignored", version: V1beta1, body: `{"response":{"allowed":true,"patchType":"JSONPatch"}}`, want: &Response{Allowed: true}},
		{name: "S4.9 v1 validating patchType", version: V1, validating: true, body: `{` + meta("v1") + `"response":{"uid":"u-1","patchType":"JSONPatch"}}`,
			err: "validating webhook may not return response.patchType", invalid: true},
		{name: "S4.9 v1 empty patchType", version: V1, body: `{` + meta("v1") + `"response":{"uid":"u-1","patch":"W10=","patchType":""}}`,
			err: `webhook returned invalid response.patchType of ""`, invalid: true},
		{name: "S4.9 v1beta1 empty patchType", version: V1beta1, body: `{"response":{"allowed":true,"patch":"W10=","patchType":""}}`,
			want: &Response{Allowed: true, Patch: []byte(`[]`), PatchType: "JSONPatch"}},
		{name: "S4.9 v1 other patchType is for the caller", version: V1, body: `{` + meta("v1") + `"response":{"uid":"u-1","allowed":true,"patch":"W10=","patchType":"MergePatch"}}`,
			want: &Response{UID: uid, Allowed: true, Patch: []byte(`[]`), PatchType: "MergePatch"}},
		{name: "S4.9 v1beta1 other patchType is JSONPatch", version: V1beta1, body: `{"response":{"allowed":true,"patch":"W10=","patchType":"MergePatch"}}`,
			want: &Response{Allowed: true, Patch: []byte(`[]`), PatchType: "JSONPatch"}},
		{name: "S4.10 patch that is no base64", version: V1, body: `{` + meta("v1") + `"response":{"uid":"u-1","patch":"[]","patchType":"JSONPatch"}}`, err: "illegal base64"},

		{name: "S12.5 only status counts", version: V1alpha1, body: `{` + meta("v1alpha1") + `"spec":{"name":7},"status":{"allowed":true},"response":{"allowed":false}}`,
			want: &Response{Allowed: true}},
		{name: "S12.6 apiVersion and kind missing", version: V1alpha1, body: `{"spec":{},"status":{"allowed":false,"status":{"reason":"no"}}}`,
			want: &Response{Result: &metav1.Status{Reason: "no"}}},
		{name: "S12.6 wrong kind", version: V1alpha1, body: `{"kind":"Pod","status":{"phase":"Running"}}`, err: `no kind "Pod" is registered`},
		{name: "S12.6 wrong version", version: V1alpha1, body: `{` + meta("v1") + `"status":{"allowed":true}}`, err: "converting (v1.AdmissionReview) to (v1alpha1.AdmissionReview)"},
		{name: "S12.7 missing status is not allowed", version: V1alpha1, body: `{}`, want: &Response{}},
		{name: "S12.8 no patch field", version: V1alpha1, body: `{"status":{"allowed":true,"patch":"W10=","patchType":"JSONPatch"}}`, want: &Response{Allowed: true}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			got, err := Decode(c.version, !c.validating, uid, 200, "application/json", []byte(c.body))
			var inv *InvalidError
			switch {
			case c.err == "" && err != nil:
				t.Fatal(err)
			case c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err)):
				t.Fatalf("got error %v, want one with %q", err, c.err)
			case errors.As(err, &inv) != c.invalid:
				t.Fatalf("error %v: InvalidError %v, want %v", err, !c.invalid, c.invalid)
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestDecodeHTTP(t *testing.T) {
	const ok = `{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","response":{"uid":"u","allowed":true}}`
	cases := []struct {
		name   string
		status int
		ctype  string
		body   string
		err    string
		code   int32
	}{
		{name: "S4.1 200", status: 200, ctype: "application/json", body: ok},
		{name: "S4.1 206", status: 206, ctype: "application/json", body: ok},
		{name: "S4.2 content type is not enforced", status: 200, ctype: "text/plain; charset=utf-8", body: ok},
		{name: "S4.2 content type absent", status: 200, body: ok},
		{name: "S4.2 content type unparsable", status: 200, ctype: "a b", body: ok, err: `content type "a b" of the answer: mime: `},
		{name: "S4.3 empty body", status: 204, ctype: "text/plain", err: "0-length response with status code: 204 and content type: text/plain"},
		{name: "S4.1 207", status: 207, body: ok, err: "the server responded with the status code 207 but did not return more information", code: 207},
		{name: "S8.9 redirect", status: 302, body: ok, err: "the server responded with the status code 302: redirects are not followed", code: 302},
		{name: "S7.4 400", status: 400, ctype: "text/plain", body: "no", err: "the server rejected our request for an unknown reason", code: 400},
		{name: "S7.4 403 with text", status: 403, ctype: "text/plain", body: " get out\n", err: "get out", code: 403},
		{name: "S7.5 403 without text", status: 403, ctype: "image/png", body: "get out", err: "unknown", code: 403},
		{name: "S7.4 404", status: 404, err: "the server could not find the requested resource", code: 404},
		{name: "S7.4 409", status: 409, err: "the server reported a conflict", code: 409},
		{name: "S7.4 422", status: 422, err: "the server rejected our request due to an error in our request", code: 422},
		{name: "S7.4 500 with text", status: 500, body: "boom", err: `an error on the server ("boom") has prevented the request from succeeding`, code: 500},
		{name: "S7.4 500 text is cut at 2048 bytes", status: 500, body: strings.Repeat("x", 3000), err: `("` + strings.Repeat("x", 2048) + `")`, code: 500},
		{name: "S7.4 503", status: 503, body: "x", err: "the server is currently unable to handle the request", code: 503},
		{name: "S7.4 504", status: 504, err: "the server was unable to return a response in the time allotted, but may still be processing the request", code: 504},
		{name: "S7.4 JSON Status", status: 500, ctype: "application/json", body: `{"kind":"Status","apiVersion":"v1","status":"Failure","message":"its own words","code":418}`, err: "its own words", code: 418},
		{name: "S7.4 JSON Status without code has that of HTTP", status: 502, ctype: "application/json", body: `{"status":"Failure","message":"its own words"}`, err: "its own words", code: 502},
		{name: "S7.4 JSON Status Success does not count", status: 503, ctype: "application/json", body: `{"kind":"Status","status":"Success"}`, err: "the server is currently unable to handle the request", code: 503},
		{name: "S7.4 Status in place of a review", status: 200, ctype: "application/json", body: `{"kind":"Status","apiVersion":"v1","status":"Failure","message":"nope","code":409}`, err: "nope", code: 409},
		{name: "S4.6 Status Success in place of a review", status: 200, body: `{"kind":"Status","apiVersion":"v1","status":"Success"}`, err: "webhook response was absent"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			_, err := Decode(V1, true, "u", c.status, c.ctype, []byte(c.body))
			if c.err == "" {
				if err != nil {
					t.Fatal(err)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), c.err) {
				t.Fatalf("got error %v, want one with %q", err, c.err)
			}
			var status *apierrors.StatusError
			code := int32(0)
			if errors.As(err, &status) {
				code = status.ErrStatus.Code
			}
			if code != c.code {
				t.Errorf("code is %d, want %d", code, c.code)
			}
		})
	}
}

func TestDenial(t *testing.T) {
	cases := []struct {
		name   string
		result *metav1.Status
		want   metav1.Status
	}{
		{"S4.11 no status", nil, metav1.Status{Status: "Failure", Code: 400, Message: `admission webhook "a.b.c" denied the request without explanation`}},
		{"S4.12 code and message, no reason invented", &metav1.Status{Code: 403, Message: "m"},
			metav1.Status{Status: "Failure", Code: 403, Message: `admission webhook "a.b.c" denied the request: m`}},
		{"S4.12 reason without code", &metav1.Status{Reason: "Gone"},
			metav1.Status{Status: "Failure", Code: 400, Reason: "Gone", Message: `admission webhook "a.b.c" denied the request: Gone`}},
		{"S4.11 code 200 and Success", &metav1.Status{Status: "Success", Code: 200, Message: "m"},
			metav1.Status{Status: "Failure", Code: 400, Message: `admission webhook "a.b.c" denied the request: m`}},
		{"S4.12 details pass through", &metav1.Status{Code: 422, Reason: "Invalid", Message: "m", Details: &metav1.StatusDetails{Name: "n"}},
			metav1.Status{Status: "Failure", Code: 422, Reason: "Invalid", Details: &metav1.StatusDetails{Name: "n"}, Message: `admission webhook "a.b.c" denied the request: m`}},
		{"S4.14 600 to 999 pass", &metav1.Status{Code: 999}, metav1.Status{Status: "Failure", Code: 999, Message: `admission webhook "a.b.c" denied the request without explanation`}},
		{"S4.14 1000 becomes 500", &metav1.Status{Code: 1000}, metav1.Status{Status: "Failure", Code: 500, Message: `admission webhook "a.b.c" denied the request without explanation`}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			before := c.result.DeepCopy()
			if diff := cmp.Diff(c.want, Denial("a.b.c", &Response{Result: c.result}).ErrStatus); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(before, c.result); diff != "" {
				t.Errorf("the response changed (-want +got):\n%s", diff)
			}
		})
	}
}

// FuzzDecode: an answer is either a response or an error, never both or neither; a v1 response has
// the uid that was sent, a validating response has no patch, and an accepted answer is JSON.
func FuzzDecode(f *testing.F) {
	for _, v := range []string{"v1", "v1beta1", "v1alpha1"} {
		f.Add(0, false, 200, "application/json", []byte(`{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/`+v+`","response":{"uid":"u","allowed":true,"patch":"W10=","patchType":"JSONPatch"}}`))
	}
	f.Add(1, true, 500, "text/plain", []byte(`{"status":"Failure","message":"m"}`))
	f.Add(2, true, 200, "", []byte(`{"status":{"allowed":true}}`))
	f.Fuzz(func(t *testing.T, version int, mutating bool, status int, contentType string, body []byte) {
		v := []Version{V1, V1beta1, V1alpha1}[uint(version)%3]
		r, err := Decode(v, mutating, "u", status, contentType, body)
		if (r == nil) == (err == nil) {
			t.Fatalf("response %v, error %v", r, err)
		}
		if err != nil {
			if err.Error() == "" {
				t.Errorf("an error without words: %#v", err)
			}
			return
		}
		if !json.Valid(body) {
			t.Errorf("accepted %q", body)
		}
		if v == V1 && r.UID != types.UID("u") {
			t.Errorf("accepted uid %q", r.UID)
		}
		if (len(r.Patch) > 0 || r.PatchType != "") && (!mutating || v == V1alpha1 || len(r.Patch) == 0 || r.PatchType == "") {
			t.Errorf("patch %q of type %q", r.Patch, r.PatchType)
		}
	})
}

func BenchmarkDecode(b *testing.B) {
	for _, size := range []int{0, 10_000} {
		patch := base64.StdEncoding.EncodeToString([]byte(`[{"op":"add","path":"/x","value":"` + strings.Repeat("x", size) + `"}]`))
		body := []byte(`{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","response":{"uid":"u","allowed":true,"patchType":"JSONPatch","patch":"` + patch + `"}}`)
		b.Run(fmt.Sprintf("patch=%d", size), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if r, err := Decode(V1, true, "u", 200, "application/json", body); err != nil || !r.Allowed {
					b.Fatal(err)
				}
			}
		})
	}
}
