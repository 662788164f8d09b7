package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/pflag"
	"k8s.io/klog/v2"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var o Options
	f := pflag.NewFlagSet("aggregated", pflag.ContinueOnError)
	f.SortFlags = false
	f.StringVar(&o.MainKubeconfig, "main-kubeconfig", "", "kubeconfig of the main server, whose registrations apply")
	f.BoolVar(&o.Strict, "strict", false, "decide every request by the registrations at its arrival; otherwise by registrations that are up to about a second old")
	f.StringVar(&o.BindAddress, "bind-address", "127.0.0.1", "IP address to listen on")
	f.IntVar(&o.SecurePort, "secure-port", 7443, "port to listen on; 0 means any free one")
	f.StringVar(&o.DataDir, "data-dir", "./gallery.data", "directory for the serving certificate and the data")
	f.StringSliceVar(&o.EtcdServers, "etcd-servers", nil, "URLs of an etcd (default one inside this program)")
	err := f.Parse(os.Args[1:])
	if errors.Is(err, pflag.ErrHelp) {
		return
	}
	if err == nil {
		klog.SetSlogLogger(slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})))
		err = Run(ctx, o, func(url string) { fmt.Printf("gallery is ready at %s\n", url) })
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "aggregated:", err)
		os.Exit(1)
	}
}
