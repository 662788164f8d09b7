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

// programs are the processes whose memory counts, as the kernel names them: it keeps 15
// characters of a name.
var programs = []string{"kube-apiserver", "etcd"}

// memory watches the children of a process.
type memory struct {
	stop chan struct{}
	peak chan int64
}

// watchMemory starts to watch the children of a process. Call Peak when it has ended.
func watchMemory(parent int) *memory {
	m := &memory{stop: make(chan struct{}), peak: make(chan int64, 1)}
	go func() {
		tick := time.NewTicker(interval)
		defer tick.Stop()
		var peak int64
		for {
			peak = max(peak, resident("/proc", parent))
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

// Peak ends watching and returns the most that the programs had in memory at one time, in
// bytes.
func (m *memory) Peak() (int64, error) {
	close(m.stop)
	peak := <-m.peak
	if peak == 0 {
		return 0, errors.New("no process kube-apiserver or etcd was seen")
	}
	return peak, nil
}

// resident returns the resident memory of the programs that a process has started, in
// bytes. A process that ends meanwhile has none.
func resident(proc string, parent int) int64 {
	entries, err := os.ReadDir(proc)
	if err != nil {
		return 0
	}
	var sum int64
	for _, entry := range entries {
		if _, err := strconv.Atoi(entry.Name()); err != nil {
			continue
		}
		data, err := os.ReadFile(filepath.Join(proc, entry.Name(), "stat"))
		if err != nil {
			continue
		}
		name, of, pages, ok := parseStat(string(data))
		if ok && of == parent && slices.Contains(programs, name) {
			sum += pages * int64(os.Getpagesize())
		}
	}
	return sum
}

// parseStat reads the name, the parent and the resident pages from /proc/PID/stat.
func parseStat(stat string) (name string, parent int, pages int64, ok bool) {
	// The name is in parentheses and may hold anything, parentheses too.
	open, end := strings.IndexByte(stat, '('), strings.LastIndexByte(stat, ')')
	if open < 0 || end < open {
		return "", 0, 0, false
	}
	// Field 3 is the first one here; the parent is field 4, the pages are field 24.
	fields := strings.Fields(stat[end+1:])
	if len(fields) < 22 {
		return "", 0, 0, false
	}
	parent, err := strconv.Atoi(fields[1])
	if err != nil {
		return "", 0, 0, false
	}
	pages, err = strconv.ParseInt(fields[21], 10, 64)
	return stat[open+1 : end], parent, pages, err == nil
}
