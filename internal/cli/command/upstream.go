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

// upstreamNotes say what the command serve has for flags of kube-apiserver.
//
//go:embed kubeapiserver_notes.txt
var upstreamNotes string

// UpstreamNote returns why a flag of kube-apiserver is not here, or how the flag of that name
// differs; empty if it is the same.
func UpstreamNote(name string) string {
	for _, line := range GeneratedLines(upstreamNotes) {
		if note, ok := strings.CutPrefix(line, name+": "); ok {
			return note
		}
	}
	return ""
}

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
