package house

import (
	"bytes"
	"os"
	"path"
	"regexp"
	"slices"
	"testing"
)

// texts are patterns that no file of the project may match. They are written so that they do not match
// themselves.
var texts = []struct {
	pattern *regexp.Regexp
	why     string
}{
	{regexp.MustCompile(`(?i)\b(TO[D]O|FIX[M]E|XX[X])\b`), "finish it, or open an issue"},
	{regexp.MustCompile(`(?i)\bnot (yet )?implemente[d]\b|\bfor no[w]\b|\bstu[b](bed|s)?\b`), "sounds unfinished: finish it, or say what it is"},
	{regexp.MustCompile(`(^|[^[:alnum:]._~$}-])/(work|farm|roo[t]|home/[a-z]+|Users/[A-Za-z]+)/`), "a path of one machine"},
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
		for i, line := range bytes.Split(data, []byte("\n")) {
			for _, text := range texts {
				if m := text.pattern.Find(line); m != nil {
					t.Errorf("%s:%d: %q: %s", file, i+1, m, text.why)
				}
			}
		}
	})
}
