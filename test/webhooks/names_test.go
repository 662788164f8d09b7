package webhooks

import "github.com/gatehouse-dev/gatehouse/test/harness"

// Shared with other test packages.
const (
	applyPatch        = harness.ApplyPatch
	including         = harness.Including
	jsonPatch         = harness.JSONPatch
	mergePatch        = harness.MergePatch
	mutating          = harness.Mutating
	registrationGroup = harness.RegistrationGroup
	strategicPatch    = harness.StrategicPatch
	validating        = harness.Validating
)

var (
	asJSON            = harness.AsJSON
	configMap         = harness.ConfigMap
	configMaps        = harness.ConfigMaps
	configuration     = harness.Configuration
	define            = harness.Widgets
	deployment        = harness.Deployment
	in                = harness.Contains
	merge             = harness.Merge
	names             = harness.Names
	parsed            = harness.Parsed
	pending           = harness.Pending
	pod               = harness.Pod
	register          = harness.Register
	registerAs        = harness.RegisterAs
	registrationsPath = harness.RegistrationsPath
	rule              = harness.Rule
	rules             = harness.Rules
	set               = harness.SetFields
	toJSON            = harness.ToJSON
	want              = harness.Want
	webhook           = harness.Webhook
	writeFile         = harness.WriteFile
)
