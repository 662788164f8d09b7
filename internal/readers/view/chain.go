package view

import "github.com/gatehouse-dev/gatehouse/internal/readers/report"

// Chain shows how requests are admitted: the plugins of both passes, with the webhooks, policies and
// initializers. Only pages draw it.
type Chain struct {
	Passes []Pass
	// Hidden lists the resources that the viewer is not allowed to read.
	Hidden []string
}

func (Chain) block() {}

// Pass is one of the two passes.
type Pass struct {
	Name    string
	Plugins []Plugin
}

// Plugin is an admission plugin, with its entries if it runs webhooks, policies or initializers.
type Plugin struct {
	Name    string
	Acts    bool
	Entries []Registered
	// More counts the entries that are not listed. Hidden is set if the viewer is not allowed to read
	// them.
	More   int
	Hidden bool
}

// Total counts all entries.
func (p Plugin) Total() int { return len(p.Entries) + p.More }

// Registered is a webhook, a policy or an initializer.
type Registered struct {
	Kind, Configuration, Name string
	// State reports whether the registration is active, and Class is the CSS class of the state.
	State, Class string
	// Calls describes the number and the duration of calls. Counted is the key of the entry in the
	// metrics.
	Calls, Counted string
	Facts          Facts
	Rules          []string
	Problems       []report.Finding
}

// Title returns CONFIGURATION/NAME, or the configuration if there is no name.
func (r Registered) Title() string {
	if r.Name == "" {
		return r.Configuration
	}
	return r.Configuration + "/" + r.Name
}

// Found returns the problems as findings.
func (r Registered) Found() Findings { return findings(r.Problems, nil) }

// OfChain draws a chain.
func OfChain(c Chain) *Document { return &Document{Title: "Admission chain", Blocks: []Block{c}} }
