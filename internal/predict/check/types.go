package check

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"github.com/gatehouse-dev/gatehouse/admission/registration"
	"github.com/gatehouse-dev/gatehouse/internal/manifests"
	"github.com/gatehouse-dev/gatehouse/internal/predict/stage"
)

// typesController is the controller that checks the types of the expressions of policies.
const typesController = "validatingadmissionpolicy-status-controller"

// hasPolicies reports whether there are policies whose types can be checked.
func hasPolicies(set *manifests.Set) bool {
	return slices.ContainsFunc(set.Objects, func(o *manifests.Object) bool {
		return text(o.Content, "kind") == registration.ValidatingPolicies.Descriptor().Kind
	})
}

// typesInterval is how often typed reads the policy.
const typesInterval = 10 * time.Millisecond

// checkTypes reports the type errors in expressions of the policies of the set. The server writes
// them into the status of the policies, with errors that harm nothing: see realIssues.
func (r *run) checkTypes(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, stage.Patience)
	defer cancel()
	for _, t := range r.tasks {
		if t.skipped || t.dryRun || !t.accepted() || t.kind.Kind.Kind != registration.ValidatingPolicies.Descriptor().Kind {
			continue
		}
		policy, err := r.typed(ctx, t.name)
		if err != nil {
			return err
		}
		if policy == nil {
			r.report.Notes = append(r.report.Notes, "the types of the expressions of "+t.result.Title()+" were not checked within "+stage.Patience.String())
			continue
		}
		for _, w := range policy.Status.TypeChecking.ExpressionWarnings {
			warning := strings.TrimSpace(w.Warning)
			if text := expressionAt(policy, w.FieldRef); text != "" {
				if issues, ok := typeIssues(warning); ok {
					left, err := r.realIssues(ctx, policy, text, issues)
					if err != nil {
						return err
					}
					if len(left) == 0 {
						continue
					}
					if len(left) < len(issues) {
						warning = joinIssues(left)
					}
				}
			}
			r.report.warn(t, RuleTypes, w.FieldRef, warning)
		}
	}
	return nil
}

// typed waits until the types of a policy are checked, and returns it; nil when that takes too
// long.
func (r *run) typed(ctx context.Context, name string) (*admissionregistrationv1.ValidatingAdmissionPolicy, error) {
	tick := time.NewTicker(typesInterval)
	defer tick.Stop()
	path := "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies/" + url.PathEscape(name)
	for {
		policy := &admissionregistrationv1.ValidatingAdmissionPolicy{}
		err := r.admin.Must(ctx, stage.Request{Method: http.MethodGet, Path: path}, policy)
		switch {
		case ctx.Err() != nil:
			return nil, nil
		case err != nil:
			return nil, err
		case policy.Status.ObservedGeneration >= policy.Generation && policy.Status.TypeChecking != nil:
			return policy, nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
}
