package rejection

import (
	"strconv"
	"strings"
)

// Decider is the plugin, policy or webhook that rejected a request.
type Decider struct {
	Plugin  string `json:"plugin,omitempty"`
	Policy  string `json:"policy,omitempty"`
	Binding string `json:"binding,omitempty"`
	// Validation is the index of the validation, from 0.
	Validation *int64 `json:"validation,omitempty"`
	// Webhook is CONFIGURATION/NAME, or the name alone in an expectation.
	Webhook string `json:"webhook,omitempty"`
}

// Means reports whether d, which decided, matches the expected decider b.
func (b *Decider) Means(d Decider) bool {
	return (b.Plugin == "" || b.Plugin == d.Plugin) && (b.Policy == "" || b.Policy == d.Policy) &&
		(b.Binding == "" || b.Binding == d.Binding) && (b.Webhook == "" || d.Webhook != "" && IsCalled(b.Webhook, d.Webhook)) &&
		(b.Validation == nil || d.Validation != nil && *b.Validation == *d.Validation)
}

func (b *Decider) String() string {
	var parts []string
	add := func(name, value string) {
		if value != "" {
			parts = append(parts, name+" "+value)
		}
	}
	add("plugin", b.Plugin)
	add("policy", b.Policy)
	add("binding", b.Binding)
	if b.Validation != nil {
		add("validation", strconv.FormatInt(*b.Validation, 10))
	}
	add("webhook", b.Webhook)
	return strings.Join(parts, ", ")
}

// Name returns the policy, the webhook or else the plugin.
func (b *Decider) Name() string {
	switch {
	case b.Policy != "":
		return "policy " + b.Policy
	case b.Webhook != "":
		return "webhook " + b.Webhook
	case b.Plugin == API:
		return "the API server"
	}
	return "plugin " + b.Plugin
}

// IsCalled reports whether a name written by a user refers to a webhook.
func IsCalled(written, name string) bool {
	configuration, own, _ := strings.Cut(name, "/")
	return written == name || written == own || written == configuration
}

// The values of Decider.Plugin if no plugin decided.
const (
	Authorization = "authorization"
	API           = "api"
)

// Course summarizes the admission of a request.
type Course struct {
	// By lists the deciders that rejected the request. Called lists the webhooks that were called, as
	// CONFIGURATION/NAME. Cost is the cost of all CEL expressions of policies.
	By     []Decider
	Called []string
	Cost   uint64
}
