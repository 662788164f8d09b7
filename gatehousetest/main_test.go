package gatehousetest

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

func TestMain(m *testing.M) {
	code, err := runTests(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// runTests runs the tests with the program of the environment, or with a program built from the parent folder:
// this module must not depend on the program's module.
func runTests(m *testing.M) (code int, err error) {
	if os.Getenv(binaryVariable) == "" {
		dir, err := os.MkdirTemp("", "gatehousetest-")
		if err != nil {
			return 0, err
		}
		defer os.RemoveAll(dir)
		path := filepath.Join(dir, "gatehouse")
		if _, err := run("..", "go", []string{"build", "-tags=" + withoutPlugins, "-ldflags=-s -w", "-o", path, "./cmd/gatehouse"}, "GOWORK=off"); err != nil {
			return 0, err
		}
		os.Setenv(binaryVariable, path)
	}
	return m.Run(), nil
}
