package dev

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// portsOf returns the TCP ports on which the processes of a group listen.
func portsOf(group int) (ports []int) {
	sockets := map[string]bool{}
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, stat := range stats {
		data, _ := os.ReadFile(stat)
		// The name of the program, which may have spaces, is in parentheses.
		_, rest, _ := strings.Cut(string(data), ") ")
		if fields := strings.Fields(rest); len(fields) < 3 || fields[2] != strconv.Itoa(group) {
			continue
		}
		files, _ := filepath.Glob(filepath.Join(filepath.Dir(stat), "fd", "*"))
		for _, file := range files {
			target, _ := os.Readlink(file)
			if inode, ok := strings.CutPrefix(target, "socket:["); ok {
				sockets[strings.TrimSuffix(inode, "]")] = true
			}
		}
	}
	const address, state, inode, listening = 1, 3, 9, "0A"
	for _, table := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		data, _ := os.ReadFile(table)
		for line := range strings.Lines(string(data)) {
			fields := strings.Fields(line)
			if len(fields) <= inode || fields[state] != listening || !sockets[fields[inode]] {
				continue
			}
			_, hex, _ := strings.Cut(fields[address], ":")
			if port, err := strconv.ParseUint(hex, 16, 16); err == nil && !slices.Contains(ports, int(port)) {
				ports = append(ports, int(port))
			}
		}
	}
	slices.Sort(ports)
	return ports
}
