package guides

import "github.com/gatehouse-dev/gatehouse/test/harness"

// Shared with other test packages.
const (
	including  = harness.Including
	mergePatch = harness.MergePatch
	validating = harness.Validating
)

var (
	asJSON            = harness.AsJSON
	configMap         = harness.ConfigMap
	configMaps        = harness.ConfigMaps
	deployment        = harness.Deployment
	parsed            = harness.Parsed
	pending           = harness.Pending
	register          = harness.Register
	registrationsPath = harness.RegistrationsPath
	toJSON            = harness.ToJSON
	want              = harness.Want
	webhook           = harness.Webhook
	writeFile         = harness.WriteFile
)
