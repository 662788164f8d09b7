package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
	"k8s.io/client-go/tools/clientcmd"
)

func TestWhichKubeconfigKubectlUses(t *testing.T) {
	for _, tc := range []struct {
		name string
		// kubeconfig and dataDir are the environment, files what exists.
		kubeconfig, dataDir string
		files               []string
		want                string
		missing             string
	}{
		{name: "the server's own", files: []string{"gatehouse.data/admin.kubeconfig"}, want: "gatehouse.data/admin.kubeconfig"},
		{name: "the server's own before that of the home directory",
			files: []string{"gatehouse.data/admin.kubeconfig", "home"}, want: "gatehouse.data/admin.kubeconfig"},
		{name: "that of the home directory", files: []string{"home"}},
		{name: "none", missing: "no kubeconfig: neither gatehouse.data/admin.kubeconfig nor "},
		{name: "KUBECONFIG before all", kubeconfig: "mine", dataDir: "d", files: []string{"gatehouse.data/admin.kubeconfig", "d/admin.kubeconfig"}, want: "mine"},
		{name: "that of the data directory in the environment", dataDir: "d", files: []string{"d/admin.kubeconfig", "gatehouse.data/admin.kubeconfig"}, want: "d/admin.kubeconfig"},
		{name: "no other than that of the data directory in the environment", dataDir: "d", files: []string{"gatehouse.data/admin.kubeconfig", "home"},
			want: "d/admin.kubeconfig", missing: `GATEHOUSE_DATA_DIR is "d", and stat d/admin.kubeconfig`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Chdir(t.TempDir())
			t.Setenv(clientcmd.RecommendedConfigPathEnvVar, tc.kubeconfig)
			t.Setenv(dataDirVariable, tc.dataDir)
			home := clientcmd.RecommendedHomeFile
			clientcmd.RecommendedHomeFile = filepath.Join(t.TempDir(), "config")
			defer func() { clientcmd.RecommendedHomeFile = home }()
			for _, file := range tc.files {
				if file == "home" {
					file = clientcmd.RecommendedHomeFile
				}
				if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(file, nil, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			missing := defaultKubeconfig()
			if got := os.Getenv(clientcmd.RecommendedConfigPathEnvVar); got != tc.want {
				t.Errorf("KUBECONFIG is %q, want %q", got, tc.want)
			}
			if tc.missing == "" && missing != nil || tc.missing != "" && (missing == nil || !strings.Contains(missing.Error(), tc.missing)) {
				t.Errorf("missing: got %v, want %q", missing, tc.missing)
			}
		})
	}
}

func TestParseCompletions(t *testing.T) {
	for _, tc := range []struct {
		name, out string
		want      []cobra.Completion
		directive cobra.ShellCompDirective
		fails     bool
	}{
		{name: "some", out: "pods\npods/status\tdescribed\n:4\n", want: []cobra.Completion{"pods", "pods/status\tdescribed"}, directive: 4},
		{name: "none", out: ":4\n", directive: 4},
		{name: "with a colon", out: "a:b\n:0\n", want: []cobra.Completion{"a:b"}},
		{name: "no directive", out: "pods\n", fails: true},
		{name: "no number", out: "pods\n:x\n", fails: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, directive, err := parseCompletions(tc.out)
			if (err != nil) != tc.fails {
				t.Fatalf("error %v, want one: %t", err, tc.fails)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" || directive != tc.directive {
				t.Errorf("directive %d, want %d; (-want +got)\n%s", directive, tc.directive, diff)
			}
		})
	}
}
