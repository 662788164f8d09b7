package house

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os/exec"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// clauses matches clauses in the place of a noun, such as "what is stored" for "the stored object", and pronouns far
// from their noun. Readers must read sentences with them twice.
var clauses = regexp.MustCompile(`(?i)\b(` + strings.Join([]string{
	`(?:that|those) of`, `those (?:that|who)`, `(?:the )?one that`, `the ones that`,
	`what (?:is|are|was|were|there|it|they|has|have|an?|the|one|some|no)`,
	`(?:is|are|of|by|has|says|from|to|for|with) what`,
	`who (?:is|are|may|has|have|sets?|can|asks|made|wants|reads|writes)`,
	`but for`, `nothing but`, `no one but`, `nobody`,
}, "|") + `)\b`)

// A text may have one clause, and more in proportion to its length.
const clausesPerThousandWords = 1.0

// quoted are clauses in titles and texts of other projects.
var quoted = regexp.MustCompile(strings.Join([]string{
	// Titles of pages of kubernetes.io, in the sources of rules.
	`"What are (?:admission webhooks|initializers|external admission webhooks)\?"`,
	// The help of a flag of k8s.io/apiserver.
	`one of the authorities in the oidc-ca-file`,
}, "|"))

// terms are words for which the field has another one. Texts for users must not contain them.
var terms = []struct {
	pattern *regexp.Regexp
	// except matches the allowed matches.
	except  *regexp.Regexp
	instead string
}{
	{
		pattern: regexp.MustCompile(`(?i)\bjudg(?:es?|ed|ing|ements?)\b`),
		instead: "decide, evaluate, admit or reject",
	},
	{
		pattern: regexp.MustCompile(`(?i)\bin\s+force\b`),
		instead: `"active" or "takes effect"`,
	},
	{
		pattern: regexp.MustCompile(`(?i)\b(?:(?:too )?(?:hard|soft)(?:er|est|ens?|ened)?)\b(?: to\b| links?\b| limit)?`),
		except:  regexp.MustCompile(`(?i)^too | (?:to|links?|limit)$`),
		instead: `"enforced", or "warn only" and "audit only"`,
	},
	{
		pattern: regexp.MustCompile(`(?i)\bcompiled[- ]in\b`),
		instead: `"built-in"`,
	},
	{
		pattern: regexp.MustCompile(`(?i)\b(?:certificate )?authorit(?:y|ies)\b`),
		except:  regexp.MustCompile(`(?i)^certificate `),
		instead: `"certificate authority" or "CA"`,
	},
	{
		pattern: regexp.MustCompile(`(?i)\btests? (?:do not |does not |have )?noticed?s?\b|\bno test notices\b`),
		instead: `"killed" and "surviving" mutants`,
	},
	{
		pattern: regexp.MustCompile(`(?i)\bworlds?\b`),
		instead: `"test environment", or the objects`,
	},
	{
		pattern: regexp.MustCompile(`(?i)\blets? (?:it|them|(?:the|an?) (?:request|object)s?) go on\b`),
		instead: "allow",
	},
	{
		pattern: regexp.MustCompile(`(?i)\b(?:lets?|gets?) in\b`),
		instead: `"authenticates" or "is authorized"`,
	},
	{
		pattern: regexp.MustCompile(`(?i)\bthe library\b`),
		instead: "the name of the module, such as k8s.io/apiserver",
	},
	{
		pattern: regexp.MustCompile(`(?i)\bupkeep\b|\blook(?:s|ed|ing)? after\b`),
		instead: "maintain or operate",
	},
	{
		pattern: regexp.MustCompile(`(?i)\bst(?:and|ands|ood) for\b`),
		instead: `"represent", "mean" or "replace"`,
	},
	{
		pattern: regexp.MustCompile(`(?i)\bspar(?:es?|ed|ing)\b`),
		instead: `"exclude" or "skip"`,
	},
	{
		pattern: regexp.MustCompile(`(?i)\bbears? (?:the|a|one)\b`),
		instead: "tolerate",
	},
	{
		pattern: regexp.MustCompile(`(?i)\bpends\b`),
		instead: "waits for initialization",
	},
	{
		pattern: regexp.MustCompile(`(?i)\b(?:webhook|policy) registrations?\b`),
		instead: `"webhook configuration" or "policy"; a registration is any of them`,
	},
	{
		pattern: regexp.MustCompile(`(?i)\b(?:\w+ )?definitions? of (?:a )?(?:kinds?|resources?)\b`),
		instead: "CustomResourceDefinition",
	},
}

// promised matches names in texts that cannot change, and code in them.
var promised = regexp.MustCompile(strings.Join([]string{
	"`[^`\n]*`",
	// Commands, flags, fields, files and links.
	`--[a-z][\w-]*`, `\S*[/_.#]\S+`, `\S+\(\)`, `wait-in-force`,
	// A field of files with tests.
	`^world: `,
	// Values of labels of metrics.
	`\w+-authority`, `, authority \(`, `by result: judged`,
	// Fields and values of traces.
	`Judgements?(?:Record)?\b`, `\b[Ss]pared (?:reports whether|if)\b`,
}, "|"))

// misnamed returns the words of a text for users that the field calls otherwise, each with advice.
func misnamed(text string) []string {
	text = promised.ReplaceAllString(text, "X")
	var wrong []string
	for _, t := range terms {
		for _, m := range t.pattern.FindAllString(text, -1) {
			if t.except == nil || !t.except.MatchString(m) {
				wrong = append(wrong, fmt.Sprintf("%q: write %s", m, t.instead))
			}
		}
	}
	return wrong
}

// excerpt returns the match of a text between the words next to it.
func excerpt(text string, match []int) string {
	const around = 50
	from, to := max(0, match[0]-around), min(len(text), match[1]+around)
	return strings.Join(strings.Fields(strings.ToValidUTF8(text[from:to], "")), " ")
}

func TestMisnamed(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ text, match string }{
		{"the webhook judges the object", "judges"},
		{"the policy is in\nforce", "in\nforce"},
		{"wait with gatehouse wait-in-force", ""},
		{"a hard policy", "hard"},
		{"it is hard to read, and the hard link is gone", ""},
		{"the body is too hard", ""},
		{"signed by the authority", "authority"},
		{"signed by the certificate authority", ""},
		{"trust it with --certificate-authority FILE", ""},
		{"the tests notice 2", "tests notice"},
		{"the field `spared` of a trace", ""},
		{"a webhook registration", "webhook registration"},
		{"--registrations FILE has the registrations", ""},
	} {
		got := strings.Join(misnamed(tc.text), ", ")
		if tc.match == "" && got != "" || tc.match != "" && !strings.HasPrefix(got, strconv.Quote(tc.match)) {
			t.Errorf("%q: got %q, want it to begin with %q", tc.text, got, tc.match)
		}
	}
}

func TestClauses(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ text, match string }{
		{"what is stored", "what is"},
		{"Class is that of the line", "that of"},
		{"users, and those who may read it", "those who"},
		{"the user who may read it", "who may"},
		{"all but for one", "but for"},
		{"it reads from what was written", "from what"},
		{"nobody reads it", "nobody"},
		{"the user that may read what follows", ""},
		{"the class of the line", ""},
	} {
		if got := clauses.FindString(tc.text); got != tc.match {
			t.Errorf("%q: got %q, want %q", tc.text, got, tc.match)
		}
	}
}

// A passage is a piece of text that people read.
type passage struct {
	// at is its place in a file, and text the words.
	at, text string
	// group is the package or page with which it is counted.
	group string
	// users reports whether users of Gatehouse read it. Otherwise only contributors do.
	users bool
}

// Comments, documents and the strings of programs have few clauses in the place of nouns, and users read the terms of
// the field.
func TestPeopleReadPlainWords(t *testing.T) {
	t.Chdir(root)
	words, found := map[string]int{}, map[string][]string{}
	walk(t, func(file string) {
		if slices.Contains(strings.Split(file, "/"), "testdata") || file == "internal/house/words_test.go" {
			return
		}
		for _, p := range passages(t, file) {
			words[p.group] += len(strings.Fields(p.text))
			text := quoted.ReplaceAllString(p.text, "X")
			for _, m := range clauses.FindAllStringIndex(text, -1) {
				found[p.group] = append(found[p.group], fmt.Sprintf("%s: %q: %s", p.at, text[m[0]:m[1]], excerpt(text, m)))
			}
			if !p.users {
				continue
			}
			for _, wrong := range misnamed(text) {
				t.Errorf("%s: %s", p.at, wrong)
			}
		}
	})
	total := 0
	for _, group := range sorted(found) {
		n := len(found[group])
		total += n
		if limit := max(1, clausesPerThousandWords*float64(words[group])/1000); float64(n) > limit {
			t.Errorf("%s has %d clauses in the place of nouns in %d words, at most %.0f are allowed:\n\t%s",
				group, n, words[group], limit, strings.Join(found[group], "\n\t"))
		}
	}
	all := 0
	for n := range maps.Values(words) {
		all += n
	}
	t.Logf("%d clauses in %d words", total, all)
	if all < 100_000 {
		t.Errorf("only %d words were read", all)
	}
}

// passages returns the texts of a file for people.
func passages(t *testing.T, file string) []passage {
	t.Helper()
	switch {
	case path.Ext(file) == ".go":
		return goPassages(t, file)
	case path.Ext(file) == ".md":
		users := !isDev(file) && !strings.HasPrefix(file, "bench/") && file != "CONTRIBUTING.md" && file != "ARCHITECTURE.md"
		return pagePassages(file, read(t, file), users)
	case strings.HasPrefix(file, "internal/readers/lint/rules/"):
		text, _, _ := strings.Cut(read(t, file), "\n-- ")
		return []passage{{at: file, text: text, group: "internal/readers/lint/rules", users: true}}
	}
	return nil
}

// pagePassages returns the paragraphs of a page in Markdown without its code.
func pagePassages(file, page string, users bool) []passage {
	var all []passage
	var lines []string
	first, code := 0, false
	end := func() {
		if len(lines) > 0 {
			all = append(all, passage{fmt.Sprintf("%s:%d", file, first), strings.Join(lines, "\n"), file, users})
		}
		lines = nil
	}
	for i, line := range strings.Split(page, "\n") {
		fence := strings.HasPrefix(strings.TrimSpace(line), "```")
		code = code != fence
		if fence || code || line == "" || strings.HasPrefix(line, "    ") || strings.HasPrefix(line, "\t") {
			end()
			continue
		}
		if lines == nil {
			first = i + 1
		}
		lines = append(lines, line)
	}
	end()
	return all
}

// goPassages returns the comments of a Go file, and its strings of several words if it is not a test.
func goPassages(t *testing.T, file string) []passage {
	t.Helper()
	set := token.NewFileSet()
	f, err := parser.ParseFile(set, file, nil, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	if ast.IsGenerated(f) {
		return nil
	}
	test := strings.HasSuffix(file, "_test.go")
	group := path.Dir(file)
	if test {
		group += " (tests)"
	}
	var all []passage
	for _, g := range f.Comments {
		all = append(all, passage{at: set.Position(g.Pos()).String(), text: g.Text(), group: group})
	}
	if test {
		return all
	}
	users := !strings.HasPrefix(file, "bench/") && !strings.HasPrefix(file, "test/")
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.ImportSpec:
			return false
		case *ast.Field:
			// A tag is no text.
			n.Tag = nil
		case *ast.BasicLit:
			if text, err := strconv.Unquote(n.Value); n.Kind == token.STRING && err == nil && strings.Contains(text, " ") {
				all = append(all, passage{set.Position(n.Pos()).String(), text, group + " (strings)", users})
			}
		}
		return true
	})
	return all
}

// The subject of a commit names the package and, with a verb first, the change.
var (
	subjectForm = regexp.MustCompile(`^[a-z.][\w./-]*(, [\w./-]+)*: [a-z][\w-]* .*[^. ]$`)
	// headless are first words of a subject that are not verbs.
	headless = regexp.MustCompile(`: (an?|the|th(is|ese|at|ose)|it|its|what|wh(o|en|ere|ich)|how|no|not|none|nobody|nothing|every|each|one|two|all|both|some|many|when|if|in|on|for|with|\w+(ies|ing|tion|tions)) `)
	// verbs end like the nouns of headless.
	verbs = regexp.MustCompile(`: (bring|string|ring|mention|position|partition|caution|question) `)
)

const longestSubject = 72

// subjectsSince is the time from which subjects must have the form.
var subjectsSince = time.Date(2026, time.November, 22, 7, 0, 0, 0, time.UTC)

// subject returns the problem of the subject of a commit; "" for none.
func subject(s string) string {
	switch {
	case len(s) > longestSubject:
		return fmt.Sprintf("has %d characters, at most %d are allowed", len(s), longestSubject)
	case !subjectForm.MatchString(s):
		return `must have the form "package: imperative verb ...", without a full stop`
	case headless.MatchString(s) && !verbs.MatchString(s):
		return `must begin with an imperative verb after "package: "`
	}
	return ""
}

func TestSubject(t *testing.T) {
	t.Chdir(root)
	for _, tc := range []struct {
		subject string
		ok      bool
	}{
		{"admission/call: send any body to a webhook with Post", true},
		{"docs, test: describe Plan and Trace (S2.2)", true},
		{".ci: run the linter", true},
		{"server: bring back the index", true},
		{"send any body to a webhook", false},
		{"server: Add a flag", false},
		{"server: add a flag.", false},
		{"server: what is refused is not stored", false},
		{"server: adding a flag for it", false},
		{"server: " + strings.Repeat("add ", 17), false},
	} {
		if wrong := subject(tc.subject); (wrong == "") != tc.ok {
			t.Errorf("%q: %q", tc.subject, wrong)
		}
	}
}

// The latest commits have subjects of the form in CONTRIBUTING.md. Without the history the test checks nothing.
func TestCommitsHavePlainSubjects(t *testing.T) {
	t.Chdir(root)
	git := func(args ...string) string {
		t.Helper()
		out, err := exec.Command("git", args...).Output()
		if err != nil {
			t.Skipf("git %s: %v", strings.Join(args, " "), err)
		}
		return strings.TrimSpace(string(out))
	}
	if git("rev-parse", "--show-prefix") != "" {
		t.Skip("the repository belongs to another project")
	}
	if git("rev-parse", "--is-shallow-repository") == "true" {
		t.Skip("the clone is shallow")
	}
	log := git("log", "--no-merges", "--max-count=50", "--format=%h %at %s")
	for line := range strings.Lines(log) {
		hash, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		at, text, _ := strings.Cut(rest, " ")
		seconds, err := strconv.ParseInt(at, 10, 64)
		if err != nil {
			t.Fatalf("git log: %q: %v", line, err)
		}
		if time.Unix(seconds, 0).Before(subjectsSince) {
			continue
		}
		if wrong := subject(text); wrong != "" {
			t.Errorf("commit %s, %q: %s", hash, text, wrong)
		}
	}
}
