// Profiled is gatehouse with profiles. At SIGUSR1 it writes the memory usage of the runtime, runs a garbage
// collection, and writes the profiles of the heap and of the goroutines, all to the directory GATEHOUSE_PROFILES. If
// GATEHOUSE_CPU_PROFILE names a file, the CPU profile from the start until the first SIGUSR1 is written to it.
// SIGUSR2 starts a CPU profile, and the next SIGUSR2 writes it to the directory. The first of them also writes the
// allocations since the start to allocs-before.pprof, the second to allocs.pprof.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"runtime/metrics"
	"runtime/pprof"
	"strings"
	"syscall"

	"github.com/gatehouse-dev/gatehouse/internal/commands/cli"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	if path := os.Getenv("GATEHOUSE_CPU_PROFILE"); path != "" {
		f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
		if err == nil {
			err = pprof.StartCPUProfile(f)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "profiles:", err)
		}
	}
	asked := make(chan os.Signal, 1)
	signal.Notify(asked, syscall.SIGUSR1, syscall.SIGUSR2)
	go func() {
		var profile *os.File
		for s := range asked {
			if s == syscall.SIGUSR2 {
				var err error
				if profile, err = cpu(os.Getenv("GATEHOUSE_PROFILES"), profile); err != nil {
					fmt.Fprintln(os.Stderr, "profiles:", err)
				}
				continue
			}
			if err := write(os.Getenv("GATEHOUSE_PROFILES")); err != nil {
				fmt.Fprintln(os.Stderr, "profiles:", err)
			}
		}
	}()
	os.Exit(cli.Main(ctx, os.Args[1:], cli.Streams{In: os.Stdin, Out: os.Stdout, Err: os.Stderr}))
}

// cpu starts a CPU profile and returns its file. If profile is not nil, cpu ends the profile in this file instead.
func cpu(dir string, profile *os.File) (*os.File, error) {
	path := filepath.Join(dir, "cpu.pprof")
	allocs := "allocs-before"
	if profile != nil {
		allocs = "allocs"
	}
	if err := writeProfile(dir, allocs); err != nil {
		return profile, err
	}
	if profile != nil {
		pprof.StopCPUProfile()
		return nil, errors.Join(profile.Close(), os.Rename(path+".part", path))
	}
	profile, err := os.Create(path + ".part")
	if err != nil {
		return nil, err
	}
	return profile, pprof.StartCPUProfile(profile)
}

// write writes the profiles. It writes the profile of the goroutines last, under its final name: when this file
// exists, all files are complete.
func write(dir string) error {
	pprof.StopCPUProfile()
	if err := writeMemory(filepath.Join(dir, "memory.txt")); err != nil {
		return err
	}
	runtime.GC()
	for _, name := range []string{"heap", "goroutine"} {
		if err := writeProfile(dir, name); err != nil {
			return err
		}
	}
	return nil
}

// writeProfile writes a profile of the runtime to a file, which appears when it is complete. name is the name of the
// profile, optionally followed by a hyphen and a suffix.
func writeProfile(dir, name string) error {
	path := filepath.Join(dir, name+".pprof")
	f, err := os.Create(path + ".part")
	if err != nil {
		return err
	}
	profile, _, _ := strings.Cut(name, "-")
	if err := errors.Join(pprof.Lookup(profile).WriteTo(f, 0), f.Close()); err != nil {
		return err
	}
	return os.Rename(path+".part", path)
}

// writeMemory writes the sizes of all memory classes of the runtime, in MiB.
func writeMemory(path string) error {
	var samples []metrics.Sample
	for _, d := range metrics.All() {
		if strings.HasPrefix(d.Name, "/memory/classes/") || d.Name == "/gc/heap/live:bytes" || d.Name == "/gc/heap/goal:bytes" {
			samples = append(samples, metrics.Sample{Name: d.Name})
		}
	}
	metrics.Read(samples)
	var text strings.Builder
	for _, s := range samples {
		fmt.Fprintf(&text, "%8.1f %s\n", float64(s.Value.Uint64())/(1<<20), s.Name)
	}
	return os.WriteFile(path, []byte(text.String()), 0o600)
}
