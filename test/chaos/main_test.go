package chaos

import (
	"flag"
	"os"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/test/harness"
)

var long = flag.Duration("long", 0, "how long each test goes on; 0 means a round or two")

func TestMain(m *testing.M) { os.Exit(harness.Main(m)) }

// rounds calls round with 0, 1 and so on, at least few times and until -long has passed.
func rounds(t *testing.T, few int, round func(i int)) {
	t.Helper()
	end := time.Now().Add(*long)
	for i := 0; i < few || time.Now().Before(end); i++ {
		if t.Failed() {
			return
		}
		round(i)
	}
}
