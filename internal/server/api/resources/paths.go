package resources

import (
	"bytes"
	"fmt"
	"io"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/registry/rest"
)

const (
	// maxPaths bounds pathBytes. Strict decoding writes the path of each unknown and duplicate field,
	// although it reports only the first hundred.
	maxPaths = 256 << 20
	// shortBody is the length of a body whose paths are within the bound.
	shortBody = 16 << 10
)

// boundPaths returns the error for a body in JSON whose fields have longer paths than maxPaths (S27.13).
func (e *Endpoint) boundPaths(req *http.Request) error {
	if _, connects := e.Storage.(rest.Connecter); connects || req.Body == nil || req.ContentLength >= 0 && req.ContentLength <= shortBody ||
		req.URL.Query().Get("fieldValidation") == metav1.FieldValidationIgnore {
		return nil
	}
	switch mediaTypeOf(req) {
	case "", runtime.ContentTypeJSON, string(types.JSONPatchType), string(types.MergePatchType), string(types.StrategicMergePatchType):
	default:
		return nil
	}
	body, whole := peekBody(req, e.Scope.MaxRequestBodyBytes)
	if whole && pathBytes(body) > maxPaths {
		return apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("limit is %d bytes, for the paths of all fields together", maxPaths))
	}
	return nil
}

// pathBytes returns the total length of the paths of all fields and elements in a JSON text, without the first one of
// each object and array: only fields with siblings are duplicates.
func pathBytes(text []byte) (sum int64) {
	// paths has the length of the path of each object and array around the current position, at is the
	// length of the path there, and name the length of the last string.
	var paths []int64
	var at, name int64
	outer := func() int64 {
		if len(paths) == 0 {
			return 0
		}
		return paths[len(paths)-1]
	}
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case '"':
			start := i
			for i++; i < len(text) && text[i] != '"'; i++ {
				if text[i] == '\\' {
					i++
				}
			}
			name = int64(i - start)
		case ':':
			at = outer() + name
		case '{', '[':
			paths = append(paths, at)
		case '}', ']':
			at = outer()
			if len(paths) > 0 {
				paths = paths[:len(paths)-1]
			}
		case ',':
			at = outer()
			sum += at
		}
	}
	return sum
}

// peekBody reads the body of a request, and reports whether it is the whole body: if not, the body has an error, or
// more bytes than it may have. The body can be read once more.
func peekBody(req *http.Request, limit int64) (body []byte, whole bool) {
	body, err := io.ReadAll(io.LimitReader(req.Body, limit+1))
	rest := io.Reader(req.Body)
	if err != nil {
		rest = failing{err}
	}
	req.Body = struct {
		io.Reader
		io.Closer
	}{io.MultiReader(bytes.NewReader(body), rest), req.Body}
	return body, err == nil && int64(len(body)) <= limit
}

// failing is a reader with an error.
type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }
