package keys

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/apiserver/pkg/storage/value"
	certutil "k8s.io/client-go/util/cert"

	"github.com/gatehouse-dev/gatehouse/internal/kit/files"
)

// Phase is a step of a Rotation. Each server applies a phase before the next one begins.
type Phase string

// The phases, in their order.
const (
	// In PhaseTrust the servers trust new CAs and keys in addition to the old ones.
	PhaseTrust Phase = "trust"
	// In PhaseUse the servers sign with the new keys. Certificates of the old CAs stay valid, and new
	// certificates are also valid for clients that trust the old CAs only.
	PhaseUse Phase = "use"
	// PhaseForget ends the trust in the old CAs and keys.
	PhaseForget Phase = "forget"
	// In PhaseStore a server stores the new CAs and keys in place of the old ones.
	PhaseStore Phase = "store"
	// PhaseRestart waits for restarts: etcd reads the CA of other members when a server starts.
	PhaseRestart Phase = "restart"
)

// Rotation is the state in etcd of a replacement of the keys that the servers of a cluster share.
type Rotation struct {
	ID      string    `json:"id"`
	Phase   Phase     `json:"phase"`
	Started time.Time `json:"started"`
	// EndTokens invalidates tokens that the old key has signed, with PhaseForget. Otherwise they stay valid until they
	// expire.
	EndTokens bool `json:"endTokens,omitempty"`

	revision int64
}

// State names the phase of a rotation. It is empty without one.
func (r *Rotation) State() string {
	if r == nil {
		return ""
	}
	return r.ID + "/" + string(r.Phase)
}

// ReadRotation reads the rotation at a key in etcd; nil if there is none.
func ReadRotation(ctx context.Context, kv clientv3.KV, key string) (*Rotation, error) {
	found, err := kv.Get(ctx, key)
	if err != nil || len(found.Kvs) == 0 {
		return nil, err
	}
	r := &Rotation{revision: found.Kvs[0].ModRevision}
	if err := json.Unmarshal(found.Kvs[0].Value, r); err != nil {
		return nil, fmt.Errorf("%s in etcd: %w", key, err)
	}
	return r, nil
}

// ErrOtherRotation is the error of a change of a rotation that another process has changed meanwhile.
var ErrOtherRotation = errors.New("another process changes the keys of the cluster: run the command again")

// Set changes the rotation at a key from the state in which r was read, or begins it. Phase "" ends it.
func (r *Rotation) Set(ctx context.Context, kv clientv3.KV, key string) error {
	then := clientv3.OpDelete(key)
	if r.Phase != "" {
		text, err := json.Marshal(r)
		if err != nil {
			return err
		}
		then = clientv3.OpPut(key, string(text))
	}
	done, err := kv.Txn(ctx).If(clientv3.Compare(clientv3.ModRevision(key), "=", r.revision)).Then(then).Commit()
	if err != nil {
		return err
	}
	if !done.Succeeded {
		return ErrOtherRotation
	}
	r.revision = done.Header.Revision
	return nil
}

// The names of pairs that servers share.
const (
	clientCA, tokenPair, proxiesCA = "ca", "service-account", "front-proxy-ca"
	nextSuffix                     = ".next"
)

// sharedNames are all of them.
var sharedNames = []string{clientCA, tokenPair, proxiesCA, peersCA}

// authority is a pair that servers share, in the current phase of a rotation.
type authority struct {
	// pair signs.
	*pair
	// trusted has the certificate of pair first, and then the other trusted certificates.
	trusted []*x509.Certificate
	// previous signs the certificate of pair for clients that trust the previous CA only; nil for
	// none.
	previous *pair
}

func alone(p *pair) *authority { return &authority{pair: p, trusted: []*x509.Certificate{p.cert}} }

// errRotated is the error of keys that were replaced while they were read.
var errRotated = errors.New("the keys that the servers share are being replaced")

// rotation reads the rotation; nil if there is none.
func (s *Shared) rotation(ctx context.Context) (*Rotation, error) {
	if s == nil || s.RotationKey == "" {
		return nil, nil
	}
	return ReadRotation(ctx, s.Etcd, s.RotationKey)
}

// authority returns a pair in a phase of a rotation.
func (s *Shared) authority(ctx context.Context, r *Rotation, name string, make func() (*pair, error)) (*authority, error) {
	now, err := s.load(ctx, name, make)
	if err != nil {
		return nil, err
	}
	a := &authority{pair: now, trusted: append([]*x509.Certificate{now.cert}, now.others...)}
	if r == nil || r.Phase == PhaseRestart {
		return a, nil
	}
	next, err := s.next(ctx, r, name)
	if err != nil {
		return nil, err
	}
	switch r.Phase {
	case PhaseTrust:
		a.trusted = append(a.trusted, next.cert)
		return a, nil
	case PhaseUse:
		return &authority{next, append([]*x509.Certificate{next.cert}, a.trusted...), now}, nil
	case PhaseForget, PhaseStore:
		return &authority{pair: next, trusted: append([]*x509.Certificate{next.cert}, r.keeps(name, a)...)}, nil
	}
	return nil, fmt.Errorf("the keys of the cluster are in the phase %q of a rotation, which this version does not know", r.Phase)
}

// keeps returns the old certificates that are still trusted, to verify tokens.
func (r *Rotation) keeps(name string, old *authority) []*x509.Certificate {
	if name != tokenPair || r.EndTokens {
		return nil
	}
	return old.trusted
}

// next returns the pair that replaces the current one. In PhaseTrust, the first server makes it.
func (s *Shared) next(ctx context.Context, r *Rotation, name string) (*pair, error) {
	key := path.Join(s.Prefix, name+nextSuffix)
	found, err := s.Etcd.Get(ctx, key)
	if err != nil {
		return nil, fmt.Errorf("reading %s, which the servers share, from etcd: %w", name, err)
	}
	if len(found.Kvs) > 0 {
		return s.read(ctx, found.Kvs[0])
	}
	if r.Phase != PhaseTrust {
		return nil, errRotated
	}
	var p *pair
	commonName := map[string]string{clientCA: ownCA, peersCA: "gatehouse-peer-ca", proxiesCA: proxiesCA}[name]
	if name == tokenPair {
		p, err = create(leaf(pkix.Name{CommonName: "service-account-tokens"}, nil, x509.ExtKeyUsageAny), nil)
	} else {
		// Clients tell the two CAs apart by their names.
		p, err = newCA(commonName + "-" + r.ID)
	}
	if err != nil {
		return nil, err
	}
	stored, err := s.encode(ctx, key, p, nil)
	if err != nil {
		return nil, err
	}
	done, err := s.Etcd.Txn(ctx).
		If(clientv3.Compare(clientv3.CreateRevision(key), "=", 0), clientv3.Compare(clientv3.ModRevision(s.RotationKey), "=", r.revision)).
		Then(clientv3.OpPut(key, stored)).
		Commit()
	switch {
	case err != nil:
		return nil, fmt.Errorf("writing %s, which the servers share, to etcd: %w", name, err)
	case !done.Succeeded:
		return nil, errRotated
	}
	return p, nil
}

// encode returns the stored form of a pair, with further certificates that are trusted in its place.
func (s *Shared) encode(ctx context.Context, key string, p *pair, others []*x509.Certificate) (string, error) {
	further, err := certutil.EncodeCertificates(others...)
	if err != nil {
		return "", err
	}
	stored, err := s.Values.TransformToStorage(ctx, bytes.Join([][]byte{p.certPEM, further, p.keyPEM}, nil), value.DefaultContext(key))
	if err != nil {
		return "", fmt.Errorf("encrypting %s, which the servers share: %w", key, err)
	}
	return string(stored), nil
}

// Store stores the new pairs in place of the old ones, in PhaseStore. Several servers may do so at once.
func (s *Shared) Store(ctx context.Context, r *Rotation) error {
	var ops []clientv3.Op
	for _, name := range sharedNames {
		key := path.Join(s.Prefix, name)
		found, err := s.Etcd.Get(ctx, key)
		if err != nil {
			return err
		}
		if len(found.Kvs) == 0 {
			// The administrator makes the certificates of members.
			continue
		}
		now, err := s.read(ctx, found.Kvs[0])
		if err != nil {
			return err
		}
		next, err := s.next(ctx, r, name)
		if errors.Is(err, errRotated) {
			// Another server has stored them.
			return nil
		}
		if err != nil {
			return err
		}
		old := &authority{pair: now, trusted: append([]*x509.Certificate{now.cert}, now.others...)}
		stored, err := s.encode(ctx, key, next, r.keeps(name, old))
		if err != nil {
			return err
		}
		ops = append(ops, clientv3.OpPut(key, stored), clientv3.OpDelete(key+nextSuffix))
	}
	done := *r
	done.Phase = PhaseRestart
	text, err := json.Marshal(done)
	if err != nil {
		return err
	}
	_, err = s.Etcd.Txn(ctx).
		If(clientv3.Compare(clientv3.ModRevision(s.RotationKey), "=", r.revision)).
		Then(append(ops, clientv3.OpPut(s.RotationKey, string(text)))...).
		Commit()
	return err
}

// loadShared is loadOrMake for a pair that is never renewed. When shared is set, all servers have the same pair, and dir
// has a copy.
func loadShared(ctx context.Context, shared *Shared, r *Rotation, to Files, dir, name string, make func() (*pair, error)) (*authority, error) {
	if shared == nil {
		p, err := loadOrMake(to, dir, name, nil, make, func(*x509.Certificate) bool { return true })
		if err != nil {
			return nil, err
		}
		return alone(p), nil
	}
	certFile, keyFile := pairFiles(dir, name)
	own, err := loadOrAbsent(certFile, keyFile)
	if err != nil {
		return nil, err
	}
	a, err := shared.authority(ctx, r, name, func() (*pair, error) {
		if own != nil {
			return own, nil
		}
		return make()
	})
	if err != nil {
		return nil, err
	}
	if own != nil && own.cert.Equal(a.cert) && own.key.Equal(a.key) {
		return a, nil
	}
	return a, store(to, certFile, keyFile, a.pair)
}

// writeTrust writes the certificates that are trusted into a file, unless it has them.
func (a *authority) writeTrust(to Files, file string) ([]byte, error) {
	text, err := certutil.EncodeCertificates(a.trusted...)
	if err != nil {
		return nil, err
	}
	if now, err := files.Read(file, files.Configuration); err == nil && bytes.Equal(now, text) {
		return text, nil
	}
	return text, to.Write(file, text, 0o644)
}

// chain returns the certificate of the CA that the previous CA has signed. It follows certificates for clients that
// trust the previous CA only. It is in a file of dir. It is nil when there is no previous CA.
func (a *authority) chain(to Files, dir, name string) ([]byte, error) {
	if a.previous == nil {
		return nil, nil
	}
	file := crossFile(dir, name)
	if text, cert := readCross(file, a.cert); text != nil && cert.CheckSignatureFrom(a.previous.cert) == nil {
		return text, nil
	}
	template := &x509.Certificate{
		Subject: a.cert.Subject, NotBefore: a.cert.NotBefore, NotAfter: a.cert.NotAfter, KeyUsage: a.cert.KeyUsage,
		BasicConstraintsValid: true, IsCA: true, SubjectKeyId: a.cert.SubjectKeyId,
	}
	var err error
	if template.SerialNumber, err = rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120)); err != nil {
		return nil, err
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.previous.cert, &a.key.PublicKey, a.previous.key)
	if err != nil {
		return nil, err
	}
	text := pem.EncodeToMemory(&pem.Block{Type: certutil.CertificateBlockType, Bytes: der})
	return text, to.Write(file, text, 0o644)
}

func crossFile(dir, name string) string { return filepath.Join(dir, name+"-cross.crt") }

// readCross reads the certificate of a CA that another CA has signed; nil if it is of another CA or absent.
func readCross(file string, of *x509.Certificate) ([]byte, *x509.Certificate) {
	text, err := files.Read(file, files.Configuration)
	if err != nil {
		return nil, nil
	}
	certs, err := certutil.ParseCertsPEM(text)
	if err != nil || !bytes.Equal(certs[0].RawSubjectPublicKeyInfo, of.RawSubjectPublicKeyInfo) {
		return nil, nil
	}
	return text, certs[0]
}

// publicKeys returns the keys of trusted certificates.
func (a *authority) publicKeys() []any {
	var keys []any
	for _, c := range a.trusted {
		keys = append(keys, c.PublicKey)
	}
	return slices.Clip(keys)
}

// Without removes from PEM certificates the CAs that a cluster made and no longer trusts. It recognizes them by their
// names.
func Without(all, trusted string) (string, error) {
	have, err := certutil.ParseCertsPEM([]byte(all))
	if err != nil {
		return "", err
	}
	keep, err := certutil.ParseCertsPEM([]byte(trusted))
	if err != nil {
		return "", err
	}
	have = slices.DeleteFunc(have, func(c *x509.Certificate) bool {
		made := slices.ContainsFunc([]string{ownCA, proxiesCA}, func(name string) bool {
			return c.Subject.CommonName == name || strings.HasPrefix(c.Subject.CommonName, name+"-")
		})
		return made && !slices.ContainsFunc(keep, c.Equal)
	})
	text, err := certutil.EncodeCertificates(have...)
	return string(text), err
}
