package server

import (
	"context"
	"path/filepath"

	etcdkubernetes "go.etcd.io/etcd/client/v3/kubernetes"

	"github.com/gatehouse-dev/gatehouse/server/etcd"
)

// store is the etcd that objects are stored in.
type store struct {
	client    *etcdkubernetes.Client
	endpoints []string
	// embedded is nil for an external etcd.
	embedded *etcd.Server
}

// openStore starts or connects to etcd. It stops the server when an embedded etcd ends
// by itself.
func (s *Server) openStore(ctx context.Context, stop context.CancelCauseFunc) (*store, error) {
	o := s.settings
	e := &store{endpoints: o.EtcdServers}
	var err error
	if len(e.endpoints) == 0 {
		e.embedded, err = etcd.Start(ctx, etcd.Options{Dir: filepath.Join(o.DataDir, "etcd"), MinFree: o.MinFreeDisk, Quota: o.EtcdQuota})
		if err != nil {
			return nil, err
		}
		e.endpoints = []string{e.embedded.Endpoint()}
	}
	e.client, err = etcd.NewClient(ctx, etcd.ClientOptions{
		Endpoints: e.endpoints, CAFile: o.EtcdCAFile, CertFile: o.EtcdCertFile, KeyFile: o.EtcdKeyFile,
	})
	if err != nil {
		if e.embedded != nil {
			e.embedded.Close()
		}
		return nil, err
	}
	if e.embedded != nil {
		go func() {
			select {
			case err := <-e.embedded.Err():
				stop(err)
				// Requests that wait for an answer of etcd would hold up the end.
				e.client.Close()
			case <-ctx.Done():
			}
		}()
	}
	return e, nil
}

// guard returns the client with which objects are stored: it refuses to fill the disk
// of an embedded etcd.
func (e *store) guard(inner etcdkubernetes.Interface) etcdkubernetes.Interface {
	if e.embedded == nil {
		return inner
	}
	return e.embedded.Guard(inner)
}

func (e *store) close() {
	e.client.Close()
	if e.embedded != nil {
		e.embedded.Close()
	}
}
