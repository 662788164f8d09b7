package requestlog

import (
	"context"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
)

// maxAnswers bounds the recorded requests whose answers are read from audit logs.
const maxAnswers = 2_000_000

// recorded is the reason for an event whose request is also in a recording.
const recorded = "an event of a recorded request, which gets its answer"

// answers are the responses to recorded requests, by their IDs. A recorder sees a request before later webhooks do, so
// that a recording has no responses. Nil answers are empty.
type answers struct {
	// byID has the IDs of all recorded requests without a response. The response is nil if no event has it, or if not
	// admission decided.
	byID map[string]*Response
}

// join reads the responses to the recorded requests from the events of the audit logs among the files (S25.22).
func (r *Reader) join(ctx context.Context) (*answers, error) {
	a := &answers{byID: map[string]*Response{}}
	look := func(looks func(metav1.TypeMeta, []byte)) error {
		_, err := (&Reader{Paths: r.Paths, looks: looks}).Read(ctx, nil)
		return err
	}
	events := false
	err := look(func(of metav1.TypeMeta, data []byte) {
		if isEvent(of) {
			events = true
			return
		}
		q := struct {
			ID       string    `json:"id"`
			Response *Response `json:"response"`
		}{}
		if of.Kind == Kind && len(a.byID) < maxAnswers && Decode(data, &q, Lenient) && q.ID != "" && q.Response == nil {
			a.byID[q.ID] = nil
		}
	})
	if err != nil || !events || len(a.byID) == 0 {
		return &answers{}, err
	}
	return a, look(func(of metav1.TypeMeta, data []byte) {
		e := &auditv1.Event{}
		if !isEvent(of) || !Decode(data, e, Lenient) || e.Stage != auditv1.StageResponseComplete {
			return
		}
		if id, ok := a.idOf(e); ok && e.ResponseStatus != nil && refusedElsewhere(e, e.ResponseStatus.Code) == "" {
			a.byID[id] = responseOf(e)
		}
	})
}

func isEvent(of metav1.TypeMeta) bool { return of.Kind == "Event" && isAudit(of.APIVersion) }

// idOf returns the ID of the recorded request of an event: its audit ID, or the ID in the recorder's annotation.
func (a *answers) idOf(e *auditv1.Event) (string, bool) {
	if _, ok := a.byID[string(e.AuditID)]; ok {
		return string(e.AuditID), true
	}
	for key, id := range e.Annotations {
		if _, ok := a.byID[id]; ok && strings.HasSuffix(key, "/"+AuditKey) {
			return id, true
		}
	}
	return "", false
}

// recorded reports whether the request of an event is also in a recording.
func (a *answers) recorded(e *auditv1.Event) bool {
	if a == nil {
		return false
	}
	_, ok := a.idOf(e)
	return ok
}

// of returns the response to a recorded request; nil if unknown.
func (a *answers) of(id string) *Response {
	if a == nil {
		return nil
	}
	return a.byID[id]
}
