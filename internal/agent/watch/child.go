package watch

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/predict/replay"
	"github.com/gatehouse-dev/gatehouse/internal/subprocess"
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
	args := []string{program, "audit", "--output=json", "--object-rate=" + objectRate, "--resource=" + strings.Join(resources, ",")}
	if kubeconfig != "" {
		args = append(args, "--kubeconfig="+kubeconfig)
	}
	return func(ctx context.Context) (*replay.AuditReport, error) {
		out, said := &bounded{}, &subprocess.Tail{}
		p, err := subprocess.Start(args, append(os.Environ(), "GOMEMLIMIT="+auditMemory, "GOMAXPROCS=1"), "", out, said, nil)
		if err != nil {
			return nil, fmt.Errorf("starting an audit: %w", err)
		}
		select {
		case <-p.Gone:
		case <-ctx.Done():
		}
		p.Stop(patience)
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		// An audit that finds something, or nothing to judge, says so by its exit code, too.
		report := &replay.AuditReport{}
		if err := json.Unmarshal(out.text, report); err != nil || report.Kind != "AuditReport" {
			return nil, errors.Join(fmt.Errorf("an audit made no report: %s", said), p.Err)
		}
		return report, nil
	}
}

// bounded keeps what is written, up to maxAuditOutput. More is an error, which ends the program.
type bounded struct{ text []byte }

// Write implements io.Writer.
func (b *bounded) Write(data []byte) (int, error) {
	if len(b.text)+len(data) > maxAuditOutput {
		return 0, fmt.Errorf("the report of an audit has more than %d bytes", maxAuditOutput)
	}
	b.text = append(b.text, data...)
	return len(data), nil
}
