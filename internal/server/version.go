package server

import (
	apiversion "k8s.io/apimachinery/pkg/version"
	"k8s.io/component-base/compatibility"
)

// effectiveVersion is the release that the server behaves as. The library's own
// takes the text that clients read at /version from a variable that only the
// build scripts of Kubernetes set; clients refuse what the variable holds
// otherwise.
type effectiveVersion struct {
	compatibility.MutableEffectiveVersion
}

func newEffectiveVersion() effectiveVersion {
	return effectiveVersion{compatibility.NewEffectiveVersionFromString(KubernetesVersion, "", "")}
}

// Info is what /version answers.
func (v effectiveVersion) Info() *apiversion.Info {
	info := v.MutableEffectiveVersion.Info()
	info.GitVersion, info.GitCommit, info.BuildDate = "v"+KubernetesVersion, "", ""
	return info
}
