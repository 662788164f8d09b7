package cli

import (
	"github.com/spf13/cobra"

	"github.com/gatehouse-dev/gatehouse/internal/commands/cli/after"
	"github.com/gatehouse-dev/gatehouse/internal/commands/cli/agentcmd"
	"github.com/gatehouse-dev/gatehouse/internal/commands/cli/before"
	"github.com/gatehouse-dev/gatehouse/internal/commands/cli/changing"
	"github.com/gatehouse-dev/gatehouse/internal/commands/cli/command"
	"github.com/gatehouse-dev/gatehouse/internal/commands/cli/kubectl"
	"github.com/gatehouse-dev/gatehouse/internal/commands/cli/serving"
	"github.com/gatehouse-dev/gatehouse/internal/commands/cli/upkeep"
	"github.com/gatehouse-dev/gatehouse/internal/commands/dev/kustomize"
)

// doors groups the commands by the user's task, in the order of the help.
var doors = []struct {
	title    string
	commands []func(command.Streams) *cobra.Command
}{
	{"Run a server", []func(command.Streams) *cobra.Command{serving.NewServe, kubectl.New, serving.NewWebhook, serving.NewEnvtest}},
	{"Before a write", []func(command.Streams) *cobra.Command{before.NewExplain, before.NewCheck, before.NewLint, before.NewTest, before.NewSnapshot, newDev}},
	{"After a write", []func(command.Streams) *cobra.Command{after.NewTrace, after.NewBlame, after.NewConsole, agentcmd.NewAgent, after.NewInitializers}},
	{"Change admission safely", []func(command.Streams) *cobra.Command{changing.NewRollout, changing.NewAudit, changing.NewRecord, changing.NewReplay, changing.NewWaitInForce}},
	{"Operate a server", []func(command.Streams) *cobra.Command{upkeep.NewBackup, upkeep.NewCluster, upkeep.NewSecretsEncryption, upkeep.NewEtcd, upkeep.NewDebug, upkeep.NewVersion}},
}

func newDev(streams command.Streams) *cobra.Command { return before.NewDev(streams, kustomize.Build) }

func newRoot(streams command.Streams) *cobra.Command {
	var version bool
	root := &cobra.Command{
		Use:   "gatehouse",
		Short: "Dynamic admission control for Kubernetes-style APIs",
		Args:  command.KnownCommand,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if version {
				return command.PrintVersion(streams.Out, command.CurrentVersion(), "text")
			}
			return cmd.Help()
		},
	}
	root.Flags().BoolVar(&version, "version", false, "say what this program was built from")
	if command.IsPlugin() {
		root.Annotations = map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl gatehouse"}
	}
	for _, d := range doors {
		root.AddGroup(&cobra.Group{ID: d.title, Title: d.title})
		for _, command := range d.commands {
			added := command(streams)
			added.GroupID = d.title
			root.AddCommand(added)
		}
	}
	root.SetCompletionCommandGroupID(doors[len(doors)-1].title)
	root.AddCommand(helpTopics()...)
	describe(root, root.Name())
	return root
}
