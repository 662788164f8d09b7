package admission

import (
	"slices"
	"strings"

	"github.com/gatehouse-dev/gatehouse/admission/announce"
	"github.com/gatehouse-dev/gatehouse/admission/call"
	"github.com/gatehouse-dev/gatehouse/admission/snapshot"
)

// Target is the state of a webhook server that a plugin called recently. Each plugin has its own
// connections and circuits, so the state of one server can differ between plugins.
type Target struct {
	// Plugin is the name of the plugin.
	Plugin string
	call.Target
}

// Targets returns the recently called webhook servers, sorted by name, then by plugin.
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

// Skipped returns the webhooks of a snapshot that the engine currently does not call, in the form
// that servers announce, ordered by source and then by the order of the source (S5.1). The call is
// cheap if there are none.
func (e *Engine) Skipped(s *snapshot.Snapshot) []announce.Skipped {
	var list []announce.Skipped
	for _, c := range e.callers {
		if !slices.ContainsFunc(c.Targets(), func(t call.Target) bool { return t.State != call.TargetClosed }) {
			continue
		}
		for _, h := range s.Entries(c.source) {
			if t, ok := c.TargetOf(h.Entry); ok && t.State != call.TargetClosed {
				list = append(list, announce.Skipped{
					Registration: h.Entry.Source.Descriptor().Resource + "." + h.Entry.Configuration,
					Webhook:      h.Entry.Name, Target: t.Name, Since: t.Since.UTC(), Reason: t.LastError,
				})
			}
		}
	}
	return list
}
