package speed

import (
	"bytes"
	"flag"
	"io"
	"strings"
	"sync"

	"k8s.io/klog/v2"
)

// lastLines is the number of log lines printed after a failure.
const lastLines = 60

// tail keeps the last lines of a log. It is safe for concurrent use.
type tail struct {
	mu    sync.Mutex
	lines []string
}

func (l *tail) Write(data []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for line := range bytes.Lines(data) {
		l.lines = append(l.lines, string(line))
	}
	if n := len(l.lines); n > 2*lastLines {
		l.lines = append(l.lines[:0], l.lines[n-lastLines:]...)
	}
	return len(data), nil
}

func (l *tail) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Join(l.lines[max(len(l.lines)-lastLines, 0):], "")
}

// capture redirects the log of this process to a tail instead of printing it.
func capture() *tail {
	flags := flag.NewFlagSet("", flag.PanicOnError)
	klog.InitFlags(flags)
	_ = flags.Set("stderrthreshold", "FATAL")
	klog.LogToStderr(false)
	l := &tail{}
	// The output of a severity also receives the lines of all higher severities.
	klog.SetOutput(io.Discard)
	klog.SetOutputBySeverity("INFO", l)
	return l
}
