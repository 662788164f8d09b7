package changing

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/gatehouse-dev/gatehouse/internal/commands/cli/command"
	"github.com/gatehouse-dev/gatehouse/internal/commands/predict/recorder"
	"github.com/gatehouse-dev/gatehouse/internal/kit/temporary"
	"github.com/gatehouse-dev/gatehouse/internal/kit/terminal"
	"github.com/gatehouse-dev/gatehouse/internal/readers/report"
)

type recordOptions struct {
	cluster *command.Cluster
	recorder.Options
	redact   []string
	duration time.Duration
	log      command.Logging
	// guard is the webhook configuration that this process removes after the recorder ends.
	guard string
}

// NewRecord returns the command gatehouse record.
func NewRecord(streams command.Streams) *cobra.Command {
	o := &recordOptions{log: command.NewLogging()}
	cmd := &cobra.Command{
		Use:   "record",
		Short: "Record the requests to a cluster, for 'gatehouse replay'",
		Args:  command.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.complete(); err != nil {
				return err
			}
			return o.run(cmd.Context(), streams)
		},
	}
	command.AddSection(cmd, "Requests", func(f *pflag.FlagSet) {
		f.StringSliceVar(&o.Resources, "resources", nil, "`resources` to record, as RESOURCE[/SUBRESOURCE] or RESOURCE.GROUP (default all but events and leases)")
		f.StringSliceVar(&o.Namespaces, "namespaces", nil, "`namespaces` to record, and nothing outside of namespaces (default all)")
		f.StringSliceVar(&o.ExcludeNamespaces, "exclude-namespaces", []string{"kube-system", "kube-node-lease"}, "`namespaces` that are not recorded, without --namespaces")
		f.BoolVar(&o.Untimed, "untimed", false, "record deletions, connections and subresources, too, which show no time")
		f.StringArrayVar(&o.redact, "redact", nil, "`field` whose value is not recorded, as [RESOURCE:]FIELD.FIELD, with * for any field and ** for any depth; may be repeated")
	})
	command.AddSection(cmd, "Files", func(f *pflag.FlagSet) {
		f.StringVarP(&o.Dir, "output", "o", "requests", "`directory` for the files")
		f.BoolVar(&o.Compress, "gzip", false, "compress the files")
		f.Var(command.NewByteCount(&o.MaxSize, 100<<20), "max-size", "size of a file from which on the next one is begun, such as 50Mi")
		f.IntVar(&o.MaxFiles, "max-files", 10, "how many files are kept in the directory; the oldest go first")
		f.DurationVar(&o.duration, "duration", 0, "end after this time (default with Ctrl-C)")
	})
	command.AddSection(cmd, "Serving", func(f *pflag.FlagSet) {
		f.StringVar(&o.BindAddress, "bind-address", "127.0.0.1", "IP address to listen on")
		f.IntVar(&o.Port, "secure-port", 0, "port to listen on; 0 means any free port")
		f.StringVar(&o.Service, "service", "", "service in front of this command, as NAMESPACE/NAME; it must have port 443")
		f.StringVar(&o.URL, "url", "", "URL at which the cluster reaches this command (default from --bind-address and --secure-port)")
	})
	command.AddSection(cmd, "Log", func(f *pflag.FlagSet) {
		o.log.AddFlags(f, "log verbosity: 0 logs warnings and errors; higher numbers log more")
	})
	o.cluster = command.NewCluster(cmd)
	cmd.Flags().Lookup("namespace").Hidden = true
	cmd.Flags().StringVar(&o.guard, guardFlag, "", "")
	cmd.Flags().Lookup(guardFlag).Hidden = true
	return cmd
}

// guardFlag makes a process the guard of a recorder.
const guardFlag = "guard"

// minFileSize and minFiles are the smallest values that rotation accepts.
const (
	minFileSize = 64 << 10
	minFiles    = 2
)

func (o *recordOptions) complete() error {
	if o.guard != "" {
		return nil
	}
	for _, text := range o.redact {
		r, err := recorder.ParseRedaction(text)
		if err != nil {
			return command.Usagef("--redact %w", err)
		}
		o.Redactions = append(o.Redactions, r)
	}
	switch {
	case o.Dir == "":
		return command.Usagef("--output must name a directory")
	case o.MaxSize < minFileSize:
		return command.Usagef("--max-size %s: it must be at least 64Ki", command.NewByteCount(&o.MaxSize, o.MaxSize))
	case o.MaxFiles < minFiles:
		return command.Usagef("--max-files %d: it must be at least %d", o.MaxFiles, minFiles)
	case o.duration < 0:
		return command.Usagef("--duration %s: it must not be negative", o.duration)
	}
	return nil
}

func (o *recordOptions) run(ctx context.Context, streams command.Streams) error {
	if o.guard != "" {
		return o.cluster.AwaitOwner(streams, "the recorder ended without removing its registration; it was removed", func(ctx context.Context, config *rest.Config) error {
			return recorder.Remove(ctx, config, o.guard, temporary.GuardSettled)
		})
	}
	if err := o.log.Start(ctx, o.log.Writer(streams.Err)); err != nil {
		return err
	}
	var err error
	if o.Cluster, err = o.cluster.Open(); err != nil {
		return err
	}
	if err := o.resolve(); err != nil {
		return err
	}
	o.Name = recorder.NewName()
	r, err := recorder.New(o.Options)
	if err != nil {
		return err
	}
	defer r.Close()
	released, err := temporary.Post(append([]string{"record", "--" + guardFlag + "=" + o.Name}, o.cluster.Arguments()...)...)
	if err != nil {
		return err
	}
	if o.duration > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, o.duration)
		defer cancel()
	}
	err = r.Run(ctx, func(notes []string) {
		for _, note := range notes {
			terminal.Fprintf(streams.Err, "gatehouse: %s\n", terminal.Indented(note, "  "))
		}
		terminal.Fprintf(streams.Out, "gatehouse records into %s\n", o.Dir)
	})
	if !r.Registered() {
		// Unless released, the guard tries to remove the configuration too.
		released()
	}
	counts := r.Counts()
	if counts.Written > 0 || err == nil {
		terminal.Fprintf(streams.Out, "%s recorded\n", report.Count(int(counts.Written), "request"))
	}
	if counts.Lost > 0 {
		terminal.Fprintf(streams.Err, "gatehouse: %s not recorded: there were too many at a time\n", report.Count(int(counts.Lost), "request"))
	}
	if counts.Unreadable > 0 {
		terminal.Fprintf(streams.Err, "gatehouse: %s not recorded: not readable\n", report.Count(int(counts.Unreadable), "request"))
	}
	return err
}

// resolve discovers the groups of the selected resources.
func (o *recordOptions) resolve() error {
	var mapper meta.RESTMapper
	for i, name := range o.Resources {
		if name == "" || strings.HasPrefix(name, "*") {
			continue
		}
		if mapper == nil {
			var err error
			if mapper, err = o.cluster.Flags.Mapper(); err != nil {
				return err
			}
		}
		base, sub, _ := strings.Cut(name, "/")
		// The group may come before or after the subresource.
		sub, group, _ := strings.Cut(sub, ".")
		asked := schema.ParseGroupResource(base)
		asked.Group = cmp.Or(asked.Group, group)
		found, err := mapper.ResourceFor(asked.WithVersion(""))
		if meta.IsNoMatchError(err) {
			return command.Usagef("--resources: the cluster has no resource %q", base)
		}
		if err != nil {
			return fmt.Errorf("--resources: %w", err)
		}
		if sub != "" {
			found.Resource += "/" + sub
		}
		o.Resources[i] = found.GroupResource().String()
	}
	return nil
}
