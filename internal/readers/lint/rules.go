package lint

import (
	"embed"
	"strings"
	"sync"

	"golang.org/x/tools/txtar"
)

// rules has every rule, in the order of the documentation.
var rules = []*Rule{
	// Rules about outages of a cluster.
	selfDeadlock, deadlockCycle, controlPlaneNotExempt, nodeCriticalNotExempt, runlevelNotExempt,
	failOnNodes, failOnLeases, apiServerStart, webhookOnEvents, ruleOnReviews, wildcardEverything, policyStopsCluster, deleteOwnKind,
	// Rules about failures of every call.
	invalid, unknownField, expressionInvalid, expressionTypes, variableNull, missingKey, quantityAsNumber, mutationAtomicList, listElementIncomplete, patchParentMissing, patchReplacesList, mutationImmutableField, conditionFails, caBundleInvalid, caBundleExpired, caBundleExpires, caBundleMissing, caInjectionBroken, caBundleMismatch, certificateExpires, webhookUnreachable, urlInCluster,
	serviceMissing, servicePortMissing, serviceNoEndpoints, serviceSelectsNothing, paramsMissing, paramsPerNamespaceDeny, dryRunRejected,
	// Rules about missing enforcement.
	ruleNeverMatches, selectorNeverMatches, selectorOnSubresource, subresourceForgotten, initContainersForgotten, updateForgotten, messageIsExpression, conditionNeverTrue, conditionAlwaysTrue, exactMissesVersion, objectSelectorOptOut, resourceNamesOnDelete, escapedProperty,
	policyWithoutBinding, bindingWithoutPolicy, warnBindingRejects, validationConstant, registrationWritable, mutationNotValidated,
	enforcementForgotten, enforcementUntried, enforcementIgnored, rolloutOptOut,
	// Rules about failures under load, or later.
	timeoutsExceedRequest, timeoutLong, expressionCost, singleReplica, mutatesStatus, manyMutatingWebhooks, notReinvoked, orderCycle, orderByName,
	mutatingFailsClosed, mutatesMirrorPods, unscoped, webhookOnCustomResource, storedVersionsOld, duplicate, registrationOld,
	// Rules about initializers.
	initializerCycle, initializerIdle,
	// Rules about upgrades, which run on request.
	upgradeRuleRemoved, upgradeRuleMisses, upgradeAPIVersion, upgradeKind, upgradeReview, upgradeExpression, upgradeServer,
}

// texts has a file for each rule: its title, its Why and its Fix, with an empty line between them,
// and then its examples.
//
//go:embed rules/*.txt
var texts embed.FS

// describe reads the texts of the rules.
var describe = sync.OnceFunc(func() {
	for _, r := range rules {
		data, err := texts.ReadFile("rules/" + r.ID + ".txt")
		if err != nil {
			panic("lint: a rule without a text: " + err.Error())
		}
		file := txtar.Parse(data)
		paragraphs := strings.Split(string(file.Comment), "\n\n")
		if len(paragraphs) != 3 || len(file.Files) != 2 {
			panic("lint: the text of " + r.ID + " needs three paragraphs and two examples")
		}
		for i, field := range []*string{&r.Title, &r.Why, &r.Fix} {
			*field = strings.Join(strings.Fields(paragraphs[i]), " ")
		}
		r.Fails, r.Passes = string(file.Files[0].Data), string(file.Files[1].Data)
	}
})
