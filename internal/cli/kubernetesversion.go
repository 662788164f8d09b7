package cli

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/pflag"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"

	"github.com/gatehouse-dev/gatehouse/internal/emulation"
	"github.com/gatehouse-dev/gatehouse/internal/predict/clustersnapshot"
	"github.com/gatehouse-dev/gatehouse/internal/terminal"
)

// kubernetesRelease is the release of Kubernetes that a command judges as (S26.6).
type kubernetesRelease struct {
	// wanted is --kubernetes-version.
	wanted string
	// line says that objects are judged as by another release than that of the cluster; empty when
	// they are not.
	line string
}

// addFlag adds --kubernetes-version. otherwise says what the command judges as without the flag.
func (r *kubernetesRelease) addFlag(f *pflag.FlagSet, otherwise string) {
	f.StringVar(&r.wanted, "kubernetes-version", "", "judge as this `release` of Kubernetes, one of "+strings.Join(emulation.Releases(), ", ")+" (default "+otherwise+")")
}

// named returns the release that the flag names, such as 1.35; empty for none.
func (r *kubernetesRelease) named() (string, error) {
	flags, _, err := emulation.Like(emulation.Cluster{}, r.wanted)
	if err != nil || len(flags.EmulatedVersion) == 0 {
		return "", asUsage("--kubernetes-version", err)
	}
	return flags.EmulatedVersion[0], nil
}

// asUsage is an error about a flag; nil for none.
func asUsage(flag string, err error) error {
	if err == nil {
		return nil
	}
	return usageError{fmt.Errorf("%s: %w", flag, err)}
}

// choose makes this process judge as the release that the flag names, or as a cluster.
func (r *kubernetesRelease) choose(c emulation.Cluster) error {
	flags, line, err := emulation.Like(c, r.wanted)
	if err == nil {
		err = emulation.Apply(flags)
	}
	r.line = line
	return asUsage("--kubernetes-version", err)
}

// chooseOf is choose for the cluster of a snapshot, nil for none.
func (r *kubernetesRelease) chooseOf(s *clustersnapshot.Snapshot) error {
	if s == nil {
		return r.choose(emulation.Cluster{})
	}
	return r.choose(s.Cluster.Server())
}

// fields returns the fields in which the release that the flag names, or that of the cluster of a
// snapshot, differs from this program (S26.12). A cluster that emulates a release has the fields of
// its program.
func (r *kubernetesRelease) fields(s *clustersnapshot.Snapshot) *emulation.Fields {
	if s == nil || r.wanted != "" {
		return emulation.FieldsOf(r.wanted)
	}
	return emulation.FieldsOf(s.Cluster.KubernetesVersion)
}

// chooseFor is choose for the cluster of a configuration.
func (r *kubernetesRelease) chooseFor(config *rest.Config) error {
	client, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return err
	}
	info, err := client.ServerVersion()
	if err != nil {
		return fmt.Errorf("asking the cluster for its version: %w", err)
	}
	return r.choose(emulation.Cluster{Version: emulation.VersionOf(info)})
}

// print writes the line, if there is one, above what a command prints for people.
func (r *kubernetesRelease) print(b io.Writer) {
	if r.line != "" {
		terminal.Fprintf(b, "%s%s.\n\n", strings.ToUpper(r.line[:1]), r.line[1:])
	}
}
