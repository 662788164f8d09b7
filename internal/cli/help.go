package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// usage prints how a command is used, the examples first.
func usage(cmd *cobra.Command) error {
	var b strings.Builder
	if cmd.HasExample() {
		fmt.Fprintf(&b, "Examples:\n%s\n\n", cmd.Example)
	}
	line := cmd.UseLine()
	if cmd.HasAvailableSubCommands() {
		line = cmd.CommandPath() + " COMMAND"
	}
	fmt.Fprintf(&b, "Usage:\n  %s\n", line)
	var padding int
	for _, c := range cmd.Commands() {
		padding = max(padding, len(c.Name()))
	}
	list := func(title string, listed func(*cobra.Command) bool) {
		for _, c := range cmd.Commands() {
			if !listed(c) {
				continue
			}
			if title != "" {
				fmt.Fprintf(&b, "\n%s:\n", title)
				title = ""
			}
			fmt.Fprintf(&b, "  %-*s %s\n", padding, c.Name(), c.Short)
		}
	}
	for _, g := range cmd.Groups() {
		list(g.Title, func(c *cobra.Command) bool { return c.IsAvailableCommand() && c.GroupID == g.ID })
	}
	list("Commands", func(c *cobra.Command) bool { return c.IsAvailableCommand() && c.GroupID == "" })
	list("Help topics", (*cobra.Command).IsAdditionalHelpTopicCommand)
	for _, s := range flagSections(cmd.Flags()) {
		fmt.Fprintf(&b, "\n%s:\n%s", s.title, s.flags.FlagUsages())
	}
	if cmd.HasAvailableSubCommands() {
		fmt.Fprintf(&b, "\nRun '%[1]s COMMAND --help' for more about a command, '%[1]s help TOPIC' for a topic.\n", cmd.CommandPath())
	}
	_, err := fmt.Fprint(cmd.OutOrStderr(), b.String())
	return err
}

// sectionAnnotation is where a flag keeps the title it is listed under.
const sectionAnnotation = "gatehouse-section"

// addSection adds flags to a command, to be listed under a title. Sections stand in the
// order in which they are added.
func addSection(cmd *cobra.Command, title string, define func(*pflag.FlagSet)) {
	cmd.Flags().SortFlags = false
	cmd.SetFlagErrorFunc(flagError)
	flags := pflag.NewFlagSet(title, pflag.ContinueOnError)
	define(flags)
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Annotations == nil {
			f.Annotations = map[string][]string{}
		}
		f.Annotations[sectionAnnotation] = []string{title}
		cmd.Flags().AddFlag(f)
		if c, ok := f.Value.(*choice); ok {
			completes(cmd, f.Name, values(c.named()...))
		}
	})
}

type flagSection struct {
	title string
	flags *pflag.FlagSet
}

// flagSections groups flags by their titles, in the order of their definition;
// flags without a title come last.
func flagSections(all *pflag.FlagSet) []flagSection {
	var sections []flagSection
	rest := flagSection{"Flags", pflag.NewFlagSet("", pflag.ContinueOnError)}
	all.VisitAll(func(f *pflag.Flag) {
		into := rest.flags
		if title := f.Annotations[sectionAnnotation]; len(title) > 0 {
			if n := len(sections); n == 0 || sections[n-1].title != title[0] {
				s := flagSection{title[0], pflag.NewFlagSet("", pflag.ContinueOnError)}
				s.flags.SortFlags = false
				sections = append(sections, s)
			}
			into = sections[len(sections)-1].flags
		}
		into.AddFlag(f)
	})
	if rest.flags.HasAvailableFlags() {
		sections = append(sections, rest)
	}
	return sections
}

// helpTopics are commands that do nothing: cobra lists them apart and prints
// their text.
func helpTopics() []*cobra.Command {
	return []*cobra.Command{
		{
			Use:   "exit-codes",
			Short: "What the exit codes mean",
			Long: `gatehouse exits with

  0  when it did what was asked; for serve: after SIGTERM or SIGINT, once the
     running requests have finished
  1  when it failed; standard error says why, in one sentence; for check: also
     when the cluster would reject an object, or a file cannot be read; for
     lint: also when there are findings of level error, or a file cannot be read
  2  when the command line is wrong: an unknown command or flag, or a flag whose
     value cannot be used
  3  for explain --exit-code: when a request would be rejected

gatehouse kubectl exits with what kubectl exits with.`,
		},
		{
			Use:   "environment",
			Short: "Which environment variables are read",
			Long: `COLUMNS
    How many columns the output of commands may have that goes to no terminal.
    Tables then fit it, as they fit a terminal.

GATEHOUSE_DATA_DIR
    The data directory: where serve writes when --data-dir is not given, and
    where kubectl finds admin.kubeconfig. Default ./gatehouse.data.

GATEHOUSE_ONLY
    With any value, gatehouse kubectl refuses to write to a cluster that nothing
    but the user's own ~/.kube/config names.

KUBECONFIG
    The kubeconfig files that gatehouse kubectl uses instead of the one in the
    data directory, as with any kubectl. serve does not read it.

GATEHOUSE_END_WITH_LOCK
    A file that the users of a server for tests lock (flock, shared). The server
    ends when no process has locked it for 5 seconds, rather than with the one
    that started it, and removes the file.

GATEHOUSE_END_WITH_PARENT
    Servers for tests, which are serve --test and those that 'gatehouse envtest'
    installs, end with the process that started them. With the value false they
    go on until they are stopped.

GATEHOUSE_PROGRAM
    The name to go by, instead of that of the file: kube-apiserver, etcd,
    kubectl, or gatehouse.

TMPDIR
    Where temporary files go, such as the data that 'gatehouse backup verify'
    restores. Default /tmp.

NO_COLOR
    If it is set, output on a terminal has no colours.

HTTPS_PROXY, NO_PROXY
    How serve reaches webhooks, as with any Kubernetes API server.`,
		},
	}
}
