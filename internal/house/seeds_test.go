package house

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// decided begins the cell of a row with a decision against it.
const decided = "decided:"

// Every row of docs/dev/seeds.md names existing rules or decisions, and existing tests of which at least one
// names one of the rules. A row without a test refers to the decision against it.
func TestTheSeedsAreProven(t *testing.T) {
	t.Chdir(root)
	known := map[string]bool{}
	for _, r := range rules(t) {
		known[r.number] = true
	}
	for _, file := range ruleFiles(t) {
		for _, m := range numberedRow.FindAllStringSubmatch(read(t, ruleBook+"/"+file), -1) {
			known[m[1]] = true
		}
	}
	// tests maps the names of test functions to their sources; several tests may share a name.
	tests := map[string][]string{}
	begin := regexp.MustCompile(`(?m)^(?:// .*\n)*func ((?:Test|Fuzz)\w+)\(`)
	walk(t, func(file string) {
		if !strings.HasSuffix(file, "_test.go") {
			return
		}
		source, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		text := string(source)
		found := begin.FindAllStringSubmatchIndex(text, -1)
		for i, m := range found {
			end := len(text)
			if i+1 < len(found) {
				end = found[i+1][0]
			}
			name := text[m[2]:m[3]]
			tests[name] = append(tests[name], text[m[0]:end])
		}
	})
	span := regexp.MustCompile("`((?:Test|Fuzz)\\w+)`")
	rows, sections := 0, 0
	for i, line := range strings.Split(read(t, "docs/dev/seeds.md"), "\n") {
		if strings.HasPrefix(line, "## ") {
			sections++
		}
		cells := strings.Split(strings.Trim(line, "|"), "|")
		if !strings.HasPrefix(line, "| ") || len(cells) != 3 || strings.TrimSpace(cells[0]) == "requirement" {
			continue
		}
		rows++
		cited := citation.FindAllString(cells[1], -1)
		for _, number := range cited {
			if !known[number] {
				t.Errorf("docs/dev/seeds.md:%d: there is no rule %s", i+1, number)
			}
		}
		named := span.FindAllStringSubmatch(cells[2], -1)
		if len(cited) == 0 {
			t.Errorf("docs/dev/seeds.md:%d: the row has no rule and no decision", i+1)
		}
		if len(named) == 0 && !(strings.Contains(cells[2], decided) && slices.ContainsFunc(cited, func(c string) bool { return c[0] == 'D' })) {
			t.Errorf("docs/dev/seeds.md:%d: the row has no test, and no decision against it", i+1)
		}
		proves := len(named) == 0
		for _, m := range named {
			if tests[m[1]] == nil {
				t.Errorf("docs/dev/seeds.md:%d: there is no test %s", i+1, m[1])
			}
			for _, source := range tests[m[1]] {
				proves = proves || slices.ContainsFunc(citation.FindAllString(source, -1), func(c string) bool { return slices.Contains(cited, c) })
			}
		}
		if !proves && !strings.Contains(cells[2], "cases in files") {
			t.Errorf("docs/dev/seeds.md:%d: none of the tests names one of the rules", i+1)
		}
	}
	if rows < 100 || sections != 5 {
		t.Errorf("docs/dev/seeds.md has %d rows about %d documents, want more than 100 about 5", rows, sections)
	}
}
