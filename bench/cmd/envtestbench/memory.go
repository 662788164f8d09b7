package main

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// interval is how often memory is read.
const interval = 20 * time.Millisecond

// programs are the processes whose memory counts.
var programs = []string{"kube-apiserver", "etcd"}

// usage is the memory of all programs, in bytes.
type usage struct {
	// resident counts a page for each process that has it, shared once in all.
	resident, shared int64
}

// memory watches the children of a process.
type memory struct {
	stop chan struct{}
	peak chan usage
}

// watchMemory starts to watch the children of a process. Call Peak when it has ended.
func watchMemory(parent int) *memory {
	m := &memory{stop: make(chan struct{}), peak: make(chan usage, 1)}
	go func() {
		tick := time.NewTicker(interval)
		defer tick.Stop()
		var peak usage
		for {
			now := used("/proc", parent)
			peak.resident, peak.shared = max(peak.resident, now.resident), max(peak.shared, now.shared)
			select {
			case <-tick.C:
			case <-m.stop:
				m.peak <- peak
				return
			}
		}
	}()
	return m
}

// Peak ends watching and returns the most that the programs had in memory at one
// time.
func (m *memory) Peak() (usage, error) {
	close(m.stop)
	peak := <-m.peak
	if peak.resident == 0 {
		return usage{}, errors.New("no process kube-apiserver or etcd was seen")
	}
	return peak, nil
}

// used returns the memory of the programs that a process has started. A process that ends
// meanwhile has none.
func used(proc string, parent int) usage {
	var sum usage
	entries, err := os.ReadDir(proc)
	if err != nil {
		return sum
	}
	for _, entry := range entries {
		if _, err := strconv.Atoi(entry.Name()); err != nil {
			continue
		}
		stat, err := os.ReadFile(filepath.Join(proc, entry.Name(), "stat"))
		if err != nil {
			continue
		}
		if name, of, ok := parseStat(string(stat)); !ok || of != parent || !slices.Contains(programs, name) {
			continue
		}
		rollup, err := os.ReadFile(filepath.Join(proc, entry.Name(), "smaps_rollup"))
		if err != nil {
			continue
		}
		sum.resident += kib(string(rollup), "Rss:") << 10
		sum.shared += kib(string(rollup), "Pss:") << 10
	}
	return sum
}

// kib returns the value of a line in /proc/PID/smaps_rollup.
func kib(rollup, name string) int64 {
	for line := range strings.Lines(rollup) {
		if fields := strings.Fields(line); len(fields) > 1 && fields[0] == name {
			n, _ := strconv.ParseInt(fields[1], 10, 64)
			return n
		}
	}
	return 0
}

// parseStat reads the name and the parent from /proc/PID/stat.
func parseStat(stat string) (name string, parent int, ok bool) {
	// The name is in parentheses and may hold anything, parentheses too.
	open, end := strings.IndexByte(stat, '('), strings.LastIndexByte(stat, ')')
	if open < 0 || end < open {
		return "", 0, false
	}
	// Field 3 is the first one here; the parent is field 4.
	fields := strings.Fields(stat[end+1:])
	if len(fields) < 2 {
		return "", 0, false
	}
	parent, err := strconv.Atoi(fields[1])
	return stat[open+1 : end], parent, err == nil
}
