package cli

import (
	"fmt"
	"io"
	"time"

	"github.com/gatehouse-dev/gatehouse/admission/trace"
	"github.com/gatehouse-dev/gatehouse/internal/report"
	"github.com/gatehouse-dev/gatehouse/internal/terminal"
)

// progressAfter is how long a command works before it shows its progress.
var progressAfter = 2 * time.Second

// readingCluster is what a command does first that reads a cluster.
const readingCluster = "Reading the cluster"

// readingKinds says how many kinds of objects of a cluster are read.
func readingKinds(done, of int) string {
	return fmt.Sprintf("%s: %d of %d kinds", readingCluster, done, of)
}

// writeTable writes a table as wide as the terminal.
func writeTable(out io.Writer, t *terminal.Table) error {
	page := terminal.NewPage(out)
	// A page takes everything.
	_ = t.Print(page)
	return page.Flush()
}

// outcomePainted is the outcome of a request, which stands out when something failed.
func outcomePainted(outcome trace.Outcome) terminal.Painted {
	switch outcome {
	case trace.OutcomeAllowed:
		return terminal.Paint(terminal.Green, string(outcome))
	case trace.OutcomeFailedOpen:
		return terminal.Paint(terminal.Yellow, string(outcome))
	}
	return terminal.Paint(terminal.Red, string(outcome))
}

// levelPainted is the level of a finding.
func levelPainted(level report.Level) terminal.Painted {
	switch level {
	case report.Error:
		return terminal.Paint(terminal.Red, string(level))
	case report.Warning:
		return terminal.Paint(terminal.Yellow, string(level))
	}
	return terminal.Paint(terminal.Cyan, string(level))
}
