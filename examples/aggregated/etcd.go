package main

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"path/filepath"

	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"
)

// startEtcd runs an embedded etcd on unix sockets in a private directory.
func startEtcd(ctx context.Context, dir string) (endpoint string, stop func(), err error) {
	// The path of a unix socket must be short.
	sockets, err := os.MkdirTemp("", "gallery-")
	if err != nil {
		return "", nil, err
	}
	config := embed.NewConfig()
	config.Dir = dir
	client := url.URL{Scheme: "unix", Path: filepath.Join(sockets, "client")}
	config.ListenClientUrls, config.AdvertiseClientUrls = []url.URL{client}, []url.URL{client}
	config.ListenPeerUrls = []url.URL{{Scheme: "unix", Path: filepath.Join(sockets, "peer")}}
	// The advertised URL is stored, so it must be the same at each start. A single member does not dial it.
	config.AdvertisePeerUrls = []url.URL{{Scheme: "unix", Path: "/gallery-peer"}}
	config.InitialCluster = config.Name + "=" + config.AdvertisePeerUrls[0].String()
	config.ZapLoggerBuilder = embed.NewZapLoggerBuilder(zap.NewNop())
	etcd, err := embed.StartEtcd(config)
	if err != nil {
		os.RemoveAll(sockets)
		return "", nil, fmt.Errorf("etcd in %s: %w", dir, err)
	}
	stop = func() {
		etcd.Close()
		os.RemoveAll(sockets)
	}
	select {
	case <-etcd.Server.ReadyNotify():
		return client.String(), stop, nil
	case err = <-etcd.Err():
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	stop()
	return "", nil, fmt.Errorf("etcd in %s: %w", dir, err)
}
