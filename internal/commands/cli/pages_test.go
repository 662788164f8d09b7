package cli

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/gatehouse-dev/gatehouse/internal/commands/cli/command"
)

// otherFlags are flags of other programs that pages name in prose.
var otherFlags = []string{
	"set", "initial-cluster-token", "bump-revision", "mark-compacted", "prune", "cascade", "use-service-account-credentials",
	"webhooks", "cases", "requestheader-", "service-account-", "oidc-",
}

// Every command of gatehouse on a page of the documentation exists, with all of its flags, and so does every
// flag in the text of a page.
func TestCommandsOfPagesExist(t *testing.T) {
	known := slices.Clone(otherFlags)
	var collect func(*cobra.Command)
	collect = func(cmd *cobra.Command) {
		for _, set := range []*pflag.FlagSet{cmd.Flags(), cmd.PersistentFlags()} {
			set.VisitAll(func(f *pflag.Flag) { known = append(known, f.Name) })
		}
		for _, c := range cmd.Commands() {
			collect(c)
		}
	}
	collect(newRoot(command.Streams{}))
	reference, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", "reference", "commands.md"))
	if err != nil {
		t.Fatal(err)
	}
	// kubectl's and etcd's flags are not cobra's here.
	for _, m := range regexp.MustCompile(`--([a-z][a-z0-9-]+)`).FindAllSubmatch(reference, -1) {
		known = append(known, string(m[1]))
	}
	pages, err := filepath.Glob(filepath.Join("..", "..", "..", "docs", "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	checked := 0
	for _, page := range append(pages, "../../../README.md", "../../../CONTRIBUTING.md", "../../../SECURITY.md") {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, typed := range typedCommands(string(text)) {
			checked++
			if problem := wrongCommand(typed); problem != "" {
				t.Errorf("%s: %s: %s", page, strings.Join(typed, " "), problem)
			}
		}
		for _, span := range spans.FindAllStringSubmatch(fences.ReplaceAllString(string(text), ""), -1) {
			for _, flag := range proseFlag.FindAllStringSubmatch(span[1], -1) {
				if !slices.Contains(known, flag[1]) {
					t.Errorf("%s: `%s`: there is no flag --%s", page, span[1], flag[1])
				}
			}
		}
	}
	if checked < 200 {
		t.Errorf("only %d commands were found", checked)
	}
}

var (
	fences    = regexp.MustCompile("(?ms)^```.*?^```")
	spans     = regexp.MustCompile("`([^`\n]+)`")
	proseFlag = regexp.MustCompile(`(?:^|[^\w-])--([a-z][a-z0-9-]+)`)
	shells    = regexp.MustCompile("(?ms)^```(?:sh|console)\n(.*?)^```")
	// word matches a word of a shell in the syntax that the pages use.
	word = regexp.MustCompile(`'[^']*'|"[^"]*"|\|\||&&|[|;&<>()]|[^\s|;&<>()'"]+`)
)

// typedCommands returns the commands of gatehouse in the blocks and code spans of a page, up to the first pipe.
func typedCommands(page string) (list [][]string) {
	var lines []string
	for _, block := range shells.FindAllStringSubmatch(page, -1) {
		lines = append(lines, strings.Split(strings.ReplaceAll(block[1], "\\\n", " "), "\n")...)
	}
	rest := fences.ReplaceAllString(page, "")
	joined := strings.ReplaceAll(rest, "\\\n", " ")
	for line := range strings.SplitSeq(joined, "\n") {
		if indented, ok := strings.CutPrefix(line, "    "); ok {
			lines = append(lines, indented)
			continue
		}
		for _, span := range spans.FindAllStringSubmatch(line, -1) {
			lines = append(lines, span[1])
		}
	}
	for _, line := range lines {
		var typed []string
		begins := true
		for _, w := range append(word.FindAllString(strings.SplitN(line, "  #", 2)[0], -1), ";") {
			end := strings.ContainsAny(w, "|;&<>()") && len(w) <= 2
			switch {
			case end:
				if len(typed) > 1 {
					list = append(list, typed)
				}
				typed = nil
			case typed != nil:
				typed = append(typed, strings.Trim(w, `'"`))
			case begins && strings.TrimLeft(w, "./$\"") == "gatehouse":
				typed = []string{"gatehouse"}
			}
			begins = end || w == "$" || strings.HasSuffix(w, "$")
		}
	}
	return list
}

// wrongCommand returns the mistake in a command; empty for none.
func wrongCommand(typed []string) string {
	args := typed[1:]
	if args[0] == "kubectl" || args[0] == "is" || args[0] == "help" || strings.ToUpper(args[0]) == args[0] && !strings.HasPrefix(args[0], "-") {
		return ""
	}
	cmd, rest, err := newRoot(command.Streams{}).Find(args)
	if err != nil {
		return err.Error()
	}
	if cmd.DisableFlagParsing {
		return ""
	}
	for _, arg := range rest {
		name, isFlag := strings.CutPrefix(arg, "--")
		if arg == "--" {
			break
		}
		if name, _, _ = strings.Cut(name, "="); isFlag && name != "help" && cmd.Flags().Lookup(name) == nil && cmd.InheritedFlags().Lookup(name) == nil {
			return "there is no flag --" + name
		}
	}
	return ""
}
