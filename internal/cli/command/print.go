package command

import (
	"encoding/json"
	"fmt"
	"io"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/gatehouse-dev/gatehouse/internal/terminal"
)

// ProgressAfter is how long a command works before it shows its progress.
var ProgressAfter = 2 * time.Second

// ReadingCluster is what a command does first that reads a cluster.
const ReadingCluster = "Reading the cluster"

// ReadingKinds says how many kinds of objects of a cluster are read.
func ReadingKinds(done, of int) string {
	return fmt.Sprintf("%s: %d of %d kinds", ReadingCluster, done, of)
}

// WriteTable writes a table as wide as the terminal.
func WriteTable(out io.Writer, t *terminal.Table) error {
	page := terminal.NewPage(out)
	// A page takes everything.
	_ = t.Print(page)
	return page.Flush()
}

// PrintAs writes a value for programs, as json or yaml, exactly.
func PrintAs(out io.Writer, format string, v any) error {
	data, err := marshal(v, format, "    ")
	if err == nil {
		_, err = terminal.Exact(out).Write(data)
	}
	return err
}

// Marshal writes a value for programs, as json or yaml.
func Marshal(v any, format string) ([]byte, error) { return marshal(v, format, "  ") }

func marshal(v any, format, indent string) ([]byte, error) {
	if format == "yaml" {
		return yaml.Marshal(v)
	}
	text, err := json.MarshalIndent(v, "", indent)
	return append(text, '\n'), err
}
