package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/gatehouse-dev/gatehouse/internal/predict/clustersnapshot"
	"github.com/gatehouse-dev/gatehouse/internal/predict/replay"
	"github.com/gatehouse-dev/gatehouse/internal/sarif"
	"github.com/gatehouse-dev/gatehouse/internal/terminal"
)

type auditOptions struct {
	cluster          *cluster
	paths            []string
	snapshot         string
	asCreate         bool
	call             bool
	callRate         float64
	serviceAddresses []string
	release          kubernetesRelease
	enforcer         enforcer
	output           string
	log              logging
}

func newAudit(streams Streams) *cobra.Command {
	return newAuditCommand(func(ctx context.Context, o *auditOptions) error { return o.run(ctx, streams) })
}

func newAuditCommand(run func(context.Context, *auditOptions) error) *cobra.Command {
	o := &auditOptions{log: newLogging()}
	cmd := &cobra.Command{
		Use:   "audit PATH...",
		Short: "Say which objects of a cluster policies would reject or change",
		Long: `Judge the objects that there are in a cluster by the policies and webhooks of
files: which of them would be rejected, get a warning, or be changed, if
somebody wrote them again.

The command lists objects, in any cluster, and writes nothing. It reads no
secrets and no events. Each object is an update that changes nothing, or a
create with --as-create. What else is registered in the cluster does not judge.
No webhook is called without --call: the command counts the objects that would
reach one.

It exits with 1 if a policy would reject an object, and with 2 if nothing was
judged.`,
		Example: `  # what would a new policy reject of what is there
  gatehouse audit policies/

  # reports that Policy Reporter shows
  gatehouse audit policies/ -o policyreport | kubectl apply --server-side -f -

  # the objects of a file of 'gatehouse snapshot'
  gatehouse audit policies/ --snapshot cluster.yaml -o sarif > audit.sarif`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usageError{errors.New("name files or directories with policies and webhooks")}
			}
			o.paths = args
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.complete(); err != nil {
				return err
			}
			return run(cmd.Context(), o)
		},
	}
	addSection(cmd, "Objects", func(f *pflag.FlagSet) {
		f.SortFlags = false
		f.StringVar(&o.snapshot, "snapshot", "", "`file` of 'gatehouse snapshot' whose objects are judged, in place of a cluster")
		f.BoolVar(&o.asCreate, "as-create", false, "judge each object as a create")
		o.release.addFlag(f, "that of the cluster or snapshot")
		o.enforcer.addFlag(f, "that of the cluster or snapshot")
	})
	addSection(cmd, "Webhooks", func(f *pflag.FlagSet) {
		f.SortFlags = false
		f.BoolVar(&o.call, "call", false, "call the webhooks of the files, with every object that reaches them")
		f.Float64Var(&o.callRate, "call-rate", 20, "how many calls are made in a second at most, with --call")
		f.StringArrayVar(&o.serviceAddresses, "service-address", nil, "address of a service whose webhook is called, as NAMESPACE/NAME[:PORT]=HOST:PORT; may be repeated")
	})
	addSection(cmd, "Output", func(f *pflag.FlagSet) {
		f.SortFlags = false
		f.StringVarP(&o.output, "output", "o", "text", "text, json, sarif or policyreport (wgpolicyk8s.io/v1alpha2)")
		o.log.addFlags(f, "verbosity: 2 and more also log what the server does")
	})
	o.cluster = newCluster(cmd)
	if err := cmd.Flags().MarkHidden("namespace"); err != nil {
		panic(err)
	}
	completes(cmd, "for", values(forGatehouse, forKubernetes))
	completes(cmd, "output", values("text", "json", "sarif", "policyreport"))
	return cmd
}

func (o *auditOptions) complete() error {
	if err := oneOf("output", o.output, "text", "json", "sarif", "policyreport"); err != nil {
		return err
	}
	if err := o.enforcer.complete(); err != nil {
		return err
	}
	switch {
	case len(o.serviceAddresses) > 0 && !o.call:
		return usageError{errors.New("--service-address needs --call")}
	case o.callRate <= 0:
		return usageError{fmt.Errorf("--call-rate %v: it must be more than 0", o.callRate)}
	}
	return nil
}

func (o *auditOptions) run(ctx context.Context, streams Streams) error {
	shown := &terminal.Progress{}
	if o.log.verbosity < 2 {
		shown = terminal.NewProgress(streams.Err, "Reading files", progressAfter)
	}
	defer shown.End()
	policies, err := readRegistrations(o.paths)
	if err != nil {
		return err
	}
	options := replay.AuditOptions{Policies: policies, Call: o.call, CallsPerSecond: o.callRate, ServiceAddresses: o.serviceAddresses,
		Progress: func(done, of int) { shown.Set(fmt.Sprintf("%d of %d objects", done, of)) }}
	existing := &replay.Existing{AsCreate: o.asCreate}
	shown.Set("Reading the cluster")
	if o.snapshot != "" {
		if existing.Snapshot, err = clustersnapshot.Read(o.snapshot); err != nil {
			return usageError{err}
		}
		options.Snapshot = existing.Snapshot
	} else if options.Snapshot, existing.Config, err = takeSnapshot(ctx, o.cluster); err != nil {
		return err
	}
	options.Source = existing
	if err := quietServers(ctx, streams, &o.log); err != nil {
		return err
	}
	if err := o.release.chooseOf(options.Snapshot); err != nil {
		return err
	}
	options.VersionNote, options.Gatehouse = o.release.line, o.enforcer.gatehouse(options.Snapshot)
	report, err := replay.Audit(ctx, options)
	shown.End()
	if wrong := (*replay.ObjectError)(nil); errors.As(err, &wrong) {
		return usageError{wrong}
	}
	if err != nil {
		return err
	}
	if err := o.print(streams.Out, report); err != nil {
		return err
	}
	if report.Judged == 0 {
		terminal.Fprintf(streams.Err, "gatehouse: %s\n", terminal.Indented(errNothing(&report.Input).Error(), "  "))
		return exitStatus(exitUsage)
	}
	if slices.ContainsFunc(report.Findings, func(f *replay.AuditFinding) bool { return f.Result == replay.Fails }) {
		return exitStatus(exitError)
	}
	return nil
}

func (o *auditOptions) print(out io.Writer, r *replay.AuditReport) error {
	switch o.output {
	case "json":
		data, err := json.MarshalIndent(r, "", "    ")
		if err != nil {
			return err
		}
		_, err = terminal.Exact(out).Write(append(data, '\n'))
		return err
	case "policyreport":
		return r.PolicyReports(terminal.Exact(out))
	case "sarif":
		return printAuditSARIF(terminal.Exact(out), r)
	}
	var b strings.Builder
	o.release.print(&b)
	for _, f := range r.Findings {
		terminal.Fprintf(&b, "%s %s: %s: %s\n", f.Result, f.Title(), f.Policy, terminal.Indented(f.Message, "  "))
	}
	if r.More > 0 {
		terminal.Fprintf(&b, "%s more\n", counted(r.More, "finding"))
	}
	for _, w := range r.Webhooks {
		terminal.Fprintf(&b, "not called: %s, for %s\n", w.Name, counted(w.Count, "object"))
	}
	printCount(&b, &r.Input)
	for _, note := range r.Notes {
		terminal.Fprintf(&b, "note: %s\n", terminal.Indented(note, "  "))
	}
	terminal.Fprintf(&b, "%s judged, %d without a finding; by Kubernetes %s\n", counted(r.Judged, "object"), r.Passed, r.KubernetesVersion)
	_, err := io.WriteString(out, b.String())
	return err
}

// auditLevels are the results as SARIF names them.
var auditLevels = map[replay.Result]sarif.Level{replay.Fails: sarif.Error, replay.Warns: sarif.Warning, replay.Errs: sarif.Warning, replay.ChangesIt: sarif.Note}

// printAuditSARIF writes each finding at the policy: objects of a cluster are in no file.
func printAuditSARIF(out io.Writer, r *replay.AuditReport) error {
	run := &sarif.Run{Tool: "gatehouse audit", URI: "https://github.com/gatehouse-dev/gatehouse", Notes: versionAnd(r.VersionNote, slices.Clone(r.Notes))}
	known := map[string]bool{}
	for i, f := range r.Findings {
		if i >= sarif.MaxResults {
			run.Notes = append(run.Notes, fmt.Sprintf("%d findings are left out", len(r.Findings)-i))
			break
		}
		if !known[f.Policy] {
			known[f.Policy] = true
			run.Rules = append(run.Rules, sarif.Rule{ID: f.Policy, Level: sarif.Error, Title: "Judged by " + f.Policy + "."})
		}
		run.Findings = append(run.Findings, sarif.Finding{Rule: f.Policy, Level: auditLevels[f.Result], Message: f.Title() + ": " + f.Message, File: f.File, Line: f.Line, Object: f.Title()})
	}
	return sarif.Write(out, run)
}
