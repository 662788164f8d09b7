package harness

import (
	"regexp"
	"testing"

	"github.com/gatehouse-dev/gatehouse/test/speed"
)

var exampleReady = regexp.MustCompile(` is ready at (\S+.*)$`)

// StartExample builds a program of the folder examples and runs it until the end of the test. It returns the
// address in the program's ready line.
func StartExample(t testing.TB, name string, args ...string) string {
	t.Helper()
	speed.Server(t)
	path, err := build("example-"+name, "./examples/"+name)
	if err != nil {
		t.Fatal(err)
	}
	return startUntilTheEnd(t, name, path, args...)
}

// StartCommand runs a serving gatehouse command until the end of the test. It returns the address in the
// command's ready line.
func StartCommand(t testing.TB, args ...string) string {
	t.Helper()
	return startUntilTheEnd(t, args[0], Binary(t), args...)
}

// StartAgent is StartCommand for the program gatehouse-agent.
func StartAgent(t testing.TB, args ...string) string {
	t.Helper()
	speed.Server(t)
	path, err := agentBinary()
	if err != nil {
		t.Fatal(err)
	}
	return startUntilTheEnd(t, "gatehouse-agent", path, args...)
}

func startUntilTheEnd(t testing.TB, name, path string, args ...string) string {
	t.Helper()
	p, match, err := startProcess(exampleReady, path, args...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Stop(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	})
	return match[1]
}
