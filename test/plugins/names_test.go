package plugins

import "github.com/gatehouse-dev/gatehouse/test/harness"

// Shared with other test packages.
const (
	mergePatch = harness.MergePatch
)

var (
	configMap  = harness.ConfigMap
	configMaps = harness.ConfigMaps
	in         = harness.Contains
	pod        = harness.Pod
	toJSON     = harness.ToJSON
	traceOf    = harness.TraceOf
	want       = harness.Want
	writeFile  = harness.WriteFile
)
