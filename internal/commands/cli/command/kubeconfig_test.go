package command

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/spf13/cobra"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/gatehouse-dev/gatehouse/internal/server/storage/etcd"
)

func TestWhichKubeconfigKubectlUses(t *testing.T) {
	for _, tc := range []struct {
		name string
		// kubeconfig and dataDir are environment variables, and files are the existing files.
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
			t.Setenv(DataDirVariable, tc.dataDir)
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
				if err := os.WriteFile(file, []byte(foundKubeconfig), 0o600); err != nil {
					t.Fatal(err)
				}
				if filepath.Base(file) == "admin.kubeconfig" {
					servesFrom(t, filepath.Dir(file))
				}
			}
			missing := DefaultKubeconfig()
			if got := os.Getenv(clientcmd.RecommendedConfigPathEnvVar); got != tc.want {
				t.Errorf("KUBECONFIG is %q, want %q", got, tc.want)
			}
			if tc.missing == "" && missing != nil || tc.missing != "" && (missing == nil || !strings.Contains(missing.Error(), tc.missing)) {
				t.Errorf("missing: got %v, want %q", missing, tc.missing)
			}
		})
	}
}

// foundKubeconfig is the kubeconfig that a server at foundServer writes.
const (
	foundServer     = "https://127.0.0.1:6443"
	foundKubeconfig = `{apiVersion: v1, kind: Config, current-context: c,
contexts: [{name: c, context: {cluster: c, user: u}}],
clusters: [{name: c, cluster: {server: "https://127.0.0.1:6443", certificate-authority-data: YQ==}}],
users: [{name: u, user: {client-certificate-data: YQ==, client-key-data: YQ==}}]}`
)

// servesFrom makes a data directory look like the directory of a running server.
func servesFrom(t *testing.T, dir string) (lock string) {
	t.Helper()
	held, err := etcd.TakeLock(filepath.Join(dir, "etcd"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { held.Close() })
	lock = filepath.Join(dir, "etcd", "lock")
	if err := os.WriteFile(lock, []byte("unix:///s\n1\n"+foundServer+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return lock
}

// A kubeconfig that no flag selects, found in a folder, is used only while it belongs to a running server of
// this user. Otherwise no kubeconfig is used.
func TestStrangeFoldersNameNoServer(t *testing.T) {
	replaced := func(old, new string) string {
		if !strings.Contains(foundKubeconfig, old) {
			t.Fatalf("the kubeconfig has no %s", old)
		}
		return strings.Replace(foundKubeconfig, old, new, 1)
	}
	const cluster, key = "certificate-authority-data: YQ==", "client-key-data: YQ=="
	for name, tc := range map[string]struct {
		kubeconfig string
		// spoil changes the files of the server; nil means no server.
		spoil func(t *testing.T, lock string) error
		why   string
	}{
		"of a server that runs": {foundKubeconfig, func(*testing.T, string) error { return nil }, ""},
		"no server":             {foundKubeconfig, nil, "no server of this user runs with its data directory"},
		"a lock that nobody holds": {foundKubeconfig, func(_ *testing.T, lock string) error {
			return errors.Join(os.Rename(lock, lock+".old"), os.WriteFile(lock, []byte("a\n1\n"+foundServer+"\n"), 0o600))
		}, "no server of this user runs"},
		"a lock that others may hold":      {foundKubeconfig, func(_ *testing.T, lock string) error { return os.Chmod(lock, 0o644) }, "other users than this one may use "},
		"a process that is not a server":   {foundKubeconfig, func(_ *testing.T, lock string) error { return os.Truncate(lock, 0) }, "no server of this user runs"},
		"a server that does not serve yet": {foundKubeconfig, func(_ *testing.T, lock string) error { return os.WriteFile(lock, []byte("unix:///s\n1\n\n"), 0o600) }, "no server of this user runs"},
		"a pipe": {foundKubeconfig, func(_ *testing.T, lock string) error {
			return errors.Join(os.Remove(lock), syscall.Mkfifo(lock, 0o600))
		}, "other users than this one may use "},
		"another server":          {replaced("127.0.0.1:6443", "192.0.2.1:443"), func(*testing.T, string) error { return nil }, `the cluster "c" in it is more than the address of the server that runs`},
		"a program":               {replaced(key, key+", exec: {apiVersion: client.authentication.k8s.io/v1, command: touch, args: [ran]}"), func(*testing.T, string) error { return nil }, `the user "u" in it has more than an embedded certificate`},
		"an auth provider":        {replaced(key, key+", auth-provider: {name: oidc}"), func(*testing.T, string) error { return nil }, `the user "u"`},
		"a file":                  {replaced(key, "client-key: /etc/passwd"), func(*testing.T, string) error { return nil }, `the user "u"`},
		"a file with a token":     {replaced(key, "tokenFile: /etc/passwd"), func(*testing.T, string) error { return nil }, `the user "u"`},
		"a proxy":                 {replaced(cluster, cluster+`, proxy-url: "http://192.0.2.1"`), func(*testing.T, string) error { return nil }, `the cluster "c"`},
		"a certificate in a file": {replaced(cluster, "certificate-authority: /etc/passwd"), func(*testing.T, string) error { return nil }, `the cluster "c"`},
		"no certificate":          {replaced(cluster, "insecure-skip-tls-verify: true"), func(*testing.T, string) error { return nil }, `the cluster "c"`},
		"no kubeconfig":           {"]", func(*testing.T, string) error { return nil }, "admin.kubeconfig is not used: "},
	} {
		t.Run(name, func(t *testing.T) {
			t.Chdir(t.TempDir())
			t.Setenv(clientcmd.RecommendedConfigPathEnvVar, "")
			t.Setenv(DataDirVariable, "")
			// The kubeconfig of the user's own cluster is not used either.
			home := clientcmd.RecommendedHomeFile
			clientcmd.RecommendedHomeFile = filepath.Join(t.TempDir(), "config")
			defer func() { clientcmd.RecommendedHomeFile = home }()
			path := filepath.Join("gatehouse.data", "admin.kubeconfig")
			if err := errors.Join(os.Mkdir("gatehouse.data", 0o700), os.WriteFile(path, []byte(tc.kubeconfig), 0o600),
				os.WriteFile(clientcmd.RecommendedHomeFile, []byte(foundKubeconfig), 0o600)); err != nil {
				t.Fatal(err)
			}
			if tc.spoil != nil {
				if err := tc.spoil(t, servesFrom(t, "gatehouse.data")); err != nil {
					t.Fatal(err)
				}
			}
			err := DefaultKubeconfig()
			used := os.Getenv(clientcmd.RecommendedConfigPathEnvVar)
			if tc.why == "" {
				if err != nil || used != path {
					t.Errorf("KUBECONFIG is %q, %v", used, err)
				}
				return
			}
			if err == nil || !strings.HasPrefix(err.Error(), path+" is not used: ") || !strings.Contains(err.Error(), tc.why) || used != os.DevNull {
				t.Errorf("KUBECONFIG is %q, %v; want %q", used, err, tc.why)
			}
			if _, err := NewCluster(&cobra.Command{}).Open(); err == nil || !strings.Contains(err.Error(), path+" is not used: ") {
				t.Errorf("a command: %v", err)
			}
		})
	}
}
