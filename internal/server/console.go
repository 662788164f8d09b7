package server

import (
	"net/http"

	"github.com/gatehouse-dev/gatehouse/internal/console"
)

// console puts the console in front of all that a request goes through: a browser sends no credentials
// when it opens a page, and what a view reads goes through all of it, as requests of the viewer.
func (s *settings) console(next http.Handler) http.Handler {
	if !s.Console {
		return next
	}
	return console.Handler(next)
}
