package upkeep

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/client-go/rest"

	"github.com/gatehouse-dev/gatehouse/internal/commands/cli/command"
	"github.com/gatehouse-dev/gatehouse/internal/kit/bundle"
	"github.com/gatehouse-dev/gatehouse/internal/kit/terminal"
	"github.com/gatehouse-dev/gatehouse/internal/readers/report"
)

// NewDebug returns the command gatehouse debug.
func NewDebug(streams command.Streams) *cobra.Command {
	return interruptible(command.Group(&cobra.Command{
		Use:   "debug",
		Short: "Look inside a server",
	}, newDebugBundle(streams)))
}

type bundleOptions struct {
	cluster *command.Cluster
	file    string
	logs    []string
	cpu     time.Duration
	timeout time.Duration
}

func newDebugBundle(streams command.Streams) *cobra.Command {
	o := &bundleOptions{}
	cmd := &cobra.Command{
		Use:   "bundle",
		Short: "Gather the data for a bug report in one file",
		Args:  command.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return o.run(cmd.Context(), streams) },
	}
	command.AddSection(cmd, "What to gather", func(f *pflag.FlagSet) {
		f.StringVarP(&o.file, "file", "f", "", "`file` to write (default gatehouse-debug-TIME.tar.gz)")
		f.StringArrayVar(&o.logs, "log", nil, "`file` with more of the log, of which the end is taken; may be repeated")
		f.DurationVar(&o.cpu, "cpu", 5*time.Second, "how long the CPU profile is; 0 takes none")
		f.DurationVar(&o.timeout, "timeout", 2*time.Minute, "time for everything")
	})
	o.cluster = command.NewCluster(cmd)
	return cmd
}

// maxCPUProfile limits --cpu: the server ends a longer request.
const maxCPUProfile = 50 * time.Second

func (o *bundleOptions) run(ctx context.Context, streams command.Streams) error {
	if o.cpu < 0 || o.cpu > maxCPUProfile {
		return command.Usagef("--cpu %s must be between 0 and %s", o.cpu, maxCPUProfile)
	}
	if o.timeout <= 0 {
		return command.Usagef("--timeout %s must be more than 0", o.timeout)
	}
	config, err := o.cluster.Open()
	if err != nil {
		return err
	}
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return fmt.Errorf("kubeconfig: %w", err)
	}
	if o.file == "" {
		o.file = "gatehouse-debug-" + time.Now().UTC().Format("20060102-150405") + ".tar.gz"
	}
	ctx, cancel := context.WithTimeout(ctx, o.timeout)
	defer cancel()
	version, err := command.Marshal(command.CurrentVersion(), "yaml")
	if err != nil {
		return err
	}
	file, err := os.OpenFile(o.file, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if errors.Is(err, os.ErrExist) {
		return fmt.Errorf("%s exists already: name another file with --file", o.file)
	}
	if err != nil {
		return err
	}
	contents, err := bundle.Write(ctx, file, bundle.Options{
		Server: config.Host, Client: client, CPU: o.cpu, Logs: o.logs, Version: version,
	})
	if err = errors.Join(err, file.Close()); err == nil && len(contents.Read) == 0 {
		err = fmt.Errorf("nothing could be read: %w", contents.Missing[0].Err)
	}
	if err != nil {
		return errors.Join(err, os.Remove(o.file))
	}
	for _, m := range contents.Missing {
		terminal.Fprintf(streams.Err, "left out %s: %s\n", m.Name, m.Err)
	}
	terminal.Fprintf(streams.Out, "%s has %s\n", o.file, report.Count(len(contents.Read), "part"))
	return nil
}
