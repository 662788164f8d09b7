package command

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/gatehouse-dev/gatehouse/internal/kit/terminal"
)

// PrintUsage prints the usage of a command, the examples first. The descriptions of flags are wrapped to the
// terminal's width.
func PrintUsage(cmd *cobra.Command) error {
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
	width := terminal.NewPage(cmd.OutOrStderr()).Width()
	for _, s := range FlagSections(cmd.Flags()) {
		fmt.Fprintf(&b, "\n%s:\n%s", s.Title, flagUsages(s.Flags, width))
	}
	if cmd.HasAvailableSubCommands() {
		fmt.Fprintf(&b, "\nRun '%[1]s COMMAND --help' for more about a command,\n'%[1]s help TOPIC' for a topic.\n", cmd.CommandPath())
	}
	_, err := fmt.Fprint(cmd.OutOrStderr(), b.String())
	return err
}

// flagName matches the text before the description of a flag.
var flagName = regexp.MustCompile(`^ +(?:-\w, )?--\S+(?: \S+)? +`)

// leastUsage is the least width of descriptions next to the names of their flags.
const leastUsage = 36

// flagUsages lists flags in lines of a width; 0 means no wrapping. If there is little room next to the names,
// the descriptions follow below them. pflag's own wrapping puts the text after a long word on one line.
func flagUsages(flags *pflag.FlagSet, width int) string {
	text := flags.FlagUsages()
	if width == 0 {
		return text
	}
	var b strings.Builder
	indent := ""
	for line := range strings.Lines(text) {
		name := flagName.FindString(line)
		if name != "" {
			if indent = strings.Repeat(" ", len(name)); width-len(name) < leastUsage {
				indent = strings.Repeat(" ", 10)
			}
		}
		usage := string(terminal.Wrapped(strings.TrimPrefix(line, name), indent, width))
		if len(indent) == len(name) {
			usage = strings.TrimPrefix(usage, indent)
		} else if name != "" {
			name = strings.TrimRight(name, " ") + "\n"
		}
		b.WriteString(name + usage)
	}
	return b.String()
}

// sectionAnnotation is the annotation of a flag with the title of its section.
const sectionAnnotation = "gatehouse-section"

// AddSection adds flags to a command in a titled section. Sections keep the order of the calls. Flags keep the
// order of their definition unless define sets SortFlags.
func AddSection(cmd *cobra.Command, title string, define func(*pflag.FlagSet)) {
	cmd.Flags().SortFlags = false
	cmd.SetFlagErrorFunc(FlagError)
	flags := pflag.NewFlagSet(title, pflag.ContinueOnError)
	flags.SortFlags = false
	define(flags)
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Annotations == nil {
			f.Annotations = map[string][]string{}
		}
		f.Annotations[sectionAnnotation] = []string{title}
		cmd.Flags().AddFlag(f)
		if c, ok := f.Value.(*choice); ok {
			Completes(cmd, f.Name, Values(c.named()...))
		}
	})
}

// FlagSection is a titled section of flags.
type FlagSection struct {
	Title string
	Flags *pflag.FlagSet
}

// FlagSections groups flags by their titles, in the order of their definition;
// flags without a title come last.
func FlagSections(all *pflag.FlagSet) []FlagSection {
	var sections []FlagSection
	rest := FlagSection{"Flags", pflag.NewFlagSet("", pflag.ContinueOnError)}
	all.VisitAll(func(f *pflag.Flag) {
		into := rest.Flags
		if title := f.Annotations[sectionAnnotation]; len(title) > 0 {
			if n := len(sections); n == 0 || sections[n-1].Title != title[0] {
				s := FlagSection{title[0], pflag.NewFlagSet("", pflag.ContinueOnError)}
				s.Flags.SortFlags = false
				sections = append(sections, s)
			}
			into = sections[len(sections)-1].Flags
		}
		into.AddFlag(f)
	})
	if rest.Flags.HasAvailableFlags() {
		sections = append(sections, rest)
	}
	return sections
}
