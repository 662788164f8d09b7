package webhook

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"k8s.io/client-go/util/cert"
	"k8s.io/klog/v2"

	"github.com/gatehouse-dev/gatehouse/internal/kit/files"
)

// certificate is the serving certificate, with the authority that verifies it.
type certificate struct {
	pair *tls.Certificate
	// authority is the PEM bundle in the webhook configurations.
	authority []byte
	renewAt   time.Time
}

// firstCertificate sets the first serving certificate.
func (s *Server) firstCertificate() error {
	c, err := s.newest()
	if err != nil {
		return err
	}
	s.certificate.Store(c)
	s.trusted = c.authority
	return nil
}

// newest returns the certificate of the directory if it is valid for long enough, and creates one otherwise.
func (s *Server) newest() (*certificate, error) {
	host, names := s.hosts()
	var chain, key []byte
	var err error
	file := func(name string) string { return filepath.Join(s.options.CertDir, name) }
	if s.options.CertDir != "" {
		chain, key, err = readPair(file("tls.crt"), file("tls.key"))
		if err != nil {
			return nil, fmt.Errorf("--cert-dir: %w", err)
		}
		if c, err := newCertificate(chain, key); chain != nil && err != nil {
			return nil, fmt.Errorf("--cert-dir: %w", err)
		} else if chain != nil && time.Now().Before(c.renewAt) && c.pair.Leaf.VerifyHostname(host) == nil {
			return c, nil
		}
	}
	if chain, key, err = cert.GenerateSelfSignedCertKey(host, nil, names); err != nil {
		return nil, fmt.Errorf("making a certificate: %w", err)
	}
	if s.options.CertDir != "" {
		if err := writePair(s.options.CertDir, file("tls.crt"), chain, file("tls.key"), key); err != nil {
			return nil, fmt.Errorf("--cert-dir: %w", err)
		}
	}
	return newCertificate(chain, key)
}

const (
	// trustWithin is the time that API servers may take to apply a webhook configuration.
	trustWithin = 10 * time.Second
	// renewAgain is the wait after a failed renewal.
	renewAgain = 10 * time.Second
)

// keepCertificate replaces the certificate long before it expires, until ctx ends.
func (s *Server) keepCertificate(ctx context.Context) {
	for {
		wait := time.Until(s.certificate.Load().renewAt)
		for pause(ctx, wait) {
			err := s.replace(ctx)
			if err == nil {
				break
			}
			wait = renewAgain
			klog.ErrorS(err, "Cannot renew the certificate; will retry", "after", wait, "expires", s.certificate.Load().pair.Leaf.NotAfter)
		}
		if ctx.Err() != nil {
			return
		}
	}
}

// replace changes the serving certificate, after it has registered both certificate authorities: API servers
// that have not yet seen the new webhook configuration trust only the old certificate.
func (s *Server) replace(ctx context.Context) error {
	next, err := s.newest()
	if err != nil {
		return err
	}
	now := s.certificate.Load()
	s.trusted = slices.Concat(now.authority, next.authority)
	if err := s.register(ctx); err != nil {
		return err
	}
	if pause(ctx, min(trustWithin, time.Until(now.pair.Leaf.NotAfter)/2)) {
		s.certificate.Store(next)
	}
	return nil
}

// pause waits, and returns false if ctx ended meanwhile.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// hosts returns the names for the certificate: the name that the cluster uses, and others.
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

// readPair reads a certificate and its key; nil if they do not exist.
func readPair(certFile, keyFile string) (chain, key []byte, err error) {
	chain, err = files.Read(certFile, files.Configuration)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, nil
	}
	if err == nil {
		key, err = files.Read(keyFile, files.Configuration)
	}
	return chain, key, err
}

func writePair(dir, certFile string, chain []byte, keyFile string, key []byte) error {
	return errors.Join(os.MkdirAll(dir, 0o700), os.WriteFile(keyFile, key, 0o600), os.WriteFile(certFile, chain, 0o644))
}
