package plan

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gatehouse-dev/gatehouse/admission/condition"
	"github.com/gatehouse-dev/gatehouse/admission/registration"
	"github.com/gatehouse-dev/gatehouse/admission/snapshot"
)

// Code says which test a hook failed.
type Code uint8

const (
	// None: no test was failed. It is the Code of the zero Reason.
	None Code = iota
	// NotAsked: hooks are not asked about this kind of object (Exempt).
	NotAsked
	// NoRule: no rule matches.
	NoRule
	// NamespaceNotSelected: the namespaceSelector does not match.
	NamespaceNotSelected
	// ObjectNotSelected: the objectSelector matches neither object.
	ObjectNotSelected
	// ConditionFalse: a match condition is false.
	ConditionFalse
)

// String names the code, for output that programs read.
func (c Code) String() string {
	return [...]string{"", "NotAsked", "NoRule", "NamespaceNotSelected", "ObjectNotSelected", "ConditionFalse"}[c]
}

// Reason is why a hook is not called. It keeps what it needs to say so; making the
// text is left to String, so that a reason nobody reads costs nothing.
type Reason struct {
	Code Code

	hook              *snapshot.Hook
	request           *Request
	others            []schema.GroupVersionResource
	labels, oldLabels labels.Labels
	condition         *condition.Condition
}

// String says in a sentence, without a full stop, why the hook is not called. It
// must be called before the objects of the request change. The reason of a hook
// that is called is empty.
func (r Reason) String() string {
	switch r.Code {
	case None:
		return ""
	case NotAsked:
		return fmt.Sprintf("hooks are never asked about %s", resourceText(r.request.Resource, ""))
	case NoRule:
		return r.noRule()
	case NamespaceNotSelected:
		if r.hook.Hook.NamespaceSelector == nil {
			return "namespaceSelector is absent, which selects nothing"
		}
		return fmt.Sprintf("namespaceSelector %s does not match %s", r.hook.NamespaceSelector, labelsText(r.labels))
	case ObjectNotSelected:
		return r.noObject()
	case ConditionFalse:
		return fmt.Sprintf("match condition %q is false: %s", r.condition.Name, r.condition.Expression)
	}
	panic(fmt.Sprintf("unknown reason code %d", r.Code))
}

func (r Reason) noObject() string {
	if r.hook.Hook.ObjectSelector == nil {
		return "objectSelector is absent, which selects nothing"
	}
	s := fmt.Sprintf("objectSelector %s does not match ", r.hook.ObjectSelector)
	switch {
	case r.labels == nil && r.oldLabels == nil:
		return s + "a request without an object that has labels"
	case r.oldLabels == nil:
		return s + labelsText(r.labels)
	case r.labels == nil:
		return s + labelsText(r.oldLabels)
	}
	now, before := labelsText(r.labels), labelsText(r.oldLabels)
	if now == before {
		return s + now
	}
	return s + now + " nor, before, " + before
}

func (r Reason) noRule() string {
	if len(r.hook.Rules) == 0 {
		return "it has no rules"
	}
	target := targetOf(r.request)
	wants := make([]string, len(r.hook.Rules))
	for i := range r.hook.Rules {
		rule := &r.hook.Rules[i]
		wants[i] = fmt.Sprintf("rule %d wants %s", i+1, wanted(rule, &target))
	}
	s := "no rule matches: " + strings.Join(wants, "; ")
	if !r.hook.Equivalent {
		if step, ok := matchEquivalent(r.hook, r.request, &target, r.others, noKinds{}); ok {
			s += fmt.Sprintf(" (matchPolicy is Exact; with Equivalent, rule %d would match)", step.Rule+1)
		}
	}
	return s
}

// noKinds knows no kinds; who asks does not need them.
type noKinds struct{ Equivalents }

func (noKinds) KindFor(schema.GroupVersionResource, string) schema.GroupVersionKind {
	return schema.GroupVersionKind{}
}

// wanted describes the part of a rule that is against the target.
func wanted(r *registration.Rule, t *snapshot.Target) string {
	switch mismatch(r, t) {
	case wrongResource:
		return ruleText(r)
	case wrongOperation:
		return fmt.Sprintf("%s, not %s", strings.Join(r.Operations, ","), t.Operation)
	case wrongScope:
		if t.Namespaced {
			return "cluster-scoped objects"
		}
		return "namespaced objects"
	}
	panic("a rule that matches was said not to")
}

// ruleText writes a rule's groups, versions and resources as in "apps/v1
// deployments".
func ruleText(r *registration.Rule) string {
	groups := make([]string, len(r.APIGroups))
	for i, g := range r.APIGroups {
		if groups[i] = g; g == "" && len(r.APIGroups) > 1 {
			groups[i] = `""`
		}
	}
	gv := strings.Join(r.APIVersions, ",")
	if g := strings.Join(groups, ","); g != "" {
		gv = g + "/" + gv
	}
	return gv + " " + strings.Join(r.Resources, ",")
}

func resourceText(r schema.GroupVersionResource, subresource string) string {
	s := r.GroupVersion().String() + " " + r.Resource
	if subresource != "" {
		s += "/" + subresource
	}
	return s
}

func labelsText(l labels.Labels) string {
	var pairs []string
	switch l := l.(type) {
	case labels.Set:
		for k, v := range l {
			pairs = append(pairs, k+"="+v)
		}
	case rawLabels:
		for k := range l {
			if l.Has(k) {
				pairs = append(pairs, k+"="+l.Get(k))
			}
		}
	}
	if len(pairs) == 0 {
		return "no labels"
	}
	slices.Sort(pairs)
	return strings.Join(pairs, ",")
}
