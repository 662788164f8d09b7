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

// upstreamNotes describe how serve differs from kube-apiserver in its flags.
//
//go:embed kubeapiserver_notes.txt
var upstreamNotes string

// UpstreamNote returns the reason for a missing kube-apiserver flag, or the difference of the flag here; empty
// if the flags are equal.
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
