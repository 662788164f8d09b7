package replay

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/internal/commands/predict/requestlog"
	"github.com/gatehouse-dev/gatehouse/internal/kit/terminal"
)

// reportOf returns a report with many groups and policies, whose texts come from a hostile recording.
func reportOf(groups int) *Report {
	const hostile = "\x1b[31mred\u202e\nnewline"
	r := &Report{KubernetesVersion: "v1.37.2", Judged: 100_000, Input: requestlog.Count{
		LeftOut: []requestlog.Reason{{Reason: "the kind \"" + hostile + "\"", Count: 2, First: "a" + hostile + ":1"}}, Problems: []string{hostile}}}
	for i := range groups {
		name := fmt.Sprintf("policy p%03d", i)
		r.Groups = append(r.Groups, &Group{Change: NewlyRejected, By: []string{name}, Count: 1000 - i, Users: []Share{{Name: hostile, Count: 1}},
			Examples: []*Example{{Request: "CREATE pods shop/" + hostile, Place: "f:1", After: []string{hostile}}, {Request: "b"}, {Request: "c"}}})
		r.Policies = append(r.Policies, &Policy{Name: name, RejectedBefore: 7, RejectedAfter: 7 + i%2*i})
		r.Changed += 1000 - i
	}
	return r
}

// S25.5: a report for people fits a few screens, however many groups and policies there are, and says how many it
// leaves out. S25.6: no text of the input acts on a terminal or in a page.
func TestAReplayIsAPageForPeople(t *testing.T) {
	var screen bytes.Buffer
	if err := reportOf(300).Write(terminal.NewWriter(&screen), "text", true); err != nil {
		t.Fatal(err)
	}
	text := screen.String()
	if lines := strings.Count(text, "\n"); lines > 200 {
		t.Errorf("%d lines", lines)
	}
	for _, want := range []string{
		"newly rejected: 1000, by policy p000\n", "newly rejected: 961, by policy p039\n", "requests more, in 260 groups\n", "-o html and -o json have all",
		"policy p299 rejects 7 before, 306 after\n", "others reject more or fewer than before: 130 of them\n", "others reject as many as before: 150 of them, 1050 requests\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the text has no %q:\n%s", want, text)
		}
	}
	var page, data bytes.Buffer
	var summary bytes.Buffer
	for format, out := range map[string]*bytes.Buffer{"html": &page, "json": &data, "markdown": &summary} {
		if err := reportOf(300).Write(terminal.NewWriter(out), format, true); err != nil {
			t.Fatal(err)
		}
		if n := strings.Count(out.String(), "p299"); n == 0 {
			t.Errorf("-o %s does not have the last group", format)
		}
	}
	for name, out := range map[string]string{"text": text, "html": page.String(), "json": data.String()} {
		if name != "json" && strings.ContainsAny(out, "\x1b\u202e") || strings.Contains(out, "\x1b") {
			t.Errorf("-o %s has characters that act on a terminal", name)
		}
	}
	if strings.Contains(page.String(), "http://") || strings.Contains(page.String(), "https://") || strings.Contains(page.String(), "<script") {
		t.Error("the page needs something from elsewhere")
	}
}

// S25.18: a gate fails on its own changes, and DiffersAny also on undecided requests.
func TestGatesOfAReplay(t *testing.T) {
	all := []Gate{"", Rejects, ChangesAny, DiffersAny}
	for _, tt := range []struct {
		name   string
		report Report
		fails  []Gate
	}{
		{"nothing differs", Report{Judged: 9}, nil},
		{"newly rejected", Report{Changed: 1, Changes: map[Change]int{NewlyRejected: 1}}, all[1:]},
		{"newly allowed", Report{Changed: 1, Changes: map[Change]int{NewlyAllowed: 1}}, all[2:]},
		{"another reason", Report{Changed: 1, Changes: map[Change]int{OtherRejection: 1}}, all[2:]},
		{"another object", Report{Changed: 1, Changes: map[Change]int{OtherObject: 1}}, all[2:]},
		{"other webhooks", Report{Changed: 1, Changes: map[Change]int{OtherCalls: 1}}, all[3:]},
		{"not known", Report{Undecided: 1}, all[3:]},
	} {
		var fails []Gate
		for _, g := range all {
			if tt.report.Fails(g) {
				fails = append(fails, g)
			}
		}
		if !slices.Equal(fails, tt.fails) {
			t.Errorf("%s: %q, want %q", tt.name, fails, tt.fails)
		}
	}
}

// S25.16: a report for people names the policies and webhooks that select by unknown labels.
func TestAReplaySaysWhatIsUnknown(t *testing.T) {
	var screen bytes.Buffer
	r := &Report{Judged: 9, Undecided: 2, Recorded: Recorded{Compared: 4, Differ: 1, Without: 5}, Unknown: []*Unknown{{By: "policy prod", Count: 2, Namespaces: []Share{{Name: "shop", Count: 2}}, First: "log:1"}}}
	if err := r.Write(terminal.NewWriter(&screen), "text", true); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"unknown: 2 requests decided without the labels of shop, which are unknown, and policy prod asks for them (log:1)\n", "2 requests may have another verdict",
		"1 of 4 requests with a recorded answer have another one from the baseline\n", "5 requests without a recorded answer: the audit log of the same time, named too, has the answers\n"} {
		if !strings.Contains(screen.String(), want) {
			t.Errorf("the text has no %q:\n%s", want, screen.String())
		}
	}
}

// An object whose name is not a string would have no effect.
func TestNamesThatAreNoTexts(t *testing.T) {
	path := filepath.Join(t.TempDir(), "policy.yaml")
	if err := os.WriteFile(path, []byte("apiVersion: admissionregistration.k8s.io/v1\nkind: ValidatingAdmissionPolicy\nmetadata: {name: no}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadRegistrations([]string{path}); err == nil || !strings.Contains(err.Error(), "policy.yaml:1: the ValidatingAdmissionPolicy has no metadata.name that is a text") {
		t.Errorf("%v", err)
	}
}
