package speed

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// collectAt is the growth of the heap, in percent, at which tests collect garbage. The program has the same value
// (package prelude). With Go's default, garbage collection takes up to two fifths of the time of tests.
const collectAt = 400

func init() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(collectAt)
	}
}

// Variable is the environment variable that enables the long tests.
const Variable = "GATEHOUSE_LONG"

// smoke lists tests that start a server even with -short.
var smoke = []string{"TestHealthChecksHaveTheNamesOfKubeAPIServer"}

// IsLong reports whether the long tests run.
func IsLong() bool { return os.Getenv(Variable) != "" }

// Long skips a test that takes minutes unless the long tests run.
func Long(t testing.TB) {
	t.Helper()
	if !IsLong() {
		t.Skipf("a long test: set %s=1", Variable)
	}
}

// Of returns many if the long tests run, or else few.
func Of(few, many int) int {
	if IsLong() {
		return many
	}
	return few
}

// Some returns n elements chosen by Pick. It returns all elements if the long tests run, or if -run selects
// subtests, so that each subtest can run alone.
func Some[E any](t testing.TB, n int, all []E) []E {
	t.Helper()
	if run := flag.Lookup("test.run"); run != nil && strings.Contains(run.Value.String(), "/") {
		return all
	}
	var chosen []E
	for _, i := range Pick(t, Of(n, len(all)), len(all)) {
		chosen = append(chosen, all[i])
	}
	return chosen
}

// Server skips a test that starts a server or another program of this module with -short.
func Server(t testing.TB) {
	t.Helper()
	name, _, _ := strings.Cut(t.Name(), "/")
	if testing.Short() && !slices.Contains(smoke, name) {
		t.Skip("starts a server, which -short leaves out")
	}
}

// Random returns a random number generator. The test logs its seed; GATEHOUSE_SEED sets it.
func Random(t testing.TB) *rand.Rand {
	t.Helper()
	seed, err := strconv.ParseUint(os.Getenv("GATEHOUSE_SEED"), 10, 64)
	if err != nil {
		seed = uint64(time.Now().UnixNano())
	}
	t.Logf("GATEHOUSE_SEED=%d makes the same choice", seed)
	return rand.New(rand.NewPCG(seed, 0))
}

// Pick chooses n numbers below size at random, in ascending order, or all numbers if n is larger.
func Pick(t testing.TB, n, size int) []int {
	t.Helper()
	all := make([]int, size)
	for i := range all {
		all[i] = i
	}
	if n >= size {
		return all
	}
	Random(t).Shuffle(size, func(i, j int) { all[i], all[j] = all[j], all[i] })
	slices.Sort(all[:n])
	return all[:n]
}

// Main runs the tests of a package that links the server, and returns the exit code. With -short and without
// -run it runs only the named tests (all if there are no names), and fails if one started a server. After a
// failure it prints the last log lines of the servers in this process, which are otherwise hidden.
func Main(m *testing.M, short ...string) int {
	if !flag.Parsed() {
		flag.Parse()
	}
	run := flag.Lookup("test.run")
	if testing.Short() && len(short) > 0 && run.Value.String() == "" {
		if err := run.Value.Set("^(" + strings.Join(short, "|") + ")$"); err != nil {
			panic(err)
		}
	}
	log := capture()
	code := m.Run()
	if code != 0 {
		if text := log.String(); text != "" {
			fmt.Fprintf(os.Stderr, "the last lines that servers in this process logged:\n%s", text)
		}
	}
	if testing.Short() && etcdRan() {
		fmt.Fprintln(os.Stderr, "a test started a server although -short was given: call speed.Server in it")
		code = max(code, 1)
	}
	return code
}

// etcdRan reports whether an etcd ran in this process: every server with an embedded etcd starts one.
func etcdRan() bool {
	families, _ := prometheus.DefaultGatherer.Gather()
	for _, f := range families {
		if f.GetName() == "etcd_server_proposals_applied_total" {
			for _, m := range f.GetMetric() {
				if m.GetGauge().GetValue() > 0 {
					return true
				}
			}
		}
	}
	return false
}
