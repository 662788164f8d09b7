package before

import (
	"errors"
	"io"
	"testing"

	"github.com/gatehouse-dev/gatehouse/internal/commands/cli/command"
	"github.com/gatehouse-dev/gatehouse/internal/commands/predict/check"
	"github.com/gatehouse-dev/gatehouse/internal/readers/report"
)

// An error of the writer is an error of the report.
func TestCheckReportsThatItCannotWrite(t *testing.T) {
	for _, format := range report.Formats {
		o := &checkOptions{output: command.ReportFormat{Name: format}}
		if err := o.print(broken{}, &check.Report{}); !errors.Is(err, io.ErrClosedPipe) {
			t.Errorf("%s: %v", format, err)
		}
	}
}

type broken struct{}

func (broken) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }
