package serving

import "github.com/gatehouse-dev/gatehouse/test/harness"

// Shared with other test packages.
const (
	applyPatch     = harness.ApplyPatch
	jsonPatch      = harness.JSONPatch
	mergePatch     = harness.MergePatch
	strategicPatch = harness.StrategicPatch
	validating     = harness.Validating
)

var (
	configMap         = harness.ConfigMap
	configMaps        = harness.ConfigMaps
	configuration     = harness.Configuration
	line              = harness.Line
	names             = harness.Names
	registrationsPath = harness.RegistrationsPath
	rule              = harness.Rule
	toJSON            = harness.ToJSON
	want              = harness.Want
)
