package prelude

import (
	"cmp"
	"math"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"

	"k8s.io/kubectl/pkg/util/i18n"

	"github.com/gatehouse-dev/gatehouse/internal/kit/program"
)

// CollectAt is the growth of the heap, in percent, at which garbage is collected at the latest. The
// live heap of a small server is small compared with the garbage of requests under load, so a few
// times its size costs little memory and saves CPU. GOGC in the environment takes precedence.
const CollectAt = 400

// roomAtStart is the memory, in bytes, up to which a program that has just started collects no garbage. Most commands
// end below it. A collection reads all static data of the program, a tenth of the time of a short command.
const roomAtStart = 64 << 20

// collector is the state of the garbage collector from the start of the program to the first collection.
type collector struct {
	sync.Mutex
	// waits reports whether there has been no collection, and room whether roomAtStart is the memory limit of the runtime.
	waits, room bool
	// limit is the memory limit after the room.
	limit int64
}

var start collector

func init() {
	start.begin()
	language := cmp.Or(os.Getenv("LC_ALL"), os.Getenv("LC_MESSAGES"), os.Getenv("LANG"))
	if !isKubectl(program.Name(), os.Args[1:]) || isEnglish(language) {
		// kubectl's commands translate their texts during initialization, which loads all
		// translations of the language: a tenth of the program's initialization.
		_ = i18n.SetLoadTranslationsFunc(func() error { return nil })
	}
}

// begin gives the program room for its start.
func (c *collector) begin() {
	c.Lock()
	defer c.Unlock()
	switch {
	case os.Getenv("GOGC") != "":
	case os.Getenv("GOMEMLIMIT") != "":
		debug.SetGCPercent(CollectAt)
	default:
		debug.SetGCPercent(-1)
		debug.SetMemoryLimit(roomAtStart)
		c.waits, c.room, c.limit = true, true, math.MaxInt64
		// The first collection finds that nothing refers to this object.
		runtime.AddCleanup(new([64]byte), (*collector).end, c)
	}
}

// end lets garbage be collected as usual, unless another part of the program has configured that.
func (c *collector) end() {
	c.Lock()
	defer c.Unlock()
	if !c.waits {
		return
	}
	c.waits = false
	if percent := debug.SetGCPercent(CollectAt); percent >= 0 {
		debug.SetGCPercent(percent)
	}
	if c.room {
		c.room = false
		debug.SetMemoryLimit(c.limit)
	}
}

// SetCollectAt sets the growth of the heap, in percent, at which garbage is collected, unless GOGC
// is set.
func SetCollectAt(percent int) {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(percent)
	}
}

// LimitMemory sets the memory limit of the runtime, in bytes. It begins after the first collection of garbage.
func LimitMemory(bytes int64) { start.limitMemory(bytes) }

func (c *collector) limitMemory(bytes int64) {
	c.Lock()
	defer c.Unlock()
	if c.limit = bytes; !c.room {
		debug.SetMemoryLimit(bytes)
	}
}

// TakeMemoryLimit returns the memory limit of the runtime in bytes, for a caller that sets one from now on.
func TakeMemoryLimit() int64 { return start.takeMemoryLimit() }

func (c *collector) takeMemoryLimit() int64 {
	c.Lock()
	defer c.Unlock()
	if c.room {
		c.room = false
		return c.limit
	}
	return debug.SetMemoryLimit(-1)
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
