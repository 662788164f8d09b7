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

// interval is the interval of the memory measurements.
const interval = 20 * time.Millisecond

// clockTick is the unit of CPU times in /proc: USER_HZ, 100 on every Linux platform that Go supports.
const clockTick = 10 * time.Millisecond

// programs are the names of the measured processes.
var programs = []string{"kube-apiserver", "etcd"}

// usage is the resource usage of all programs together.
type usage struct {
	// memory is in bytes. A page that both programs share counts once.
	memory int64
	// own is the part of memory without pages of files.
	own int64
	cpu time.Duration
}

// watch measures the children of a process.
type watch struct {
	stop chan struct{}
	peak chan usage
}

// watchMemory starts to measure the children of a process. Call Peak when the process has ended.
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

// Peak stops the measurement and returns the peak memory of the programs, and the peak without pages of files.
func (w *watch) Peak() (usage, error) {
	close(w.stop)
	peak := <-w.peak
	if peak.memory == 0 {
		return peak, errors.New("no process kube-apiserver or etcd was seen")
	}
	return peak, nil
}

// used returns the resource usage of the programs that a process has started. A process that ends during the
// measurement counts as zero.
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

// stat contains the needed fields of /proc/PID/stat.
type stat struct {
	name   string
	parent int
	cpu    time.Duration
}

func parseStat(text string) (stat, bool) {
	// The name is in parentheses and may contain any characters, including parentheses.
	open, end := strings.IndexByte(text, '('), strings.LastIndexByte(text, ')')
	if open < 0 || end < open {
		return stat{}, false
	}
	// fields begins with field 3. The parent is field 4, the times are fields 14 and 15.
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
