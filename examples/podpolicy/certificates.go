package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// validity is the lifetime of generated certificates.
const validity = 365 * 24 * time.Hour

// Certificates are the serving certificate, its key and the certificate authority of clients, PEM encoded.
type Certificates struct {
	CA, Cert, Key []byte
}

// files are the names in a certificate directory. The last two are also the names in a kubernetes.io/tls secret
// and in controller-runtime.
var files = [...]string{"ca.crt", "tls.crt", "tls.key"}

// certificatesIn reads ca.crt, tls.crt and tls.key from dir. If none of them exists, it generates and writes
// them for hosts. With an empty dir it only generates them.
func certificatesIn(dir string, hosts []string) (*Certificates, error) {
	if dir == "" {
		return makeCertificates(hosts)
	}
	var read [len(files)][]byte
	missing := 0
	for i, name := range files {
		data, err := os.ReadFile(filepath.Join(dir, name))
		if errors.Is(err, fs.ErrNotExist) {
			missing++
			continue
		}
		if err != nil {
			return nil, err
		}
		read[i] = data
	}
	switch missing {
	case 0:
		return &Certificates{CA: read[0], Cert: read[1], Key: read[2]}, nil
	case len(files):
	default:
		return nil, fmt.Errorf("certificate directory %q has some of %v but not all: give all three, or none so that the program creates them", dir, files)
	}
	c, err := makeCertificates(hosts)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	for i, data := range [...][]byte{c.CA, c.Cert, c.Key} {
		if err := os.WriteFile(filepath.Join(dir, files[i]), data, 0o600); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// makeCertificates generates a certificate authority and a serving certificate for hosts, each a DNS name or an
// IP address. The key of the authority is discarded.
func makeCertificates(hosts []string) (*Certificates, error) {
	now := time.Now()
	ca := &x509.Certificate{
		SerialNumber:          big.NewInt(1),
		Subject:               pkix.Name{CommonName: "podpolicy-ca"},
		NotBefore:             now.Add(-time.Minute),
		NotAfter:              now.Add(validity),
		KeyUsage:              x509.KeyUsageCertSign,
		BasicConstraintsValid: true,
		IsCA:                  true,
	}
	caKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	caDER, err := x509.CreateCertificate(rand.Reader, ca, ca, caKey.Public(), caKey)
	if err != nil {
		return nil, err
	}
	leaf := &x509.Certificate{
		SerialNumber: big.NewInt(2),
		Subject:      pkix.Name{CommonName: "podpolicy"},
		NotBefore:    ca.NotBefore,
		NotAfter:     ca.NotAfter,
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	for _, host := range hosts {
		if ip := net.ParseIP(host); ip != nil {
			leaf.IPAddresses = append(leaf.IPAddresses, ip)
		} else {
			leaf.DNSNames = append(leaf.DNSNames, host)
		}
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	der, err := x509.CreateCertificate(rand.Reader, leaf, ca, key.Public(), caKey)
	if err != nil {
		return nil, err
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	return &Certificates{
		CA:   pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: caDER}),
		Cert: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		Key:  pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER}),
	}, nil
}

// serve returns the option that makes a TLS server present the certificate.
func (c *Certificates) serve() (func(*tls.Config), error) {
	pair, err := tls.X509KeyPair(c.Cert, c.Key)
	if err != nil {
		return nil, fmt.Errorf("serving certificate: %w", err)
	}
	return func(config *tls.Config) {
		config.GetCertificate = func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return &pair, nil }
	}, nil
}
