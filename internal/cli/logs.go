package cli

import (
	"bytes"
	"flag"
	"io"
	"strconv"

	"google.golang.org/grpc/grpclog"
	"k8s.io/klog/v2"
)

// startLogging sends what the libraries log to w: warnings and errors, and from
// verbosity 1 on also what they consider information, which tells of their inner
// life rather than of the server's. It is called once, before anything logs.
func startLogging(w io.Writer, verbosity int) error {
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
	klog.SetOutput(w)
	if verbosity < 1 {
		klog.SetOutputBySeverity("INFO", io.Discard)
		klog.SetOutputBySeverity("WARNING", withoutUsual{w})
	}
	// What gRPC warns of is its own reconnecting to etcd; when etcd stays away,
	// the requests that need it say so.
	warnings := io.Discard
	if verbosity >= 1 {
		warnings = w
	}
	grpclog.SetLoggerV2(grpclog.NewLoggerV2(io.Discard, warnings, w))
	return nil
}

// usual are warnings of libraries at events that are normal for a server.
var usual = [][]byte{
	// Every first server, and every server after a clean end, adds its address.
	[]byte("] Resetting endpoints for master service "),
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
