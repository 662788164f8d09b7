package serving

import (
	"context"
	"errors"
	"net"
	"os"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/discovery"
	"k8s.io/klog/v2"

	"github.com/gatehouse-dev/gatehouse/internal/server"
)

// supervisor is systemd, if it started the server as a service of type notify. The zero value means no systemd.
type supervisor struct {
	// socket is the notification socket of systemd.
	socket string
	// patience is the watchdog timeout of systemd; 0 means none.
	patience time.Duration
}

// newSupervisor reads the variables of systemd and removes them from the environment. The server of
// k8s.io/apiserver would otherwise report readiness as soon as it listens.
func newSupervisor() supervisor {
	s := supervisor{socket: os.Getenv("NOTIFY_SOCKET")}
	os.Unsetenv("NOTIFY_SOCKET")
	if pid := os.Getenv("WATCHDOG_PID"); pid == "" || pid == strconv.Itoa(os.Getpid()) {
		micros, _ := strconv.ParseInt(os.Getenv("WATCHDOG_USEC"), 10, 64)
		s.patience = time.Duration(micros) * time.Microsecond
	}
	return s
}

// The states in the protocol of systemd.
const ready, alive, stopping = "READY=1", "WATCHDOG=1", "STOPPING=1"

// notify reports a state.
func (s supervisor) notify(state string) {
	if s.socket == "" {
		return
	}
	conn, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: s.socket, Net: "unixgram"})
	if err == nil {
		_, err = conn.Write([]byte(state))
		err = errors.Join(err, conn.Close())
	}
	if err != nil {
		klog.ErrorS(err, "Cannot report to systemd", "state", state)
	}
}

// watch reports to the watchdog of systemd until ctx ends. It does not report while the server fails its own
// health check, so that systemd restarts it. The check excludes etcd, which a restart does not repair.
func (s supervisor) watch(ctx context.Context, a server.Address) {
	if s.socket == "" || s.patience <= 0 {
		return
	}
	client, err := discovery.NewDiscoveryClientForConfig(a.Admin)
	if err != nil {
		klog.ErrorS(err, "Cannot check the health of this server for systemd")
		return
	}
	wait.UntilWithContext(ctx, func(ctx context.Context) {
		ctx, cancel := context.WithTimeout(ctx, s.patience/3)
		defer cancel()
		if _, err := client.RESTClient().Get().AbsPath("/livez").Param("exclude", "etcd").DoRaw(ctx); err == nil {
			s.notify(alive)
		}
	}, s.patience/3)
}
