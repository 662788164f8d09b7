package server

import (
	"net/http"
	"strings"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/kit/bounds"
)

// profileTime bounds how long a profile of the server takes.
const profileTime = 10 * time.Minute

// anonymous bounds the connections of clients that have not authenticated. Connections of authenticated clients
// have no bound, because a load balancer may have all clients behind one address.
var anonymous = bounds.Connections{PerAddress: 1000, Young: 10 * time.Second}

// outside bounds requests outside of the API, at all endpoints: the body, and the time of the request, the work and the
// response. The API has its own bounds. The connection of a response 401 is closed, also in the API.
func outside(next http.Handler) http.Handler { return bounds.Handler(next, outsideLimit) }

func outsideLimit(req *http.Request) bounds.Limit {
	switch {
	case inAPI(req.URL.Path):
		return bounds.Limit{}
	case strings.HasPrefix(req.URL.Path, "/debug/pprof/"):
		return bounds.Limit{Time: profileTime, Body: bounds.Body}
	}
	return bounds.Limit{Time: bounds.Time, Body: bounds.Body}
}

// inAPI reports whether a path belongs to the API.
func inAPI(path string) bool {
	return path == "/api" || path == "/apis" || strings.HasPrefix(path, "/api/") || strings.HasPrefix(path, "/apis/")
}
