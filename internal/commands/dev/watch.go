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

	"github.com/gatehouse-dev/gatehouse/internal/readers/manifests"
)

// goFiles are the source files of a Go program.
var goFiles = []string{"*.go", "!*_test.go", "go.mod", "go.sum"}

// unwatched are directories that tools write.
var unwatched = []string{"node_modules", "vendor", "testdata", "__pycache__"}

// settle is the time after a change in which further changes belong to it: editors write files in several steps.
const settle = 100 * time.Millisecond

// mostWatched bounds the watched directories.
const mostWatched = 10_000

// errManyDirectories is the error for a tree that is too large to watch.
var errManyDirectories = errors.New("there are too many directories")

type watcher struct {
	files *fsnotify.Watcher
	// matches reports whether a change of a file counts.
	matches func(path string) bool
	// changes receives the name of a changed file; it is buffered.
	changes chan string
}

// newWatcher makes a watcher that runs until ctx ends. It watches nothing yet.
func newWatcher(ctx context.Context, matches func(path string) bool) (*watcher, error) {
	files, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, err
	}
	w := &watcher{files, matches, make(chan string, 1)}
	go w.run(ctx)
	return w, nil
}

// watchSource reports changes of files below the working directory that match patterns in the syntax of .gitignore.
func watchSource(ctx context.Context, patterns []string) (<-chan string, error) {
	matching, err := manifests.NewPatterns(patterns)
	if err != nil {
		return nil, err
	}
	w, err := newWatcher(ctx, func(path string) bool { return matching.Ignores(path, false) })
	if err != nil {
		return nil, err
	}
	if err := w.below("."); err != nil {
		return nil, fmt.Errorf("watching the working directory: %w", err)
	}
	return w.changes, nil
}

// around watches a path that is about to be read: a directory with its subdirectories, or the directory of a file,
// since editors replace files.
func (w *watcher) around(path string) {
	info, err := os.Stat(path)
	if err == nil && info.IsDir() {
		_ = w.below(path)
		return
	}
	// A path that cannot be watched may still be readable.
	_ = w.files.Add(filepath.Dir(path))
}

// run reports changes until ctx ends.
func (w *watcher) run(ctx context.Context) {
	defer w.files.Close()
	settled := time.NewTimer(0)
	<-settled.C
	changed := ""
	for {
		select {
		case <-ctx.Done():
			return
		case err := <-w.files.Errors:
			if errors.Is(err, fsnotify.ErrEventOverflow) {
				// A lost event may be a change.
				changed = "A file"
				settled.Reset(settle)
			}
		case e := <-w.files.Events:
			if e.Op == fsnotify.Chmod {
				continue
			}
			if info, err := os.Stat(e.Name); err == nil && info.IsDir() {
				_ = w.below(e.Name)
				continue
			}
			if w.matches(e.Name) {
				changed = filepath.Clean(e.Name)
				settled.Reset(settle)
			}
		case <-settled.C:
			select {
			case w.changes <- changed:
			default:
			}
		}
	}
}

// below watches a directory with its subdirectories.
func (w *watcher) below(dir string) error {
	return filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil || !d.IsDir():
			// An unreadable directory is not watched.
			return nil
		case path != dir && (strings.HasPrefix(d.Name(), ".") || slices.Contains(unwatched, d.Name())):
			return fs.SkipDir
		case len(w.files.WatchList()) >= mostWatched:
			return errManyDirectories
		}
		return w.files.Add(path)
	})
}
