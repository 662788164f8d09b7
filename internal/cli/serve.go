package cli

import (
	"context"
	"fmt"
	"os"
	"runtime/debug"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/apiserver/pkg/server/options"

	"github.com/gatehouse-dev/gatehouse/server"
)

// serveOptions are what the command line says.
type serveOptions struct {
	server    server.Options
	verbosity int
	// traceBytes is --admission-trace-bytes: 0 stands for no traces.
	traceBytes int
}

func newServe(streams Streams) *cobra.Command {
	return newServeCommand(func(ctx context.Context, o *serveOptions) error { return runServe(ctx, o, streams) })
}

func newServeCommand(run func(context.Context, *serveOptions) error) *cobra.Command {
	o := &serveOptions{server: server.Options{Audit: options.NewAuditOptions()}}
	var allowPrivileged bool
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run the API server",
		Long: `Serve a Kubernetes-style API with dynamic admission, from one process.

Everything the server writes goes to the data directory: its etcd, its
certificates, and a kubeconfig for the administrator. When it serves, it prints
one line on standard output; it logs to standard error. On SIGTERM it finishes
the requests under way and exits with 0.`,
		Example: `  # start a server, and talk to it from another terminal
  gatehouse serve
  gatehouse kubectl get namespaces

  # any free port, and the kubeconfig somewhere else
  gatehouse serve --secure-port 0 --kubeconfig-out ./kubeconfig

  # one of several servers on an etcd cluster
  gatehouse serve --etcd-servers https://10.0.0.1:2379,https://10.0.0.2:2379 \
    --etcd-cafile ca.crt --etcd-certfile client.crt --etcd-keyfile client.key`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.server.RefusePrivileged = !allowPrivileged
			if o.traceBytes < 0 {
				return usageError{fmt.Errorf("--admission-trace-bytes %d must not be negative", o.traceBytes)}
			}
			if o.server.AdmissionTraceBytes = o.traceBytes; o.traceBytes == 0 {
				o.server.AdmissionTraceBytes = -1
			}
			return run(cmd.Context(), o)
		},
	}
	cmd.Flags().SortFlags = false
	s := &o.server
	addSection(cmd, "Serving", func(f *pflag.FlagSet) {
		f.SortFlags = false
		f.StringVar(&s.DataDir, "data-dir", dataDir(), "directory for everything the server writes: etcd data, certificates, admin.kubeconfig")
		f.StringVar(&s.BindAddress, "bind-address", "127.0.0.1", "IP address to listen on")
		f.StringVar(&s.AdvertiseAddress, "advertise-address", "", "IP address under which the service kubernetes leads to this server (default that of --bind-address, or of the interface with the default route)")
		f.IntVar(&s.SecurePort, "secure-port", 6443, "port to listen on; 0 means any free port")
		f.StringVar(&s.KubeconfigOut, "kubeconfig-out", "", "where to write the administrator's kubeconfig (default admin.kubeconfig in the data directory)")
		f.IntVar(&s.MaxRequestsInFlight, "max-requests-inflight", 400, "requests that only read, handled at once; more get 429")
		f.IntVar(&s.MaxMutatingRequestsInFlight, "max-mutating-requests-inflight", 200, "requests that write, handled at once; more get 429")
		f.StringVar(&s.ServiceClusterIPRange, "service-cluster-ip-range", "10.0.0.0/24", "range that cluster IPs of services are taken from")
		f.BoolVar(&allowPrivileged, "allow-privileged", true, "accept pods with privileged containers")
		f.IntVarP(&o.verbosity, "v", "v", 0, "log verbosity: 0 for warnings and errors, 1 and more for ever more detail")
	})
	addSection(cmd, "Storage", func(f *pflag.FlagSet) {
		f.SortFlags = false
		f.StringSliceVar(&s.EtcdServers, "etcd-servers", nil, "URLs of an external etcd cluster (default an embedded etcd in the data directory)")
		f.Var(newByteCount(&s.MinFreeDisk, server.DefaultMinFreeDisk), "min-free-disk", "space on the disk of the embedded etcd that stays free: writes are refused while there is less; 0 for none")
		f.Var(newByteCount(&s.EtcdQuota, server.DefaultEtcdQuota), "etcd-quota", "size that the database of the embedded etcd may have; then only deletions are accepted")
		f.StringVar(&s.EtcdPrefix, "etcd-prefix", "/registry", "prefix of every key in etcd")
		f.StringVar(&s.EtcdCAFile, "etcd-cafile", "", "PEM file with the certificate authority of the external etcd")
		f.StringVar(&s.EtcdCertFile, "etcd-certfile", "", "PEM file with the client certificate for the external etcd")
		f.StringVar(&s.EtcdKeyFile, "etcd-keyfile", "", "PEM file with the key of --etcd-certfile")
	})
	addSection(cmd, "Certificates and users", func(f *pflag.FlagSet) {
		f.SortFlags = false
		f.StringVar(&s.TLSCertFile, "tls-cert-file", "", "PEM file with the serving certificate (default one signed by the server's own authority, made once)")
		f.StringVar(&s.TLSPrivateKeyFile, "tls-private-key-file", "", "PEM file with the key of --tls-cert-file")
		f.StringVar(&s.ClientCAFile, "client-ca-file", "", "PEM file with certificate authorities whose client certificates are believed, besides the server's own")
		f.StringVar(&s.TokenAuthFile, "token-auth-file", "", `CSV file of tokens: token,user,uid,"group1,group2"`)
		f.StringVar(&s.AuthorizationMode, "authorization-mode", "RBAC", "RBAC or AlwaysAllow")
	})
	addSection(cmd, "Admission", func(f *pflag.FlagSet) {
		f.SortFlags = false
		f.StringSliceVar(&s.AdmissionControl, "admission-control", nil, "admission plugins to run, in this order (default the recommended ones)")
		f.StringSliceVar(&s.EnableAdmissionPlugins, "enable-admission-plugins", nil, "admission plugins to run besides those that run by default")
		f.StringSliceVar(&s.DisableAdmissionPlugins, "disable-admission-plugins", nil, "admission plugins not to run")
		f.StringVar(&s.AdmissionConfigFile, "admission-control-config-file", "", "AdmissionConfiguration file: as whom the server authenticates to webhooks")
		f.StringVar(&s.ProxyClientCertFile, "proxy-client-cert-file", "", "PEM file with the client certificate for external hooks (v1alpha1) without a user in the configuration file")
		f.StringVar(&s.ProxyClientKeyFile, "proxy-client-key-file", "", "PEM file with the key of --proxy-client-cert-file")
		f.StringSliceVar(&s.RuntimeConfig, "runtime-config", nil, "versions to switch on or off: admissionregistration.k8s.io/v1alpha1=false or /v1beta1=false (default both on)")
		f.DurationVar(&s.AdmissionRefreshInterval, "admission-refresh-interval", time.Second, "how often registrations are read")
		f.DurationVar(&s.AdmissionMaxStaleness, "admission-max-staleness", 5*time.Second, "writes are refused when the last read of registrations began longer ago")
		f.StringVar(&s.AdmissionConsistency, "admission-consistency", "bounded", "bounded: a registration is in force on every server within the refresh interval; strict: as soon as its write is acknowledged")
		f.StringVar(&s.AdmissionWebhookBreaker, "admission-webhook-breaker", "connect", "which failures in a row make a webhook server be skipped until it answers again: connect; timeout: also calls not answered in time; off")
		f.IntVar(&s.AdmissionWebhookMaxInFlight, "admission-webhook-max-inflight", 200, "calls to one webhook server under way at once; more wait, or fail when their time would not do")
		f.IntVar(&o.traceBytes, "admission-trace-bytes", 8<<20, "memory for the traces of the latest requests, in bytes, about; 0 keeps none")
		f.BoolVar(&s.AdmissionTraceRedact, "admission-trace-redact", false, "leave the values of all patches out of traces; those of secrets are always left out")
		f.DurationVar(&s.InitializerTimeout, "initializer-timeout", 5*time.Second, "how long an initializer may take")
		f.DurationVar(&s.InitializerRepairAfter, "initializer-repair-after", 10*time.Minute, "age at which an object that was left uninitialized is mended when it is read")
	})
	addSection(cmd, "Audit", s.Audit.AddFlags)
	return cmd
}

// settle is how long after its start a server still does things that it does
// once only.
const settle = 3 * time.Second

// runServe serves until ctx ends.
func runServe(ctx context.Context, o *serveOptions, streams Streams) error {
	if o.verbosity < 0 {
		return usageError{fmt.Errorf("--v %d must not be negative", o.verbosity)}
	}
	s, err := server.New(o.server)
	if err != nil {
		return usageError{err}
	}
	if err := startLogging(streams.Err, o.verbosity); err != nil {
		return err
	}
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(collectAt)
	}
	serving, stop := context.WithCancel(ctx)
	var keeping sync.WaitGroup
	defer keeping.Wait()
	defer stop()
	return s.Run(ctx, func(a server.Address) {
		fmt.Fprintf(streams.Out, "gatehouse is ready at %s, kubeconfig %s\n", a.URL, a.Kubeconfig)
		keeping.Go(func() { keepMemory(serving) })
		time.AfterFunc(settle, forgetProgram)
	})
}
