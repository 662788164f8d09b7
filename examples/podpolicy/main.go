package main

import (
	"context"
	"crypto/tls"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/clientcmd"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
)

// farewell limits the time for unregistering at exit.
const farewell = 10 * time.Second

// options are the flags of the program.
type options struct {
	kubeconfig       string
	bindAddress      string
	port             int
	certDir          string
	registry         string
	sidecarImage     string
	unregisterOnExit bool
	registration     Registration
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	logger := logr.FromSlogHandler(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	ctrl.SetLogger(logger)
	o, err := parse(os.Args[1:], os.Stderr)
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err == nil {
		err = o.run(ctx, os.Stdout)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "podpolicy:", err)
		os.Exit(1)
	}
}

func parse(args []string, usage io.Writer) (options, error) {
	var o options
	r := &o.registration
	f := flag.NewFlagSet("podpolicy", flag.ContinueOnError)
	f.SetOutput(io.Discard)
	f.StringVar(&o.kubeconfig, "kubeconfig", "", "`file` that names the API server (default: as kubectl finds it)")
	f.StringVar(&o.bindAddress, "bind-address", "127.0.0.1", "IP `address` to listen on")
	f.IntVar(&o.port, "port", 9443, "port to listen on; 0 means any free one")
	f.StringVar(&o.certDir, "cert-dir", "", "`directory` with ca.crt, tls.crt and tls.key, created there if missing (default: created in memory at each start)")
	f.StringVar(&o.registry, "registry", "registry.example.com", "`prefix` that every image must have, without the last slash")
	f.StringVar(&o.sidecarImage, "sidecar-image", "", "`image` of the injected container (default REGISTRY/sidecar:1.0)")
	f.StringVar(&r.Version, "registration-version", "v1", "`version` of admissionregistration.k8s.io to register with, v1 or v1beta1")
	f.StringVar(&r.URL, "url", "", "`address` the API server reaches this program at (default https://127.0.0.1:PORT)")
	f.StringVar(&r.Service, "service", "", "`NAMESPACE/NAME` of a service in front of this program, port 443, instead of an address")
	f.StringVar(&r.FailurePolicy, "failure-policy", "Fail", "what happens to a request when this program does not answer, Fail or Ignore")
	f.StringVar(&r.NamespaceSelector, "namespace-selector", "", "`selector` of the namespaces whose pods the webhooks check (default: all)")
	f.BoolVar(&o.unregisterOnExit, "unregister-on-exit", false, "delete the registration at exit")
	if err := f.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			f.SetOutput(usage)
			f.PrintDefaults()
		}
		return o, err
	}
	switch {
	case f.NArg() > 0:
		return o, fmt.Errorf("unexpected argument %q", f.Arg(0))
	case o.port < 0 || o.port > 65535:
		return o, fmt.Errorf("-port %d is not a port", o.port)
	case r.Version != "v1" && r.Version != "v1beta1":
		return o, fmt.Errorf("-registration-version %q is neither v1 nor v1beta1", r.Version)
	case r.FailurePolicy != "Fail" && r.FailurePolicy != "Ignore":
		return o, fmt.Errorf("-failure-policy %q is neither Fail nor Ignore", r.FailurePolicy)
	case r.URL != "" && r.Service != "":
		return o, errors.New("-url and -service exclude each other")
	}
	if o.sidecarImage == "" {
		o.sidecarImage = o.registry + "/sidecar:1.0"
	}
	return o, nil
}

// run serves until ctx is done. It writes one line to out when the webhooks are reachable and registered.
func (o options) run(ctx context.Context, out io.Writer) error {
	loading := clientcmd.NewDefaultClientConfigLoadingRules()
	loading.ExplicitPath = o.kubeconfig
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(loading, nil).ClientConfig()
	if err != nil {
		return err
	}
	if o.port == 0 {
		if o.port, err = freePort(o.bindAddress); err != nil {
			return err
		}
	}
	if o.registration.URL == "" && o.registration.Service == "" {
		o.registration.URL = fmt.Sprintf("https://127.0.0.1:%d", o.port)
	}
	hosts, err := o.registration.hosts()
	if err != nil {
		return err
	}
	certificates, err := certificatesIn(o.certDir, hosts)
	if err != nil {
		return err
	}
	o.registration.CA = certificates.CA
	present, err := certificates.serve()
	if err != nil {
		return err
	}

	hooks := webhook.NewServer(webhook.Options{
		Host: o.bindAddress, Port: o.port, TLSOpts: []func(*tls.Config){present},
	})
	mgr, err := ctrl.NewManager(config, ctrl.Options{
		WebhookServer: hooks,
		Metrics:       server.Options{BindAddress: "0"},
	})
	if err != nil {
		return err
	}
	err = ctrl.NewWebhookManagedBy(mgr, &corev1.Pod{}).
		WithDefaulter(Injector{Image: o.sidecarImage}).
		WithValidator(ImagePolicy{Registry: o.registry}).
		Complete()
	if err != nil {
		return err
	}
	err = mgr.Add(manager.RunnableFunc(func(ctx context.Context) error {
		if err := reachable(ctx, hooks); err != nil {
			return err
		}
		if err := o.registration.Register(ctx, mgr.GetClient()); err != nil {
			return err
		}
		at := o.registration.URL
		if o.registration.Service != "" {
			at = "service " + o.registration.Service
		}
		_, err := fmt.Fprintf(out, "podpolicy is ready at %s\n", at)
		return err
	}))
	if err != nil {
		return err
	}
	err = mgr.Start(ctx)
	if o.unregisterOnExit {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), farewell)
		defer cancel()
		if gone := o.registration.Unregister(ctx, mgr.GetClient()); err == nil {
			err = gone
		}
	}
	return err
}

// reachable waits until the webhook server responds.
func reachable(ctx context.Context, hooks webhook.Server) error {
	started := hooks.StartedChecker()
	return wait.PollUntilContextCancel(ctx, 20*time.Millisecond, true, func(context.Context) (bool, error) {
		return started(nil) == nil, nil
	})
}

func freePort(address string) (int, error) {
	l, err := net.Listen("tcp", net.JoinHostPort(address, "0"))
	if err != nil {
		return 0, err
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}
