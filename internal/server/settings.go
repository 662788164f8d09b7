package server

import (
	"errors"
	"fmt"
	"net"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/server/options"
	cliflag "k8s.io/component-base/cli/flag"
	basecompatibility "k8s.io/component-base/compatibility"
	tracingapi "k8s.io/component-base/tracing/api/v1"

	"github.com/gatehouse-dev/gatehouse/admission"
	"github.com/gatehouse-dev/gatehouse/admission/call"
	"github.com/gatehouse-dev/gatehouse/admission/registration"
	"github.com/gatehouse-dev/gatehouse/internal/kit/emulation"
	"github.com/gatehouse-dev/gatehouse/internal/kit/files"
	"github.com/gatehouse-dev/gatehouse/internal/server/api/runtimeconfig"
	"github.com/gatehouse-dev/gatehouse/internal/server/controllers"
	"github.com/gatehouse-dev/gatehouse/internal/server/controllers/kubernetesservice"
	"github.com/gatehouse-dev/gatehouse/internal/server/handling/auth"
	"github.com/gatehouse-dev/gatehouse/internal/server/handling/keys"
	"github.com/gatehouse-dev/gatehouse/internal/server/handling/tokens"
	"github.com/gatehouse-dev/gatehouse/internal/server/judging/chain"
	"github.com/gatehouse-dev/gatehouse/internal/server/judging/webhookservices"
	"github.com/gatehouse-dev/gatehouse/internal/server/reporting/spans"
	"github.com/gatehouse-dev/gatehouse/internal/server/storage/backup"
	"github.com/gatehouse-dev/gatehouse/internal/server/storage/members"
)

// settings are the options with their defaults, checked, and parsed once by New. Settings do not
// change.
type settings struct {
	Options
	// plugins names the admission plugins to run, in order.
	plugins []string
	// versions is RuntimeConfig.
	versions runtimeconfig.Versions
	// notEnforced are the resources of the registrations that this server does not enforce, because
	// the kind is switched off or its plugin does not run.
	notEnforced []string
	// breaker is AdmissionWebhookBreaker.
	breaker call.Breaker
	// proxies is RequestHeader, with the usual headers where none are given.
	proxies options.RequestHeaderAuthenticationOptions
	// addresses is ServiceAddresses.
	addresses webhookservices.Addresses
	// serviceRange is ServiceClusterIPRange, and serviceIP the address in it that the
	// service kubernetes has.
	serviceRange *net.IPNet
	serviceIP    net.IP
	// modes are the modes of Authorization.
	modes []string
	// backups are the times of BackupSchedule; nil for none.
	backups backup.Times
	// tracing is TracingConfigFile; nil for no file.
	tracing *tracingapi.TracingConfiguration
	// member is this server as a member of an etcd of several servers; nil for a server alone, and on an external etcd.
	member *members.State
}

// sharesEtcd reports whether other servers may store objects in the same etcd.
func (s *settings) sharesEtcd() bool { return s.external() || s.member != nil }

// strict reports whether a registration is active on all servers when its write is acknowledged.
func (s *settings) strict() bool { return s.AdmissionConsistency == consistencyStrict }

// runs reports whether the admission plugin of a name is in the chain.
func (s *settings) runs(plugin string) bool { return slices.Contains(s.plugins, plugin) }

// defaultKubeconfig is the path of the admin's kubeconfig without --kubeconfig-out.
func (s *settings) defaultKubeconfig() string { return filepath.Join(s.DataDir, "admin.kubeconfig") }

// files returns the writer of the server's own files.
func (s *settings) files() keys.Files { return keys.Files{NoSync: s.UnsafeNoFsync} }

// ownKey is the prefix in etcd of data that servers keep there in addition to objects, by a name.
func (s *settings) ownKey(name string) string { return path.Join(s.EtcdPrefix, "gatehouse", name) }

// newSettings returns an error of one sentence that names the flag if the options are invalid.
func newSettings(o Options) (*settings, error) {
	s := &settings{Options: o.withDefaults()}
	for _, parse := range []func() error{
		s.parseVersion, s.parsePaths, s.parseAddresses, s.parseCluster, s.checkFiles, s.checkChoices, s.tokens().Check, s.checkAuthentication, s.parseAuthorization, s.checkNumbers, s.checkRequests, s.checkTLS, s.parseAdmission, s.checkControllers, s.checkAudit, s.checkProxies, s.parseTracing, s.parseBackups,
	} {
		if err := parse(); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// parseVersion makes the process behave as the chosen release. Other code depends on its feature
// gates.
func (s *settings) parseVersion() error {
	if err := emulation.Apply(emulation.Flags{
		EmulatedVersion: s.EmulatedVersion, MinCompatibilityVersion: s.MinCompatibilityVersion, FeatureGates: s.FeatureGates,
	}); err != nil {
		return err
	}
	if !slices.Contains(LaterFields, s.LaterFields) {
		return fmt.Errorf("--later-fields %q is not one of %s", s.LaterFields, strings.Join(LaterFields, ", "))
	}
	if emulation.Emulates() {
		return nil
	}
	for _, f := range []struct {
		flag string
		on   bool
	}{{"--emulation-forward-compatible", s.EmulationForwardCompatible}, {"--runtime-config-emulation-forward-compatible", s.RuntimeConfigEmulationForwardCompatible}} {
		if f.on {
			return fmt.Errorf("%s needs an --emulated-version that is older than Kubernetes %s", f.flag, emulation.Release)
		}
	}
	return nil
}

func (s *settings) parsePaths() error {
	if s.DataDir == "" {
		return errors.New("--data-dir must not be empty")
	}
	dir, err := filepath.Abs(s.DataDir)
	if err != nil {
		return fmt.Errorf("--data-dir %q: %w", s.DataDir, err)
	}
	s.DataDir = dir
	if s.KubeconfigOut == "" {
		s.KubeconfigOut = s.defaultKubeconfig()
	}
	if !strings.HasPrefix(s.EtcdPrefix, "/") {
		return fmt.Errorf("--etcd-prefix %q must start with a slash", s.EtcdPrefix)
	}
	return nil
}

func (s *settings) parseAddresses() error {
	if net.ParseIP(s.BindAddress) == nil {
		return fmt.Errorf("--bind-address %q is not an IP address", s.BindAddress)
	}
	if s.SecurePort < 0 || s.SecurePort > 65535 {
		return fmt.Errorf("--secure-port %d is not a port: it must be between 0 and 65535", s.SecurePort)
	}
	var err error
	if _, s.serviceRange, err = net.ParseCIDR(s.ServiceClusterIPRange); err != nil {
		return fmt.Errorf("--service-cluster-ip-range %q is not a range such as 10.0.0.0/24", s.ServiceClusterIPRange)
	}
	if s.serviceIP, err = kubernetesservice.IP(s.serviceRange); err != nil {
		return fmt.Errorf("--service-cluster-ip-range %s: %w", s.ServiceClusterIPRange, err)
	}
	if s.addresses, err = webhookservices.ParseAddresses(s.ServiceAddresses); err != nil {
		return err
	}
	if s.AdvertiseAddress == "" {
		return nil
	}
	ip := net.ParseIP(s.AdvertiseAddress)
	if ip == nil {
		return fmt.Errorf("--advertise-address %q is not an IP address", s.AdvertiseAddress)
	}
	// The API accepts no other addresses as endpoints.
	if ip.IsUnspecified() || ip.IsLoopback() || ip.IsLinkLocalUnicast() || ip.IsLinkLocalMulticast() {
		return fmt.Errorf("--advertise-address %s is not an address at which others reach this server", ip)
	}
	return nil
}

// checkFiles returns an error that names a file that cannot be read, or that is missing although
// another file needs it.
func (s *settings) checkFiles() error {
	for _, pair := range []struct{ one, other, oneFlag, otherFlag string }{
		{s.TLSCertFile, s.TLSPrivateKeyFile, "--tls-cert-file", "--tls-private-key-file"},
		{s.EtcdCertFile, s.EtcdKeyFile, "--etcd-certfile", "--etcd-keyfile"},
		{s.ProxyClientCertFile, s.ProxyClientKeyFile, "--proxy-client-cert-file", "--proxy-client-key-file"},
	} {
		if (pair.one == "") != (pair.other == "") {
			return fmt.Errorf("%s and %s go together: one is set and the other is not", pair.oneFlag, pair.otherFlag)
		}
	}
	all := append(s.accessFiles(), []optionFile{
		{"--tls-cert-file", s.TLSCertFile}, {"--tls-private-key-file", s.TLSPrivateKeyFile},
		{"--client-ca-file", s.ClientCAFile}, {"--requestheader-client-ca-file", s.RequestHeader.ClientCAFile}, {"--token-auth-file", s.TokenAuthFile},
		{"--service-account-signing-key-file", s.ServiceAccountSigningKeyFile},
		{"--admission-control-config-file", s.AdmissionConfigFile}, {"--tracing-config-file", s.TracingConfigFile},
		{"--proxy-client-cert-file", s.ProxyClientCertFile}, {"--proxy-client-key-file", s.ProxyClientKeyFile},
		{"--encryption-provider-config", s.EncryptionProviderConfig}, {"--etcd-cafile", s.EtcdCAFile}, {"--etcd-certfile", s.EtcdCertFile}, {"--etcd-keyfile", s.EtcdKeyFile},
		{"--peer-cert-file", s.PeerCertFile}, {"--peer-key-file", s.PeerKeyFile}, {"--peer-trusted-ca-file", s.PeerTrustedCAFile},
	}...)
	for _, path := range s.ServiceAccountKeyFiles {
		all = append(all, optionFile{"--service-account-key-file", path})
	}
	if s.Audit != nil {
		all = append(all, optionFile{"--audit-policy-file", s.Audit.PolicyFile}, optionFile{"--audit-webhook-config-file", s.Audit.WebhookOptions.ConfigFile})
	}
	for _, file := range all {
		if file.path == "" {
			continue
		}
		// Libraries open most of these files, and do not check whether a file is a pipe or a
		// device.
		if err := files.Check(file.path, files.Configuration); err != nil {
			return fmt.Errorf("%s: %w", file.flag, err)
		}
	}
	return nil
}

// optionFile is a file that a flag names.
type optionFile struct{ flag, path string }

// accessFiles lists the files that configure authentication and authorization.
func (s *settings) accessFiles() []optionFile {
	files := []optionFile{
		{"--authentication-config", s.Authentication.AuthenticationConfigFile},
		{"--authorization-config", s.Authorization.AuthorizationConfigurationFile},
		{"--authorization-webhook-config-file", s.Authorization.WebhookConfigFile},
		{"--authorization-policy-file", s.Authorization.PolicyFile},
	}
	if o := s.Authentication.WebHook; o != nil {
		files = append(files, optionFile{"--authentication-token-webhook-config-file", o.ConfigFile})
	}
	if o := s.Authentication.OIDC; o != nil {
		files = append(files, optionFile{"--oidc-ca-file", o.CAFile})
	}
	return files
}

// tokens are the options for tokens of service accounts.
func (s *settings) tokens() tokens.Options {
	return tokens.Options{
		Issuers: s.ServiceAccountIssuers, SigningKeyFile: s.ServiceAccountSigningKeyFile, KeyFiles: s.ServiceAccountKeyFiles,
		SigningEndpoint: s.ServiceAccountSigningEndpoint, JWKSURI: s.ServiceAccountJWKSURI,
		MaxExpiration: s.ServiceAccountMaxTokenExpiration, KeepExpiration: s.ServiceAccountKeepTokenExpiration,
	}
}

func (s *settings) checkAuthentication() error { return auth.CheckOthers(s.Authentication) }

func (s *settings) parseAuthorization() error {
	o := *s.Authorization
	if len(o.Modes) == 0 {
		o.Modes = Defaults().Authorization.Modes
	}
	s.Authorization = &o
	var err error
	s.modes, err = auth.Modes(&o)
	return err
}

// authorizes reports whether the server runs an authorizer of a type.
func (s *settings) authorizes(mode string) bool { return slices.Contains(s.modes, mode) }

func (s *settings) checkChoices() error {
	if s.AdmissionConsistency != consistencyBounded && s.AdmissionConsistency != consistencyStrict {
		return fmt.Errorf("--admission-consistency %q is neither %s nor %s", s.AdmissionConsistency, consistencyBounded, consistencyStrict)
	}
	breaker := slices.Index(call.Breakers, s.AdmissionWebhookBreaker)
	if breaker < 0 {
		return fmt.Errorf("--admission-webhook-breaker %q is not one of %s", s.AdmissionWebhookBreaker, strings.Join(call.Breakers, ", "))
	}
	s.breaker = call.Breaker(breaker)
	return nil
}

func (s *settings) checkNumbers() error {
	if s.AdmissionRefreshInterval < 0 || s.AdmissionRefreshInterval >= s.AdmissionMaxStaleness {
		return fmt.Errorf("--admission-refresh-interval %s must be more than 0 and less than --admission-max-staleness %s", s.AdmissionRefreshInterval, s.AdmissionMaxStaleness)
	}
	for _, n := range []struct {
		flag  string
		value int
	}{
		{"--fake-nodes", s.FakeNodes},
		{"--admission-webhook-max-inflight", s.AdmissionWebhookMaxInFlight},
		{"--max-requests-inflight", s.MaxRequestsInFlight}, {"--max-mutating-requests-inflight", s.MaxMutatingRequestsInFlight},
	} {
		if n.value < 0 {
			return fmt.Errorf("%s %d must not be negative", n.flag, n.value)
		}
	}
	if s.EncryptionProviderConfigAutomaticReload && s.EncryptionProviderConfig == "" {
		return errors.New("--encryption-provider-config-automatic-reload needs --encryption-provider-config")
	}
	if s.EtcdQuota < 0 {
		return errors.New("--etcd-quota must be more than 0")
	}
	for _, d := range []struct {
		flag  string
		value time.Duration
	}{{"--initializer-timeout", s.InitializerTimeout}, {"--initializer-repair-after", s.InitializerRepairAfter}, {"--initializer-release-timeout", s.InitializerReleaseTimeout}} {
		if d.value < 0 {
			return fmt.Errorf("%s %s must not be negative", d.flag, d.value)
		}
	}
	return nil
}

// checkRequests checks the options of requests as k8s.io/apiserver does.
func (s *settings) checkRequests() error {
	o := &options.ServerRunOptions{
		RequestTimeout: s.RequestTimeout, MinRequestTimeout: int(s.MinRequestTimeout / time.Second), GoawayChance: s.GoawayChance,
		ShutdownDelayDuration: s.ShutdownDelay, HSTSDirectives: s.StrictTransportSecurity, CorsAllowedOriginList: s.CORSAllowedOrigins,
		ComponentGlobalsRegistry: basecompatibility.NewComponentGlobalsRegistry(),
	}
	if errs := o.Validate(); len(errs) > 0 {
		return errs[0]
	}
	if types := []string{runtime.ContentTypeProtobuf, runtime.ContentTypeJSON, runtime.ContentTypeYAML}; !slices.Contains(types, s.StorageMediaType) {
		return fmt.Errorf("--storage-media-type %q is not one of %s", s.StorageMediaType, strings.Join(types, ", "))
	}
	if s.AnonymousAuth != nil && s.Authentication.AuthenticationConfigFile != "" {
		return errors.New("--anonymous-auth and --authentication-config exclude each other: the file lists the paths for anonymous requests")
	}
	return nil
}

// checkTLS checks the options of TLS.
func (s *settings) checkTLS() error {
	o := s.SecureServing
	if _, err := cliflag.TLSVersion(o.MinTLSVersion); err != nil {
		return fmt.Errorf("--tls-min-version: %w", err)
	}
	if _, err := cliflag.TLSCipherSuites(o.CipherSuites); err != nil {
		return fmt.Errorf("--tls-cipher-suites: %w", err)
	}
	for _, pair := range o.SNICertKeys {
		for _, file := range []string{pair.CertFile, pair.KeyFile} {
			if err := files.Check(file, files.Configuration); err != nil {
				return fmt.Errorf("--tls-sni-cert-key: %w", err)
			}
		}
	}
	return nil
}

func (s *settings) parseAdmission() error {
	var err error
	if s.plugins, err = (admission.Selection{
		Control: s.AdmissionControl, Enable: s.EnableAdmissionPlugins, Disable: s.DisableAdmissionPlugins,
	}).Names(chain.KnownPlugins()); err != nil {
		return fmt.Errorf("--%w%s", err, chain.Hint(slices.Concat(s.AdmissionControl, s.EnableAdmissionPlugins, s.DisableAdmissionPlugins)))
	}
	if !emulation.JudgesByMutatingPolicies() {
		s.plugins = slices.DeleteFunc(s.plugins, func(name string) bool { return name == admission.MutatingPolicyName })
	}
	if s.versions, err = runtimeconfig.Parse(s.RuntimeConfig, s.EmulationForwardCompatible); err != nil {
		return err
	}
	for _, k := range registration.Sources() {
		if !s.versions.Serves(k) || !s.runs(k.Plugin) {
			s.notEnforced = append(s.notEnforced, k.Resource)
		}
	}
	return nil
}

func (s *settings) checkControllers() error {
	if err := controllers.Check(s.Controllers); err != nil {
		return fmt.Errorf("--controllers: %w", err)
	}
	return nil
}

func (s *settings) checkAudit() error {
	if errs := s.Audit.Validate(); len(errs) > 0 {
		return errs[0]
	}
	return nil
}

// checkProxies checks RequestHeader, and adds the usual names of the headers in which proxies name
// callers, except for the uid: as at kube-apiserver, no header names the uid unless the
// administrator sets it. A proxy from before 2025 passes that header on as its client sent it.
func (s *settings) checkProxies() error {
	given := &s.proxies
	*given = *s.RequestHeader
	if errs := given.Validate(); len(errs) > 0 {
		return errs[0]
	}
	for _, headers := range []struct {
		list *[]string
		name string
	}{
		{&given.UsernameHeaders, "X-Remote-User"}, {&given.GroupHeaders, "X-Remote-Group"}, {&given.ExtraHeaderPrefixes, "X-Remote-Extra-"},
	} {
		if len(*headers.list) == 0 {
			*headers.list = []string{headers.name}
		}
	}
	return nil
}

func (s *settings) parseTracing() error {
	var err error
	s.tracing, err = spans.Read(s.TracingConfigFile)
	return err
}

func (s *settings) parseBackups() error {
	if s.BackupKeep < 0 {
		return fmt.Errorf("--backup-keep %d must not be negative", s.BackupKeep)
	}
	if s.BackupSchedule == "" {
		return nil
	}
	if s.external() {
		return errors.New("--backup-schedule is for the embedded etcd: back up the etcd of --etcd-servers with etcdctl")
	}
	if s.BackupDir == "" {
		s.BackupDir = BackupDir(s.DataDir)
	}
	var err error
	if s.backups, err = backup.ParseSchedule(s.BackupSchedule); err != nil {
		return fmt.Errorf("--backup-schedule: %w", err)
	}
	return nil
}
