package plan

import (
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"

	"github.com/gatehouse-dev/gatehouse/admission/registration"
	"github.com/gatehouse-dev/gatehouse/admission/snapshot"
	"github.com/gatehouse-dev/gatehouse/internal/engine/exclusion"
)

// Candidate is an entry with a rule that matches a request. Decide reports at the candidate's turn
// whether the entry applies, because selectors and conditions see the object after all earlier
// steps (S2.20).
type Candidate struct {
	Entry *snapshot.Entry
	// Rule is the index of the rule that matched.
	Rule int
	// Resource, Subresource and Kind are the values for a review. If Equivalent is true, they
	// differ from the request's own (S2.24).
	Resource    schema.GroupVersionResource
	Subresource string
	Kind        schema.GroupVersionKind
	Equivalent  bool
	// Err is the reason why the kind for the review is unknown (S2.26). If the selectors match,
	// Decide returns Err, which then rejects the request.
	Err error
	// Exclusion has the administrator's exclusion rules that apply to the entry and this request;
	// nil if there are none (S23).
	Exclusion *exclusion.Exclusion
}

// Forgives reports whether a failure of the candidate's entry is ignored, because its failure
// policy is Ignore or an exclusion rule of the administrator ignores failures (S23.6).
func (c *Candidate) Forgives() bool { return Forgives(c.Entry.Entry) || c.Exclusion.Forgives() }

// Timeout returns how long one call of the candidate's webhook may take (S23.7).
func (c *Candidate) Timeout() time.Duration { return c.Exclusion.Timeout(c.Entry.Timeout) }

// Equivalents maps a resource to the resources with the same objects in another group or version
// (S2.23). A server's runtime.EquivalentResourceMapper implements it.
type Equivalents interface {
	// EquivalentResourcesFor returns the equivalents of a resource. Rules are compared with
	// them in this order. The resource itself may be among them.
	EquivalentResourcesFor(resource schema.GroupVersionResource, subresource string) []schema.GroupVersionResource
	// KindFor returns the kind of the objects of a resource; empty if unknown.
	KindFor(resource schema.GroupVersionResource, subresource string) schema.GroupVersionKind
}

// Candidates returns the entries of a source whose rules match a request, in order. Exempt
// requests have no candidates, or only entries of manifest files. A nil Equivalents means that
// no resource has equivalents.
//
// When there are no candidates, Candidates allocates nothing, and its cost does not depend on
// the number of entries.
func Candidates(s *snapshot.Snapshot, source registration.Source, r *Request, e Equivalents) []Candidate {
	table := s.Table(source)
	reach := ReachOf(source, r.Kind, r.Resource.GroupResource(), r.Reviews)
	if reach == Nothing || reach == Manifests && table.Manifests() == 0 {
		return nil
	}
	list := candidates(table, r, e, reach)
	if len(list) > 0 {
		if x := exclude(s, source, r); x != nil {
			for i := range list {
				list[i].Exclusion = x
			}
		}
	}
	return list
}

// exclude returns the administrator's exclusion rules that apply to the entries of a source and a
// request.
func exclude(s *snapshot.Snapshot, source registration.Source, r *Request) *exclusion.Exclusion {
	rules := s.Exclusions()
	if rules == nil {
		return nil
	}
	return rules.For(source.Descriptor().Plugin, &exclusion.Attributes{
		Operation: string(r.Operation), Group: r.Resource.Group, Resource: r.Resource.Resource, Subresource: r.Subresource,
		Namespace: r.Namespace, Name: r.Name, User: r.User,
	})
}

// candidates returns the entries of a table that are within reach and have a rule that matches the
// request.
func candidates(table *snapshot.Table, r *Request, e Equivalents, reach Reach) []Candidate {
	// The array is on the stack, and large enough for the matches of a request in practice.
	var array [64]int32
	target := targetOf(r)
	found := table.Candidates(array[:0], &target)
	others := equivalentsOf(table, r, e)
	for _, other := range others {
		if other != r.Resource {
			t := target
			t.Resource = other
			t.Namespaced = namespaced(r, other)
			found = table.EquivalentCandidates(found, &t)
		}
	}
	if reach == Manifests {
		found = slices.DeleteFunc(found, func(position int32) bool { return int(position) >= table.Manifests() })
	}
	if len(found) == 0 {
		return nil
	}
	if len(others) > 0 {
		slices.Sort(found)
		found = slices.Compact(found)
	}
	var list []Candidate
	entries := table.Entries()
	for i, position := range found {
		candidate, ok := match(entries[position], r, &target, others, e)
		if !ok {
			continue
		}
		if list == nil {
			list = make([]Candidate, 0, len(found)-i)
		}
		list = append(list, candidate)
	}
	return list
}

// equivalentsOf returns the equivalents of the request's resource; nil if no entry of the table has
// matchPolicy Equivalent.
func equivalentsOf(table *snapshot.Table, r *Request, e Equivalents) []schema.GroupVersionResource {
	if e == nil || !table.HasEquivalent() {
		return nil
	}
	return e.EquivalentResourcesFor(r.Resource, r.Subresource)
}

// match compares an entry's rules with a request: with the request's own resource first, then with
// the equivalents, the first rule first (S2.22). Exclude rules take precedence, and also match
// equivalent resources if the entry has matchPolicy Equivalent (S14.4).
func match(h *snapshot.Entry, r *Request, target *snapshot.Target, others []schema.GroupVersionResource, e Equivalents) (Candidate, bool) {
	excluding, ok := matchRules(h.Exclude, h, r, target, others, e)
	if ok && excluding.Err == nil {
		return Candidate{}, false
	}
	c, matched := matchRules(h.Rules, h, r, target, others, e)
	if len(h.Rules) == 0 && h.Binding != nil {
		// The policy's matchPolicy applies, not the binding's (S14.5).
		c, matched = exactCandidate(h, r, 0), true
	}
	if ok && matched {
		c.Err = excluding.Err
	}
	return c, matched
}

// matchRules returns the candidate for the first rule of an entry that matches.
func matchRules(rules []registration.Rule, h *snapshot.Entry, r *Request, target *snapshot.Target, others []schema.GroupVersionResource, e Equivalents) (Candidate, bool) {
	for i := range rules {
		if mismatch(&rules[i], r, target) == matches {
			return exactCandidate(h, r, i), true
		}
	}
	if !h.Equivalent {
		return Candidate{}, false
	}
	return matchEquivalent(rules, h, r, target, others, e)
}

// exactCandidate returns the candidate for a rule that matches the request's own resource.
func exactCandidate(h *snapshot.Entry, r *Request, rule int) Candidate {
	return Candidate{Entry: h, Rule: rule, Resource: r.Resource, Subresource: r.Subresource, Kind: r.Kind}
}

func matchEquivalent(rules []registration.Rule, h *snapshot.Entry, r *Request, target *snapshot.Target, others []schema.GroupVersionResource, e Equivalents) (Candidate, bool) {
	for i := range rules {
		for _, other := range others {
			if other == r.Resource {
				continue
			}
			t := *target
			t.Resource = other
			t.Namespaced = namespaced(r, other)
			// k8s.io/apiserver looks up the kind before it compares names (S14.8).
			differs := mismatch(&rules[i], r, &t)
			if differs != matches && differs != wrongName {
				continue
			}
			c := Candidate{
				Entry: h, Rule: i, Resource: other, Subresource: r.Subresource,
				Kind: e.KindFor(other, r.Subresource), Equivalent: true,
			}
			if c.Kind.Empty() {
				c.Err = &unknownKindError{other}
				if h.Policy == nil && h.Binding == nil {
					c.Err = apierrors.NewInternalError(c.Err)
				}
			} else if differs == wrongName {
				continue
			}
			return c, true
		}
	}
	return Candidate{}, false
}

// unknownKindError is the error for a resource of unknown kind (S2.26).
type unknownKindError struct{ resource schema.GroupVersionResource }

func (e *unknownKindError) Error() string {
	return "unable to convert to " + e.resource.String() + ": unknown kind"
}

// mirrorPod marks pods that a kubelet made from a file. They exist already, so there is nothing to
// initialize (S11.19).
const mirrorPod = "kubernetes.io/config.mirror"

// Initializers returns the initializers of a new object, in order (S11.5 to S11.7). If several have
// the same name, the first one applies. Initializers allocates nothing if there are none. The
// caller must ignore the result in two cases: the client sent a list of initializers, which is then
// used, or an exclusion rule of the administrator skips all initializers.
func Initializers(s *snapshot.Snapshot, r *Request, object runtime.Object) []Candidate {
	if notInitialized(r, object) != None {
		return nil
	}
	all := Candidates(s, registration.Initializing, r, nil)
	list := all[:0]
	for _, c := range all {
		if !slices.ContainsFunc(list, func(o Candidate) bool { return o.Entry.Name == c.Entry.Name }) {
			list = append(list, c)
		}
	}
	return list
}

// notInitialized returns the reason why no initializer can apply to a request; None if some may.
func notInitialized(r *Request, object runtime.Object) Code {
	switch {
	case Exempt(r.Kind, r.Resource.GroupResource()):
		return NotAsked
	case r.Operation != admission.Create || r.Subresource != "":
		return NotNew
	case r.Resource.GroupResource() == schema.GroupResource{Resource: "bindings"}:
		// A Binding is not stored: it changes a pod that was created before.
		return NotNew
	case r.Resource.GroupResource() == schema.GroupResource{Resource: "pods"} && isMirror(object):
		return MirrorPod
	}
	return None
}

func isMirror(object runtime.Object) bool {
	m, err := meta.Accessor(object)
	if err != nil {
		return false
	}
	_, mirror := m.GetAnnotations()[mirrorPod]
	return mirror
}
