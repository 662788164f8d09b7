// Code generated from the comments of plan.go and policies.go and enforce.go by go test -run Described -update. DO NOT EDIT.

package plan

// SwaggerDoc returns what the fields mean, by their JSON names.
func (Plan) SwaggerDoc() map[string]string {
	return map[string]string{
		"":                 "Plan says what admission does with one request: every step of both passes, in the order of the chain. It is plain data, and its JSON form is stable: fields are added, never changed or removed. A plan cannot know what webhooks answer. Where one changes the object, those after it may apply that did not, and the reverse; and the mutating pass may be run once more (S5.16).",
		"request":          "Request is what the request is about.",
		"revision":         "Revision is the storage revision of the registrations.",
		"steps":            "Steps are the entries that apply, in order. Those that do not apply are among them, in their places, if the plan was asked for them.",
		"rejection":        "Rejection is what the request is rejected with before any webhook is asked for its opinion; empty when that is up to the webhooks.",
		"worstCaseSeconds": "WorstCaseSeconds is how long the webhooks and initializers may take together, each one its whole timeout: webhooks one after the other in the mutating pass, those of a plugin at the same time in the validating pass, and initializers in turns. The time that a request has bounds it.",
		"notes":            "Notes say in sentences what the plan cannot know, and what was guessed. The caller of New adds them; New adds none.",
	}
}

// SwaggerDoc returns what the fields mean, by their JSON names.
func (About) SwaggerDoc() map[string]string {
	return map[string]string{
		"":            "About says what a request is about. It has no objects.",
		"operation":   "Operation is CREATE, UPDATE, DELETE or CONNECT.",
		"apiVersion":  "APIVersion is the group and version of the resource.",
		"kind":        "Kind is the kind of the object.",
		"resource":    "Resource is the resource of the URL, Subresource its subresource.",
		"subresource": "Resource is the resource of the URL, Subresource its subresource.",
		"namespace":   "Namespace and Name are those of the object.",
		"name":        "Namespace and Name are those of the object.",
		"user":        "User is the name of the user who makes the request.",
		"dryRun":      "DryRun reports whether nothing is to be stored.",
	}
}

// SwaggerDoc returns what the fields mean, by their JSON names.
func (Step) SwaggerDoc() map[string]string {
	return map[string]string{
		"":               "Step is one thing that admission does with a request, or would do if it applied.",
		"pass":           "Pass is mutating or validating, Plugin the admission plugin whose step it is, or ValidationName.",
		"plugin":         "Pass is mutating or validating, Plugin the admission plugin whose step it is, or ValidationName.",
		"entry":          "Entry is what is registered; nil for a compiled-in plugin.",
		"effect":         "Effect is what happens at the step: call, evaluate, pend, run, reject, ignore, skip or unknown.",
		"rule":           "Rule is the index of the rule that matched, and As what a review says the request is about; nil when no rule matched.",
		"as":             "Rule is the index of the rule that matched, and As what a review says the request is about; nil when no rule matched.",
		"reviewVersion":  "ReviewVersion is the version of the AdmissionReview that is sent.",
		"failurePolicy":  "FailurePolicy is Fail or Ignore, and TimeoutSeconds how long one call may take.",
		"timeoutSeconds": "FailurePolicy is Fail or Ignore, and TimeoutSeconds how long one call may take.",
		"evaluations":    "Evaluations are what the expressions of a policy say, with each param; Consequences what its bindings make of that, in the order in which they count; and Bindings are those that do not apply, if the plan was asked for what does not.",
		"consequences":   "Evaluations are what the expressions of a policy say, with each param; Consequences what its bindings make of that, in the order in which they count; and Bindings are those that do not apply, if the plan was asked for what does not.",
		"bindings":       "Evaluations are what the expressions of a policy say, with each param; Consequences what its bindings make of that, in the order in which they count; and Bindings are those that do not apply, if the plan was asked for what does not.",
		"mayGoAhead":     "MayGoAhead reports whether the webhook may be called before its turn, MayReinvoke whether the webhook may be called, or the policy evaluated, a second time.",
		"mayReinvoke":    "MayGoAhead reports whether the webhook may be called before its turn, MayReinvoke whether the webhook may be called, or the policy evaluated, a second time.",
		"order":          "Order says why the step stands where it does: what the entry and others ask of the order, and what of that is not granted. Empty when names alone decide.",
		"reason":         "Reason says why the step does not do what it is there for; nil when it does.",
		"exclusions":     "Exclusions are the rules of the administrator that have an effect on the step (S23).",
		"enforcement":    "Enforcement is present when the webhook is soft: the request goes on as if it did not exist (S28).",
		"location":       "Location is where the rule, or the entry when no rule matched, is written, for registrations that come from files.",
		"patch":          "Patch is what a compiled-in plugin changes of the object, as a JSON patch.",
		"notes":          "Notes say what else is known about the step. The caller of New adds them.",
	}
}

// SwaggerDoc returns what the fields mean, by their JSON names.
func (AppliedExclusion) SwaggerDoc() map[string]string {
	return map[string]string{
		"":               "AppliedExclusion is an exclusion rule that has an effect.",
		"rule":           "Rule is its name, Effect is skip, ignoreFailures or capTimeout.",
		"effect":         "Rule is its name, Effect is skip, ignoreFailures or capTimeout.",
		"timeoutSeconds": "TimeoutSeconds is what a call may take by the effect capTimeout.",
	}
}

// SwaggerDoc returns what the fields mean, by their JSON names.
func (Location) SwaggerDoc() map[string]string {
	return map[string]string{
		"":      "Location is a place in a file.",
		"file":  "File is the path of the file.",
		"line":  "Line counts from 1. Field is the path of the field in its object.",
		"field": "Line counts from 1. Field is the path of the field in its object.",
	}
}

// SwaggerDoc returns what the fields mean, by their JSON names.
func (Entry) SwaggerDoc() map[string]string {
	return map[string]string{
		"":              "Entry names what is registered.",
		"kind":          "Kind is the kind of the object that registers it, Configuration the object's name.",
		"configuration": "Kind is the kind of the object that registers it, Configuration the object's name.",
		"index":         "Index is its place in the object, from 0, and Name its own name; empty for an object that is the entry, such as a policy.",
		"name":          "Index is its place in the object, from 0, and Name its own name; empty for an object that is the entry, such as a policy.",
		"source":        "Source is static for an entry of a manifest file, and absent for one of the API.",
	}
}

// SwaggerDoc returns what the fields mean, by their JSON names.
func (As) SwaggerDoc() map[string]string {
	return map[string]string{
		"":                   "As is what a review says that a request is about.",
		"apiVersion":         "APIVersion and Kind are those of the objects in the review.",
		"kind":               "APIVersion and Kind are those of the objects in the review.",
		"resource":           "Resource is the resource of the review, Subresource its subresource.",
		"subresource":        "Resource is the resource of the review, Subresource its subresource.",
		"resourceAPIVersion": "ResourceAPIVersion is the group and version of the resource when they are not those of the kind, as with the subresource scale.",
		"equivalent":         "Equivalent reports whether this is another group or version than the request's own, to which the objects are converted (S2.24).",
	}
}

// SwaggerDoc returns what the fields mean, by their JSON names.
func (Explanation) SwaggerDoc() map[string]string {
	return map[string]string{
		"":        "Explanation is a Reason as plain data.",
		"code":    "Code names the test, for programs; Message is a sentence for people.",
		"message": "Code names the test, for programs; Message is a sentence for people.",
	}
}

// SwaggerDoc returns what the fields mean, by their JSON names.
func (PolicyEvaluation) SwaggerDoc() map[string]string {
	return map[string]string{
		"":                 "PolicyEvaluation is what the expressions of a policy say about a request.",
		"param":            "Param names the object that is param, as namespace/name; empty when there is none.",
		"bindings":         "Bindings are the names of those that lead to it.",
		"verdict":          "Verdict is admitted, excluded when a match condition is false, violated or failed.",
		"falseCondition":   "FalseCondition is the name of the match condition that is false.",
		"cost":             "Cost is what all expressions cost together, in the units of CEL; CostLimit is what they may.",
		"costLimit":        "Cost is what all expressions cost together, in the units of CEL; CostLimit is what they may.",
		"validations":      "Validations are those that were evaluated.",
		"auditAnnotations": "AuditAnnotations are the values that would be recorded, by key.",
		"mutations":        "Mutations are those of a mutating policy that were evaluated.",
	}
}

// SwaggerDoc returns what the fields mean, by their JSON names.
func (PolicyMutation) SwaggerDoc() map[string]string {
	return map[string]string{
		"":          "PolicyMutation is what one mutation does.",
		"index":     "Index is its place in the policy, Type is ApplyConfiguration or JSONPatch.",
		"type":      "Index is its place in the policy, Type is ApplyConfiguration or JSONPatch.",
		"verdict":   "Verdict is changed, unchanged, failed, spared when the binding is soft and the object would be changed if the binding were hard, or unknown when it cannot be seen what becomes of the object.",
		"patch":     "Patch is what it says, as the operations of a JSON patch; those of an apply configuration have the op merge.",
		"message":   "Message is why it failed, or what is not known.",
		"cost":      "Cost is what the expression costs, and CostLimit what it may.",
		"costLimit": "Cost is what the expression costs, and CostLimit what it may.",
	}
}

// SwaggerDoc returns what the fields mean, by their JSON names.
func (PolicyValidation) SwaggerDoc() map[string]string {
	return map[string]string{
		"":           "PolicyValidation is what one validation says.",
		"index":      "Index is its place in the policy; absent for what stands for all of them together.",
		"verdict":    "Verdict is holds, violated or failed.",
		"expression": "Expression is its source in CEL.",
		"because":    "Because is the part of the expression that makes it false, if that is less than all of it.",
		"values":     "Values are the values of parts of an expression that is false, if they come from the objects of the request alone.",
		"message":    "Message is what the user gets.",
		"cost":       "Cost is what the expression costs, and CostLimit what it may.",
		"costLimit":  "Cost is what the expression costs, and CostLimit what it may.",
	}
}

// SwaggerDoc returns what the fields mean, by their JSON names.
func (PartValue) SwaggerDoc() map[string]string {
	return map[string]string{
		"":           "PartValue is the value of a part of an expression.",
		"expression": "Expression is the part.",
		"value":      "Value is its value in JSON; the end of a long one is cut off.",
	}
}

// SwaggerDoc returns what the fields mean, by their JSON names.
func (PolicyConsequence) SwaggerDoc() map[string]string {
	return map[string]string{
		"":            "PolicyConsequence is what one binding makes of what is not as it should be.",
		"binding":     "Binding is absent for what is wrong with the policy itself.",
		"param":       "Param names the object that is param, as namespace/name.",
		"code":        "Code is what is wrong, for programs, and Message for people.",
		"message":     "Code is what is wrong, for programs, and Message for people.",
		"reason":      "Reason is the reason of the status that the request would be rejected with.",
		"actions":     "Actions are the validationActions of the binding.",
		"denied":      "Denied reports whether the request is rejected for it, Ignored whether nothing follows, because the failure policy is Ignore.",
		"ignored":     "Denied reports whether the request is rejected for it, Ignored whether nothing follows, because the failure policy is Ignore.",
		"enforcement": "Enforcement is present when the binding, or the policy, is soft, and Spared reports whether the request would be rejected if it were hard (S28).",
		"spared":      "Enforcement is present when the binding, or the policy, is soft, and Spared reports whether the request would be rejected if it were hard (S28).",
	}
}

// SwaggerDoc returns what the fields mean, by their JSON names.
func (SkippedBinding) SwaggerDoc() map[string]string {
	return map[string]string{
		"":        "SkippedBinding is a binding that does not apply.",
		"binding": "Binding is its name, and Reason why it does not apply.",
		"reason":  "Binding is its name, and Reason why it does not apply.",
	}
}

// SwaggerDoc returns what the fields mean, by their JSON names.
func (Enforced) SwaggerDoc() map[string]string {
	return map[string]string{
		"":     "Enforced says how hard an entry is for a request, and why. Its zero value is hard.",
		"mode": "Mode is Warn or Audit: the request goes on as if the entry did not exist. It is empty for an entry that is hard.",
		"rule": "Rule is the name of the rule of the administrator that says so; absent when the annotation of the object does.",
	}
}
