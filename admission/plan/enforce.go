package plan

import (
	"context"
	"fmt"

	"github.com/gatehouse-dev/gatehouse/admission/registration"
	"github.com/gatehouse-dev/gatehouse/admission/snapshot"
)

// Enforced says how hard an entry is for a request, and why. Its zero value is hard.
type Enforced struct {
	// Mode is Warn or Audit: the request goes on as if the entry did not exist. It is empty for an
	// entry that is hard.
	Mode registration.Mode `json:"mode"`
	// Rule is the name of the rule of the administrator that says so; absent when the annotation
	// of the object does.
	Rule string `json:"rule,omitempty"`
}

// String says what follows, for people.
func (e Enforced) String() string {
	by := "annotation " + registration.EnforcementAnnotation
	if e.Rule != "" {
		by = "rule " + e.Rule + " of the server"
	}
	follows := "a rejection is a warning, and nothing is changed"
	if e.Mode == registration.ModeAudit {
		follows = "a rejection is recorded, and nothing is changed"
	}
	return fmt.Sprintf("enforcement %s (%s): %s", e.Mode, by, follows)
}

// applied is nil for what is hard.
func (e Enforced) applied() *Enforced {
	if !e.Mode.Soft() {
		return nil
	}
	return &e
}

// enforced returns how hard the candidate's entry is for a request. Each binding of a policy has a
// word for itself, and without one that of its policy counts. What is wrong with a policy as a whole
// is as hard as the hardest of its bindings (S28.6): binding is nil then, and for other entries.
func (c *Candidate) enforced(ctx context.Context, r *Request, in *Input, binding *snapshot.Entry) Enforced {
	if c.Entry.Bindings == nil || binding != nil {
		return c.enforcedOne(ctx, r, in, binding)
	}
	var softest Enforced
	for i, b := range c.Entry.Bindings.All {
		e := c.enforcedOne(ctx, r, in, b)
		if !e.Mode.Soft() {
			return Enforced{}
		}
		if i == 0 || e.Mode == registration.ModeWarn {
			softest = e
		}
	}
	return softest
}

func (c *Candidate) enforcedOne(ctx context.Context, r *Request, in *Input, binding *snapshot.Entry) Enforced {
	own := c.Entry.Enforcement
	if binding != nil && binding.Enforcement != nil {
		own = binding.Enforcement
	}
	if own == nil && (c.Exclusion == nil || c.Exclusion.Modes == nil) {
		return Enforced{}
	}
	names := []string{c.Entry.Configuration}
	if binding != nil {
		names = append(names, binding.Configuration)
	}
	if mode, rule := c.Exclusion.Mode(names...); rule != nil {
		if !mode.Soft() {
			return Enforced{}
		}
		return Enforced{Mode: mode, Rule: rule.Name}
	}
	if own == nil || !own.Mode.Soft() || own.Rollout != nil && r.reached(ctx, in, own.Rollout) {
		return Enforced{}
	}
	return Enforced{Mode: own.Mode}
}

// reached reports whether a rollout has come to the namespace of a request. What cannot be read
// counts as reached, so that nothing gets through because of it.
func (r *Request) reached(ctx context.Context, in *Input, rollout *registration.Rollout) bool {
	isNamespace := r.Resource.Group == "" && r.Resource.Resource == "namespaces"
	namespace := r.Namespace
	switch {
	case isNamespace && namespace == "":
		namespace = r.Name
	case r.ClusterScoped && !isNamespace:
		namespace = ""
	}
	if rollout.Selector == nil {
		return rollout.Share(namespace)
	}
	if namespace == "" && !isNamespace {
		return false
	}
	found, err := namespaceLabels(ctx, r, in, isNamespace)
	return err != nil || rollout.Selector.Matches(found)
}
