package dev

import (
	"bytes"
	"errors"
	"fmt"
	"os/exec"
	"strings"

	"github.com/gatehouse-dev/gatehouse/internal/readers/manifests"
)

// release is the name of the release in the templates of a chart.
const release = "dev"

// readChart adds the objects of a Helm chart, as 'helm template' of the PATH renders it. No dependency is downloaded. It
// calls reading with the chart and each file of values.
func (p *project) readChart(dir string, values []string, reading func(path string)) error {
	reading(dir)
	args := []string{"template", release, dir, "--include-crds", "--skip-tests"}
	for _, file := range values {
		reading(file)
		args = append(args, "--values", file)
	}
	var out, problems bytes.Buffer
	cmd := exec.Command("helm", args...)
	cmd.Stdout, cmd.Stderr = &out, &problems
	err := cmd.Run()
	switch {
	case errors.Is(err, exec.ErrNotFound):
		return errors.New("--chart: 'helm' is not on the PATH: install Helm, or render the chart elsewhere and name its output by -f")
	case err != nil:
		return fmt.Errorf("--chart %s: %w: %s", dir, err, strings.TrimSpace(problems.String()))
	}
	if err := p.read([]string{manifests.Stdin}, out.Bytes()); err != nil {
		return fmt.Errorf("--chart %s: %w", dir, err)
	}
	return nil
}
