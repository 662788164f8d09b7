package dev

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// S33.17: a chart is rendered by the helm of the PATH, and its files are watched.
func TestCharts(t *testing.T) {
	tools := t.TempDir()
	script := "#!/bin/sh\n[ \"$3\" = broken ] && { echo no such chart >&2; exit 1; }\necho 'apiVersion: v1'\necho 'kind: ConfigMap'\necho \"metadata: {name: c}\"\necho \"data: {args: '$*'}\"\n"
	t.Setenv("PATH", tools)
	read := func(dir string) error {
		return (&project{}).readChart(dir, nil, func(string) {})
	}
	if err := read("chart"); err == nil || !strings.Contains(err.Error(), "'helm' is not on the PATH") {
		t.Errorf("without helm: %v", err)
	}
	t.Setenv("PATH", tools+":/bin:/usr/bin")
	if err := os.WriteFile(filepath.Join(tools, "helm"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	p := &project{}
	var seen []string
	if err := p.readChart("chart", []string{"a.yaml", "b.yaml"}, func(path string) { seen = append(seen, path) }); err != nil {
		t.Fatal(err)
	}
	want := "template dev chart --include-crds --skip-tests --values a.yaml --values b.yaml"
	if got := text(p.objects[0].Object, "data", "args"); got != want || !slices.Equal(seen, []string{"chart", "a.yaml", "b.yaml"}) {
		t.Errorf("it runs helm %s, and watches %q", got, seen)
	}
	if err := read("broken"); err == nil || !strings.Contains(err.Error(), "--chart broken: exit status 1: no such chart") {
		t.Errorf("a broken chart: %v", err)
	}
}
