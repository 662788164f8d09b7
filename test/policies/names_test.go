package policies

import "github.com/gatehouse-dev/gatehouse/test/harness"

// Shared with other test packages.
const (
	alwaysTrue         = harness.AlwaysTrue
	mutating           = harness.Mutating
	mutatingBindings   = harness.MutatingBindings
	mutatingPolicies   = harness.MutatingPolicies
	noMutation         = harness.NoMutation
	onNothing          = harness.OnNothing
	rbacPath           = harness.RBACPath
	registrationGroup  = harness.RegistrationGroup
	statesPath         = harness.StatesPath
	validatingBindings = harness.ValidatingBindings
	validatingPolicies = harness.ValidatingPolicies
)

var (
	allow             = harness.Permit
	asJSON            = harness.AsJSON
	configMap         = harness.ConfigMap
	configMaps        = harness.ConfigMaps
	in                = harness.Contains
	mutatingPolicy    = harness.MutatingPolicy
	policyApply       = harness.PolicyApply
	policyKinds       = harness.PolicyKinds
	policyMerge       = harness.PolicyMerge
	policyObject      = harness.PolicyObject
	register          = harness.Register
	registrationsPath = harness.RegistrationsPath
	rule              = harness.Rule
	toJSON            = harness.ToJSON
	traceOf           = harness.TraceOf
	want              = harness.Want
	webhook           = harness.Webhook
)
