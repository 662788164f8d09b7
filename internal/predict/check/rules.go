package check

import "strings"

// Level says how bad a finding is.
type Level string

// The levels.
const (
	// LevelError: the cluster would reject the object.
	LevelError Level = "error"
	// LevelWarning: the cluster would take it, and warn.
	LevelWarning Level = "warning"
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
)

// FindRule returns the rule of a finding, which may name a cause behind it: denied/PodSecurity. It
// returns nil when there is none.
func FindRule(id string) *Rule {
	base, cause, _ := strings.Cut(id, "/")
	for _, r := range Rules() {
		if r.ID == base {
			if cause != "" {
				r.ID, r.Title = id, r.Title+": "+strings.Replace(cause, "/", " ", 1)
			}
			return &r
		}
	}
	return nil
}

// Rule is a kind of finding.
type Rule struct {
	ID    string
	Level Level
	// Title says in a few words what was found, Help what to do.
	Title, Help string
}

// Rules lists all of them.
func Rules() []Rule {
	return []Rule{
		{ruleUnreadable, LevelError, "The file cannot be read", "Correct the YAML or JSON. Render templates first, and check what comes out."},
		{ruleDuplicateKey, LevelWarning, "A key is there twice", "Remove one of them: kubectl takes the last one and does not say so."},
		{ruleUnknownKind, LevelError, "The cluster has no such kind", "Correct apiVersion and kind, or add the CustomResourceDefinition to the files, or name a cluster that has it."},
		{ruleUnknownField, LevelError, "The kind has no such field", "Correct the name of the field or its indentation: without strict validation the field is dropped."},
		{ruleInvalid, LevelError, "The object is invalid", "The message is that of the API server."},
		{ruleDenied, LevelError, "Admission denies the object", "The message names the admission plugin, the policy or the webhook."},
		{ruleForbidden, LevelError, "The user may not do this", "Add the right to a role of the user, or let another user apply the object."},
		{ruleNamespace, LevelError, "The namespace does not exist, or is another one", "Add the Namespace to the files, or name a cluster that has it."},
		{ruleRejected, LevelError, "The API server rejects the object", "The message is that of the API server."},
		{ruleDeprecated, LevelWarning, "The version or the field is deprecated", "Use what the message names instead."},
		{ruleWarning, LevelWarning, "The API server warns", "The message is that of the API server, of a policy or of an admission plugin."},
		{ruleDuplicate, LevelWarning, "The same object is there twice", "Remove one of them."},
		{ruleGenerated, LevelWarning, "The object has a generated name", "kubectl apply refuses it: use kubectl create, or name the object."},
		{ruleOnlyHere, LevelWarning, "Only Gatehouse serves this kind", "Other clusters reject the object."},
		{RuleTypes, LevelWarning, "An expression is wrong about types", "Correct the field: the expression fails for the kind that the message names."},
		{ruleUnseen, LevelError, "The cluster was not seen as a whole", "Let the reader of the cluster list the resource, or accept it with --allow-unseen."},
		{ruleAccept, LevelWarning, "An acceptance has no effect", "Remove it, or correct its rule, its place or its reason."},
		{ruleDependent, LevelError, "What the controller of a workload creates is rejected", "Correct the template: the cluster takes the workload, and it gets no pods."},
		{ruleNotChecked, LevelWarning, "The object was not checked", "The message says what is missing."},
	}
}
