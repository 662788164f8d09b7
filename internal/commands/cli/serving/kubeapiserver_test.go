package serving

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	utilnet "k8s.io/apimachinery/pkg/util/net"

	"github.com/gatehouse-dev/gatehouse/internal/commands/cli/command"
	"github.com/gatehouse-dev/gatehouse/internal/kit/program"
	"github.com/gatehouse-dev/gatehouse/internal/server"
)

// standIn runs a command line of kube-apiserver up to the start of the server. It returns the server's options
// and standard error.
func standIn(t *testing.T, args ...string) (*serveOptions, string, error) {
	t.Helper()
	t.Setenv("TMPDIR", t.TempDir())
	var got *serveOptions
	var warnings strings.Builder
	cmd := newKubeAPIServerCommand(command.Streams{Out: io.Discard, Err: &warnings}, func(_ context.Context, o *serveOptions) error {
		got = o
		return nil
	})
	cmd.SetArgs(append([]string{}, args...))
	cmd.SetErr(io.Discard)
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	cmd.SetFlagErrorFunc(command.FlagError)
	err := cmd.Execute()
	return got, warnings.String(), err
}

func TestTheCommandLineOfKubeAPIServer(t *testing.T) {
	for _, tc := range []struct {
		name, args string
		// got reads the option to compare with want; nil to compare warnings only.
		got      func(*server.Options) any
		want     any
		warnings []string
		err      string
	}{
		{name: "what is registered is in force at once", got: func(o *server.Options) any { return o.AdmissionConsistency }, want: "strict"},
		{name: "a webhook that is served late is called as soon as it is", got: func(o *server.Options) any { return o.AdmissionWebhookBreaker }, want: "off"},
		{name: "the default of kube-apiserver", got: func(o *server.Options) any { return o.RefusePrivileged }, want: true},
		{name: "a switch without a value", args: "--allow-privileged --secure-port 1", got: func(o *server.Options) any { return o.RefusePrivileged }, want: false},
		{name: "Node", args: "--authorization-mode=Node,RBAC", got: func(o *server.Options) any { return o.Authorization.Modes }, want: []string{"Node", "RBAC"}},
		{name: "what suites disable", args: "--disable-admission-plugins=ServiceAccount",
			got: func(o *server.Options) any { return o.DisableAdmissionPlugins }, want: []string{"ServiceAccount"}},
		{name: "a plugin that is nowhere", args: "--disable-admission-plugins=Nowhere", got: func(o *server.Options) any { return o.DisableAdmissionPlugins }, want: []string{"Nowhere"}},
		{name: "all versions", args: "--runtime-config=api/all=true,admissionregistration.k8s.io/v1alpha1=false",
			got: func(o *server.Options) any { return o.RuntimeConfig }, want: []string{"api/all=true", "admissionregistration.k8s.io/v1alpha1=false"}},
		{name: "versions that are off by default", args: "--runtime-config=resource.k8s.io/v1beta2=true,resource.k8s.io/v1beta1/deviceclasses=true,apps/v1=true,v1=true",
			got: func(o *server.Options) any { return o.RuntimeConfig }, want: []string{"resource.k8s.io/v1beta2=true", "resource.k8s.io/v1beta1/deviceclasses=true", "apps/v1=true"}},
		{name: "a version that is not there", args: "--runtime-config=apps/v2=true", warnings: []string{"--runtime-config apps/v2=true has no effect"}},
		{name: "no betas", args: "--runtime-config=api/beta=false", warnings: []string{"--runtime-config api/beta=false has no effect"}},
		{name: "a version that cannot be switched off", args: "--runtime-config=apps/v1=false", warnings: []string{"--runtime-config apps/v1=false has no effect"}},
		{name: "an address that others do not reach", args: "--advertise-address=127.0.0.1", got: func(o *server.Options) any { return o.AdvertiseAddress }, want: ""},
		{name: "two ranges", args: "--service-cluster-ip-range=10.0.0.0/24,fd00::/108", got: func(o *server.Options) any { return o.ServiceClusterIPRange }, want: "10.0.0.0/24",
			warnings: []string{"not from fd00::/108"}},
		{name: "node ports", args: "--service-node-port-range=31000-31009", got: func(o *server.Options) any { return o.NodePorts }, want: utilnet.PortRange{Base: 31000, Size: 10}},
		{name: "real flags without a meaning here", args: "--livez-grace-period 1s --log-flush-frequency 1s --watch-cache=false --livez-grace-period 2s --v 0",
			warnings: []string{"without effect here: --livez-grace-period, --log-flush-frequency, --watch-cache\n"}},
		{name: "an unknown flag", args: "--goaway-chanse 1", err: "unknown flag --goaway-chanse (did you mean --goaway-chance?)"},
		{name: "a gate of another component", args: "--feature-gates=wardle:A=true", err: `--feature-gates "wardle:A=true": the only component is kube`},
		{name: "gates that nothing here reads", args: "--feature-gates=NodeSwap=true,kube:MemoryQoS=false,WatchList=true", warnings: []string{"without effect here: --feature-gates MemoryQoS, NodeSwap\n"}},
		{name: "a gate that does not exist", args: "--feature-gates=NoSuchGate=true", err: "--feature-gates: unrecognized feature gate: NoSuchGate"},
		{name: "another store", args: "--storage-backend=etcd2", err: `--storage-backend "etcd2": etcd3 is the only one`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			o, warnings, err := standIn(t, strings.Fields(tc.args)...)
			if tc.err != "" {
				if err == nil || err.Error() != tc.err || command.ExitCode(err) != command.ExitUsage {
					t.Errorf("got %v, want %s", err, tc.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if tc.got != nil {
				if diff := cmp.Diff(tc.want, tc.got(&o.server)); diff != "" {
					t.Errorf("(-want +got)\n%s", diff)
				}
			}
			if (warnings != "") != (len(tc.warnings) > 0) {
				t.Errorf("warnings:\n%s", warnings)
			}
			for _, w := range tc.warnings {
				if !strings.Contains(warnings, w) {
					t.Errorf("no warning %q but\n%s", w, warnings)
				}
			}
		})
	}
}

// Libraries parse the help for its flags, so it must list the supported flags and no others.
func TestHelpListsFlagsAsTestLibrariesLookForThem(t *testing.T) {
	var help strings.Builder
	cmd := NewKubeAPIServer(command.Streams{Out: io.Discard, Err: io.Discard})
	cmd.SetUsageFunc(command.PrintUsage)
	cmd.SetOut(&help)
	cmd.SetArgs([]string{"--help"})
	if err := cmd.Execute(); err != nil {
		t.Fatal(err)
	}
	listed := func(name string) bool {
		return regexp.MustCompile(`(?m)^\s*--` + name + `\b`).MatchString(help.String())
	}
	for _, line := range command.GeneratedLines(command.UpstreamFlags) {
		// Like envtest's own expression, it does not match a flag with a short form.
		if name, _, _ := strings.Cut(line, " "); name != "v" && !listed(name) {
			t.Errorf("--%s is not listed", name)
		}
	}
	if listed("insecure-port") {
		t.Error("--insecure-port is listed, and libraries would set it")
	}
}

func TestTheDirectoryOfCertificates(t *testing.T) {
	t.Run("missing ones are made", func(t *testing.T) {
		dir := filepath.Join(t.TempDir(), "certs")
		o, _, err := standIn(t, "--cert-dir", dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range []string{o.server.TLSCertFile, o.server.TLSPrivateKeyFile} {
			if _, err := os.Stat(file); err != nil || filepath.Dir(file) != dir {
				t.Errorf("%s: %v", file, err)
			}
		}
		if got, want := o.server.DataDir, filepath.Join(dir, "gatehouse"); got != want {
			t.Errorf("the data directory is %s, want %s", got, want)
		}
	})
	t.Run("those that are there stay", func(t *testing.T) {
		dir := t.TempDir()
		for _, name := range []string{"apiserver.crt", "apiserver.key"} {
			if err := os.WriteFile(filepath.Join(dir, name), []byte("mine"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		o, _, err := standIn(t, "--cert-dir", dir)
		if err != nil {
			t.Fatal(err)
		}
		if data, err := os.ReadFile(o.server.TLSCertFile); err != nil || string(data) != "mine" {
			t.Errorf("the certificate is %q, %v", data, err)
		}
	})
}

// S26.11: programs emulate the release that their folder names.
func TestTheReleaseOfAFolder(t *testing.T) {
	root := t.TempDir()
	for _, tt := range []struct {
		name, file string
		want       string
		known      bool
		err        string
	}{
		{name: "bin", known: true},
		{name: "1.35.4-linux-amd64", want: "1.35", known: true},
		{name: "v1.36.3-darwin-arm64", want: "1.36", known: true},
		{name: "1.37.2-linux-amd64", want: "1.37", known: true},
		{name: "1.30.0-linux-amd64", want: "1.34"},
		{name: "1.35.4-linux-amd64-mine", known: true},
		{name: "1.35.5-linux-amd64", file: "1.36\n", want: "1.36", known: true},
		{name: "broken", file: "new\n", err: `broken/kubernetes-version: "new" is not a version of Kubernetes such as 1.35`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := filepath.Join(root, tt.name)
			if err := os.MkdirAll(dir, 0o755); err != nil {
				t.Fatal(err)
			}
			if tt.file != "" {
				if err := os.WriteFile(filepath.Join(dir, releaseFile), []byte(tt.file), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			got, known, err := releaseOfFolder(dir)
			if (err != nil) != (tt.err != "") || err != nil && !strings.HasSuffix(err.Error(), tt.err) {
				t.Fatalf("got error %v, want %q", err, tt.err)
			}
			if err == nil && (got != tt.want || known != tt.known) {
				t.Errorf("got %q, %t, want %q, %t", got, known, tt.want, tt.known)
			}
		})
	}
}

func TestInstalledProgramsFollowTheProgram(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "bin")
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(self)
	if err != nil {
		t.Fatal(err)
	}
	check := func() {
		t.Helper()
		if err := installPrograms(dir, &command.Release{}); err != nil {
			t.Fatal(err)
		}
		entries, err := os.ReadDir(dir)
		if err != nil || len(entries) != 3 {
			t.Fatalf("installed %v, %v", entries, err)
		}
		for _, e := range entries {
			got, err := os.Stat(filepath.Join(dir, e.Name()))
			if err != nil || got.Size() != info.Size() || got.Mode()&0o111 == 0 {
				t.Errorf("%s: %v, %v", e.Name(), got, err)
			}
		}
	}
	check()
	check()
	// Files of another origin under the names of the programs are replaced.
	for _, name := range []string{program.KubeAPIServer, program.Kubectl} {
		if err := os.Remove(filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte("old"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	check()
	// Where links are impossible, a copy differs from the copy of another build.
	copied := filepath.Join(dir, "copy")
	if err := copyFile(self, copied, info); err != nil {
		t.Fatal(err)
	}
	if got, err := os.Stat(copied); err != nil || got.Size() != info.Size() || !got.ModTime().Equal(info.ModTime()) {
		t.Errorf("the copy is %v, %v", got, err)
	}
}

func TestEtcdOfATestElectsItselfAtOnce(t *testing.T) {
	for args, want := range map[string]bool{
		"--data-dir d": false,
		"--initial-cluster default=http://localhost:1":     false,
		"--initial-cluster=a=http://a:1,b=http://b:1":      true,
		"--initial-cluster a=http://a:1,b=http://b:1 --x":  true,
		"-initial-cluster a=http://a:1,b=http://b:1":       true,
		"--listen-client-urls=http://a:1,http://b:1":       false,
		"--discovery-srv example.com --data-dir=/tmp/data": true,
	} {
		if got := manyMembers(strings.Fields(args)); got != want {
			t.Errorf("%s: many members: %t, want %t", args, got, want)
		}
	}
}
