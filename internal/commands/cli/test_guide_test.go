package cli

import (
	"encoding/xml"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/gatehouse-dev/gatehouse/internal/commands/cli/command"
)

// The first test of docs/test.md prints the output on the page, and the commands of its recipes for code hosts
// print the formats of the hosts.
func TestTheGuideOfTests(t *testing.T) {
	page, err := os.ReadFile("../../../docs/test.md")
	if err != nil {
		t.Fatal(err)
	}
	t.Chdir(t.TempDir())
	var blocks []string
	for _, block := range regexp.MustCompile("(?ms)^```yaml\n(.*?)^```").FindAllSubmatch(page, -1) {
		blocks = append(blocks, string(block[1]))
	}
	block := func(mark string) string {
		for _, text := range blocks {
			if strings.Contains(text, mark) {
				return text
			}
		}
		t.Fatalf("the page has no block with %q", mark)
		return ""
	}
	for name, mark := range map[string]string{"limits.yaml": "metadata: {name: limits}", "tests.yaml": "kind: AdmissionTests"} {
		file := filepath.Join("policies", name)
		if err := os.MkdirAll("policies", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(block(mark)), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	out, problems, code := execution(t.Context(), "", "test", "policies/")
	if code != command.ExitOK || !strings.Contains(string(page), "    $ gatehouse test policies/\n    "+strings.TrimRight(out, "\n")+"\n") {
		t.Errorf("the first test: exit %d, %q, %q", code, out, problems)
	}

	var github struct {
		Jobs map[string]struct{ Steps []struct{ Run string } }
	}
	if err := yaml.UnmarshalStrict([]byte(strings.NewReplacer("\non:", "\n\"on\":").Replace(block("runs-on:"))), &map[string]any{}); err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal([]byte(block("runs-on:")), &github); err != nil {
		t.Fatal(err)
	}
	var gitlab map[string]struct{ Script []string }
	if err := yaml.Unmarshal([]byte(block("image: golang")), &gitlab); err != nil {
		t.Fatal(err)
	}
	var commands []string
	for _, step := range github.Jobs["policies"].Steps {
		commands = append(commands, step.Run)
	}
	commands = append(commands, gitlab["policies"].Script...)
	ran := 0
	for _, typed := range commands {
		line, ok := strings.CutPrefix(typed, "gatehouse ")
		if !ok {
			continue
		}
		ran++
		line, file, _ := strings.Cut(line, " > ")
		out, problems, code := execution(t.Context(), "", strings.Fields(line)...)
		if code != command.ExitOK {
			t.Errorf("%s: exit %d, %s%s", typed, code, out, problems)
		}
		if file == "" {
			continue
		}
		var report struct {
			Tests  int `xml:"tests,attr"`
			Suites []struct {
				Cases []struct {
					Name string `xml:"name,attr"`
				} `xml:"testcase"`
			} `xml:"testsuite"`
		}
		if err := xml.Unmarshal([]byte(out), &report); err != nil || report.Tests != 2 || len(report.Suites) != 1 || len(report.Suites[0].Cases) != 2 {
			t.Errorf("%s: %v, %+v in\n%s", typed, err, report, out)
		}
	}
	if ran != 2 {
		t.Errorf("%d commands of recipes ran, want one for each code host: %q", ran, commands)
	}
}
