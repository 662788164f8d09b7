package serving

import (
	"cmp"
	"context"
	"os"
	"strings"
	"syscall"

	"go.etcd.io/etcd/server/v3/etcdmain"

	"github.com/gatehouse-dev/gatehouse/internal/cli/command"
	"github.com/gatehouse-dev/gatehouse/internal/prelude"
	"github.com/gatehouse-dev/gatehouse/internal/program"
	"github.com/gatehouse-dev/gatehouse/internal/scratch"
)

// etcdDefaults are what etcd does for tests where neither its command line nor its
// environment says otherwise. etcd takes them from its environment.
var etcdDefaults = []struct{ variable, value string }{
	// A test does not need what etcd logs at other levels.
	{"ETCD_LOG_LEVEL", "error"},
	// A cluster of one elects itself; waiting for others would only delay it.
	{"ETCD_HEARTBEAT_INTERVAL", "10"},
	{"ETCD_ELECTION_TIMEOUT", "50"},
}

// RunEtcd turns this process into etcd, the real one, with all of its flags. It returns
// only when etcd does.
func RunEtcd(ctx context.Context, args []string) {
	// etcd takes over the signals when it has started.
	command.LeaveSignals(ctx)
	// The members of a cluster must agree on how long they wait for one another.
	if !manyMembers(args) {
		for _, d := range etcdDefaults {
			if _, set := os.LookupEnv(d.variable); !set {
				os.Setenv(d.variable, d.value)
			}
		}
	}
	go watchSuite(cmp.Or(flagsOf(args)["data-dir"], os.Getenv("ETCD_DATA_DIR")))
	// It has little to collect, and no limit of its memory.
	prelude.SetCollectAt(100)
	etcdmain.Main(append([]string{program.Etcd}, args...))
}

// flagsOf returns the values of the flags of an etcd.
func flagsOf(args []string) map[string]string {
	flags := map[string]string{}
	for i, arg := range args {
		name, value, given := strings.Cut(strings.TrimLeft(arg, "-"), "=")
		if !given && i+1 < len(args) {
			value = args[i+1]
		}
		flags[name] = value
	}
	return flags
}

// manyMembers reports whether etcd is to be one of several members.
func manyMembers(args []string) bool {
	for name, value := range flagsOf(args) {
		if strings.HasPrefix(name, "discovery") || name == "initial-cluster" && strings.Contains(value, ",") {
			return true
		}
	}
	return false
}

// watchSuite ends etcd with the process that started it, and then removes the data
// directory if it is a temporary one of envtest.
func watchSuite(dataDir string) {
	data, err := scratch.Adopt(dataDir, startedBy)
	if err != nil {
		// etcd says what is wrong with its directory.
		return
	}
	if !orphaned(context.Background()) {
		return
	}
	if data != nil {
		data.Remove()
		os.Exit(command.ExitError)
	}
	_ = syscall.Kill(os.Getpid(), syscall.SIGTERM)
}
