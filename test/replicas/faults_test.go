//go:build linux

package replicas

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/test/harness"
	"github.com/gatehouse-dev/gatehouse/test/speed"
)

// space is the size of a disk that can be full.
const space = 1 << 30

// fault is a temporary failure.
type fault struct {
	name         string
	fail, repair func()
	// long is the duration of the fault in runs with many faults; 0 means the default duration.
	long time.Duration
}

// TestHistoriesOfJoinedServers verifies S31.9 in both modes: no write escapes a registration that was
// acknowledged before the write began (strict mode), or earlier than that by more than the maximum staleness
// (bounded mode); and no acknowledged write is lost, while members are killed, paused, out of disk space,
// partitioned, running with a wrong clock, added and removed. GATEHOUSE_FAULTS is the number of faults; the
// list of faults repeats as needed. GATEHOUSE_FAULT selects the faults whose name contains it.
func TestHistoriesOfJoinedServers(t *testing.T) {
	t.Parallel()
	const maxStaleness = 5 * time.Second
	judged, scheduling := extent()
	count, many := speed.Of(1, 5), false
	if n, err := strconv.Atoi(os.Getenv("GATEHOUSE_FAULTS")); err == nil {
		count, many = n, true
	}
	// The ordinary run has the bounded mode in TestHistories.
	for i, mode := range []string{"strict", "bounded"}[:speed.Of(1, 2)] {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			var f *fleet
			var disk *harness.Disk
			if !many && !speed.IsLong() {
				f = sharedFleet(t, joined, "--admission-consistency", mode)
			} else {
				dir := t.TempDir()
				var err error
				if disk, err = harness.NewDisk(t, space); err == nil {
					dir = disk.Dir
				} else {
					t.Logf("no disk is full: %v", err)
				}
				f = newJoinedFleetOn(t, dir, "", "--admission-consistency", mode)
			}
			f.tellers()
			h := newHistory()
			only := os.Getenv("GATEHOUSE_FAULT")
			all := slices.DeleteFunc(f.memberFaults(t, mode, disk), func(f fault) bool { return !strings.Contains(f.name, only) })
			began := time.Now()
			plain := &plainWrites{}
			f.record(t, h, judged, func(ctx context.Context) {
				ctx, stop := context.WithCancel(ctx)
				defer plain.writing.Wait()
				defer stop()
				for server := range f.servers {
					plain.writing.Go(func() { plain.write(ctx, f.client(server), server) })
				}
				for n := range count {
					// The two modes together cover most of the faults.
					fault := all[(i*count+n)%len(all)]
					length := 3 * time.Second
					if many {
						length = max(4*time.Second, fault.long)
					}
					before := h.count()
					fault.fail()
					pause(ctx, length)
					during := h.count()
					fault.repair()
					pause(ctx, 2*time.Second)
					t.Logf("%d: %s: %d writes judged, %d after", n+1, fault.name, during-before, h.count()-during)
				}
			})
			took := time.Since(began)
			bound := time.Duration(0)
			if mode == "bounded" {
				bound = maxStaleness + scheduling
			}
			h.report(t, bound, bound)
			var created []string
			for _, j := range h.judgements {
				if j.created != "" {
					created = append(created, j.created)
				}
			}
			f.lostNone(configMaps, created)
			f.lostNone(leases, plain.acknowledged)
			t.Logf("0 of %d and %d acknowledged creates lost; %.0f writes a second", len(created), len(plain.acknowledged), float64(h.count()+len(plain.acknowledged))/took.Seconds())
		})
	}
}

// plainWrites are writes that no registration matches, which are faster.
type plainWrites struct {
	writing      sync.WaitGroup
	mu           sync.Mutex
	acknowledged []string
}

func (p *plainWrites) write(ctx context.Context, c *client, server int) {
	for i := 0; ctx.Err() == nil; i++ {
		name := fmt.Sprintf("l-%d-%d", server, i)
		within, cancel := context.WithTimeout(ctx, 5*time.Second)
		a, err := c.send(within, http.MethodPost, leases, map[string]any{"metadata": map[string]any{"name": name}})
		cancel()
		if err == nil && a.code == http.StatusCreated {
			p.mu.Lock()
			p.acknowledged = append(p.acknowledged, name)
			p.mu.Unlock()
			pause(ctx, breath())
			continue
		}
		// Do not retry an unavailable server in a tight loop.
		pause(ctx, 20*time.Millisecond)
	}
}

// memberFaults returns the faults of joined servers. disk is the disk of the third server; nil if that server
// has no separate disk.
func (f *fleet) memberFaults(t *testing.T, mode string, disk *harness.Disk) []fault {
	fallen := 0
	killed := func(server func() int) (fail, repair func()) {
		return func() { fallen = server(); f.servers[fallen].Kill(t) }, func() { f.servers[fallen].Restart(t) }
	}
	links := func(call func(*link)) (fail, repair func()) {
		return func() { f.eachPeer(call) }, func() { f.eachPeer((*link).Restore) }
	}
	var all []fault
	add := func(name string, fail, repair func()) {
		all = append(all, fault{name: name, fail: fail, repair: repair})
	}
	fail, repair := killed(f.leader)
	add("the leader is killed", fail, repair)
	fail, repair = links((*link).Shake)
	add("the network delays, reorders and breaks", fail, repair)
	add("two servers are killed", func() { f.servers[0].Kill(t); f.servers[1].Kill(t) }, func() { restartAll(t, f.servers[:2]...) })
	add("the leader hangs", func() { fallen = f.leader(); f.servers[fallen].Pause(t) }, func() { f.servers[fallen].Resume(t) })
	all[len(all)-1].long = 20 * time.Second
	f.clockFault(t, add, 1, 5*time.Minute)
	fourth, flags := "", []string(nil)
	add("a server is killed while it joins", func() {
		fourth, flags = t.TempDir(), f.joining(t, mode)
		killAfter(t, time.Duration(rand.IntN(2000))*time.Millisecond, fourth, flags...)
	}, func() {
		s := harness.StartOn(t, fourth, flags...)
		f.remove(t, s)
	})
	fail, repair = links((*link).Cut)
	add("all members are cut off from each other", fail, repair)
	if disk != nil {
		add("a disk is full", func() { f.fill(t, disk) }, func() { disk.Leave(t, space); f.servers[2].Restart(t) })
	}
	var leaving *harness.Server
	add("a server is killed while it is removed", func() {
		leaving = harness.StartOn(t, t.TempDir(), f.joining(t, mode)...)
	}, func() {
		name := state(t, leaving).Name
		done := make(chan struct{})
		go func() { defer close(done); f.removeNamed(t, name) }()
		time.Sleep(time.Duration(rand.IntN(300)) * time.Millisecond)
		leaving.Kill(t)
		<-done
	})
	fail, repair = links((*link).Hang)
	add("nothing comes through between the members", fail, repair)
	for i := range f.servers {
		fail, repair := killed(func() int { return i })
		add(fmt.Sprintf("server %d is killed", i), fail, repair)
	}
	add("the leader ends in order", func() { fallen = f.leader(); f.servers[fallen].Stop(t) }, func() { f.servers[fallen].Restart(t) })
	add("nobody reaches the leader's peer port", func() { fallen = f.leader(); f.links[fallen][0].Cut() }, func() { f.links[fallen][0].Restore() })
	f.clockFault(t, add, 0, -5*time.Minute)
	if disk != nil {
		add("a disk is nearly full", func() { disk.Leave(t, 100<<20) }, func() { disk.Leave(t, space) })
	}
	return all
}

// clockFault adds a fault that sets the clock of a server ahead.
func (f *fleet) clockFault(t *testing.T, add func(string, func(), func()), server int, ahead time.Duration) {
	s := f.servers[server]
	if !s.Clock(t, 0) {
		t.Log("no clock is wrong: this machine does not let a test change that of a process")
		return
	}
	set := func(ahead time.Duration) func() {
		return func() { s.Kill(t); s.Clock(t, ahead); s.Restart(t) }
	}
	add(fmt.Sprintf("the clock of server %d is ahead by %s", server, ahead), set(ahead), set(0))
}

// joining returns the flags of a joining server.
func (f *fleet) joining(t *testing.T, mode string) []string {
	t.Helper()
	// Wait until the other servers have a leader.
	f.leader()
	return joins(f.servers[0], newToken(t, f.servers[0], 1), newPeer(t), "--admission-consistency", mode)
}

// fill fills the disk of the third server until the server ends.
func (f *fleet) fill(t *testing.T, disk *harness.Disk) {
	t.Helper()
	disk.Leave(t, 0)
	c := f.client(0)
	const at = "/api/v1/namespaces/kube-public/secrets"
	i := 0
	write := func() bool {
		i++
		body := map[string]any{"metadata": map[string]any{"name": "filler"}, "stringData": map[string]any{"value": strings.Repeat("x", 1_000_000) + strconv.Itoa(i)}}
		// Update the filler if it exists. Writes may fail while the other servers have no leader.
		a, err := c.send(harness.Context(t), http.MethodPut, at+"/filler", body)
		if err == nil && a.code == http.StatusNotFound {
			a, err = c.send(harness.Context(t), http.MethodPost, at, body)
		}
		return err == nil && a.code < 300
	}
	// The current segment of the log, 64 MB, is preallocated. A slow machine takes a while to fill it.
	deadline := time.Now().Add(5 * time.Minute)
	for written := 0; written < 64 && time.Now().Before(deadline); {
		if write() {
			written++
		}
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if code, log := f.servers[2].AwaitEnd(t); code != 1 || !strings.Contains(log, "is full: free some space and start the server again") {
			t.Errorf("the server without space ended with %d and\n%s", code, log)
		}
	}()
	for {
		select {
		case <-ended:
			return
		default:
			write()
		}
	}
}
