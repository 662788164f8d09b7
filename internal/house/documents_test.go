package house

import (
	"os"
	"path"
	"regexp"
	"strings"
	"testing"
)

var (
	codeSpan = regexp.MustCompile("`([^`\n]+)`")
	testName = regexp.MustCompile(`^(Test|Fuzz|Benchmark|Example)[A-Z]\w+$`)
	testFunc = regexp.MustCompile(`(?m)^func ((?:Test|Fuzz|Benchmark|Example)\w+)\(`)
	filePath = regexp.MustCompile(`^[\w.-]+(/[\w.-]+)+/?$`)
)

// Every path and every name of a test in the code spans of the documents about the code
// exists. The left side of a picture counts too.
func TestDocumentsNameWhatExists(t *testing.T) {
	t.Chdir(root)
	tests, roots := map[string]bool{}, map[string]bool{}
	walk(t, func(file string) {
		root, _, _ := strings.Cut(file, "/")
		roots[root] = true
		if !strings.HasSuffix(file, "_test.go") {
			return
		}
		source, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range testFunc.FindAllSubmatch(source, -1) {
			tests[string(m[1])] = true
		}
	})
	picture := regexp.MustCompile(`(?m)^ {4,6}([a-z]+(?:/[a-z0-9-]+)+) +\S`)
	for _, document := range []string{"ARCHITECTURE.md", "CONTRIBUTING.md"} {
		text, err := os.ReadFile(document)
		if err != nil {
			t.Fatal(err)
		}
		named := 0
		for _, m := range append(codeSpan.FindAllSubmatch(text, -1), picture.FindAllSubmatch(text, -1)...) {
			span := string(m[1])
			root, _, _ := strings.Cut(span, "/")
			switch {
			case testName.MatchString(span):
				named++
				if !tests[span] {
					t.Errorf("%s names %s, and there is no such test", document, span)
				}
			case filePath.MatchString(span) && roots[root]:
				named++
				if _, err := os.Stat(path.Clean(span)); err != nil {
					t.Errorf("%s names a file that is not there: %v", document, err)
				}
			}
		}
		if named == 0 {
			t.Errorf("%s names nothing that could be checked", document)
		}
	}
}

// The picture of the packages has all of them, except versions of an API and packages for tests only.
func TestThePictureHasEveryPackage(t *testing.T) {
	t.Chdir(root)
	text, err := os.ReadFile("internal/house/packages.txt")
	if err != nil {
		t.Fatal(err)
	}
	aside := regexp.MustCompile(`^[.a-z]+$|^docs/|/v\d\w*$|/\w+test$|/harness/|^examples/aggregated/`)
	for _, pkg := range sorted(packages(t)) {
		if !aside.MatchString(pkg) && !regexp.MustCompile(`(?m)^ {0,2}`+regexp.QuoteMeta(pkg)+` +\S`).Match(text) {
			t.Errorf("internal/house/packages.txt lacks %s", pkg)
		}
	}
}

var (
	link     = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading  = regexp.MustCompile(`(?m)^#{1,6} (.+)$`)
	fenced   = regexp.MustCompile("(?ms)^```.*?^```")
	notAName = regexp.MustCompile(`[^\p{L}\p{N}_ -]`)
)

// anchors are the names by which headings of a page can be linked.
func anchors(page []byte) map[string]bool {
	found := map[string]bool{}
	for _, m := range heading.FindAllSubmatch(fenced.ReplaceAll(page, nil), -1) {
		name := notAName.ReplaceAllString(strings.ToLower(string(m[1])), "")
		found[strings.ReplaceAll(name, " ", "-")] = true
	}
	return found
}

// A link in a document leads to an existing file and heading.
func TestLinksOfDocumentsLeadSomewhere(t *testing.T) {
	t.Chdir(root)
	checked := 0
	walk(t, func(file string) {
		if path.Ext(file) != ".md" || strings.Contains(file, "testdata/") {
			return
		}
		page, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range link.FindAllSubmatch(fenced.ReplaceAll(page, nil), -1) {
			target, anchor, _ := strings.Cut(string(m[1]), "#")
			if strings.Contains(target, "://") {
				continue
			}
			checked++
			to := file
			if target != "" {
				to = path.Join(path.Dir(file), target)
			}
			switch info, err := os.Stat(to); {
			case err != nil:
				t.Errorf("%s links %s: %v", file, m[1], err)
			case anchor != "" && info.IsDir():
				t.Errorf("%s links %s, a heading of a directory", file, m[1])
			case anchor != "":
				if page, err = os.ReadFile(to); err != nil {
					t.Fatal(err)
				}
				if !anchors(page)[anchor] {
					t.Errorf("%s links %s: %s has no such heading", file, m[1], to)
				}
			}
		}
	})
	if checked == 0 {
		t.Error("no links were found")
	}
}

// isDev reports whether a page is for contributors.
func isDev(page string) bool { return strings.HasPrefix(page, "docs/dev/") }

// The table of contents has every page of docs.
func TestTheTableOfContentsHasAllPages(t *testing.T) {
	t.Chdir(root)
	contents := read(t, "docs/README.md")
	walk(t, func(file string) {
		page, ok := strings.CutPrefix(file, "docs/")
		if !ok || path.Ext(page) != ".md" || page == "README.md" || isDev(file) && page != "dev/rules/README.md" && page != "dev/seeds.md" {
			return
		}
		if !strings.Contains(contents, "]("+page+")") {
			t.Errorf("docs/README.md does not link %s", page)
		}
	})
}

var generatedBlock = regexp.MustCompile(`(?s)<!-- BEGIN [a-z]+: go test.*?<!-- END [a-z]+ -->`)

// The documentation stays small enough to be read: pages for users are few and short, each page is about one
// job, and rules, decisions and requirements have their own limits. READMEs of examples, deploy and bench and
// the measurements in bench/results do not count.
func TestTheDocumentationIsSmall(t *testing.T) {
	t.Chdir(root)
	pages, written, generated, dev := 0, 0, 0, 0
	walk(t, func(file string) {
		if path.Ext(file) != ".md" || strings.Contains(file, "/") && !strings.HasPrefix(file, "docs/") {
			return
		}
		text := read(t, file)
		n := len(strings.Fields(text))
		switch {
		case isDev(file):
			dev += n
			return
		case strings.Contains(text, "<!-- Code generated by"):
			generated += n
		default:
			made := 0
			for _, block := range generatedBlock.FindAllString(text, -1) {
				made += len(strings.Fields(block))
			}
			generated += made
			limit := map[string]int{"README.md": 700, "CHANGELOG.md": 3500, "ARCHITECTURE.md": 2000}[file]
			if limit > 0 && n >= limit {
				t.Errorf("%s has %d words, want fewer than %d", file, n, limit)
			}
			if limit == 0 {
				written += n - made
			}
		}
		pages++
	})
	t.Logf("%d pages, %d words by hand, %d generated, %d in docs/dev", pages, written, generated, dev)
	for _, c := range []struct {
		what     string
		got, max int
	}{
		{"pages outside of docs/dev", pages, 45},
		{"words by hand, without pages that have a limit of their own", written, 42000},
		{"generated words outside of docs/dev", generated, 48000},
		{"words in docs/dev", dev, 58000},
	} {
		if c.got > c.max {
			t.Errorf("%d %s, want %d at most", c.got, c.what, c.max)
		}
	}
}

// A guide begins with a command and its purpose: a block of commands or code before any other section.
func TestGuidesBeginWithACommand(t *testing.T) {
	t.Chdir(root)
	begins := regexp.MustCompile("^# [^\n]+\n\n(?:    |```|<!--)")
	walk(t, func(file string) {
		if path.Dir(file) == "docs" && path.Ext(file) == ".md" && !begins.MatchString(read(t, file)) {
			t.Errorf("%s does not begin with a title and a command", file)
		}
	})
}

// Every figure of the README, in bold in a table, is also in bench/results/benchmarks.md,
// which a program writes.
func TestFiguresOfTheReadmeAreMeasured(t *testing.T) {
	t.Chdir(root)
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	measured, err := os.ReadFile("bench/results/benchmarks.md")
	if err != nil {
		t.Fatal(err)
	}
	figures := regexp.MustCompile(`\*\*\d[\d.]*\*\*`).FindAllString(string(readme), -1)
	for _, figure := range figures {
		if !strings.Contains(string(measured), figure) {
			t.Errorf("README.md says %s, and bench/results/benchmarks.md does not", figure)
		}
	}
	if len(figures) < 6 {
		t.Errorf("README.md has %d figures, want six at least", len(figures))
	}
}
