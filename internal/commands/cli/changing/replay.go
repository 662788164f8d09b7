package changing

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/client-go/rest"

	"github.com/gatehouse-dev/gatehouse/internal/commands/cli/command"
	"github.com/gatehouse-dev/gatehouse/internal/commands/predict/clustersnapshot"
	"github.com/gatehouse-dev/gatehouse/internal/commands/predict/offline"
	"github.com/gatehouse-dev/gatehouse/internal/commands/predict/replay"
	"github.com/gatehouse-dev/gatehouse/internal/commands/predict/requestlog"
	"github.com/gatehouse-dev/gatehouse/internal/kit/terminal"
	"github.com/gatehouse-dev/gatehouse/internal/readers/manifests"
	"github.com/gatehouse-dev/gatehouse/internal/readers/report"
	"github.com/gatehouse-dev/gatehouse/internal/readers/view"
)

type replayOptions struct {
	judging
	paths       []string
	with        []string
	against     string
	existing    string
	asCreate    bool
	onlyChanges bool
	failOn      string
	output      string
}

// judging has the flags of commands that evaluate requests or objects with temporary servers.
type judging struct {
	cluster          *command.Cluster
	call             bool
	callRate         float64
	serviceAddresses []string
	release          command.Release
	enforcer         command.Enforcer
	log              command.Logging
}

// addFlags adds the flags after the command's own flags. called is the description of --call.
func (j *judging) addFlags(cmd *cobra.Command, called string, output func(*pflag.FlagSet)) {
	command.AddSection(cmd, "Webhooks", func(f *pflag.FlagSet) {
		f.BoolVar(&j.call, "call", false, called)
		f.Float64Var(&j.callRate, "call-rate", 20, "how many calls are made in a second at most, with --call")
		f.StringArrayVar(&j.serviceAddresses, "service-address", nil, "address of a service whose webhook is called, as NAMESPACE/NAME[:PORT]=HOST:PORT; may be repeated")
	})
	command.AddSection(cmd, "Output", output)
	j.cluster = command.NewCluster(cmd)
	cmd.Flags().Lookup("namespace").Hidden = true
}

func (j *judging) complete() error {
	switch {
	case len(j.serviceAddresses) > 0 && !j.call:
		return command.Usagef("--service-address needs --call")
	case j.callRate <= 0:
		return command.Usagef("--call-rate %v: it must be more than 0", j.callRate)
	}
	return nil
}

// progress shows the progress of the command, unless it logs.
func (j *judging) progress(streams command.Streams) *terminal.Progress {
	if j.log.Verbosity < 2 {
		return terminal.NewProgress(streams.Err, "Reading files", command.ProgressAfter)
	}
	return &terminal.Progress{}
}

// how returns the options of the evaluation. what names the evaluated things in the progress.
func (j *judging) how(shown *terminal.Progress, what string) replay.Judging {
	return replay.Judging{Call: j.call, CallsPerSecond: j.callRate, ServiceAddresses: j.serviceAddresses, VersionNote: j.release.Line,
		Progress: func(done, of int) {
			if of == 0 {
				shown.Set(fmt.Sprintf("%d %s", done, what))
				return
			}
			shown.Set(fmt.Sprintf("%d of %d %s", done, of, what))
		}}
}

// failed classifies the error of an evaluation: an object of a file that the server does not accept is a
// mistake of the user.
func failed(err error) error {
	if wrong := (*replay.ObjectError)(nil); errors.As(err, &wrong) {
		return command.UsageError{Err: wrong}
	}
	return err
}

// theCluster is the flag value for the cluster of the kubeconfig.
const theCluster = "cluster"

// NewReplay returns the command gatehouse replay.
func NewReplay(streams command.Streams) *cobra.Command {
	o := &replayOptions{judging: judging{log: command.NewLogging()}}
	cmd := &cobra.Command{
		Use:   "replay [REQUESTS...] --with PATH",
		Short: "List recorded requests that a change decides differently",
		RunE: func(cmd *cobra.Command, args []string) error {
			o.paths = args
			if err := o.complete(); err != nil {
				return err
			}
			return o.run(cmd.Context(), streams)
		},
	}
	command.AddSection(cmd, "Comparison", func(f *pflag.FlagSet) {
		f.StringArrayVar(&o.with, "with", nil, "`path` of the policies and webhooks to try; may be repeated")
		f.StringVar(&o.against, "against", "", "`baseline`: a path, a file of 'gatehouse snapshot', or cluster (default a cluster without policies and webhooks)")
		f.StringVar(&o.existing, "existing", "", "take the objects of a `snapshot` or cluster as requests: updates that change nothing")
		f.BoolVar(&o.asCreate, "as-create", false, "take the objects of --existing as creates")
		o.release.AddFlag(f, "from the baseline or --existing, or this program's")
		o.enforcer.AddFlag(f, "from the baseline or --existing, or kubernetes")
	})
	o.addFlags(cmd, "call the webhooks, with every request that reaches them, twice", func(f *pflag.FlagSet) {
		f.BoolVar(&o.onlyChanges, "only-changes", false, "print differences, and not the summary of the input")
		command.Choose(f, &o.failOn, "fail-on", "", "", "exit with 1 if a request is newly rejected (rejected), has another verdict or object (changed), or differs or may differ in any way (any)",
			string(replay.Rejects), string(replay.ChangesAny), string(replay.DiffersAny))
		command.Choose(f, &o.output, "output", "o", "text", "text, json, html, markdown, or jsonl, with a line for each request that is decided differently", "text", "json", "jsonl", "html", "markdown")
		o.log.AddFlags(f, "verbosity: 2 and more include the logs of the servers")
	})
	return cmd
}

func (o *replayOptions) complete() error {
	switch {
	case len(o.with) == 0:
		return command.Usagef("name the policies and webhooks to try: --with PATH")
	case len(o.paths) == 0 && o.existing == "":
		return command.Usagef("name files with requests, or --existing for the objects of a cluster")
	case len(o.paths) > 0 && o.existing != "":
		return command.Usagef("files with requests and --existing exclude each other")
	case o.asCreate && o.existing == "":
		return command.Usagef("--as-create needs --existing")
	}
	return o.judging.complete()
}

// errNothing is the error of a replay that evaluated no request.
func errNothing(count *requestlog.Count) error {
	why := "there were no requests"
	if len(count.LeftOut) > 0 {
		why = fmt.Sprintf("%s left out, most of them since: %s (%s)", report.Count(count.Left(), "request"), count.LeftOut[0].Reason, count.LeftOut[0].First)
	} else if len(count.Problems) > 0 {
		why = count.Problems[0]
	} else if len(count.Other) > 0 {
		why = "the input had only " + count.Other[0].Reason
	}
	return errors.New("no request could be decided: " + why)
}

func (o *replayOptions) run(ctx context.Context, streams command.Streams) error {
	shown := o.progress(streams)
	defer shown.End()
	with, err := readRegistrations(o.with)
	if err != nil {
		return err
	}
	if err := quietServers(ctx, streams, &o.log); err != nil {
		return err
	}
	shown.Set("Reading the cluster")
	base, err := o.baseline(ctx, with)
	if err != nil {
		return err
	}
	source, err := o.source(base)
	if err != nil {
		return err
	}
	lines := bufio.NewWriter(terminal.Exact(streams.Out))
	options := replay.Options{Judging: o.how(shown, "requests"), Source: source, Baseline: base, With: &replay.Cluster{Snapshot: base.Snapshot, Set: with, Gatehouse: base.Gatehouse}}
	switch o.output {
	case "json":
		options.Examples = math.MaxInt
	case "jsonl":
		encoder := json.NewEncoder(lines)
		// Flush returns the error of this write.
		options.Each = func(j *replay.Judged) { _ = encoder.Encode(j) }
	}
	shown.Set("Reading requests")
	begin := time.Now()
	found, err := replay.Run(ctx, options)
	shown.End()
	if err := cmp.Or(failed(err), lines.Flush()); err != nil {
		return err
	}
	out := streams.Out
	if o.output == "jsonl" {
		// Lines on standard output are for programs, so the report goes to standard error.
		out = streams.Err
	}
	if err := found.Write(out, o.output, !o.onlyChanges); err != nil {
		return err
	}
	if found.Judged == 0 {
		return command.Refuse(streams, errNothing(&found.Input))
	}
	if o.log.Verbosity > 0 {
		terminal.Fprintf(streams.Err, "decided in %s\n", view.Brief(time.Since(begin).Microseconds()))
	}
	if found.Fails(replay.Gate(o.failOn)) {
		return command.ExitStatus(command.ExitError)
	}
	return nil
}

// replayMemory is the memory limit of the Go runtime, in bytes: the heap is collected more often above it. The
// two servers of a replay need half of it.
const replayMemory = 300 << 20

// quietServers limits the memory of temporary servers, and disables their log below verbosity 2.
func quietServers(ctx context.Context, streams command.Streams, l *command.Logging) error {
	// A million requests need no more memory than a thousand.
	command.BoundMemory(streams, replayMemory)
	return l.StartFromTwo(ctx, streams.Err)
}

// readRegistrations reads files with policies and webhooks.
func readRegistrations(paths []string) (*manifests.Set, error) {
	set, err := replay.ReadRegistrations(paths)
	if err != nil {
		return nil, command.UsageError{Err: err}
	}
	return set, nil
}

// baseline reads the webhooks and policies that the requests are compared with, and the params of the policies to try.
func (o *replayOptions) baseline(ctx context.Context, with *manifests.Set) (*replay.Cluster, error) {
	switch {
	case o.against == "":
		return &replay.Cluster{}, nil
	case o.against == theCluster:
		s, _, err := takeSnapshot(ctx, o.cluster, with)
		return &replay.Cluster{Snapshot: s}, err
	}
	if info, err := os.Stat(o.against); err == nil && !info.IsDir() {
		if s, err := clustersnapshot.Read(o.against); err == nil {
			return &replay.Cluster{Snapshot: s}, nil
		}
	}
	set, err := readRegistrations([]string{o.against})
	if err != nil {
		return nil, fmt.Errorf("--against: %w", err)
	}
	return &replay.Cluster{Set: set}, nil
}

// takeSnapshot takes a snapshot of the cluster of the kubeconfig, with the params of the policies to try.
func takeSnapshot(ctx context.Context, c *command.Cluster, tried *manifests.Set) (*clustersnapshot.Cluster, *rest.Config, error) {
	config, err := c.Open()
	if err != nil {
		return nil, nil, err
	}
	s, err := clustersnapshot.Take(ctx, config, nil, tried.Unstructured(), nil)
	if err != nil {
		return nil, nil, fmt.Errorf("reading the cluster: %w", err)
	}
	return s, config, nil
}

// source returns the source of the requests. It selects the emulated release and the enforcing server: from the
// baseline, or from the cluster of the objects (S26.6, S28.11).
func (o *replayOptions) source(base *replay.Cluster) (replay.Source, error) {
	existing := &replay.Existing{AsCreate: o.asCreate}
	of := base.Snapshot
	var err error
	switch o.existing {
	case "":
	case theCluster:
		if existing.Config, err = o.cluster.Open(); err != nil {
			return nil, err
		}
		if of == nil {
			kinds, err := offline.Discover(existing.Config)
			if err != nil {
				return nil, err
			}
			base.Gatehouse = o.enforcer.Gatehouse(nil) || o.enforcer.Wanted == "" && kinds.OfGatehouse()
			return existing, o.release.ChooseFor(existing.Config)
		}
	default:
		if existing.Snapshot, err = clustersnapshot.Read(o.existing); err != nil {
			return nil, command.Usagef("--existing: %w", err)
		}
		of = cmp.Or(of, existing.Snapshot)
	}
	base.Gatehouse = o.enforcer.Gatehouse(of)
	if err := o.release.ChooseOf(of); err != nil {
		return nil, err
	}
	if o.existing == "" {
		return &requestlog.Reader{Paths: o.paths, Known: base.Known()}, nil
	}
	return existing, nil
}
