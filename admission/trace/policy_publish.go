package trace

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/metrics"
	"k8s.io/apiserver/pkg/apis/audit"
	"k8s.io/apiserver/pkg/warning"
	basemetrics "k8s.io/component-base/metrics"
	"k8s.io/klog/v2"

	"github.com/gatehouse-dev/gatehouse/admission/registration"
	"github.com/gatehouse-dev/gatehouse/internal/kit/metric"
)

// ValidationFailureAnnotation is the key of the audit annotation that lists the violations whose
// bindings have the action Audit (S17.18).
const ValidationFailureAnnotation = "validation.policy.admission.k8s.io/validation_failure"

// maxFailures is how many violations the annotation lists.
const maxFailures = 50

// validationFailure is one violation in the annotation.
type validationFailure struct {
	Message           string   `json:"message"`
	Policy            string   `json:"policy"`
	Binding           string   `json:"binding"`
	ExpressionIndex   int      `json:"expressionIndex"`
	ValidationActions []string `json:"validationActions"`
}

// warningOf returns the beginning of a policy's warning, which precedes the message.
func warningOf(kind, policy, binding string) string {
	text := fmt.Sprintf("Validation failed for %s '%s'", kind, policy)
	if kind == registration.MutatingPolicies.Descriptor().Kind {
		text = fmt.Sprintf("Mutation failed for %s '%s'", kind, policy)
	}
	if binding != "" {
		text += fmt.Sprintf(" with binding '%s'", binding)
	}
	return text + ": "
}

// publishPolicies reports the results of policies in metrics, warnings, audit annotations and the
// log (S17.11, S17.18 to S17.23).
func (p *Publisher) publishPolicies(ctx context.Context, a admission.Attributes, t *Run) {
	var failures []validationFailure
	for i := range t.Judgements {
		j := &t.Judgements[i]
		countPolicy(ctx, a, t.Source, j)
		for k := range j.Consequences {
			c := &j.Consequences[k]
			if c.Forgiven {
				p.complaints.log(ctx, &j.Policy, fmt.Errorf("%s", c.Message), "A policy failed and was ignored: its failurePolicy is Ignore",
					"binding", c.Binding, "operation", t.Request.Operation, "resource", t.Request.Resource)
			}
			if slices.Contains(c.Actions, ActionWarn) {
				warning.AddWarning(ctx, "", warningOf(t.Source.Descriptor().Kind, j.Policy.Configuration, c.Binding)+c.Message)
			}
			if slices.Contains(c.Actions, ActionAudit) && c.Binding != "" && t.Source == registration.ValidatingPolicies {
				failures = append(failures, validationFailure{c.Message, j.Policy.Configuration, c.Binding, c.Index, c.Actions})
			}
		}
		p.annotatePolicy(ctx, a, j)
	}
	if len(failures) == 0 {
		return
	}
	if len(failures) > maxFailures {
		klog.FromContext(ctx).Info("Audit annotation was cut: it lists 50 violations", "violations", len(failures), "resource", t.Request.Resource)
		failures = failures[:maxFailures]
	}
	if err := a.AddAnnotationWithLevel(ValidationFailureAnnotation, encode(failures), audit.LevelMetadata); err != nil {
		klog.FromContext(ctx).Error(err, "Audit annotation of policies was dropped", "key", ValidationFailureAnnotation)
	}
}

// annotatePolicy records, for each audit annotation of the policy, its distinct values in all
// evaluations (S17.19).
func (p *Publisher) annotatePolicy(ctx context.Context, a admission.Attributes, j *Judgement) {
	var keys []string
	values := map[string][]string{}
	for i := range j.Evaluations {
		for _, annotation := range j.Evaluations[i].Annotations {
			if annotation.Value == "" {
				continue
			}
			list, known := values[annotation.Key]
			if !known {
				keys = append(keys, annotation.Key)
			}
			if !slices.Contains(list, annotation.Value) {
				values[annotation.Key] = append(list, annotation.Value)
			}
		}
	}
	for _, key := range keys {
		p.add(ctx, a, &j.Policy, j.Policy.Configuration+"/"+key, strings.Join(values[key], ", "), audit.LevelMetadata)
	}
}

// policyMetrics are the metrics of validating or of mutating policies.
type policyMetrics struct {
	checks  *basemetrics.CounterVec
	latency *basemetrics.HistogramVec
}

// validatingMetrics have the names, labels and help of the metrics of k8s.io/apiserver (S17.21). A
// program that links the plugin of k8s.io/apiserver has them registered already, and both plugins
// use the same metrics.
var validatingMetrics = newPolicyMetrics("validating_admission_policy", basemetrics.BETA,
	"Validation admission policy check total, labeled by policy and further identified by binding and enforcement action taken.",
	"Validation admission latency for individual validation expressions in seconds, labeled by policy and further including binding and enforcement action taken.",
	"policy", "policy_binding", "error_type", "enforcement_action")

func newPolicyMetrics(subsystem string, level basemetrics.StabilityLevel, checks, latency string, labels ...string) func() *policyMetrics {
	return sync.OnceValue(func() *policyMetrics {
		return &policyMetrics{
			checks: metric.Registered(basemetrics.NewCounterVec(&basemetrics.CounterOpts{
				Namespace: "apiserver", Subsystem: subsystem, Name: "check_total", Help: checks, StabilityLevel: level,
			}, labels)),
			latency: metric.Registered(basemetrics.NewHistogramVec(&basemetrics.HistogramOpts{
				Namespace: "apiserver", Subsystem: subsystem, Name: "check_duration_seconds", Help: latency, StabilityLevel: level,
				Buckets: []float64{0.0000005, 0.001, 0.01, 0.1, 1.0},
			}, labels)),
		}
	})
}

// evaluations counts the outcomes of all evaluations. The metrics of k8s.io/apiserver do not have
// them (F19).
var evaluations = ownCounter("admission_policy_evaluations_total",
	"Evaluations of admission policies, by kind of policy, policy and outcome: admitted, excluded when a match condition is false, violated, error, or ignored_error when failurePolicy Ignore let the error pass. An evaluation serves all bindings that lead to it. Policies that could not be evaluated count once for each binding, as error or ignored_error.",
	"type", "policy", "outcome")

// policyKind and policyType are the labels kind and type of the match condition metrics of
// validating and mutating policies (S17.23).
const policyKind, policyType = "policy", "validate"

func countPolicy(ctx context.Context, a admission.Attributes, source registration.Source, j *Judgement) {
	name, operation := j.Policy.Configuration, string(a.GetOperation())
	kind := source.Descriptor().Pass.String()
	for i := range j.Evaluations {
		e := &j.Evaluations[i]
		if e.Conditions {
			metrics.Metrics.ObserveMatchConditionEvaluationTime(ctx, e.ConditionLatency, name, policyKind, policyType, operation)
			for range e.ConditionErrors {
				metrics.Metrics.ObserveMatchConditionEvalError(ctx, name, policyKind, policyType, operation)
			}
		}
		if !e.Spared {
			evaluations().WithLabelValues(kind, name, e.outcome(j.FailurePolicy)).Inc()
		}
	}
	for i := range j.Evaluations {
		countMutations(ctx, j, &j.Evaluations[i])
	}
	for i := range j.Consequences {
		c := &j.Consequences[i]
		if c.Configuration {
			outcome := "error"
			if c.Forgiven {
				outcome = "ignored_error"
			}
			evaluations().WithLabelValues(kind, name, outcome).Inc()
			continue
		}
		if source != registration.ValidatingPolicies {
			continue
		}
		observe := func(action string) {
			m, class := validatingMetrics(), errorClass(c.Message)
			m.checks.WithContext(ctx).WithLabelValues(name, c.Binding, class, action).Inc()
			m.latency.WithContext(ctx).WithLabelValues(name, c.Binding, class, action).Observe(c.Latency.Seconds())
		}
		switch {
		case c.Key != "" && c.Denied:
			observe("deny")
		case c.Key == "" && c.Forgiven:
			observe("allow")
		}
		for _, action := range c.Actions {
			observe(strings.ToLower(action))
		}
	}
}

// mutatingMetrics have the names, labels and help of the metrics of k8s.io/apiserver (S18.31); see
// validatingMetrics.
var mutatingMetrics = newPolicyMetrics("mutating_admission_policy", basemetrics.ALPHA,
	"Mutation admission policy check total, labeled by policy and further identified by binding.",
	"Mutation admission latency for individual mutation expressions in seconds, labeled by policy and binding.",
	"policy", "policy_binding", "error_type")

// countMutations counts every mutation, including mutations whose errors the failure policy ignored
// (S18.31).
func countMutations(ctx context.Context, j *Judgement, e *Evaluation) {
	for i := range e.Mutations {
		mutation, class := &e.Mutations[i], "no_error"
		if mutation.Err != nil {
			class = errorClass(mutation.Err.Error())
		}
		m := mutatingMetrics()
		m.checks.WithContext(ctx).WithLabelValues(j.Policy.Configuration, e.Bindings[0], class).Inc()
		m.latency.WithContext(ctx).WithLabelValues(j.Policy.Configuration, e.Bindings[0], class).Observe(mutation.Latency.Seconds())
	}
}

// outcome returns the outcome of an evaluation as a label of the metric.
func (e *Evaluation) outcome(policy registration.FailurePolicy) string {
	failed := e.Err != nil || slices.ContainsFunc(e.Annotations, func(a Annotation) bool { return a.Err != nil }) ||
		slices.ContainsFunc(e.Mutations, func(m Mutation) bool { return m.Err != nil })
	for i := range e.Validations {
		if e.Validations[i].Violated {
			return "violated"
		}
		failed = failed || e.Validations[i].Err != nil
	}
	switch {
	case failed && policy == registration.Ignore:
		return "ignored_error"
	case failed:
		return "error"
	case e.False != "":
		return "excluded"
	}
	return "admitted"
}

// errorClass returns the error class that k8s.io/apiserver derives from a message for its metrics
// (S17.22).
func errorClass(message string) string {
	switch {
	case strings.HasPrefix(message, "compilation"):
		return "compile_error"
	case strings.HasPrefix(message, "validation failed due to running out of cost budget"):
		return "out_of_budget"
	}
	return "invalid_error"
}
