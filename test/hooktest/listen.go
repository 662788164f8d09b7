package hooktest

import (
	"crypto/tls"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"time"

	"k8s.io/client-go/util/cert"
)

// Listener is an HTTPS server on a loopback address, for programs that are not tests.
type Listener struct {
	// URL has no trailing slash. CA is the PEM certificate that callers must trust.
	URL string
	CA  []byte

	server *http.Server
	ended  chan error
}

// Listen starts a Listener. Its certificate is also valid for the names. Close stops it.
func Listen(h http.Handler, names ...string) (*Listener, error) {
	certificate, key, err := cert.GenerateSelfSignedCertKey("localhost", []net.IP{net.IPv4(127, 0, 0, 1)}, names)
	if err != nil {
		return nil, err
	}
	pair, err := tls.X509KeyPair(certificate, key)
	if err != nil {
		return nil, err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	l := &Listener{
		URL: "https://" + listener.Addr().String(), CA: certificate, ended: make(chan error, 1),
		server: &http.Server{
			Handler: h, ReadHeaderTimeout: time.Minute, ErrorLog: log.New(io.Discard, "", 0),
			TLSConfig: &tls.Config{Certificates: []tls.Certificate{pair}},
		},
	}
	go func() { l.ended <- l.server.ServeTLS(listener, "", "") }()
	return l, nil
}

// Close stops the server. It returns the error that stopped it earlier, if any.
func (l *Listener) Close() error {
	err := l.server.Close()
	if ended := <-l.ended; !errors.Is(ended, http.ErrServerClosed) {
		err = errors.Join(err, ended)
	}
	return err
}
