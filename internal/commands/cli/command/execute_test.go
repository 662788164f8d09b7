package command

import (
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// An unknown flag suggests the nearest flag, or the replacement of a kubectl flag.
func TestUnknownFlags(t *testing.T) {
	for _, tc := range []struct{ use, flag, want string }{
		{"check PATH...", "-f", "files and directories are arguments here, without -f: check PATH"},
		{"lint [PATH...]", "--filename=a", "files and directories are arguments here, without -f: lint PATH"},
		{"check PATH...", "--kubeconfig=a", "--from-cluster names the kubeconfig of the cluster: check --from-cluster FILE"},
		{"rollout", "-f", "unknown shorthand flag: 'f' in -f"},
		{"check PATH...", "--from-clutser=a", "unknown flag --from-clutser (did you mean --from-cluster?)"},
		{"check PATH...", "--nothing", "unknown flag --nothing"},
	} {
		cmd := &cobra.Command{Use: tc.use, SilenceErrors: true, SilenceUsage: true, RunE: func(*cobra.Command, []string) error { return nil }}
		cmd.SetFlagErrorFunc(FlagError)
		if strings.Contains(tc.use, "PATH...") {
			cmd.Flags().String("from-cluster", "", "")
		}
		cmd.SetArgs([]string{tc.flag})
		if err := cmd.Execute(); err == nil || err.Error() != tc.want {
			t.Errorf("%s %s: got %v, want %s", tc.use, tc.flag, err, tc.want)
		}
	}
}
