package snapshot

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"

	"github.com/gatehouse-dev/gatehouse/admission/registration"
)

// Target is the part of a request that is compared with rules.
type Target struct {
	Operation   admission.Operation
	Resource    schema.GroupVersionResource
	Subresource string
	// Namespaced reports whether the target counts as namespaced for the scope of a
	// rule (S2.8).
	Namespaced bool
}

// index finds webhooks by their rules. It may return webhooks that do not match a request, but
// never misses a match.
//
// A rule is indexed under every combination of its groups, versions and resources, with wildcards
// as written. A lookup tries the target's own group, version and resource, and each combination
// with wildcards that is in use: at most eight lookups.
type index struct {
	buckets map[schema.GroupVersionResource]*bucket
	// patterns has bit m set if a key with the wildcards of m is in use.
	patterns uint8
}

const (
	anyGroup = 1 << iota
	anyVersion
	anyResource
)

// bucket has the webhooks of one key.
type bucket struct {
	// main has the webhooks for requests without a subresource, subresources the webhooks for one
	// subresource, and anySubresource the webhooks for requests with any subresource or none.
	main           lists
	subresources   map[string]*lists
	anySubresource lists
}

// lists has ascending positions, by operation and scope.
type lists [4][2][]int32

// operationNumber returns an operation's index in lists; -1 if there is none.
func operationNumber(o admission.Operation) int {
	switch o {
	case admission.Create:
		return 0
	case admission.Update:
		return 1
	case admission.Delete:
		return 2
	case admission.Connect:
		return 3
	}
	return -1
}

// add indexes a webhook's rules. Positions must be added in ascending order.
func (x *index) add(position int32, rules []registration.Rule) {
	for i := range rules {
		r := &rules[i]
		for _, group := range r.APIGroups {
			for _, version := range r.APIVersions {
				for _, entry := range r.Resources {
					resource, sub, _ := strings.Cut(entry, "/")
					x.bucket(schema.GroupVersionResource{Group: group, Version: version, Resource: resource}).add(position, sub, r)
				}
			}
		}
	}
}

func (x *index) bucket(key schema.GroupVersionResource) *bucket {
	b := x.buckets[key]
	if b == nil {
		if x.buckets == nil {
			x.buckets = map[schema.GroupVersionResource]*bucket{}
		}
		b = &bucket{}
		x.buckets[key] = b
		var m uint8
		if key.Group == "*" {
			m |= anyGroup
		}
		if key.Version == "*" {
			m |= anyVersion
		}
		if key.Resource == "*" {
			m |= anyResource
		}
		x.patterns |= 1 << m
	}
	return b
}

func (b *bucket) add(position int32, sub string, r *registration.Rule) {
	switch sub {
	case "":
		b.main.add(position, r)
	case "*":
		// A rule for all subresources also matches requests without one (S2.7).
		b.main.add(position, r)
		b.anySubresource.add(position, r)
	default:
		if b.subresources == nil {
			b.subresources = map[string]*lists{}
		}
		if b.subresources[sub] == nil {
			b.subresources[sub] = &lists{}
		}
		b.subresources[sub].add(position, r)
	}
}

func (l *lists) add(position int32, r *registration.Rule) {
	for _, o := range []admission.Operation{admission.Create, admission.Update, admission.Delete, admission.Connect} {
		if !slices.Contains(r.Operations, "*") && !slices.Contains(r.Operations, string(o)) {
			continue
		}
		for scope, name := range [2]string{"Cluster", "Namespaced"} {
			if r.Scope != "*" && r.Scope != name {
				continue
			}
			list := &l[operationNumber(o)][scope]
			if n := len(*list); n == 0 || (*list)[n-1] != position {
				*list = append(*list, position)
			}
		}
	}
}

func (l *lists) of(operation int, t *Target) []int32 {
	if t.Namespaced {
		return l[operation][1]
	}
	return l[operation][0]
}

// candidates appends the positions of the webhooks that may match.
func (x *index) candidates(dst []int32, t *Target) []int32 {
	operation := operationNumber(t.Operation)
	if x.patterns == 0 || operation < 0 {
		return dst
	}
	start := len(dst)
	found := 0
	for m := range uint8(8) {
		if x.patterns&(1<<m) == 0 {
			continue
		}
		key := t.Resource
		if m&anyGroup != 0 {
			key.Group = "*"
		}
		if m&anyVersion != 0 {
			key.Version = "*"
		}
		if m&anyResource != 0 {
			key.Resource = "*"
		}
		b := x.buckets[key]
		if b == nil {
			continue
		}
		if t.Subresource == "" {
			dst, found = collect(dst, found, b.main.of(operation, t))
			continue
		}
		dst, found = collect(dst, found, b.anySubresource.of(operation, t))
		if l := b.subresources[t.Subresource]; l != nil {
			dst, found = collect(dst, found, l.of(operation, t))
		}
	}
	if found > 1 {
		slices.Sort(dst[start:])
		dst = dst[:start+len(slices.Compact(dst[start:]))]
	}
	return dst
}

// collect appends a list, and counts the lists that were not empty.
func collect(dst []int32, found int, list []int32) ([]int32, int) {
	if len(list) > 0 {
		found++
	}
	return append(dst, list...), found
}
