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

// clockTick is the unit of CPU times in /proc: USER_HZ, 100 on every Linux platform that
// Go supports.
const clockTick = 10 * time.Millisecond

// programs are the processes that count.
var programs = []string{"kube-apiserver", "etcd"}

// usage is what all programs use.
type usage struct {
	// memory is in bytes. A page that both have counts once.
	memory int64
	// own is what of it is not pages of files.
	own int64
	cpu time.Duration
}

// watch watches the children of a process.
type watch struct {
	stop chan struct{}
	peak chan usage
}

// watchMemory starts to watch the children of a process. Call Peak when it has ended.
func watchMemory(parent int) *watch {
	w := &watch{stop: make(chan struct{}), peak: make(chan usage, 1)}
	go func() {
		tick := time.NewTicker(interval)
		defer tick.Stop()
		var peak usage
		for {
			now := used("/proc", parent)
			peak.memory, peak.own = max(peak.memory, now.memory), max(peak.own, now.own)
			select {
			case <-tick.C:
			case <-w.stop:
				w.peak <- peak
				return
			}
		}
	}()
	return w
}

// Peak ends watching and returns the most bytes that the programs had in memory at one
// time, and the most of their own.
func (w *watch) Peak() (usage, error) {
	close(w.stop)
	peak := <-w.peak
	if peak.memory == 0 {
		return peak, errors.New("no process kube-apiserver or etcd was seen")
	}
	return peak, nil
}

// used returns what the programs that a process has started use. A process that ends
// meanwhile uses nothing.
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
		text, err := os.ReadFile(filepath.Join(proc, entry.Name(), "stat"))
		if err != nil {
			continue
		}
		s, ok := parseStat(string(text))
		if !ok || s.parent != parent || !slices.Contains(programs, s.name) {
			continue
		}
		sum.cpu += s.cpu
		if rollup, err := os.ReadFile(filepath.Join(proc, entry.Name(), "smaps_rollup")); err == nil {
			sum.memory += kib(string(rollup), "Pss:") << 10
			sum.own += kib(string(rollup), "Pss_Anon:") << 10
		}
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

// stat is what of /proc/PID/stat is needed.
type stat struct {
	name   string
	parent int
	cpu    time.Duration
}

func parseStat(text string) (stat, bool) {
	// The name is in parentheses and may hold anything, parentheses too.
	open, end := strings.IndexByte(text, '('), strings.LastIndexByte(text, ')')
	if open < 0 || end < open {
		return stat{}, false
	}
	// Field 3 is the first one here; the parent is field 4, the times are 14 and 15.
	fields := strings.Fields(text[end+1:])
	if len(fields) < 13 {
		return stat{}, false
	}
	var numbers [3]int
	for i, field := range []string{fields[1], fields[11], fields[12]} {
		n, err := strconv.Atoi(field)
		if err != nil {
			return stat{}, false
		}
		numbers[i] = n
	}
	return stat{text[open+1 : end], numbers[0], time.Duration(numbers[1]+numbers[2]) * clockTick}, true
}
