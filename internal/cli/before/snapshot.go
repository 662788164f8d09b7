package before

import (
	"context"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/gatehouse-dev/gatehouse/internal/cli/command"
	"github.com/gatehouse-dev/gatehouse/internal/emulation"
	"github.com/gatehouse-dev/gatehouse/internal/predict/clustersnapshot"
	"github.com/gatehouse-dev/gatehouse/internal/report"
	"github.com/gatehouse-dev/gatehouse/internal/terminal"
)

type snapshotOptions struct {
	cluster *command.Cluster
	file    string
	release command.Release
}

// NewSnapshot returns the command gatehouse snapshot.
func NewSnapshot(streams command.Streams) *cobra.Command {
	o := &snapshotOptions{}
	cmd := &cobra.Command{
		Use:   "snapshot -o FILE",
		Short: "Save what a cluster judges objects by, for check",
		Long: `Save what a cluster judges objects by, so that 'gatehouse check --snapshot'
needs no access to it: custom resource definitions, namespaces, webhook
configurations, admission policies with their bindings and params, quotas, limit
ranges, classes, service accounts, roles, and which kinds the cluster serves.

The command only lists, in any cluster. It reads no secrets and no workloads.
What you may not list is left out, and the command says so. The same cluster
state gives the same file. The file has the roles of the cluster: keep it as you
keep those.`,
		Example: `  # the cluster of the current context
  gatehouse snapshot -o cluster.yaml

  # another one, to standard output
  gatehouse snapshot --kubeconfig prod.kubeconfig -o -`,
		Args: command.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.file == "" {
				return command.Usagef("name the file to write: -o FILE, or -o - for standard output")
			}
			return o.run(cmd.Context(), streams)
		},
	}
	command.AddSection(cmd, "Output", func(f *pflag.FlagSet) {
		o.release.AddFlag(f, "that of the cluster")
		f.StringVarP(&o.file, "output", "o", "", "`file` to write: JSON if its name ends in .json, else YAML; - is standard output")
	})
	o.cluster = command.NewCluster(cmd)
	// A snapshot is of all namespaces.
	if err := cmd.Flags().MarkHidden("namespace"); err != nil {
		panic(err)
	}
	return cmd
}

func (o *snapshotOptions) run(ctx context.Context, streams command.Streams) error {
	config, err := o.cluster.Open()
	if err != nil {
		return err
	}
	if err := o.release.Choose(emulation.Cluster{}); err != nil {
		return err
	}
	shown := terminal.NewProgress(streams.Err, command.ReadingCluster, command.ProgressAfter)
	defer shown.End()
	s, err := clustersnapshot.Take(ctx, config, func(done, of int) { shown.Set(command.ReadingKinds(done, of)) })
	shown.End()
	if err != nil {
		return err
	}
	if o.release.Wanted != "" {
		s.Cluster.JudgesAs = "v" + emulation.Effective().EmulationVersion().String()
	}
	if o.file == "-" {
		data, err := s.Encode(false)
		if err == nil {
			_, err = terminal.Exact(streams.Out).Write(data)
		}
		if err != nil {
			return err
		}
	} else if err := s.Write(o.file); err != nil {
		return err
	}
	for _, u := range s.Unread {
		terminal.Fprintf(streams.Err, "left out: %s: %s\n", u.Resource, u.Reason)
	}
	if o.file != "-" {
		terminal.Fprintf(streams.Err, "wrote %s: %s of a cluster of Kubernetes %s\n", o.file, report.Count(len(s.Items), "object"), s.Cluster.KubernetesVersion)
	}
	return nil
}
