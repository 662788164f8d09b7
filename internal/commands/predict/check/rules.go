package check

import (
	"strings"

	"github.com/gatehouse-dev/gatehouse/internal/readers/report"
)

// The names of the rules. They do not change.
const (
	ruleUnreadable   = "unreadable"
	ruleDuplicateKey = "duplicate-key"
	ruleUnknownKind  = "unknown-kind"
	ruleUnknownField = "unknown-field"
	ruleInvalid      = "invalid"
	ruleDenied       = "denied"
	ruleForbidden    = "forbidden"
	ruleNamespace    = "namespace"
	ruleRejected     = "rejected"
	ruleDeprecated   = "deprecated"
	ruleWarning      = "warning"
	ruleDuplicate    = "duplicate-object"
	ruleGenerated    = "generate-name"
	ruleOnlyHere     = "only-gatehouse"
	ruleNotChecked   = "not-checked"
	RuleTypes        = "expression-types"
	ruleUnseen       = "unseen"
	ruleAccept       = "accept"
	ruleDependent    = "rejected-pods"
	ruleServerSide   = "needs-server-side"
)

// FindRule returns the rule of a finding. The ID may include a cause: denied/PodSecurity. It returns nil if there is no
// such rule.
func FindRule(id string) *report.Description {
	base, cause, _ := strings.Cut(id, "/")
	for _, r := range Rules() {
		if r.ID == base {
			if cause != "" {
				r.ID, r.Title = id, strings.TrimSuffix(r.Title, ".")+": "+strings.Replace(cause, "/", " ", 1)+"."
			}
			return &r
		}
	}
	return nil
}

// Rules lists all rules.
func Rules() []report.Description {
	rule := func(id string, level report.Level, title, fix string) report.Description {
		return report.Description{ID: id, Level: level, Title: title + ".", Fix: fix}
	}
	return []report.Description{
		rule(ruleUnreadable, report.Error, "The file cannot be read", "Correct the YAML or JSON. Render templates first, and check what comes out."),
		rule(ruleDuplicateKey, report.Warning, "A key is there twice", "Remove one of them: kubectl takes the last one and does not say so."),
		rule(ruleUnknownKind, report.Error, "The cluster has no such kind", "Correct apiVersion and kind, or add the CustomResourceDefinition to the files, or name a cluster that has it."),
		rule(ruleUnknownField, report.Error, "The kind has no such field", "Correct the name of the field or its indentation: without strict validation the field is dropped."),
		rule(ruleInvalid, report.Error, "The object is invalid", "The message comes from the API server."),
		rule(ruleDenied, report.Error, "Admission denies the object", "The message names the admission plugin, the policy or the webhook."),
		rule(ruleForbidden, report.Error, "The user may not do this", "Add the right to a role of the user, or let another user apply the object."),
		rule(ruleNamespace, report.Error, "The namespace does not exist, or is another one", "Add the Namespace to the files, or name a cluster that has it."),
		rule(ruleRejected, report.Error, "The API server rejects the object", "The message comes from the API server."),
		rule(ruleDeprecated, report.Warning, "The version or the field is deprecated", "Use the replacement in the message."),
		rule(ruleWarning, report.Warning, "The API server warns", "The message comes from the API server, a policy or an admission plugin."),
		rule(ruleDuplicate, report.Warning, "The same object is there twice", "Remove one of them."),
		rule(ruleGenerated, report.Warning, "The object has a generated name", "kubectl apply refuses it: use kubectl create, or name the object."),
		rule(ruleServerSide, report.Error, "The object is too long for kubectl apply", "Apply with --server-side, here and where the objects are applied."),
		rule(ruleOnlyHere, report.Warning, "Only Gatehouse serves this kind", "Other clusters reject the object."),
		rule(RuleTypes, report.Warning, "An expression is wrong about types", "Correct the field: the expression fails for the kind that the message names."),
		rule(ruleUnseen, report.Error, "The cluster was not seen as a whole", "Let the reader of the cluster list the resource, or accept it with --allow-unseen."),
		rule(ruleAccept, report.Warning, "An acceptance has no effect", "Remove it, or correct its rule, its place or its reason."),
		rule(ruleDependent, report.Error, "The objects that the controller of a workload creates are rejected", "Correct the template: the cluster takes the workload, and it gets no pods."),
		rule(ruleNotChecked, report.Warning, "The object was not checked", "The message names the missing object."),
	}
}
