package house

import (
	"bytes"
	"fmt"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// texts are patterns that no file of the project may match. They are written so that they do not match
// themselves. A line that matches a pattern contains one of its hints in lower case: searching for these is many
// times faster.
var texts = []struct {
	pattern *regexp.Regexp
	hints   []string
	why     string
}{
	{regexp.MustCompile(`(?i)\b(TO[D]O|FIX[M]E|XX[X])\b`), []string{"to" + "do", "fix" + "me", "xx" + "x"}, "finish it, or open an issue"},
	{regexp.MustCompile(`(?i)\bnot (yet )?implemente[d]\b|\bfor no[w]\b|\bstu[b](bed|s)?\b`), []string{" implemente" + "d", "for no" + "w", "stu" + "b"},
		"sounds unfinished: finish it, or say what it is"},
	{regexp.MustCompile(`(^|[^[:alnum:]._~$}-])/(work|farm|roo[t]|home/[a-z]+|Users/[A-Za-z]+)/`), []string{"/wor" + "k/", "/far" + "m/", "/roo" + "t/", "/home/", "/users/"},
		"a path of one machine"},
}

// foreign are files from other projects.
var foreign = []string{"LICENSE", "go.sum"}

func TestNothingIsLeftUnfinished(t *testing.T) {
	t.Chdir(root)
	walk(t, func(file string) {
		if slices.Contains(foreign, path.Base(file)) {
			return
		}
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if bytes.IndexByte(data, 0) >= 0 {
			return
		}
		for _, problem := range unfinished(data) {
			t.Errorf("%s:%s", file, problem)
		}
	})
}

// unfinished returns the number and the text of each line that matches one of texts.
func unfinished(data []byte) (problems []string) {
	lower := bytes.ToLower(data)
	for _, text := range texts {
		if !slices.ContainsFunc(text.hints, func(hint string) bool { return bytes.Contains(lower, []byte(hint)) }) {
			continue
		}
		for i, line := range bytes.Split(data, []byte("\n")) {
			if m := text.pattern.Find(line); m != nil {
				problems = append(problems, fmt.Sprintf("%d: %q: %s", i+1, m, text.why))
			}
		}
	}
	return problems
}

func TestUnfinished(t *testing.T) {
	t.Parallel()
	for _, line := range []string{
		"a TO" + "DO", "// fix" + "me: x", "XX" + "X", "It is Not Yet Implemente" + "d.", "not implemente" + "d", "for no" + "w", "a stu" + "b", "stu" + "bbed", "Stu" + "bs",
		"/wor" + "k/main", "in /far" + "m/x", "/roo" + "t/.cache", "see /hom" + "e/ann/x", "/User" + "s/Ann/x",
	} {
		if problems := unfinished([]byte("first\n" + line + "\nlast")); len(problems) != 1 || !strings.HasPrefix(problems[0], "2: ") {
			t.Errorf("%q: %q", line, problems)
		}
	}
	for _, line := range []string{"masto" + "don", "for no" + "wadays", "stu" + "bborn", "implemente" + "d", "$HOME/wor" + "k/x", "a/home/ann"} {
		if problems := unfinished([]byte(line)); len(problems) != 0 {
			t.Errorf("%q: %q", line, problems)
		}
	}
}
