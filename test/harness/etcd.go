package harness

import (
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/test/speed"
)

// Etcd is an etcd in a separate process.
type Etcd struct {
	// URL is http://HOST:PORT.
	URL string

	dir     string
	process *process
}

var etcdReady = regexp.MustCompile(`^etcd is ready at (http://\S+)$`)

var etcdBinary = sync.OnceValues(func() (string, error) { return build("etcd", "./test/harness/etcd") })

// StartEtcd starts an empty etcd and stops it at the end of the test.
func StartEtcd(t testing.TB) *Etcd {
	t.Helper()
	speed.Server(t)
	// Not t.TempDir: some names of tests cannot be part of the configuration of etcd.
	dir, err := os.MkdirTemp("", "etcd-")
	if err != nil {
		t.Fatal(err)
	}
	e := &Etcd{URL: "http://127.0.0.1:0", dir: filepath.Join(dir, "data")}
	t.Cleanup(func() {
		if e.process != nil {
			e.Kill(t)
		}
		os.RemoveAll(dir)
	})
	e.Start(t)
	return e
}

// Dir returns the data directory.
func (e *Etcd) Dir() string { return e.dir }

// Start restarts a killed etcd on its data and its address.
func (e *Etcd) Start(t testing.TB) {
	t.Helper()
	name, err := etcdBinary()
	if err != nil {
		t.Fatal(err)
	}
	p, match, err := startProcess(etcdReady, name, e.dir, strings.TrimPrefix(e.URL, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	e.process, e.URL = p, match[1]
}

// Kill ends the etcd with SIGKILL.
func (e *Etcd) Kill(t testing.TB) {
	t.Helper()
	p := e.process
	e.process = nil
	if err := p.Kill(); err != nil {
		t.Error(err)
	}
}

// Pause makes the etcd hang: it accepts connections and does not answer until Resume.
func (e *Etcd) Pause(t testing.TB) {
	t.Helper()
	e.signal(t, syscall.SIGSTOP)
	client := http.Client{Timeout: 200 * time.Millisecond}
	defer client.CloseIdleConnections()
	Eventually(t, "etcd hangs", func() error {
		res, err := client.Get(e.URL + "/version")
		if err != nil {
			return nil
		}
		res.Body.Close()
		return errors.New("it answers")
	})
}

// Stall is Pause without waiting until the etcd hangs.
func (e *Etcd) Stall(t testing.TB) {
	t.Helper()
	e.signal(t, syscall.SIGSTOP)
}

// Resume lets a paused etcd continue.
func (e *Etcd) Resume(t testing.TB) { e.signal(t, syscall.SIGCONT) }

func (e *Etcd) signal(t testing.TB, signal syscall.Signal) {
	t.Helper()
	if err := e.process.cmd.Process.Signal(signal); err != nil {
		t.Fatal(err)
	}
}
