package server

import (
	"context"
	"net"
	"net/http"
	"path/filepath"
	"reflect"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/server/flagz"
	"k8s.io/apiserver/pkg/server/options"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	kubeoptions "k8s.io/kubernetes/pkg/kubeapiserver/options"

	"github.com/gatehouse-dev/gatehouse/admission/call"
	"github.com/gatehouse-dev/gatehouse/admission/registration"
	"github.com/gatehouse-dev/gatehouse/internal/server/controllers"
	"github.com/gatehouse-dev/gatehouse/internal/server/storage/etcd"
)

// Options configure a server. The zero value of every field means its default, which
// Defaults has; only DataDir must be set. New turns them into settings (settings.go).
type Options struct {
	// DataDir is where the server keeps everything it writes.
	DataDir string
	// BindAddress is the IP address to listen on; empty means 127.0.0.1.
	BindAddress string
	// SecurePort is the port to listen on; 0 means any free port.
	SecurePort int
	// KubeconfigOut is where the admin's kubeconfig is written; empty means
	// admin.kubeconfig in DataDir.
	KubeconfigOut string

	// EtcdServers are the URLs of an external etcd; empty means an embedded etcd in DataDir.
	// EtcdPrefix is prepended to every key, empty meaning /registry.
	EtcdServers                           []string
	EtcdPrefix                            string
	EtcdCAFile, EtcdCertFile, EtcdKeyFile string
	// Cluster makes the embedded etcd the first member of a cluster that other servers can join. Join is the URL of a
	// server whose cluster this one joins, with the token in JoinTokenFile. Both have no effect on the data directory
	// of a member. AllowDifferentJudging lets a server join whose admission flags differ from the flags of the other
	// servers.
	Cluster, AllowDifferentJudging bool
	Join, JoinTokenFile            string
	// PeerAddress is the HOST:PORT at which other members reach this one; empty means port 2380 of AdvertiseAddress.
	// PeerBindAddress is the IP:PORT to listen on; empty means PeerAddress.
	PeerAddress, PeerBindAddress string
	// PeerCertFile, PeerKeyFile and PeerTrustedCAFile are the certificates of members, all or none; without them the
	// servers make their own.
	PeerCertFile, PeerKeyFile, PeerTrustedCAFile string
	// EncryptionProviderConfig is an EncryptionConfiguration, which configures the encryption of
	// values in etcd; empty means no encryption. With EncryptionProviderConfigAutomaticReload, the
	// file may change while the server runs.
	EncryptionProviderConfig                string
	EncryptionProviderConfigAutomaticReload bool
	// EtcdCompactionInterval is how often etcd is compacted; 0 means 5 minutes, and a negative value
	// that this server does not compact it. StorageMediaType is the format of stored built-in
	// objects; empty means protobuf.
	EtcdCompactionInterval time.Duration
	StorageMediaType       string
	// MinFreeDisk is how many bytes of the disk of an embedded etcd must be free for
	// writes to be accepted; 0 means DefaultMinFreeDisk, and less than 0 that the free space is
	// not watched. EtcdQuota is how many bytes the database of the embedded etcd may have; 0
	// means DefaultEtcdQuota.
	MinFreeDisk, EtcdQuota int64
	// BackupSchedule is the schedule of backups of the embedded etcd, in the format of cron; empty
	// means never. BackupDir is the directory of backups, empty meaning backups in DataDir, and
	// BackupKeep the number of backups to keep; 0 means 10. ProgramVersion is the version that
	// backups name.
	BackupSchedule, BackupDir string
	BackupKeep                int
	ProgramVersion            string
	// UnsafeNoFsync makes the embedded etcd answer before a write is on the disk, and the server
	// continue before its files are on the disk: a crash of the machine loses data. It is for
	// tests.
	UnsafeNoFsync bool
	// EndAtOnce lets the server end without finishing running requests. It is for tests.
	EndAtOnce bool

	// TLSCertFile and TLSPrivateKeyFile are the serving certificate, both or neither; ClientCAFile
	// verifies client certificates in addition to the server's own CA, which always does.
	TLSCertFile, TLSPrivateKeyFile string
	ClientCAFile                   string
	// SecureServing has the lowest version of TLS and the accepted cipher suites, certificates for single names, and
	// the settings of HTTP/2: the options of k8s.io/apiserver, with its flags. Its other fields are ignored.
	SecureServing *options.SecureServingOptions
	// AnonymousAuth makes callers without credentials the user system:anonymous. Nil means that
	// they are this user at the paths of health and version only.
	AnonymousAuth *bool
	// TokenAuthFile is a CSV file of tokens, users and groups.
	TokenAuthFile string
	// ServiceAccountSigningKeyFile is a PEM file with the key that signs the tokens of
	// service accounts; empty means a key that the server has made. Tokens are verified
	// with it and with ServiceAccountKeyFiles, PEM files with public keys or certificates.
	ServiceAccountSigningKeyFile string
	ServiceAccountKeyFiles       []string
	// ServiceAccountSigningEndpoint is the socket of an external signer of tokens, instead of
	// these keys.
	ServiceAccountSigningEndpoint string
	// ServiceAccountJWKSURI is the URL of the keys that verify tokens, as the OpenID
	// configuration of this server shows it; empty means a URL of this server.
	ServiceAccountJWKSURI string
	// ServiceAccountIssuers are the accepted issuers of tokens. New tokens get the first one. None
	// means https://kubernetes.default.svc.cluster.local.
	ServiceAccountIssuers []string
	// ServiceAccountMaxTokenExpiration is how long a token may be valid; 0 means no limit.
	// ServiceAccountKeepTokenExpiration turns off the extension of tokens for pods to a year. With
	// the extension, clients that use such a token for more than an hour get a warning.
	ServiceAccountMaxTokenExpiration  time.Duration
	ServiceAccountKeepTokenExpiration bool
	// Authentication configures the accepted tokens of other issuers: tokens of OpenID Connect
	// providers, or tokens that a webhook accepts. Authorization lists the authorizers; nil or no
	// modes mean RBAC. Both are upstream's own options, with its flags. The server reads only
	// APIAudiences, OIDC, WebHook and AuthenticationConfigFile of Authentication.
	Authentication *kubeoptions.BuiltInAuthenticationOptions
	Authorization  *kubeoptions.BuiltInAuthorizationOptions

	// ServiceClusterIPRange is the range of cluster IPs; empty means 10.0.0.0/24.
	ServiceClusterIPRange string
	// NodePorts is the range of node ports; the zero value means 30000-32767.
	NodePorts utilnet.PortRange
	// AdvertiseAddress is the IP address under which the service kubernetes leads to this server.
	// Empty means BindAddress. If BindAddress is unspecified or a loopback address, empty means the
	// address of the interface with the default route, as in kube-apiserver.
	AdvertiseAddress string
	// MaxRequestsInFlight and MaxMutatingRequestsInFlight bound the requests that are handled at
	// once; 0 means 400 and 200. A request beyond the bound gets 429.
	MaxRequestsInFlight         int
	MaxMutatingRequestsInFlight int
	// RequestTimeout bounds a request that is not a watch; 0 means one minute. A watch without a
	// timeout of its own takes at least MinRequestTimeout, and twice that at most; 0 means half an
	// hour.
	RequestTimeout, MinRequestTimeout time.Duration
	// GoawayChance is the share of requests after which an HTTP/2 connection is closed, so that
	// clients behind a load balancer reach other servers.
	GoawayChance float64
	// ShutdownDelay is how long the server continues to serve, with /readyz failing, when it is to
	// end.
	ShutdownDelay time.Duration
	// StrictTransportSecurity are the directives of the header Strict-Transport-Security.
	// CORSAllowedOrigins are regular expressions for the origins whose pages may read responses.
	StrictTransportSecurity, CORSAllowedOrigins []string
	// RefusePrivileged refuses pods with privileged containers. Kubernetes keeps
	// this setting per process: servers of one process must agree on it.
	RefusePrivileged bool
	// EventTTL is how long events are kept; 0 means one hour.
	EventTTL time.Duration
	// AdmissionControl names the admission plugins to run, in this order; empty means the
	// recommended plugins. EnableAdmissionPlugins and DisableAdmissionPlugins change the
	// recommended set instead.
	AdmissionControl, EnableAdmissionPlugins, DisableAdmissionPlugins []string
	// AdmissionConfigFile is an AdmissionConfiguration.
	AdmissionConfigFile string
	// ProxyClientCertFile and ProxyClientKeyFile are the client certificate for aggregated servers,
	// and for external hooks (v1alpha1) without a user in the AdmissionConfiguration. Both or
	// neither must be set. Without them, the server presents to aggregated servers a certificate
	// that it has made.
	ProxyClientCertFile, ProxyClientKeyFile string
	// RequestHeader configures the proxies that may name the caller of a request in headers: the
	// options of k8s.io/apiserver, with its flags. The CAs of proxies are its ClientCAFile and,
	// unless ProxyClientCertFile is set, the CA that the server has made for its own certificate.
	// If there is neither, no proxy may name callers.
	RequestHeader *options.RequestHeaderAuthenticationOptions
	// RuntimeConfig switches versions of the API on and off, each entry
	// GROUP/VERSION or GROUP/VERSION=true or =false. On by default are
	// admissionregistration.k8s.io/v1beta1 and /v1alpha1, off are extensions/v1beta1,
	// apps/v1beta1 and apps/v1beta2, and the versions that kube-apiserver does not serve by
	// default. The entry api/legacy switches on extensions/v1beta1, apps/v1beta1 and
	// apps/v1beta2, and the path at which clients of 2017 read OpenAPI v2. The entries api/all,
	// api/beta and api/alpha switch on versions that kube-apiserver does not serve by default.
	RuntimeConfig []string
	// EmulatedVersion, MinCompatibilityVersion and FeatureGates are the flags of kube-apiserver
	// with these names, in its format: the release of Kubernetes to behave as, the oldest release
	// that reads the same data, and gates as NAME=true or NAME=false. Kubernetes keeps them per
	// process: servers of one process must agree on them. None means the values of the process.
	EmulatedVersion, MinCompatibilityVersion, FeatureGates []string
	// LaterFields configures requests that set fields of built-in kinds that the emulated release
	// does not have (S26.13): "warn", the default, keeps the fields and warns, "reject" treats them
	// as unknown fields, and "keep" keeps them without a warning, as kube-apiserver does.
	LaterFields string
	// EmulationForwardCompatible serves later versions of kinds that the emulated release has;
	// RuntimeConfigEmulationForwardCompatible lets RuntimeConfig enable kinds and versions that the
	// release does not have.
	EmulationForwardCompatible, RuntimeConfigEmulationForwardCompatible bool
	// AdmissionRefreshInterval is how often registrations are read, and
	// AdmissionMaxStaleness how old the last read may be before writes are
	// refused; 0 means 1 s and 5 s.
	AdmissionRefreshInterval, AdmissionMaxStaleness time.Duration
	// AdmissionConsistency is "bounded", the default, or "strict".
	AdmissionConsistency string
	// AdmissionWebhookBreaker selects the failures in a row after which the server skips a webhook
	// server until it answers again: "connect", the default, means failed connections; "timeout"
	// means failed connections and timeouts of calls; "off" means none. The same holds for
	// conversion webhooks.
	AdmissionWebhookBreaker string
	// AdmissionWebhookMaxInFlight limits the concurrent calls of an admission plugin to one
	// webhook server, and the concurrent calls of all conversions to one webhook server; 0 means
	// 200.
	AdmissionWebhookMaxInFlight int
	// AdmissionTraceBytes is about how much memory the traces of the latest requests may
	// take, in bytes; 0 means 8 MiB, and less than 0 that no traces are kept.
	// AdmissionTraceRedact leaves the values out of the patches that traces show. Values of
	// secrets are never shown.
	AdmissionTraceBytes  int
	AdmissionTraceRedact bool
	// AdmissionTraceSkips adds to traces the reasons why webhooks and policies skipped a request.
	// It is for tests: with many registrations, these reasons are most of a trace.
	AdmissionTraceSkips bool
	// InitializerTimeout is how long an initializer may take; InitializerRepairAfter
	// the age at which an object that was left uninitialized is repaired when it is
	// read; 0 means 5 s and 10 min.
	InitializerTimeout, InitializerRepairAfter time.Duration
	// InitializerReleaseTimeout is how long an object that was deleted before it was
	// initialized is kept for initializers that have to release something; 0 means 1 h.
	InitializerReleaseTimeout time.Duration

	// Kubernetes makes admission behave as in a kube-apiserver, which ignores the annotations of
	// Gatehouse (S5.29, S28.11). It is for programs that predict the decisions of another server.
	Kubernetes bool
	// Rehearsals lets this process evaluate requests for tests (Server.Rehearse). It is for
	// programs that embed a server.
	Rehearsals bool

	// Controllers names the controllers to run, as --controllers of a kube-controller-manager does:
	// names, "*" for the default controllers, "-name", and in addition "+name", or "-*" for none.
	// Empty means the default controllers.
	Controllers []string
	// FakeNodes is the number of nodes that only exist as objects, for tests: pods are bound to
	// them and become ready. 0 means none.
	FakeNodes int
	// Console serves the console at /console/: files that need no credentials and hold no data, and
	// drawings of data that authenticated clients send.
	Console bool

	// HintsAtMissing makes the server write an event for a workload whose controller does not run,
	// and for a pod without a node. The event names the missing component.
	HintsAtMissing bool

	// ServiceAddresses give the addresses of webhooks whose services have no endpoints in this
	// server, each as NAMESPACE/NAME[:PORT]=HOST:PORT, without PORT for every port of the
	// service.
	ServiceAddresses []string

	// DialWebhook opens connections to webhooks, and the connections of the proxies of pods and
	// services. addr is the address to which the service or the URL of the webhook resolves.
	// DialWebhook is for programs that embed a server and do not reach its webhooks by TCP; nil
	// means TCP.
	DialWebhook func(ctx context.Context, network, addr string) (net.Conn, error)
	// WrapWebhook wraps the transport of requests to one webhook, for admission or conversion; nil
	// means no wrapper. The wrapper must not send a request twice. It is for programs that embed a
	// server.
	WrapWebhook func(http.RoundTripper) http.RoundTripper

	// OnForbidden, if set, is called with each request that its user has no right to make. It is for programs that embed a
	// server.
	OnForbidden func(authorizer.Attributes)

	// MayConvert, if set, is called before each call of a webhook that converts custom resources. If
	// it returns an error, the webhook is not called, and the call fails with this error. It is for
	// programs that embed a server.
	MayConvert func(ctx context.Context, definition string, to *registration.ClientConfig) error

	// TracingConfigFile is a TracingConfiguration, which names the OpenTelemetry receiver
	// that gets the spans of requests, and how many requests are traced. Empty means
	// that requests are not traced.
	TracingConfigFile string

	// Audit configures the audit log; nil for none. These are the options of k8s.io/apiserver, with
	// its flags.
	Audit *options.AuditOptions

	// Features configures profiling of the server: the options of k8s.io/apiserver, with its flags;
	// nil means the defaults of k8s.io/apiserver.
	Features *options.FeatureOptions
	// Flags are the flags of the command line, which /flagz shows; nil means no such page.
	Flags flagz.Reader
	// LatestLog returns the latest records of the log, which /debug/log shows when the server can
	// be profiled; nil means no such page.
	LatestLog func() []byte
}

// The defaults of Options.MinFreeDisk, 128 MiB, and Options.EtcdQuota, 8 GiB.
const DefaultMinFreeDisk, DefaultEtcdQuota int64 = etcd.DefaultMinFree, etcd.DefaultQuota

// BackupDir is the default directory of the backups of a server.
func BackupDir(dataDir string) string { return filepath.Join(dataDir, "backups") }

// WorkloadControllers are entries of Options.Controllers for the controllers that make pods, which do not run by default.
func WorkloadControllers() []string { return controllers.Workloads() }

// NoControllers, as Options.Controllers, runs no controller.
const NoControllers = controllers.None

// The values of --admission-consistency.
const (
	consistencyBounded = "bounded"
	consistencyStrict  = "strict"
)

// The values of --later-fields.
const (
	laterWarn   = "warn"
	laterReject = "reject"
	laterKeep   = "keep"
)

// LaterFields are the values of Options.LaterFields, the default first.
var LaterFields = []string{laterWarn, laterReject, laterKeep}

// Defaults returns the values that zero fields of Options mean. DataDir has no default, the default
// of KubeconfigOut is in DataDir, and the default of SecurePort is any free port.
func Defaults() Options {
	authorization := kubeoptions.NewBuiltInAuthorizationOptions()
	authorization.Modes = []string{"RBAC"}
	serving := options.NewSecureServingOptions()
	serving.HTTP2MaxStreamsPerConnection = 1000
	return Options{
		SecureServing:               serving,
		RequestTimeout:              time.Minute,
		MinRequestTimeout:           30 * time.Minute,
		EtcdCompactionInterval:      storagebackend.DefaultCompactInterval,
		StorageMediaType:            runtime.ContentTypeProtobuf,
		BindAddress:                 "127.0.0.1",
		EtcdPrefix:                  "/registry",
		MinFreeDisk:                 DefaultMinFreeDisk,
		EtcdQuota:                   DefaultEtcdQuota,
		BackupKeep:                  10,
		Authentication:              kubeoptions.NewBuiltInAuthenticationOptions().WithOIDC().WithWebHook(),
		Authorization:               authorization,
		ServiceClusterIPRange:       "10.0.0.0/24",
		NodePorts:                   utilnet.PortRange{Base: 30000, Size: 2768},
		MaxRequestsInFlight:         400,
		MaxMutatingRequestsInFlight: 200,
		EventTTL:                    time.Hour,
		AdmissionRefreshInterval:    time.Second,
		AdmissionMaxStaleness:       5 * time.Second,
		AdmissionConsistency:        consistencyBounded,
		LaterFields:                 LaterFields[0],
		AdmissionWebhookBreaker:     call.BreakerConnect.String(),
		AdmissionWebhookMaxInFlight: 200,
		AdmissionTraceBytes:         8 << 20,
		InitializerTimeout:          5 * time.Second,
		InitializerRepairAfter:      10 * time.Minute,
		InitializerReleaseTimeout:   time.Hour,
		Controllers:                 controllers.Default(),
		Audit:                       options.NewAuditOptions(),
		Features:                    options.NewFeatureOptions(),
		RequestHeader:               &options.RequestHeaderAuthenticationOptions{},
	}
}

// withDefaults returns the options with the defaults in the fields that are zero or empty.
func (o Options) withDefaults() Options {
	given, defaults := reflect.ValueOf(&o).Elem(), reflect.ValueOf(Defaults())
	for i := range given.NumField() {
		field := given.Field(i)
		if field.IsZero() || field.Kind() == reflect.Slice && field.Len() == 0 {
			field.Set(defaults.Field(i))
		}
	}
	return o
}
