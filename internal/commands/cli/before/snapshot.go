package before

import (
	"context"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/gatehouse-dev/gatehouse/internal/commands/cli/command"
	"github.com/gatehouse-dev/gatehouse/internal/commands/predict/clustersnapshot"
	"github.com/gatehouse-dev/gatehouse/internal/kit/emulation"
	"github.com/gatehouse-dev/gatehouse/internal/kit/terminal"
	"github.com/gatehouse-dev/gatehouse/internal/readers/report"
)

type snapshotOptions struct {
	cluster *command.Cluster
	file    string
	release command.Release
	rbac    bool
	// definitions are paths of CRDs; with them, no cluster is read.
	definitions []string
}

// NewSnapshot returns the command gatehouse snapshot.
func NewSnapshot(streams command.Streams) *cobra.Command {
	o := &snapshotOptions{}
	cmd := &cobra.Command{
		Use:   "snapshot -o FILE",
		Short: "Save the policies, quotas and roles of a cluster, for check",
		Args:  command.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.rbac {
				return printSnapshotRBAC(streams.Out)
			}
			if o.file == "" {
				return command.Usagef("name the file to write: -o FILE, or -o - for standard output")
			}
			return o.run(cmd.Context(), streams)
		},
	}
	command.AddSection(cmd, "Output", func(f *pflag.FlagSet) {
		o.release.AddFlag(f, "from the cluster")
		f.StringVarP(&o.file, "output", "o", "", "`file` to write: JSON if its name ends in .json, else YAML; - is standard output")
		f.StringArrayVar(&o.definitions, "definitions", nil, "`path` of a folder, a file or an archive of CRDs; may be repeated. The file then has these CRDs only, without descriptions, and no cluster is read")
		f.BoolVar(&o.rbac, "rbac", false, "print the ClusterRole that this needs, and do nothing else")
	})
	o.cluster = command.NewCluster(cmd)
	cmd.Flags().Lookup("namespace").Usage = "`namespace` to read where you may not read all of them (default from the context)"
	return cmd
}

func (o *snapshotOptions) run(ctx context.Context, streams command.Streams) error {
	if len(o.definitions) > 0 {
		return o.define(streams)
	}
	config, err := o.cluster.Open()
	if err != nil {
		return err
	}
	if err := o.release.Choose(emulation.Cluster{}); err != nil {
		return err
	}
	shown := terminal.NewProgress(streams.Err, command.ReadingCluster, command.ProgressAfter)
	defer shown.End()
	namespace, err := o.cluster.Namespace()
	if err != nil {
		return err
	}
	s, err := clustersnapshot.Take(ctx, config, []string{namespace}, nil, func(done, of int) { shown.Set(command.ReadingKinds(done, of)) })
	shown.End()
	if err != nil {
		return err
	}
	if o.release.Wanted != "" {
		s.Cluster.JudgesAs = "v" + emulation.Effective().EmulationVersion().String()
	}
	if err := o.write(streams, s); err != nil {
		return err
	}
	for _, u := range s.Unread {
		if in := strings.Join(u.Namespaces, ", "); in != "" {
			terminal.Fprintf(streams.Err, "only of namespace %s: %s: %s\n", in, u.Resource, u.Reason)
			continue
		}
		terminal.Fprintf(streams.Err, "left out: %s: %s\n", u.Resource, u.Reason)
	}
	if len(s.Unread) > 0 {
		terminal.Fprintf(streams.Err, "'gatehouse snapshot --rbac' prints a role with the rights to read all of it\n")
	}
	if o.file != "-" {
		terminal.Fprintf(streams.Err, "wrote %s: %s of a cluster of Kubernetes %s\n", o.file, report.Count(len(s.Items), "object"), s.Cluster.KubernetesVersion)
	}
	return nil
}

// define writes a file of the CRDs that the flags name.
func (o *snapshotOptions) define(streams command.Streams) error {
	s, err := clustersnapshot.OfDefinitions(o.definitions)
	if err != nil {
		return command.Usagef("--definitions: %w", err)
	}
	if err := o.write(streams, s); err != nil {
		return err
	}
	if o.file != "-" {
		terminal.Fprintf(streams.Err, "wrote %s: %s\n", o.file, report.Count(len(s.Items), "CustomResourceDefinition"))
	}
	return nil
}

// write writes the file.
func (o *snapshotOptions) write(streams command.Streams, s *clustersnapshot.Cluster) error {
	if o.file != "-" {
		return s.Write(o.file)
	}
	data, err := s.Encode(false)
	if err == nil {
		_, err = terminal.Exact(streams.Out).Write(data)
	}
	return err
}
