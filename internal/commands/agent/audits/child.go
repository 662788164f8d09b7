package audits

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/commands/predict/auditreport"
	"github.com/gatehouse-dev/gatehouse/internal/kit/subprocess"
)

// Bounds of the process that audits.
const (
	// objectRate is the number of objects read per second.
	objectRate = "100"
	// auditMemory is the memory size from which the process collects garbage more often.
	auditMemory = "160MiB"
	// maxReport bounds its report, in bytes.
	maxReport = 128 << 20
	// patience is the time to end after SIGTERM.
	patience = 10 * time.Second
)

// By returns a function that audits the objects of resources in a child process of a program, gatehouse. The
// embedded server that evaluates the policies has its own metrics and memory, which must stay separate from this
// process. kubeconfig is empty in a pod.
func By(program, kubeconfig string, resources []string) func(context.Context) (*auditreport.Report, error) {
	args := []string{program, "audit", "--output=json", "--object-rate=" + objectRate, "--resource=" + strings.Join(resources, ",")}
	if kubeconfig != "" {
		args = append(args, "--kubeconfig="+kubeconfig)
	}
	return func(ctx context.Context) (*auditreport.Report, error) {
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
		// The exit code is not 0 if the audit has findings, or nothing to evaluate.
		report := &auditreport.Report{}
		if err := json.Unmarshal(out.text, report); err != nil || report.Kind != auditreport.Kind {
			return nil, errors.Join(fmt.Errorf("an audit made no report: %s", said), p.Err)
		}
		return report, nil
	}
}

// bounded collects at most maxReport bytes. A longer output is an error, which ends the program.
type bounded struct{ text []byte }

// Write implements io.Writer.
func (b *bounded) Write(data []byte) (int, error) {
	if len(b.text)+len(data) > maxReport {
		return 0, fmt.Errorf("the report of an audit has more than %d bytes", maxReport)
	}
	b.text = append(b.text, data...)
	return len(data), nil
}
