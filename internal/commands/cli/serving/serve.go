package serving

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	cliflag "k8s.io/component-base/cli/flag"

	"github.com/gatehouse-dev/gatehouse/internal/commands/cli/command"
	"github.com/gatehouse-dev/gatehouse/internal/kit/emulation"
	"github.com/gatehouse-dev/gatehouse/internal/kit/scratch"
	"github.com/gatehouse-dev/gatehouse/internal/kit/survive"
	"github.com/gatehouse-dev/gatehouse/internal/kit/terminal"
	"github.com/gatehouse-dev/gatehouse/internal/server"
	"github.com/gatehouse-dev/gatehouse/plugins"
)

// serveOptions are the options of the command line.
type serveOptions struct {
	server server.Options
	log    command.Logging
	// traceBytes is the value of --admission-trace-bytes: 0 disables traces.
	traceBytes int
	// test is the value of --test.
	test bool
	// idle are the given flags that idleFlags contains.
	idle []string
}

// testDefaults are the flag defaults of serve --test.
var testDefaults = []struct{ flag, value string }{
	{"secure-port", "0"},
	{"admission-consistency", "strict"},
	// Tests register webhooks before they serve them.
	{"admission-webhook-breaker", "off"},
	{"min-free-disk", "0"},
	// All requests of a suite are from one user.
	{"enable-priority-and-fairness", "false"},
}

// forTests configures a server that starts and ends quickly and leaves no files behind. remove deletes its
// files.
func (o *serveOptions) forTests(flags *pflag.FlagSet) (remove func(), err error) {
	for _, d := range testDefaults {
		if !flags.Changed(d.flag) {
			if err := flags.Set(d.flag, d.value); err != nil {
				panic(fmt.Sprintf("cli: the default of --%s in tests: %v", d.flag, err))
			}
		}
	}
	o.server.UnsafeNoFsync, o.server.EndAtOnce, o.server.AdmissionTraceSkips = true, true, true
	if flags.Changed("data-dir") {
		scratch.Sweep()
		return func() {}, nil
	}
	dir, err := scratch.New()
	if err != nil {
		return nil, fmt.Errorf("temporary data directory: %w", err)
	}
	o.server.DataDir = dir.Path()
	return dir.Remove, nil
}

// NewServe returns the command gatehouse serve.
func NewServe(streams command.Streams) *cobra.Command {
	c := &serverConfiguration{}
	var cmd *cobra.Command
	cmd = newServeCommand(func(ctx context.Context, o *serveOptions) error {
		if c.print {
			return c.write(streams.Out, cmd.Flags(), o)
		}
		return runServe(ctx, o, streams)
	})
	c.addTo(cmd)
	return cmd
}

func newServeCommand(run func(context.Context, *serveOptions) error) *cobra.Command {
	d := server.Defaults()
	o := &serveOptions{server: server.Options{Audit: d.Audit, RequestHeader: d.RequestHeader, Authentication: d.Authentication, Authorization: d.Authorization, Features: d.Features}, log: command.NewLogging()}
	o.server.SecureServing = d.SecureServing
	flags := &serveFlags{}
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run the API server",
		Args:  command.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := flags.apply(cmd.Flags(), &o.server); err != nil {
				return err
			}
			cmd.Flags().Visit(func(f *pflag.Flag) {
				if idleFlags[f.Name] != "" {
					o.idle = append(o.idle, f.Name)
				}
			})
			if o.traceBytes < 0 {
				return command.Usagef("--admission-trace-bytes %d must not be negative", o.traceBytes)
			}
			if o.server.AdmissionTraceBytes = o.traceBytes; o.traceBytes == 0 {
				o.server.AdmissionTraceBytes = -1
			}
			authorization := o.server.Authorization
			if authorization.AuthorizationConfigurationFile != "" && authorization.AreLegacyFlagsSet() {
				return command.Usagef("--authorization-config can not be specified when --authorization-mode or --authorization-webhook-* flags are defined")
			}
			authorization.AreLegacyFlagsSet = nil
			if len(o.server.Controllers) == 0 {
				// As in a kube-controller-manager, an empty list means none.
				o.server.Controllers = []string{server.NoControllers}
			}
			o.server.Flags = shownFlags{cmd.Flags()}
			// Other projects' test suites may count the events.
			if o.server.HintsAtMissing = !o.test; !o.test {
				return run(cmd.Context(), o)
			}
			remove, err := o.forTests(cmd.Flags())
			if err != nil {
				return err
			}
			defer remove()
			ctx, stop := whileParentLives(cmd.Context())
			defer stop()
			return run(ctx, o)
		},
	}
	s := &o.server
	command.AddSection(cmd, "Serving", func(f *pflag.FlagSet) {
		f.StringVar(&s.DataDir, "data-dir", command.DataDir(), "directory for everything the server writes: etcd data, certificates, admin.kubeconfig")
		f.StringVar(&s.BindAddress, "bind-address", d.BindAddress, "IP address to listen on")
		f.StringVar(&s.AdvertiseAddress, "advertise-address", "", "IP address of this server in the endpoints of the service kubernetes (default from --bind-address, or of the interface with the default route)")
		f.IntVar(&s.SecurePort, "secure-port", 6443, "port to listen on; 0 means any free port")
		f.StringVar(&s.KubeconfigOut, "kubeconfig-out", "", "where to write the administrator's kubeconfig (default admin.kubeconfig in the data directory)")
		f.IntVar(&s.MaxRequestsInFlight, "max-requests-inflight", d.MaxRequestsInFlight, "seats of priority and fairness, added to --max-mutating-requests-inflight; without it, maximum concurrent requests that only read: further ones get 429")
		f.IntVar(&s.MaxMutatingRequestsInFlight, "max-mutating-requests-inflight", d.MaxMutatingRequestsInFlight, "seats of priority and fairness, added to --max-requests-inflight; without it, maximum concurrent requests that write: further ones get 429")
		f.StringVar(&s.ServiceClusterIPRange, "service-cluster-ip-range", d.ServiceClusterIPRange, "IP range for the cluster IPs of services")
		f.BoolVar(&flags.allowPrivileged, "allow-privileged", true, "accept pods with privileged containers")
		nodePorts := &s.NodePorts
		*nodePorts = d.NodePorts
		f.Var(nodePorts, "service-node-port-range", "range that node ports of services are taken from")
		f.DurationVar(&s.EventTTL, "event-ttl", d.EventTTL, "how long events are kept")
		f.DurationVar(&s.RequestTimeout, "request-timeout", d.RequestTimeout, "time within which a request that is not a watch is answered")
		f.IntVar(&flags.minRequestTimeout, "min-request-timeout", int(d.MinRequestTimeout/time.Second), "seconds that a watch without a timeout of its own takes at least; it takes twice that at most")
		f.Float64Var(&s.GoawayChance, "goaway-chance", 0, "share of requests, 0.02 at most, after which an HTTP/2 connection is closed, so that clients behind a load balancer come to other servers")
		f.DurationVar(&s.ShutdownDelay, "shutdown-delay-duration", 0, "time for which the server serves on after SIGTERM, with /readyz failing, until load balancers know")
		f.BoolVar(&s.Console, "console", true, "serve a page for the browser at /console/, with the objects that the viewer may read by the API")
		f.BoolVar(&o.test, "test", false, "a server for tests: a temporary data directory and any free port unless flags name others, no fsync, strict consistency, no breaker, no priority and fairness, and traces that say why webhooks were not called; it ends at once, and with the process that started it")
	})
	command.AddSection(cmd, "Log and debugging", func(f *pflag.FlagSet) {
		o.log.AddFlags(f, "log verbosity: 0 logs warnings and errors; higher numbers log more; from 3 on the log has every request")
		pick(f, s.Features.AddFlags,
			[2]string{"profiling", "serve profiles at /debug/pprof/, the log verbosity at /debug/flags/v, and the latest records of the log at /debug/log, to users with the right to get these paths"},
			[2]string{"contention-profiling", "with --profiling, also record where goroutines wait"},
			[2]string{"debug-socket-path", "Unix socket that serves profiles to every user with access to the file"},
			[2]string{"enable-priority-and-fairness", "let requests wait for seats as FlowSchemas and PriorityLevelConfigurations say, so that no user keeps out others"},
		)
	})
	command.AddSection(cmd, "Version of Kubernetes", func(f *pflag.FlagSet) {
		f.StringSliceVar(&s.EmulatedVersion, "emulated-version", nil, "release of Kubernetes to behave as, one of "+strings.Join(emulation.Releases(), ", ")+" (default the last one)")
		f.StringSliceVar(&s.MinCompatibilityVersion, "min-compatibility-version", nil, "oldest release that reads the stored objects, and whose CEL functions new expressions may use (default the release before --emulated-version)")
		f.StringSliceVar(&s.FeatureGates, "feature-gates", nil, "feature gates to switch: NAME=true or NAME=false")
		command.Choose(f, &s.LaterFields, "later-fields", "", d.LaterFields, "with --emulated-version, what becomes of fields in requests that the release does not have: warn lets them count and warns, reject treats them as unknown fields, as a server of that release does, keep says nothing, as kube-apiserver", server.LaterFields...)
		f.BoolVar(&s.EmulationForwardCompatible, "emulation-forward-compatible", false, "with --emulated-version, serve also the later versions of kinds that the release has")
		f.BoolVar(&s.RuntimeConfigEmulationForwardCompatible, "runtime-config-emulation-forward-compatible", false, "with --emulated-version, let --runtime-config switch on what later releases introduced")
	})
	command.AddSection(cmd, "Storage", func(f *pflag.FlagSet) {
		f.StringSliceVar(&s.EtcdServers, "etcd-servers", nil, "URLs of an external etcd cluster (default an embedded etcd in the data directory)")
		f.BoolVar(&s.Cluster, "cluster", false, "make the embedded etcd the first member of a cluster that other servers can join; existing data stay")
		f.StringVar(&s.Join, "join", "", "URL of a server whose cluster this one joins; no effect on the data directory of a member")
		f.StringVar(&s.JoinTokenFile, "join-token-file", "", "file with the token for --join, which only its owner may read: 'gatehouse cluster token create' prints one")
		f.BoolVar(&s.AllowDifferentJudging, "allow-different-judging", false, "with --join, also join servers whose admission plugins, feature gates, versions or files are others")
		f.StringVar(&s.PeerAddress, "peer-address", "", "HOST:PORT at which the other servers of the cluster reach the embedded etcd (default port 2380 of --advertise-address)")
		f.StringVar(&s.PeerBindAddress, "peer-bind-address", "", "IP:PORT at which the embedded etcd listens for the other servers (default from --peer-address)")
		f.StringVar(&s.PeerCertFile, "peer-cert-file", "", "PEM file with the certificate between the servers of a cluster, for both directions (default created by the servers)")
		f.StringVar(&s.PeerKeyFile, "peer-key-file", "", "PEM file with the key of --peer-cert-file")
		f.StringVar(&s.PeerTrustedCAFile, "peer-trusted-ca-file", "", "PEM file with the CAs that sign the certificates of the servers of the cluster, and nothing else")
		f.StringVar(&s.EncryptionProviderConfig, "encryption-provider-config", "", "EncryptionConfiguration file: with which keys or KMS plugins objects are encrypted in etcd")
		f.BoolVar(&s.EncryptionProviderConfigAutomaticReload, "encryption-provider-config-automatic-reload", false, "look every minute whether --encryption-provider-config has changed, and use it")
		f.Var(command.NewByteCount(&s.MinFreeDisk, d.MinFreeDisk), "min-free-disk", "disk space to keep free for the embedded etcd; the server refuses writes while less is free; 0 disables the check")
		f.Var(command.NewByteCount(&s.EtcdQuota, d.EtcdQuota), "etcd-quota", "maximum size of the database of the embedded etcd; at this size the server accepts only deletions")
		f.Bool("etcd-quorum-read", true, "")
		f.Int("apiserver-count", 1, "")
		for name := range idleFlags {
			f.Lookup(name).Hidden = true
		}
		f.DurationVar(&flags.compaction, "etcd-compaction-interval", d.EtcdCompactionInterval, "how often this server compacts etcd; 0 means never")
		f.StringVar(&s.StorageMediaType, "storage-media-type", d.StorageMediaType, "form in which built-in objects are stored: application/vnd.kubernetes.protobuf, application/json or application/yaml")
		f.StringVar(&s.EtcdPrefix, "etcd-prefix", d.EtcdPrefix, "prefix of every key in etcd")
		f.StringVar(&s.BackupSchedule, "backup-schedule", "", "when to back up the embedded etcd, as a CronJob says it, such as \"0 */6 * * *\" or @daily (default never)")
		f.IntVar(&s.BackupKeep, "backup-keep", d.BackupKeep, "number of the latest backups that stay when a scheduled one is made")
		f.StringVar(&s.BackupDir, "backup-dir", "", "directory for scheduled backups (default backups in the data directory)")
		f.StringVar(&s.EtcdCAFile, "etcd-cafile", "", "PEM file with the CA of the external etcd")
		f.StringVar(&s.EtcdCertFile, "etcd-certfile", "", "PEM file with the client certificate for the external etcd")
		f.StringVar(&s.EtcdKeyFile, "etcd-keyfile", "", "PEM file with the key of --etcd-certfile")
	})
	command.AddSection(cmd, "Certificates and users", func(f *pflag.FlagSet) {
		f.StringVar(&s.TLSCertFile, "tls-cert-file", "", "PEM file with the serving certificate (default a certificate signed by the server's own CA, created at the first start)")
		f.StringVar(&s.TLSPrivateKeyFile, "tls-private-key-file", "", "PEM file with the key of --tls-cert-file")
		pick(f, s.SecureServing.AddFlags,
			[2]string{"tls-min-version", "lowest version of TLS that is accepted, such as VersionTLS13 (default VersionTLS12)"},
			[2]string{"tls-cipher-suites", "cipher suites of TLS 1.2 that are accepted, by their names in Go (default the list of Go)"},
			[2]string{"http2-max-streams-per-connection", "maximum concurrent requests on one HTTP/2 connection"},
			[2]string{"disable-http2-serving", "serve HTTP/1.1 only"},
		)
		f.StringArrayVar(&flags.names, "tls-sni-cert-key", nil, "PEM files with a certificate and its key for other names, as CERT,KEY or CERT,KEY:NAME,NAME; may be repeated")
		f.StringSliceVar(&s.StrictTransportSecurity, "strict-transport-security-directives", nil, "directives of the header Strict-Transport-Security, such as max-age=31536000,includeSubDomains (default no such header)")
		f.StringSliceVar(&s.CORSAllowedOrigins, "cors-allowed-origins", nil, "regular expressions for the origins whose pages may read answers in a browser, such as ^https://example\\.com$ (default none)")
		f.BoolVar(&flags.anonymous, "anonymous-auth", true, "whether callers without credentials are the user system:anonymous (default at the paths of health and version only; true means at all paths)")
		f.StringVar(&s.ClientCAFile, "client-ca-file", "", "PEM file with the CAs trusted for client certificates, in addition to the server's own")
		f.StringVar(&s.TokenAuthFile, "token-auth-file", "", `CSV file of tokens: token,user,uid,"group1,group2"`)
		proxies := s.RequestHeader
		f.StringVar(&proxies.ClientCAFile, "requestheader-client-ca-file", "", "PEM file with the CAs of proxies that may say in headers who a caller is, in addition to the server's own CA for that")
		f.StringSliceVar(&proxies.AllowedNames, "requestheader-allowed-names", nil, "common names that the certificates of such proxies may have (default any name)")
		f.StringSliceVar(&proxies.UsernameHeaders, "requestheader-username-headers", nil, "headers with the name of the caller (default X-Remote-User)")
		f.StringSliceVar(&proxies.UIDHeaders, "requestheader-uid-headers", nil, "headers with the uid of the caller, such as X-Remote-Uid; none by default")
		f.StringSliceVar(&proxies.GroupHeaders, "requestheader-group-headers", nil, "headers with the groups of the caller (default X-Remote-Group)")
		f.StringSliceVar(&proxies.ExtraHeaderPrefixes, "requestheader-extra-headers-prefix", nil, "prefixes of headers with extra fields of the caller (default X-Remote-Extra-)")
	})
	command.AddSection(cmd, "Tokens of service accounts", func(f *pflag.FlagSet) {
		f.StringArrayVar(&s.ServiceAccountIssuers, "service-account-issuer", nil, "issuers of tokens that are accepted; the first one issues new tokens, and an https URL is described at /.well-known/openid-configuration; may be repeated (default https://kubernetes.default.svc.cluster.local)")
		f.StringArrayVar(&s.ServiceAccountKeyFiles, "service-account-key-file", nil, "PEM file with public keys or certificates that verify tokens, in addition to the signing key; may be repeated")
		f.StringVar(&s.ServiceAccountSigningKeyFile, "service-account-signing-key-file", "", "PEM file with the key that signs tokens (default created by the server)")
		f.StringVar(&s.ServiceAccountSigningEndpoint, "service-account-signing-endpoint", "", "socket of an external signer of tokens, instead of key files")
		f.DurationVar(&s.ServiceAccountMaxTokenExpiration, "service-account-max-token-expiration", 0, "how long a token may be valid; tokens that are asked for longer are valid for this time (default no limit)")
		f.BoolVar(&flags.extendTokens, "service-account-extend-token-expiration", true, "let a token of a pod be valid for a year although the pod reads that it is valid for an hour")
		f.StringVar(&s.ServiceAccountJWKSURI, "service-account-jwks-uri", "", "https URL of the keys that verify tokens, in the description of the issuer (default /openid/v1/jwks of this server)")
	})
	command.AddSection(cmd, "Tokens of others", sorted(s.Authentication.AddFlags))
	command.AddSection(cmd, "Authorization", func(f *pflag.FlagSet) {
		sorted(s.Authorization.AddFlags)(f)
		f.Lookup("authorization-mode").Usage = "authorizers to ask, in this order, unless --authorization-config names others: RBAC, Node, Webhook, ABAC, AlwaysAllow or AlwaysDeny"
	})
	command.AddSection(cmd, "Admission", func(f *pflag.FlagSet) {
		f.StringSliceVar(&s.AdmissionControl, "admission-control", nil, "admission plugins to run, in this order (default as in kube-apiserver, with Initializers and GenericAdmissionWebhook)")
		f.StringSliceVar(&s.EnableAdmissionPlugins, "enable-admission-plugins", nil, "admission plugins to run in addition to the default ones")
		f.StringSliceVar(&s.DisableAdmissionPlugins, "disable-admission-plugins", nil, "admission plugins to turn off")
		f.StringVar(&s.AdmissionConfigFile, "admission-control-config-file", "", "AdmissionConfiguration file: configurations of plugins, credentials for webhooks, directories of manifests, and exclusion rules")
		plugins.AddFlags(f)
		f.StringVar(&s.ProxyClientCertFile, "proxy-client-cert-file", "", "PEM file with the client certificate for aggregated servers (default created by the server), and for external hooks (v1alpha1) without a user in the configuration file")
		f.StringVar(&s.ProxyClientKeyFile, "proxy-client-key-file", "", "PEM file with the key of --proxy-client-cert-file")
		f.StringSliceVar(&s.RuntimeConfig, "runtime-config", nil, "API versions to switch on or off: admissionregistration.k8s.io/v1alpha1=false or /v1beta1=false (default both on); /v1beta1=true adds MutatingAdmissionPolicy to v1beta1; extensions/v1beta1=true, apps/v1beta1=true or apps/v1beta2=true (default all off); a version that kube-apiserver has and does not serve by default, such as resource.k8s.io/v1beta2=true, or one resource of it; api/all=true, api/beta=true or api/alpha=true for all of these versions; api/legacy=true switches on extensions/v1beta1, apps/v1beta1 and apps/v1beta2, and OpenAPI where clients of 2017 read it")
		f.DurationVar(&s.AdmissionRefreshInterval, "admission-refresh-interval", d.AdmissionRefreshInterval, "how often the server reads registrations")
		f.DurationVar(&s.AdmissionMaxStaleness, "admission-max-staleness", d.AdmissionMaxStaleness, "maximum age of the last read of registrations; the server refuses writes when it is older")
		f.StringVar(&s.AdmissionConsistency, "admission-consistency", d.AdmissionConsistency, "when a registration takes effect on every server. bounded: within 1.25 refresh intervals; strict: as soon as its write is acknowledged")
		f.StringVar(&s.AdmissionWebhookBreaker, "admission-webhook-breaker", d.AdmissionWebhookBreaker, "failures that count: after five in a row the server does not call a webhook server until it answers again. connect: failed connections; timeout: also calls that time out; off: none")
		f.IntVar(&s.AdmissionWebhookMaxInFlight, "admission-webhook-max-inflight", d.AdmissionWebhookMaxInFlight, "maximum concurrent calls to one webhook server; further calls wait; a call fails immediately if it cannot meet its deadline")
		f.StringArrayVar(&s.ServiceAddresses, "service-address", nil, "address of a service whose webhook or aggregated server runs elsewhere, as NAMESPACE/NAME[:PORT]=HOST:PORT; may be repeated")
		f.IntVar(&o.traceBytes, "admission-trace-bytes", d.AdmissionTraceBytes, "approximate memory for the traces of the latest requests, in bytes; 0 keeps none")
		f.BoolVar(&s.AdmissionTraceRedact, "admission-trace-redact", false, "omit the values of all patches from traces; traces never have values of secrets")
		f.DurationVar(&s.InitializerTimeout, "initializer-timeout", d.InitializerTimeout, "time within which an initializer must act")
		f.DurationVar(&s.InitializerRepairAfter, "initializer-repair-after", d.InitializerRepairAfter, "age after which a read removes an overdue initializer from an uninitialized object")
		f.DurationVar(&s.InitializerReleaseTimeout, "initializer-release-timeout", d.InitializerReleaseTimeout, "time for which an object that was deleted before it was initialized is kept for the finalizers of initializers")
	})
	for _, flag := range []string{"admission-control", "enable-admission-plugins", "disable-admission-plugins"} {
		command.Completes(cmd, flag, server.PluginNames)
	}
	command.AddSection(cmd, "Controllers", func(f *pflag.FlagSet) {
		f.StringSliceVar(&s.Controllers, "controllers", []string{"*"}, "controllers to run: * for the default list, +NAME or -NAME to change that, only the given names, or -* for none; docs/controllers.md has the names")
		f.IntVar(&s.FakeNodes, "fake-nodes", 0, "number of simulated nodes, for tests: pods are bound to them and become ready without a container; annotations gatehouse.dev/fake-outcome (Succeeded, Failed, Running) and gatehouse.dev/fake-runtime of a pod say how and when it ends")
	})
	command.AddSection(cmd, "Audit", sorted(s.Audit.AddFlags))
	command.AddSection(cmd, "OpenTelemetry", func(f *pflag.FlagSet) {
		f.StringVar(&s.TracingConfigFile, "tracing-config-file", "", "TracingConfiguration file: the OpenTelemetry receiver for the spans of requests, and how many requests are traced")
	})
	return cmd
}

// idleFlags are flags of kube-apiserver in old command lines, each with the reason for having no effect.
var idleFlags = map[string]string{
	"etcd-quorum-read": "reads of etcd always go through a quorum",
	"apiserver-count":  "servers on one etcd know of each other by themselves",
}

// serveFlags are values of flags that server.Options represents differently.
type serveFlags struct {
	allowPrivileged, anonymous, extendTokens bool
	minRequestTimeout                        int
	compaction                               time.Duration
	names                                    []string
}

// apply sets the options of these flags.
func (v *serveFlags) apply(flags *pflag.FlagSet, o *server.Options) error {
	for _, pair := range v.names {
		var parsed cliflag.NamedCertKey
		if err := parsed.Set(pair); err != nil {
			return command.Usagef("--tls-sni-cert-key %s: %w", pair, err)
		}
		o.SecureServing.SNICertKeys = append(o.SecureServing.SNICertKeys, parsed)
	}
	o.RefusePrivileged, o.ServiceAccountKeepTokenExpiration = !v.allowPrivileged, !v.extendTokens
	o.MinRequestTimeout = time.Duration(v.minRequestTimeout) * time.Second
	if o.EtcdCompactionInterval = v.compaction; v.compaction == 0 {
		o.EtcdCompactionInterval = -1
	}
	if flags.Changed("anonymous-auth") {
		o.AnonymousAuth = &v.anonymous
	}
	return nil
}

// pick adds some flags of an option of k8s.io/apiserver, each with its own description.
func pick(f *pflag.FlagSet, add func(*pflag.FlagSet), named ...[2]string) {
	all := pflag.NewFlagSet("", pflag.ContinueOnError)
	add(all)
	for _, one := range named {
		flag := all.Lookup(one[0])
		flag.Usage = one[1]
		f.AddFlag(flag)
	}
}

// sorted defines flags in the order of their names.
func sorted(define func(*pflag.FlagSet)) func(*pflag.FlagSet) {
	return func(f *pflag.FlagSet) {
		f.SortFlags = true
		define(f)
	}
}

// leaveOutDropped removes admission plugins that Kubernetes has dropped, with a warning for each: old command
// lines keep working (S9.20).
func leaveOutDropped(s *server.Options, warn func(string, ...any)) {
	for _, list := range []struct {
		flag  string
		names *[]string
	}{
		{"admission-control", &s.AdmissionControl}, {"enable-admission-plugins", &s.EnableAdmissionPlugins}, {"disable-admission-plugins", &s.DisableAdmissionPlugins},
	} {
		*list.names = slices.DeleteFunc(slices.Clone(*list.names), func(name string) bool {
			name = strings.TrimSpace(name)
			why, dropped := plugins.Dropped[name]
			if dropped {
				warn("--%s: the plugin %s is left out: %s", list.flag, name, why)
			}
			return dropped
		})
	}
}

// runServe serves until ctx ends.
func runServe(ctx context.Context, o *serveOptions, streams command.Streams) error {
	if err := o.log.Check(); err != nil {
		return err
	}
	latest := &latestLog{}
	o.server.LatestLog = latest.Bytes
	warn := func(format string, args ...any) { terminal.Fprintf(streams.Err, "gatehouse: "+format+"\n", args...) }
	leaveOutDropped(&o.server, warn)
	for _, name := range o.idle {
		warn("--%s has no effect: %s", name, idleFlags[name])
	}
	o.server.ProgramVersion = command.CurrentVersion().Version
	s, err := server.New(o.server)
	if err != nil {
		return command.UsageError{Err: err}
	}
	if err := o.log.Start(ctx, io.MultiWriter(o.log.Writer(streams.Err), latest)); err != nil {
		return err
	}
	garbage := int64(room)
	if o.server.EndAtOnce {
		garbage = roomInTests
	}
	serving, stop := context.WithCancel(ctx)
	var keeping sync.WaitGroup
	defer keeping.Wait()
	defer stop()
	keeping.Go(func() {
		survive.Run(serving, "memory", func(ctx context.Context) { keepMemory(ctx, garbage) })
	})
	systemd := newSupervisor()
	defer context.AfterFunc(ctx, func() { systemd.notify(stopping) })()
	return s.Run(ctx, func(a server.Address) {
		terminal.Fprintf(streams.Out, "gatehouse is ready at %s, kubeconfig %s\n", a.URL, a.Kubeconfig)
		systemd.notify(ready)
		keeping.Go(func() { systemd.watch(serving, a) })
	})
}
