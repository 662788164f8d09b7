package server

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gatehouse-dev/gatehouse/internal/server/api/catalog"
)

// PluginNames lists the admission plugins that Options may name.
func PluginNames() []string {
	var names []string
	for _, p := range knownPlugins() {
		names = append(names, p.Name)
	}
	return names
}

// CanSwitch reports whether Options.RuntimeConfig may have an entry.
func CanSwitch(entry string) bool {
	name, value, _ := strings.Cut(entry, "=")
	if value == "false" && isStability(name) {
		return false
	}
	_, resource := resourceOf(name)
	return resource || slices.Contains(switches(), name)
}

// Serves reports whether the version, or the resource, that an entry of Options.RuntimeConfig
// names is served without the entry.
func Serves(entry string) bool {
	name, _, _ := strings.Cut(entry, "=")
	parts := strings.Split(name, "/")
	if name == "v1" || name == "api/ga" {
		return true
	}
	return len(parts) > 1 && catalog.Default().GroupVersionConfigs[schema.GroupVersion{Group: parts[0], Version: parts[1]}]
}
