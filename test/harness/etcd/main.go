// Etcd runs an etcd, for tests that stop and kill it independently of the server that uses it. Its arguments
// are the data directory and the address to listen on. It prints one line when it serves, and ends on
// SIGTERM. By default it is a cluster of one member without TLS; flags add members and certificates.
package main

import (
	"context"
	"flag"
	"fmt"
	"net/url"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"go.etcd.io/etcd/client/pkg/v3/transport"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	var m member
	flag.StringVar(&m.name, "name", "", "`name` of the member, for a cluster of several")
	flag.StringVar(&m.cluster, "cluster", "", "all members, as `NAME=URL,...`")
	flag.StringVar(&m.tls.CertFile, "cert", "", "certificate `file` for clients")
	flag.StringVar(&m.tls.KeyFile, "key", "", "key `file` for clients")
	flag.StringVar(&m.tls.TrustedCAFile, "ca", "", "`file` with the authority of the clients' certificates")
	flag.Parse()
	if flag.NArg() != 2 {
		fmt.Fprintln(os.Stderr, "usage: etcd [FLAGS] DIR HOST:PORT")
		os.Exit(2)
	}
	if err := m.run(ctx, flag.Arg(0), flag.Arg(1)); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// member contains the values of the flags.
type member struct {
	name, cluster string
	tls           transport.TLSInfo
}

func (m *member) run(ctx context.Context, dir, address string) error {
	cfg := embed.NewConfig()
	cfg.Dir = dir
	client, peer := url.URL{Scheme: "http", Host: address}, url.URL{Scheme: "unix", Path: dir + "-peer"}
	if m.tls.CertFile != "" {
		client.Scheme = "https"
		cfg.ClientTLSInfo = m.tls
		cfg.ClientTLSInfo.ClientCertAuth = true
	}
	cfg.ListenClientUrls, cfg.AdvertiseClientUrls = []url.URL{client}, []url.URL{client}
	cfg.ListenPeerUrls, cfg.AdvertisePeerUrls = []url.URL{peer}, []url.URL{peer}
	cfg.InitialCluster = cfg.Name + "=" + peer.String()
	cfg.TickMs, cfg.ElectionMs = 10, 100
	if m.name != "" {
		if err := m.join(cfg); err != nil {
			return err
		}
	}
	cfg.ZapLoggerBuilder = embed.NewZapLoggerBuilder(zap.NewNop())
	etcd, err := embed.StartEtcd(cfg)
	if err != nil {
		return err
	}
	defer etcd.Close()
	select {
	case <-etcd.Server.ReadyNotify():
		fmt.Printf("etcd is ready at %s://%s\n", client.Scheme, etcd.Clients[0].Addr())
	case err := <-etcd.Err():
		return err
	}
	select {
	case err := <-etcd.Err():
		return err
	case <-ctx.Done():
		return nil
	}
}

// join configures the member as part of a cluster, with the default timeouts of etcd.
func (m *member) join(cfg *embed.Config) error {
	cfg.Name, cfg.InitialCluster = m.name, m.cluster
	cfg.TickMs, cfg.ElectionMs = 100, 1000
	for _, one := range strings.Split(m.cluster, ",") {
		if peer, ok := strings.CutPrefix(one, m.name+"="); ok {
			u, err := url.Parse(peer)
			if err != nil {
				return err
			}
			cfg.ListenPeerUrls, cfg.AdvertisePeerUrls = []url.URL{*u}, []url.URL{*u}
			return nil
		}
	}
	return fmt.Errorf("cluster %q has no member %q", m.cluster, m.name)
}
