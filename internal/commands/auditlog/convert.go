package auditlog

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"github.com/gatehouse-dev/gatehouse/admission/registration"
	"github.com/gatehouse-dev/gatehouse/admission/trace"
	"github.com/gatehouse-dev/gatehouse/internal/engine/review"
)

// Bounds for the content of an event.
const (
	maxCalls       = 512
	maxAnnotations = 64
)

// validationFailure is the key of the annotation with the violations of validating policies whose bindings audit them.
const validationFailure = "validation.policy.admission.k8s.io/validation_failure"

// placed matches the end of a key that has the position of a call.
var placed = regexp.MustCompile(`^round_([01])_index_(\d{1,6})$`)

// errFailedOpen replaces the error of a webhook that failed and was ignored.
var errFailedOpen = errors.New("the audit log does not say how the webhook failed")

// conversion converts one event to a trace.
type conversion struct {
	e     *event
	world Cluster
	about trace.Subject
	cause cause
	// left are the annotations that no step has used yet.
	left map[string]string
	// mutating are the calls of the two rounds, validating the known validating calls.
	mutating   [2][]trace.Call
	validating []trace.Call
	// found are the results of validating policies in the log.
	found []trace.Judgement
	// mutated are the known results of mutating policies.
	mutated []trace.Judgement
	// conditions are failed match conditions, by the source of their webhooks.
	conditions map[registration.Source][]trace.Condition
	// known is the origin of the pass of the webhook that rejected the request.
	known   trace.Known
	unknown []string
}

// convert converts an event to a trace.
func convert(e *event, w Cluster) *trace.Trace {
	c := &conversion{e: e, world: w, left: maps.Clone(e.Annotations), cause: e.rejection()}
	c.about = e.subject(w.kind)
	maps.DeleteFunc(c.left, func(key, _ string) bool {
		return strings.HasPrefix(key, "authorization.k8s.io/") || key == truncated || strings.HasPrefix(key, "authentication.k8s.io/")
	})
	c.readMutating()
	c.readValidating()
	c.readPolicies()
	c.say()
	steps := c.steps()
	a := &trace.Audit{
		Source: name(e.source), Level: name(string(e.Level)), Stage: name(string(e.Stage)), Truncated: e.Annotations[truncated] != "",
		Unknown: c.unknown[:min(len(c.unknown), maxAnnotations)],
	}
	if e.ImpersonatedUser != nil {
		a.ImpersonatedBy = name(e.User.Username)
	}
	if s := e.ResponseStatus; s != nil {
		a.RejectedBy = c.cause.by
		a.Code, a.Reason, a.Message = int(s.Code), name(string(s.Reason)), trace.Cut(s.Message, trace.MaxText)
	}
	for _, key := range slices.Sorted(maps.Keys(c.left))[:min(len(c.left), maxAnnotations)] {
		if a.Annotations == nil {
			a.Annotations = map[string]string{}
		}
		a.Annotations[name(key)] = trace.Cut(c.left[key], trace.MaxText)
	}
	t := trace.FromAudit(e.id().String(), e.RequestReceivedTimestamp.Time, e.latency(), c.about, c.outcome(), a)
	t.AuditID = name(string(e.AuditID))
	for _, s := range steps {
		t.Add(s)
	}
	return t
}

// take removes the annotations whose keys have a prefix and a position, and calls each with them in the order of their
// positions.
func (c *conversion) take(prefix string, each func(round, index int, value string)) {
	type place struct{ round, index int }
	values := map[place]string{}
	for key, value := range c.left {
		rest, ok := strings.CutPrefix(key, prefix)
		m := placed.FindStringSubmatch(rest)
		if !ok || m == nil || len(values) >= maxCalls {
			continue
		}
		// The pattern bounds both numbers.
		round, _ := strconv.Atoi(m[1])
		index, _ := strconv.Atoi(m[2])
		values[place{round, index}] = value
		delete(c.left, key)
	}
	order := slices.SortedFunc(maps.Keys(values), func(a, b place) int {
		return cmp.Or(cmp.Compare(a.round, b.round), cmp.Compare(a.index, b.index))
	})
	for _, p := range order {
		each(p.round, p.index, values[p])
	}
}

// unplaced is the index of a webhook of which only the name is known.
const unplaced = -1

// call returns the call at a position; it adds a call if there is none.
func (c *conversion) call(round, index int) *trace.Call {
	list := &c.mutating[round]
	i := slices.IndexFunc(*list, func(call trace.Call) bool { return call.Position == index })
	if i < 0 {
		i = len(*list)
		*list = append(*list, trace.Call{Known: trace.Written, Position: index, Entry: registration.Origin{Source: registration.Mutating, Index: unplaced}})
	}
	return &(*list)[i]
}

// readMutating reads the calls of mutating webhooks, and their changes.
func (c *conversion) readMutating() {
	called := func(value string) (configuration, webhook string, mutated bool, patch []byte) {
		var v struct {
			Configuration, Webhook string
			Mutated                bool
			Patch                  json.RawMessage
			PatchType              string
		}
		if json.Unmarshal([]byte(value), &v) != nil {
			return "", "", false, nil
		}
		if v.PatchType == "JSONPatch" {
			patch = v.Patch
		}
		return name(v.Configuration), name(v.Webhook), v.Mutated, patch
	}
	c.take(trace.MutationAnnotationPrefix, func(round, index int, value string) {
		call := c.call(round, index)
		call.Entry.Configuration, call.Entry.Name, call.Mutated, _ = called(value)
		call.Sent = true
	})
	c.take(trace.PatchAnnotationPrefix, func(round, index int, value string) {
		call := c.call(round, index)
		configuration, webhook, _, patch := called(value)
		call.Entry.Configuration, call.Entry.Name = cmp.Or(call.Entry.Configuration, configuration), cmp.Or(call.Entry.Name, webhook)
		call.Patch = patch
	})
	c.take(trace.FailedOpenMutationPrefix, func(round, index int, value string) {
		call := c.call(round, index)
		call.Entry.Name = cmp.Or(call.Entry.Name, name(value))
		failedOpen(call)
	})
	for round := range c.mutating {
		slices.SortFunc(c.mutating[round], func(a, b trace.Call) int { return cmp.Compare(a.Position, b.Position) })
		for i := range c.mutating[round] {
			c.place(&c.mutating[round][i])
		}
	}
	c.describe()
}

// place finds the webhook of a call among the registrations, to add its configuration and its index.
func (c *conversion) place(call *trace.Call) {
	if e := c.world.named(call.Entry.Source, call.Entry.Configuration, call.Entry.Name, c.at()); e != nil {
		if call.Entry.Configuration == "" {
			call.EntryKnown = trace.Derived
		}
		call.Entry = e.Origin
	}
}

// failedOpen marks a call as failed and ignored.
func failedOpen(call *trace.Call) {
	call.Verdict, call.Ignored, call.Err, call.FailurePolicy, call.Sent = trace.Failed, true, errFailedOpen, registration.Ignore, false
}

// describe adds the changed fields and the earlier values of patches, based on the object of the request. The API
// server writes that object into the event with its defaults.
func (c *conversion) describe() {
	var calls []*trace.Call
	var patches []review.Patch
	for round := range c.mutating {
		for i := range c.mutating[round] {
			call := &c.mutating[round][i]
			if len(call.Patch) == 0 {
				continue
			}
			patch, err := review.DecodePatch(call.Patch)
			if err != nil {
				call.Patch = nil
				continue
			}
			calls, patches = append(calls, call), append(patches, patch)
		}
	}
	ctx := context.Background()
	object := c.e.sent.before(slices.Concat(patches...))
	for i, patch := range patches {
		if object == nil {
			return
		}
		calls[i].Edits = patch.Edits(ctx, object)
		var err error
		if object, _, err = patch.ApplyToMap(ctx, nil, object); err != nil {
			return
		}
	}
}

// readValidating reads the validating webhooks that failed and were ignored. The log does not name their configuration.
func (c *conversion) readValidating() {
	c.take(trace.FailedOpenValidatingPrefix, func(_, index int, value string) {
		call := trace.Call{Known: trace.Written, Matched: index, Entry: registration.Origin{Source: registration.Validating, Index: unplaced, Name: name(value)}}
		c.place(&call)
		failedOpen(&call)
		c.validating = append(c.validating, call)
	})
}

// readPolicies reads the violations of validating policies whose bindings audit them.
func (c *conversion) readPolicies() {
	var list []struct {
		Message, Policy, Binding string
		ExpressionIndex          int
		ValidationActions        []string
	}
	value, ok := c.left[validationFailure]
	if !ok || json.Unmarshal([]byte(value), &list) != nil {
		return
	}
	delete(c.left, validationFailure)
	for _, f := range list[:min(len(list), maxAnnotations)] {
		actions := f.ValidationActions[:min(len(f.ValidationActions), maxAnnotations)]
		c.consequence(f.Policy, trace.Consequence{Binding: name(f.Binding), Code: "Violated", Message: f.Message, Index: f.ExpressionIndex, Actions: actions})
	}
}

// consequence adds the reaction to a violation of a validating policy.
func (c *conversion) consequence(policy string, what trace.Consequence) *trace.Consequence {
	i := slices.IndexFunc(c.found, func(j trace.Judgement) bool { return j.Policy.Configuration == name(policy) })
	if i < 0 {
		i = len(c.found)
		c.found = append(c.found, trace.Judgement{Known: trace.Written, Policy: registration.Origin{Source: registration.ValidatingPolicies, Configuration: name(policy)}})
	}
	j := &c.found[i]
	if k := slices.IndexFunc(j.Consequences, func(had trace.Consequence) bool {
		return had.Binding == what.Binding && had.Message == what.Message
	}); k >= 0 {
		return &j.Consequences[k]
	}
	j.Consequences = append(j.Consequences, what)
	return &j.Consequences[len(j.Consequences)-1]
}

// last returns the last mutating call; nil if there was none.
func (c *conversion) last() *trace.Call {
	for _, round := range []int{1, 0} {
		if n := len(c.mutating[round]); n > 0 {
			return &c.mutating[round][n-1]
		}
	}
	return nil
}

// validated reports whether the log shows that the mutating pass had ended.
func (c *conversion) validated() bool {
	return len(c.validating)+len(c.found) > 0 || slices.ContainsFunc(slices.Collect(maps.Keys(c.left)), func(key string) bool {
		return strings.HasPrefix(key, "pod-security.kubernetes.io/")
	})
}

// decide finds the pass in which the webhook rejected the request (S30.5). The log has every mutating call: a webhook
// that is not the last caller did not reject the request in the mutating pass.
func (c *conversion) decide() (registration.Source, trace.Known) {
	last := c.last()
	if last == nil || last.Entry.Name != c.cause.webhook || last.Mutated || last.Ignored || c.validated() {
		return registration.Validating, trace.Written
	}
	if c.world.named(registration.Mutating, "", c.cause.webhook, c.at()) != nil && c.world.named(registration.Validating, "", c.cause.webhook, c.at()) == nil {
		return registration.Mutating, trace.Derived
	}
	return registration.Mutating, trace.Unknown
}

// at returns the time of the request.
func (c *conversion) at() time.Time { return c.e.RequestReceivedTimestamp.Time }

// blame finds the call of the webhook that rejected the request, or adds it.
func (c *conversion) blame(failure error) {
	last := c.last()
	if c.cause.conditions {
		c.condition(failure)
		return
	}
	if c.cause.webhook == "" {
		if last != nil && c.cause.by == unknown && !last.Ignored && !c.validated() {
			// The request may have ended in this call.
			last.Verdict, last.Sent = trace.Unheard, false
		}
		return
	}
	source, known := c.decide()
	call := last
	if source == registration.Validating {
		c.validating = append(c.validating, trace.Call{Entry: registration.Origin{Source: source, Index: unplaced, Name: c.cause.webhook}})
		call = &c.validating[len(c.validating)-1]
		c.place(call)
	}
	// If a call failed, it is unknown whether the webhook received the review.
	call.Sent = c.cause.verdict == trace.Denied
	call.Known, call.Verdict, call.Err, call.Code = known, c.cause.verdict, failure, int(c.e.ResponseStatus.Code)
	if call.Verdict == trace.Failed {
		call.FailurePolicy = registration.Fail
	}
	c.cause.by, c.known = source.Descriptor().Plugin, known
	if known == trace.Unknown {
		c.cause.by += " or " + registration.ValidatingPlugin
	}
}

// condition finds the webhook whose failed match conditions rejected the request. The message has only the expressions.
func (c *conversion) condition(failure error) {
	if e := c.world.conditioned(c.e.ResponseStatus.Message, c.at()); e != nil {
		c.cause.by, c.known = e.Source.Descriptor().Plugin, trace.Derived
		c.conditions = map[registration.Source][]trace.Condition{e.Source: {{Known: trace.Derived, Entry: e.Origin, Errors: 1, Err: failure}}}
		return
	}
	c.known = trace.Unknown
	c.unknown = append(c.unknown, "which webhook has the match condition that failed: the answer has only its expression")
}

// steps returns the steps of the admission plugins, in order.
func (c *conversion) steps() (list []trace.Step) {
	var failure error
	if s := c.e.ResponseStatus; s != nil && c.cause != (cause{}) {
		failure = &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: s.Code, Reason: s.Reason, Message: trace.Cut(s.Message, trace.MaxText)}}
	}
	c.blame(failure)
	switch policy := c.cause.policy; c.cause.by {
	case registration.ValidatingPolicyPlugin:
		what := c.consequence(policy, trace.Consequence{Binding: c.cause.binding, Code: "Violated", Message: c.cause.message})
		if what.Denied = true; !slices.Contains(what.Actions, trace.ActionDeny) {
			what.Actions = append(what.Actions, trace.ActionDeny)
		}
	case registration.MutatingPolicyPlugin:
		c.mutated = append(c.mutated, trace.Judgement{
			Known: trace.Written, Policy: registration.Origin{Source: registration.MutatingPolicies, Configuration: policy},
			Consequences: []trace.Consequence{{Binding: c.cause.binding, Code: "Failed", Message: c.cause.message, Configuration: true, Denied: true}},
		})
	}
	c.annotated()
	c.derive()
	add := func(source registration.Source, round int, calls []trace.Call, judgements []trace.Judgement) {
		var conditions []trace.Condition
		if round == 0 {
			conditions = c.conditions[source]
		}
		if len(calls)+len(judgements)+len(conditions) == 0 {
			return
		}
		run := &trace.Run{Request: c.about.Request, Source: source, Round: round, Start: c.at(), Calls: calls, Judgements: judgements, Conditions: conditions}
		if slices.ContainsFunc(conditions, func(d trace.Condition) bool { return !d.Excluded }) || slices.ContainsFunc(calls, func(call trace.Call) bool { return call.Rejected() }) || slices.ContainsFunc(judgements, func(j trace.Judgement) bool { return j.Denied() }) {
			run.Err = failure
		}
		s := run.Step()
		s.Known = trace.Derived
		written := func(known trace.Known) bool { return known == trace.Written }
		switch {
		case source == registration.Mutating && run.Err != nil && c.known == trace.Unknown:
			s.Known = trace.Unknown
		case slices.ContainsFunc(calls, func(call trace.Call) bool { return written(call.Known) }), slices.ContainsFunc(judgements, func(j trace.Judgement) bool { return written(j.Known) }):
			s.Known = trace.Written
		}
		list = append(list, s)
	}
	add(registration.MutatingPolicies, 0, nil, c.mutated)
	add(registration.Mutating, 0, c.mutating[0], nil)
	add(registration.Mutating, 1, c.mutating[1], nil)
	add(registration.ValidatingPolicies, 0, nil, c.found)
	add(registration.Validating, 0, c.validating, nil)
	if pass, ok := compiledIn[c.cause.by]; ok {
		list = append(list, trace.Step{
			Plugin: c.cause.by, Pass: pass, Start: c.at(), Known: trace.Written, Err: failure,
			Object: types.NamespacedName{Namespace: c.about.Namespace, Name: c.about.Name},
		})
	}
	return list
}

// compiledIn are the built-in admission plugins that are recognized as causes, and the pass in which they reject.
var compiledIn = map[string]registration.Pass{
	"NamespaceLifecycle": registration.MutatingPass, "ServiceAccount": registration.MutatingPass, "Priority": registration.MutatingPass, "LimitRanger": registration.ValidatingPass,
	"PodSecurity": registration.ValidatingPass, "ResourceQuota": registration.ValidatingPass,
}

// annotated assigns annotations to the call of the webhook that wrote them, if there is only one call with the
// webhook's name.
func (c *conversion) annotated() {
	named := map[string][]*trace.Call{}
	for _, list := range [][]trace.Call{c.mutating[0], c.mutating[1], c.validating} {
		for i := range list {
			named[list[i].Entry.Name] = append(named[list[i].Entry.Name], &list[i])
		}
	}
	for key, value := range c.left {
		webhook, own, _ := strings.Cut(key, "/")
		calls := named[webhook]
		if len(calls) != 1 || own == "" {
			continue
		}
		delete(c.left, key)
		if calls[0].AuditAnnotations == nil {
			calls[0].AuditAnnotations = map[string]string{}
		}
		if len(calls[0].AuditAnnotations) < maxAnnotations {
			calls[0].AuditAnnotations[name(own)] = trace.Cut(value, trace.MaxText)
		}
	}
}

// outcome returns the outcome of admission.
func (c *conversion) outcome() trace.Outcome {
	_, plugin := compiledIn[c.cause.by]
	switch {
	case c.cause.by == "":
		for _, list := range [][]trace.Call{c.mutating[0], c.mutating[1], c.validating} {
			if slices.ContainsFunc(list, func(call trace.Call) bool { return call.Ignored }) {
				return trace.OutcomeFailedOpen
			}
		}
		return trace.OutcomeAllowed
	case c.cause.by == unknown:
		return trace.OutcomeUnknown
	case c.cause.webhook != "" && c.cause.verdict == trace.Failed, c.cause.by == registration.MutatingPolicyPlugin:
		return trace.OutcomeFailed
	case c.cause.webhook != "", c.cause.policy != "", c.cause.conditions, plugin:
		return trace.OutcomeDenied
	}
	return trace.OutcomeRejected
}

// say lists the facts that the log lacks.
func (c *conversion) say() {
	e := c.e
	say := func(text string) { c.unknown = append(c.unknown, text) }
	switch e.Stage {
	case auditv1.StageRequestReceived:
		say("what became of the request: the log has no event of a later stage")
	case auditv1.StageResponseStarted:
		say("how the request ended: the log has no event of a later stage")
	case auditv1.StagePanic:
		say("what admission came to: the API server panicked")
	}
	changed := slices.ContainsFunc(slices.Concat(c.mutating[0], c.mutating[1]), func(call trace.Call) bool { return call.Mutated && len(call.Patch) == 0 })
	switch {
	case changed && e.Level == auditv1.LevelMetadata:
		say("what webhooks changed: the event is of level Metadata, and level Request has the patches")
	case changed:
		say("changes of some webhooks: the event does not have their patches")
	case c.cause.by == unknown && e.Stage == auditv1.StageResponseComplete:
		say("who rejected the request: the answer does not say it in a form that is certain")
	}
	if e.Annotations[truncated] != "" {
		say("the objects of the request: the API server took them out of the event, which was too large for its audit log")
	}
	if (e.Verb == "update" || e.Verb == "patch" || e.Verb == "apply") && (e.ResponseStatus == nil || e.ResponseStatus.Code >= 400) {
		say("whether the request was to create or to update the object")
	}
}
