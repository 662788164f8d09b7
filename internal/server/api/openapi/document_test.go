package openapi

import (
	"bytes"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"testing"
)

// TestADocumentIsBuiltOnce: a client's waiting time does not depend on garbage
// collection.
func TestADocumentIsBuiltOnce(t *testing.T) {
	text := []byte(`{"openapi":"3.0.0","info":"` + strings.Repeat("x", 1<<16) + `"}`)
	built := 0
	d := &document{build: func() ([]byte, error) {
		built++
		return bytes.Clone(text), nil
	}}
	for range 3 {
		var readers sync.WaitGroup
		for range 8 {
			readers.Go(func() {
				w := httptest.NewRecorder()
				if err := d.serve(w, httptest.NewRequest("GET", "/", nil), protobuf3, nil); err != nil {
					t.Error(err)
				}
				if !bytes.Equal(w.Body.Bytes(), text) {
					t.Errorf("got %d bytes, want %d", w.Body.Len(), len(text))
				}
			})
		}
		readers.Wait()
		// Weak pointers would be empty now.
		runtime.GC()
		runtime.GC()
		if d.mu.json != nil || len(d.mu.packed) > len(text)/10 {
			t.Errorf("in memory are %d bytes, and %d packed", len(d.mu.json), len(d.mu.packed))
		}
	}
	if built != 1 {
		t.Errorf("built %d times", built)
	}
}
