package server

import (
	"net/http"
	"strings"
	"time"
)

const (
	// outsideBody bounds the body of a request that is not for the API, in bytes.
	outsideBody = 1 << 20
	// outsideTime bounds how long such a request and its answer take, and profileTime how long a profile
	// of the server takes.
	outsideTime = 2 * time.Minute
	profileTime = 10 * time.Minute
)

// outside bounds requests that are not for the API, whichever endpoint they are for: what may be sent,
// and how long that, the work and the reading of the answer take. The API has bounds of its own.
func outside(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if inAPI(req.URL.Path) {
			next.ServeHTTP(w, req)
			return
		}
		limit := outsideTime
		if strings.HasPrefix(req.URL.Path, "/debug/pprof/") {
			limit = profileTime
		}
		control, end := http.NewResponseController(w), time.Now().Add(limit)
		// Only a connection has deadlines; tests have others. The next request of a connection has a time of its own.
		_, _ = control.SetReadDeadline(end), control.SetWriteDeadline(end)
		defer func() { _, _ = control.SetReadDeadline(time.Time{}), control.SetWriteDeadline(time.Time{}) }()
		req.Body = http.MaxBytesReader(w, req.Body, outsideBody)
		next.ServeHTTP(w, req)
		// After a panic there is no answer yet: the error is.
		_ = control.Flush()
	})
}

// inAPI reports whether a path is one of the API.
func inAPI(path string) bool {
	return path == "/api" || path == "/apis" || strings.HasPrefix(path, "/api/") || strings.HasPrefix(path, "/apis/")
}
