package cli

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"flag"
	"io"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/grpc/grpclog"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/klog/v2"
)

// startLogging sends what the libraries log to w: warnings and errors, and from
// verbosity 1 on also what they consider information, which is about their inner
// life rather than the server's. What libraries report in the background after ctx has ended,
// they report because of that, and it is left out. It is called once, before anything logs.
func startLogging(ctx context.Context, w io.Writer, verbosity int) error {
	flags := flag.NewFlagSet("klog", flag.ContinueOnError)
	klog.InitFlags(flags)
	for _, f := range []struct{ name, value string }{
		{"v", strconv.Itoa(verbosity)},
		// Each line goes to the writer of its severity and nowhere else.
		{"logtostderr", "false"},
		{"one_output", "true"},
		{"stderrthreshold", "FATAL"},
	} {
		if err := flags.Set(f.name, f.value); err != nil {
			return err
		}
	}
	leaveOutUsualErrors(ctx)
	klog.SetOutput(w)
	if verbosity < 1 {
		klog.SetOutputBySeverity("INFO", io.Discard)
		klog.SetOutputBySeverity("WARNING", withoutUsual{w})
		klog.SetOutputBySeverity("ERROR", withoutUsual{w})
	}
	// gRPC warns when it connects to etcd again; when etcd stays away, the requests that
	// need it say so.
	warnings := io.Discard
	if verbosity >= 1 {
		warnings = w
	}
	grpclog.SetLoggerV2(grpclog.NewLoggerV2(io.Discard, warnings, w))
	return nil
}

// quietGRPC has gRPC log nothing: commands that use it report the error of a request.
func quietGRPC() { grpclog.SetLoggerV2(grpclog.NewLoggerV2(io.Discard, io.Discard, io.Discard)) }

// ended are the words in which libraries report that a wait has failed which has no
// deadline: it can only have been stopped. The garbage collector's has one; the error of
// that wait itself, which comes first, tells the two apart.
var ended = []string{
	"unable to sync caches",
	"timed out waiting for caches to sync",
	"timed out waiting for initial discovery sync",
	"timed out waiting for proxy handler to initialize",
	"timed out waiting for dependency graph builder sync",
}

// expected are errors of libraries at events that are normal for a server that starts: the
// repair of addresses sees the service before it sees the address, which was stored first.
var expected = []string{"for Service default/kubernetes is not allocated; repairing"}

// leaveOutUsualErrors lets libraries report no expected error, none that only says that a
// wait or a request was cancelled, since controllers are stopped whenever the kinds change,
// and none at all when ctx has ended. Deadlines that pass are still reported.
func leaveOutUsualErrors(ctx context.Context) {
	handlers := utilruntime.ErrorHandlers
	utilruntime.ErrorHandlers = []utilruntime.ErrorHandler{
		func(of context.Context, err error, message string, keysAndValues ...any) {
			if ctx.Err() != nil || usualError(of, err, message) {
				return
			}
			for _, handle := range handlers {
				handle(of, err, message, keysAndValues...)
			}
		},
	}
}

// usualError reports whether an error only says that something was stopped, or is expected.
func usualError(ctx context.Context, err error, message string) bool {
	if why := cmp.Or(ctx.Err(), err); errors.Is(why, context.Canceled) || errors.Is(why, context.DeadlineExceeded) {
		return errors.Is(why, context.Canceled)
	}
	if err != nil {
		message = err.Error()
	}
	if slices.ContainsFunc(expected, func(words string) bool { return strings.Contains(message, words) }) {
		return true
	}
	return slices.ContainsFunc(ended, func(words string) bool {
		return len(message) >= len(words) && strings.EqualFold(message[:len(words)], words)
	})
}

// usual are records of libraries at events that are normal for a server.
var usual = [][]byte{
	// A request was stopped with the controller that made it.
	[]byte(`err="context canceled"`),
	// A controller that is stopped had an event to record.
	[]byte("broadcaster already stopped"),
	// Every first server, and every server after a clean end, adds its address.
	[]byte("] Resetting endpoints for master service "),
	// A server that listens on another port than the last one changes the service's.
	[]byte("] Resetting master service "),
}

// withoutUsual is a writer of log records, one in each call, that leaves out usual ones.
type withoutUsual struct{ io.Writer }

// Write implements io.Writer.
func (w withoutUsual) Write(record []byte) (int, error) {
	for _, text := range usual {
		if bytes.Contains(record, text) {
			return len(record), nil
		}
	}
	return w.Writer.Write(record)
}
