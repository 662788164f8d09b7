package agent

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"net/http"
	"os"
	"slices"
	"sync/atomic"
	"time"

	"k8s.io/klog/v2"

	"github.com/gatehouse-dev/gatehouse/internal/commands/predict/requestlog"
	"github.com/gatehouse-dev/gatehouse/internal/kit/files"
)

const (
	// followEvery is the polling interval of a log file.
	followEvery = 200 * time.Millisecond
	// caughtUp bounds how much of an existing log is read at the start, in bytes.
	caughtUp = 16 << 20
	// maxBefore bounds the part of a log that is compared to detect a truncation, in bytes. Events differ within it.
	maxBefore = 4 << 10
)

// follower reads a log file as it grows. A rotated file is read to its end, and then its successor. A file whose
// content before the current position has changed was truncated, and is read from its beginning.
type follower struct {
	path string
	take func(event []byte, source string)
	// trouble is the reason why the log cannot be read; nil if it can, or does not exist yet.
	trouble atomic.Pointer[error]

	file *os.File
	in   *bufio.Reader
	// read is the current position in the file, in bytes. before are the last bytes before it.
	read   int64
	before []byte
	// line is the part of a line that was read. skipping is set within a line that is omitted, because it is too long
	// or its beginning was not read.
	line     []byte
	skipping bool
	// said is the trouble that was logged last.
	said string
}

// run follows the file until ctx ends.
func (f *follower) run(ctx context.Context) {
	defer func() {
		if f.file != nil {
			f.file.Close()
		}
	}()
	tick := time.NewTicker(followEvery)
	defer tick.Stop()
	first := true
	for {
		err := f.advance(ctx, first)
		if f.trouble.Store(nil); err != nil && !errors.Is(err, fs.ErrNotExist) {
			f.trouble.Store(&err)
		}
		switch {
		case err == nil:
			f.said = ""
		case f.said != err.Error():
			f.said = err.Error()
			klog.FromContext(ctx).Error(err, "Cannot follow the audit log", "path", f.path)
		}
		first = false
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// advance reads the new content of the log.
func (f *follower) advance(ctx context.Context, first bool) error {
	if f.file == nil {
		if err := f.open(first); err != nil {
			return err
		}
	}
	if err := f.grown(ctx); err != nil {
		return err
	}
	now, err := os.Stat(f.path)
	if errors.Is(err, fs.ErrNotExist) {
		// The file was rotated, and its successor does not exist yet. The writer may still write to the old file.
		return nil
	}
	if err != nil {
		return err
	}
	had, err := f.file.Stat()
	if err != nil {
		return err
	}
	if os.SameFile(now, had) {
		return nil
	}
	// The writer may have written to the old file after the last read.
	if err := f.grown(ctx); err != nil {
		return err
	}
	f.file.Close()
	f.file = nil
	return f.advance(ctx, false)
}

// grown reads the bytes that were appended to the file. If the file was truncated, before or during the read, it reads
// the file from its beginning. Reading events twice is harmless.
func (f *follower) grown(ctx context.Context) error {
	read, before := f.read, slices.Clone(f.before)
	same, err := f.hasBytes(read, before)
	if err != nil {
		return err
	}
	if same {
		if err := f.lines(ctx); err != nil {
			return err
		}
		if same, err = f.hasBytes(read, before); same || err != nil {
			return err
		}
	}
	if _, err := f.file.Seek(0, io.SeekStart); err != nil {
		return err
	}
	if err := f.begin(0); err != nil {
		return err
	}
	return f.lines(ctx)
}

// hasBytes reports whether the file still has the given bytes before a position.
func (f *follower) hasBytes(position int64, before []byte) (bool, error) {
	if len(before) == 0 {
		return true, nil
	}
	now := make([]byte, len(before))
	switch _, err := f.file.ReadAt(now, position-int64(len(before))); {
	case errors.Is(err, io.EOF):
		return false, nil
	case err != nil:
		return false, err
	}
	return bytes.Equal(now, before), nil
}

// open opens the file. If the file exists at the start, it seeks near the end.
func (f *follower) open(first bool) error {
	file, err := files.Open(f.path)
	if err != nil {
		return err
	}
	info, err := file.Stat()
	var at int64
	if err == nil && first {
		at = max(0, info.Size()-caughtUp)
		_, err = file.Seek(at, io.SeekStart)
	}
	if f.file = file; err == nil {
		err = f.begin(at)
	}
	if err != nil {
		file.Close()
		f.file = nil
	}
	return err
}

// begin starts to read at a position of the file.
func (f *follower) begin(at int64) error {
	f.in, f.read, f.line, f.skipping = bufio.NewReaderSize(f.file, 64<<10), at, nil, at > 0
	f.before = make([]byte, min(at, maxBefore), maxBefore)
	_, err := f.file.ReadAt(f.before, at-int64(len(f.before)))
	return err
}

// passed notes a part of the file that was read.
func (f *follower) passed(part []byte) {
	f.read += int64(len(part))
	part = part[max(0, len(part)-maxBefore):]
	f.before = append(slices.Delete(f.before, 0, max(0, len(f.before)+len(part)-maxBefore)), part...)
}

// lines processes the lines up to the end of the file. It keeps an incomplete line until its end arrives.
func (f *follower) lines(ctx context.Context) error {
	for ctx.Err() == nil {
		part, err := f.in.ReadSlice('\n')
		f.passed(part)
		whole := err == nil
		if !f.skipping {
			if f.line = append(f.line, part...); len(f.line) > requestlog.MaxLine {
				f.line, f.skipping = nil, true
				events.WithLabelValues("unreadable").Inc()
			}
		}
		if whole {
			if !f.skipping && len(f.line) > 1 {
				f.take(f.line, f.path)
			}
			f.line, f.skipping = f.line[:0], false
			if cap(f.line) > 1<<20 {
				f.line = nil
			}
		}
		switch {
		case whole, errors.Is(err, bufio.ErrBufferFull):
		case errors.Is(err, io.EOF):
			return nil
		default:
			return err
		}
	}
	return nil
}

// checkFollowed is a readiness check that fails while a followed log cannot be read. It is not a liveness check: a
// restart would not help, and would lose the traces.
func (a *Agent) checkFollowed(*http.Request) error {
	for _, f := range a.followers {
		if err := f.trouble.Load(); err != nil {
			return *err
		}
	}
	return nil
}
