package pages

import (
	"fmt"

	"github.com/gatehouse-dev/gatehouse/internal/report"
)

// Chain is what judges requests: the plugins of both passes, and what is registered.
type Chain struct {
	Passes []Pass
	// Hidden says what the viewer may not see.
	Hidden []string
}

// Pass is one of the two passes.
type Pass struct {
	Name    string
	Plugins []Plugin
}

// Plugin is an admission plugin, with its entries if it acts on registrations.
type Plugin struct {
	Name    string
	Acts    bool
	Entries []Registered
	// More is how many entries there are besides. Hidden reports whether the viewer may not see them.
	More   int
	Hidden bool
}

// Total is how many entries there are.
func (p Plugin) Total() int { return len(p.Entries) + p.More }

// Registered is a webhook, a policy or an initializer.
type Registered struct {
	Kind, Configuration, Name string
	// State says whether it is in force, and Class is the class of that.
	State, Class string
	// Calls says how often it was called, and how long that took. Counted names it for that.
	Calls, Counted string
	Facts          []Fact
	Rules          []string
	Problems       []report.Finding
}

// Fact is a name and what it stands for.
type Fact struct{ Name, Text string }

// OfChain returns the picture of a chain.
func OfChain(c Chain, links Links) View {
	type drawn struct {
		Registered
		Title, Href string
		Problems    []drawnFinding
	}
	type drawnPlugin struct {
		Plugin
		Entries []drawn
	}
	type drawnPass struct {
		Name    string
		Plugins []drawnPlugin
	}
	var list []drawnPass
	for _, p := range c.Passes {
		pass := drawnPass{Name: p.Name}
		for _, plugin := range p.Plugins {
			one := drawnPlugin{Plugin: plugin}
			for _, e := range plugin.Entries {
				d := drawn{Registered: e, Title: e.Configuration, Href: links.entry(e.Kind, e.Configuration)}
				if e.Name != "" {
					d.Title += "/" + e.Name
				}
				d.Problems = drawFindings(e.Problems, nil)
				one.Entries = append(one.Entries, d)
			}
			pass.Plugins = append(pass.Plugins, one)
		}
		list = append(list, pass)
	}
	return View{Title: "What judges requests", template: "chain", data: struct {
		Passes []drawnPass
		Hidden []string
	}{list, c.Hidden}, markdown: func(m *markdown) {
		m.head("pass", "plugin", "registered", "state")
		for _, p := range list {
			for _, plugin := range p.Plugins {
				for _, e := range plugin.Entries {
					m.row(p.Name, code(plugin.Name), code(e.Title), escaped(e.State))
				}
				if n := plugin.More; n > 0 {
					m.row(p.Name, code(plugin.Name), fmt.Sprintf("and %d more", n), "")
				}
			}
		}
		m.end()
	}}
}
