package resources

import (
	"net/http"
	"strings"
	"time"

	"k8s.io/apiserver/pkg/endpoints/metrics"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/endpoints/responsewriter"
)

// AnsweringWith returns a ResponseWriter that calls set on the header of a response. It calls set
// when the response begins, and when a handler reads the header before that.
func AnsweringWith(w http.ResponseWriter, set func(http.Header)) http.ResponseWriter {
	return responsewriter.WrapForHTTP1Or2(&answering{ResponseWriter: w, set: set})
}

// answeringWith returns a ResponseWriter that sends another code.
func answeringWith(w http.ResponseWriter, code func(int) int) http.ResponseWriter {
	return responsewriter.WrapForHTTP1Or2(&answering{ResponseWriter: w, code: code})
}

// answering changes an answer. Each of its functions may be nil.
type answering struct {
	http.ResponseWriter
	set   func(http.Header)
	code  func(int) int
	begun bool
}

var _ responsewriter.UserProvidedDecorator = (*answering)(nil)

func (w *answering) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *answering) Header() http.Header {
	header := w.ResponseWriter.Header()
	if w.set != nil && !w.begun {
		w.set(header)
	}
	return header
}

func (w *answering) WriteHeader(code int) {
	w.Header()
	w.begun = true
	if w.code != nil {
		code = w.code(code)
	}
	w.ResponseWriter.WriteHeader(code)
}

func (w *answering) Write(data []byte) (int, error) {
	if !w.begun {
		w.WriteHeader(http.StatusOK)
	}
	return w.ResponseWriter.Write(data)
}

// serveCounted serves a request and counts it in the metrics, unless serve reports that the
// request is not answered yet. It returns the code of the answer.
func (e *Endpoint) serveCounted(info *request.RequestInfo, w http.ResponseWriter, req *http.Request, serve func(http.ResponseWriter, *http.Request) (answered bool)) (code int) {
	received, ok := request.ReceivedTimestampFrom(req.Context())
	if !ok {
		received = time.Now()
	}
	delegate := &metrics.ResponseWriterDelegator{ResponseWriter: w}
	if !serve(responsewriter.WrapForHTTP1Or2(delegate), req) {
		return 0
	}
	metrics.MonitorRequest(req, strings.ToUpper(info.Verb), info.APIGroup, info.APIVersion, info.Resource, info.Subresource,
		metrics.CleanScope(info), metrics.APIServerComponent, e.Deprecated, e.RemovedRelease, delegate.Status(), delegate.ContentLength(), time.Since(received))
	return delegate.Status()
}
