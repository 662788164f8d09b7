package chart

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"os/exec"
	"runtime/debug"
	"runtime/metrics"
	"strings"
	"syscall"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/kit/files"
)

// name is the name under which this program runs as the process that renders a chart.
const name = "gatehouse-chart"

// limits bound one rendering.
type limits struct {
	// Entries bounds the number of files and directories of the chart.
	Entries int
	// Memory bounds the memory of the process, and Output the rendered text, in bytes.
	Memory, Output int
	Time           time.Duration
}

var ordinary = limits{Entries: 20_000, Memory: 1 << 30, Output: 64 << 20, Time: time.Minute}

// request is a line for the process, and reply its answer.
type request struct {
	Options
	Limits limits
}

type reply struct {
	Result
	Error string
}

// Render renders a chart. The error is a sentence without the path of the chart.
func Render(ctx context.Context, o Options) (*Result, error) { return render(ctx, o, ordinary) }

func render(ctx context.Context, o Options, l limits) (*Result, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	line, err := json.Marshal(request{o, l})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, l.Time, fmt.Errorf("its templates need more than %s", l.Time))
	defer cancel()
	cmd := exec.CommandContext(ctx, program)
	cmd.Args = []string{name}
	// A terminal sends its signals to this process alone.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	var out bytes.Buffer
	var problems head
	cmd.Stdout, cmd.Stderr = &out, &problems
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	// The process ends when the pipe is closed. An error of writing is followed by one of waiting.
	_, _ = in.Write(line)
	err = cmd.Wait()
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	answer := reply{}
	if err == nil {
		err = json.Unmarshal(out.Bytes(), &answer)
	}
	if err != nil {
		if reason, _, _ := strings.Cut(string(problems), "\n"); reason != "" {
			err = fmt.Errorf("%w: %s", err, reason)
		}
		return nil, fmt.Errorf("the process that renders it ended: %w", err)
	}
	if answer.Error != "" {
		return nil, errors.New(answer.Error)
	}
	return &answer.Result, nil
}

// head keeps the begin of the output for errors, with the reason of a crash.
type head []byte

// mostReason bounds a head, in bytes.
const mostReason = 1 << 10

// Write implements io.Writer.
func (h *head) Write(data []byte) (int, error) {
	*h = append(*h, data[:min(len(data), mostReason-len(*h))]...)
	return len(data), nil
}

func init() {
	if len(os.Args) == 1 && os.Args[0] == name {
		serve(os.Stdin, os.Stdout)
		os.Exit(0)
	}
}

// serve renders the chart of a request.
func serve(in io.Reader, out io.Writer) {
	log.SetOutput(io.Discard)
	r := request{}
	if err := json.NewDecoder(in).Decode(&r); err != nil {
		send(out, reply{Error: err.Error()})
		return
	}
	go func() {
		_, _ = io.Copy(io.Discard, in)
		os.Exit(1)
	}()
	// A stack of the default size would exceed the memory.
	debug.SetMaxStack(r.Limits.Memory / 4)
	debug.SetGCPercent(100)
	rendered := make(chan reply, 1)
	go func() {
		result, err := r.render(r.Limits)
		if err != nil {
			// Templates may fail with any text.
			rendered <- reply{Error: files.Shorten(err).Error()}
			return
		}
		rendered <- reply{Result: *result}
	}()
	tick := time.Tick(10 * time.Millisecond)
	for {
		select {
		case a := <-rendered:
			send(out, a)
			return
		case <-tick:
			if used() > uint64(r.Limits.Memory) {
				send(out, reply{Error: fmt.Sprintf("its files and templates need more than %d MiB of memory", r.Limits.Memory>>20)})
				return
			}
		}
	}
}

// used returns the memory of this process, in bytes.
func used() uint64 {
	samples := []metrics.Sample{{Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/released:bytes"}}
	metrics.Read(samples)
	return samples[0].Value.Uint64() - samples[1].Value.Uint64()
}

// send writes a reply. Its error is left out: without a reader, this process ends with its input.
func send(out io.Writer, a reply) { _ = json.NewEncoder(out).Encode(a) }
