package view

import "github.com/gatehouse-dev/gatehouse/internal/report"

// Chain is what judges requests: the plugins of both passes, and what is registered. Only a page draws it.
type Chain struct {
	Passes []Pass
	// Hidden says what the viewer may not see.
	Hidden []string
}

func (Chain) block() {}

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
	Facts          Facts
	Rules          []string
	Problems       []report.Finding
}

// Title names it as CONFIGURATION/NAME, or by its configuration.
func (r Registered) Title() string {
	if r.Name == "" {
		return r.Configuration
	}
	return r.Configuration + "/" + r.Name
}

// Found are its problems, as they are drawn.
func (r Registered) Found() Findings { return findings(r.Problems, nil) }

// OfChain returns the picture of a chain.
func OfChain(c Chain) *Document { return &Document{Title: "What judges requests", Blocks: []Block{c}} }
