package controllers

import (
	"net/http"
	"regexp"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
	if err != nil || req.Method != http.MethodPost || response.StatusCode < http.StatusBadRequest {
		return response, err
	}
	object := sent(req)
	if object == nil || object.GetGenerateName() == "" {
		return response, nil
	}
	body, err := replies.Peek(response)
	if err != nil {
		return nil, err
	}
	if decoded, _, err := scheme.Codecs.UniversalDeserializer().Decode(body, nil, nil); err == nil {
		if status, ok := decoded.(*metav1.Status); ok {
			prefix := object.GetGenerateName()
			named := regexp.MustCompile(regexp.QuoteMeta(prefix) + generated)
			status.Message = named.ReplaceAllLiteralString(status.Message, prefix+"*")
			if err := say(response, status); err != nil {
				return nil, err
			}
		}
	}
	return response, nil
}
