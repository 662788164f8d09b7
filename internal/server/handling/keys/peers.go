package keys

import (
	"context"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"os"
	"path/filepath"
	"time"

	certutil "k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"

	"github.com/gatehouse-dev/gatehouse/internal/kit/files"
)

// Peers are the certificates with which the members of one etcd authenticate each other, in a data
// directory. Their CA signs nothing else. Each member has the key of the CA, and signs the
// certificates of servers that join.
type Peers struct {
	// CAFile has the CAs that are trusted. CertFile and KeyFile are the certificate of this member,
	// for connections in both directions.
	CAFile, CertFile, KeyFile string

	dir   string
	files Files
}

// peersCA is the name of the CA of members.
const peersCA = "peer-ca"

// NewPeers names the files in the directory of certificates.
func NewPeers(files Files, dir string) *Peers {
	at := func(name string) string { return filepath.Join(dir, name) }
	return &Peers{CAFile: at("peer-trust.crt"), CertFile: at("peer.crt"), KeyFile: at("peer.key"), dir: dir, files: files}
}

// Prepare makes the CA if there is none, and the certificate of this member for a host if there is none that is
// valid for the next month. A member that has joined and does not have the key of the CA yet keeps its certificate.
func (p *Peers) Prepare(host string) error {
	if err := os.MkdirAll(p.dir, 0o700); err != nil {
		return fmt.Errorf("certificates: %w", err)
	}
	_, noTrust := os.Stat(p.CAFile)
	_, noKey := os.Stat(filepath.Join(p.dir, peersCA+".key"))
	if noTrust == nil && errors.Is(noKey, fs.ErrNotExist) {
		_, err := load(p.CertFile, p.KeyFile)
		return err
	}
	ca, err := loadOrMake(p.files, p.dir, peersCA, nil, func() (*pair, error) { return newCA("gatehouse-peer-ca") }, func(*x509.Certificate) bool { return true })
	if err != nil {
		return err
	}
	if noTrust != nil {
		if err := p.files.Write(p.CAFile, ca.certPEM, 0o644); err != nil {
			return err
		}
	}
	own, err := load(p.CertFile, p.KeyFile)
	if err == nil && covers(own.cert, []string{host}) && time.Until(own.cert.NotAfter) > renewBefore && own.cert.CheckSignatureFrom(ca.cert) == nil {
		return nil
	}
	request, err := p.Request()
	if err != nil {
		return err
	}
	cert, _, err := p.Sign(request, host)
	if err != nil {
		return err
	}
	return p.files.Write(p.CertFile, cert, 0o644)
}

// Request returns a request for a certificate, in PEM. It makes the key of this member if there is none. The key
// does not leave this machine.
func (p *Peers) Request() ([]byte, error) {
	if err := os.MkdirAll(p.dir, 0o700); err != nil {
		return nil, fmt.Errorf("certificates: %w", err)
	}
	text, err := files.Read(p.KeyFile, files.Configuration)
	if errors.Is(err, fs.ErrNotExist) {
		if text, err = keyutil.MakeEllipticPrivateKeyPEM(); err == nil {
			err = p.files.Write(p.KeyFile, text, 0o600)
		}
	}
	if err != nil {
		return nil, err
	}
	key, err := keyutil.ParsePrivateKeyPEM(text)
	if err != nil {
		return nil, fmt.Errorf("%s has no key: remove it, and the server makes another one", p.KeyFile)
	}
	return certutil.MakeCSR(key, &pkix.Name{CommonName: "gatehouse-member"}, nil, nil)
}

// ErrRequest is wrapped by the errors of ReadRequest.
var ErrRequest = errors.New("not a request for a certificate")

// ReadRequest returns the public key of a certificate request, in DER, and checks that the sender of
// the request has the private key.
func ReadRequest(request []byte) (public []byte, err error) {
	block, _ := pem.Decode(request)
	if block == nil || block.Type != certutil.CertificateRequestBlockType {
		return nil, ErrRequest
	}
	parsed, err := x509.ParseCertificateRequest(block.Bytes)
	if err == nil {
		err = parsed.CheckSignature()
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrRequest, err)
	}
	return parsed.RawSubjectPublicKeyInfo, nil
}

// Sign makes the certificate of a member that other members reach at a host. It uses only the key of the
// request. trust has the CAs that members trust.
func (p *Peers) Sign(request []byte, host string) (cert, trust []byte, err error) {
	public, err := ReadRequest(request)
	if err != nil {
		return nil, nil, err
	}
	key, err := x509.ParsePKIXPublicKey(public)
	if err != nil {
		return nil, nil, fmt.Errorf("%w: %w", ErrRequest, err)
	}
	ca, err := load(filepath.Join(p.dir, peersCA+".crt"), filepath.Join(p.dir, peersCA+".key"))
	if err != nil {
		return nil, nil, err
	}
	if trust, err = files.Read(p.CAFile, files.Configuration); err != nil {
		return nil, nil, err
	}
	template := leaf(pkix.Name{CommonName: "gatehouse-member"}, []string{host}, x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth)
	template.NotBefore = time.Now().Add(-time.Hour)
	if template.SerialNumber, err = rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120)); err != nil {
		return nil, nil, err
	}
	der, err := x509.CreateCertificate(rand.Reader, template, ca.cert, key, ca.key)
	cert = pem.EncodeToMemory(&pem.Block{Type: certutil.CertificateBlockType, Bytes: der})
	// Members that have not started since the CA was replaced trust the previous one only when they connect to others.
	cross, _ := readCross(crossFile(p.dir, peersCA), ca.cert)
	return append(cert, cross...), trust, err
}

// Accept keeps the certificate that a member has signed, and the CAs that members trust.
func (p *Peers) Accept(cert, trust []byte) error {
	key, err := files.Read(p.KeyFile, files.Configuration)
	if err != nil {
		return err
	}
	if _, err := parsePair(cert, key); err != nil {
		return fmt.Errorf("the certificate that came: %w", err)
	}
	if !x509.NewCertPool().AppendCertsFromPEM(trust) {
		return errors.New("no CA certificate came")
	}
	if err := p.files.Write(p.CertFile, cert, 0o644); err != nil {
		return err
	}
	return p.files.Write(p.CAFile, trust, 0o644)
}

// Share stores the CA for the other members, or loads the stored one. It does so in the phase of the rotation in which
// the other keys were loaded.
func (p *Peers) Share(ctx context.Context, shared *Shared, r *Rotation) error {
	a, err := loadShared(ctx, shared, r, p.files, p.dir, peersCA, func() (*pair, error) {
		return nil, errors.New("the key of the members' CA is neither in etcd nor in the data directory")
	})
	if err != nil {
		return err
	}
	if _, err := a.writeTrust(p.files, p.CAFile); err != nil {
		return err
	}
	_, err = a.chain(p.files, p.dir, peersCA)
	return err
}
