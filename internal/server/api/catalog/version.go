package catalog

import (
	apiversion "k8s.io/apimachinery/pkg/version"
	"k8s.io/component-base/compatibility"

	"github.com/gatehouse-dev/gatehouse/internal/kit/emulation"
)

// effectiveVersion is the release that the server behaves as. The implementation in
// k8s.io/apiserver takes the text that clients read at /version from a variable that only the build
// scripts of Kubernetes set; clients reject the value that the variable has in other builds.
type effectiveVersion struct {
	compatibility.EffectiveVersion
}

// EffectiveVersion returns the release that the server behaves as.
func EffectiveVersion() compatibility.EffectiveVersion {
	return effectiveVersion{emulation.Effective()}
}

// Info is the answer of /version.
func (v effectiveVersion) Info() *apiversion.Info {
	info := v.EffectiveVersion.Info()
	info.GitVersion, info.GitCommit, info.BuildDate = "v"+emulation.Release, "", ""
	return info
}
