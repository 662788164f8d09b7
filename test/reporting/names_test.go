package reporting

import (
	"testing"

	"github.com/gatehouse-dev/gatehouse/test/harness"
)

// sole returns the server of all tests that need a server for themselves.
func sole(t *testing.T) *harness.Server {
	t.Helper()
	return harness.Sole(t, "--admission-consistency", "strict", "--enable-admission-plugins", "DefaultTolerationSeconds", "--controllers=+replicaset")
}

// Shared with other test packages.
const (
	applyPatch = harness.ApplyPatch
	including  = harness.Including
	mergePatch = harness.MergePatch
	mutating   = harness.Mutating
	tracesPath = harness.TracesPath
	validating = harness.Validating
)

var (
	asJSON            = harness.AsJSON
	configMaps        = harness.ConfigMaps
	configuration     = harness.Configuration
	convertColor      = harness.ConvertColor
	definition        = harness.Definition
	mutatingPolicy    = harness.MutatingPolicy
	pending           = harness.Pending
	register          = harness.Register
	registrationsPath = harness.RegistrationsPath
	rule              = harness.Rule
	rules             = harness.Rules
	toJSON            = harness.ToJSON
	traceOf           = harness.TraceOf
	tracesIn          = harness.TracesIn
	want              = harness.Want
	webhook           = harness.Webhook
	writeFile         = harness.WriteFile
)
