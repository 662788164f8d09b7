package objects

import "github.com/gatehouse-dev/gatehouse/test/harness"

// Shared with other test packages.
const (
	applyPatch       = harness.ApplyPatch
	asMetadata       = harness.AsMetadata
	asMetadataList   = harness.AsMetadataList
	asTable          = harness.AsTable
	including        = harness.Including
	jsonPatch        = harness.JSONPatch
	mergePatch       = harness.MergePatch
	protobufMetadata = harness.ProtobufMetadata
	strategicPatch   = harness.StrategicPatch
	validating       = harness.Validating
)

var (
	allow             = harness.Permit
	asJSON            = harness.AsJSON
	configMap         = harness.ConfigMap
	define            = harness.Widgets
	definition        = harness.Definition
	deployment        = harness.Deployment
	in                = harness.Contains
	line              = harness.Line
	merge             = harness.Merge
	names             = harness.Names
	pending           = harness.Pending
	pod               = harness.Pod
	registrationsPath = harness.RegistrationsPath
	toJSON            = harness.ToJSON
	uninitialized     = harness.Uninitialized
	want              = harness.Want
	whoIs             = harness.WhoIs
)
