package prelude

import (
	"math"
	"runtime"
	"runtime/debug"
	"testing"
	"time"
)

// begun returns a started collector, and ends the collector of the program.
func begun(t *testing.T) *collector {
	t.Helper()
	start.end()
	t.Setenv("GOGC", "")
	t.Setenv("GOMEMLIMIT", "")
	percent, limit := debug.SetGCPercent(CollectAt), debug.SetMemoryLimit(-1)
	c := &collector{}
	c.begin()
	t.Cleanup(func() {
		c.end()
		debug.SetGCPercent(percent)
		debug.SetMemoryLimit(limit)
	})
	return c
}

// The first collection of garbage ends the room of the start.
func TestTheStartHasRoom(t *testing.T) {
	c := begun(t)
	if limit := debug.SetMemoryLimit(-1); limit != roomAtStart {
		t.Fatalf("the memory limit is %d", limit)
	}
	c.limitMemory(1 << 30)
	runtime.GC()
	for end := time.Now().Add(time.Minute); debug.SetMemoryLimit(-1) != 1<<30; runtime.Gosched() {
		if time.Now().After(end) {
			t.Fatal("a collection of garbage did not end the start")
		}
	}
	if percent := debug.SetGCPercent(CollectAt); percent != CollectAt {
		t.Errorf("garbage is collected at a growth of %d percent", percent)
	}
	if limit := c.takeMemoryLimit(); limit != 1<<30 {
		t.Errorf("the limit is %d", limit)
	}
}

// What another part of the program configures during the start stays.
func TestTheEndOfTheStartKeepsChoices(t *testing.T) {
	c := begun(t)
	if limit := c.takeMemoryLimit(); limit != math.MaxInt64 {
		t.Errorf("without the room of the start, the limit is %d", limit)
	}
	debug.SetMemoryLimit(1 << 31)
	SetCollectAt(60)
	c.end()
	if limit, percent := c.takeMemoryLimit(), debug.SetGCPercent(60); limit != 1<<31 || percent != 60 {
		t.Errorf("a limit of %d, and collections at %d percent", limit, percent)
	}
}

func TestTextsOfKubectlAreTranslatedWhereTheyMayBeShown(t *testing.T) {
	for _, c := range []struct {
		program string
		args    []string
		want    bool
	}{
		{program: "kubectl", args: []string{"get", "pods"}, want: true},
		{program: "gatehouse", args: []string{"kubectl", "get", "pods"}, want: true},
		{program: "gatehouse", args: []string{"--v=2", "kubectl"}, want: true},
		{program: "gatehouse", args: []string{"help", "kubectl"}, want: true},
		{program: "gatehouse", args: []string{"serve", "--test"}},
		{program: "kube-apiserver", args: []string{"--secure-port", "0"}},
		{program: "etcd"},
	} {
		if got := isKubectl(c.program, c.args); got != c.want {
			t.Errorf("%s %v: %v, want %v", c.program, c.args, got, c.want)
		}
	}
}

func TestEnglishNeedsNoTranslations(t *testing.T) {
	for language, want := range map[string]bool{
		"": true, "C": true, "C.UTF-8": true, "POSIX": true, "en_US.UTF-8": true, "en_GB": true,
		"de_DE.UTF-8": false, "zh_CN.UTF-8": false, "fr_FR": false,
	} {
		if got := isEnglish(language); got != want {
			t.Errorf("%q: %v, want %v", language, got, want)
		}
	}
}
