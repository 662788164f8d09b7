package replies

import (
	"io"
	"net/http"
	"strings"
	"testing"
)

func TestPeek(t *testing.T) {
	for name, size := range map[string]int{"empty": 0, "short": 10, "too long": longest + 1} {
		t.Run(name, func(t *testing.T) {
			response := &http.Response{Body: io.NopCloser(strings.NewReader(strings.Repeat("x", size)))}
			first, err := Peek(response)
			if err != nil {
				t.Fatal(err)
			}
			again, err := io.ReadAll(response.Body)
			if err != nil || string(first) != string(again) || len(first) != min(size, longest) {
				t.Errorf("%d bytes, and again %d, of %d: %v", len(first), len(again), size, err)
			}
		})
	}
}
