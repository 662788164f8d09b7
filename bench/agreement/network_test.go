package agreement

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"strings"
	"syscall"
	"time"

	"google.golang.org/grpc/test/bufconn"
)

// network connects one side to its webhook servers, in memory.
type network struct {
	server   *http.Server
	listener *bufconn.Listener
}

// listen serves HTTPS on every address of a new network.
func listen(handler http.Handler) *network {
	n := &network{
		server:   &http.Server{Handler: handler, ErrorLog: log.New(io.Discard, "", 0)},
		listener: bufconn.Listen(64 << 10),
	}
	go n.server.Serve(tls.NewListener(n.listener, &tls.Config{Certificates: []tls.Certificate{pki.serving}}))
	return n
}

// refused is the prefix of host names at which no server listens.
const refused = "dead-"

// dial connects to any address. If no server listens at the address, it returns an error after the delay of the hook,
// so that failures keep the order of the hooks.
func (n *network) dial(ctx context.Context, _, address string) (net.Conn, error) {
	if strings.HasPrefix(address, refused) {
		sleep(ctx, delay(hookOf(address, "")))
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
	}
	return n.listener.DialContext(ctx)
}

func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// pki contains the certificate of all webhook servers, and two CAs. The CA named other has not signed any
// certificate.
var pki = func() (p struct {
	serving   tls.Certificate
	ca, other []byte
}) {
	// The fake clock starts in the year 2000.
	begin, end := time.Date(1999, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC)
	authority := func(name string) (*x509.Certificate, *ecdsa.PrivateKey, []byte) {
		key := must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
		template := &x509.Certificate{
			SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotBefore: begin, NotAfter: end,
			IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
		}
		der := must(x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key))
		return must(x509.ParseCertificate(der)), key, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	}
	ca, caKey, bundle := authority("webhooks")
	_, _, p.other = authority("nobody")
	p.ca = bundle
	key := must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
	der := must(x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "webhooks"}, NotBefore: begin, NotAfter: end,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		DNSNames:    []string{"*.hooks.example", "*.hooks.svc"},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback},
	}, ca, &key.PublicKey, caKey))
	p.serving = tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
	return p
}()

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}
