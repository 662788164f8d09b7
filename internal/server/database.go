package server

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	etcdkubernetes "go.etcd.io/etcd/client/v3/kubernetes"
	"k8s.io/apiserver/pkg/server/options"
	serverstorage "k8s.io/apiserver/pkg/server/storage"
	"k8s.io/apiserver/pkg/storage/etcd3"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/component-base/compatibility"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	"k8s.io/kubernetes/pkg/kubeapiserver"

	"github.com/gatehouse-dev/gatehouse/admission"
	"github.com/gatehouse-dev/gatehouse/internal/server/controllers/namespaces"
	"github.com/gatehouse-dev/gatehouse/internal/server/judging/fresh"
	"github.com/gatehouse-dev/gatehouse/internal/server/reporting/replicas"
	"github.com/gatehouse-dev/gatehouse/internal/server/storage/datadir"
	"github.com/gatehouse-dev/gatehouse/internal/server/storage/encryption"
	"github.com/gatehouse-dev/gatehouse/internal/server/storage/etcd"
	"github.com/gatehouse-dev/gatehouse/internal/server/storage/quotas"
	"github.com/gatehouse-dev/gatehouse/internal/server/storage/revisionmark"
)

// database is the etcd with the stored objects.
type database struct {
	client    *etcdkubernetes.Client
	endpoints []string
	// embedded is nil for an external etcd; dir is its directory.
	embedded *etcd.Server
	dir      string
	// trusted is the hash of the CAs of members that etcd trusts since it started.
	trusted string
	// values transforms objects on their way to etcd and back.
	values *encryption.Transformers
	// certificates lists the files that metrics show; nil while the server starts.
	certificates atomic.Pointer[func() []certificateFile]
}

// openDatabase starts or connects to etcd. It stops the server when an embedded etcd ends
// by itself.
func openDatabase(ctx context.Context, stop context.CancelCauseFunc, s *settings) (*database, error) {
	db := &database{endpoints: s.EtcdServers}
	var err error
	if !s.external() {
		db.dir = s.etcdDir()
		o := etcd.Options{Dir: db.dir, MinFree: s.MinFreeDisk, Quota: s.EtcdQuota, Version: s.ProgramVersion, NoFsync: s.UnsafeNoFsync}
		if s.member != nil {
			o.Member = s.enter
		}
		if db.embedded, err = etcd.Start(ctx, o); err != nil {
			return nil, err
		}
		if s.member != nil {
			if err := s.member.Write(s.files(), s.DataDir); err != nil {
				db.embedded.Close()
				return nil, fmt.Errorf("--data-dir: %w", err)
			}
		}
		db.endpoints = []string{db.embedded.Endpoint()}
	}
	to := etcd.ClientOptions{Endpoints: db.endpoints, CAFile: s.EtcdCAFile, CertFile: s.EtcdCertFile, KeyFile: s.EtcdKeyFile}
	if db.embedded != nil && s.member == nil {
		// The embedded etcd answers without any other server. Only the machine can be slow, which may
		// have a long log to read.
		to.DialTimeout = time.Minute
	}
	db.client, err = etcd.NewClient(ctx, to)
	if err != nil {
		if db.embedded != nil {
			db.embedded.Close()
		}
		return nil, err
	}
	if db.embedded != nil {
		db.embedded.Direct(db.client.Client)
		go func() {
			select {
			case err := <-db.embedded.Err():
				stop(err)
				// Requests that wait for an answer of etcd would delay the shutdown.
				db.client.Close()
			case <-ctx.Done():
			}
		}()
	}
	if db.values, err = openValues(ctx, s); err != nil {
		db.close()
		return nil, err
	}
	// The time that a request spends in etcd is in its audit event.
	db.client.KV = etcd3.NewETCDLatencyTracker(db.client.KV)
	db.measure()
	return db, nil
}

// openValues returns the transformers of objects on their way to etcd and back; nil when nothing is
// encrypted.
func openValues(ctx context.Context, s *settings) (*encryption.Transformers, error) {
	o := encryption.Options{File: s.EncryptionProviderConfig, Reload: s.EncryptionProviderConfigAutomaticReload, ServerID: replicaID()}
	if o.File == "" {
		if s.sharesEtcd() {
			return nil, nil
		}
		o.File, o.Reload, o.Own = encryption.OwnFile(s.DataDir), true, true
	}
	values, err := encryption.Open(ctx, o)
	switch {
	case err != nil && o.Own:
		return nil, fmt.Errorf("--data-dir: %w", err)
	case err != nil:
		return nil, fmt.Errorf("--encryption-provider-config: %w", err)
	case s.sharesEtcd():
		return values, nil
	case values.Hash() != "":
		return values, datadir.MarkEncrypted(s.files(), s.DataDir)
	}
	format, err := datadir.Has(s.DataDir)
	if err == nil && datadir.Encrypted(format) {
		err = fmt.Errorf("--data-dir: the Secrets in %s are encrypted, and the file with their keys, %s, is missing: put it back, or name another file with the keys by --encryption-provider-config", s.DataDir, o.File)
	}
	return values, err
}

// namespaces reads namespaces from etcd.
func (db *database) namespaces() namespaces.Stored {
	return namespaces.Stored{Decoder: legacyscheme.Codecs.UniversalDeserializer(), Values: db.values}
}

func (db *database) close() {
	measured.CompareAndSwap(db, nil)
	db.client.Close()
	if db.embedded != nil {
		db.embedded.Close()
	}
}

// forObjects returns the client with which objects are stored. Other data of servers in etcd uses
// the plain client.
func (db *database) forObjects(s *settings, fences *quotas.Fences) *etcdkubernetes.Client {
	client := *db.client
	guarded := clientv3.NewCtxClient(client.Ctx())
	guarded.KV = fences.KV(client.KV)
	client.Kubernetes = revisionmark.Client(quotas.Client(client.Kubernetes, guarded), guarded.KV, fresh.Marks(s.EtcdPrefix)...)
	// A server alone on its etcd sees all creates, and a namespace that is being deleted waits for
	// them. Servers that share an etcd refuse a create that comes after the deletion began.
	if s.sharesEtcd() && s.runs(admission.NamespaceLifecycleName) {
		client.Kubernetes = namespaces.Fence(client.Kubernetes, guarded.KV, s.EtcdPrefix, db.namespaces())
	}
	// Guard refuses writes before the disk of an embedded etcd is full.
	if db.embedded != nil {
		client.Kubernetes = db.embedded.Guard(client.Kubernetes)
	}
	return &client
}

// newPlaces returns the prefix and the stored version of each resource, as in kube-apiserver.
func newPlaces(s *settings, version compatibility.EffectiveVersion, endpoints []string) (*serverstorage.DefaultStorageFactory, error) {
	etcdOptions := options.NewEtcdOptions(storagebackend.NewDefaultConfig(s.EtcdPrefix, nil))
	etcdOptions.StorageConfig.Transport.ServerList = endpoints
	etcdOptions.StorageConfig.Transport.TrustedCAFile = s.EtcdCAFile
	etcdOptions.StorageConfig.Transport.CertFile = s.EtcdCertFile
	etcdOptions.StorageConfig.Transport.KeyFile = s.EtcdKeyFile
	etcdOptions.DefaultStorageMediaType = s.StorageMediaType
	factory := kubeapiserver.NewStorageFactoryConfigEffectiveVersion(version)
	factory.APIResourceConfig = s.versions.Builtin
	return factory.Complete(etcdOptions).New()
}

// followEncryption loads the encryption configuration again when its file has changed, until ctx
// ends. It checks the file at once when a client writes the key that replicas.LookAtEncryption
// writes.
func (c *controlled) followEncryption(ctx context.Context) {
	now, end := c.written(ctx, replicas.EncryptionKey(c.settings.EtcdPrefix))
	defer end()
	c.db.values.Run(ctx, now, c.admitter.announcer.Encrypts)
}
