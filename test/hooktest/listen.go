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
	// URL ends without a slash. CA is the PEM certificate by which callers trust the server.
	URL string
	CA  []byte

	server *http.Server
	ended  chan error
}

// Listen starts a Listener, which is known by other names, too. Close ends it.
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

// Close ends the server. It returns the error that ended it before.
func (l *Listener) Close() error {
	err := l.server.Close()
	if ended := <-l.ended; !errors.Is(ended, http.ErrServerClosed) {
		err = errors.Join(err, ended)
	}
	return err
}
