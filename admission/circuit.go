package admission

import (
	"slices"
	"strings"

	"github.com/gatehouse-dev/gatehouse/admission/call"
	"github.com/gatehouse-dev/gatehouse/admission/registration"
	"github.com/gatehouse-dev/gatehouse/admission/snapshot"
)

// Target is how it stands with a webhook server that was called lately by a
// plugin. Each plugin finds out for itself.
type Target struct {
	// Plugin is the name of the plugin.
	Plugin string
	call.Target
}

// Targets returns the webhook servers that were called lately, sorted by name,
// then by plugin.
func (e *Engine) Targets() []Target {
	var list []Target
	for _, c := range e.callers {
		for _, t := range c.Targets() {
			list = append(list, Target{c.plugin, t})
		}
	}
	slices.SortStableFunc(list, func(a, b Target) int { return strings.Compare(a.Name, b.Name) })
	return list
}

// Skipped is a webhook that is not called, because its server could not be reached
// several times in a row.
type Skipped struct {
	Entry  *registration.Entry
	Target call.Target
}

// Skipped returns which webhooks of a snapshot are not called now, by source and
// in order (S5.1). It is cheap when there are none.
func (e *Engine) Skipped(s *snapshot.Snapshot) []Skipped {
	var list []Skipped
	for _, c := range e.callers {
		if !slices.ContainsFunc(c.Targets(), func(t call.Target) bool { return t.State != call.TargetClosed }) {
			continue
		}
		for _, h := range s.Entries(c.source) {
			if t, ok := c.TargetOf(h.Entry); ok && t.State != call.TargetClosed {
				list = append(list, Skipped{h.Entry, t})
			}
		}
	}
	return list
}
