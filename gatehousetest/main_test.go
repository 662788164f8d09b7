package gatehousetest

import (
	"flag"
	"fmt"
	"os"
	"testing"

	"github.com/gatehouse-dev/gatehouse/test/harness"
)

var ownBuild = flag.Bool("build", false, "let the package build the program, rather than take that of the other tests")

func TestMain(m *testing.M) {
	flag.Parse()
	if !*ownBuild {
		path, err := harness.BinaryPath()
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Setenv(binaryVariable, path)
	}
	os.Exit(harness.Main(m))
}
