package access

import "github.com/gatehouse-dev/gatehouse/test/harness"

// Shared with other test packages.
const (
	applyPatch         = harness.ApplyPatch
	authenticationPath = harness.AuthenticationPath
	authorizationPath  = harness.AuthorizationPath
	mergePatch         = harness.MergePatch
	rbacPath           = harness.RBACPath
)

var (
	allow     = harness.Permit
	configMap = harness.ConfigMap
	in        = harness.Contains
	pod       = harness.Pod
	toJSON    = harness.ToJSON
	want      = harness.Want
)
