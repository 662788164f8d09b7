package dev

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/gatehouse-dev/gatehouse/internal/manifests"
)

// goFiles are what a Go program is built from.
var goFiles = []string{"*.go", "!*_test.go", "go.mod", "go.sum"}

// unwatched are directories that others write.
var unwatched = []string{"node_modules", "vendor", "testdata", "__pycache__"}

// settle is how long after a change the next one belongs to it: editors write files in steps.
const settle = 100 * time.Millisecond

// mostWatched bounds the directories that are watched.
const mostWatched = 10_000

// errManyDirectories is a tree that is too large to watch.
var errManyDirectories = errors.New("there are too many directories")

// watch reports changes of files below dir that patterns match, which are written as those of a .gitignore. It
// watches until ctx ends.
func watch(ctx context.Context, dir string, patterns []string) (<-chan string, error) {
	matching, err := manifests.NewPatterns(patterns)
	if err != nil {
		return nil, err
	}
	w, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, err
	}
	if err := watchBelow(w, dir); err != nil {
		w.Close()
		return nil, fmt.Errorf("watching %s: %w", dir, err)
	}
	changes := make(chan string, 1)
	go func() {
		defer w.Close()
		settled := time.NewTimer(0)
		<-settled.C
		changed := ""
		for {
			select {
			case <-ctx.Done():
				return
			case err := <-w.Errors:
				if errors.Is(err, fsnotify.ErrEventOverflow) {
					// What was lost may be a change.
					changed = dir
					settled.Reset(settle)
				}
			case e := <-w.Events:
				name, err := filepath.Rel(dir, e.Name)
				if err != nil || e.Op == fsnotify.Chmod {
					continue
				}
				if info, err := os.Stat(e.Name); err == nil && info.IsDir() {
					_ = watchBelow(w, e.Name)
					continue
				}
				if matching.Ignores(e.Name, false) {
					changed = name
					settled.Reset(settle)
				}
			case <-settled.C:
				select {
				case changes <- changed:
				default:
				}
			}
		}
	}()
	return changes, nil
}

// watchBelow adds a directory with those below it.
func watchBelow(w *fsnotify.Watcher, dir string) error {
	return filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil || !d.IsDir():
			// What cannot be read is not watched.
			return nil
		case path != dir && (strings.HasPrefix(d.Name(), ".") || slices.Contains(unwatched, d.Name())):
			return fs.SkipDir
		case len(w.WatchList()) >= mostWatched:
			return errManyDirectories
		}
		return w.Add(path)
	})
}
