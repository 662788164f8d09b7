package etcd

import (
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// The embedded etcd has no followers, so it keeps stored writes on disk only, and not in memory for
// followers that may have missed them.
func TestWhatIsStoredIsNotKeptForFollowers(t *testing.T) {
	const (
		writes = 1200
		size   = 64 << 10
		// etcd drops applied entries every 100 writes. Its buffers hold up to 500 of them besides.
		most = 800 * size
	)
	dir := t.TempDir()
	start := func() (*Server, *clientv3.Client) {
		s, err := Start(t.Context(), Options{Dir: dir, NoFsync: true})
		if err != nil {
			t.Fatal(err)
		}
		c, err := NewClient(t.Context(), ClientOptions{Endpoints: []string{s.Endpoint()}})
		if err != nil {
			s.Close()
			t.Fatal(err)
		}
		return s, c.Client
	}
	put := func(c *clientv3.Client, value string) {
		t.Helper()
		if _, err := c.Put(t.Context(), "/key", value); err != nil {
			t.Fatal(err)
		}
	}
	before := alive()
	// held waits until the process uses little more memory than before. A quiet etcd still keeps its
	// last step.
	held := func(when string, c *clientv3.Client) {
		t.Helper()
		for end := time.Now().Add(30 * time.Second); ; time.Sleep(100 * time.Millisecond) {
			put(c, "small")
			now := alive() - before
			if now <= most {
				return
			}
			if time.Now().After(end) {
				t.Errorf("%s, etcd holds %d MiB; it stored %d", when, now>>20, writes*size>>20)
				return
			}
		}
	}
	s, c := start()
	value := strings.Repeat("x", size)
	for i := range writes {
		put(c, value+strconv.Itoa(i))
	}
	held("after the writes", c)
	c.Close()
	s.Close()
	s, c = start()
	held("after a restart", c)
	c.Close()
	s.Close()
}

// alive is how much memory the process uses after a collection of garbage, in bytes.
func alive() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
