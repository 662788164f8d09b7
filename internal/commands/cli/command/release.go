package command

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/pflag"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"

	"github.com/gatehouse-dev/gatehouse/internal/commands/predict/clustersnapshot"
	"github.com/gatehouse-dev/gatehouse/internal/kit/emulation"
	"github.com/gatehouse-dev/gatehouse/internal/kit/terminal"
)

// Release is the Kubernetes release that a command emulates (S26.6).
type Release struct {
	// Wanted is the value of --kubernetes-version.
	Wanted string
	// Line says that the emulated release differs from the cluster's release; empty if they are equal.
	Line string
}

// AddFlag adds --kubernetes-version. otherwise describes the default.
func (r *Release) AddFlag(f *pflag.FlagSet, otherwise string) {
	f.StringVar(&r.Wanted, "kubernetes-version", "", "decide as this `release` of Kubernetes, one of "+strings.Join(emulation.Releases(), ", ")+" (default "+otherwise+")")
}

// Named returns the release of the flag, such as 1.35; empty for none.
func (r *Release) Named() (string, error) {
	flags, _, err := emulation.Like(emulation.Cluster{}, r.Wanted)
	if err != nil || len(flags.EmulatedVersion) == 0 {
		return "", asUsage("--kubernetes-version", err)
	}
	return flags.EmulatedVersion[0], nil
}

// asUsage wraps an error about a flag in a UsageError; nil stays nil.
func asUsage(flag string, err error) error {
	if err == nil {
		return nil
	}
	return Usagef("%s: %w", flag, err)
}

// Choose makes this process emulate the release of the flag, or else the release of the cluster.
func (r *Release) Choose(c emulation.Cluster) error {
	flags, line, err := emulation.Like(c, r.Wanted)
	if err == nil {
		err = emulation.Apply(flags)
	}
	r.Line = line
	return asUsage("--kubernetes-version", err)
}

// ChooseOf is Choose for the cluster of a snapshot; nil for none.
func (r *Release) ChooseOf(s *clustersnapshot.Cluster) error {
	if s == nil {
		return r.Choose(emulation.Cluster{})
	}
	return r.Choose(s.Server())
}

// Fields returns the differences in fields between this program and the emulated release: the release of the
// flag, or else of the snapshot's cluster (S26.12). A cluster that emulates a release has the fields of its own
// binary.
func (r *Release) Fields(s *clustersnapshot.Cluster) *emulation.Fields {
	if s == nil || r.Wanted != "" {
		return emulation.FieldsOf(r.Wanted)
	}
	return emulation.FieldsOf(s.Cluster.KubernetesVersion)
}

// ChooseFor is Choose for the cluster of a configuration.
func (r *Release) ChooseFor(config *rest.Config) error {
	client, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return err
	}
	info, err := client.ServerVersion()
	if err != nil {
		return fmt.Errorf("asking the cluster for its version: %w", err)
	}
	return r.Choose(emulation.Cluster{Version: emulation.VersionOf(info)})
}

// Print writes the line above the output for people, if the line is not empty.
func (r *Release) Print(b io.Writer) {
	if r.Line != "" {
		terminal.Fprintf(b, "%s%s.\n\n", strings.ToUpper(r.Line[:1]), r.Line[1:])
	}
}
