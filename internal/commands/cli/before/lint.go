package before

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/client-go/rest"

	"github.com/gatehouse-dev/gatehouse/admission"
	"github.com/gatehouse-dev/gatehouse/internal/commands/cli/command"
	"github.com/gatehouse-dev/gatehouse/internal/commands/predict/offline"
	"github.com/gatehouse-dev/gatehouse/internal/kit/emulation"
	"github.com/gatehouse-dev/gatehouse/internal/kit/nearest"
	"github.com/gatehouse-dev/gatehouse/internal/kit/terminal"
	"github.com/gatehouse-dev/gatehouse/internal/readers/lint"
	"github.com/gatehouse-dev/gatehouse/internal/readers/manifests"
	"github.com/gatehouse-dev/gatehouse/internal/readers/report"
	"github.com/gatehouse-dev/gatehouse/internal/server/judging/webhookservices"
	"github.com/gatehouse-dev/gatehouse/plugins"
)

type lintOptions struct {
	definitions command.Definitions
	release     command.Release
	enforcer    command.Enforcer
	cluster     *command.Cluster
	// paths are files and directories. Without paths, lint checks a cluster.
	paths   []string
	explain string
	connect bool
	// serviceAddresses are the addresses of services that run outside of the cluster.
	serviceAddresses []string
	addresses        webhookservices.Addresses
	// configFile is the AdmissionConfiguration of the API server, whose manifest files are read, too.
	configFile string
	// upgradeTo is the target release of an upgrade, such as 1.38; empty for none.
	upgradeTo string
	level     string
	output    command.ReportFormat
	// disable lists rules that are not checked, and skip objects without findings.
	exclude, disable, skip []string
	config                 string
	accepted               []report.Acceptance
	configured             *command.Configuration
	ignore                 *manifests.Ignore
	verbosity              int
	// now is the time for the expiry of certificates; nil means the clock.
	now func() time.Time
}

// NewLint returns the command gatehouse lint.
func NewLint(streams command.Streams) *cobra.Command {
	return newLintCommand(func(ctx context.Context, o *lintOptions) error { return o.run(ctx, streams) })
}

func newLintCommand(run func(context.Context, *lintOptions) error) *cobra.Command {
	o := &lintOptions{now: time.Now}
	cmd := &cobra.Command{
		Use:   "lint [PATH...]",
		Short: "Find dangerous webhooks, policies and initializers",
		RunE: func(cmd *cobra.Command, args []string) error {
			o.paths = args
			if err := o.configure(cmd); err != nil {
				return err
			}
			if err := o.complete(); err != nil {
				return err
			}
			return run(cmd.Context(), o)
		},
	}
	command.AddSection(cmd, "Rules", func(f *pflag.FlagSet) {
		f.StringVar(&o.explain, "explain", "", "explain a `rule`, with an example, and check nothing")
		f.StringSliceVar(&o.disable, "disable", nil, "`rule` not to check; may be repeated")
		f.StringSliceVar(&o.skip, "skip", nil, "`object` without findings, as KIND or KIND/NAME; may be repeated")
		f.StringSliceVar(&o.exclude, "exclude", nil, "`pattern` of files not to read, as in a .gitignore; may be repeated. "+manifests.IgnoreFile+" files have more")
		command.AddConfigFlag(f, &o.config)
		o.definitions.AddFlag(f)
		o.release.AddFlag(f, "from the cluster, or this program's")
		o.enforcer.AddFlag(f, "from the cluster; files may be for either")
		f.StringVar(&o.upgradeTo, "upgrade-to", "", "also look for effects of an upgrade to a `release` of Kubernetes, such as 1.38")
		f.BoolVar(&o.connect, "connect", false, "connect to each webhook from here, to look at its certificate; no request is sent")
		f.StringArrayVar(&o.serviceAddresses, "service-address", nil, "address of a service whose webhook runs outside of the cluster, as for 'gatehouse serve': NAMESPACE/NAME[:PORT]=HOST:PORT; may be repeated")
		f.StringVar(&o.configFile, "admission-control-config-file", "", "`file` with the configuration of the API server's plugins, whose manifest files are read, too")
	})
	command.AddSection(cmd, "Output", func(f *pflag.FlagSet) {
		f.StringVar(&o.level, "level", "note", "least `level` of findings that are printed: error, warning or note")
		o.output.AddFlag(f)
		f.IntVarP(&o.verbosity, "v", "v", 0, "verbosity: 1 lists the rules that were checked, and all that was not seen")
	})
	o.cluster = &command.Cluster{}
	command.AddSection(cmd, "Server", func(f *pflag.FlagSet) {
		f.StringVar(&o.cluster.Flags.KubeConfig, "kubeconfig", "", "kubeconfig of the server (default as for 'gatehouse kubectl')")
		f.StringVar(&o.cluster.Flags.Context, "context", "", "context in the kubeconfig")
	})
	command.Completes(cmd, "context", o.cluster.ContextNames)
	command.Completes(cmd, "explain", ruleNames)
	command.Completes(cmd, "disable", ruleNames)
	command.Completes(cmd, "level", command.Values("error", "warning", "note"))
	return cmd
}

// configure sets each option without a flag from the configuration file.
func (o *lintOptions) configure(cmd *cobra.Command) error {
	c, err := command.ReadConfiguration(cmd, o.config)
	if err != nil {
		return err
	}
	o.configured = c
	command.Fallback(cmd, "exclude", &o.exclude, slices.Concat(c.Exclude, c.Lint.Exclude))
	command.Fallback(cmd, "disable", &o.disable, c.Lint.Disable)
	command.Fallback(cmd, "skip", &o.skip, c.Lint.Skip)
	command.Fallback(cmd, "level", &o.level, c.Lint.Level)
	command.Fallback(cmd, "for", &o.enforcer.Wanted, c.For)
	for _, a := range c.Lint.Accept {
		if err := knownRule(a.Rule); err != nil {
			return command.Usagef("%s: lint.accept: %w", c.File, err)
		}
	}
	o.accepted = c.Lint.Accept
	return nil
}

// knownRule returns an error for the ID of an unknown rule. It suggests the nearest ID, or lists all.
func knownRule(id string) error {
	if lint.Find(id) != nil {
		return nil
	}
	names := ruleNames()
	return command.Usagef("there is no rule %q%s", id, cmp.Or(nearest.Suggestion("", id, names), "; the rules are\n"+strings.TrimSuffix(string(terminal.Wrapped(strings.Join(names, ", "), "", 76)), "\n")))
}

// complete validates the options.
func (o *lintOptions) complete() error {
	if err := command.OneOf("level", o.level, "error", "warning", "note"); err != nil {
		return err
	}
	if err := o.enforcer.Complete(); err != nil {
		return err
	}
	var err error
	if o.addresses, err = webhookservices.ParseAddresses(o.serviceAddresses); err != nil {
		return command.UsageError{Err: err}
	}
	if o.upgradeTo != "" && !regexp.MustCompile(`^v?1\.[0-9]{1,3}(\.[0-9]{1,3})?$`).MatchString(o.upgradeTo) {
		return command.Usagef("--upgrade-to is %q: name a release of Kubernetes, such as 1.38", o.upgradeTo)
	}
	if o.ignore, err = manifests.NewIgnore(o.exclude); err != nil {
		return command.Usagef("--exclude: %w", err)
	}
	o.ignore.Tests = true
	for _, id := range o.disable {
		if err := knownRule(id); err != nil {
			return err
		}
	}
	if o.configFile != "" {
		directories, err := manifestDirectories(o.configFile)
		if err == nil && len(directories) == 0 {
			err = command.Usagef("--admission-control-config-file: %s names no directory of manifest files (staticManifestsDir)", o.configFile)
		}
		if err != nil {
			return err
		}
		o.paths = append(o.paths, directories...)
	}
	if o.explain == "" {
		return nil
	}
	if err := knownRule(o.explain); err != nil {
		return err
	}
	if len(o.paths) > 0 || o.output.Name != "text" {
		return command.Usagef("--explain prints one rule as text: leave out paths and --output")
	}
	return nil
}

func (o *lintOptions) run(ctx context.Context, streams command.Streams) error {
	if o.explain != "" {
		return explainRule(streams.Out, lint.Find(o.explain))
	}
	shown := terminal.NewProgress(streams.Err, "Reading files", command.ProgressAfter)
	defer shown.End()
	r, err := o.check(ctx, command.Input(ctx, streams.In), shown)
	shown.End()
	if err != nil {
		return err
	}
	if err := r.print(streams.Out, &o.output, report.Level(o.level), o.verbosity); err != nil {
		return err
	}
	var problems []string
	if n := r.Count(lint.Error); n > 0 {
		problems = append(problems, "lint found "+report.Count(n, "error"))
	}
	if r.unread > 0 {
		problems = append(problems, fmt.Sprintf("%s cannot be read, so that their effect is unknown: see the list of unread objects", report.Count(r.unread, "file")))
	}
	if len(problems) > 0 {
		return errors.New(strings.Join(problems, "; "))
	}
	return nil
}

// lintReport is the result of lint, with the position of each finding.
type lintReport struct {
	*lint.Result
	// release is the Kubernetes release that lint assumes.
	release *command.Release
	// subject describes the checked objects.
	subject string
	// unread is the number of files that could not be read.
	unread int
	// suppressed are the accepted findings, and idle describes acceptances that match no finding.
	suppressed []suppressedFinding
	idle       []string
	// locate returns the position of a field of a finding's object in the files.
	locate func(*lint.Finding, []any) (at offline.Position, ok bool)
}

// check runs the rules on the files or on the cluster of the command line.
func (o *lintOptions) check(ctx context.Context, in io.Reader, shown *terminal.Progress) (*lintReport, error) {
	var files, world *offline.World
	var skipped, unread []string
	var err error
	var release *version.Version
	r := &lintReport{locate: func(*lint.Finding, []any) (offline.Position, bool) { return offline.Position{}, false }}
	live := len(o.paths) == 0 || o.cluster.Flags.KubeConfig+o.cluster.Flags.Context != ""
	var config *rest.Config
	if live {
		shown.Set(command.ReadingCluster)
		if config, err = o.cluster.Open(); err != nil {
			return nil, err
		}
		err = o.release.ChooseFor(config)
	} else {
		err = o.release.Choose(emulation.Cluster{})
	}
	if err != nil {
		return nil, err
	}
	r.release = &o.release
	if len(o.paths) > 0 {
		if files, skipped, unread, err = offline.Survey(o.paths, in, o.ignore); err != nil {
			return nil, err
		}
		world = files
		variants := files.Variants()
		r.locate = func(f *lint.Finding, path []any) (offline.Position, bool) {
			return variants[f.Variant].Locate(f.Object, path)
		}
	}
	inside := false
	if live {
		inside = offline.InCluster(config)
		kinds, err := offline.Discover(config)
		if err != nil {
			return nil, err
		}
		if world, err = offline.Connect(ctx, config, kinds); err != nil {
			return nil, err
		}
		if o.upgradeTo != "" {
			if release, err = offline.Release(config); err != nil {
				return nil, err
			}
		}
	}
	variants := []*offline.World{nil}
	if files != nil {
		variants = files.Variants()
	}
	locations, err := o.definitions.Open()
	if err != nil {
		return nil, err
	}
	var reports []*lint.Result
	for i, variant := range variants {
		judged, over, about := world, variant, func(lint.Object) bool { return true }
		switch {
		case !live:
			judged, over = variant, nil
		case variant != nil:
			about = variant.About()
		}
		if o.enforcer.Wanted != "" {
			judged.Registrations.Kubernetes = o.enforcer.Wanted == command.ForKubernetes
		}
		if locations != nil {
			notes, err := judged.Elsewhere(ctx, locations)
			if err != nil {
				return nil, err
			}
			if i == 0 {
				skipped = append(skipped, notes...)
			}
		}
		w, err := judged.Lint(ctx, o.now(), over)
		if err != nil {
			return nil, err
		}
		w.Gatehouse = w.Gatehouse || o.enforcer.Gatehouse(nil)
		if len(o.addresses) > 0 {
			w.Elsewhere = func(service types.NamespacedName) bool { return o.addresses.Has(service.Namespace, service.Name) }
		}
		if o.connect {
			c := &offline.Connector{World: w, Elsewhere: o.addresses.Of, Inside: inside}
			w.Served = c.Present(ctx, w.Addresses(), func(done, of int) { shown.Set(fmt.Sprintf("Connected to %d of %d webhooks", done, of)) })
		} else {
			w.Unseen[lint.Certificates] = "no webhook was connected to; --connect does"
		}
		if o.upgradeTo != "" {
			w.Upgrade = o.upgrade(release)
			if variant != nil {
				w.Upgrade.Servers, w.Upgrade.Versions = variant.ServerOptions(), variant.Versions()
			}
		}
		rules := slices.DeleteFunc(slices.Clone(lint.Rules()), func(rule *lint.Rule) bool { return slices.Contains(o.disable, rule.ID) })
		reports = append(reports, lint.Check(ctx, w, lint.Options{About: about, Rules: rules, Progress: func(done, of int) {
			shown.Set(fmt.Sprintf("Checked %d of %d rules", done, of))
		}}))
		if i == 0 {
			r.subject = subject(w)
		}
	}
	r.Result = lint.Merge(reports)
	if len(reports) > 1 {
		r.subject += fmt.Sprintf(", in %d variants", len(reports))
	}
	var comments []manifests.Acceptance
	if files != nil {
		comments = files.Acceptances()
	}
	r.suppress(o, comments)
	r.Unseen = slices.Concat(r.Unseen, unread, skipped)
	r.unread = len(unread)
	return r, ctx.Err()
}

// upgrade returns the input of the rules about upgrades. from is nil when the current release is unknown.
func (o *lintOptions) upgrade(from *version.Version) *lint.Upgrade {
	to := version.MustParseGeneric(o.upgradeTo)
	known := version.MustParseGeneric(emulation.Release)
	u := &lint.Upgrade{
		From: from, To: version.MajorMinor(to.Major(), to.Minor()), Known: version.MajorMinor(known.Major(), known.Minor()),
		Lives: offline.Lives(), Flags: map[string]bool{}, Plugins: map[string]bool{}, Dropped: plugins.Dropped,
	}
	for _, line := range command.GeneratedLines(command.UpstreamFlags) {
		name, _, _ := strings.Cut(line, " ")
		u.Flags[name] = true
	}
	for _, name := range command.GeneratedLines(command.UpstreamPlugins) {
		u.Plugins[name] = true
	}
	u.AddLater()
	return u
}

// manifestDirectories returns the directories with the manifest files of an AdmissionConfiguration, each once. An empty
// name of the configuration has none.
func manifestDirectories(file string) (list []string, err error) {
	if file == "" {
		return nil, nil
	}
	c, err := admission.LoadConfiguration(file)
	if err != nil {
		return nil, command.Usagef("--admission-control-config-file: %w", err)
	}
	for _, plugin := range admission.Recommended() {
		if dir := c.StaticManifestsDir(plugin.Name); dir != "" && !slices.Contains(list, dir) {
			list = append(list, dir)
		}
	}
	return list, nil
}

// subject counts the webhooks, policies and initializers.
func subject(w *lint.Input) string {
	webhooks, policies, initializers := w.Count()
	text := fmt.Sprintf("%s, %s and %s", report.Count(webhooks, "webhook"), report.Count(policies, "policy"), report.Count(initializers, "initializer"))
	if n := w.Unchecked(); n > 0 {
		text += fmt.Sprintf(" (%d of them unchecked: a kustomization changes them)", n)
	}
	return text
}

// ruleNames returns the IDs of the rules of lint.
func ruleNames() []string {
	var names []string
	for _, r := range lint.Rules() {
		names = append(names, r.ID)
	}
	return names
}
