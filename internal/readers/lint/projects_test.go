package lint_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"

	"github.com/gatehouse-dev/gatehouse/internal/commands/predict/offline"
	"github.com/gatehouse-dev/gatehouse/internal/readers/lint"
	"github.com/gatehouse-dev/gatehouse/internal/readers/manifests"
)

// judgement is a line about a finding: whether it is useful, and the finding. The next line is the reason.
type judgement struct{ verdict, finding, why string }

// Each finding in the registrations of real projects is rated in testdata/projects: would a maintainer of the project
// act on it? The test fails for a finding without a rating. No finding is false, and nine of ten are useful.
func TestFindingsInRealProjects(t *testing.T) {
	names, err := filepath.Glob("testdata/projects/*.txtar")
	if err != nil || len(names) < 16 {
		t.Fatalf("%d projects, %v", len(names), err)
	}
	count := map[string]int{}
	for _, name := range names {
		t.Run(strings.TrimSuffix(filepath.Base(name), ".txtar"), func(t *testing.T) {
			archive, err := txtar.ParseFile(name)
			if err != nil {
				t.Fatal(err)
			}
			last := archive.Files[len(archive.Files)-1]
			if last.Name != "findings" {
				t.Fatalf("the last part is %s", last.Name)
			}
			want := judgements(t, string(last.Data))
			dir := t.TempDir()
			for _, f := range archive.Files[:len(archive.Files)-1] {
				file := filepath.Join(dir, filepath.FromSlash(f.Name))
				if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
					t.Fatal(err)
				}
				writeFile(t, file, string(f.Data))
			}
			w, _, unread, err := offline.Survey([]string{dir}, nil, &manifests.Ignore{Tests: true})
			if err != nil || len(unread) > 0 {
				t.Fatalf("%v %q", err, unread)
			}
			world, err := w.Lint(t.Context(), exampleTime, nil)
			if err != nil {
				t.Fatal(err)
			}
			if webhooks, policies, _ := world.Count(); webhooks+policies == 0 {
				t.Fatal("there is nothing to look at")
			}
			for _, f := range lint.Check(t.Context(), world, lint.Options{}).Findings {
				found := fmt.Sprintf("%s %s %s %s", f.Level, f.Rule.ID, f.Object, f.Field())
				i := slices.IndexFunc(want, func(j judgement) bool { return j.finding == found })
				if i < 0 {
					t.Errorf("not judged yet:\n%s\n  %s", found, f.Message)
					continue
				}
				count[want[i].verdict]++
				want = slices.Delete(want, i, i+1)
			}
			for _, j := range want {
				t.Errorf("is not found any more: %s", j.finding)
			}
		})
	}
	useful, useless := count["useful"], count["useless"]
	t.Logf("%d useful, %d useless", useful, useless)
	if useful*10 < (useful+useless)*9 {
		t.Errorf("of %d findings, %d are useful", useful+useless, useful)
	}
}

// judgements reads the ratings: pairs of lines.
func judgements(t *testing.T, text string) (list []judgement) {
	t.Helper()
	lines := strings.Split(strings.TrimSpace(text), "\n")
	for i := 0; i+1 < len(lines); i += 2 {
		verdict, finding, ok := strings.Cut(lines[i], ": ")
		why := strings.TrimSpace(lines[i+1])
		if !ok || verdict != "useful" && verdict != "useless" || why == "" || !strings.HasPrefix(lines[i+1], "  ") {
			t.Fatalf("%q, %q: write 'useful: ' or 'useless: ' with the finding, and below it why", lines[i], lines[i+1])
		}
		list = append(list, judgement{verdict, finding, why})
	}
	return list
}
