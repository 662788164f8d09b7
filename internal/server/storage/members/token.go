package members

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

const (
	// TokenLifetime is how long a token is valid.
	TokenLifetime = 15 * time.Minute
	// tokenForm begins each token.
	tokenForm = "gatehouse1"
	// maxTokens bounds the valid tokens, and MaxUses the servers that join with one token.
	maxTokens, MaxUses = 100, 50
)

// errToken is the same error for all problems with a token, so that a client does not learn which tokens
// exist.
var errToken = errors.New("the token is wrong, has expired, was revoked or has been used for as many servers as it is for: make another one with 'gatehouse cluster token create' on a server of the cluster")

// Token is the stored record of a token.
type Token struct {
	ID      string    `json:"id"`
	Expires time.Time `json:"expires"`
	// Uses is the number of servers that may join with the token; Used are the servers that joined with it, as
	// NAME/HASH of their keys.
	Uses int      `json:"uses"`
	Used []string `json:"used,omitempty"`
	// Hash is the hash of the secret.
	Hash []byte `json:"hash"`
}

// Tokens are the tokens in an etcd.
type Tokens struct {
	Etcd *clientv3.Client
	// Prefix begins their keys.
	Prefix string
}

func (t *Tokens) key(id string) string { return path.Join(t.Prefix, id) }

// Create makes a token for some servers, which trust the CA of a PEM certificate. The text of the token is not stored.
func (t *Tokens) Create(ctx context.Context, authority []byte, uses int) (text string, made *Token, err error) {
	pin, err := pinOf(authority)
	if err != nil {
		return "", nil, err
	}
	all, err := t.List(ctx)
	if err != nil {
		return "", nil, err
	}
	if len(all) >= maxTokens {
		return "", nil, fmt.Errorf("there are %d tokens: revoke some, or wait until they expire", len(all))
	}
	secret := rand.Text()
	hash := sha256.Sum256([]byte(secret))
	made = &Token{ID: strings.ToLower(rand.Text()[:10]), Expires: time.Now().Add(TokenLifetime).UTC(), Uses: uses, Hash: hash[:]}
	value, err := json.Marshal(made)
	if err != nil {
		return "", nil, err
	}
	lease, err := t.Etcd.Grant(ctx, int64(TokenLifetime/time.Second))
	if err != nil {
		return "", nil, err
	}
	if _, err := t.Etcd.Put(ctx, t.key(made.ID), string(value), clientv3.WithLease(lease.ID)); err != nil {
		return "", nil, err
	}
	return strings.Join([]string{tokenForm, made.ID, secret, pin}, "."), made, nil
}

// List lists the valid tokens, in the order in which they expire.
func (t *Tokens) List(ctx context.Context) ([]Token, error) {
	found, err := t.Etcd.Get(ctx, t.Prefix+"/", clientv3.WithPrefix())
	if err != nil {
		return nil, err
	}
	var all []Token
	for _, kv := range found.Kvs {
		var one Token
		if err := json.Unmarshal(kv.Value, &one); err != nil {
			return nil, fmt.Errorf("%s in etcd: %w", kv.Key, err)
		}
		if time.Now().Before(one.Expires) {
			all = append(all, one)
		}
	}
	slices.SortFunc(all, func(a, b Token) int { return a.Expires.Compare(b.Expires) })
	return all, nil
}

// Revoke ends a token, and reports whether it existed.
func (t *Tokens) Revoke(ctx context.Context, id string) (bool, error) {
	if id != path.Base(id) {
		return false, nil
	}
	gone, err := t.Etcd.Delete(ctx, t.key(id))
	if err != nil {
		return false, err
	}
	return gone.Deleted > 0, nil
}

// check returns the stored token of a text, and the revision at which it was stored. It returns errToken if the token
// is not valid, or if other servers than the given one have used it up. It takes as long for a wrong secret as for a
// right one.
func (t *Tokens) check(ctx context.Context, text, server string) (*Token, int64, error) {
	parts := strings.Split(text, ".")
	if len(parts) != 4 || parts[0] != tokenForm || parts[1] != path.Base(parts[1]) {
		return nil, 0, errToken
	}
	found, err := t.Etcd.Get(ctx, t.key(parts[1]))
	if err != nil {
		return nil, 0, err
	}
	var stored Token
	var revision int64
	if len(found.Kvs) > 0 {
		if err := json.Unmarshal(found.Kvs[0].Value, &stored); err != nil {
			return nil, 0, fmt.Errorf("%s in etcd: %w", found.Kvs[0].Key, err)
		}
		revision = found.Kvs[0].ModRevision
	}
	hash := sha256.Sum256([]byte(parts[2]))
	used := len(stored.Used) >= stored.Uses && !slices.Contains(stored.Used, server)
	if subtle.ConstantTimeCompare(hash[:], stored.Hash) != 1 || !time.Now().Before(stored.Expires) || used {
		return nil, 0, errToken
	}
	return &stored, revision, nil
}

// use counts a server that joins with a token. A server may do so again.
func (t *Tokens) use(ctx context.Context, text, server string) error {
	for {
		stored, revision, err := t.check(ctx, text, server)
		switch {
		case err != nil:
			return err
		case slices.Contains(stored.Used, server):
			return nil
		}
		stored.Used = append(stored.Used, server)
		value, err := json.Marshal(stored)
		if err != nil {
			return err
		}
		key := t.key(stored.ID)
		done, err := t.Etcd.Txn(ctx).If(clientv3.Compare(clientv3.ModRevision(key), "=", revision)).Then(clientv3.OpPut(key, string(value), clientv3.WithIgnoreLease())).Commit()
		if err != nil || done.Succeeded {
			return err
		}
	}
}

// pinOf is the part of a token with which a server verifies the CA of the cluster.
func pinOf(authority []byte) (string, error) {
	block, _ := pem.Decode(authority)
	if block == nil {
		return "", errors.New("the CA of the server is not a certificate in PEM")
	}
	hash := sha256.Sum256(block.Bytes)
	return hex.EncodeToString(hash[:]), nil
}
