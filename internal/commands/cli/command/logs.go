package command

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"flag"
	"io"
	"log"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/pflag"
	"google.golang.org/grpc/grpclog"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	logsapi "k8s.io/component-base/logs/api/v1"
	_ "k8s.io/component-base/logs/json/register" // --logging-format=json
	"k8s.io/klog/v2"

	"github.com/gatehouse-dev/gatehouse/internal/kit/terminal"
)

// Logging has the log options of a command line.
type Logging struct {
	Verbosity int
	// config has the format and the verbosity by file, set by the flags of component-base.
	config logsapi.LoggingConfiguration
}

// NewLogging returns the defaults.
func NewLogging() Logging { return Logging{config: *logsapi.NewLoggingConfiguration()} }

// jsonFormat is the value of --logging-format for JSON records.
const jsonFormat = "json"

// AddFlags adds the log flags to a command. verbosity describes --v.
func (l *Logging) AddFlags(f *pflag.FlagSet, verbosity string) {
	upstream := pflag.NewFlagSet("", pflag.ContinueOnError)
	logsapi.AddFlags(&l.config, upstream)
	format, files := upstream.Lookup("logging-format"), upstream.Lookup("vmodule")
	format.Usage = "format of the log: text, or json for one object a record"
	files.Usage = "log verbosity of source files, such as controller=4,stor*=2; for the text format only"
	f.AddFlag(format)
	f.IntVarP(&l.Verbosity, "v", "v", 0, verbosity)
	f.AddFlag(files)
}

// Check validates the flags. Its errors are one sentence.
func (l *Logging) Check() error {
	if l.Verbosity < 0 {
		return Usagef("--v %d must not be negative", l.Verbosity)
	}
	if err := OneOf("logging-format", cmp.Or(l.config.Format, logsapi.DefaultLogFormat), logsapi.DefaultLogFormat, jsonFormat); err != nil {
		return err
	}
	if l.config.Format == jsonFormat && len(l.config.VModule) > 0 {
		return Usagef("--vmodule is for --logging-format=text only")
	}
	return nil
}

// Start sends the log of the server and its libraries to w: warnings and errors and, from verbosity 1, also
// information of libraries, which is about their internals rather than about the server. JSON includes
// information from verbosity 0, because a JSON record does not tell warnings from information. Errors that
// libraries report in the background after ctx has ended are a result of that end and are dropped. Start must
// be called once, before anything logs.
func (l *Logging) Start(ctx context.Context, w io.Writer) error {
	if err := l.Check(); err != nil {
		return err
	}
	leaveOutUsualErrors(ctx)
	if l.config.Format == jsonFormat {
		return l.startJSON(withoutUsual{w})
	}
	flags := flag.NewFlagSet("klog", flag.ContinueOnError)
	klog.InitFlags(flags)
	for _, f := range []struct{ name, value string }{
		{"v", strconv.Itoa(l.Verbosity)},
		{"vmodule", logsapi.VModuleConfigurationPflag(&l.config.VModule).String()},
		// Each line goes only to the writer of its severity.
		{"logtostderr", "false"},
		{"one_output", "true"},
		{"stderrthreshold", "FATAL"},
	} {
		if err := flags.Set(f.name, f.value); err != nil {
			return err
		}
	}
	klog.SetOutput(w)
	if len(l.config.VModule) == 0 {
		klog.SetOutputBySeverity("INFO", information{w})
	}
	if l.Verbosity < 1 {
		klog.SetOutputBySeverity("WARNING", withoutUsual{w})
		klog.SetOutputBySeverity("ERROR", withoutUsual{w})
	}
	// gRPC warns when it reconnects to etcd. If etcd stays unavailable, the failing requests report it.
	warnings := io.Discard
	if l.Verbosity >= 1 {
		warnings = w
	}
	grpclog.SetLoggerV2(grpclog.NewLoggerV2(io.Discard, warnings, w))
	return nil
}

// QuietGRPC disables the log of gRPC, for commands that report the errors of requests themselves.
func QuietGRPC() { grpclog.SetLoggerV2(grpclog.NewLoggerV2(io.Discard, io.Discard, io.Discard)) }

// startJSON is Start for JSON. Lines of libraries also go through the log, so that every line is a JSON object.
func (l *Logging) startJSON(w io.Writer) error {
	l.config.Verbosity = logsapi.VerbosityLevel(l.Verbosity)
	if err := logsapi.ValidateAndApplyWithOptions(&l.config, &logsapi.LoggingOptions{ErrorStream: w, InfoStream: w}, nil); err != nil {
		return err
	}
	log.SetFlags(0)
	log.SetOutput(lines(klog.Info))
	warnings := io.Discard
	if l.Verbosity >= 1 {
		warnings = lines(klog.Warning)
	}
	grpclog.SetLoggerV2(grpclog.NewLoggerV2(io.Discard, warnings, lines(klog.Error)))
	return nil
}

// Writer returns the writer of the log for out: exact for JSON, sanitised for a terminal otherwise.
func (l *Logging) Writer(out io.Writer) io.Writer {
	if l.config.Format == jsonFormat {
		return terminal.Exact(out)
	}
	return out
}

// StartFromTwo is Start for a command that uses verbosity 1 for more results. It logs from verbosity 2.
func (l *Logging) StartFromTwo(ctx context.Context, out io.Writer) error {
	if err := l.Check(); err != nil {
		return err
	}
	of := *l
	of.Verbosity = max(l.Verbosity-2, 0)
	if l.Verbosity < 2 {
		return of.Start(ctx, io.Discard)
	}
	return of.Start(ctx, l.Writer(out))
}

// DiscardLogs discards the logs of libraries.
func DiscardLogs(ctx context.Context) error {
	l := NewLogging()
	return l.Start(ctx, io.Discard)
}

// lines is a writer that logs each line as a record.
type lines func(args ...any)

// Write implements io.Writer.
func (l lines) Write(line []byte) (int, error) {
	l(string(bytes.TrimSpace(line)))
	return len(line), nil
}

// information is a writer of records below the severity of warnings. It drops them at verbosity 0. The
// verbosity may change: PUT /debug/flags/v sets it.
type information struct{ io.Writer }

// Write implements io.Writer. klog holds its lock during the call. It takes no lock to return the verbosity,
// since no file has a verbosity of its own.
func (w information) Write(record []byte) (int, error) {
	if !klog.V(1).Enabled() {
		return len(record), nil
	}
	return w.Writer.Write(record)
}

// ended are messages of libraries about a failed wait without a deadline: it can fail only by being stopped.
// The garbage collector's wait has a deadline; the error of the wait itself, which comes first, distinguishes a
// timeout from a stop.
var ended = []string{
	"unable to sync caches",
	"timed out waiting for caches to sync",
	"timed out waiting for initial discovery sync",
	"timed out waiting for proxy handler to initialize",
	"timed out waiting for dependency graph builder sync",
}

// expected are errors of libraries that are normal while a server starts. The repair of addresses sees the
// service before its address, which was stored first. Servers that start together write the same ConfigMap, and
// each one retries until the ConfigMap has its values.
var expected = []string{
	"for Service default/kubernetes is not allocated; repairing",
	`configmaps "extension-apiserver-authentication" already exists`,
	`Operation cannot be fulfilled on configmaps "extension-apiserver-authentication"`,
}

// leaveOutUsualErrors drops three kinds of errors of libraries: expected errors; errors about a cancelled wait
// or request, since controllers are stopped whenever the kinds change; and all errors after ctx has ended.
// Exceeded deadlines are still reported.
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

// usualError reports whether an error is expected or only reports a cancellation.
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

// usual are log records of libraries about events that are normal for a server.
var usual = [][]byte{
	// A request was cancelled because its controller stopped.
	[]byte(`err="context canceled"`), []byte(`"err":"context canceled"`),
	// A stopped controller tried to record an event.
	[]byte("broadcaster already stopped"),
	// The first server, and every server after a clean shutdown, adds its address.
	[]byte("Resetting endpoints for master service "),
	// A server that listens on a new port changes the port of the service.
	[]byte("Resetting master service "),
}

// withoutUsual is a writer of log records that drops usual records. Each call writes one record.
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
