package gatehousetest_test

import (
	"testing"

	"github.com/gatehouse-dev/gatehouse/gatehousetest"
)

// The examples of tests of admission pass, each as a subtest (S24.1, S24.14).
func TestSuitesRunAsSubtests(t *testing.T) { gatehousetest.RunSuite(t, "../examples/tests") }
