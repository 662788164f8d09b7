package monitoring_test

import (
	"os"
	"testing"

	"github.com/gatehouse-dev/gatehouse/test/harness"
)

func TestMain(m *testing.M) { os.Exit(harness.Main(m)) }
