package initializer

import "net/http"

// IncludeUninitialized returns a transport that asks for uninitialized objects in every read, for use in
// rest.Config.Wrap. It does not change writes.
func IncludeUninitialized(next http.RoundTripper) http.RoundTripper {
	return including{next}
}

type including struct{ next http.RoundTripper }

func (i including) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Method != http.MethodGet {
		return i.next.RoundTrip(req)
	}
	req = req.Clone(req.Context())
	query := req.URL.Query()
	query.Set("includeUninitialized", "true")
	req.URL.RawQuery = query.Encode()
	return i.next.RoundTrip(req)
}

// WrappedRoundTripper is for client-go, which unwraps transports.
func (i including) WrappedRoundTripper() http.RoundTripper { return i.next }
