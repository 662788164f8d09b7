package webhook

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"k8s.io/client-go/util/cert"
)

// certificate is the serving certificate, and by what it is verified.
type certificate struct {
	pair *tls.Certificate
	// authority is the PEM bundle that registrations have.
	authority []byte
	renewAt   time.Time
}

// renew takes the certificate of the directory if it is still good for long, and makes one
// otherwise.
func (s *Server) renew() error {
	host, names := s.hosts()
	var chain, key []byte
	var err error
	file := func(name string) string { return filepath.Join(s.options.CertDir, name) }
	if s.options.CertDir != "" {
		chain, key, err = readPair(file("tls.crt"), file("tls.key"))
		if err != nil {
			return fmt.Errorf("--cert-dir: %w", err)
		}
		if c, err := newCertificate(chain, key); chain != nil && err != nil {
			return fmt.Errorf("--cert-dir: %w", err)
		} else if chain != nil && time.Now().Before(c.renewAt) && c.pair.Leaf.VerifyHostname(host) == nil {
			s.certificate.Store(c)
			return nil
		}
	}
	var ips []net.IP
	if ip := net.ParseIP(host); ip != nil {
		ips = append(ips, ip)
	}
	if chain, key, err = cert.GenerateSelfSignedCertKey(host, ips, names); err != nil {
		return fmt.Errorf("making a certificate: %w", err)
	}
	if s.options.CertDir != "" {
		if err := writePair(s.options.CertDir, file("tls.crt"), chain, file("tls.key"), key); err != nil {
			return fmt.Errorf("--cert-dir: %w", err)
		}
	}
	c, err := newCertificate(chain, key)
	if err != nil {
		return err
	}
	s.certificate.Store(c)
	return nil
}

// hosts are the names that the certificate is for: the one that the cluster uses, and others.
func (s *Server) hosts() (string, []string) {
	if namespace, name, ok := strings.Cut(s.options.Service, "/"); ok {
		return name + "." + namespace + ".svc", []string{name + "." + namespace + ".svc.cluster.local"}
	}
	base, err := url.Parse(s.base)
	if err != nil {
		return "localhost", nil
	}
	return base.Hostname(), nil
}

// newCertificate reads a certificate. Its chain ends with the authority that signed it.
func newCertificate(chain, key []byte) (*certificate, error) {
	pair, err := tls.X509KeyPair(chain, key)
	if err != nil {
		return nil, err
	}
	if pair.Leaf == nil {
		if pair.Leaf, err = x509.ParseCertificate(pair.Certificate[0]); err != nil {
			return nil, err
		}
	}
	life := pair.Leaf.NotAfter.Sub(pair.Leaf.NotBefore)
	root := pair.Certificate[len(pair.Certificate)-1]
	return &certificate{
		pair: &pair, renewAt: pair.Leaf.NotAfter.Add(-life / 3),
		authority: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: root}),
	}, nil
}

// readPair reads a certificate and its key; nil when there are none.
func readPair(certFile, keyFile string) (chain, key []byte, err error) {
	chain, err = os.ReadFile(certFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, nil
	}
	if err == nil {
		key, err = os.ReadFile(keyFile)
	}
	return chain, key, err
}

func writePair(dir, certFile string, chain []byte, keyFile string, key []byte) error {
	return errors.Join(os.MkdirAll(dir, 0o700), os.WriteFile(keyFile, key, 0o600), os.WriteFile(certFile, chain, 0o644))
}
