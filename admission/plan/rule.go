package plan

import (
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gatehouse-dev/gatehouse/admission/registration"
	"github.com/gatehouse-dev/gatehouse/admission/snapshot"
	"github.com/gatehouse-dev/gatehouse/internal/engine/exclusion"
)

// part is a part of a rule.
type part uint8

const (
	// matches: every part of the rule matches.
	matches part = iota
	wrongResource
	wrongOperation
	wrongScope
	wrongName
)

// mismatch returns the first part of a rule that does not match the target (S2.5 to
// S2.8).
func mismatch(r *registration.Rule, request *Request, t *snapshot.Target) part {
	switch {
	case !anyOrOne(r.APIGroups, t.Resource.Group),
		!anyOrOne(r.APIVersions, t.Resource.Version),
		!exclusion.Covers(r.Resources, t.Resource.Resource, t.Subresource):
		return wrongResource
	case !anyOrOne(r.Operations, string(t.Operation)):
		return wrongOperation
	case r.Scope == "Namespaced" && !t.Namespaced, r.Scope == "Cluster" && t.Namespaced:
		return wrongScope
	case len(r.ResourceNames) > 0 && !slices.Contains(r.ResourceNames, request.Name):
		return wrongName
	}
	return matches
}

func anyOrOne(list []string, want string) bool {
	for _, s := range list {
		if s == want || s == "*" {
			return true
		}
	}
	return false
}

// namespaced reports whether a request counts as namespaced for the scope of rules, if it is
// matched as a request for the given resource (S2.8).
func namespaced(r *Request, resource schema.GroupVersionResource) bool {
	return r.Namespace != "" && resource != schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}
}

func targetOf(r *Request) snapshot.Target {
	return snapshot.Target{
		Operation:   r.Operation,
		Resource:    r.Resource,
		Subresource: r.Subresource,
		Namespaced:  namespaced(r, r.Resource),
	}
}

// RuleMatches reports whether one rule matches a request for its own resource (S2.5 to S2.8). It is
// for explaining single rules. Candidates decides which entries apply to a request.
func RuleMatches(rule *registration.Rule, r *Request) bool {
	t := targetOf(r)
	return mismatch(rule, r, &t) == matches
}
