package prelude

import (
	"cmp"
	"os"
	"runtime/debug"
	"slices"
	"strings"

	"k8s.io/kubectl/pkg/util/i18n"

	"github.com/gatehouse-dev/gatehouse/internal/kit/program"
)

// CollectAt is the growth of the heap, in percent, at which garbage is collected at the latest. The
// live heap of a small server is small compared with the garbage of requests under load, so a few
// times its size costs little memory and saves CPU. GOGC in the environment takes precedence.
const CollectAt = 400

func init() {
	SetCollectAt(CollectAt)
	language := cmp.Or(os.Getenv("LC_ALL"), os.Getenv("LC_MESSAGES"), os.Getenv("LANG"))
	if !isKubectl(program.Name(), os.Args[1:]) || isEnglish(language) {
		// kubectl's commands translate their texts during initialization, which loads all
		// translations of the language: a tenth of the program's initialization.
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

// isEnglish reports whether kubectl's texts stay as they are in a language of the environment: the translations into
// English repeat them.
func isEnglish(language string) bool {
	name, _, _ := strings.Cut(language, ".")
	return name == "" || name == "C" || name == "POSIX" || strings.HasPrefix(name, "en_")
}
