package server

import (
	"context"
	"net/http"
	"slices"
	"strings"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/gatehouse-dev/gatehouse/internal/console"
)

// console puts the files of the console in front of authentication: a browser sends no credentials
// when it opens a page.
func (s *settings) console(next http.Handler) http.Handler {
	if !s.Console {
		return next
	}
	return console.Files(next)
}

// drawingAuthorizer lets every client with a name ask for drawings, which show what the client sends
// and nothing else.
type drawingAuthorizer struct{ authorizer.Authorizer }

func (z drawingAuthorizer) Authorize(ctx context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	if !a.IsResourceRequest() && strings.HasPrefix(a.GetPath(), console.DrawPrefix) && slices.Contains(a.GetUser().GetGroups(), user.AllAuthenticated) {
		return authorizer.DecisionAllow, "drawings show what is sent", nil
	}
	return z.Authorizer.Authorize(ctx, a)
}
