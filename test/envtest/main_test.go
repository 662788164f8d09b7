package envtest

import (
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/gatehouse-dev/gatehouse/test/harness"
)

// Larger numbers find rarer bugs, in more time than CI has. 200 starts and 10,000 writes take minutes, and on
// a very busy machine an hour: use -timeout 90m.
var (
	starts = flag.Int("starts", 4, "how many environments to start, four at a time")
	writes = flag.Int("writes", 400, "how many writes to make right after webhooks were installed")
)

func TestMain(m *testing.M) {
	log.SetLogger(logr.Discard())
	code := harness.Main(m)
	if dir, err := programs(); err == nil {
		os.RemoveAll(dir)
	}
	os.Exit(code)
}

// assets returns a folder with the programs, as envtest expects it.
func assets(t *testing.T) string {
	t.Helper()
	harness.Binary(t)
	dir, err := programs()
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

var programs = sync.OnceValues(func() (string, error) {
	binary, err := harness.BinaryPath()
	if err != nil {
		return "", err
	}
	dir, err := os.MkdirTemp("", "assets-")
	if err != nil {
		return "", err
	}
	return dir, exec.Command(binary, "envtest", "install", filepath.Join(dir)).Run()
})
