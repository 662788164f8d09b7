package keys

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"slices"
	"time"

	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	certutil "k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"

	"github.com/gatehouse-dev/gatehouse/internal/kit/files"
)

// PKI is the server's own CA and the certificates that it signed. It is in the data directory and
// is made once. Servers on one external etcd share the CA in etcd. Leaf certificates are renewed
// when they are about to expire or the addresses changed.
type PKI struct {
	// CAFile and CAKeyFile are the CA that signs, and ServerCertFile and ServerKeyFile the serving certificate, as PEM
	// files. TrustFile has the CAs that are trusted: two while the keys are replaced (Rotation).
	CAFile, CAKeyFile, TrustFile, ServerCertFile, ServerKeyFile string
	// CA is the content of TrustFile.
	CA []byte
	// AdminCert and AdminKey are a client certificate of group system:masters.
	AdminCert, AdminKey []byte
	// TokenKey signs the tokens of service accounts. TokenKeys are public keys that verify them, its own first.
	TokenKey  crypto.Signer
	TokenKeys []any
	// Rotation is the phase of a rotation that the keys are in (Rotation.State).
	Rotation *Rotation
	// FrontProxyCertFile and FrontProxyKeyFile are the client certificate of this server for aggregated
	// servers. FrontProxyCAFile has the CAs that may have signed it. This CA signs nothing else: a
	// client with a certificate of it may name any user in headers.
	FrontProxyCAFile, FrontProxyCertFile, FrontProxyKeyFile string
}

// FrontProxyName is the common name of the certificate in FrontProxyCertFile, as in other clusters.
const FrontProxyName = "front-proxy-client"

const (
	caLifetime   = 10 * 365 * 24 * time.Hour
	leafLifetime = 365 * 24 * time.Hour
	// renewBefore is how long before its end a leaf certificate is replaced when a server starts.
	renewBefore = 30 * 24 * time.Hour
)

// LoadPKI reads the certificates in dir and makes missing ones. hosts are the names and addresses
// that the serving certificate is valid for. When shared is set, LoadPKI uses the CA and the token
// key that the servers share. The first server shares the CA and the key in its dir.
func LoadPKI(ctx context.Context, files Files, dir string, hosts []string, shared *Shared) (*PKI, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("certificates: %w", err)
	}
	for range rotatedTries {
		r, err := shared.rotation(ctx)
		if err != nil {
			return nil, fmt.Errorf("reading the phase of the keys that the servers share: %w", err)
		}
		p, err := loadPKI(ctx, files, dir, hosts, shared, r)
		if !errors.Is(err, errRotated) {
			return p, err
		}
	}
	return nil, errRotated
}

// rotatedTries bounds how often keys are read again that another server has replaced meanwhile.
const rotatedTries = 10

func loadPKI(ctx context.Context, files Files, dir string, hosts []string, shared *Shared, r *Rotation) (*PKI, error) {
	at := func(name string) string { return filepath.Join(dir, name) }
	ca, err := loadShared(ctx, shared, r, files, dir, clientCA, func() (*pair, error) { return newCA(ownCA) })
	if err != nil {
		return nil, err
	}
	now := time.Now()
	if now.Before(ca.cert.NotBefore) || now.After(ca.cert.NotAfter) {
		return nil, fmt.Errorf("the certificate authority %s is valid from %s to %s, and the clock says %s: set the clock, or remove the certificates in %s so that the server creates new ones, which changes the kubeconfig",
			at("ca.crt"), ca.cert.NotBefore.Format(time.RFC3339), ca.cert.NotAfter.Format(time.RFC3339), now.UTC().Format(time.RFC3339), dir)
	}
	signedBy := func(ca *authority, c *x509.Certificate) bool {
		return !now.Before(c.NotBefore) && c.NotAfter.Sub(now) > renewBefore && c.CheckSignatureFrom(ca.cert) == nil
	}
	fresh := func(c *x509.Certificate) bool { return signedBy(ca, c) }
	chain, err := ca.chain(files, dir, clientCA)
	if err != nil {
		return nil, err
	}
	_, err = loadOrMake(files, dir, "server", chain, func() (*pair, error) {
		return ca.sign(pkix.Name{CommonName: "gatehouse"}, x509.ExtKeyUsageServerAuth, hosts)
	}, func(c *x509.Certificate) bool { return fresh(c) && covers(c, hosts) })
	if err != nil {
		return nil, err
	}
	admin, err := loadOrMake(files, dir, "admin", nil, func() (*pair, error) {
		return ca.sign(pkix.Name{CommonName: "gatehouse-admin", Organization: []string{"system:masters"}}, x509.ExtKeyUsageClientAuth, nil)
	}, fresh)
	if err != nil {
		return nil, err
	}
	tokens, err := loadShared(ctx, shared, r, files, dir, tokenPair, func() (*pair, error) {
		return ca.sign(pkix.Name{CommonName: "service-account-tokens"}, x509.ExtKeyUsageAny, nil)
	})
	if err != nil {
		return nil, err
	}
	frontCA, err := loadShared(ctx, shared, r, files, dir, proxiesCA, func() (*pair, error) { return newCA(proxiesCA) })
	if err != nil {
		return nil, err
	}
	if chain, err = frontCA.chain(files, dir, proxiesCA); err != nil {
		return nil, err
	}
	if _, err = loadOrMake(files, dir, FrontProxyName, chain, func() (*pair, error) {
		return frontCA.sign(pkix.Name{CommonName: FrontProxyName}, x509.ExtKeyUsageClientAuth, nil)
	}, func(c *x509.Certificate) bool { return signedBy(frontCA, c) }); err != nil {
		return nil, err
	}
	p := &PKI{
		FrontProxyCAFile:   at(FrontProxyTrustName),
		FrontProxyCertFile: at(FrontProxyName + ".crt"),
		FrontProxyKeyFile:  at(FrontProxyName + ".key"),

		CAFile:         at("ca.crt"),
		CAKeyFile:      at("ca.key"),
		TrustFile:      at(TrustName),
		ServerCertFile: at("server.crt"),
		ServerKeyFile:  at("server.key"),
		AdminCert:      admin.certPEM,
		AdminKey:       admin.keyPEM,
		TokenKey:       tokens.key,
		TokenKeys:      tokens.publicKeys(),
		Rotation:       r,
	}
	if _, err := frontCA.writeTrust(files, p.FrontProxyCAFile); err != nil {
		return nil, err
	}
	p.CA, err = ca.writeTrust(files, p.TrustFile)
	return p, err
}

// The names of the files with the CAs that clients and aggregated servers trust.
const (
	TrustName           = "ca-trust.crt"
	FrontProxyTrustName = "front-proxy-ca-trust.crt"
)

// Serving makes a certificate for a name that the CA of this server signs. The CA's own certificate follows it.
func (p *PKI) Serving(name string) (certPEM, keyPEM []byte, err error) {
	ca, err := load(p.CAFile, p.CAKeyFile)
	if err != nil {
		return nil, nil, err
	}
	own, err := ca.sign(pkix.Name{CommonName: name}, x509.ExtKeyUsageServerAuth, []string{name})
	if err != nil {
		return nil, nil, err
	}
	chain := append(own.certPEM, ca.certPEM...)
	// A server that joins with a token from before the keys were replaced trusts the previous CA only.
	if cross, _ := readCross(crossFile(filepath.Dir(p.CAFile), clientCA), ca.cert); cross != nil && p.Rotation != nil && p.Rotation.Phase == PhaseUse {
		chain = append(chain, cross...)
	}
	return chain, own.keyPEM, nil
}

// Kubeconfig is the admin's kubeconfig for a server at the URL.
func (p *PKI) Kubeconfig(url string, ca []byte) *clientcmdapi.Config {
	c := clientcmdapi.NewConfig()
	c.Clusters["gatehouse"] = &clientcmdapi.Cluster{Server: url, CertificateAuthorityData: ca}
	c.AuthInfos["gatehouse-admin"] = &clientcmdapi.AuthInfo{ClientCertificateData: p.AdminCert, ClientKeyData: p.AdminKey}
	c.Contexts["gatehouse"] = &clientcmdapi.Context{Cluster: "gatehouse", AuthInfo: "gatehouse-admin"}
	c.CurrentContext = "gatehouse"
	return c
}

// pair is a certificate and its key.
type pair struct {
	cert            *x509.Certificate
	key             *ecdsa.PrivateKey
	certPEM, keyPEM []byte
	// others are certificates that follow it in its file.
	others []*x509.Certificate
}

// pairFiles returns the files of a pair.
func pairFiles(dir, name string) (certFile, keyFile string) {
	return filepath.Join(dir, name+".crt"), filepath.Join(dir, name+".key")
}

// loadOrAbsent reads a pair; nil if there is none.
func loadOrAbsent(certFile, keyFile string) (*pair, error) {
	p, err := load(certFile, keyFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("%w; remove %s and %s so that the server creates new ones", err, certFile, keyFile)
	}
	return p, nil
}

// loadOrMake reads a pair, or makes one if there is no usable pair. chain follows its certificate in the file.
func loadOrMake(files Files, dir, name string, chain []byte, make func() (*pair, error), usable func(*x509.Certificate) bool) (*pair, error) {
	certFile, keyFile := pairFiles(dir, name)
	p, err := loadOrAbsent(certFile, keyFile)
	if err != nil {
		return nil, err
	}
	if p == nil || !usable(p.cert) {
		if p, err = make(); err != nil {
			return nil, fmt.Errorf("making certificate %s: %w", certFile, err)
		}
		p.certPEM = append(p.certPEM, chain...)
		return p, store(files, certFile, keyFile, p)
	}
	// During a replacement of the CA, the chain follows the certificate in the file. Write the file when that begins
	// or ends.
	if (len(p.others) > 0) != (len(chain) > 0) {
		return p, files.Write(certFile, append(slices.Clip(p.certPEM), chain...), 0o644)
	}
	return p, nil
}

// store writes a pair to files.
func store(files Files, certFile, keyFile string, p *pair) error {
	// The old certificate is removed before the new key is written, and the key is written before
	// its certificate: after a crash in between, the pair is incomplete and is made again.
	if err := os.Remove(certFile); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := files.Write(keyFile, p.keyPEM, 0o600); err != nil {
		return err
	}
	return files.Write(certFile, p.certPEM, 0o644)
}

func load(certFile, keyFile string) (*pair, error) {
	certPEM, err := files.Read(certFile, files.Configuration)
	if err != nil {
		return nil, err
	}
	keyPEM, err := files.Read(keyFile, files.Configuration)
	if err != nil {
		return nil, err
	}
	p, err := parsePair(certPEM, keyPEM)
	if err != nil {
		return nil, fmt.Errorf("%s and %s: %w", certFile, keyFile, err)
	}
	return p, nil
}

// parsePair reads a certificate and its key; other blocks are ignored, so that
// both may be in one text.
func parsePair(certPEM, keyPEM []byte) (*pair, error) {
	read, err := tls.X509KeyPair(certPEM, keyPEM)
	if err != nil {
		return nil, err
	}
	key, ok := read.PrivateKey.(*ecdsa.PrivateKey)
	if !ok {
		return nil, fmt.Errorf("the key is a %T, and not one of ECDSA", read.PrivateKey)
	}
	p, err := newPair(read.Leaf, key)
	if err != nil {
		return nil, err
	}
	for _, der := range read.Certificate[1:] {
		other, err := x509.ParseCertificate(der)
		if err != nil {
			return nil, err
		}
		p.others = append(p.others, other)
	}
	return p, nil
}

// newPair encodes a certificate and its key.
func newPair(cert *x509.Certificate, key *ecdsa.PrivateKey) (*pair, error) {
	certPEM, err := certutil.EncodeCertificates(cert)
	if err != nil {
		return nil, err
	}
	keyPEM, err := keyutil.MarshalPrivateKeyToPEM(key)
	return &pair{cert: cert, key: key, certPEM: certPEM, keyPEM: keyPEM}, err
}

// ownCA is the common name of the server's own CA.
const ownCA = "gatehouse-ca"

func newCA(commonName string, names ...string) (*pair, error) {
	template := &x509.Certificate{
		Subject:               pkix.Name{CommonName: commonName},
		NotAfter:              time.Now().Add(caLifetime),
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		BasicConstraintsValid: true,
		IsCA:                  true,
		DNSNames:              names,
	}
	return create(template, nil)
}

func (ca *pair) sign(subject pkix.Name, usage x509.ExtKeyUsage, hosts []string) (*pair, error) {
	return create(leaf(subject, hosts, usage), ca)
}

// leaf describes a certificate for hosts that signs no other certificates.
func leaf(subject pkix.Name, hosts []string, usages ...x509.ExtKeyUsage) *x509.Certificate {
	template := &x509.Certificate{
		Subject:     subject,
		NotAfter:    time.Now().Add(leafLifetime),
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: usages,
	}
	for _, h := range hosts {
		if ip := net.ParseIP(h); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, h)
		}
	}
	return template
}

// create makes a key and its certificate. ca signs the certificate; when ca is nil, the
// certificate is self-signed.
func create(template *x509.Certificate, ca *pair) (*pair, error) {
	// Clocks of clients may be behind.
	template.NotBefore = time.Now().Add(-time.Hour)
	return createAt(template, ca)
}

// createAt is create with a time at which validity begins.
func createAt(template *x509.Certificate, ca *pair) (*pair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	if template.SerialNumber, err = rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120)); err != nil {
		return nil, err
	}
	parent, signer := template, key
	if ca != nil {
		parent, signer = ca.cert, ca.key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
	if err != nil {
		return nil, err
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	return newPair(cert, key)
}

func covers(cert *x509.Certificate, hosts []string) bool {
	return !slices.ContainsFunc(hosts, func(h string) bool { return cert.VerifyHostname(h) != nil })
}

// Files writes files. The zero value waits until the files are on the disk.
type Files struct {
	// NoSync does not wait for the disk: a crash of the machine may lose the files.
	NoSync bool
}

// Write writes a file atomically: a reader sees either the old content or the new content.
func (o Files) Write(path string, data []byte, mode os.FileMode) error {
	if err := files.Replace(path, data, mode, !o.NoSync); err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	return nil
}
