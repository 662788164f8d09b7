package server

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"path"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	"k8s.io/klog/v2"

	"github.com/gatehouse-dev/gatehouse/internal/kit/files"
	"github.com/gatehouse-dev/gatehouse/internal/server/handling/keys"
	"github.com/gatehouse-dev/gatehouse/internal/server/handling/tokens"
	"github.com/gatehouse-dev/gatehouse/internal/server/judging/fresh"
	"github.com/gatehouse-dev/gatehouse/internal/server/storage/members"
)

// RotationKey is the key of the rotation of the keys of a cluster (keys.Rotation), in an etcd whose keys have a prefix.
func RotationKey(etcdPrefix string) string { return path.Join(ClusterKeys(etcdPrefix), "rotation") }

// rotateAgain is the time between a failed attempt to apply a phase of a rotation and the next one, and rotateCheck how
// often a server checks the phase in any case.
const rotateAgain, rotateCheck = time.Second, time.Minute

// rotation replaces the keys that the servers of a cluster share while the server runs.
type rotation struct {
	// shared is where the keys are; nil for a server alone.
	shared *keys.Shared
	// state is nil for a server that is not a member.
	state atomic.Pointer[rotationState]
}

type rotationState struct {
	// applied is the phase of the loaded keys, and trusted a hash of the CAs that etcd read at its start.
	applied, trusted string
}

// loadKeys reads the keys in the current phase, and makes new connections use them.
func (r *reachable) loadKeys(ctx context.Context) (*keys.PKI, error) {
	s, v := r.settings, r.serving
	pki, err := keys.LoadPKI(ctx, s.files(), s.pkiDir(), s.hosts(v.advertised), r.rotation.shared)
	if err != nil {
		return nil, err
	}
	if s.member != nil {
		if s.PeerCertFile == "" {
			if r.db.trusted == "" {
				r.db.trusted = s.peersTrusted()
			}
			if err := s.peers().Share(ctx, r.rotation.shared, pki.Rotation); err != nil {
				return nil, err
			}
			if err := s.preparePeers(); err != nil {
				return nil, err
			}
		}
		if err := v.members.renew(pki); err != nil {
			return nil, err
		}
	}
	v.keys.Store(pki)
	return pki, nil
}

// peersTrusted is a hash of the CAs of members that are trusted.
func (s *settings) peersTrusted() string {
	if s.PeerCertFile != "" {
		return ""
	}
	data, err := files.Read(s.peers().CAFile, files.Configuration)
	if err != nil {
		return ""
	}
	hash := sha256.Sum256(data)
	return hex.EncodeToString(hash[:])
}

// written signals the writes of a key in etcd, until ctx ends. end waits for the watch.
func (c *controlled) written(ctx context.Context, key string) (writes <-chan struct{}, end func()) {
	signal := make(chan struct{}, 1)
	var watching sync.WaitGroup
	watching.Go(func() {
		fresh.WatchBelow(ctx, c.db.client.Client, key, func(string) {
			select {
			case signal <- struct{}{}:
			default:
			}
		})
	})
	return signal, watching.Wait
}

// followRotation applies each phase of a rotation, until ctx ends.
func (c *controlled) followRotation(ctx context.Context) {
	changed, end := c.written(ctx, RotationKey(c.settings.EtcdPrefix))
	defer end()
	wait := rotateCheck
	for {
		select {
		case <-changed:
		case <-time.After(wait):
		case <-ctx.Done():
			return
		}
		wait = rotateCheck
		if err := c.rotate(ctx); err != nil && ctx.Err() == nil {
			klog.ErrorS(err, "Cannot replace the keys that the servers share; will retry")
			wait = rotateAgain
		}
	}
}

// rotate applies the current phase of the rotation, if it has changed.
func (c *controlled) rotate(ctx context.Context) error {
	before := c.rotation.state.Load()
	now, err := keys.ReadRotation(ctx, c.db.client.KV, c.rotation.shared.RotationKey)
	if err != nil {
		return err
	}
	if now.State() != before.applied {
		pki, err := c.loadKeys(ctx)
		if err != nil {
			return err
		}
		v := c.serving
		if err := v.tokens.Replace(tokens.Own{Key: pki.TokenKey, Public: pki.TokenKeys}); err != nil {
			return err
		}
		for _, file := range v.own {
			if err := file.RunOnce(ctx); err != nil {
				return err
			}
		}
		if err := v.saveKubeconfig(c.settings); err != nil {
			return err
		}
		c.controllers.RootChanged()
		now = pki.Rotation
		c.rotation.state.Store(&rotationState{now.State(), before.trusted})
		klog.InfoS("The keys that the servers share are in another phase", "phase", cmp.Or(now.State(), "none"))
	}
	if now != nil && now.Phase == keys.PhaseStore {
		return c.rotation.shared.Store(ctx, now)
	}
	return nil
}

// memberCert is the certificate for connections of servers that join, whatever certificate other clients get.
type memberCert struct{ content atomic.Pointer[[2][]byte] }

func (m *memberCert) renew(pki *keys.PKI) error {
	cert, key, err := pki.Serving(members.ServerName)
	if err != nil {
		return fmt.Errorf("certificate for servers that join: %w", err)
	}
	m.content.Store(&[2][]byte{cert, key})
	return nil
}

// AddListener implements dynamiccertificates.Notifier. The server reads the certificate every minute.
func (m *memberCert) AddListener(dynamiccertificates.Listener) {}

// Name implements dynamiccertificates.CertKeyContentProvider.
func (m *memberCert) Name() string { return "members" }

// CurrentCertKeyContent implements dynamiccertificates.CertKeyContentProvider.
func (m *memberCert) CurrentCertKeyContent() (cert, key []byte) {
	c := m.content.Load()
	return c[0], c[1]
}

// SNINames implements dynamiccertificates.SNICertKeyContentProvider.
func (m *memberCert) SNINames() []string { return []string{members.ServerName} }
