package serving

import (
	"os"
	"testing"

	"github.com/gatehouse-dev/gatehouse/test/speed"
)

func TestMain(m *testing.M) { os.Exit(speed.Main(m)) }
