package harness

import (
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/gatehouse-dev/gatehouse/test/speed"
)

// EtcdTools adds etcd, etcdctl and etcdutl to the PATH of the administrator's commands. It skips the test,
// with the reason, if the modules of etcd are missing.
func (a *Administrator) EtcdTools(t testing.TB) {
	t.Helper()
	speed.Server(t)
	bin, module := t.TempDir(), filepath.Join(moduleRoot(), "test", "harness", "etcdtools")
	versions, err := os.ReadFile(filepath.Join(module, "go.sum"))
	if err != nil {
		t.Fatal(err)
	}
	for name, pkg := range map[string]string{"etcd": "server", "etcdctl": "etcdctl", "etcdutl": "etcdutl"} {
		path, err := cached("real-"+name, fmt.Sprintf("real-%s-%x", name, sha256.Sum256(versions))[:30], func(built string) error {
			if _, err := os.Stat(built); err == nil {
				return nil
			}
			full := "go.etcd.io/etcd/" + pkg + "/v3"
			if _, err := run("go", "-C", module, "list", "-deps", full); err != nil {
				return missingError(fmt.Sprintf("modules of etcd are missing: %v", err))
			}
			_, err := run("go", "-C", module, "build", "-ldflags=-s -w", "-o", built, full)
			return err
		})
		skipIfMissing(t, err)
		if err := os.Symlink(path, filepath.Join(bin, name)); err != nil {
			t.Fatal(err)
		}
	}
	a.Set("PATH=" + bin + ":" + a.path())
}
