package prelude

import (
	"os"
	"runtime/debug"
	"slices"

	"k8s.io/kubectl/pkg/util/i18n"

	"github.com/gatehouse-dev/gatehouse/internal/kit/program"
)

// CollectAt is the growth of the heap, in percent, at which garbage is collected at the latest. The
// live heap of a small server is small compared with the garbage of requests under load, so a few
// times its size costs little memory and saves CPU. GOGC in the environment takes precedence.
const CollectAt = 400

func init() {
	SetCollectAt(CollectAt)
	if !isKubectl(program.Name(), os.Args[1:]) {
		// kubectl's commands translate their texts during initialization, which loads all
		// translations.
		_ = i18n.SetLoadTranslationsFunc(func() error { return nil })
	}
}

// SetCollectAt sets the growth of the heap, in percent, at which garbage is collected, unless GOGC
// is set.
func SetCollectAt(percent int) {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(percent)
	}
}

// isKubectl reports whether a program with a name and arguments may show texts of kubectl.
func isKubectl(name string, args []string) bool {
	return name == program.Kubectl || slices.Contains(args, program.Kubectl)
}
