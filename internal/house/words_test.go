package house

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
)

// turns are phrases that readers must read twice. Messages, help, documents and comments must not contain them.
var turns = []struct {
	pattern *regexp.Regexp
	// except matches the allowed matches.
	except *regexp.Regexp
	// instead is the advice for the author.
	instead string
}{
	{
		pattern: regexp.MustCompile(`(?i)\b(is|are|was|were|be|been|being)\s+told\b`),
		instead: "say who reports it, or who gets it: the server reports, the client gets",
	},
	{
		pattern: regexp.MustCompile(`(?i)\b\w+\s+(is|are)\s+no\s+\w+`),
		except:  regexp.MustCompile(`(?i)^there\s|\s(more|longer|less|different|other)$`),
		instead: `"is not a ..."`,
	},
	{
		pattern: regexp.MustCompile(`(?i)\btells\s+that\b`),
		instead: `"reports whether" or "is true if" of a field, "means that" of an error`,
	},
	{
		pattern: regexp.MustCompile(`(?i)\btells?\s+(whether|of)\b`),
		instead: `"reports whether", or "reports", "names" or "shows" what it is`,
	},
	{
		pattern: regexp.MustCompile(`(?i)\btells\s+(which|how|when|what|where)\b`),
		instead: `"says which", or who learns it: "tells the client which"`,
	},
	{
		pattern: regexp.MustCompile(`(?i)\bwhoever\b`),
		instead: "name who: the user, the client, the server or the process that",
	},
	{
		pattern: regexp.MustCompile(`(?i)\bin\s+vain\b`),
		instead: "say what happened: it timed out, the answer was discarded",
	},
	{
		pattern: regexp.MustCompile(`(?i)\b(of|for|to)\s+nobody\b`),
		instead: "say who does not get it: no client receives it",
	},
	{
		pattern: regexp.MustCompile(`(?i)\bmend(s|ed|ing)?\b`),
		instead: "repair, fix or correct",
	},
	{
		pattern: regexp.MustCompile(`(?i)\bbelieve[sd]?\b`),
		instead: "trust or accept",
	},
	{
		pattern: regexp.MustCompile(`(?i)\bunder\s+way\b`),
		instead: "running, in progress, or concurrent",
	},
	{
		pattern: regexp.MustCompile(`(?i)\bbeside\b`),
		instead: `"next to", "in addition to" or "compared with"`,
	},
	{
		pattern: regexp.MustCompile(`(?i)\b(nobody|no\s+one)\s+(may|is|has)\b`),
		instead: "name who: no user, no server, no client",
	},
	{
		pattern: regexp.MustCompile(`(?i)\b(will|would)\s+not\s+do\b`),
		instead: "say what is missing: too short, cannot meet its deadline",
	},
	{
		// A sentence whose subject is a clause without a noun: "who waits gives its place back".
		pattern: regexp.MustCompile(`(?i)([.:;]\s+|^)who(ever)?\s+[a-z]+s\b[^.;?]*([.;]|$)`),
		instead: `"a request that waits", "a user that ..."`,
	},
	{
		pattern: regexp.MustCompile(`(?i)\bnot\s+(without|unlike|uncommon)\b`),
		instead: "one positive statement",
	},
}

// turn returns the first problem of a text for people; "" for none.
func turn(text string) string {
	for _, t := range turns {
		for _, m := range t.pattern.FindAllString(text, -1) {
			if t.except == nil || !t.except.MatchString(m) {
				return fmt.Sprintf("%q: write %s", m, t.instead)
			}
		}
	}
	return ""
}

func TestTurns(t *testing.T) {
	t.Chdir(root)
	for _, tc := range []struct{ text, match string }{
		{"the client is told why", "is told"},
		{"it was\n told twice", "was\n told"},
		{"Sent tells that the review arrived", "tells that"},
		{"Sent reports whether the review arrived", ""},
		{"a list is no object", "list is no object"},
		{"there is no such kind", ""},
		{"the version is no longer served", ""},
		{"keys tells how many keys there are", "tells how"},
		{"uses tells whether an expression uses a name", "tells whether"},
		{"the message tells\n of an error", "tells\n of"},
		{"whoever asks for it", "whoever"},
		{"a request that waited in vain", "in vain"},
		{"the answer of nobody", "of nobody"},
		{"The object is mended", "mended"},
		{"an amended commit", ""},
		{"certificates that are believed", "believed"},
		{"calls under way", "under way"},
		{"beside the server", "beside"},
		{"besides this", ""},
		{"nobody may read it", "nobody may"},
		{"a time that would not do", "would not do"},
		{"limits requests; who waits gives its place back", "; who waits gives its place back"},
		{"the user who waits gets an answer", ""},
		{"Who decides?", ""},
		{"not without reason", "not without"},
	} {
		got := turn(tc.text)
		if tc.match == "" && got != "" || !strings.HasPrefix(got, strconv.Quote(tc.match)) && tc.match != "" {
			t.Errorf("%q: got %q, want it to begin with %q", tc.text, got, tc.match)
		}
	}
}

// Messages, help, documents and comments are plain English.
func TestPeopleReadPlainWords(t *testing.T) {
	t.Chdir(root)
	walk(t, func(file string) {
		switch {
		case path.Ext(file) == ".md":
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			line := 1
			for _, paragraph := range regexp.MustCompile(`(?:[^\n]|\n[^\n])+\n*`).FindAllString(string(data), -1) {
				if wrong := turn(paragraph); wrong != "" {
					t.Errorf("%s:%d: %s", file, line, wrong)
				}
				line += strings.Count(paragraph, "\n")
			}
		case path.Ext(file) == ".go" && file != "internal/house/words_test.go":
			plainGo(t, file)
		}
	})
}

// plainGo checks the comments of a Go file, and its string literals if it is not a test.
func plainGo(t *testing.T, file string) {
	set := token.NewFileSet()
	f, err := parser.ParseFile(set, file, nil, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	check := func(at token.Pos, text string) {
		if wrong := turn(text); wrong != "" {
			t.Errorf("%s: %s", set.Position(at), wrong)
		}
	}
	for _, g := range f.Comments {
		check(g.Pos(), g.Text())
	}
	if strings.HasSuffix(file, "_test.go") {
		return
	}
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.ImportSpec:
			return false
		case *ast.BasicLit:
			if text, err := strconv.Unquote(n.Value); n.Kind == token.STRING && err == nil {
				check(n.Pos(), text)
			}
		}
		return true
	})
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
	return turn(s)
}

func TestSubject(t *testing.T) {
	t.Chdir(root)
	for _, tc := range []struct {
		subject string
		ok      bool
	}{
		{"admission/call: send any body to a webhook with Post", true},
		{"docs, test: say what Plan and Trace are (S2.2)", true},
		{".ci: run the linter", true},
		{"server: bring back the index", true},
		{"send any body to a webhook", false},
		{"server: Add a flag", false},
		{"server: add a flag.", false},
		{"server: what is refused is not stored", false},
		{"server: adding a flag for it", false},
		{"server: repair what was mended before", false},
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
		t.Skip("the repository is that of another project")
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
