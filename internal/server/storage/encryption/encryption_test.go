package encryption

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/storage/value"
)

const at = "/registry/secrets/default/s"

// configuration writes an EncryptionConfiguration for Secrets.
func configuration(t *testing.T, file string, providers ...string) {
	t.Helper()
	text := "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources:\n- resources: [secrets]\n  providers:\n"
	for _, p := range providers {
		text += "  - " + p + "\n"
	}
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// provider is a provider with one key.
func provider(kind, name, secret string) string {
	return fmt.Sprintf("%s: {keys: [{name: %s, secret: %s}]}", kind, name, base64.StdEncoding.EncodeToString([]byte(secret)))
}

const unencrypted = "identity: {}"

var key1, key2 = strings.Repeat("1", 32), strings.Repeat("2", 32)

func opened(t *testing.T, o Options) *Transformers {
	t.Helper()
	values, err := Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	return values
}

func written(t *testing.T, values *Transformers, plain string) *mvccpb.KeyValue {
	t.Helper()
	stored, err := values.TransformerForResource(Secrets).TransformToStorage(t.Context(), []byte(plain), value.DefaultContext(at))
	if err != nil {
		t.Fatal(err)
	}
	return &mvccpb.KeyValue{Key: []byte(at), Value: stored}
}

// S29.1: a stored value of a provider hides the plain text, names its key, and can be read again.
// Resources that the configuration does not name are stored unchanged.
func TestValuesAreEncryptedAsTheConfigurationSays(t *testing.T) {
	file := filepath.Join(t.TempDir(), "encryption.yaml")
	for _, kind := range []string{"secretbox", "aesgcm", "aescbc"} {
		configuration(t, file, provider(kind, "one", key1), unencrypted)
		values := opened(t, Options{File: file})
		stored := written(t, values, "a secret")
		if bytes.Contains(stored.Value, []byte("secret ")) || By(stored.Value) != (Key{kind, "one"}) {
			t.Errorf("%s: stored %q, by %v", kind, stored.Value, By(stored.Value))
		}
		if plain, err := values.Plain(t.Context(), Secrets, stored); err != nil || string(plain) != "a secret" {
			t.Errorf("%s: %q, %v", kind, plain, err)
		}
		other, err := values.TransformerForResource(schema.GroupResource{Resource: "pods"}).TransformToStorage(t.Context(), []byte("a pod"), value.DefaultContext(at))
		if err != nil || string(other) != "a pod" {
			t.Errorf("%s: another resource: %q, %v", kind, other, err)
		}
	}
}

// S29.4: the error about a value that cannot be read is one sentence, which names the key in etcd,
// the key of the configuration, the file and the remedy.
func TestUnreadableValues(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "encryption.yaml")
	configuration(t, file, provider("secretbox", "one", key1))
	encrypted := written(t, opened(t, Options{File: file}), "a secret")
	plain := &mvccpb.KeyValue{Key: []byte(at), Value: []byte("a secret")}
	byPlugin := &mvccpb.KeyValue{Key: []byte(at), Value: []byte("k8s:enc:kms:v2:vault:\x00")}
	for name, c := range map[string]struct {
		stored    *mvccpb.KeyValue
		providers []string
		want      []string
	}{
		"a lost key":             {encrypted, []string{provider("secretbox", "two", key2), unencrypted}, []string{`key "one" of provider secretbox`, file, "put the key back"}},
		"another key":            {encrypted, []string{provider("secretbox", "one", key2)}, []string{`key "one" of provider secretbox`, file, "put the key back"}},
		"no configuration":       {encrypted, nil, []string{`key "one" of provider secretbox`, "--encryption-provider-config"}},
		"another KMS plugin":     {byPlugin, []string{unencrypted}, []string{`KMS plugin "vault"`, file}},
		"not encrypted":          {plain, []string{provider("secretbox", "one", key1)}, []string{"is not encrypted", file, "identity"}},
		"cut off after a prefix": {&mvccpb.KeyValue{Key: []byte(at), Value: []byte("k8s:enc:secretbox")}, []string{unencrypted}, []string{"secretbox"}},
	} {
		var values *Transformers
		if c.providers != nil {
			configuration(t, file, c.providers...)
			values = opened(t, Options{File: file})
		}
		_, err := values.Plain(t.Context(), Secrets, c.stored)
		if !errors.As(err, new(*Unreadable)) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v", name, err)
			continue
		}
		for _, want := range append(c.want, at) {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s: no %q in: %v", name, want, err)
			}
		}
	}
}

// S29.5: a changed file takes effect on reload. A file that cannot be used changes nothing.
func TestReload(t *testing.T) {
	file := filepath.Join(t.TempDir(), "encryption.yaml")
	configuration(t, file, provider("secretbox", "one", key1))
	values := opened(t, Options{File: file, Reload: true})
	stored := written(t, values, "a secret")
	if err := os.WriteFile(file, []byte("kind: Nonsense"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := values.Reload(t.Context()); err == nil || !strings.Contains(err.Error(), file) {
		t.Errorf("a file that is none: %v", err)
	}
	if by := By(written(t, values, "x").Value); by.Name != "one" {
		t.Errorf("after a bad file: written with %v", by)
	}
	configuration(t, file, provider("aesgcm", "two", key2), provider("secretbox", "one", key1))
	if err := values.Reload(t.Context()); err != nil {
		t.Fatal(err)
	}
	if by := By(written(t, values, "x").Value); by != (Key{"aesgcm", "two"}) {
		t.Errorf("after the reload: written with %v", by)
	}
	plain, stale, err := values.TransformerForResource(Secrets).TransformFromStorage(t.Context(), stored.Value, value.DefaultContext(at))
	if err != nil || !stale || string(plain) != "a secret" {
		t.Errorf("after the reload: %q, stale %t, %v", plain, stale, err)
	}
}

// S29.3: without a configuration, values are passed as before encryption existed, without an
// allocation.
func TestWithoutAConfigurationValuesPass(t *testing.T) {
	kv := &mvccpb.KeyValue{Key: []byte(at), Value: []byte("value")}
	var none *Transformers
	transformer := none.TransformerForResource(Secrets)
	if n := testing.AllocsPerRun(100, func() {
		if got, err := none.Plain(t.Context(), Secrets, kv); err != nil || &got[0] != &kv.Value[0] {
			t.Fatalf("%q, %v", got, err)
		}
		if got, stale, err := transformer.TransformFromStorage(t.Context(), kv.Value, nil); err != nil || stale || &got[0] != &kv.Value[0] {
			t.Fatalf("%q, %t, %v", got, stale, err)
		}
	}); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

// contextOf is the authenticated data of a value at a key.
func contextOf(key string) value.Context { return value.DefaultContext(key) }

// stored returns all values below a prefix.
func stored(t *testing.T, etcd clientv3.KV, root string) map[string]*mvccpb.KeyValue {
	t.Helper()
	found, err := etcd.Get(t.Context(), root, clientv3.WithPrefix())
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]*mvccpb.KeyValue{}
	for _, kv := range found.Kvs {
		all[string(kv.Key)] = kv
	}
	return all
}

// racing is an etcd in which another client writes between the first read and the first
// transaction.
type racing struct {
	clientv3.KV
	once  sync.Once
	write func()
}

func (r *racing) Txn(ctx context.Context) clientv3.Txn {
	r.once.Do(r.write)
	return r.KV.Txn(ctx)
}
