package plan

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gatehouse-dev/gatehouse/admission/registration"
	"github.com/gatehouse-dev/gatehouse/admission/snapshot"
	"github.com/gatehouse-dev/gatehouse/internal/engine/condition"
	"github.com/gatehouse-dev/gatehouse/internal/engine/exclusion"
)

// Code is the test that an entry failed, or another reason why it has no effect.
type Code uint8

const (
	// None: no test failed. It is the Code of the zero Reason.
	None Code = iota
	// NotAsked: no webhook, policy or initializer applies to this kind of object (Exempt).
	NotAsked
	// NoRule: no rule matches.
	NoRule
	// Excluded: a rule excludes the request.
	Excluded
	// NamespaceNotSelected: the namespaceSelector does not match.
	NamespaceNotSelected
	// ObjectNotSelected: the objectSelector matches neither object.
	ObjectNotSelected
	// ConditionFalse: a match condition is false.
	ConditionFalse
	// NotNew: initializers apply to creations only (S11.15).
	NotNew
	// MirrorPod: a mirror pod gets no initializers (S11.19).
	MirrorPod
	// ListSent: the client sent a list of initializers, which is used (S11.17).
	ListSent
	// SameName: an earlier initializer has the same name (S11.6).
	SameName
	// NotReached: an earlier step rejects the request.
	NotReached
	// ExclusionRule: a rule of the administrator skips the entry (S23.5).
	ExclusionRule

	// Unknown: the caller may not see a fact that the test needs.
	Unknown

	// The following codes are reasons why a test could not be made, or an action not be taken.
	// Except for ConditionFailed, NoSideEffects and NoReviewVersion, they reject the request
	// regardless of the failure policy.

	// UnknownKind: the kind of an equivalent resource is not known (S2.26).
	UnknownKind
	// BadSelector: a selector cannot be parsed (S2.2).
	BadSelector
	// NamespaceNotFound: the namespace does not exist (S2.15).
	NamespaceNotFound
	// NamespaceUnreadable: the namespace cannot be read.
	NamespaceUnreadable
	// NotConvertible: the object cannot be converted (S2.27).
	NotConvertible
	// ConditionFailed: a match condition cannot be evaluated (S2.32).
	ConditionFailed
	// NoDryRun: the request is a dry run, and the webhook has side effects (S7.6).
	NoDryRun
	// NoSideEffects: the request is a dry run, and the webhook does not declare whether it has side
	// effects (S7.4).
	NoSideEffects
	// NoReviewVersion: the webhook accepts no known version of AdmissionReview (S3.6).
	NoReviewVersion
	// Rejected: a plugin itself rejects the request.
	Rejected
	// NotValid: the object is not valid after the mutating pass.
	NotValid

	// The following codes belong to policies. The failure policy applies if a fact could not be
	// determined.

	// NoBinding: no binding activates the policy (S14.18).
	NoBinding
	// NoBindingApplies: no binding of the policy applies to the request.
	NoBindingApplies
	// ParamKindNotFound: the kind of the params is not served (S15.4).
	ParamKindNotFound
	// BadParamRef: the binding refers to params that cannot exist (S15.4).
	BadParamRef
	// ParamsNotFound: there are no params, and parameterNotFoundAction makes this an error (S15.7).
	ParamsNotFound
	// ParamsUnreadable: the params cannot be read.
	ParamsUnreadable
	// NoParams: there are no params, and the binding is satisfied (S15.7).
	NoParams
	// Violated: a validation is false.
	Violated
	// EvaluationFailed: an expression cannot be evaluated.
	EvaluationFailed
	// PatchFailed: the result of a mutation cannot be applied to the object.
	PatchFailed

	// The following codes are facts of run time and appear in traces only.

	// CircuitOpen: the webhook server is not called until it answers again.
	CircuitOpen
	// Busy: too many calls of the webhook server are running.
	Busy
	// OutOfTime: the request has timed out.
	OutOfTime
)

// codes has the names of the codes.
var codes = [...]string{
	None: "", NotAsked: "NotAsked", NoRule: "NoRule", Excluded: "Excluded",
	NamespaceNotSelected: "NamespaceNotSelected", ObjectNotSelected: "ObjectNotSelected", ConditionFalse: "ConditionFalse",
	NotNew: "NotNew", MirrorPod: "MirrorPod", ListSent: "ListSent", SameName: "SameName", NotReached: "NotReached", ExclusionRule: "ExclusionRule",
	Unknown:     "Unknown",
	UnknownKind: "UnknownKind", BadSelector: "BadSelector", NamespaceNotFound: "NamespaceNotFound",
	NamespaceUnreadable: "NamespaceUnreadable", NotConvertible: "NotConvertible", ConditionFailed: "ConditionFailed",
	NoDryRun: "NoDryRun", NoSideEffects: "NoSideEffects", NoReviewVersion: "NoReviewVersion", Rejected: "Rejected", NotValid: "NotValid",
	NoBinding: "NoBinding", NoBindingApplies: "NoBindingApplies", ParamKindNotFound: "ParamKindNotFound", BadParamRef: "BadParamRef",
	ParamsNotFound: "ParamsNotFound", ParamsUnreadable: "ParamsUnreadable", NoParams: "NoParams",
	Violated: "Violated", EvaluationFailed: "EvaluationFailed", PatchFailed: "PatchFailed",
	CircuitOpen: "CircuitOpen", Busy: "Busy", OutOfTime: "OutOfTime",
}

// String names the code, for output that programs read. The name of None is empty.
func (c Code) String() string { return codes[c] }

// Reason is the reason why an entry does not apply or has no effect. It keeps the facts, and only
// String builds the text, so that a reason that is not read costs little.
type Reason struct {
	Code Code

	entry             *snapshot.Entry
	request           *Request
	others            []schema.GroupVersionResource
	labels, oldLabels labels.Labels
	condition         *condition.Condition
	rule              *exclusion.Rule
	err               error
}

// String returns the reason as a sentence without a full stop. Call it before the objects of the
// request change. The zero Reason is empty.
func (r Reason) String() string {
	switch r.Code {
	case None:
		return ""
	case NotAsked:
		text := r.action() + " for " + resourceText(r.request.Resource, "")
		if registration.IsVirtual(r.request.Resource.GroupResource()) {
			text += ", a virtual resource"
		}
		return text
	case NoRule:
		return r.noRule()
	case Excluded:
		return r.excluded()
	case NamespaceNotSelected:
		if r.entry.Entry.NamespaceSelector == nil {
			return "namespaceSelector is absent, which selects nothing"
		}
		return fmt.Sprintf("namespaceSelector %s does not match %s", r.entry.NamespaceSelector, labelsText(r.labels))
	case ObjectNotSelected:
		return r.noObject()
	case ConditionFalse:
		return fmt.Sprintf("match condition %q is false: %s", r.condition.Name, r.condition.Expression)
	case NotNew:
		return "initializers apply to creations only"
	case MirrorPod:
		return "initializers do not apply to mirror pods"
	case ListSent:
		return "the request sets its own list of initializers"
	case SameName:
		return "an earlier initializer has the same name"
	case NotReached:
		return "an earlier step rejects the request"
	case ExclusionRule:
		return fmt.Sprintf("exclusion rule %q of the server skips it", r.rule.Name)
	case NoBinding:
		return "no binding puts it into force"
	case NoBindingApplies:
		return "none of its bindings is for the request"
	case NoParams:
		return "there are no params, and parameterNotFoundAction is Allow"
	case ConditionFailed:
		return oneLine(errors.Unwrap(r.err))
	case NoDryRun:
		return fmt.Sprintf("the request is a dry run, and sideEffects is %s", r.entry.SideEffects)
	case NoSideEffects:
		return "the request is a dry run, and sideEffects is absent"
	case NoReviewVersion:
		return fmt.Sprintf("admissionReviewVersions %s has none of the supported versions: v1, v1beta1", strings.Join(r.entry.ReviewVersions, ","))
	}
	if r.err != nil {
		return oneLine(r.err)
	}
	panic(fmt.Sprintf("reason %s has no text", r.Code))
}

// action names the action of the entry's kind in a sentence.
func (r Reason) action() string {
	if r.entry != nil && r.entry.Entry.Policy != nil {
		return "policies are never evaluated"
	}
	if r.entry != nil && r.entry.Source == registration.Initializing {
		return "initializers are never set"
	}
	return "webhooks are never called"
}

// oneLine returns the text of an error on one line.
func oneLine(err error) string { return strings.ReplaceAll(err.Error(), "\n", " ") }

func (r Reason) excluded() string {
	target := targetOf(r.request)
	c, ok := matchRules(r.entry.Exclude, r.entry, r.request, &target, r.others, noKinds{})
	if !ok {
		panic("a request that no rule excludes was said to be excluded")
	}
	s := fmt.Sprintf("excluded by rule %d", c.Rule+1)
	if c.Equivalent {
		s += ", through an equivalent resource"
	}
	return s
}

// excluded reports whether an exclude rule matches the request.
func excluded(h *snapshot.Entry, r *Request, target *snapshot.Target, others []schema.GroupVersionResource, e Equivalents) bool {
	c, ok := matchRules(h.Exclude, h, r, target, others, e)
	return ok && c.Err == nil
}

func (r Reason) noObject() string {
	if r.entry.Entry.ObjectSelector == nil {
		return "objectSelector is absent, which selects nothing"
	}
	s := fmt.Sprintf("objectSelector %s does not match ", r.entry.ObjectSelector)
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
	if len(r.entry.Rules) == 0 {
		return "it has no rules"
	}
	target := targetOf(r.request)
	wants := make([]string, len(r.entry.Rules))
	for i := range r.entry.Rules {
		rule := &r.entry.Rules[i]
		wants[i] = fmt.Sprintf("rule %d wants %s", i+1, wanted(rule, r.request, &target))
	}
	s := "no rule matches: " + strings.Join(wants, "; ")
	if !r.entry.Equivalent {
		if c, ok := matchEquivalent(r.entry.Rules, r.entry, r.request, &target, r.others, noKinds{}); ok {
			s += fmt.Sprintf(" (matchPolicy is Exact; with Equivalent, rule %d would match)", c.Rule+1)
		}
	}
	return s
}

// noKinds is an Equivalents without kinds, for callers that do not need them.
type noKinds struct{ Equivalents }

func (noKinds) KindFor(schema.GroupVersionResource, string) schema.GroupVersionKind {
	return schema.GroupVersionKind{}
}

// wanted describes the part of a rule that does not match the target.
func wanted(r *registration.Rule, request *Request, t *snapshot.Target) string {
	switch mismatch(r, request, t) {
	case wrongResource:
		return ruleText(r)
	case wrongOperation:
		return fmt.Sprintf("%s, not %s", strings.Join(r.Operations, ","), t.Operation)
	case wrongScope:
		if t.Namespaced {
			return "cluster-scoped objects"
		}
		return "namespaced objects"
	case wrongName:
		return "objects named " + strings.Join(r.ResourceNames, ",")
	}
	panic("a rule is marked as not matching, but it matches")
}

// ruleText formats a rule's groups, versions and resources, such as "apps/v1 deployments".
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
