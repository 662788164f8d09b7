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

	"github.com/gatehouse-dev/gatehouse/internal/terminal"
)

// Logging is what a command line says about the log.
type Logging struct {
	Verbosity int
	// config has the format and the verbosity by file, which are read by upstream's flags.
	config logsapi.LoggingConfiguration
}

// NewLogging returns the defaults.
func NewLogging() Logging { return Logging{config: *logsapi.NewLoggingConfiguration()} }

// jsonFormat is the value of --logging-format with which every record is an object of JSON.
const jsonFormat = "json"

// AddFlags adds the flags of a command that logs all the time. verbosity describes --v.
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

// Check says in one sentence what is wrong with the flags.
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

// Start sends what the server and its libraries log to w: warnings and errors, and from
// verbosity 1 on also what they consider information, which is about their inner
// life rather than the server's. JSON has information from verbosity 0 on, because a record
// does not say whether it is a warning. What libraries report in the background after ctx has
// ended, they report because of that, and it is left out. It is called once, before anything logs.
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
		// Each line goes to the writer of its severity and nowhere else.
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
	// gRPC warns when it connects to etcd again; when etcd stays away, the requests that
	// need it say so.
	warnings := io.Discard
	if l.Verbosity >= 1 {
		warnings = w
	}
	grpclog.SetLoggerV2(grpclog.NewLoggerV2(io.Discard, warnings, w))
	return nil
}

// QuietGRPC has gRPC log nothing: commands that use it report the error of a request.
func QuietGRPC() { grpclog.SetLoggerV2(grpclog.NewLoggerV2(io.Discard, io.Discard, io.Discard)) }

// startJSON is start for JSON. Libraries that write lines write them through the log, so that every
// line is an object.
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

// Writer returns where the log goes that people, or programs, read at out.
func (l *Logging) Writer(out io.Writer) io.Writer {
	if l.config.Format == jsonFormat {
		return terminal.Exact(out)
	}
	return out
}

// StartFromTwo is start for a command of which the verbosity 1 asks for more results, so that it
// logs from 2 on.
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

// DiscardLogs leaves out everything that libraries log.
func DiscardLogs(ctx context.Context) error {
	l := NewLogging()
	return l.Start(ctx, io.Discard)
}

// lines is a writer of lines that become records of the log.
type lines func(args ...any)

// Write implements io.Writer.
func (l lines) Write(line []byte) (int, error) {
	l(string(bytes.TrimSpace(line)))
	return len(line), nil
}

// information is a writer of records that are neither warnings nor errors. It leaves them out
// while the verbosity is 0, which may change: PUT /debug/flags/v sets it.
type information struct{ io.Writer }

// Write implements io.Writer. klog holds its lock during the call, and takes none to answer about the
// verbosity, since no file has one of its own.
func (w information) Write(record []byte) (int, error) {
	if !klog.V(1).Enabled() {
		return len(record), nil
	}
	return w.Writer.Write(record)
}

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
// repair of addresses sees the service before it sees the address, which was stored first, and
// servers that start together write the same ConfigMap; each tries again until it has what the
// server wants.
var expected = []string{
	"for Service default/kubernetes is not allocated; repairing",
	`configmaps "extension-apiserver-authentication" already exists`,
	`Operation cannot be fulfilled on configmaps "extension-apiserver-authentication"`,
}

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
	[]byte(`err="context canceled"`), []byte(`"err":"context canceled"`),
	// A controller that is stopped had an event to record.
	[]byte("broadcaster already stopped"),
	// Every first server, and every server after a clean end, adds its address.
	[]byte("Resetting endpoints for master service "),
	// A server that listens on another port than the last one changes the service's.
	[]byte("Resetting master service "),
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
