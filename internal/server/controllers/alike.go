package controllers

import (
	"net/http"
	"regexp"

	"github.com/gatehouse-dev/gatehouse/internal/server/handling/replies"
)

// generated matches the random suffix that the API appends to metadata.generateName.
const generated = `[bcdfghjklmnpqrstvwxz2456789]{5}\b`

// alike gives errors with the same cause the same text, whatever name the API generated for the
// object: web-x7k2p becomes web-*. A controller writes the error into an event FailedCreate of the
// owner. The object has another name in each attempt, and only equal events are counted in one
// Event.
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
	status, err := replies.Status(response)
	if err != nil {
		return nil, err
	}
	if status == nil {
		return response, nil
	}
	prefix := object.GetGenerateName()
	named := regexp.MustCompile(regexp.QuoteMeta(prefix) + generated)
	status.Message = named.ReplaceAllLiteralString(status.Message, prefix+"*")
	return replies.Say(response, status)
}
