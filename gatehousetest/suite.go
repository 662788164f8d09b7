package gatehousetest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"testing"
)

// suiteReport is the part of the report of 'gatehouse test -o json' that RunSuite reads.
type suiteReport struct {
	Tests []struct {
		File     string
		Line     int
		Name     string
		Status   string
		Message  string
		Request  string
		Diff     string
		Repeat   string
		Failures []struct {
			Line             int
			Field, Want, Got string
		}
		Explanation []string
	}
}

// RunSuite runs tests of 'gatehouse test', each as a subtest. paths are files and directories with such tests.
// 'gatehouse test' evaluates them with a server of its own. A subtest that fails logs the reason. A test that
// cannot be evaluated fails, and a test that 'gatehouse test' skips is skipped. A path without tests or a
// broken file fails t, and so does a run in which all tests are skipped.
//
// The programs that the files name are started, as by --start-programs: RunSuite trusts the files like the test
// that calls it.
func RunSuite(t *testing.T, paths ...string) {
	t.Helper()
	program, err := binary()
	if err != nil {
		t.Fatalf("gatehousetest: %v", err)
	}
	var out, problems bytes.Buffer
	cmd := exec.CommandContext(t.Context(), program, append([]string{"test", "--start-programs", "-o", "json", "--"}, paths...)...)
	cmd.Stdout, cmd.Stderr = &out, &problems
	err = cmd.Run()
	var report suiteReport
	failed := (*exec.ExitError)(nil)
	if err != nil && (!errors.As(err, &failed) || failed.ExitCode() != 1) {
		// The report has the tests that ran nevertheless.
		t.Errorf("gatehousetest: %s: %v\n%s", strings.Join(cmd.Args, " "), err, problems.String())
	}
	if json.Unmarshal(out.Bytes(), &report) != nil || len(report.Tests) == 0 {
		t.Fatalf("gatehousetest: there are no tests in %s", strings.Join(paths, ", "))
	}
	for i := range report.Tests {
		test := &report.Tests[i]
		t.Run(test.Name, func(t *testing.T) {
			switch test.Status {
			case "pass":
			case "skip":
				t.Skipf("%s:%d: %s", test.File, test.Line, test.Message)
			case "error":
				t.Errorf("%s:%d: %s", test.File, test.Line, test.Message)
			default:
				var b strings.Builder
				for _, f := range test.Failures {
					fmt.Fprintf(&b, "\n%s:%d: %s: want %s\n    got %s", test.File, f.Line, f.Field, f.Want, f.Got)
				}
				fmt.Fprintf(&b, "\n%s\n%s\n    %s\nagain: %s", test.Diff, test.Request, strings.Join(test.Explanation, "\n    "), test.Repeat)
				t.Error(b.String())
			}
		})
	}
}
