package lint

// rules has every rule, in the order in which they are documented.
var rules = []*Rule{
	// What stops a cluster.
	selfDeadlock, deadlockCycle, controlPlaneNotExempt, nodeCriticalNotExempt, runlevelNotExempt,
	failOnNodes, failOnLeases, apiServerStart, webhookOnEvents, ruleOnReviews, wildcardEverything,
	// What fails each time.
	invalid, expressionInvalid, expressionTypes, variableNull, conditionFails, caBundleInvalid, caBundleExpired, caBundleExpires, caBundleMissing, caBundleMismatch,
	serviceMissing, servicePortMissing, serviceNoEndpoints, serviceSelectsNothing, paramsMissing, paramsPerNamespaceDeny, dryRunRejected,
	// What is not enforced.
	ruleNeverMatches, selectorNeverMatches, conditionNeverTrue, conditionAlwaysTrue, exactMissesVersion, objectSelectorOptOut, resourceNamesOnDelete, escapedProperty,
	policyWithoutBinding, bindingWithoutPolicy, warnBindingRejects, validationConstant, registrationWritable, mutationNotValidated,
	enforcementForgotten, enforcementUntried, enforcementIgnored, rolloutOptOut,
	// What goes wrong under load, or later.
	timeoutsExceedRequest, timeoutLong, expressionCost, singleReplica, mutatesStatus, manyMutatingWebhooks, notReinvoked, orderCycle, orderByName,
	mutatingFailsClosed, mutatesMirrorPods, unscoped, webhookOnCustomResource, duplicate, registrationOld,
	// Initializers.
	initializerCycle, initializerIdle,
	// Whether an upgrade is safe, if it is asked.
	upgradeRuleRemoved, upgradeRuleMisses, upgradeAPIVersion, upgradeReview, upgradeExpression, upgradeServer,
}
