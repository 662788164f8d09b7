// Etcd is an etcd of one member for the servers under comparison. It uses the defaults, and syncs every write to
// disk. It prints one line with its address when it is ready, and ends on SIGTERM.
package main

import (
	"context"
	"flag"
	"fmt"
	"net/url"
	"os"
	"os/signal"
	"syscall"

	"go.etcd.io/etcd/server/v3/embed"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	dir := flag.String("data-dir", "", "directory of the data")
	flag.Parse()
	if err := run(ctx, *dir); err != nil {
		fmt.Fprintln(os.Stderr, "etcd:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, dir string) error {
	if dir == "" {
		return fmt.Errorf("-data-dir must not be empty")
	}
	anyPort := []url.URL{{Scheme: "http", Host: "127.0.0.1:0"}}
	cfg := embed.NewConfig()
	cfg.Dir = dir
	cfg.LogLevel = "error"
	cfg.ListenClientUrls, cfg.AdvertiseClientUrls = anyPort, anyPort
	cfg.ListenPeerUrls = anyPort
	// Stored in the data, but never dialled: the cluster has one member.
	cfg.AdvertisePeerUrls = []url.URL{{Scheme: "http", Host: "127.0.0.1:2380"}}
	cfg.InitialCluster = cfg.Name + "=" + cfg.AdvertisePeerUrls[0].String()
	etcd, err := embed.StartEtcd(cfg)
	if err != nil {
		return err
	}
	defer etcd.Close()
	select {
	case <-etcd.Server.ReadyNotify():
	case err := <-etcd.Err():
		return err
	case <-ctx.Done():
		return nil
	}
	fmt.Printf("etcd is ready at http://%s\n", etcd.Clients[0].Addr())
	select {
	case err := <-etcd.Err():
		return err
	case <-ctx.Done():
		return nil
	}
}
