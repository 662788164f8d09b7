package plan

import (
	"context"
	"fmt"

	"github.com/gatehouse-dev/gatehouse/admission/registration"
	"github.com/gatehouse-dev/gatehouse/admission/snapshot"
)

// Enforced is the enforcement of an entry for a request, and its origin. The zero value means
// enforced.
type Enforced struct {
	// Mode is Warn or Audit: the request continues as if the entry did not exist. It is empty for
	// an enforced entry.
	Mode registration.Mode `json:"mode"`
	// Rule is the name of the administrator's rule that sets the mode; absent if the annotation of
	// the object sets it.
	Rule string `json:"rule,omitempty"`
}

// String describes the effect, for people.
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

// applied returns a copy of e; nil if the entry is enforced.
func (e Enforced) applied() *Enforced {
	if !e.Mode.Soft() {
		return nil
	}
	return &e
}

// enforced returns the enforcement of the candidate's entry for a request. A binding has the
// enforcement of its own annotation, or else of its policy. If binding is nil, the result is for an
// error of the whole policy, which has the enforcement of the policy's strictest binding (S28.6).
// binding is also nil for entries that are not policies.
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

// reached reports whether a rollout has reached the namespace of a request. A namespace that cannot
// be read counts as reached, so that the error cannot turn off the enforcement of an entry.
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
