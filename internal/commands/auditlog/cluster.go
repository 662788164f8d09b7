package auditlog

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/gatehouse-dev/gatehouse/admission/plan"
	"github.com/gatehouse-dev/gatehouse/admission/registration"
	"github.com/gatehouse-dev/gatehouse/admission/trace"
	"github.com/gatehouse-dev/gatehouse/internal/commands/predict/offline"
)

// Cluster is the known state of the cluster that wrote a log. The zero value knows the built-in kinds.
type Cluster struct {
	// Registrations has the registrations, the namespaces and the params at the time of the requests; nil if unknown.
	// Nothing is derived then.
	Registrations *offline.World

	registered func() []registered
}

// registered is an entry of a registration with the time of its last change; zero if unknown.
type registered struct {
	*registration.Entry
	since time.Time
}

// builtin returns the kinds of every cluster.
var builtin = sync.OnceValue(offline.Builtin)

// NewCluster returns the World of registrations; nil if they are unknown.
func NewCluster(w *offline.World) Cluster {
	return Cluster{Registrations: w, registered: sync.OnceValue(func() (list []registered) {
		if w == nil {
			return nil
		}
		for _, o := range w.Registrations.Objects {
			entries, err := registration.Entries(o)
			if err != nil {
				continue
			}
			since := changed(o)
			for _, e := range entries {
				list = append(list, registered{e, since})
			}
		}
		return list
	})}
}

// changed returns the time of the last change of an object, if the object has it.
func changed(o runtime.Object) (at time.Time) {
	m, err := meta.Accessor(o)
	if err != nil {
		return at
	}
	at = m.GetCreationTimestamp().Time
	for _, f := range m.GetManagedFields() {
		if f.Time != nil && f.Subresource == "" && f.Time.After(at) {
			at = f.Time.Time
		}
	}
	return at
}

func (w Cluster) kinds() *offline.Kinds {
	if w.Registrations != nil {
		return w.Registrations.Kinds
	}
	return builtin()
}

// kind returns the kind of a resource, the zero kind if unknown.
func (w Cluster) kind(resource schema.GroupVersionResource) schema.GroupVersionKind {
	if k := w.kinds().At(resource); k != nil {
		return k.Kind
	}
	return schema.GroupVersionKind{}
}

// named finds the webhook with a name and a source that was registered at a time, in a configuration, or in any
// configuration if that is empty; nil if there is none, or several.
func (w Cluster) named(source registration.Source, configuration, name string, at time.Time) *registration.Entry {
	return w.only(at, func(e *registration.Entry) bool {
		return e.Source == source && e.Name == name && (configuration == "" || e.Configuration == configuration)
	})
}

// conditioned finds the webhook whose failed match conditions rejected a request at a time, by the expressions in the
// message; nil if there is none, or several.
func (w Cluster) conditioned(message string, at time.Time) *registration.Entry {
	return w.only(at, func(e *registration.Entry) bool {
		return e.Webhook != nil && e.FailurePolicy == registration.Fail && slices.ContainsFunc(e.MatchConditions, func(m registration.MatchCondition) bool {
			return strings.Contains(message, "expression '"+m.Expression+"' resulted in error: ")
		})
	})
}

// only finds the single entry that satisfies a condition and has not changed since a time; nil if there is none, or
// several.
func (w Cluster) only(at time.Time, holds func(*registration.Entry) bool) (found *registration.Entry) {
	if w.registered == nil {
		return nil
	}
	for _, r := range w.registered() {
		if !holds(r.Entry) || r.since.After(at) {
			continue
		}
		if found != nil {
			return nil
		}
		found = r.Entry
	}
	return found
}

// entry finds the entry of a step of a plan. changed is set if the entry changed after a time, so that its earlier
// state is unknown.
func (w Cluster) entry(e *plan.Entry, at time.Time) (found *registration.Entry, changed bool) {
	for _, r := range w.registered() {
		if r.Source.String() == e.Kind && r.Configuration == e.Configuration && r.Index == e.Index && r.Name == e.Name {
			return r.Entry, r.since.After(at)
		}
	}
	return nil, false
}

// derive adds the webhooks and policies that were asked according to the registrations, and that the log does not show.
// It lists undecidable ones as unknown (S30.6).
func (c *conversion) derive() {
	w := c.world
	if w.Registrations == nil || c.e.Stage == "RequestReceived" {
		return
	}
	mutates, validates := c.reached()
	if !mutates {
		return
	}
	p, whole, err := c.plan()
	if err != nil {
		c.unknown = append(c.unknown, "which webhooks and policies the server asked: "+err.Error())
		return
	}
	if p.Rejection != "" && c.cause.by == "" {
		c.unknown = append(c.unknown, "which webhooks and policies the server asked: the known registrations would have rejected the request, so the server had other ones")
		return
	}
	for s := range p.Acting() {
		e, changed := w.entry(s.Entry, c.at())
		if e == nil {
			continue
		}
		source := e.Source
		if source.Descriptor().Pass == registration.ValidatingPass && !validates[source] || c.has(e) {
			continue
		}
		looks := len(e.MatchConditions) > 0 || e.ObjectSelector != nil && len(e.ObjectSelector.MatchLabels)+len(e.ObjectSelector.MatchExpressions) > 0
		switch {
		case changed:
			c.unknown = append(c.unknown, fmt.Sprintf("whether %s %s was asked: it was changed after the request", source, s.Entry))
		case s.Effect == plan.Undecided, looks && !whole:
			c.unknown = append(c.unknown, fmt.Sprintf("whether %s %s was asked: that depends on objects that are not known", source, s.Entry))
		case s.Effect == plan.Ignored && e.Webhook != nil:
			// Its match conditions failed, and it was not called.
			c.excluded(e, s)
		case source == registration.Mutating:
			c.unknown = append(c.unknown, fmt.Sprintf("why the log has no call of %s %s, which was to be called", source, s.Entry))
		default:
			c.noteCall(e, s)
		}
	}
}

// reached returns the sources of the validating pass that evaluated the request, and whether the request completed the
// mutating pass.
func (c *conversion) reached() (mutates bool, validates map[registration.Source]bool) {
	both := map[registration.Source]bool{registration.ValidatingPolicies: true, registration.Validating: true}
	if c.cause.conditions {
		// The conditions of all webhooks are evaluated before the first call.
		return c.cause.by == registration.ValidatingPlugin, map[registration.Source]bool{registration.ValidatingPolicies: true}
	}
	switch c.cause.by {
	case "", registration.ValidatingPlugin, "ResourceQuota":
		return true, both
	case registration.ValidatingPolicyPlugin:
		return true, map[registration.Source]bool{registration.ValidatingPolicies: true}
	case "PodSecurity":
		return true, nil
	}
	return false, nil
}

// has reports whether the log itself shows that an entry was asked.
func (c *conversion) has(e *registration.Entry) bool {
	called := func(call trace.Call) bool {
		return call.Entry.Source == e.Source && call.Entry.Name == e.Name && cmp.Or(call.Entry.Configuration, e.Configuration) == e.Configuration
	}
	judged := func(j trace.Judgement) bool {
		return j.Policy.Source == e.Source && j.Policy.Configuration == e.Configuration
	}
	return slices.ContainsFunc(slices.Concat(c.mutating[0], c.mutating[1], c.validating), called) || slices.ContainsFunc(slices.Concat(c.mutated, c.found), judged)
}

// excluded records that a webhook was not called, because its match conditions failed and its failure policy is Ignore.
func (c *conversion) excluded(e *registration.Entry, s *plan.Step) {
	if c.conditions == nil {
		c.conditions = map[registration.Source][]trace.Condition{}
	}
	failed := trace.Condition{Known: trace.Derived, Entry: e.Origin, Errors: 1, Excluded: true, Err: errors.New("the registrations say so, and the audit log does not")}
	if s.Reason != nil {
		failed.Err = errors.New(s.Reason.Message)
	}
	c.conditions[e.Source] = append(c.conditions[e.Source], failed)
}

// noteCall records that an entry was asked according to the registrations.
func (c *conversion) noteCall(e *registration.Entry, s *plan.Step) {
	rule := 0
	if s.Rule != nil {
		rule = *s.Rule
	}
	gv, err := schema.ParseGroupVersion(s.As.APIVersion)
	if err != nil {
		return
	}
	kind, resource := gv.WithKind(s.As.Kind), gv.WithResource(s.As.Resource)
	if other, err := schema.ParseGroupVersion(s.As.ResourceAPIVersion); err == nil && s.As.ResourceAPIVersion != "" {
		resource = other.WithResource(s.As.Resource)
	}
	if e.Webhook == nil {
		j := trace.Judgement{
			Known: trace.Derived, Policy: e.Origin, FailurePolicy: e.FailurePolicy, Rule: rule,
			Kind: kind, Resource: resource, Subresource: s.As.Subresource, Equivalent: s.As.Equivalent,
		}
		if e.Source == registration.MutatingPolicies {
			c.mutated = append(c.mutated, j)
		} else {
			c.found = append(c.found, j)
		}
		return
	}
	call := trace.Call{
		Known: trace.Derived, Entry: e.Origin, FailurePolicy: e.FailurePolicy, Rule: rule, ReviewVersion: s.ReviewVersion,
		Kind: kind, Resource: resource, Subresource: s.As.Subresource, Equivalent: s.As.Equivalent,
	}
	// Validating webhooks are called in parallel, and the response has only one rejection.
	if call.Sent = c.cause.by != registration.ValidatingPlugin; !call.Sent {
		call.Verdict = trace.Unheard
	}
	c.validating = append(c.validating, call)
}

// plan returns the plan of the request for the registrations. whole is set if the objects that select the entries are
// completely known.
func (c *conversion) plan() (p *plan.Plan, whole bool, err error) {
	about := c.about
	kind := c.world.Registrations.Kinds.At(about.Resource)
	if kind == nil {
		return nil, false, fmt.Errorf("the kind of %s is not known", about.Resource.GroupResource())
	}
	q := &offline.Request{
		Operation: about.Operation, Kind: kind, Subresource: about.Subresource, Namespace: about.Namespace, Name: about.Name, DryRun: about.DryRun, Answered: true,
		User: &user.DefaultInfo{Name: c.e.User.Username, UID: c.e.User.UID, Groups: c.e.User.Groups},
	}
	if u := c.e.ImpersonatedUser; u != nil {
		q.User = &user.DefaultInfo{Name: u.Username, UID: u.UID, Groups: u.Groups}
	}
	if !kind.Namespaced {
		q.Namespace = metav1.NamespaceNone
	}
	nothing := &unstructured.Unstructured{}
	nothing.SetGroupVersionKind(kind.Kind)
	if sent := kind.Takes(about.Subresource); !sent.Empty() {
		// For example the Eviction of a pod, or the Scale of a deployment.
		nothing.SetGroupVersionKind(sent)
	}
	nothing.SetName(about.Name)
	nothing.SetNamespace(q.Namespace)
	object := c.final()
	switch whole = object != nil; {
	case object == nil:
		object = nothing
	case about.Operation != "CREATE":
		// The event lacks the old object.
		whole = false
	}
	switch about.Operation {
	case "CREATE":
		q.Object = object
	case "UPDATE":
		q.Object, q.Old = object, object
	case "DELETE":
		q.Old = object
	case "CONNECT":
		whole = true
	}
	p, err = c.world.Registrations.Plan(context.Background(), q)
	return p, whole, err
}

// final returns the object that the validating pass saw, as far as the event has it: the object of the response, or the
// object of the request if nothing changed it; nil if unknown.
func (c *conversion) final() *unstructured.Unstructured {
	switch {
	case c.e.answer != nil && c.about.Subresource == "":
		return c.e.answer.object()
	case c.e.sent != nil && len(c.mutating[0]) == 0:
		return c.e.sent.object()
	}
	return nil
}
