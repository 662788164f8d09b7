package replies

import (
	"bytes"
	"io"
	"net/http"
)

// longest bounds how many bytes of an answer are read.
const longest = 1 << 20

// Peek returns the body of an answer, of which it reads 1 MiB at most. The body can be read again. When
// Peek fails, the body is closed.
func Peek(response *http.Response) ([]byte, error) {
	body, err := io.ReadAll(io.LimitReader(response.Body, longest))
	response.Body.Close()
	if err != nil {
		return nil, err
	}
	response.Body = io.NopCloser(bytes.NewReader(body))
	return body, nil
}
