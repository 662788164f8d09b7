package replies

import (
	"bytes"
	"io"
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
)

// longest bounds how many bytes of an answer are read.
const longest = 1 << 20

// Peek returns the body of a response. It reads 1 MiB at most. The body can be read again. When Peek
// fails, the body is closed.
func Peek(response *http.Response) ([]byte, error) {
	body, err := io.ReadAll(io.LimitReader(response.Body, longest))
	response.Body.Close()
	if err != nil {
		return nil, err
	}
	response.Body = io.NopCloser(bytes.NewReader(body))
	return body, nil
}

// Status returns the status in the body of a response; nil if the body has no status. It reads as
// Peek does.
func Status(response *http.Response) (*metav1.Status, error) {
	body, err := Peek(response)
	if err != nil {
		return nil, err
	}
	decoded, _, _ := scheme.Codecs.UniversalDeserializer().Decode(body, nil, nil)
	status, _ := decoded.(*metav1.Status)
	return status, nil
}

// Say sets the body of a response to a status, and returns the response.
func Say(response *http.Response, status *metav1.Status) (*http.Response, error) {
	status.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
	body, err := runtime.Encode(scheme.Codecs.LegacyCodec(metav1.Unversioned), status)
	if err != nil {
		return nil, err
	}
	response.Header.Set("Content-Type", runtime.ContentTypeJSON)
	response.Header.Del("Content-Length")
	response.Body, response.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	return response, nil
}

// WhenClosed calls done when the body of an answer is closed.
func WhenClosed(response *http.Response, done func()) {
	response.Body = closing{response.Body, done}
}

type closing struct {
	io.ReadCloser
	done func()
}

// Close implements io.Closer.
func (c closing) Close() error {
	defer c.done()
	return c.ReadCloser.Close()
}
