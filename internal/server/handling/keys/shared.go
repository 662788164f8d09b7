package keys

import (
	"context"
	"errors"
	"fmt"
	"path"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"k8s.io/apiserver/pkg/storage/value"
	"k8s.io/klog/v2"
)

// Shared is a place for the keys that must be the same for all servers on one etcd: their CA, so
// that a client that trusts one of them trusts all, and the key that signs the tokens of service
// accounts.
//
// A client that can read these keys in etcd can act as any user, as with the tokens and
// certificates that Kubernetes keeps there, unless an EncryptionConfiguration encrypts Secrets.
type Shared struct {
	Etcd clientv3.KV
	// Prefix begins the keys.
	Prefix string
	// RotationKey is the key of the Rotation; empty if the keys are never replaced.
	RotationKey string
	// Values encrypts the keys on their way to etcd and decrypts them on the way back, like
	// Secrets.
	Values value.Transformer
}

// load returns the pair of a name. When there is none, it stores the pair that make returns, and
// returns it. When several servers do so at the same time, all get the pair of the first one.
func (s *Shared) load(ctx context.Context, name string, make func() (*pair, error)) (*pair, error) {
	key := path.Join(s.Prefix, name)
	found, err := s.Etcd.Get(ctx, key)
	if err != nil {
		return nil, fmt.Errorf("reading %s, which the servers share, from etcd: %w", name, err)
	}
	if len(found.Kvs) > 0 {
		return s.read(ctx, found.Kvs[0])
	}
	p, err := make()
	if err != nil {
		return nil, err
	}
	stored, err := s.encode(ctx, key, p, nil)
	if err != nil {
		return nil, err
	}
	response, err := s.Etcd.Txn(ctx).
		If(clientv3.Compare(clientv3.CreateRevision(key), "=", 0)).
		Then(clientv3.OpPut(key, stored)).
		Else(clientv3.OpGet(key)).
		Commit()
	if err != nil {
		return nil, fmt.Errorf("writing %s, which the servers share, to etcd: %w", name, err)
	}
	if response.Succeeded {
		return p, nil
	}
	kvs := response.Responses[0].GetResponseRange().Kvs
	if len(kvs) == 0 {
		return nil, fmt.Errorf("reading %s, which the servers share, from etcd: another process deleted it", name)
	}
	return s.read(ctx, kvs[0])
}

// read reads a stored pair. It encrypts the pair again if the configuration has a new key.
func (s *Shared) read(ctx context.Context, kv *mvccpb.KeyValue) (*pair, error) {
	key := value.DefaultContext(kv.Key)
	opened, stale, err := s.Values.TransformFromStorage(ctx, kv.Value, key)
	if err != nil {
		return nil, err
	}
	p, err := decodePair(string(kv.Key), opened)
	if err != nil || !stale {
		return p, err
	}
	stored, err := s.Values.TransformToStorage(ctx, opened, key)
	if err == nil {
		_, err = s.Etcd.Txn(ctx).
			If(clientv3.Compare(clientv3.ModRevision(string(kv.Key)), "=", kv.ModRevision)).
			Then(clientv3.OpPut(string(kv.Key), string(stored))).Commit()
	}
	if err != nil {
		klog.ErrorS(err, "Cannot encrypt a key that the servers share with the present configuration; the next start tries again", "key", string(kv.Key))
	}
	return p, nil
}

// errSharedPair is wrapped by errors about a stored pair that cannot be read.
var errSharedPair = errors.New("not a certificate and its key")

func decodePair(key string, value []byte) (*pair, error) {
	p, err := parsePair(value, value)
	if err != nil {
		return nil, fmt.Errorf("key %s in etcd is %w: %w", key, errSharedPair, err)
	}
	return p, nil
}
