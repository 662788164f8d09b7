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

// supervisor is systemd, if it started the server as a service of the type notify. The zero value
// stands for none.
type supervisor struct {
	// socket is where systemd listens.
	socket string
	// patience is how long systemd waits for a sign of life; 0 means for ever.
	patience time.Duration
}

// newSupervisor takes what systemd says out of the environment. The library's server would report
// that it is ready as soon as it listens.
func newSupervisor() supervisor {
	s := supervisor{socket: os.Getenv("NOTIFY_SOCKET")}
	os.Unsetenv("NOTIFY_SOCKET")
	if pid := os.Getenv("WATCHDOG_PID"); pid == "" || pid == strconv.Itoa(os.Getpid()) {
		micros, _ := strconv.ParseInt(os.Getenv("WATCHDOG_USEC"), 10, 64)
		s.patience = time.Duration(micros) * time.Microsecond
	}
	return s
}

// The states that systemd knows.
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

// watch reports that the server serves, as often as systemd asks for, until ctx ends. A server that
// does not answer its own health check is not reported, and systemd restarts it. The check leaves out
// etcd, which a restart does not bring back.
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
