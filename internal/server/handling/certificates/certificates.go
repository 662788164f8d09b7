package certificates

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	"k8s.io/apiserver/pkg/util/filesystem"
	"k8s.io/klog/v2"

	"github.com/gatehouse-dev/gatehouse/internal/kit/files"
)

const (
	// lookEvery is how often the server checks files of certificates for changes when the system
	// reports none.
	lookEvery = time.Second
	// readEvery is how often the server reads files of certificates that look unchanged.
	readEvery = time.Minute
)

// reloading lets a provider of certificates read its files when they change. The loop of
// k8s.io/apiserver would wait for ever on a file that has become a named pipe, and would read a
// device until the memory is full. reloading does not read such a file, and keeps the content that
// was read before.
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

// Run implements dynamiccertificates.ControllerRunner. It returns when ctx ends. A change takes effect
// at once where the system reports changes of files.
func (r *reloading) Run(ctx context.Context, _ int) {
	var mu sync.Mutex
	var seen []string
	var read time.Time
	look := func() {
		mu.Lock()
		defer mu.Unlock()
		now := r.look()
		if slices.Equal(now, seen) && time.Since(read) < readEvery {
			return
		}
		// A change while the files are read is found at the next check.
		seen, read = now, time.Now()
		if err := r.RunOnce(ctx); err != nil {
			klog.ErrorS(err, "Cannot read a certificate again: the one before stays in use", "files", strings.Join(r.paths, ", "))
		}
	}
	var watching sync.WaitGroup
	defer watching.Wait()
	dirs := map[string]bool{}
	for _, path := range r.paths {
		if dir := filepath.Dir(path); !dirs[dir] {
			dirs[dir] = true
			watching.Go(func() { filesystem.WatchUntil(ctx, lookEvery, dir, look, nil) })
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

// Authority has the certificates of CAs, in a file that is read again when it changes.
type Authority struct {
	*dynamiccertificates.DynamicFileCAContent
	files reloading
}

// NewAuthority reads a file with certificates of CAs.
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
