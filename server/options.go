package server

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"k8s.io/apiserver/pkg/server/options"

	"github.com/gatehouse-dev/gatehouse/admission"
	"github.com/gatehouse-dev/gatehouse/admission/call"
	"github.com/gatehouse-dev/gatehouse/server/auth"
	"github.com/gatehouse-dev/gatehouse/server/etcd"
	"github.com/gatehouse-dev/gatehouse/server/kubernetesservice"
)

// Options configure a server. The zero value of every field means its default;
// only DataDir must be set.
type Options struct {
	// DataDir is where the server keeps everything it writes.
	DataDir string
	// BindAddress is the IP address to listen on; empty means 127.0.0.1.
	BindAddress string
	// SecurePort is the port to listen on; 0 means any free one.
	SecurePort int
	// KubeconfigOut is where the admin's kubeconfig is written; empty means
	// admin.kubeconfig in DataDir.
	KubeconfigOut string

	// EtcdServers are the URLs of an external etcd; empty means an embedded one
	// in DataDir. EtcdPrefix is prepended to every key, empty meaning /registry.
	EtcdServers                           []string
	EtcdPrefix                            string
	EtcdCAFile, EtcdCertFile, EtcdKeyFile string
	// MinFreeDisk is how many bytes of the disk of an embedded etcd must be free for
	// writes to be accepted; 0 means DefaultMinFreeDisk, and less than 0 that nothing
	// is watched. EtcdQuota is how many bytes its database may have; 0 means
	// DefaultEtcdQuota.
	MinFreeDisk, EtcdQuota int64

	// TLSCertFile and TLSPrivateKeyFile are the serving certificate, both or
	// neither; ClientCAFile verifies client certificates besides the server's
	// own authority, which always does.
	TLSCertFile, TLSPrivateKeyFile string
	ClientCAFile                   string
	// TokenAuthFile is a CSV file of tokens, users and groups.
	TokenAuthFile string
	// AuthorizationMode is RBAC, the default, or AlwaysAllow.
	AuthorizationMode string

	// ServiceClusterIPRange is where cluster IPs come from; empty means
	// 10.0.0.0/24.
	ServiceClusterIPRange string
	// AdvertiseAddress is the IP address under which the service kubernetes leads to
	// this server. Empty means BindAddress, or, if that is unspecified or a loopback
	// address, that of the interface with the default route, as in kube-apiserver.
	AdvertiseAddress string
	// MaxRequestsInFlight and MaxMutatingRequestsInFlight bound what is handled
	// at once; 0 means 400 and 200. A request beyond the bound gets 429.
	MaxRequestsInFlight         int
	MaxMutatingRequestsInFlight int
	// RefusePrivileged refuses pods with privileged containers. Kubernetes keeps
	// this setting per process: servers of one process must agree on it.
	RefusePrivileged bool
	// EventTTL is how long events are kept; 0 means one hour.
	EventTTL time.Duration
	// AdmissionControl names the admission plugins to run, in this order; empty
	// means the recommended ones. EnableAdmissionPlugins and
	// DisableAdmissionPlugins change the recommended set instead.
	AdmissionControl, EnableAdmissionPlugins, DisableAdmissionPlugins []string
	// AdmissionConfigFile is an AdmissionConfiguration.
	AdmissionConfigFile string
	// ProxyClientCertFile and ProxyClientKeyFile are the client certificate that is
	// presented to external hooks (v1alpha1) for which the AdmissionConfiguration
	// has no user, both or neither.
	ProxyClientCertFile, ProxyClientKeyFile string
	// RuntimeConfig switches versions of the API on and off, each entry
	// GROUP/VERSION or GROUP/VERSION=true or =false. Those that can be switched,
	// admissionregistration.k8s.io/v1beta1 and /v1alpha1, are on by default.
	RuntimeConfig []string
	// AdmissionRefreshInterval is how often registrations are read, and
	// AdmissionMaxStaleness how old the last read may be before writes are
	// refused; 0 means 1 s and 5 s.
	AdmissionRefreshInterval, AdmissionMaxStaleness time.Duration
	// AdmissionConsistency is "bounded", the default, or "strict".
	AdmissionConsistency string
	// AdmissionWebhookBreaker says which failures in a row make a webhook server be
	// skipped until it answers again: "connect", the default, "timeout" for calls
	// that are not answered in time besides, or "off". It holds for conversion
	// webhooks, too.
	AdmissionWebhookBreaker string
	// AdmissionWebhookMaxInFlight is how many calls of an admission plugin to one
	// webhook server are under way at once, and how many of all conversions; 0
	// means 200.
	AdmissionWebhookMaxInFlight int
	// AdmissionTraceBytes is about how much memory the traces of the latest requests may
	// take, in bytes; 0 means 8 MiB, and less than 0 that none are kept.
	// AdmissionTraceRedact leaves the values of patches out of what is shown of them;
	// those of secrets never are shown.
	AdmissionTraceBytes  int
	AdmissionTraceRedact bool
	// InitializerTimeout is how long an initializer may take; InitializerRepairAfter
	// the age at which an object that was left uninitialized is mended when it is
	// read; 0 means 5 s and 10 min.
	InitializerTimeout, InitializerRepairAfter time.Duration

	// DialWebhook opens connections to webhooks, with what their service or URL
	// resolves to as address. It is for programs that embed a server and know
	// another way to where its webhooks run; nil means TCP.
	DialWebhook func(ctx context.Context, network, addr string) (net.Conn, error)

	// Audit says what is written to the audit log, and where; nil for nothing.
	// These are the library's own options, with its flags.
	Audit *options.AuditOptions
}

// The defaults of Options.MinFreeDisk, 128 MiB, and Options.EtcdQuota, 8 GiB.
const DefaultMinFreeDisk, DefaultEtcdQuota int64 = etcd.DefaultMinFree, etcd.DefaultQuota

// The values of --admission-consistency.
const (
	consistencyBounded = "bounded"
	consistencyStrict  = "strict"
)

// plugins names the admission plugins to run, in order.
func (o *Options) plugins() ([]string, error) {
	names, err := admission.Selection{
		Control: o.AdmissionControl, Enable: o.EnableAdmissionPlugins, Disable: o.DisableAdmissionPlugins,
	}.Names(admission.Recommended())
	if err != nil {
		return nil, fmt.Errorf("--%w", err)
	}
	return names, nil
}

// complete fills in the defaults and says what is wrong, naming the flag.
func (o *Options) complete() error {
	if o.DataDir == "" {
		return errors.New("--data-dir must not be empty")
	}
	dir, err := filepath.Abs(o.DataDir)
	if err != nil {
		return fmt.Errorf("--data-dir %q: %w", o.DataDir, err)
	}
	o.DataDir = dir
	if o.BindAddress == "" {
		o.BindAddress = "127.0.0.1"
	}
	if net.ParseIP(o.BindAddress) == nil {
		return fmt.Errorf("--bind-address %q is not an IP address", o.BindAddress)
	}
	if o.SecurePort < 0 || o.SecurePort > 65535 {
		return fmt.Errorf("--secure-port %d is not a port: it must be between 0 and 65535", o.SecurePort)
	}
	if o.KubeconfigOut == "" {
		o.KubeconfigOut = filepath.Join(o.DataDir, "admin.kubeconfig")
	}
	if o.EtcdPrefix == "" {
		o.EtcdPrefix = "/registry"
	}
	if !strings.HasPrefix(o.EtcdPrefix, "/") {
		return fmt.Errorf("--etcd-prefix %q must start with a slash", o.EtcdPrefix)
	}
	for _, pair := range []struct{ one, other, oneFlag, otherFlag string }{
		{o.TLSCertFile, o.TLSPrivateKeyFile, "--tls-cert-file", "--tls-private-key-file"},
		{o.EtcdCertFile, o.EtcdKeyFile, "--etcd-certfile", "--etcd-keyfile"},
		{o.ProxyClientCertFile, o.ProxyClientKeyFile, "--proxy-client-cert-file", "--proxy-client-key-file"},
	} {
		if (pair.one == "") != (pair.other == "") {
			return fmt.Errorf("%s and %s go together: one is set and the other is not", pair.oneFlag, pair.otherFlag)
		}
	}
	for _, file := range []struct{ flag, path string }{
		{"--tls-cert-file", o.TLSCertFile}, {"--tls-private-key-file", o.TLSPrivateKeyFile},
		{"--client-ca-file", o.ClientCAFile}, {"--token-auth-file", o.TokenAuthFile},
		{"--admission-control-config-file", o.AdmissionConfigFile},
		{"--proxy-client-cert-file", o.ProxyClientCertFile}, {"--proxy-client-key-file", o.ProxyClientKeyFile},
		{"--etcd-cafile", o.EtcdCAFile}, {"--etcd-certfile", o.EtcdCertFile}, {"--etcd-keyfile", o.EtcdKeyFile},
	} {
		if file.path == "" {
			continue
		}
		f, err := os.Open(file.path)
		if err != nil {
			return fmt.Errorf("%s: %w", file.flag, err)
		}
		f.Close()
	}
	if o.AuthorizationMode == "" {
		o.AuthorizationMode = "RBAC"
	}
	if !slices.Contains(auth.Modes, o.AuthorizationMode) {
		return fmt.Errorf("--authorization-mode %q is not one of %s", o.AuthorizationMode, strings.Join(auth.Modes, ", "))
	}
	if o.ServiceClusterIPRange == "" {
		o.ServiceClusterIPRange = "10.0.0.0/24"
	}
	_, serviceRange, err := net.ParseCIDR(o.ServiceClusterIPRange)
	if err != nil {
		return fmt.Errorf("--service-cluster-ip-range %q is not a range such as 10.0.0.0/24", o.ServiceClusterIPRange)
	}
	if _, err := kubernetesservice.IP(serviceRange); err != nil {
		return fmt.Errorf("--service-cluster-ip-range %s: %w", o.ServiceClusterIPRange, err)
	}
	if o.AdvertiseAddress != "" {
		ip := net.ParseIP(o.AdvertiseAddress)
		if ip == nil {
			return fmt.Errorf("--advertise-address %q is not an IP address", o.AdvertiseAddress)
		}
		// The API accepts no other addresses as endpoints.
		if ip.IsUnspecified() || ip.IsLoopback() || ip.IsLinkLocalUnicast() || ip.IsLinkLocalMulticast() {
			return fmt.Errorf("--advertise-address %s is not an address at which others reach this server", ip)
		}
	}
	if o.MaxRequestsInFlight == 0 {
		o.MaxRequestsInFlight = 400
	}
	if o.MaxMutatingRequestsInFlight == 0 {
		o.MaxMutatingRequestsInFlight = 200
	}
	if o.AdmissionConsistency == "" {
		o.AdmissionConsistency = consistencyBounded
	}
	if o.AdmissionConsistency != consistencyBounded && o.AdmissionConsistency != consistencyStrict {
		return fmt.Errorf("--admission-consistency %q is neither %s nor %s", o.AdmissionConsistency, consistencyBounded, consistencyStrict)
	}
	if o.AdmissionRefreshInterval == 0 {
		o.AdmissionRefreshInterval = time.Second
	}
	if o.AdmissionMaxStaleness == 0 {
		o.AdmissionMaxStaleness = 5 * time.Second
	}
	if o.AdmissionRefreshInterval < 0 || o.AdmissionRefreshInterval >= o.AdmissionMaxStaleness {
		return fmt.Errorf("--admission-refresh-interval %s must be more than 0 and less than --admission-max-staleness %s", o.AdmissionRefreshInterval, o.AdmissionMaxStaleness)
	}
	if o.AdmissionWebhookBreaker == "" {
		o.AdmissionWebhookBreaker = call.BreakerConnect.String()
	}
	if !slices.Contains(call.Breakers, o.AdmissionWebhookBreaker) {
		return fmt.Errorf("--admission-webhook-breaker %q is not one of %s", o.AdmissionWebhookBreaker, strings.Join(call.Breakers, ", "))
	}
	if o.AdmissionTraceBytes == 0 {
		o.AdmissionTraceBytes = 8 << 20
	}
	for _, n := range []struct {
		flag  string
		value int
	}{
		{"--admission-webhook-max-inflight", o.AdmissionWebhookMaxInFlight},
		{"--max-requests-inflight", o.MaxRequestsInFlight}, {"--max-mutating-requests-inflight", o.MaxMutatingRequestsInFlight},
	} {
		if n.value < 0 {
			return fmt.Errorf("%s %d must not be negative", n.flag, n.value)
		}
	}
	if o.EtcdQuota < 0 {
		return errors.New("--etcd-quota must be more than 0")
	}
	for _, d := range []struct {
		flag  string
		value time.Duration
	}{{"--initializer-timeout", o.InitializerTimeout}, {"--initializer-repair-after", o.InitializerRepairAfter}} {
		if d.value < 0 {
			return fmt.Errorf("%s %s must not be negative", d.flag, d.value)
		}
	}
	if _, err := o.plugins(); err != nil {
		return err
	}
	if _, err := o.switchedOff(); err != nil {
		return err
	}
	if o.Audit == nil {
		o.Audit = options.NewAuditOptions()
	}
	if errs := o.Audit.Validate(); len(errs) > 0 {
		return errs[0]
	}
	if o.EventTTL == 0 {
		o.EventTTL = time.Hour
	}
	return nil
}
