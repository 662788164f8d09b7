package changing

import (
	"context"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/gatehouse-dev/gatehouse/internal/commands/cli/command"
	"github.com/gatehouse-dev/gatehouse/internal/commands/predict/auditreport"
	"github.com/gatehouse-dev/gatehouse/internal/commands/predict/clustersnapshot"
	"github.com/gatehouse-dev/gatehouse/internal/commands/predict/replay"
	"github.com/gatehouse-dev/gatehouse/internal/kit/terminal"
	"github.com/gatehouse-dev/gatehouse/internal/readers/report"
)

type auditOptions struct {
	judging
	paths    []string
	snapshot string
	asCreate bool
	// resources and rate are the fields of replay.Existing.
	resources []string
	rate      float64
	output    command.ReportFormat
}

// NewAudit returns the command gatehouse audit.
func NewAudit(streams command.Streams) *cobra.Command {
	o := &auditOptions{judging: judging{log: command.NewLogging()}}
	cmd := &cobra.Command{
		Use:   "audit [PATH...]",
		Short: "List the objects that policies would reject or change",
		RunE: func(cmd *cobra.Command, args []string) error {
			o.paths = args
			switch {
			case o.snapshot != "" && len(o.resources) > 0:
				return command.Usagef("--resource is about the objects of a cluster: leave out --snapshot")
			case slices.Contains(o.resources, "secrets"):
				return command.Usagef("--resource secrets: secrets are never read")
			case o.call && len(o.paths) == 0:
				return command.Usagef("--call calls the webhooks of files: name some")
			case o.rate < 0:
				return command.Usagef("--object-rate %v: it must be 0 or more", o.rate)
			}
			if err := o.complete(); err != nil {
				return err
			}
			return o.run(cmd.Context(), streams)
		},
	}
	command.AddSection(cmd, "Objects", func(f *pflag.FlagSet) {
		f.StringVar(&o.snapshot, "snapshot", "", "`file` of 'gatehouse snapshot' with the objects, in place of a cluster")
		f.StringSliceVar(&o.resources, "resource", nil, "audit objects of this `resource` only, as pods or deployments.apps; may be repeated")
		f.Float64Var(&o.rate, "object-rate", 0, "how many objects of a cluster are read in a second at most; 0 means any number")
		f.BoolVar(&o.asCreate, "as-create", false, "take each object as a create")
		o.release.AddFlag(f, "from the cluster or snapshot")
		o.enforcer.AddFlag(f, "from the cluster or snapshot")
	})
	o.addFlags(cmd, "call the webhooks of the files, with every object that reaches them", func(f *pflag.FlagSet) {
		o.output.AddFlag(f, "policyreport")
		o.log.AddFlags(f, "verbosity: 2 and more include the log of the server")
	})
	return cmd
}

func (o *auditOptions) run(ctx context.Context, streams command.Streams) error {
	shown := o.progress(streams)
	defer shown.End()
	options := replay.AuditOptions{}
	var err error
	if len(o.paths) > 0 {
		if options.Policies, err = readRegistrations(o.paths); err != nil {
			return err
		}
	}
	existing := &replay.Existing{AsCreate: o.asCreate, Resources: o.resources, Rate: o.rate}
	shown.Set("Reading the cluster")
	if o.snapshot != "" {
		if existing.Snapshot, err = clustersnapshot.Read(o.snapshot); err != nil {
			return command.UsageError{Err: err}
		}
		options.Snapshot = existing.Snapshot
	} else if options.Snapshot, existing.Config, err = takeSnapshot(ctx, o.cluster, options.Policies); err != nil {
		return err
	}
	options.Source = existing
	if err := quietServers(ctx, streams, &o.log); err != nil {
		return err
	}
	if err := o.release.ChooseOf(options.Snapshot); err != nil {
		return err
	}
	options.Judging, options.Gatehouse = o.how(shown, "objects"), o.enforcer.Gatehouse(options.Snapshot)
	found, err := replay.Audit(ctx, options)
	shown.End()
	if err != nil {
		return failed(err)
	}
	if err := o.output.Write(streams.Out, auditReport(found), func(out io.Writer) error { return o.printText(out, found) }); err != nil {
		return err
	}
	if found.Judged == 0 {
		return command.Refuse(streams, errNothing(&found.Input))
	}
	if slices.ContainsFunc(found.Findings, func(f *auditreport.Finding) bool { return f.Result == auditreport.Fails }) {
		return command.ExitStatus(command.ExitError)
	}
	return nil
}

func (o *auditOptions) printText(out io.Writer, r *auditreport.Report) error {
	var b strings.Builder
	o.release.Print(&b)
	for _, f := range r.Findings {
		terminal.Fprintf(&b, "%s %s: %s: %s\n", f.Result, f.Title(), f.Policy, terminal.Indented(f.Message, "  "))
	}
	if r.More > 0 {
		terminal.Fprintf(&b, "%s more\n", report.Count(r.More, "finding"))
	}
	for _, w := range r.Webhooks {
		terminal.Fprintf(&b, "not called: %s, for %s\n", w.Name, report.Count(w.Count, "object"))
	}
	for _, text := range r.Input.Sentences() {
		terminal.Fprintf(&b, "%s\n", text)
	}
	for _, note := range r.Notes {
		terminal.Fprintf(&b, "note: %s\n", terminal.Indented(note, "  "))
	}
	terminal.Fprintf(&b, "%s evaluated, %d without a finding; by Kubernetes %s\n", report.Count(r.Judged, "object"), r.Passed, r.KubernetesVersion)
	_, err := io.WriteString(out, b.String())
	return err
}

// auditReport is the report of an audit, for all formats. Each finding has the position of the policy, since
// the objects of a cluster have no file.
func auditReport(r *auditreport.Report) *report.Document {
	f := &report.Document{
		Tool:  "gatehouse audit",
		Title: "Audit of " + report.Count(r.Judged, "object"),
		Sums:  []report.Sum{{Name: "without a finding", N: r.Passed}, {Name: "findings", N: len(r.Findings) + r.More}},
		Notes: r.Notes, Kubernetes: r.KubernetesVersion, VersionNote: r.VersionNote, Elsewhere: "cluster", Data: r,
	}
	known := map[string]bool{}
	for _, one := range r.Findings {
		if !known[one.Policy] {
			known[one.Policy] = true
			f.Rules = append(f.Rules, report.Description{ID: one.Policy, Level: report.Error, Title: "Violation of " + one.Policy + "."})
		}
		f.Findings = append(f.Findings, report.Finding{Level: one.Level(), Rule: one.Policy, File: one.File, Line: one.Line, Object: one.Title(), Message: one.Message})
		f.Resources = append(f.Resources, one.Resource())
	}
	var uncalled []string
	for _, w := range r.Webhooks {
		uncalled = append(uncalled, w.Name+", for "+report.Count(w.Count, "object"))
	}
	f.Parts = []report.Part{{Heading: "Not called", Items: uncalled}, {Heading: "Left out", Items: r.Input.Sentences()}, {Heading: "Notes", Items: r.Notes}}
	if r.More > 0 {
		f.Parts[1].Items = append(f.Parts[1].Items, report.Count(r.More, "finding")+" more")
	}
	return f
}
