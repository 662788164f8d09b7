package serving

import (
	"context"
	"flag"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apiserver/pkg/server/options"
	cliflag "k8s.io/component-base/cli/flag"

	"github.com/gatehouse-dev/gatehouse/internal/commands/cli/command"
	"github.com/gatehouse-dev/gatehouse/internal/server"
)

var update = flag.Bool("update", false, "write docs/reference/server.md and kubeapiserver_gates.txt anew")

// parse returns the options of a command line of serve.
func parse(t *testing.T, args ...string) (*serveOptions, error) {
	t.Helper()
	var got *serveOptions
	cmd := newServeCommand(func(_ context.Context, o *serveOptions) error { got = o; return nil })
	// With nil, cobra would parse the arguments of the test.
	cmd.SetArgs(append([]string{}, args...))
	cmd.SetErr(io.Discard)
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	err := cmd.Execute()
	return got, err
}

// S27.1: priority and fairness is on by default for servers of many users, and off by default for servers of a
// test suite. The command line overrides both.
func TestServersAreFairByDefault(t *testing.T) {
	for args, want := range map[string]bool{
		"":                                     true,
		"--enable-priority-and-fairness=false": false,
		"--test --data-dir d":                  false,
		"--test --data-dir d --enable-priority-and-fairness": true,
	} {
		got, err := parse(t, strings.Fields(args)...)
		if err != nil {
			t.Fatal(err)
		}
		if fair := got.server.Features.EnablePriorityAndFairness; fair != want {
			t.Errorf("serve %s: %t, want %t", args, fair, want)
		}
	}
	got, _, err := standIn(t)
	if err != nil {
		t.Fatal(err)
	}
	if got.server.Features.EnablePriorityAndFairness {
		t.Error("a kube-apiserver of a suite has priority and fairness")
	}
}

// The names and defaults of flags that other programs rely on when they start a server.
func TestServeParsesTheContract(t *testing.T) {
	t.Setenv(command.DataDirVariable, "")
	with := func(change func(*server.Options)) server.Options {
		o := server.Options{
			Console: true,
			DataDir: "./gatehouse.data", BindAddress: "127.0.0.1", SecurePort: 6443, EtcdPrefix: "/registry",
			MinFreeDisk: 128 << 20, EtcdQuota: 8 << 30, BackupKeep: 10,
			ServiceClusterIPRange: "10.0.0.0/24",
			MaxRequestsInFlight:   400, MaxMutatingRequestsInFlight: 200,
			AdmissionRefreshInterval: time.Second, AdmissionMaxStaleness: 5 * time.Second, AdmissionConsistency: "bounded",
			AdmissionWebhookBreaker: "connect", AdmissionWebhookMaxInFlight: 200,
			AdmissionTraceBytes: 8 << 20,
			InitializerTimeout:  5 * time.Second, InitializerRepairAfter: 10 * time.Minute, InitializerReleaseTimeout: time.Hour,
			Controllers: []string{"*"}, HintsAtMissing: true, LaterFields: "warn",
			RequestTimeout: time.Minute, MinRequestTimeout: 30 * time.Minute, EventTTL: time.Hour,
			NodePorts:              utilnet.PortRange{Base: 30000, Size: 2768},
			EtcdCompactionInterval: 5 * time.Minute, StorageMediaType: "application/vnd.kubernetes.protobuf",
		}
		change(&o)
		return o
	}
	for _, tc := range []struct {
		args string
		want server.Options
	}{
		{"", with(func(*server.Options) {})},
		{"--data-dir d --kubeconfig-out k", with(func(o *server.Options) { o.DataDir, o.KubeconfigOut = "d", "k" })},
		{"--bind-address 0.0.0.0 --secure-port 0", with(func(o *server.Options) { o.BindAddress, o.SecurePort = "0.0.0.0", 0 })},
		{"--etcd-servers https://a:1,https://b:2 --etcd-prefix /p --etcd-cafile ca --etcd-certfile c --etcd-keyfile k",
			with(func(o *server.Options) {
				o.EtcdServers, o.EtcdPrefix = []string{"https://a:1", "https://b:2"}, "/p"
				o.EtcdCAFile, o.EtcdCertFile, o.EtcdKeyFile = "ca", "c", "k"
			})},
		{"--min-free-disk 1G --etcd-quota 2Gi", with(func(o *server.Options) { o.MinFreeDisk, o.EtcdQuota = 1e9, 2<<30 })},
		{"--etcd-quorum-read=false --apiserver-count=3", with(func(*server.Options) {})},
		{"--tls-min-version VersionTLS13 --tls-cipher-suites a,b --tls-sni-cert-key c,k:n --http2-max-streams-per-connection 7 --disable-http2-serving", with(func(o *server.Options) {
			o.SecureServing = server.Defaults().SecureServing
			o.SecureServing.MinTLSVersion, o.SecureServing.CipherSuites, o.SecureServing.HTTP2MaxStreamsPerConnection, o.SecureServing.DisableHTTP2Serving = "VersionTLS13", []string{"a", "b"}, 7, true
			o.SecureServing.SNICertKeys = []cliflag.NamedCertKey{{CertFile: "c", KeyFile: "k", Names: []string{"n"}}}
		})},
		{"--request-timeout 2m --min-request-timeout 60 --goaway-chance 0.01 --shutdown-delay-duration 5s --event-ttl 2h --service-node-port-range 31000-31009", with(func(o *server.Options) {
			o.RequestTimeout, o.MinRequestTimeout, o.GoawayChance, o.ShutdownDelay, o.EventTTL = 2*time.Minute, time.Minute, 0.01, 5*time.Second, 2*time.Hour
			o.NodePorts = utilnet.PortRange{Base: 31000, Size: 10}
		})},
		{"--etcd-compaction-interval 0 --storage-media-type application/json --strict-transport-security-directives max-age=1,preload --cors-allowed-origins //a", with(func(o *server.Options) {
			o.EtcdCompactionInterval, o.StorageMediaType, o.StrictTransportSecurity, o.CORSAllowedOrigins = -1, "application/json", []string{"max-age=1", "preload"}, []string{"//a"}
		})},
		{"--anonymous-auth=false --service-account-max-token-expiration 2h --service-account-extend-token-expiration=false", with(func(o *server.Options) {
			o.AnonymousAuth, o.ServiceAccountMaxTokenExpiration, o.ServiceAccountKeepTokenExpiration = new(false), 2*time.Hour, true
		})},
		{"--min-free-disk 0", with(func(o *server.Options) { o.MinFreeDisk = -1 })},
		{"--tls-cert-file c --tls-private-key-file k --client-ca-file ca --token-auth-file t",
			with(func(o *server.Options) {
				o.TLSCertFile, o.TLSPrivateKeyFile, o.ClientCAFile, o.TokenAuthFile = "c", "k", "ca", "t"
			})},
		{"--admission-control NamespaceLifecycle,Initializers --admission-control-config-file f", with(func(o *server.Options) {
			o.AdmissionControl, o.AdmissionConfigFile = []string{"NamespaceLifecycle", "Initializers"}, "f"
		})},
		{"--enable-admission-plugins A --disable-admission-plugins B,C", with(func(o *server.Options) {
			o.EnableAdmissionPlugins, o.DisableAdmissionPlugins = []string{"A"}, []string{"B", "C"}
		})},
		{"--requestheader-client-ca-file f --requestheader-allowed-names a,b --requestheader-username-headers u --requestheader-uid-headers i --requestheader-group-headers g --requestheader-extra-headers-prefix e", with(func(o *server.Options) {
			o.RequestHeader = &options.RequestHeaderAuthenticationOptions{
				ClientCAFile: "f", AllowedNames: []string{"a", "b"},
				UsernameHeaders: []string{"u"}, UIDHeaders: []string{"i"}, GroupHeaders: []string{"g"}, ExtraHeaderPrefixes: []string{"e"},
			}
		})},
		{"--proxy-client-cert-file c --proxy-client-key-file k", with(func(o *server.Options) {
			o.ProxyClientCertFile, o.ProxyClientKeyFile = "c", "k"
		})},
		{"--runtime-config admissionregistration.k8s.io/v1alpha1=false,admissionregistration.k8s.io/v1beta1", with(func(o *server.Options) {
			o.RuntimeConfig = []string{"admissionregistration.k8s.io/v1alpha1=false", "admissionregistration.k8s.io/v1beta1"}
		})},
		{"--admission-refresh-interval 2s --admission-max-staleness 9s --admission-consistency strict", with(func(o *server.Options) {
			o.AdmissionRefreshInterval, o.AdmissionMaxStaleness, o.AdmissionConsistency = 2*time.Second, 9*time.Second, "strict"
		})},
		{"--admission-webhook-breaker timeout --admission-webhook-max-inflight 50", with(func(o *server.Options) {
			o.AdmissionWebhookBreaker, o.AdmissionWebhookMaxInFlight = "timeout", 50
		})},
		{"--admission-trace-bytes 0 --admission-trace-redact", with(func(o *server.Options) {
			o.AdmissionTraceBytes, o.AdmissionTraceRedact = -1, true
		})},
		{"--initializer-timeout 1s --initializer-repair-after 1m --initializer-release-timeout 2h", with(func(o *server.Options) {
			o.InitializerTimeout, o.InitializerRepairAfter, o.InitializerReleaseTimeout = time.Second, time.Minute, 2*time.Hour
		})},
		{"--service-address a/b=127.0.0.1:1 --service-address a/c:8443=127.0.0.1:2", with(func(o *server.Options) {
			o.ServiceAddresses = []string{"a/b=127.0.0.1:1", "a/c:8443=127.0.0.1:2"}
		})},
		{"--test --data-dir d", with(func(o *server.Options) {
			o.AdmissionTraceSkips, o.HintsAtMissing = true, false
			o.DataDir, o.SecurePort, o.MinFreeDisk, o.UnsafeNoFsync, o.EndAtOnce, o.AdmissionTraceSkips = "d", 0, -1, true, true, true
			o.AdmissionConsistency, o.AdmissionWebhookBreaker = "strict", "off"
		})},
		{"--test --data-dir d --secure-port 1 --admission-consistency bounded", with(func(o *server.Options) {
			o.AdmissionTraceSkips, o.HintsAtMissing = true, false
			o.DataDir, o.SecurePort, o.MinFreeDisk, o.UnsafeNoFsync, o.EndAtOnce, o.AdmissionTraceSkips = "d", 1, -1, true, true, true
			o.AdmissionWebhookBreaker = "off"
		})},
		{"--advertise-address 192.0.2.1", with(func(o *server.Options) { o.AdvertiseAddress = "192.0.2.1" })},
		{"--controllers +deployment,-garbagecollector", with(func(o *server.Options) { o.Controllers = []string{"+deployment", "-garbagecollector"} })},
		{"--fake-nodes 3", with(func(o *server.Options) { o.FakeNodes = 3 })},
		{"--controllers -*", with(func(o *server.Options) { o.Controllers = []string{"-*"} })},
		{"--controllers=", with(func(o *server.Options) { o.Controllers = []string{"-*"} })},
		{"--allow-privileged=false", with(func(o *server.Options) { o.RefusePrivileged = true })},
		{"--authorization-mode Node,RBAC", with(func(o *server.Options) {
			o.Authorization = server.Defaults().Authorization
			o.Authorization.Modes = []string{"Node", "RBAC"}
		})},
		{"--service-account-issuer https://a --service-account-issuer b --service-account-jwks-uri https://c --service-account-signing-endpoint s", with(func(o *server.Options) {
			o.ServiceAccountIssuers, o.ServiceAccountJWKSURI, o.ServiceAccountSigningEndpoint = []string{"https://a", "b"}, "https://c", "s"
		})},
		{"--oidc-issuer-url https://a --oidc-client-id b --api-audiences c", with(func(o *server.Options) {
			o.Authentication = server.Defaults().Authentication
			o.Authentication.OIDC.IssuerURL, o.Authentication.OIDC.ClientID, o.Authentication.OIDC.FlagsSet = "https://a", "b", true
			o.Authentication.APIAudiences = []string{"c"}
		})},
	} {
		t.Run(tc.args, func(t *testing.T) {
			got, err := parse(t, strings.Fields(tc.args)...)
			if err != nil {
				t.Fatal(err)
			}
			tc.want.HintsAtMissing = !got.test
			// The contract is about the flags; other options have tests of their own.
			if tc.want.SecureServing == nil {
				tc.want.SecureServing = server.Defaults().SecureServing
			}
			if tc.want.RequestHeader == nil {
				tc.want.RequestHeader = &options.RequestHeaderAuthenticationOptions{}
			}
			if tc.want.Authentication == nil {
				tc.want.Authentication = server.Defaults().Authentication
			}
			if tc.want.Authorization == nil {
				tc.want.Authorization = server.Defaults().Authorization
			}
			if diff := cmp.Diff(tc.want, got.server, cmpopts.IgnoreFields(server.Options{}, "Audit", "Features", "Flags", "BackupKeep")); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}

// S9.6: the plugins of OpenShift have another place in the order here.
func TestOpenShiftsPluginsHaveAHint(t *testing.T) {
	err := runServe(t.Context(), &serveOptions{server: server.Options{DataDir: "d", AdmissionControl: []string{
		"NamespaceLifecycle", " openshift.io/BuildDefaults", "X",
	}}}, command.Streams{Out: io.Discard, Err: io.Discard})
	for _, want := range []string{
		`--admission-control: unknown plugins "openshift.io/BuildDefaults", "X"; known plugins: `,
		`; leave out OpenShift's own plugins (openshift.io/BuildDefaults): examples/openshift has policies, webhooks and initializers for them`,
	} {
		if err == nil || !strings.Contains(err.Error(), want) || command.ExitCode(err) != command.ExitUsage {
			t.Errorf("%v does not have %q", err, want)
		}
	}
}

func TestDataDirFromTheEnvironment(t *testing.T) {
	t.Setenv(command.DataDirVariable, "from-environment")
	for _, tc := range []struct {
		args []string
		want string
	}{
		{nil, "from-environment"},
		{[]string{"--data-dir", "from-flag"}, "from-flag"},
	} {
		got, err := parse(t, tc.args...)
		if err != nil {
			t.Fatal(err)
		}
		if got.server.DataDir != tc.want {
			t.Errorf("%v: got %q, want %q", tc.args, got.server.DataDir, tc.want)
		}
	}
}

func TestServeSaysWhatIsWrongBeforeItStarts(t *testing.T) {
	for _, tc := range []struct {
		name string
		o    serveOptions
		want string
	}{
		{"no data directory", serveOptions{}, "--data-dir must not be empty"},
		{"negative verbosity", serveOptions{log: command.Logging{Verbosity: -1}, server: server.Options{DataDir: "d"}}, "--v -1 must not be negative"},
		{"S9.8 a version that cannot be switched", serveOptions{server: server.Options{DataDir: "d", RuntimeConfig: []string{"apps/v1=false"}}},
			`--runtime-config "apps/v1=false": it cannot be switched off`},
		{"S9.8 a version that is not there", serveOptions{server: server.Options{DataDir: "d", RuntimeConfig: []string{"apps/v9=true"}}},
			`--runtime-config "apps/v9=true": only admissionregistration.k8s.io/v1beta1, admissionregistration.k8s.io/v1alpha1, apps/v1beta1, apps/v1beta2, extensions/v1beta1, authentication.k8s.io/v1alpha1, authentication.k8s.io/v1beta1, certificates.k8s.io/v1alpha1, certificates.k8s.io/v1beta1, coordination.k8s.io/v1alpha2, coordination.k8s.io/v1beta1, flowcontrol.apiserver.k8s.io/v1beta1, flowcontrol.apiserver.k8s.io/v1beta2, flowcontrol.apiserver.k8s.io/v1beta3, internal.apiserver.k8s.io/v1alpha1, lifecycle.k8s.io/v1alpha1, networking.k8s.io/v1beta1, resource.k8s.io/v1alpha3, resource.k8s.io/v1beta1, resource.k8s.io/v1beta2, scheduling.k8s.io/v1alpha3, scheduling.k8s.io/v1beta1, storage.k8s.io/v1alpha1, storage.k8s.io/v1beta1, storagemigration.k8s.io/v1beta1, api/all, api/beta, api/alpha and api/legacy can be switched on or off`},
		{"S9.8 neither on nor off", serveOptions{server: server.Options{DataDir: "d", RuntimeConfig: []string{"admissionregistration.k8s.io/v1alpha1=no"}}},
			`--runtime-config "admissionregistration.k8s.io/v1alpha1=no": the value must be true or false`},
		{"S9.8 switched twice", serveOptions{server: server.Options{DataDir: "d", RuntimeConfig: []string{"admissionregistration.k8s.io/v1alpha1=false", "admissionregistration.k8s.io/v1alpha1"}}},
			`--runtime-config "admissionregistration.k8s.io/v1alpha1" is given twice`},
		{"S12.13 certificate without key", serveOptions{server: server.Options{DataDir: "d", ProxyClientCertFile: "c"}},
			"--proxy-client-cert-file and --proxy-client-key-file go together: one is set and the other is not"},
		{"no such breaker", serveOptions{server: server.Options{DataDir: "d", AdmissionWebhookBreaker: "on"}}, `--admission-webhook-breaker "on" is not one of connect, timeout, off`},
		{"advertised under no address", serveOptions{server: server.Options{DataDir: "d", AdvertiseAddress: "here"}}, `--advertise-address "here" is not an IP address`},
		{"advertised where nobody reaches it", serveOptions{server: server.Options{DataDir: "d", AdvertiseAddress: "127.0.0.1"}},
			"--advertise-address 127.0.0.1 is not an address at which others reach this server"},
		{"negative bound", serveOptions{server: server.Options{DataDir: "d", AdmissionWebhookMaxInFlight: -1}}, "--admission-webhook-max-inflight -1 must not be negative"},
		{"negative bound of reads", serveOptions{server: server.Options{DataDir: "d", MaxRequestsInFlight: -1}}, "--max-requests-inflight -1 must not be negative"},
		{"negative bound of writes", serveOptions{server: server.Options{DataDir: "d", MaxMutatingRequestsInFlight: -1}}, "--max-mutating-requests-inflight -1 must not be negative"},
		{"a controller that is unknown", serveOptions{server: server.Options{DataDir: "d", Controllers: []string{"+garbage-colector"}}},
			`--controllers: there is no controller "garbage-colector" (did you mean garbage-collector?)`},
		{"no quota", serveOptions{server: server.Options{DataDir: "d", EtcdQuota: -1}}, "--etcd-quota must be more than 0"},
		{"prefix without slash", serveOptions{server: server.Options{DataDir: "d", EtcdPrefix: "p"}}, `--etcd-prefix "p" must start with a slash`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			err := runServe(t.Context(), &tc.o, command.Streams{Out: io.Discard, Err: io.Discard})
			if err == nil || err.Error() != tc.want || command.ExitCode(err) != command.ExitUsage {
				t.Errorf("got %v with exit code %d, want %q with %d", err, command.ExitCode(err), tc.want, command.ExitUsage)
			}
		})
	}
}
