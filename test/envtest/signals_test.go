package envtest

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/test/speed"
)

// SIGTERM ends etcd at any time, including during its start.
func TestEtcdEndsBySIGTERMWhileItStarts(t *testing.T) {
	etcd := filepath.Join(assets(t), "etcd")
	const moments = 16
	for _, i := range speed.Pick(t, speed.Of(3, moments), moments) {
		var urls []string
		for range 2 {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			urls = append(urls, fmt.Sprintf("http://%s", l.Addr()))
			l.Close()
		}
		cmd := exec.Command(etcd, "--data-dir", t.TempDir(), "--listen-client-urls", urls[0], "--advertise-client-urls", urls[0], "--listen-peer-urls", urls[1], "--unsafe-no-fsync=true")
		cmd.Stderr = os.Stderr
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() { ended <- cmd.Wait() }()
		after := time.Duration(i) * 20 * time.Millisecond
		time.Sleep(after)
		if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Errorf("after %s: %v", after, err)
		}
		select {
		case <-ended:
		case <-time.After(30 * time.Second):
			_ = cmd.Process.Kill()
			<-ended
			t.Errorf("a SIGTERM that came %s after the start was lost", after)
		}
	}
}
