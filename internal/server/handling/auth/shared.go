package auth

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"path"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// Shared is a place for the keys that must be the same for all servers on one etcd:
// their certificate authority, so that a client that trusts one of
// them trusts all, and the key that signs the tokens of service accounts.
//
// A client that can read these keys in etcd can act as any user, as with the tokens and
// certificates that Kubernetes keeps there.
type Shared struct {
	Etcd clientv3.KV
	// Prefix begins the keys.
	Prefix string
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
		return decodePair(key, found.Kvs[0].Value)
	}
	p, err := make()
	if err != nil {
		return nil, err
	}
	response, err := s.Etcd.Txn(ctx).
		If(clientv3.Compare(clientv3.CreateRevision(key), "=", 0)).
		Then(clientv3.OpPut(key, string(bytes.Join([][]byte{p.certPEM, p.keyPEM}, nil)))).
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
	return decodePair(key, kvs[0].Value)
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
