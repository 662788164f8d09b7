package aggregation

import "github.com/gatehouse-dev/gatehouse/test/harness"

// Shared with other test packages.
const (
	applyPatch = harness.ApplyPatch
	mergePatch = harness.MergePatch
	mutating   = harness.Mutating
	validating = harness.Validating
)

var (
	asJSON            = harness.AsJSON
	configMap         = harness.ConfigMap
	configMaps        = harness.ConfigMaps
	convertColor      = harness.ConvertColor
	pod               = harness.Pod
	registrationsPath = harness.RegistrationsPath
	toJSON            = harness.ToJSON
	want              = harness.Want
	webhook           = harness.Webhook
)
