package encryption

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/server/healthz"
	"k8s.io/apiserver/pkg/server/options/encryptionconfig"
	"k8s.io/apiserver/pkg/server/options/encryptionconfig/metrics"
	"k8s.io/apiserver/pkg/storage/value"
	"k8s.io/apiserver/pkg/storage/value/encrypt/identity"
	"k8s.io/klog/v2"

	"github.com/gatehouse-dev/gatehouse/internal/kit/files"
)

// Secrets is the resource whose providers also encrypt the keys that servers share in etcd.
var Secrets = schema.GroupResource{Resource: "secrets"}

const (
	// lookEvery is how often Run checks the file, as kube-apiserver does.
	lookEvery = time.Minute
	// healthWithin bounds how long new KMS plugins may take to answer before a changed file is
	// refused; KMS plugins with longer timeouts have these.
	healthWithin = 10 * time.Second
	// healthCheck is the name of the health check of all KMS plugins, as in kube-apiserver.
	healthCheck = "kms-providers"
)

// Options locate the configuration.
type Options struct {
	// File is an EncryptionConfiguration.
	File string
	// Reload means that the file may change. Health checks then cannot name single KMS plugins.
	Reload bool
	// Own means that the file belongs to a data directory, and need not exist.
	Own bool
	// ServerID names the server in metrics.
	ServerID string
}

// Transformers encrypt values on their way to etcd and decrypt them on the way back. Without a
// configuration values are unchanged. A nil *Transformers has no configuration. It implements
// value.ResourceTransformers, and is safe for concurrent use.
type Transformers struct {
	options Options
	// server ends with the server, and with it the connections to KMS plugins.
	server  context.Context
	current atomic.Pointer[loaded]
	// loading is held by the goroutine that replaces current.
	loading sync.Mutex
}

// loaded is a configuration in use.
type loaded struct {
	encryptionconfig.StaticTransformers
	hash   string
	health []healthz.HealthChecker
	// close ends the connections to KMS plugins; grace is how long running requests may need them.
	close context.CancelFunc
	grace time.Duration
}

// Open reads the configuration. KMS plugins that do not answer yet are not an error. ctx is the
// context of the server.
func Open(ctx context.Context, o Options) (*Transformers, error) {
	t := &Transformers{options: o, server: ctx}
	next, err := t.load()
	if o.Own && errors.Is(err, fs.ErrNotExist) {
		return t, nil
	}
	if err != nil {
		return nil, err
	}
	t.current.Store(next)
	metrics.RecordEncryptionConfigLastConfigInfo(o.ServerID, next.hash)
	return t, nil
}

func (t *Transformers) load() (*loaded, error) {
	if err := files.Check(t.options.File, files.Configuration); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(t.server)
	c, err := encryptionconfig.LoadEncryptionConfig(ctx, t.options.File, t.options.Reload, t.options.ServerID)
	if err != nil {
		cancel()
		return nil, fmt.Errorf("%s: %w", t.options.File, err)
	}
	return &loaded{c.Transformers, c.EncryptionFileContentHash, c.HealthChecks, cancel, c.KMSCloseGracePeriod}, nil
}

// Run checks the file for changes until ctx ends: every minute, and whenever lookNow receives a
// value. It calls used with the hash of a configuration that it has begun to use.
func (t *Transformers) Run(ctx context.Context, lookNow <-chan struct{}, used func(hash string)) {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-lookNow:
		case <-ctx.Done():
			return
		}
		before := t.Hash()
		err := t.Reload(ctx)
		if now := t.Hash(); now != before {
			used(now)
		}
		if err != nil && ctx.Err() == nil {
			metrics.RecordEncryptionConfigAutomaticReloadFailure(t.options.ServerID)
			klog.ErrorS(err, "Cannot use the changed encryption configuration; the server goes on with the one of before")
		}
	}
}

// Reload uses the file as it is now. With a file that cannot be used, or whose KMS plugins do not
// answer, the server continues with the previous configuration.
func (t *Transformers) Reload(ctx context.Context) error {
	t.loading.Lock()
	defer t.loading.Unlock()
	before := t.current.Load()
	hash, err := encryptionconfig.GetEncryptionConfigHash(t.options.File)
	if err == nil && hash == t.Hash() || before == nil && errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	next, err := t.load()
	if err != nil {
		return err
	}
	if err := next.healthy(ctx); err != nil {
		next.close()
		return fmt.Errorf("%s: %w", t.options.File, err)
	}
	t.current.Store(next)
	if before != nil {
		// Running requests may still use the previous KMS plugins.
		time.AfterFunc(before.grace, before.close)
	}
	metrics.RecordEncryptionConfigAutomaticReloadSuccess(t.options.ServerID, next.hash)
	klog.InfoS("Uses the changed encryption configuration", "file", t.options.File, "hash", next.hash)
	return nil
}

// Hash is the hash of the file that is in use; empty for none.
func (t *Transformers) Hash() string {
	if t == nil {
		return ""
	}
	if now := t.current.Load(); now != nil {
		return now.hash
	}
	return ""
}

// healthy returns nil when all KMS plugins answer, in time.
func (l *loaded) healthy(ctx context.Context) error {
	var err error
	_ = wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, max(l.grace, healthWithin), true, func(ctx context.Context) (bool, error) {
		err = l.check(ctx)
		return err == nil, nil
	})
	return err
}

func (l *loaded) check(ctx context.Context) error {
	for _, c := range l.health {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "/healthz/"+c.Name(), nil)
		if err != nil {
			return err
		}
		if err := c.Check(req); err != nil {
			return err
		}
	}
	return nil
}

// HealthChecks are the health checks of the KMS plugins, under the names of kube-apiserver.
func (t *Transformers) HealthChecks() []healthz.HealthChecker {
	if t == nil || t.options.Own {
		return nil
	}
	if !t.options.Reload {
		return t.current.Load().health
	}
	return []healthz.HealthChecker{healthz.NamedCheck(healthCheck, func(req *http.Request) error {
		return t.current.Load().check(req.Context())
	})}
}

// TransformerForResource implements value.ResourceTransformers.
func (t *Transformers) TransformerForResource(resource schema.GroupResource) value.Transformer {
	return t.For(resource)
}

// For returns the transformer of a resource.
func (t *Transformers) For(resource schema.GroupResource) *Transformer {
	if t == nil {
		t = unconfigured
	}
	return &Transformer{of: t, resource: resource}
}

var (
	unconfigured = &Transformers{}
	// plain refuses values that are encrypted.
	plain = identity.NewEncryptCheckTransformer()
)

// Plain returns the value of a key that was read from etcd.
func (t *Transformers) Plain(ctx context.Context, resource schema.GroupResource, kv *mvccpb.KeyValue) ([]byte, error) {
	if (t == nil || t.current.Load() == nil) && !bytes.HasPrefix(kv.Value, encrypted) {
		return kv.Value, nil
	}
	opened, _, err := t.TransformerForResource(resource).TransformFromStorage(ctx, kv.Value, value.DefaultContext(kv.Key))
	return opened, err
}

// Transformer transforms the values of a resource by the current configuration. It is safe for
// concurrent use.
type Transformer struct {
	of       *Transformers
	resource schema.GroupResource
	// unreadable is the error about the last value that could not be decrypted.
	unreadable atomic.Pointer[Unreadable]
}

// Unreadable returns the error about a value that could not be decrypted since the last call; nil if
// there was none. k8s.io/apiserver turns such an error into text.
func (t *Transformer) Unreadable() *Unreadable { return t.unreadable.Swap(nil) }

// TransformToStorage implements value.Transformer.
func (t *Transformer) TransformToStorage(ctx context.Context, data []byte, key value.Context) ([]byte, error) {
	now := t.of.current.Load()
	if now == nil {
		return plain.TransformToStorage(ctx, data, key)
	}
	return now.TransformerForResource(t.resource).TransformToStorage(ctx, data, key)
}

// TransformFromStorage implements value.Transformer. The error is an Unreadable unless ctx has ended.
func (t *Transformer) TransformFromStorage(ctx context.Context, data []byte, key value.Context) (opened []byte, stale bool, err error) {
	now := t.of.current.Load()
	if now == nil {
		opened, stale, err = plain.TransformFromStorage(ctx, data, key)
	} else {
		opened, stale, err = now.TransformerForResource(t.resource).TransformFromStorage(ctx, data, key)
	}
	if err != nil && ctx.Err() == nil {
		u := &Unreadable{Key: string(key.AuthenticatedData()), By: By(data), cause: err}
		if now != nil {
			u.File = t.of.options.File
		}
		t.unreadable.Store(u)
		err = u
	}
	return opened, stale, err
}

// encrypted begins every encrypted value: k8s:enc:PROVIDER:VERSION:KEY:.
var encrypted = []byte("k8s:enc:")

// Key names the key that a value is encrypted with. The zero Key means that the value is not
// encrypted.
type Key struct {
	// Provider is secretbox, aesgcm, aescbc or kms. Name is the name of the key in the
	// configuration, or of the KMS plugin.
	Provider, Name string
}

// By returns the key that a stored value is encrypted with.
func By(stored []byte) Key {
	rest, ok := bytes.CutPrefix(stored, encrypted)
	if !ok {
		return Key{}
	}
	// Names of keys are short, and the rest is not text.
	parts := strings.SplitN(string(rest[:min(len(rest), 512)]), ":", 4)
	if len(parts) < 4 {
		return Key{Provider: parts[0]}
	}
	return Key{Provider: parts[0], Name: parts[2]}
}

// String names the key in a sentence.
func (k Key) String() string {
	if k.Provider == "kms" {
		return fmt.Sprintf("KMS plugin %q", k.Name)
	}
	return fmt.Sprintf("key %q of provider %s", k.Name, k.Provider)
}

// Unreadable is the error about a value that the configuration cannot read.
type Unreadable struct {
	// Key is the key in etcd, By the key that the value is encrypted with, and File the
	// configuration; empty for none.
	Key  string
	By   Key
	File string

	cause error
}

func (u *Unreadable) Error() string {
	switch {
	case u.By == Key{}:
		return fmt.Sprintf("%s in etcd is not encrypted, and the providers for it in %s do not read that: add the provider identity (%v)", u.Key, u.File, u.cause)
	case u.File == "":
		return fmt.Sprintf("%s in etcd is encrypted with %s, and this server has no encryption configuration: name the one with that key by --encryption-provider-config", u.Key, u.By)
	case u.By.Provider == "kms":
		return fmt.Sprintf("%s in etcd is encrypted with %s, which did not decrypt it: %s must name the plugin, and it must run (%v)", u.Key, u.By, u.File, u.cause)
	default:
		return fmt.Sprintf("%s in etcd is encrypted with %s, and %s does not have it, or another one of that name: put the key back (%v)", u.Key, u.By, u.File, u.cause)
	}
}

// Unwrap implements errors.Unwrap.
func (u *Unreadable) Unwrap() error { return u.cause }
