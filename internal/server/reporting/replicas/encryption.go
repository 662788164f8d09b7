package replicas

import (
	"context"
	"encoding/json"
	"fmt"
	"path"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/gatehouse-dev/gatehouse/admission/announce"
)

// announced is the record about itself that a server writes to etcd. Only servers and commands with
// access to etcd see its encryption configuration.
type announced struct {
	announce.Announcement `json:",inline"`
	// Encryption is the hash of the EncryptionConfiguration, empty for none. Servers of older
	// releases do not write it.
	Encryption *string `json:"encryption,omitempty"`
}

// Encrypts sets the hash of the EncryptionConfiguration that the server uses from now on; empty for
// none.
func (a *Announcer) Encrypts(hash string) {
	a.encryption.Store(&hash)
	select {
	case a.reencrypts <- struct{}{}:
	default:
	}
}

// EncryptionKey is the key in etcd that makes all servers read the file of their
// EncryptionConfiguration again when a client writes it. root is the prefix of all keys.
func EncryptionKey(root string) string { return path.Join(root, "gatehouse", "encryption") }

// Encrypting is a server and the hash of its encryption configuration.
type Encrypting struct {
	Name    string `json:"name"`
	Address string `json:"address"`
	// Hash is the hash of the server's EncryptionConfiguration, empty for none. It is nil for a
	// server of a release that does not announce it.
	Hash *string `json:"hash"`
}

// Encryptions lists the servers on an etcd.
func Encryptions(ctx context.Context, etcd clientv3.KV, root string) ([]Encrypting, error) {
	found, err := etcd.Get(ctx, path.Join(root, "gatehouse", "replicas")+"/", clientv3.WithPrefix())
	if err != nil {
		return nil, fmt.Errorf("reading from etcd which servers there are: %w", err)
	}
	list := []Encrypting{}
	for _, kv := range found.Kvs {
		var said announced
		if err := json.Unmarshal(kv.Value, &said); err != nil {
			return nil, fmt.Errorf("reading what server %s announces: %w", path.Base(string(kv.Key)), err)
		}
		// Servers that announce themselves through the API store nothing in this etcd.
		if said.ReadsManifests {
			list = append(list, Encrypting{path.Base(string(kv.Key)), said.Address, said.Encryption})
		}
	}
	return list, nil
}

// lookAgain is how often AwaitEncryption checks the announcements.
const lookAgain = 100 * time.Millisecond

// AwaitEncryption makes the servers on an etcd read their files, and waits until all of them use
// the EncryptionConfiguration with a hash. When ctx ends before, the error names the servers that
// do not.
func AwaitEncryption(ctx context.Context, etcd clientv3.KV, root, hash string) error {
	if _, err := etcd.Put(ctx, EncryptionKey(root), hash); err != nil {
		return fmt.Errorf("writing to etcd: %w", err)
	}
	var others []string
	for {
		list, err := Encryptions(ctx, etcd, root)
		if err != nil && ctx.Err() == nil {
			return err
		}
		if err == nil {
			others = others[:0]
			for _, server := range list {
				if server.Hash == nil || *server.Hash != hash {
					others = append(others, server.Name+" at "+server.Address)
				}
			}
			if len(others) == 0 && len(list) > 0 {
				return nil
			}
		}
		select {
		case <-time.After(lookAgain):
		case <-ctx.Done():
			if len(others) == 0 {
				return fmt.Errorf("no server is announced in etcd: %w", ctx.Err())
			}
			return fmt.Errorf("these servers do not use the configuration: %s; each needs the same file, and --encryption-provider-config-automatic-reload or a restart: %w", strings.Join(others, ", "), ctx.Err())
		}
	}
}
