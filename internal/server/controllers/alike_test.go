package controllers

import (
	"bytes"
	"io"
	"net/http"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
)

// An error does not contain the random name of the attempt.
func TestErrorsOfOneCauseAreAlike(t *testing.T) {
	denied := func(message string) string {
		err := apierrors.NewForbidden(corev1.Resource("pods"), "web-x7k2p", nil)
		err.ErrStatus.Message = message
		status := err.Status()
		status.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
		return string(runtime.EncodeOrDie(scheme.Codecs.LegacyCodec(), &status))
	}
	for name, tc := range map[string]struct {
		generateName, method, message, raw string
		code                               int
		want                               string
	}{
		"a plugin names the pod":             {generateName: "web-", message: `pods "web-x7k2p" is forbidden: no`, want: `pods "web-*" is forbidden: no`},
		"so does a webhook, twice":           {generateName: "web-", message: `web-x7k2p: web-x7k2p is bad`, want: `web-*: web-* is bad`},
		"another name that begins alike":     {generateName: "web-", message: `use web-image`, want: `use web-image`},
		"a longer name":                      {generateName: "web-", message: `use web-x7k2pq`, want: `use web-x7k2pq`},
		"a prefix with signs of expressions": {generateName: "w.b-", message: `wxb-x7k2p w.b-x7k2p`, want: `wxb-x7k2p w.b-*`},
		"an object with a name":              {message: `pods "web-x7k2p" is forbidden`, want: `pods "web-x7k2p" is forbidden`},
		"an update":                          {generateName: "web-", method: http.MethodPut, message: `pods "web-x7k2p"`, want: `pods "web-x7k2p"`},
		"no status":                          {generateName: "web-", raw: "<html>web-x7k2p", want: "<html>web-x7k2p"},
		"an answer without an error":         {generateName: "web-", code: 201, message: "web-x7k2p", want: "web-x7k2p"},
	} {
		t.Run(name, func(t *testing.T) {
			code := tc.code
			if code == 0 {
				code = http.StatusForbidden
			}
			body := tc.raw
			if body == "" {
				body = denied(tc.message)
			}
			method := tc.method
			if method == "" {
				method = http.MethodPost
			}
			pod := &corev1.Pod{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}, ObjectMeta: metav1.ObjectMeta{GenerateName: tc.generateName}}
			if tc.generateName == "" {
				pod.Name = "web-x7k2p"
			}
			var sent bytes.Buffer
			for _, info := range scheme.Codecs.SupportedMediaTypes() {
				if info.MediaType == runtime.ContentTypeProtobuf {
					if err := info.Serializer.Encode(pod, &sent); err != nil {
						t.Fatal(err)
					}
				}
			}
			req, err := http.NewRequestWithContext(t.Context(), method, "https://127.0.0.1/api/v1/namespaces/default/pods", bytes.NewReader(sent.Bytes()))
			if err != nil {
				t.Fatal(err)
			}
			response, err := alike{&answers{code: code, body: body}}.RoundTrip(req)
			if err != nil {
				t.Fatal(err)
			}
			got, err := io.ReadAll(response.Body)
			if err != nil {
				t.Fatal(err)
			}
			text := string(got)
			var status metav1.Status
			if tc.raw == "" {
				if err := runtime.DecodeInto(scheme.Codecs.UniversalDeserializer(), got, &status); err != nil {
					t.Fatal(err)
				}
				text = status.Message
			}
			if text != tc.want || response.StatusCode != code || strings.Contains(tc.want, "*") && (status.Reason != metav1.StatusReasonForbidden || response.ContentLength != int64(len(got))) {
				t.Errorf("got %d %q", response.StatusCode, got)
			}
		})
	}
}
