package prelude

import (
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"

	"k8s.io/kubectl/pkg/util/i18n"
)

// ProgramVariable names the environment variable with the name that the program is to go
// by. The scripts of a release's archive for setup-envtest set it: that archive cannot have
// links.
const ProgramVariable = "GATEHOUSE_PROGRAM"

// Kubectl is the name of kubectl, as a program and as a command.
const Kubectl = "kubectl"

// CollectAt is the growth of the heap, in percent, at which garbage is collected
// at the latest. The live heap of a small server is small compared with what requests
// under load throw away, so a few times its size costs little memory and saves
// CPU. GOGC in the environment overrules it.
const CollectAt = 400

func init() {
	SetCollectAt(CollectAt)
	if !isKubectl(Program(), os.Args[1:]) {
		// kubectl's commands ask for the translations of their texts when they are
		// initialized, which loads them all.
		_ = i18n.SetLoadTranslationsFunc(func() error { return nil })
	}
}

// SetCollectAt sets the growth of the heap, in percent, at which garbage is collected, unless
// GOGC is set.
func SetCollectAt(percent int) {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(percent)
	}
}

// Program returns the name that the program was started under.
func Program() string {
	if name := os.Getenv(ProgramVariable); name != "" {
		return name
	}
	if len(os.Args) == 0 {
		return ""
	}
	return strings.TrimSuffix(filepath.Base(os.Args[0]), ".exe")
}

// isKubectl reports whether a program of that name and with these arguments may show texts of
// kubectl.
func isKubectl(program string, args []string) bool {
	return program == Kubectl || slices.Contains(args, Kubectl)
}
