package command

import (
	_ "embed"
	"strings"
)

// UpstreamFlags are the flags of kube-apiserver, a name and a type in each line.
//
//go:embed kubeapiserver_flags.txt
var UpstreamFlags string

// UpstreamPlugins are the names of kube-apiserver's admission plugins, one in each line.
//
//go:embed kubeapiserver_plugins.txt
var UpstreamPlugins string

// GeneratedLines lists the lines of a generated file.
func GeneratedLines(text string) []string {
	var lines []string
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
			lines = append(lines, line)
		}
	}
	return lines
}
