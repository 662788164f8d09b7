package house

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// unproven are rules without a test, and the reason.
var unproven = map[string]string{
	"S1.37":  "refers to section S21, which replaces it",
	"S3.5":   "says that a limit does not exist",
	"S9.9":   "is advice on using the library, which the layering test enforces",
	"S11.42": "is a convention that the server does not enforce",
	"S12.17": "says that an order does not matter",
	"S20.1":  "is what upstream does; S20.7 and S20.8 say what Gatehouse does",
	"S20.3":  "is what upstream does; S20.8 says what Gatehouse does",
	"S20.5":  "is what upstream does; S20.7 says what Gatehouse does",
	"S20.6":  "is what upstream does; S20.7 says what Gatehouse does",
}

// unbuilt are sections that are not proven or not built, and the reason. Their rules need no test; a section
// leaves this list when all its rules are proven.
var unbuilt = map[string]string{}

// ruleBook is the folder of the rules.
const ruleBook = "docs/dev/rules"

var (
	sectionFile = regexp.MustCompile(`^(\d\d)-[a-z-]+\.md$`)
	// A rule begins with its number in bold and ends before the next list item at the left margin or the next
	// heading.
	ruleStart  = regexp.MustCompile(`^- \*\*(S\d+\.\d+[a-z]?)\*\* (.+)`)
	sourceLine = regexp.MustCompile(`^  - Source:( \S|$)`)
	// Differences and faults are rows of tables.
	numberedRow = regexp.MustCompile(`(?m)^\| ([DF]\d+) \|`)

	// upstreamSource matches a source in code: the package, then its declarations.
	upstreamSource = regexp.MustCompile("`(k8s\\.io/[\\w./-]+): ([^`]+)`")
	oldRelease     = regexp.MustCompile(`Kubernetes 1\.\d+`)

	pageLink  = regexp.MustCompile(`\]\(([^)#:]+\.md)`)
	citation  = regexp.MustCompile(`\b(?:S\d+\.\d+[a-z]?|S\d+|[DF]\d+)\b`)
	ruleRange = regexp.MustCompile(`\bS(\d+)\.(\d+) to S(\d+)\.(\d+)\b`)
)

// rule is one rule of the rule book.
type rule struct {
	// number identifies the rule in citations, and section is its part before the point.
	number, section string
	// file and line are the position of the rule.
	file string
	line int
	// sourced reports whether the rule has a source.
	sourced bool
}

// rules reads the rules from the rule book, in order.
func rules(t *testing.T) []rule {
	t.Helper()
	var all []rule
	known := map[string]bool{}
	for _, file := range ruleFiles(t) {
		name := sectionFile.FindStringSubmatch(file)
		if name == nil {
			continue
		}
		section := "S" + strings.TrimPrefix(name[1], "0")
		file := path.Join(ruleBook, file)
		inRule := false
		for i, line := range strings.Split(read(t, file), "\n") {
			if m := ruleStart.FindStringSubmatch(line); m != nil {
				number := m[1]
				if before, _, _ := strings.Cut(number, "."); before != section {
					t.Errorf("%s:%d: %s is not a rule of section %s", file, i+1, number, section)
				}
				if known[number] {
					t.Errorf("%s:%d: there are two rules %s", file, i+1, number)
				}
				known[number], inRule = true, true
				all = append(all, rule{number: number, section: section, file: file, line: i + 1})
				continue
			}
			if strings.HasPrefix(line, "#") || strings.HasPrefix(line, "- ") {
				inRule = false
			}
			if inRule && sourceLine.MatchString(line) {
				all[len(all)-1].sourced = true
			}
		}
	}
	if len(all) == 0 {
		t.Fatalf("%s has no rules", ruleBook)
	}
	return all
}

// ruleFiles are the names of the pages of the rule book.
func ruleFiles(t *testing.T) []string {
	t.Helper()
	entries, err := os.ReadDir(ruleBook)
	if err != nil {
		t.Fatal(err)
	}
	names := make([]string, len(entries))
	for i, e := range entries {
		names[i] = e.Name()
	}
	return names
}

func read(t *testing.T, file string) string {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// citations returns the rule numbers in a text, with ranges expanded.
func citations(text string) []string {
	cited := citation.FindAllString(text, -1)
	for _, ends := range ruleRange.FindAllStringSubmatch(text, -1) {
		first, _ := strconv.Atoi(ends[2])
		last, _ := strconv.Atoi(ends[4])
		for n := first; ends[1] == ends[3] && n <= last; n++ {
			cited = append(cited, fmt.Sprintf("S%s.%d", ends[1], n))
		}
	}
	return cited
}

// TestEveryRuleIsProven lists the rules without a test. A test proves a rule by naming it in its own name, its
// cases' names or the comment above it. A range does not count: a search for the number would not find it.
func TestEveryRuleIsProven(t *testing.T) {
	t.Chdir(root)
	named := map[string]bool{}
	walk(t, func(file string) {
		if file == "internal/house/rules_test.go" || !strings.HasSuffix(file, "_test.go") && !strings.HasSuffix(file, ".txtar") {
			return
		}
		for _, number := range citation.FindAllString(read(t, file), -1) {
			named[number] = true
		}
	})
	missing := map[string]bool{}
	for _, r := range rules(t) {
		if !named[r.number] && unbuilt[r.section] != "" {
			missing[r.section] = true
			continue
		}
		switch why, excused := unproven[r.number]; {
		case !named[r.number] && !excused:
			t.Errorf("%s:%d: no test names %s", r.file, r.line, r.number)
		case named[r.number] && excused:
			t.Errorf("%s is proven now: remove %q from unproven", r.number, why)
		}
	}
	for section, why := range unbuilt {
		if !missing[section] {
			t.Errorf("all rules of %s are proven: remove %q from unbuilt", section, why)
		}
	}
}

// TestCitedRulesExist lists the citations, in code, documents and test scripts, of
// rules, sections, differences and faults that the rule book does not have.
func TestCitedRulesExist(t *testing.T) {
	t.Chdir(root)
	known := map[string]bool{}
	for _, r := range rules(t) {
		known[r.number], known[r.section] = true, true
	}
	for _, file := range ruleFiles(t) {
		for _, m := range numberedRow.FindAllStringSubmatch(read(t, path.Join(ruleBook, file)), -1) {
			if known[m[1]] {
				t.Errorf("there are two rows %s", m[1])
			}
			known[m[1]] = true
		}
	}
	extensions := []string{".go", ".md", ".txtar", ".yaml", ".yml"}
	walk(t, func(file string) {
		if !slices.Contains(extensions, path.Ext(file)) {
			return
		}
		for i, line := range strings.Split(read(t, file), "\n") {
			for _, number := range citations(line) {
				if !known[number] {
					t.Errorf("%s:%d: cites %s, which %s does not have", file, i+1, number, ruleBook)
				}
			}
		}
	})
}

// TestEveryRuleHasASource: every rule names the source of its behaviour, so that a reader can check it.
func TestEveryRuleHasASource(t *testing.T) {
	t.Chdir(root)
	for _, r := range rules(t) {
		if !r.sourced {
			t.Errorf("%s:%d: %s has no line \"  - Source: ...\"", r.file, r.line, r.number)
		}
	}
}

// TestTheRuleBookIsIndexed: the index has every page, and every section by its
// number. The links between the pages lead to files.
func TestTheRuleBookIsIndexed(t *testing.T) {
	t.Chdir(root)
	index := read(t, path.Join(ruleBook, "README.md"))
	for _, file := range ruleFiles(t) {
		for _, m := range pageLink.FindAllStringSubmatch(read(t, path.Join(ruleBook, file)), -1) {
			if _, err := os.Stat(path.Join(ruleBook, m[1])); err != nil {
				t.Errorf("%s/%s has a link that leads nowhere: %v", ruleBook, file, err)
			}
		}
		if file == "README.md" {
			continue
		}
		entry := "](" + file + ")"
		if m := sectionFile.FindStringSubmatch(file); m != nil {
			section := "S" + strings.TrimPrefix(m[1], "0")
			entry = "[" + section + entry
			if heading := "# " + section + ". "; !strings.HasPrefix(read(t, path.Join(ruleBook, file)), heading) {
				t.Errorf("%s/%s does not begin with %q", ruleBook, file, heading)
			}
		}
		if !strings.Contains(index, entry) {
			t.Errorf("%s/README.md does not link %s", ruleBook, file)
		}
	}
}

// TestUpstreamDeclaresTheSources: today's upstream, in the versions of go.mod, has the
// sources that the rules name. When an update of upstream moves or renames a source,
// read it again: the behaviour may have changed too. Sources of old releases, which
// name their release, are not looked up.
func TestUpstreamDeclaresTheSources(t *testing.T) {
	t.Chdir(root)
	modules := map[string]string{}
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Path}} {{.Dir}}",
		"k8s.io/api", "k8s.io/apimachinery", "k8s.io/apiserver", "k8s.io/client-go", "k8s.io/component-base", "k8s.io/kube-aggregator", "k8s.io/kubernetes").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	for line := range strings.Lines(string(out)) {
		module, dir, _ := strings.Cut(strings.TrimSpace(line), " ")
		modules[module] = dir
	}
	checked := 0
	declared := map[string]map[string]bool{}
	for _, file := range ruleFiles(t) {
		text := strings.Join(strings.Fields(read(t, path.Join(ruleBook, file))), " ")
		for _, m := range upstreamSource.FindAllStringSubmatchIndex(text, -1) {
			// The release comes before the source, after the previous source.
			before := text[:m[0]]
			begin := max(strings.LastIndexAny(before, ";|"), strings.LastIndex(before, "Source"), 0)
			if oldRelease.MatchString(before[begin:]) {
				continue
			}
			pkg, names := text[m[2]:m[3]], strings.Split(text[m[4]:m[5]], ", ")
			if declared[pkg] == nil {
				root, _, _ := strings.Cut(strings.TrimPrefix(pkg, "k8s.io/"), "/")
				module := "k8s.io/" + root
				if modules[module] == "" {
					t.Errorf("%s/%s: %s is in no module that the rules may name", ruleBook, file, pkg)
					continue
				}
				declared[pkg] = declarations(t, filepath.Join(modules[module], filepath.FromSlash(strings.TrimPrefix(pkg, module))))
			}
			for _, name := range names {
				checked++
				if !declared[pkg][name] {
					t.Errorf("%s/%s: %s declares no %s", ruleBook, file, pkg, name)
				}
			}
		}
	}
	if checked == 0 {
		t.Error("the rules name no source that could be checked")
	}
}

// declarations are the functions, types, methods ("Type.Method"), constants and
// variables that the Go files of a folder declare.
func declarations(t *testing.T, dir string) map[string]bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]bool{}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, decl := range parsed.Decls {
			switch d := decl.(type) {
			case *ast.FuncDecl:
				found[receiver(d)+d.Name.Name] = true
			case *ast.GenDecl:
				for _, spec := range d.Specs {
					switch s := spec.(type) {
					case *ast.TypeSpec:
						found[s.Name.Name] = true
					case *ast.ValueSpec:
						for _, name := range s.Names {
							found[name.Name] = true
						}
					}
				}
			}
		}
	}
	return found
}

// receiver returns the type of a method's receiver and a point; empty for a function.
func receiver(f *ast.FuncDecl) string {
	if f.Recv == nil {
		return ""
	}
	for expr := f.Recv.List[0].Type; ; {
		switch e := expr.(type) {
		case *ast.StarExpr:
			expr = e.X
		case *ast.IndexExpr:
			expr = e.X
		case *ast.IndexListExpr:
			expr = e.X
		case *ast.Ident:
			return e.Name + "."
		default:
			return ""
		}
	}
}
