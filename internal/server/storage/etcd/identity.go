package etcd

import (
	"context"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"path"
	"slices"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/etcdserver/api/membership"
)

// maxIdentities bounds the records that a member reads at once. A cluster has a handful of members.
const maxIdentities = 1000

// Identity is the record in etcd of the keys of one member. Members accept connections with these keys only: each
// member has the key of the CA, so a certificate alone proves nothing.
type Identity struct {
	Name string `json:"name"`
	// URL is the peer URL of a member that joins: etcd learns its name when it starts. It is empty after that.
	URL string `json:"url,omitempty"`
	// Keys are hashes of public keys (KeyHash): more than one while the key is being replaced.
	Keys []string `json:"keys"`
}

// KeyHash is the hash of a public key in DER.
func KeyHash(public []byte) string {
	hash := sha256.Sum256(public)
	return hex.EncodeToString(hash[:])
}

func hashOf(cert *x509.Certificate) string { return KeyHash(cert.RawSubjectPublicKeyInfo) }

// of reports whether the record is about a member of etcd.
func (i *Identity) of(m *membership.Member) bool {
	return i.Name == m.Name || m.Name == "" && i.URL != "" && slices.Contains(m.PeerURLs, i.URL)
}

func identityKey(prefix, name string) string { return identities(prefix) + name }

// identities is the prefix of the keys of all records below a prefix.
func identities(prefix string) string { return path.Join(prefix, "keys") + "/" }

func readIdentity(kv *mvccpb.KeyValue) (*Identity, error) {
	i := &Identity{}
	if err := json.Unmarshal(kv.Value, i); err != nil {
		return nil, fmt.Errorf("%s in etcd: %w", kv.Key, err)
	}
	return i, nil
}

// PutJoining replaces the record of a member that joins, and deletes records of servers that never started at its
// URL.
func PutJoining(ctx context.Context, kv clientv3.KV, prefix string, i Identity) error {
	found, err := kv.Get(ctx, identities(prefix), clientv3.WithPrefix(), clientv3.WithLimit(maxIdentities))
	if err != nil {
		return err
	}
	for _, stored := range found.Kvs {
		other, err := readIdentity(stored)
		if err != nil {
			return err
		}
		if other.URL != i.URL || other.Name == i.Name {
			continue
		}
		if err := DeleteIdentity(ctx, kv, prefix, other.Name); err != nil {
			return err
		}
	}
	value, err := json.Marshal(i)
	if err == nil {
		_, err = kv.Put(ctx, identityKey(prefix, i.Name), string(value))
	}
	return err
}

// DeleteIdentity deletes the record of a member that was removed.
func DeleteIdentity(ctx context.Context, kv clientv3.KV, prefix, name string) error {
	if name == "" {
		return nil
	}
	_, err := kv.Delete(ctx, identityKey(prefix, name))
	return err
}

// addKey adds a key to the record of a member that has started, if the record does not have the key.
func addKey(ctx context.Context, kv clientv3.KV, prefix, name, hash string) error {
	key := identityKey(prefix, name)
	for {
		found, err := kv.Get(ctx, key)
		if err != nil {
			return err
		}
		known, revision := &Identity{Name: name}, int64(0)
		if len(found.Kvs) > 0 {
			revision = found.Kvs[0].ModRevision
			if known, err = readIdentity(found.Kvs[0]); err != nil {
				return err
			}
		}
		if slices.Contains(known.Keys, hash) {
			if known.URL == "" {
				return nil
			}
		} else {
			known.Keys = append(known.Keys, hash)
		}
		known.URL = ""
		value, err := json.Marshal(known)
		if err != nil {
			return err
		}
		done, err := kv.Txn(ctx).If(clientv3.Compare(clientv3.ModRevision(key), "=", revision)).Then(clientv3.OpPut(key, string(value))).Commit()
		if err != nil || done.Succeeded {
			return err
		}
	}
}
