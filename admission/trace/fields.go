// Code generated from the comments of json.go and json_policy.go and enforcement.go by go test -run Described -update. DO NOT EDIT.

package trace

// SwaggerDoc returns what the fields mean, by their JSON names.
func (Record) SwaggerDoc() map[string]string {
	return map[string]string{
		"":            "Record is a Trace in its stable form for JSON. Fields are only ever added. It shares nothing with the Trace. Times are in RFC 3339 with microseconds, durations are in microseconds.",
		"id":          "ID names the trace.",
		"auditID":     "AuditID names the request in the audit log, in the log, in the header Audit-Id of the answer, and in that of calls of webhooks.",
		"start":       "Start is when the request came.",
		"outcome":     "Outcome is what admission came to.",
		"request":     "Request is what the request was about.",
		"revision":    "Revision is the storage revision of the registrations that the request was judged by, the oldest when there were several; it is absent when none was needed.",
		"totalMicros": "TotalMicros is how long the request took, OwnMicros how long admission took without the time in which a webhook was waited for.",
		"ownMicros":   "TotalMicros is how long the request took, OwnMicros how long admission took without the time in which a webhook was waited for.",
		"redacted":    "Redacted reports whether contents are left out: values of patches, and, for a request about secrets, what webhooks wrote. Without it, [removed] stands for credentials.",
		"steps":       "Steps are what the plugins did, in the order in which they ended.",
	}
}

// SwaggerDoc returns what the fields mean, by their JSON names.
func (RequestRecord) SwaggerDoc() map[string]string {
	return map[string]string{
		"":            "RequestRecord says what an API request was about.",
		"operation":   "Operation is CREATE, UPDATE, DELETE or CONNECT.",
		"resource":    "Resource is the resource of the URL, Subresource its subresource.",
		"subresource": "Resource is the resource of the URL, Subresource its subresource.",
		"kind":        "Kind is the kind of the request's object.",
		"namespace":   "Namespace, Name and UID are those of the object. Name and UID are absent when they were not known, or when the request was about several objects.",
		"name":        "Namespace, Name and UID are those of the object. Name and UID are absent when they were not known, or when the request was about several objects.",
		"uid":         "Namespace, Name and UID are those of the object. Name and UID are absent when they were not known, or when the request was about several objects.",
		"user":        "User is the name of the user.",
		"dryRun":      "DryRun reports whether nothing was to be stored.",
	}
}

// SwaggerDoc returns what the fields mean, by their JSON names.
func (ResourceRecord) SwaggerDoc() map[string]string {
	return map[string]string{
		"":         "ResourceRecord names a resource.",
		"group":    "Group is empty for the core group.",
		"version":  "Version is the version of the group.",
		"resource": "Resource is the plural.",
	}
}

// SwaggerDoc returns what the fields mean, by their JSON names.
func (KindRecord) SwaggerDoc() map[string]string {
	return map[string]string{
		"":        "KindRecord names a kind.",
		"group":   "Group is empty for the core group.",
		"version": "Version is the version of the group.",
		"kind":    "Kind is the kind's name.",
	}
}

// SwaggerDoc returns what the fields mean, by their JSON names.
func (StepRecord) SwaggerDoc() map[string]string {
	return map[string]string{
		"":             "StepRecord is what one plugin did in one pass.",
		"plugin":       "Plugin is the name of the admission plugin.",
		"pass":         "Pass is mutating or validating.",
		"round":        "Round is 0, or 1 when the mutating plugins are run again.",
		"namespace":    "Namespace and Name are those of the step's object, as far as they were known.",
		"name":         "Namespace and Name are those of the step's object, as far as they were known.",
		"start":        "Start is when the step began, Micros how long it took.",
		"micros":       "Start is when the step began, Micros how long it took.",
		"allowed":      "Allowed reports whether the plugin let the request go on. Otherwise Error is why it did not.",
		"error":        "Allowed reports whether the plugin let the request go on. Otherwise Error is why it did not.",
		"revision":     "Revision is the storage revision of the registrations in use, ReadAt when the read that gave them began.",
		"readAt":       "Revision is the storage revision of the registrations in use, ReadAt when the read that gave them began.",
		"patch":        "Patch is what a compiled-in plugin changed of the object, as a JSON patch of the request's kind.",
		"pending":      "Pending are the initializers that the object was given.",
		"initializing": "Initializing are the initializers whose turn it was when the request wrote an uninitialized object. Written is what the request changed of it, as a JSON patch.",
		"written":      "Initializing are the initializers whose turn it was when the request wrote an uninitialized object. Written is what the request changed of it, as a JSON patch.",
		"judgements":   "Judgements are what admission policies did, in order.",
		"calls":        "Calls are the webhooks that were selected, in the order in which their answers count.",
		"discarded":    "Discarded are calls that were made ahead of turn and whose answers were not used.",
		"conditions":   "Conditions are the match conditions that were evaluated.",
		"skips":        "Skips are the entries that were looked at and did not apply.",
		"exclusions":   "Exclusions are what exclusion rules of the server did.",
	}
}

// SwaggerDoc returns what the fields mean, by their JSON names.
func (ExclusionRecord) SwaggerDoc() map[string]string {
	return map[string]string{
		"":        "ExclusionRecord is what an exclusion rule of the server did.",
		"rule":    "Rule is the name of the rule, Effect is skip, ignoreFailures or capTimeout.",
		"effect":  "Rule is the name of the rule, Effect is skip, ignoreFailures or capTimeout.",
		"entries": "Entries are those that were skipped, whose failures were ignored, or whose webhooks had less time; the first 100 of them, and More counts the others.",
		"more":    "Entries are those that were skipped, whose failures were ignored, or whose webhooks had less time; the first 100 of them, and More counts the others.",
	}
}

// SwaggerDoc returns what the fields mean, by their JSON names.
func (EntryRecord) SwaggerDoc() map[string]string {
	return map[string]string{
		"":              "EntryRecord names an entry of a registration.",
		"kind":          "Kind is the kind of the registration object, Configuration its name.",
		"configuration": "Kind is the kind of the registration object, Configuration its name.",
		"index":         "Index is the position of the entry in the object, from 0.",
		"name":          "Name is the name of the entry.",
		"source":        "Source is static for an entry of a manifest file, and absent for one of the API.",
	}
}

// SwaggerDoc returns what the fields mean, by their JSON names.
func (CallRecord) SwaggerDoc() map[string]string {
	return map[string]string{
		"":                 "CallRecord is one call of one webhook.",
		"webhook":          "Webhook is what was called, FailurePolicy its policy.",
		"failurePolicy":    "Webhook is what was called, FailurePolicy its policy.",
		"rule":             "Rule is the index of the rule that matched.",
		"kind":             "Kind, Resource and Subresource are what the review said the request is about. Equivalent reports whether this differs from the request's own.",
		"resource":         "Kind, Resource and Subresource are what the review said the request is about. Equivalent reports whether this differs from the request's own.",
		"subresource":      "Kind, Resource and Subresource are what the review said the request is about. Equivalent reports whether this differs from the request's own.",
		"equivalent":       "Kind, Resource and Subresource are what the review said the request is about. Equivalent reports whether this differs from the request's own.",
		"reviewVersion":    "ReviewVersion is the version of the review, and UID its uid; both are absent when none was made.",
		"uid":              "ReviewVersion is the version of the review, and UID its uid; both are absent when none was made.",
		"start":            "Start is when the call began, Micros how long it took.",
		"micros":           "Start is when the call began, Micros how long it took.",
		"turn":             "Turn is InTurn, Ahead or Again.",
		"sent":             "Sent reports whether the review was delivered as a whole. Fate is what became of the answer: Used, Superseded or NotReached.",
		"fate":             "Sent reports whether the review was delivered as a whole. Fate is what became of the answer: Used, Superseded or NotReached.",
		"verdict":          "Verdict is allowed, denied, failed or refused, Code the HTTP status code that stands for it.",
		"code":             "Verdict is allowed, denied, failed or refused, Code the HTTP status code that stands for it.",
		"error":            "Error is why the call did not end as allowed.",
		"class":            "Class is the step at which the call failed, and Reason the code of what kept the webhook from being called.",
		"reason":           "Class is the step at which the call failed, and Reason the code of what kept the webhook from being called.",
		"ignored":          "Ignored reports whether the call failed and the request went on without it.",
		"clientGone":       "ClientGone reports whether nobody waited for the request any more.",
		"deprecated":       "Deprecated names what is deprecated about the webhook's certificate.",
		"mutated":          "Mutated reports whether the call changed the object. Patch is the JSON patch that did.",
		"patch":            "Mutated reports whether the call changed the object. Patch is the JSON patch that did.",
		"enforcement":      "Enforcement is present for a soft webhook: whatever its verdict is, the request goes on. WouldPatch is the JSON patch that would have changed the object if the webhook were hard.",
		"wouldPatch":       "Enforcement is present for a soft webhook: whatever its verdict is, the request goes on. WouldPatch is the JSON patch that would have changed the object if the webhook were hard.",
		"warnings":         "Warnings and AuditAnnotations are the webhook's.",
		"auditAnnotations": "Warnings and AuditAnnotations are the webhook's.",
	}
}

// SwaggerDoc returns what the fields mean, by their JSON names.
func (PatchOperation) SwaggerDoc() map[string]string {
	return map[string]string{
		"":         "PatchOperation is an operation of a JSON patch.",
		"op":       "Op is add, remove, replace, move, copy or test; or merge for a field of an apply configuration.",
		"path":     "Path is a JSON pointer, and so is From.",
		"from":     "Path is a JSON pointer, and so is From.",
		"value":    "Value is absent when the operation has none, and when the record is redacted.",
		"field":    "Field is the path with elements of lists by what names them, as in spec.containers[name=web].image. Was is what the operation replaced or removed; what is large is left out, and WasBytes says how many bytes it has, 16385 for more than 16384. The three are absent for operations after the 64th, and when the record is redacted; what was there is absent for the fields of an apply configuration.",
		"was":      "Field is the path with elements of lists by what names them, as in spec.containers[name=web].image. Was is what the operation replaced or removed; what is large is left out, and WasBytes says how many bytes it has, 16385 for more than 16384. The three are absent for operations after the 64th, and when the record is redacted; what was there is absent for the fields of an apply configuration.",
		"wasBytes": "Field is the path with elements of lists by what names them, as in spec.containers[name=web].image. Was is what the operation replaced or removed; what is large is left out, and WasBytes says how many bytes it has, 16385 for more than 16384. The three are absent for operations after the 64th, and when the record is redacted; what was there is absent for the fields of an apply configuration.",
	}
}

// SwaggerDoc returns what the fields mean, by their JSON names.
func (ConditionRecord) SwaggerDoc() map[string]string {
	return map[string]string{
		"":         "ConditionRecord is one evaluation of the match conditions of an entry.",
		"entry":    "Entry has the conditions.",
		"micros":   "Micros is how long it took.",
		"errors":   "Errors counts the expressions that failed.",
		"excluded": "Excluded reports whether the webhook was not called because of its conditions. Error is how they failed, when they did.",
		"error":    "Excluded reports whether the webhook was not called because of its conditions. Error is how they failed, when they did.",
	}
}

// SwaggerDoc returns what the fields mean, by their JSON names.
func (SkipRecord) SwaggerDoc() map[string]string {
	return map[string]string{
		"":       "SkipRecord is an entry that did not apply.",
		"entry":  "Entry is the entry, Code names the test that it failed, and Reason is a sentence.",
		"code":   "Entry is the entry, Code names the test that it failed, and Reason is a sentence.",
		"reason": "Entry is the entry, Code names the test that it failed, and Reason is a sentence.",
	}
}

// SwaggerDoc returns what the fields mean, by their JSON names.
func (JudgementRecord) SwaggerDoc() map[string]string {
	return map[string]string{
		"":                 "JudgementRecord is what one admission policy did about a request.",
		"policy":           "Policy is the policy, FailurePolicy its failure policy.",
		"failurePolicy":    "Policy is the policy, FailurePolicy its failure policy.",
		"rule":             "Rule is the index of the rule that matched.",
		"kind":             "Kind, Resource and Subresource are what the policy sees the request is about. Equivalent reports whether this differs from the request's own.",
		"resource":         "Kind, Resource and Subresource are what the policy sees the request is about. Equivalent reports whether this differs from the request's own.",
		"subresource":      "Kind, Resource and Subresource are what the policy sees the request is about. Equivalent reports whether this differs from the request's own.",
		"equivalent":       "Kind, Resource and Subresource are what the policy sees the request is about. Equivalent reports whether this differs from the request's own.",
		"evaluations":      "Evaluations are those that were made, one for each param.",
		"consequences":     "Consequences are what follows of all that was found and is not as it should be, in the order in which they count, 64 at most. MoreConsequences counts the others.",
		"moreConsequences": "Consequences are what follows of all that was found and is not as it should be, in the order in which they count, 64 at most. MoreConsequences counts the others.",
	}
}

// SwaggerDoc returns what the fields mean, by their JSON names.
func (EvaluationRecord) SwaggerDoc() map[string]string {
	return map[string]string{
		"":                 "EvaluationRecord is one evaluation of a policy.",
		"param":            "Param is the object that was param.",
		"bindings":         "Bindings are the names of bindings that lead to the evaluation, 16 at most. MoreBindings counts the others.",
		"moreBindings":     "Bindings are the names of bindings that lead to the evaluation, 16 at most. MoreBindings counts the others.",
		"start":            "Start is when the evaluation began, Micros how long it took.",
		"micros":           "Start is when the evaluation began, Micros how long it took.",
		"cost":             "Cost is what all expressions cost together, in the units of CEL.",
		"falseCondition":   "FalseCondition is the name of the match condition that was false: nothing else was evaluated then.",
		"validations":      "Validations are those that were evaluated.",
		"auditAnnotations": "AuditAnnotations are those that were evaluated.",
		"mutations":        "Mutations are those of a mutating policy that were evaluated. Spared reports whether there are none because the evaluation was not to be repeated.",
		"spared":           "Mutations are those of a mutating policy that were evaluated. Spared reports whether there are none because the evaluation was not to be repeated.",
		"error":            "Error is why a mutating policy could not be evaluated at all.",
		"enforcement":      "Enforcement is present when the binding of a mutating policy is soft: its mutations change nothing.",
	}
}

// SwaggerDoc returns what the fields mean, by their JSON names.
func (MutationRecord) SwaggerDoc() map[string]string {
	return map[string]string{
		"":           "MutationRecord is one mutation that was evaluated.",
		"index":      "Index is the place of the mutation in the policy, Type is ApplyConfiguration or JSONPatch.",
		"type":       "Index is the place of the mutation in the policy, Type is ApplyConfiguration or JSONPatch.",
		"mutated":    "Mutated reports whether the mutation changed the object. Patch is what it said.",
		"patch":      "Mutated reports whether the mutation changed the object. Patch is what it said.",
		"wouldPatch": "WouldPatch is what the mutation would have changed if the binding were hard.",
		"error":      "Error is why nothing was changed.",
		"cost":       "Cost is what the expression cost, in the units of CEL; Micros is how long it took to evaluate it and to change the object.",
		"micros":     "Cost is what the expression cost, in the units of CEL; Micros is how long it took to evaluate it and to change the object.",
	}
}

// SwaggerDoc returns what the fields mean, by their JSON names.
func (ParamRecord) SwaggerDoc() map[string]string {
	return map[string]string{
		"":          "ParamRecord names an object.",
		"namespace": "Namespace is empty for a kind that is not in namespaces.",
		"name":      "Name is the name.",
	}
}

// SwaggerDoc returns what the fields mean, by their JSON names.
func (ValidationRecord) SwaggerDoc() map[string]string {
	return map[string]string{
		"":           "ValidationRecord is one validation that was evaluated.",
		"index":      "Index is the place of the validation in the policy; it is absent for what stands for all validations together.",
		"verdict":    "Verdict is holds, violated or failed.",
		"message":    "Message is what the user gets, Expression what the validation says; both are absent when it holds.",
		"expression": "Message is what the user gets, Expression what the validation says; both are absent when it holds.",
		"because":    "Because is the part of the expression that makes it false, if that is less than all of it. Values are the values of its parts, if they come from the objects of the request alone. Both are there for violations for which the request was rejected, of several requests a second, and absent when the record is redacted.",
		"values":     "Because is the part of the expression that makes it false, if that is less than all of it. Values are the values of its parts, if they come from the objects of the request alone. Both are there for violations for which the request was rejected, of several requests a second, and absent when the record is redacted.",
		"cost":       "Cost is what the expression cost, in the units of CEL; Nanos is how many nanoseconds it took.",
		"nanos":      "Cost is what the expression cost, in the units of CEL; Nanos is how many nanoseconds it took.",
	}
}

// SwaggerDoc returns what the fields mean, by their JSON names.
func (PartValueRecord) SwaggerDoc() map[string]string {
	return map[string]string{
		"":           "PartValueRecord is the value of a part of an expression.",
		"expression": "Expression is the part.",
		"value":      "Value is its value in JSON; the end of a long one is cut off.",
	}
}

// SwaggerDoc returns what the fields mean, by their JSON names.
func (AnnotationRecord) SwaggerDoc() map[string]string {
	return map[string]string{
		"":      "AnnotationRecord is one audit annotation that was evaluated.",
		"key":   "Key is the key in the policy. Value is absent when nothing was recorded.",
		"value": "Key is the key in the policy. Value is absent when nothing was recorded.",
		"error": "Error is why there is no value.",
	}
}

// SwaggerDoc returns what the fields mean, by their JSON names.
func (ConsequenceRecord) SwaggerDoc() map[string]string {
	return map[string]string{
		"":            "ConsequenceRecord is what one binding made of one thing that is not as it should be.",
		"binding":     "Binding is absent for what is wrong with the policy itself, Param if it is not about an evaluation with one.",
		"param":       "Binding is absent for what is wrong with the policy itself, Param if it is not about an evaluation with one.",
		"code":        "Code names what is wrong, Message is what the user gets, Reason the reason of a rejection.",
		"message":     "Code names what is wrong, Message is what the user gets, Reason the reason of a rejection.",
		"reason":      "Code names what is wrong, Message is what the user gets, Reason the reason of a rejection.",
		"index":       "Index is the place of the validation or mutation in the policy, and Annotation the key of the audit annotation, that the consequence is about; they are absent if it is about none.",
		"annotation":  "Index is the place of the validation or mutation in the policy, and Annotation the key of the audit annotation, that the consequence is about; they are absent if it is about none.",
		"actions":     "Actions are those of the binding that count, in order.",
		"denied":      "Denied reports whether the request is rejected for it, Ignored whether nothing follows, because the failure policy is Ignore.",
		"ignored":     "Denied reports whether the request is rejected for it, Ignored whether nothing follows, because the failure policy is Ignore.",
		"enforcement": "Enforcement is present when the binding, or the policy, is soft, and Spared reports whether the request would have been rejected if it were hard.",
		"spared":      "Enforcement is present when the binding, or the policy, is soft, and Spared reports whether the request would have been rejected if it were hard.",
	}
}

// SwaggerDoc returns what the fields mean, by their JSON names.
func (Enforcement) SwaggerDoc() map[string]string {
	return map[string]string{
		"":     "Enforcement says how hard a webhook or a policy was for a request (S28).",
		"mode": "Mode is Warn or Audit: the request went on as if the webhook or policy did not exist. It is empty for what was hard.",
		"rule": "Rule is the name of the rule of the administrator that said so; absent when the annotation of the object did.",
	}
}
