package openapi_test

import (
	"net/http"
	"net/http/httptest"
	"runtime"
	"testing"

	"github.com/gatehouse-dev/gatehouse/internal/server/api/openapi"
)

// BenchmarkFirst measures the first request for a document.
func BenchmarkFirst(b *testing.B) {
	o := builtin(b)
	for name, path := range map[string]string{
		"document=list": "/openapi/v3", "document=apps_v1": "/openapi/v3/apis/apps/v1",
		"document=core_v1": "/openapi/v3/api/v1", "document=v2": "/openapi/v2",
	} {
		b.Run(name, func(b *testing.B) {
			req := httptest.NewRequest("GET", path, nil)
			b.ReportAllocs()
			for b.Loop() {
				w := httptest.NewRecorder()
				openapi.New(o).ServeHTTP(w, req)
				if w.Code != http.StatusOK {
					b.Fatalf("got %d", w.Code)
				}
			}
		})
	}
}

// BenchmarkList measures every later request for the list.
func BenchmarkList(b *testing.B) {
	h := openapi.New(builtin(b))
	req := httptest.NewRequest("GET", "/openapi/v3", nil)
	h.ServeHTTP(httptest.NewRecorder(), req)
	b.ReportAllocs()
	for b.Loop() {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, req)
		if w.Code != http.StatusOK {
			b.Fatalf("got %d", w.Code)
		}
	}
}

// BenchmarkKept reports the memory that is in use after all documents were requested.
func BenchmarkKept(b *testing.B) {
	o := builtin(b)
	heap := func() uint64 {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := heap()
	var kept uint64
	for b.Loop() {
		h := openapi.New(o)
		for _, path := range []string{"/openapi/v3", "/openapi/v2"} {
			h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", path, nil))
		}
		kept = heap() - before
		runtime.KeepAlive(h)
	}
	b.ReportMetric(float64(kept)/1024, "KiB-kept")
}

// BenchmarkNew measures the work at every start of a server.
func BenchmarkNew(b *testing.B) {
	o := builtin(b)
	b.ReportAllocs()
	for b.Loop() {
		if !openapi.New(o).Handles("/openapi/v3/apis/apps/v1") {
			b.Fatal("apps/v1 has no document")
		}
	}
}
