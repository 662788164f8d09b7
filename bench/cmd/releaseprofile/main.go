// Releaseprofile merges CPU profiles into the profile that releases are built with:
//
//	go run ./cmd/releaseprofile -out ../internal/release/server.pgo /tmp/profiles/*-cpu.pprof
//
// It removes names of the machine on which the profiles were measured.
package main

import (
	"flag"
	"fmt"
	"os"

	"github.com/google/pprof/profile"
)

func main() {
	out := flag.String("out", "", "`file` for the merged profile")
	flag.Parse()
	if err := run(*out, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "releaseprofile:", err)
		os.Exit(1)
	}
}

func run(out string, paths []string) error {
	if out == "" || len(paths) == 0 {
		return fmt.Errorf("usage: releaseprofile -out FILE PROFILE...")
	}
	var all []*profile.Profile
	for _, path := range paths {
		one, err := read(path)
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		all = append(all, one)
	}
	merged, err := profile.Merge(all)
	if err != nil {
		return err
	}
	for _, m := range merged.Mapping {
		m.File, m.BuildID = "gatehouse", ""
	}
	merged.TimeNanos, merged.DurationNanos, merged.Comments = 0, 0, nil
	f, err := os.Create(out)
	if err != nil {
		return err
	}
	if err := merged.Write(f); err != nil {
		f.Close()
		return err
	}
	return f.Close()
}

func read(path string) (*profile.Profile, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return profile.Parse(f)
}
