package before

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/gatehouse-dev/gatehouse/internal/commands/cli/command"
	"github.com/gatehouse-dev/gatehouse/internal/commands/predict/check"
	"github.com/gatehouse-dev/gatehouse/internal/commands/predict/clustersnapshot"
	"github.com/gatehouse-dev/gatehouse/internal/kit/files"
	"github.com/gatehouse-dev/gatehouse/internal/kit/nearest"
	"github.com/gatehouse-dev/gatehouse/internal/kit/terminal"
	"github.com/gatehouse-dev/gatehouse/internal/readers/manifests"
	"github.com/gatehouse-dev/gatehouse/internal/readers/report"
)

type checkOptions struct {
	paths, old             []string
	fromCluster, snapshot  string
	serviceRange           string
	as                     string
	asGroups               []string
	namespace              string
	serverSide, call, diff bool
	expand                 bool
	serviceAddresses       []string
	configFile             string
	release                command.Release
	enforcer               command.Enforcer
	output                 command.ReportFormat
	log                    command.Logging
	namespaceStrict        bool
	config                 string
	exclude, skip          []string
	missingDefinitions     string
	allowUnseen            []string
	accepted               []report.Acceptance
	acceptedBy             string
	ignore, ignoreOld      *manifests.Ignore
	rbac                   bool
	definitions            command.Definitions
}

// NewCheck returns the command gatehouse check.
func NewCheck(streams command.Streams) *cobra.Command {
	o := &checkOptions{log: command.NewLogging()}
	cmd := &cobra.Command{
		Use:   "check PATH...",
		Short: "Check whether a cluster would accept your manifests",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 && !o.rbac {
				return command.Usagef("name a file or a directory, or - for standard input")
			}
			o.paths = args
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.rbac {
				return printSnapshotRBAC(streams.Out)
			}
			o.namespaceStrict = cmd.Flags().Changed("namespace")
			if err := o.configure(cmd); err != nil {
				return err
			}
			if err := o.complete(); err != nil {
				return err
			}
			return o.run(cmd.Context(), streams)
		},
	}
	command.AddSection(cmd, "Checked objects", func(f *pflag.FlagSet) {
		f.StringArrayVar(&o.old, "old", nil, "`path` of the version before, a file or a directory; may be repeated. Differences are checked as updates and deletions")
		f.StringSliceVar(&o.exclude, "exclude", nil, "`pattern` of files not to read, as in a .gitignore; may be repeated. "+manifests.IgnoreFile+" files have more")
		f.StringSliceVar(&o.skip, "skip", nil, "`kind` of objects not to check, as KIND or GROUP/KIND; may be repeated")
		f.StringVar(&o.missingDefinitions, "missing-definitions", string(check.MissingIsError), "treatment of objects of an unknown kind: error, warn or skip")
		o.definitions.AddFlag(f)
		command.AddConfigFlag(f, &o.config)
	})
	command.AddSection(cmd, "Cluster", func(f *pflag.FlagSet) {
		f.StringVar(&o.fromCluster, "from-cluster", "", "`kubeconfig` of a cluster to check against; it is only read")
		f.StringVar(&o.snapshot, "snapshot", "", "`file` of 'gatehouse snapshot' to check against")
		f.BoolVar(&o.rbac, "rbac", false, "print the ClusterRole that --from-cluster needs, and do nothing else")
		o.release.AddFlag(f, "from the cluster or snapshot, or this program's")
		o.enforcer.AddFlag(f, "from the cluster or snapshot, or kubernetes")
		f.StringVar(&o.serviceRange, "service-cluster-ip-range", "", "`range` of the cluster IPs of services, such as 10.43.0.0/16 (default from the cluster or snapshot; without a range, services may request any address)")
		f.StringSliceVar(&o.allowUnseen, "allow-unseen", nil, "`resource` of the cluster that need not be read, as PLURAL or PLURAL.GROUP; may be repeated; without a value all. Unread objects are an error if they could change a verdict")
		f.Lookup("allow-unseen").NoOptDefVal = check.EverythingUnseen
	})
	command.AddSection(cmd, "Applying", func(f *pflag.FlagSet) {
		f.StringVarP(&o.namespace, "namespace", "n", "default", "namespace of objects that name none; objects that name another one are then errors")
		f.StringVar(&o.as, "as", "", "`user` who applies the objects, with the rights that the roles give (default an administrator)")
		f.StringSliceVar(&o.asGroups, "as-group", nil, "`group` of that user; may be repeated")
		f.BoolVar(&o.expand, "expand", true, "also check the pods, and what else controllers create for workloads")
		f.BoolVar(&o.serverSide, "server-side", false, "apply as kubectl apply --server-side does")
	})
	command.AddSection(cmd, "Webhooks", func(f *pflag.FlagSet) {
		f.BoolVar(&o.call, "call", false, "call the webhooks that are registered")
		f.StringArrayVar(&o.serviceAddresses, "service-address", nil, "address of a service whose webhook is called, as NAMESPACE/NAME[:PORT]=HOST:PORT; may be repeated")
		f.StringVar(&o.configFile, "admission-control-config-file", "", "`file` with the configuration of the API server's plugins, whose manifest files are enforced, too")
	})
	command.AddSection(cmd, "Output", func(f *pflag.FlagSet) {
		f.BoolVar(&o.diff, "diff", false, "show the changes that the server makes to each object; never the values of secrets")
		o.output.AddFlag(f)
		o.log.AddFlags(f, "verbosity: 1 lists skipped objects; 2 and more include the log of the server")
	})
	command.Completes(cmd, "missing-definitions", command.Values(string(check.MissingIsError), string(check.MissingIsWarning), string(check.MissingIsSkipped)))
	return cmd
}

// configure sets each option without a flag from the configuration file.
func (o *checkOptions) configure(cmd *cobra.Command) error {
	c, err := command.ReadConfiguration(cmd, o.config)
	if err != nil {
		return err
	}
	command.Fallback(cmd, "exclude", &o.exclude, slices.Concat(c.Exclude, c.Check.Exclude))
	command.Fallback(cmd, "skip", &o.skip, c.Check.Skip)
	command.Fallback(cmd, "missing-definitions", &o.missingDefinitions, c.Check.MissingDefinitions)
	if o.fromCluster == "" && c.Check.Snapshot != "" && !cmd.Flags().Changed("snapshot") {
		o.snapshot = c.Below(c.Check.Snapshot)
		if err := files.CheckFound(o.snapshot, filepath.Dir(c.File)); errors.As(err, new(files.Refused)) {
			return command.Usagef("%s: check.snapshot: %w", c.File, files.Plain(err))
		}
	}
	command.Fallback(cmd, "for", &o.enforcer.Wanted, c.For)
	command.Fallback(cmd, "allow-unseen", &o.allowUnseen, c.Check.AllowUnseen)
	command.Fallback(cmd, "namespace", &o.namespace, c.Check.Namespace)
	o.namespaceStrict = o.namespaceStrict || c.Check.Namespace != ""
	command.Fallback(cmd, "as", &o.as, c.Check.As)
	if !cmd.Flags().Changed("as") {
		command.Fallback(cmd, "as-group", &o.asGroups, c.Check.AsGroups)
	}
	command.Fallback(cmd, "server-side", &o.serverSide, c.Check.ServerSide)
	o.accepted, o.acceptedBy = c.Check.Accept, c.File
	for i, a := range o.accepted {
		if check.FindRule(a.Rule) == nil {
			var names []string
			for _, r := range check.Rules() {
				names = append(names, r.ID)
			}
			return command.Usagef("%s: check.accept[%d].rule: there is no rule %q%s", c.File, i, a.Rule, nearest.Suggestion("", a.Rule, names))
		}
	}
	return nil
}

// complete validates the options.
func (o *checkOptions) complete() error {
	if err := o.enforcer.Complete(); err != nil {
		return err
	}
	if err := command.OneOf("missing-definitions", o.missingDefinitions, string(check.MissingIsError), string(check.MissingIsWarning), string(check.MissingIsSkipped)); err != nil {
		return err
	}
	var err error
	if o.ignore, err = manifests.NewIgnore(o.exclude); err != nil {
		return command.Usagef("--exclude: %w", err)
	}
	if o.ignoreOld, err = manifests.NewIgnore(o.exclude); err != nil {
		return command.Usagef("--exclude: %w", err)
	}
	switch {
	case slices.Contains(o.old, manifests.Stdin):
		return command.Usagef("--old needs a file or a directory")
	case o.fromCluster != "" && o.snapshot != "":
		return command.Usagef("--from-cluster and --snapshot exclude each other")
	case len(o.asGroups) > 0 && o.as == "":
		return command.Usagef("--as-group needs --as")
	case len(o.serviceAddresses) > 0 && !o.call:
		return command.Usagef("--service-address needs --call")
	case o.namespace == "":
		return command.Usagef("--namespace must not be empty")
	case o.diff && !slices.Contains([]string{"text", "json", "html"}, o.output.Name):
		return command.Usagef("--diff needs --output text, json or html: %s has no place for it", o.output.Name)
	}
	if i := slices.Index(o.paths, manifests.Stdin); i >= 0 && slices.Contains(o.paths[i+1:], manifests.Stdin) {
		return command.Usagef("standard input can be read once only")
	}
	return nil
}

// errRejected is the error of a check that found errors.
type errRejected struct{ errors int }

func (e errRejected) Error() string { return report.Count(e.errors, "error") }

func (o *checkOptions) run(ctx context.Context, streams command.Streams) error {
	shown := &terminal.Progress{}
	if o.log.Verbosity < 2 {
		// The logs show the progress in more detail.
		shown = terminal.NewProgress(streams.Err, "Reading files", command.ProgressAfter)
	}
	defer shown.End()
	set, err := manifests.ReadBut(o.ignore, o.paths, command.Input(ctx, streams.In))
	if err != nil {
		return command.UsageError{Err: err}
	}
	var old *manifests.Set
	if len(o.old) > 0 {
		if old, err = manifests.ReadBut(o.ignoreOld, o.old, nil); err != nil {
			return command.Usagef("--old: %w", err)
		}
	}
	if len(set.Objects) == 0 && len(set.Problems) == 0 && (old == nil || len(old.Objects) == 0) {
		message := "no Kubernetes objects were found"
		if len(set.Notes) > 0 {
			message += ": " + report.Place(set.Notes[0].File, set.Notes[0].Line, 0) + ": " + set.Notes[0].Message
		}
		return command.UsageError{Err: errors.New(message)}
	}
	command.BoundMemory(streams, checkMemory+max(0, int64(len(set.Objects))-manyObjects)*objectMemory)
	options := check.Options{
		Set: set, Old: old, Namespace: o.namespace, NamespaceEnforced: o.namespaceStrict, As: o.as, Groups: o.asGroups,
		ServerSide: o.serverSide, Call: o.call, ServiceAddresses: o.serviceAddresses, AdmissionConfigFile: o.configFile, Diff: o.diff, Expand: o.expand,
		AllowUnseen: o.allowUnseen, ServiceRange: o.serviceRange, Skip: o.skip, MissingDefinitions: check.MissingDefinitions(o.missingDefinitions), Accepted: o.accepted, AcceptedBy: o.acceptedBy,
	}
	shown.Set(command.ReadingCluster)
	if options.Snapshot, err = o.cluster(ctx, set, old, shown); err != nil {
		return err
	}
	options.Gatehouse = o.enforcer.Gatehouse(options.Snapshot)
	if err := o.log.StartFromTwo(ctx, streams.Err); err != nil {
		return err
	}
	if err := o.release.ChooseOf(options.Snapshot); err != nil {
		return err
	}
	options.VersionNote, options.Fields = o.release.Line, o.release.Fields(options.Snapshot)
	if options.Definitions, err = o.definitions.Open(); err != nil {
		return err
	}
	shown.Set("Starting a server")
	options.Progress = func(what string, done, of int) { shown.Set(fmt.Sprintf("%s %d of %d objects", what, done, of)) }
	found, err := check.Run(ctx, options)
	shown.End()
	if err != nil {
		return err
	}
	if err := o.print(streams.Out, found); err != nil {
		return err
	}
	if found.Summary.Errors > 0 {
		return errRejected{found.Summary.Errors}
	}
	return nil
}

// checkMemory is the memory limit of the Go runtime, in bytes: the heap is collected more often above it. It
// holds the server and manyObjects objects of usual size. Each further object adds objectMemory.
const (
	checkMemory  = 256 << 20
	manyObjects  = 5_000
	objectMemory = 12 << 10
)

// namespaces returns the default namespace and the namespaces of the objects.
func (o *checkOptions) namespaces(objects []*unstructured.Unstructured) []string {
	list := []string{o.namespace}
	for _, u := range objects {
		if name := u.GetNamespace(); name != "" && !slices.Contains(list, name) {
			list = append(list, name)
		}
	}
	return list
}

// cluster reads the cluster or the snapshot that the objects are checked against. It returns nil without one.
func (o *checkOptions) cluster(ctx context.Context, set, old *manifests.Set, shown *terminal.Progress) (*clustersnapshot.Cluster, error) {
	switch {
	case o.snapshot != "":
		s, err := clustersnapshot.Read(o.snapshot)
		if err != nil {
			return nil, command.UsageError{Err: err}
		}
		return s, nil
	case o.fromCluster != "":
		if err := command.Readable(o.fromCluster, ""); err != nil {
			return nil, command.Usagef("--from-cluster: %w", err)
		}
		config, err := clientcmd.BuildConfigFromFlags("", o.fromCluster)
		if err != nil {
			return nil, command.Usagef("--from-cluster: %w", err)
		}
		config.QPS = -1
		config.WarningHandler = rest.NoWarnings{}
		written := slices.Concat(old.Unstructured(), set.Unstructured())
		s, err := clustersnapshot.Take(ctx, config, o.namespaces(written), written, func(done, of int) { shown.Set(command.ReadingKinds(done, of)) })
		if err != nil {
			return nil, fmt.Errorf("reading the cluster: %w", err)
		}
		return s, nil
	}
	return nil, nil
}
