package plugins

import "strings"

// openShift are the names of OpenShift's own admission plugins, without the group before them.
var openShift = map[string]bool{
	"BuildByStrategy": true, "BuildConfigSecretInjector": true, "BuildDefaults": true, "BuildOverrides": true,
	"ClusterResourceOverride": true, "ClusterResourceQuota": true, "ExternalIPRanger": true, "ImageLimitRange": true,
	"ImagePolicy": true, "IngressAdmission": true, "JenkinsBootstrapper": true, "OriginPodNodeEnvironment": true,
	"PodNodeConstraints": true, "ProjectRequestLimit": true, "RestrictSubjectBindings": true, "RestrictedEndpointsAdmission": true,
	"RunOnceDuration": true, "SecurityContextConstraint": true,
}

// neededByNobody are OpenShift's own plugins that need no replacement: Kubernetes does the same.
var neededByNobody = map[string]bool{"OriginNamespaceLifecycle": true, "SCCExecRestrictions": true}

// OfOpenShift reports whether OpenShift has an admission plugin of that name. The name may have a group before it,
// such as scheduling.openshift.io/OriginPodNodeEnvironment.
func OfOpenShift(name string) bool {
	group, bare, found := strings.Cut(name, "/")
	if !found {
		bare = group
	}
	return openShift[bare] || neededByNobody[bare] || found && (group == "openshift.io" || strings.HasSuffix(group, ".openshift.io"))
}
