package controllers

import (
	"bytes"
	"io"
	"net/http"
	"regexp"
	"strconv"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/gatehouse-dev/gatehouse/internal/server/handling/replies"
)

// generated matches what the API appends to metadata.generateName.
const generated = `[bcdfghjklmnpqrstvwxz2456789]{5}\b`

// alike gives errors of one cause one text, whatever name the API chose for the object: web-x7k2p
// becomes web-*. A controller writes the error into an event FailedCreate of the owner. The
// object has another name in each try, and only equal events are counted in one Event.
type alike struct{ http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (a alike) RoundTrip(req *http.Request) (*http.Response, error) {
	response, err := a.RoundTripper.RoundTrip(req)
	if err != nil || req.Method != http.MethodPost || response.StatusCode < http.StatusBadRequest || req.GetBody == nil {
		return response, err
	}
	prefix := generateName(req)
	if prefix == "" {
		return response, nil
	}
	body, err := replies.Peek(response)
	if err != nil {
		return nil, err
	}
	if decoded, _, err := scheme.Codecs.UniversalDeserializer().Decode(body, nil, nil); err == nil {
		if status, ok := decoded.(*metav1.Status); ok {
			named := regexp.MustCompile(regexp.QuoteMeta(prefix) + generated)
			status.Message = named.ReplaceAllLiteralString(status.Message, prefix+"*")
			status.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
			if body, err = runtime.Encode(scheme.Codecs.LegacyCodec(metav1.Unversioned), status); err != nil {
				return nil, err
			}
			response.Header.Set("Content-Type", runtime.ContentTypeJSON)
			response.Header.Set("Content-Length", strconv.Itoa(len(body)))
			response.Body, response.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
		}
	}
	return response, nil
}

// generateName returns metadata.generateName of the object in a request, or "".
func generateName(req *http.Request) string {
	sent, err := req.GetBody()
	if err != nil {
		return ""
	}
	defer sent.Close()
	body, err := io.ReadAll(sent)
	if err != nil {
		return ""
	}
	obj, _, err := scheme.Codecs.UniversalDeserializer().Decode(body, nil, nil)
	if err != nil {
		return ""
	}
	object, err := meta.Accessor(obj)
	if err != nil {
		return ""
	}
	return object.GetGenerateName()
}
