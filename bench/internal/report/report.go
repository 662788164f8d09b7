// Package report writes measurements into bench/results/benchmarks.md. Each program has its own section, so that it
// can be measured again independently.
package report

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"
)

// head is the beginning of a new file.
const head = `# Measured

<!-- The sections between markers are written by the programs they name; change those, not this. -->

Everything here is measured on one machine, both sides in one session and in turns. Figures of another day or
another machine are not to be compared with these; the commands are there to measure again.
`

// Write writes a section into the file at path, and replaces a section with the same name. The section contains the
// date, the machine, and the command of the measurement.
func Write(path, name, title, command, body string) error {
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		data, err = []byte(head), nil
	}
	if err != nil {
		return err
	}
	machine, err := Machine()
	if err != nil {
		return err
	}
	begin, end := fmt.Sprintf("<!-- begin %s -->\n", name), fmt.Sprintf("<!-- end %s -->\n", name)
	section := fmt.Sprintf("%s\n## %s\n\n    %s\n\n%s, %s.\n\n%s\n%s",
		begin, title, command, time.Now().UTC().Format(time.DateOnly), machine, strings.TrimSpace(body), end)
	before, rest, found := bytes.Cut(data, []byte(begin))
	if !found {
		return os.WriteFile(path, append(append(data, '\n'), section...), 0o644)
	}
	_, after, found := bytes.Cut(rest, []byte(end))
	if !found {
		return fmt.Errorf("%s: %q is not followed by %q", path, strings.TrimSpace(begin), strings.TrimSpace(end))
	}
	return os.WriteFile(path, slices.Concat(before, []byte(section), after), 0o644)
}

// Machine describes this machine in a line.
func Machine() (string, error) {
	cpu, err := field("/proc/cpuinfo", "model name")
	if err != nil {
		return "", err
	}
	memory, err := Memory()
	if err != nil {
		return "", err
	}
	kernel, err := os.ReadFile("/proc/sys/kernel/osrelease")
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%d cores of %s, %d GiB of memory, Linux %s, %s",
		runtime.NumCPU(), cpu, memory>>30, strings.TrimSpace(string(kernel)), runtime.Version()), nil
}

// Memory returns the size of this machine's memory, in bytes.
func Memory() (int64, error) {
	text, err := field("/proc/meminfo", "MemTotal")
	if err != nil {
		return 0, err
	}
	var kib int64
	if _, err := fmt.Sscanf(text, "%d kB", &kib); err != nil {
		return 0, fmt.Errorf("memory %q: %w", text, err)
	}
	return kib << 10, nil
}

func field(path, name string) (string, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(data)) {
		if key, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(key) == name {
			return strings.TrimSpace(value), nil
		}
	}
	return "", fmt.Errorf("%s has no %q", path, name)
}
