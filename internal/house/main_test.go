package house

import (
	"log"
	"os"
	"testing"
)

// root is the root of the tree, seen from this package.
const root = "../.."

// TestMain runs the tests in the root of the tree: the paths in them are those that people write.
func TestMain(m *testing.M) {
	if err := os.Chdir(root); err != nil {
		log.Fatal(err)
	}
	os.Exit(m.Run())
}
