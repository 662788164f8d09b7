package command

import (
	"fmt"
	"io"
	"runtime"
	"runtime/debug"

	utilversion "k8s.io/apimachinery/pkg/util/version"
	apiversion "k8s.io/apimachinery/pkg/version"
	"k8s.io/component-base/version"

	"github.com/gatehouse-dev/gatehouse/internal/kit/terminal"
)

// Version describes the build of the program. Fields are only ever added.
type Version struct {
	// Version is the version of the module; (devel) for a build from a work tree without version control.
	Version string `json:"version"`
	// Commit is the revision; empty if the build does not record it. Modified reports uncommitted changes.
	Commit   string `json:"commit,omitempty"`
	Modified bool   `json:"modified,omitempty"`
	// Kubernetes is the built-in release of the kinds, rules and kubectl.
	Kubernetes string `json:"kubernetes"`
	Go         string `json:"go"`
	Platform   string `json:"platform"`
}

// kubernetesModule is the module whose version is the Kubernetes release.
const kubernetesModule = "k8s.io/kubernetes"

// readVersion reads the version from the build information that the Go toolchain embeds, so that no build needs
// to stamp it.
func readVersion(info *debug.BuildInfo) Version {
	v := Version{
		Version:  info.Main.Version,
		Go:       info.GoVersion,
		Platform: runtime.GOOS + "/" + runtime.GOARCH,
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			v.Commit = s.Value
		case "vcs.modified":
			v.Modified = s.Value == "true"
		}
	}
	for _, m := range info.Deps {
		if m.Path == kubernetesModule {
			v.Kubernetes = m.Version
		}
	}
	return v
}

// CurrentVersion is the version of the running program.
func CurrentVersion() Version {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		panic("the program has no build information, which every build with modules has")
	}
	return readVersion(info)
}

// PrintVersion writes a version for people, or for programs as json or yaml.
func PrintVersion(w io.Writer, v Version, output string) error {
	if output != "text" {
		text, err := Marshal(v, output)
		if err == nil {
			_, err = w.Write(text)
		}
		return err
	}
	commit := v.Commit
	if commit != "" {
		if v.Modified {
			commit += ", with changes"
		}
		commit = " (commit " + commit + ")"
	}
	_, err := terminal.Fprintf(w, "gatehouse %s%s\nkubernetes %s\n%s %s\n", v.Version, commit, v.Kubernetes, v.Go, v.Platform)
	return err
}

// ClientVersion returns the version that a kubectl build of the given release embeds.
func ClientVersion(release string) *apiversion.Info {
	info := version.Get()
	info.GitVersion, info.GitCommit, info.BuildDate = release, "", ""
	if v, err := utilversion.ParseSemantic(release); err == nil {
		info.Major, info.Minor = fmt.Sprint(v.Major()), fmt.Sprint(v.Minor())
	}
	return &info
}
