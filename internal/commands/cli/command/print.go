package command

import (
	"encoding/json"
	"fmt"
	"io"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/gatehouse-dev/gatehouse/internal/kit/terminal"
)

// ProgressAfter is the time before a command prints its progress.
var ProgressAfter = 2 * time.Second

// ReadingCluster is the progress text of reading a cluster.
const ReadingCluster = "Reading the cluster"

// ReadingKinds is the progress text with the number of kinds that were read.
func ReadingKinds(done, of int) string {
	return fmt.Sprintf("%s: %d of %d kinds", ReadingCluster, done, of)
}

// WriteTable writes a table in the width of the terminal.
func WriteTable(out io.Writer, t *terminal.Table) error {
	page := terminal.NewPage(out)
	// A page accepts any output.
	_ = t.Print(page)
	return page.Flush()
}

// PrintAs prints a value as json or yaml, exactly.
func PrintAs(out io.Writer, format string, v any) error {
	data, err := marshal(v, format, "    ")
	if err == nil {
		_, err = terminal.Exact(out).Write(data)
	}
	return err
}

// Marshal encodes a value as json or yaml.
func Marshal(v any, format string) ([]byte, error) { return marshal(v, format, "  ") }

func marshal(v any, format, indent string) ([]byte, error) {
	if format == "yaml" {
		return yaml.Marshal(v)
	}
	text, err := json.MarshalIndent(v, "", indent)
	return append(text, '\n'), err
}
