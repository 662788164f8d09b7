package auth

import (
	"net/http"

	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/authenticatorfactory"
	"k8s.io/apiserver/pkg/authentication/request/headerrequest"
)

// proxies authenticates the user that a proxy names in headers, if the proxy has a client
// certificate for that (S22.17).
type proxies struct {
	verified authenticator.Request
	names    headerrequest.StringSliceProvider
}

func newProxies(c *authenticatorfactory.RequestHeaderConfig) authenticator.Request {
	return proxies{
		verified: headerrequest.NewDynamicVerifyOptionsSecure(
			c.CAContentProvider.VerifyOptions, c.AllowedClientNames,
			c.UsernameHeaders, c.UIDHeaders, c.GroupHeaders, c.ExtraHeaderPrefixes),
		names: c.UsernameHeaders,
	}
}

// AuthenticateRequest implements authenticator.Request. It verifies certificates only when a header
// names a user: verifying one costs more than the rest of a small request.
func (p proxies) AuthenticateRequest(req *http.Request) (*authenticator.Response, bool, error) {
	for _, name := range p.names.Value() {
		if req.Header.Get(name) != "" {
			return p.verified.AuthenticateRequest(req)
		}
	}
	return nil, false, nil
}
