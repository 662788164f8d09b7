package server

import (
	"slices"
	"strings"

	"github.com/gatehouse-dev/gatehouse/admission"
	"github.com/gatehouse-dev/gatehouse/server/registrations"
)

// PluginNames lists the admission plugins that Options may name.
func PluginNames() []string {
	var names []string
	for _, p := range admission.Recommended() {
		names = append(names, p.Name)
	}
	return names
}

// CanSwitch tells whether Options.RuntimeConfig may have an entry: whether the version
// that it names can be switched.
func CanSwitch(entry string) bool {
	name, _, _ := strings.Cut(entry, "=")
	version, ok := strings.CutPrefix(name, registrations.Group+"/")
	return ok && slices.Contains(switchable, version)
}
