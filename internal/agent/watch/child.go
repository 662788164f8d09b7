package watch

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/predict/replay"
)

// Bounds of the process that audits.
const (
	// objectRate is how many objects are read in a second.
	objectRate = "100"
	// auditMemory is the size, in MiB, from which on it collects its garbage more often.
	auditMemory = "160MiB"
	// maxAuditOutput bounds its report, in bytes.
	maxAuditOutput = 128 << 20
	// patience is how long it may take to end when it is asked to.
	patience = 10 * time.Second
)

// AuditBy returns a function that has a process of a program, gatehouse, audit the objects of resources: a server
// that judges has metrics and memory of its own, which are not those of this process. kubeconfig is empty in a pod.
func AuditBy(program, kubeconfig string, resources []string) func(context.Context) (*replay.AuditReport, error) {
	return func(ctx context.Context) (*replay.AuditReport, error) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		cmd := exec.CommandContext(ctx, program, "audit", "--output=json", "--object-rate="+objectRate, "--resource="+strings.Join(resources, ","))
		if kubeconfig != "" {
			cmd.Args = append(cmd.Args, "--kubeconfig="+kubeconfig)
		}
		cmd.Env = append(os.Environ(), "GOMEMLIMIT="+auditMemory, "GOMAXPROCS=1")
		cmd.Cancel, cmd.WaitDelay = func() error { return cmd.Process.Signal(syscall.SIGTERM) }, patience
		said := &tail{}
		cmd.Stderr = said
		out, err := cmd.StdoutPipe()
		if err != nil {
			return nil, err
		}
		if err := cmd.Start(); err != nil {
			return nil, fmt.Errorf("starting an audit: %w", err)
		}
		data, err := io.ReadAll(io.LimitReader(out, maxAuditOutput+1))
		if err == nil && len(data) > maxAuditOutput {
			err = fmt.Errorf("the report of an audit has more than %d bytes", maxAuditOutput)
		}
		if err != nil {
			cancel()
		}
		ended := cmd.Wait()
		if ctx.Err() != nil {
			return nil, errors.Join(err, context.Cause(ctx))
		}
		// An audit that finds something, or nothing to judge, says so by its exit code, too.
		report := &replay.AuditReport{}
		if err := json.Unmarshal(data, report); err != nil || report.Kind != "AuditReport" {
			return nil, errors.Join(fmt.Errorf("an audit made no report: %s", bytes.TrimSpace(said.text)), ended)
		}
		return report, nil
	}
}

// tail keeps the end of what is written.
type tail struct{ text []byte }

func (t *tail) Write(data []byte) (int, error) {
	const most = 4 << 10
	t.text = append(t.text, data...)
	if len(t.text) > most {
		t.text = t.text[len(t.text)-most:]
	}
	return len(data), nil
}
