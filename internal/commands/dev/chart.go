package dev

import (
	"context"
	"fmt"

	"github.com/gatehouse-dev/gatehouse/internal/commands/dev/chart"
	"github.com/gatehouse-dev/gatehouse/internal/commands/predict/offline"
	"github.com/gatehouse-dev/gatehouse/internal/kit/emulation"
	"github.com/gatehouse-dev/gatehouse/internal/readers/manifests"
)

// release is the name of the release in the templates of a chart, and releaseNamespace its namespace.
const (
	release          = "dev"
	releaseNamespace = "default"
)

// readChart adds the objects of a Helm chart. It calls reading with the chart, its files, and each file of values.
func (p *project) readChart(ctx context.Context, dir string, values []string, reading func(path string)) error {
	reading(dir)
	for _, file := range values {
		reading(file)
	}
	rendered, err := chart.Render(ctx, chart.Options{
		Path: dir, Values: values, Release: release, Namespace: releaseNamespace,
		Kubernetes: "v" + emulation.Release, Versions: servedVersions(),
	})
	if err != nil {
		return fmt.Errorf("--chart %s: %w", dir, err)
	}
	for _, file := range rendered.Files {
		reading(file)
	}
	p.remarks = append(p.remarks, rendered.Notes...)
	if err := p.read([]string{manifests.Stdin}, []byte(rendered.Manifests)); err != nil {
		return fmt.Errorf("--chart %s: %w", dir, err)
	}
	return nil
}

// servedVersions returns the group versions and kinds of the server, as Helm finds them by discovery.
func servedVersions() (versions []string) {
	every := []string{"*"}
	last := ""
	for _, k := range offline.Builtin().Matching(every, every, every) {
		gv := k.Resource.GroupVersion().String()
		if gv != last {
			versions, last = append(versions, gv), gv
		}
		versions = append(versions, gv+"/"+k.Kind.Kind)
	}
	return versions
}
