package objects

import (
	"os"
	"testing"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/gatehouse-dev/gatehouse/test/harness"
)

func TestMain(m *testing.M) {
	// controller-runtime prints a warning if no logger is set.
	log.SetLogger(logr.Discard())
	os.Exit(harness.Main(m))
}
