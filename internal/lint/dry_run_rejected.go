package lint

import (
	"github.com/gatehouse-dev/gatehouse/admission/plan"
	"github.com/gatehouse-dev/gatehouse/admission/snapshot"
)

var dryRunRejected = &Rule{
	ID: "dry-run-rejected", Level: Warning, Advice: "avoid-side-effects",
	Title: "A webhook's side effects break dry runs",
	Why: "A dry run must change nothing. The API server rejects each dry run that would call a webhook whose side effects are Some, Unknown or not said: " +
		"kubectl diff and apply --dry-run=server fail.",
	Fix:    "Have the webhook do nothing but answer when dryRun is true, and declare sideEffects: NoneOnDryRun, or None.",
	Fails:  inBeta(hook(validating, anyPod+outside+"failurePolicy: Ignore\n"), "sideEffects: None", "sideEffects: Unknown"),
	Passes: hook(validating, anyPod+outside+"failurePolicy: Ignore\n"),
	check: func(p *pass) {
		p.webhooks(func(e *snapshot.Entry) {
			c := plan.Candidate{Entry: e}
			if reason, _ := c.Beforehand(&plan.Request{DryRun: true}); reason.Code == plan.NoDryRun || reason.Code == plan.NoSideEffects {
				p.finds(at(e.Entry, "sideEffects"), "dry runs that the webhook %s would judge are rejected: %s", e.Name, reason)
			}
		})
	},
}
