package serving

import (
	"cmp"
	"context"
	"os"
	"strings"
	"syscall"

	"go.etcd.io/etcd/server/v3/etcdmain"

	"github.com/gatehouse-dev/gatehouse/internal/commands/cli/command"
	"github.com/gatehouse-dev/gatehouse/internal/kit/prelude"
	"github.com/gatehouse-dev/gatehouse/internal/kit/program"
	"github.com/gatehouse-dev/gatehouse/internal/kit/scratch"
)

// etcdDefaults are the defaults of etcd for tests, overridden by its command line and environment. etcd reads
// them from its environment.
var etcdDefaults = []struct{ variable, value string }{
	// A test does not need other levels of etcd's log.
	{"ETCD_LOG_LEVEL", "error"},
	// A single member elects itself; waiting for others would only delay it.
	{"ETCD_HEARTBEAT_INTERVAL", "10"},
	{"ETCD_ELECTION_TIMEOUT", "50"},
}

// RunEtcd runs the real etcd in this process, with all of its flags. It returns only when etcd returns.
func RunEtcd(ctx context.Context, args []string) {
	// etcd handles the signals after it has started.
	command.LeaveSignals(ctx)
	// The members of a cluster must agree on the election timeout.
	if !manyMembers(args) {
		for _, d := range etcdDefaults {
			if _, set := os.LookupEnv(d.variable); !set {
				os.Setenv(d.variable, d.value)
			}
		}
	}
	go watchSuite(cmp.Or(flagsOf(args)["data-dir"], os.Getenv("ETCD_DATA_DIR")))
	// etcd has little garbage and no memory limit.
	prelude.SetCollectAt(100)
	etcdmain.Main(append([]string{program.Etcd}, args...))
}

// flagsOf returns the flags of an etcd command line and their values.
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

// manyMembers reports whether etcd becomes one of several members.
func manyMembers(args []string) bool {
	for name, value := range flagsOf(args) {
		if strings.HasPrefix(name, "discovery") || name == "initial-cluster" && strings.Contains(value, ",") {
			return true
		}
	}
	return false
}

// watchSuite ends etcd when its parent process ends, and then removes the data directory if it is a temporary
// directory of envtest.
func watchSuite(dataDir string) {
	data, err := scratch.Adopt(dataDir, startedBy)
	if err != nil {
		// etcd reports problems of its directory.
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
