package stage

import (
	"slices"
	"strconv"
	"strings"

	"github.com/gatehouse-dev/gatehouse/admission/trace"
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

// Course summarizes the admission of an answered question.
func (q *Question) Course(a *Answer) Course {
	r := a.Trace.Verdicts(false)
	c := Course{Cost: uint64(r.Cost())}
	for call := range r.Calls() {
		if name := call.Webhook.String(); call.UID != "" && !slices.Contains(c.Called, name) {
			c.Called = append(c.Called, name)
		}
	}
	switch {
	case a.OK() || q.Rehearsal.Connected():
		return c
	case !q.Rehearsal.Authorized():
		c.By = []Decider{{Plugin: Authorization}}
	default:
		c.By = []Decider{{Plugin: API}}
	}
	if by := decidersOf(r); len(by) > 0 {
		c.By = by
	}
	return c
}

// decidersOf returns the deciders that rejected a request.
func decidersOf(r *trace.Record) []Decider {
	var list []Decider
	for act := range r.Rejections() {
		d := Decider{Plugin: act.Step.Plugin, Binding: act.Binding}
		switch act.Kind {
		case trace.ByPolicy:
			d.Policy = act.By
			if act.Index != nil {
				index := int64(*act.Index)
				d.Validation = &index
			}
		case trace.ByWebhook:
			d.Webhook = act.By
		}
		list = append(list, d)
	}
	return list
}
