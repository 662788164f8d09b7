package operations

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/test/harness"
)

func TestMain(m *testing.M) { os.Exit(harness.Main(m)) }

// notRun maps the beginnings of blocks that no test runs to the reason.
var notRun = map[string]string{
	"sha256sum --check":                   "needs a release",
	"CGO_ENABLED=0 go install":            "needs a published release",
	"podman ":                             "needs podman",
	"install -m 755":                      "needs root and systemd",
	"kubectl exec":                        "needs a cluster with nodes",
	"gatehouse serve --data-dir /var/lib": "is how tests start servers",
	"gatehouse cluster ":                  "is what TestServersJoin in test/replicas does",
	"gatehouse serve --backup-schedule":   "waits for hours; TestScheduledBackups has another schedule",
	"defaults":                            "is configuration, which TestFromOneServerToThree uses",
	"frontend api":                        "is configuration, which TestFromOneServerToThree uses",
	"backend servers":                     "is configuration, which TestFromOneServerToThree uses",
	"apiVersion: apiserver":               "is configuration; TestEncryptionAtRest has others",
	"Error from server":                   "is an output",
	"NAME ":                               "is an output",
	`{"ts":`:                              "is an output",
}

// follows matches a call that runs a block of the page; its last argument is the text that identifies the
// block.
var follows = regexp.MustCompile("\\.(?:Follow|Begin)\\((?:m\\.)?t, [^,]+, (\"(?:[^\"\\\\]|\\\\.)*\"|`[^`]*`)\\)")

// Every command of the page is run by a test, or has a reason in notRun.
func TestEveryCommandIsRun(t *testing.T) {
	t.Parallel()
	tests, err := filepath.Glob(filepath.Join("..", "*", "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	var run []string
	for _, name := range tests {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, call := range follows.FindAllStringSubmatch(string(text), -1) {
			with, err := strconv.Unquote(call[1])
			if err != nil {
				t.Fatal(err)
			}
			run = append(run, with)
		}
	}
	used := map[string]bool{}
	for part := range strings.SplitSeq(harness.OperationsPages(t), "\n\n") {
		text, found := strings.CutPrefix(part, "    ")
		if !found || slices.ContainsFunc(run, func(with string) bool { return strings.Contains(text, with) }) {
			continue
		}
		excused := false
		for beginning := range notRun {
			if strings.HasPrefix(text, beginning) {
				used[beginning], excused = true, true
			}
		}
		if !excused {
			t.Errorf("no test runs this:\n%s", part)
		}
	}
	for beginning, why := range notRun {
		if !used[beginning] {
			t.Errorf("the page has no block that begins with %q and that no test runs (%s)", beginning, why)
		}
	}
}
