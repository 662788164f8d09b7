package controllers

import "github.com/gatehouse-dev/gatehouse/test/harness"

// Shared with other test packages.
const (
	including  = harness.Including
	mergePatch = harness.MergePatch
	validating = harness.Validating
)

var (
	configMap         = harness.ConfigMap
	configMaps        = harness.ConfigMaps
	configuration     = harness.Configuration
	deployment        = harness.Deployment
	names             = harness.Names
	pod               = harness.Pod
	registrationsPath = harness.RegistrationsPath
	rule              = harness.Rule
	toJSON            = harness.ToJSON
	uninitialized     = harness.Uninitialized
	want              = harness.Want
	whoIs             = harness.WhoIs
)
