package manifests

import "github.com/gatehouse-dev/gatehouse/test/harness"

// Shared with other test packages.
const (
	alwaysTrue         = harness.AlwaysTrue
	onNothing          = harness.OnNothing
	statesPath         = harness.StatesPath
	validating         = harness.Validating
	validatingBindings = harness.ValidatingBindings
	validatingPolicies = harness.ValidatingPolicies
)

var (
	asJSON            = harness.AsJSON
	configMap         = harness.ConfigMap
	configMaps        = harness.ConfigMaps
	policyKinds       = harness.PolicyKinds
	policyObject      = harness.PolicyObject
	registrationsPath = harness.RegistrationsPath
	toJSON            = harness.ToJSON
	tracesIn          = harness.TracesIn
	webhook           = harness.Webhook
	writeFile         = harness.WriteFile
)
