package certificates

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/fsnotify/fsnotify"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	"k8s.io/klog/v2"

	"github.com/gatehouse-dev/gatehouse/internal/files"
)

const (
	// lookEvery is how often the server checks files of certificates for changes when the system
	// reports none.
	lookEvery = time.Second
	// readEvery is how often the server reads files of certificates that look unchanged.
	readEvery = time.Minute
)

// reloading lets a provider of certificates read its files when they change. The library's own
// loop would wait for ever on a file that has become a named pipe, and would read a device until
// the memory is full. reloading does not read such a file, and keeps the content that was read
// before.
type reloading struct {
	paths []string
	from  dynamiccertificates.ControllerRunner
}

// RunOnce implements dynamiccertificates.ControllerRunner.
func (r *reloading) RunOnce(ctx context.Context) error {
	var bad []error
	for _, path := range r.paths {
		bad = append(bad, files.Check(path, files.Configuration))
	}
	if err := errors.Join(bad...); err != nil {
		return err
	}
	return r.from.RunOnce(ctx)
}

// Run implements dynamiccertificates.ControllerRunner. It returns when ctx ends.
func (r *reloading) Run(ctx context.Context, _ int) {
	look := time.NewTicker(lookEvery)
	defer look.Stop()
	// Where the system reports changes of files, a change takes effect at once.
	var changes chan fsnotify.Event
	var lost chan error
	if w, err := fsnotify.NewWatcher(); err == nil {
		defer w.Close()
		for _, path := range r.paths {
			_ = w.Add(filepath.Dir(path))
		}
		changes, lost = w.Events, w.Errors
	}
	var seen []string
	var read time.Time
	for {
		if now := r.look(); !slices.Equal(now, seen) || time.Since(read) >= readEvery {
			// A change that comes while the files are read is found the next time.
			seen, read = now, time.Now()
			if err := r.RunOnce(ctx); err != nil {
				klog.ErrorS(err, "Cannot read a certificate again: the one before stays in use", "files", strings.Join(r.paths, ", "))
			}
		}
		select {
		case <-look.C:
		case _, ok := <-changes:
			if !ok {
				changes = nil
			}
		case _, ok := <-lost:
			// The next look finds the changes of lost events. The error is received because it
			// would otherwise hold up later events.
			if !ok {
				lost = nil
			}
		case <-ctx.Done():
			return
		}
	}
}

// look returns a text for each file that differs when the file has changed.
func (r *reloading) look() []string {
	found := make([]string, len(r.paths))
	for i, path := range r.paths {
		info, err := os.Stat(path)
		if err != nil {
			found[i] = err.Error()
			continue
		}
		found[i] = fmt.Sprint(info.Mode(), info.Size(), info.ModTime().UnixNano())
		if of, ok := info.Sys().(*syscall.Stat_t); ok {
			found[i] += fmt.Sprint(" ", of.Dev, of.Ino)
		}
	}
	return found
}

// Pair is a certificate and its key, in files that are read again when they change.
type Pair struct {
	*dynamiccertificates.DynamicCertKeyPairContent
	files reloading
}

// NewPair reads the files of a certificate and its key.
func NewPair(name, cert, key string) (*Pair, error) {
	p, err := dynamiccertificates.NewDynamicServingContentFromFiles(name, cert, key)
	if err != nil {
		return nil, err
	}
	return &Pair{p, reloading{[]string{cert, key}, p}}, nil
}

// RunOnce implements dynamiccertificates.ControllerRunner.
func (p *Pair) RunOnce(ctx context.Context) error { return p.files.RunOnce(ctx) }

// Run implements dynamiccertificates.ControllerRunner.
func (p *Pair) Run(ctx context.Context, workers int) { p.files.Run(ctx, workers) }

// Authority has the certificates of authorities, in a file that is read again when it changes.
type Authority struct {
	*dynamiccertificates.DynamicFileCAContent
	files reloading
}

// NewAuthority reads a file with certificates of authorities.
func NewAuthority(name, path string) (*Authority, error) {
	a, err := dynamiccertificates.NewDynamicCAContentFromFile(name, path)
	if err != nil {
		return nil, err
	}
	return &Authority{a, reloading{[]string{path}, a}}, nil
}

// RunOnce implements dynamiccertificates.ControllerRunner.
func (a *Authority) RunOnce(ctx context.Context) error { return a.files.RunOnce(ctx) }

// Run implements dynamiccertificates.ControllerRunner.
func (a *Authority) Run(ctx context.Context, workers int) { a.files.Run(ctx, workers) }
