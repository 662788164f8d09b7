package serving

import (
	"context"
	_ "embed"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/apiserver/pkg/server/options"

	"github.com/gatehouse-dev/gatehouse/internal/commands/cli/command"
	"github.com/gatehouse-dev/gatehouse/internal/kit/emulation"
	"github.com/gatehouse-dev/gatehouse/internal/kit/program"
	"github.com/gatehouse-dev/gatehouse/internal/kit/scratch"
	"github.com/gatehouse-dev/gatehouse/internal/kit/terminal"
	"github.com/gatehouse-dev/gatehouse/internal/server"
	"github.com/gatehouse-dev/gatehouse/internal/server/api/runtimeconfig"
)

// idleGates are the feature gates of Kubernetes that no code of this program reads, one in each line.
//
//go:embed kubeapiserver_gates.txt
var idleGates string

// suiteControllers are the controllers of a kube-apiserver that a test library starts. Other controllers would
// create or delete objects unexpectedly for the tests, since an envtest has no controllers. These two make the
// deletion of namespaces work and fill the roles admin, edit and view.
var suiteControllers = []string{"namespace-controller", "clusterrole-aggregation-controller"}

// kubeAPIServer has the kube-apiserver flags that serve does not have.
type kubeAPIServer struct {
	certDir       string
	storage       string
	version       bool
	withoutEffect []string
}

// NewKubeAPIServer returns the command that replaces kube-apiserver: serve, with the flag names and defaults of
// kube-apiserver.
func NewKubeAPIServer(streams command.Streams) *cobra.Command {
	return newKubeAPIServerCommand(streams, func(ctx context.Context, o *serveOptions) error { return runServe(ctx, o, streams) })
}

func newKubeAPIServerCommand(streams command.Streams, run func(context.Context, *serveOptions) error) *cobra.Command {
	k := &kubeAPIServer{}
	var cmd *cobra.Command
	cmd = newServeCommand(func(ctx context.Context, o *serveOptions) error {
		if k.version {
			terminal.Fprintf(streams.Out, "Kubernetes %s\n", command.CurrentVersion().Kubernetes)
			return nil
		}
		ctx, stop := whileParentLives(ctx)
		defer stop()
		end, err := k.apply(cmd.Flags(), o, streams.Err)
		if err != nil {
			return err
		}
		defer func() { end(ctx.Err() != nil && cmd.Context().Err() == nil) }()
		return run(ctx, o)
	})
	cmd.Use = program.KubeAPIServer
	cmd.Short = "Gatehouse with the command line of kube-apiserver"
	cmd.Long = `Gatehouse, started under the name kube-apiserver, accepts the command line of
kube-apiserver. It is for programs that start a kube-apiserver for tests, such as
the envtest of controller-runtime: 'gatehouse envtest --help' has more.

Flags of kube-apiserver that mean nothing here are accepted with a warning. A
webhook or a policy is active as soon as its write is acknowledged:
--admission-consistency is strict. Other differences are in docs/envtest.md.`
	cmd.Example = `  # what envtest runs, in short
  kube-apiserver --etcd-servers http://127.0.0.1:2379 --cert-dir /tmp/certs \
    --secure-port 6443 --client-ca-file ca.crt --authorization-mode RBAC`
	k.addFlags(cmd)
	cmd.Flags().Lookup("console").Hidden = true
	setDefault(cmd, "allow-privileged", "false")
	setDefault(cmd, "admission-consistency", "strict")
	// Test suites register webhooks before they serve them.
	setDefault(cmd, "admission-webhook-breaker", "off")
	// All requests of a suite are from one user.
	setDefault(cmd, "enable-priority-and-fairness", "false")
	cmd.Flags().Lookup("controllers").DefValue = strings.Join(suiteControllers, ",")
	cmd.Flags().Lookup("data-dir").DefValue = "gatehouse in the directory of --cert-dir, or a temporary directory"
	return cmd
}

// setDefault changes the default of a flag.
func setDefault(cmd *cobra.Command, name, value string) {
	f := cmd.Flags().Lookup(name)
	if err := f.Value.Set(value); err != nil {
		panic(fmt.Sprintf("cli: the default of --%s: %v", name, err))
	}
	f.DefValue = value
}

func (k *kubeAPIServer) addFlags(cmd *cobra.Command) {
	command.AddSection(cmd, "Of kube-apiserver", func(f *pflag.FlagSet) {
		f.StringVar(&k.certDir, "cert-dir", "", "directory with apiserver.crt and apiserver.key, which are made when they are missing; --tls-cert-file is preferred to it")
		f.StringVar(&k.storage, "storage-backend", "", "etcd3, which is the only one")
		f.BoolVar(&k.version, "version", false, "print the release of Kubernetes and exit")
	})
	command.AddSection(cmd, "Accepted, with a warning that they have no effect", func(f *pflag.FlagSet) {
		for _, line := range command.GeneratedLines(command.UpstreamFlags) {
			name, kind, _ := strings.Cut(line, " ")
			if cmd.Flags().Lookup(name) != nil {
				continue
			}
			flag := f.VarPF(&noEffect{kind: kind, seen: func() { k.withoutEffect = append(k.withoutEffect, "--"+name) }}, name, "", "")
			if kind == "" {
				flag.NoOptDefVal = "true"
			}
		}
	})
}

// noEffect is the value of a flag that is accepted and has no effect.
type noEffect struct {
	kind string
	seen func()
}

// Set implements pflag.Value.
func (n *noEffect) Set(string) error {
	n.seen()
	return nil
}

// String implements pflag.Value.
func (n *noEffect) String() string { return "" }

// Type implements pflag.Value.
func (n *noEffect) Type() string { return n.kind }

// apply converts the command line to server options, and warns of flags without effect. The caller must call
// end after the server has ended. end removes the temporary files of this process and, if orphaned is set, the
// temporary files of the suite.
func (k *kubeAPIServer) apply(flags *pflag.FlagSet, o *serveOptions, warnings io.Writer) (end func(orphaned bool), err error) {
	warn := func(format string, args ...any) {
		terminal.Fprintf(warnings, "%s: %s\n", program.KubeAPIServer, fmt.Sprintf(format, args...))
	}
	if len(k.withoutEffect) > 0 {
		slices.Sort(k.withoutEffect)
		warn("without effect here: %s", strings.Join(slices.Compact(k.withoutEffect), ", "))
	}
	if k.storage != "" && k.storage != "etcd3" {
		return nil, command.Usagef("--storage-backend %q: etcd3 is the only one", k.storage)
	}
	s := &o.server
	if !flags.Changed("emulated-version") {
		if s.EmulatedVersion, err = releaseOfProgram(warn); err != nil {
			return nil, err
		}
	}
	if err := emulation.Apply(emulation.Flags{EmulatedVersion: s.EmulatedVersion, MinCompatibilityVersion: s.MinCompatibilityVersion, FeatureGates: s.FeatureGates}); err != nil {
		return nil, command.UsageError{Err: err}
	}
	warnOfIdleGates(s.FeatureGates, warn)
	s.UnsafeNoFsync, s.EndAtOnce = true, true
	// A kube-apiserver has no console.
	s.Console = false
	chooseAdmission(s, warn)
	chooseAddresses(s, warn)
	if !flags.Changed("controllers") {
		s.Controllers = suiteControllers
	}
	// The etcd of the suite starts at the same time and may be killed at any moment, so this process removes
	// old files.
	scratch.Sweep()
	certs, err := scratch.Adopt(k.certDir, startedBy)
	if err != nil {
		return nil, fmt.Errorf("--cert-dir: %w", err)
	}
	var data *scratch.Dir
	switch {
	case flags.Changed("data-dir"):
	case k.certDir != "":
		s.DataDir = filepath.Join(k.certDir, "gatehouse")
	default:
		if data, err = scratch.New(); err != nil {
			return nil, fmt.Errorf("temporary data directory: %w", err)
		}
		s.DataDir = data.Path()
	}
	end = func(orphaned bool) {
		data.Remove()
		if orphaned {
			certs.Remove()
		} else {
			certs.Release()
		}
	}
	if err := k.certificates(s); err != nil {
		end(false)
		return nil, err
	}
	return end, nil
}

// releaseOfProgram returns --emulated-version for a program in a folder of envtest (S26.11).
func releaseOfProgram(warn func(string, ...any)) ([]string, error) {
	path, err := exec.LookPath(os.Args[0])
	if err != nil {
		return nil, nil
	}
	release, known, err := releaseOfFolder(filepath.Dir(path))
	if err != nil || release == "" {
		return nil, err
	}
	if !known {
		warn("the release of the folder %s cannot be emulated: the nearest one is, %s", filepath.Dir(path), release)
	}
	return []string{release}, nil
}

// warnOfIdleGates warns of feature gates without effect here.
func warnOfIdleGates(entries []string, warn func(string, ...any)) {
	var idle []string
	for _, entry := range entries {
		gate, _, _ := strings.Cut(strings.TrimPrefix(entry, "kube:"), "=")
		if gate = strings.TrimSpace(gate); slices.Contains(command.GeneratedLines(idleGates), gate) {
			idle = append(idle, gate)
		}
	}
	if len(idle) > 0 {
		slices.Sort(idle)
		warn("without effect here: --feature-gates %s", strings.Join(slices.Compact(idle), ", "))
	}
}

// chooseAdmission drops kube-apiserver's plugins that do not exist here, and API versions that cannot be
// switched.
func chooseAdmission(s *server.Options, warn func(string, ...any)) {
	known, upstream := server.PluginNames(), command.GeneratedLines(command.UpstreamPlugins)
	missing := func(name string) bool { return !slices.Contains(known, name) && slices.Contains(upstream, name) }
	for _, list := range []*[]string{&s.EnableAdmissionPlugins, &s.AdmissionControl} {
		*list = slices.DeleteFunc(slices.Clone(*list), func(name string) bool {
			if !missing(name) {
				return false
			}
			warn("the admission plugin %s is not in this server", name)
			return true
		})
	}
	// A missing plugin is disabled anyway.
	s.DisableAdmissionPlugins = slices.DeleteFunc(slices.Clone(s.DisableAdmissionPlugins), missing)
	s.RuntimeConfig = slices.DeleteFunc(slices.Clone(s.RuntimeConfig), func(entry string) bool {
		if runtimeconfig.CanSwitch(entry) {
			return false
		}
		// Enabling an API that is enabled by default needs no warning.
		if _, value, given := strings.Cut(entry, "="); given && value != "true" || !runtimeconfig.ServedByDefault(entry) {
			warn("--runtime-config %s has no effect here", entry)
		}
		return true
	})
}

// chooseAddresses drops addresses that have no effect here.
func chooseAddresses(s *server.Options, warn func(string, ...any)) {
	if ip := net.ParseIP(s.AdvertiseAddress); ip != nil && ip.IsLoopback() {
		// An EndpointSlice cannot contain a loopback address.
		s.AdvertiseAddress = ""
	}
	first, rest, two := strings.Cut(s.ServiceClusterIPRange, ",")
	if s.ServiceClusterIPRange = first; two {
		warn("--service-cluster-ip-range: cluster IPs are taken from %s only, not from %s", first, rest)
	}
}

// certificates loads the serving certificate, or creates one like kube-apiserver.
func (k *kubeAPIServer) certificates(s *server.Options) error {
	if k.certDir == "" || s.TLSCertFile != "" {
		return nil
	}
	secure := options.NewSecureServingOptions()
	secure.BindAddress = net.ParseIP(s.BindAddress)
	secure.ServerCert.CertDirectory, secure.ServerCert.PairName = k.certDir, "apiserver"
	if err := secure.MaybeDefaultWithSelfSignedCerts("localhost", []string{"kubernetes.default.svc", "kubernetes.default", "kubernetes"}, []net.IP{net.IPv4(127, 0, 0, 1)}); err != nil {
		return fmt.Errorf("--cert-dir: %w", err)
	}
	s.TLSCertFile, s.TLSPrivateKeyFile = secure.ServerCert.CertKey.CertFile, secure.ServerCert.CertKey.KeyFile
	return nil
}
