package check

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
	// Webhook is CONFIGURATION/NAME, or the name alone when it is expected.
	Webhook string `json:"webhook,omitempty"`
}

// Means reports whether d, which decided, is the expected decider b.
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

// IsCalled reports whether a name as people write it means a webhook.
func IsCalled(written, name string) bool {
	configuration, own, _ := strings.Cut(name, "/")
	return written == name || written == own || written == configuration
}

// The values of Decider.Plugin where no plugin decided.
const (
	Authorization = "authorization"
	API           = "api"
)

// Course is what admission did with a request.
type Course struct {
	// By are the deciders that rejected the request. Called are the webhooks that were called, as
	// CONFIGURATION/NAME. Cost is the cost of all CEL expressions of policies.
	By     []Decider
	Called []string
	Cost   uint64
}

// Course returns what admission did with a request that was judged.
func (q *Request) Course(a *Answer) Course {
	var c Course
	for _, s := range q.Rehearsal.Trace().Steps() {
		c.step(&s)
	}
	switch {
	case a.Status == nil || q.Rehearsal.Connected():
		c.By = nil
	case len(c.By) > 0:
	case !q.Rehearsal.Authorized():
		c.By = []Decider{{Plugin: Authorization}}
	default:
		c.By = []Decider{{Plugin: API}}
	}
	return c
}

// step takes in what one plugin did.
func (c *Course) step(s *trace.Step) {
	if run := s.Run; run != nil {
		for i := range run.Judgements {
			j := &run.Judgements[i]
			for k := range j.Evaluations {
				c.Cost += j.Evaluations[k].Cost
			}
			for k := range j.Consequences {
				if q := &j.Consequences[k]; q.Denied && s.Err != nil {
					d := Decider{Plugin: s.Plugin, Policy: j.Policy.Configuration, Binding: q.Binding}
					if !q.Configuration || q.Code == "Violated" {
						index := int64(q.Index)
						d.Validation = &index
					}
					c.By = append(c.By, d)
				}
			}
		}
		for i := range run.Calls {
			call := &run.Calls[i]
			name := call.Entry.Configuration + "/" + call.Entry.Name
			if call.UID != "" && !slices.Contains(c.Called, name) {
				c.Called = append(c.Called, name)
			}
			if s.Err != nil && call.Rejected() {
				c.By = append(c.By, Decider{Plugin: s.Plugin, Webhook: name})
			}
		}
	}
	if s.Err != nil && len(c.By) == 0 {
		c.By = append(c.By, Decider{Plugin: s.Plugin})
	}
}
