package cli

import (
	"encoding/json"
	"io"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"github.com/gatehouse-dev/gatehouse/internal/terminal"
)

// versionInfo says what the program was built from. Fields are only ever added.
type versionInfo struct {
	// Version is the version of the module, (devel) for a build from a work tree
	// without version control.
	Version string `json:"version"`
	// Commit is the revision built, empty when the build does not know it;
	// Modified says that the tree had changes of its own.
	Commit   string `json:"commit,omitempty"`
	Modified bool   `json:"modified,omitempty"`
	// Kubernetes is the release whose kinds, rules and kubectl are built in.
	Kubernetes string `json:"kubernetes"`
	Go         string `json:"go"`
	Platform   string `json:"platform"`
}

// kubernetesModule is the module whose version is the Kubernetes release.
const kubernetesModule = "k8s.io/kubernetes"

// readVersion takes the version from what the Go toolchain wrote into the
// program, so that nothing has to be stamped.
func readVersion(info *debug.BuildInfo) versionInfo {
	v := versionInfo{
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

// currentVersion is the version of the running program.
func currentVersion() versionInfo {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		panic("the program has no build information, which every build with modules has")
	}
	return readVersion(info)
}

func newVersion(streams Streams) *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Say what this program was built from",
		Long: `Print the version of gatehouse, the commit when it is known, the Kubernetes
release that is built in, and the Go version.`,
		Example: `  # for people
  gatehouse version

  # for programs; fields are only ever added
  gatehouse version -o json`,
		Args: noArgs,
		RunE: func(*cobra.Command, []string) error {
			return printVersion(streams.Out, currentVersion(), output)
		},
	}
	choose(cmd.Flags(), &output, "output", "o", "text", "text, json or yaml", "text", "json", "yaml")
	return cmd
}

func printVersion(w io.Writer, v versionInfo, output string) error {
	if output != "text" {
		text, err := marshal(v, output)
		if err != nil {
			return err
		}
		_, err = w.Write(text)
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

// marshal writes a value for programs, as json or yaml.
func marshal(v any, output string) ([]byte, error) {
	if output == "yaml" {
		return yaml.Marshal(v)
	}
	text, err := json.MarshalIndent(v, "", "  ")
	return append(text, '\n'), err
}
