package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/gatehouse-dev/gatehouse/initializer"
)

// options are the flags of the program.
type options struct {
	kubeconfig   string
	address      string
	cert, key    string
	maxProjects  int
	jenkinsImage string
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	log.SetLogger(logr.Discard())
	o, err := parse(os.Args[1:], os.Stderr)
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err == nil {
		err = o.run(ctx, os.Stdout)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "openshift:", err)
		os.Exit(1)
	}
}

func parse(args []string, usage io.Writer) (options, error) {
	var o options
	f := flag.NewFlagSet("openshift", flag.ContinueOnError)
	f.SetOutput(io.Discard)
	f.StringVar(&o.kubeconfig, "kubeconfig", "", "`file` that names the API server (default: as kubectl finds it)")
	f.StringVar(&o.address, "address", "127.0.0.1:9443", "`address` at which the webhook listens")
	f.StringVar(&o.cert, "cert", "cert.pem", "`file` with the certificate of the webhook")
	f.StringVar(&o.key, "key", "key.pem", "`file` with its key")
	f.IntVar(&o.maxProjects, "max-projects", 5, "number of namespaces that a user may have")
	f.StringVar(&o.jenkinsImage, "jenkins-image", "docker.io/jenkins/jenkins:lts", "`image` of Jenkins")
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
	if o.maxProjects < 0 {
		return o, fmt.Errorf("-max-projects %d: it must not be negative", o.maxProjects)
	}
	return o, nil
}

// reportEvery is the interval between updates of the status of cluster quotas.
const reportEvery = 5 * time.Second

// run works until ctx is done. It writes one line to out at the start.
func (o options) run(ctx context.Context, out io.Writer) error {
	loading := clientcmd.NewDefaultClientConfigLoadingRules()
	loading.ExplicitPath = o.kubeconfig
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(loading, nil).ClientConfig()
	if err != nil {
		return err
	}
	handler, err := o.handler(config)
	if err != nil {
		return err
	}
	controllers, err := o.initializers(config)
	if err != nil {
		return err
	}
	server := &http.Server{Addr: o.address, Handler: handler, ReadHeaderTimeout: 10 * time.Second}
	group, ctx := errgroup.WithContext(ctx)
	for _, c := range controllers {
		group.Go(func() error { return c.Run(ctx) })
	}
	group.Go(func() error { return reportAll(ctx, config, reportEvery) })
	group.Go(func() error {
		if err := server.ListenAndServeTLS(o.cert, o.key); !errors.Is(err, http.ErrServerClosed) {
			return err
		}
		return nil
	})
	group.Go(func() error {
		<-ctx.Done()
		return server.Close()
	})
	if _, err := fmt.Fprintf(out, "openshift works for %s and serves its webhook at https://%s\n", config.Host, o.address); err != nil {
		return err
	}
	return group.Wait()
}

// handler serves the webhook.
func (o options) handler(config *rest.Config) (http.Handler, error) {
	// A webhook must not wait for the rate limit of its own client.
	config = rest.CopyConfig(config)
	config.QPS = -1
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	objects, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	mux.Handle("POST /project-limit", &admission.Webhook{Handler: projectLimit{client.CoreV1().Namespaces(), o.maxProjects}})
	mux.Handle("POST /role-bindings", &admission.Webhook{Handler: roleBindings{objects}})
	mux.Handle("POST /security-context/fill", &admission.Webhook{Handler: securityContext{client, objects, true}})
	mux.Handle("POST /security-context/check", &admission.Webhook{Handler: securityContext{client, objects, false}})
	return mux, nil
}

// initializers returns the controllers of the two initializers.
func (o options) initializers(config *rest.Config) ([]*initializer.Controller, error) {
	jenkins, err := newJenkins(config, o.jenkinsImage)
	if err != nil {
		return nil, err
	}
	quota, err := newClusterQuota(config)
	if err != nil {
		return nil, err
	}
	return []*initializer.Controller{jenkins, quota}, nil
}
