package reference

import (
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/gatehouse-dev/gatehouse/test/harness"
	"github.com/gatehouse-dev/gatehouse/test/pagetest"
)

var update = flag.Bool("update", false, "write the pages anew")

func TestMain(m *testing.M) { os.Exit(harness.Main(m)) }

// check compares a page with its expected text, below a title and a remark.
func check(t *testing.T, file, title, text string) {
	t.Helper()
	pagetest.Reference(t, filepath.Join("..", ".."), "./docs/reference", *update, file, title, text)
}
