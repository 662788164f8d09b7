package auth

import (
	"crypto/sha256"
	"net/http"
	"sync"
	"time"

	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
)

const (
	// verifiedFor is how long a verified client certificate is trusted without another check.
	verifiedFor = 10 * time.Second
	// maxVerified bounds the number of certificates that are remembered.
	maxVerified = 4096
)

// verifiedCertificates remembers the answers of an authenticator for client certificates. Checking
// a signature costs more than the rest of a small request's handling before storage, and a client
// sends the same certificate with every request of a connection. It forgets them all when the CAs
// change.
type verifiedCertificates struct {
	authenticator.Request
	mu struct {
		sync.RWMutex
		known map[[sha256.Size]byte]verified
		// changes counts the changes of the CAs.
		changes int
	}
}

type verified struct {
	response *authenticator.Response
	until    time.Time
}

// rememberVerified returns an authenticator that verifies by r and caches the result. It drops the
// cache when from notifies it that the CAs of r changed.
func rememberVerified(r authenticator.Request, from dynamiccertificates.Notifier) authenticator.Request {
	v := &verifiedCertificates{Request: r}
	v.mu.known = map[[sha256.Size]byte]verified{}
	from.AddListener(v)
	return v
}

// Enqueue implements dynamiccertificates.Listener: the CAs have changed.
func (v *verifiedCertificates) Enqueue() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.mu.changes++
	clear(v.mu.known)
}

func (v *verifiedCertificates) AuthenticateRequest(req *http.Request) (*authenticator.Response, bool, error) {
	if req.TLS == nil || len(req.TLS.PeerCertificates) == 0 {
		return v.Request.AuthenticateRequest(req)
	}
	// The key covers the whole chain, because intermediates are part of the verification.
	h := sha256.New()
	expires := req.TLS.PeerCertificates[0].NotAfter
	for _, cert := range req.TLS.PeerCertificates {
		h.Write(cert.Raw)
		if cert.NotAfter.Before(expires) {
			expires = cert.NotAfter
		}
	}
	var key [sha256.Size]byte
	h.Sum(key[:0])
	now := time.Now()
	v.mu.RLock()
	known, ok := v.mu.known[key]
	changes := v.mu.changes
	v.mu.RUnlock()
	if ok && now.Before(known.until) {
		return known.response, true, nil
	}
	response, ok, err := v.Request.AuthenticateRequest(req)
	if err != nil || !ok {
		return response, ok, err
	}
	until := now.Add(verifiedFor)
	if expires.Before(until) {
		until = expires
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.mu.changes != changes {
		// The certificate may have been verified by the CAs before the change.
		return response, true, nil
	}
	if len(v.mu.known) >= maxVerified {
		clear(v.mu.known)
	}
	v.mu.known[key] = verified{response: response, until: until}
	return response, true, nil
}
