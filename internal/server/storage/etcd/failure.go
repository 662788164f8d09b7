package etcd

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"syscall"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// failure is the error after which etcd cannot continue. Where etcd itself would end the process,
// or panic in a goroutine where the server cannot recover, only that goroutine ends, and the
// failure has the reason. The server then has to shut down in order, and to report the reason.
type failure struct {
	once sync.Once
	// happened is closed when err is set.
	happened chan struct{}
	err      error
	// alone means that the etcd has no other members.
	alone bool
}

func newFailure() *failure { return &failure{happened: make(chan struct{})} }

// logger returns the logger for etcd: it writes nothing, and reports fatal errors and panics.
func (f *failure) logger() *zap.Logger {
	return zap.New(zapcore.NewNopCore(), zap.WithFatalHook(f), zap.WithPanicHook(f))
}

// unscanned begins the panic of a member that wants to be elected while it replays its log. Before an election, the
// consensus looks for changes of the members among the entries that it has not recorded as applied yet. An etcd
// removes entries as soon as they are applied, a moment before the consensus records them.
const unscanned = "error scanning unapplied entries "

// OnWrite implements zapcore.CheckWriteHook. It does not return, except for an election that can continue: the
// consensus then continues as if no entry changed the members, which does no harm in an etcd with a single voter.
func (f *failure) OnWrite(entry *zapcore.CheckedEntry, fields []zapcore.Field) {
	if f.alone && strings.HasPrefix(entry.Message, unscanned) {
		return
	}
	f.report(fatal(entry.Message, fields))
	runtime.Goexit()
}

// report keeps the first failure, because later failures follow from it.
func (f *failure) report(err error) {
	f.once.Do(func() {
		f.err = err
		close(f.happened)
	})
}

// get returns the failure, nil if there is none.
func (f *failure) get() error {
	select {
	case <-f.happened:
		return f.err
	default:
		return nil
	}
}

// fatal makes an error from a record that etcd logs before it stops: it has the message and the
// error of the record, or else all fields.
func fatal(message string, fields []zapcore.Field) error {
	for _, field := range fields {
		if cause, ok := field.Interface.(error); ok && field.Type == zapcore.ErrorType {
			return fmt.Errorf("%s: %w", message, cause)
		}
	}
	encoder := zapcore.NewMapObjectEncoder()
	var facts []string
	for _, field := range fields {
		field.AddTo(encoder)
		facts = append(facts, fmt.Sprintf("%s %v", field.Key, encoder.Fields[field.Key]))
	}
	if len(facts) > 0 {
		message += ": " + strings.Join(facts, ", ")
	}
	return errors.New(message)
}

// advise adds advice for the administrator to an error of etcd, if there is any.
func advise(err error, dir string) error {
	switch {
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return fmt.Errorf("%w; the disk with %s is full: free some space and start the server again", err, dir)
	case errors.Is(err, syscall.EIO), errors.Is(err, syscall.EROFS):
		return fmt.Errorf("%w; check the disk with %s and start the server again", err, dir)
	default:
		return err
	}
}
