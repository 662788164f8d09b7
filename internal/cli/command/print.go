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
	var data []byte
	var err error
	if format == "yaml" {
		data, err = yaml.Marshal(v)
	} else if data, err = json.MarshalIndent(v, "", "    "); err == nil {
		data = append(data, '\n')
	}
	if err != nil {
		return err
	}
	_, err = terminal.Exact(out).Write(data)
	return err
}
