package server

import (
	"slices"
	"strings"

	"github.com/gatehouse-dev/gatehouse/server/registrations"
)

// PluginNames lists the admission plugins that Options may name.
func PluginNames() []string {
	var names []string
	for _, p := range knownPlugins() {
		names = append(names, p.Name)
	}
	return names
}

// SwitchOn returns the entries of Options.RuntimeConfig with all versions switched on that
// kube-apiserver knows, too, and that no entry names.
func SwitchOn(entries []string) []string {
	entries = slices.Clone(entries)
	for _, version := range switchable {
		name := registrations.Group + "/" + version
		if !slices.ContainsFunc(entries, func(entry string) bool {
			named, _, _ := strings.Cut(entry, "=")
			return named == name
		}) {
			entries = append(entries, name+"=true")
		}
	}
	return entries
}

// CanSwitch reports whether Options.RuntimeConfig may have an entry: whether what it names can
// be switched.
func CanSwitch(entry string) bool {
	name, _, _ := strings.Cut(entry, "=")
	return slices.Contains(switches(), name)
}
