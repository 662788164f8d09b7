package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/gatehouse-dev/gatehouse/initializer"
)

// options are the flags of the program.
type options struct {
	kubeconfig string
	name       string
	container  string
	image      string
	namespace  string
	workers    int
	parallel   bool
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	o, err := parse(os.Args[1:], os.Stderr)
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err == nil {
		err = o.run(ctx, os.Stdout)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "sidecar-initializer:", err)
		os.Exit(1)
	}
}

func parse(args []string, usage io.Writer) (options, error) {
	var o options
	f := flag.NewFlagSet("sidecar-initializer", flag.ContinueOnError)
	f.SetOutput(io.Discard)
	f.StringVar(&o.kubeconfig, "kubeconfig", "", "`file` that names the API server (default: as kubectl finds it)")
	f.StringVar(&o.name, "name", "sidecar.gatehouse.dev", "`name` of the initializer")
	f.StringVar(&o.container, "container", "sidecar", "`name` of the container that is added")
	f.StringVar(&o.image, "image", "registry.example.com/sidecar:1.0", "`image` of the container that is added")
	f.StringVar(&o.namespace, "namespace", "", "`namespace` to work in (default: all)")
	f.IntVar(&o.workers, "workers", 4, "number of deployments to work on concurrently")
	f.BoolVar(&o.parallel, "parallel", false, "the initializer is registered with parallel: true")
	if err := f.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			f.SetOutput(usage)
			f.PrintDefaults()
		}
		return o, err
	}
	if f.NArg() > 0 {
		return o, fmt.Errorf("unexpected argument %q", f.Arg(0))
	}
	if o.workers < 1 {
		return o, fmt.Errorf("-workers %d: there must be one at least", o.workers)
	}
	return o, nil
}

// run works until ctx is done. It writes one line to out at the start.
func (o options) run(ctx context.Context, out io.Writer) error {
	loading := clientcmd.NewDefaultClientConfigLoadingRules()
	loading.ExplicitPath = o.kubeconfig
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(loading, nil).ClientConfig()
	if err != nil {
		return err
	}
	controller, err := initializer.New(initializer.Options{
		Name:       o.name,
		Config:     config,
		Resources:  []schema.GroupVersionResource{{Group: "apps", Version: "v1", Resource: "deployments"}},
		Namespace:  o.namespace,
		Initialize: inject(o.container, o.image),
		Parallel:   o.parallel,
		Workers:    o.workers,
	})
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintf(out, "sidecar-initializer runs as %s for deployments of %s\n", o.name, config.Host); err != nil {
		return err
	}
	return controller.Run(ctx)
}
