package serving

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/test/harness"
)

// The administrator's kubeconfig is not written through a symlink in the data directory, but is written
// through a symlink that the administrator names.
func TestTheKubeconfigIsNotWrittenThroughALinkAmongTheData(t *testing.T) {
	t.Parallel()
	data, elsewhere := t.TempDir(), filepath.Join(t.TempDir(), "planted")
	link := filepath.Join(data, "admin.kubeconfig")
	if err := os.Symlink(elsewhere, link); err != nil {
		t.Fatal(err)
	}
	if said := harness.Refuses(t, "--data-dir", data); !strings.Contains(said, link+" is a link") || !strings.Contains(said, "--kubeconfig-out") {
		t.Error(said)
	}
	if _, err := os.Lstat(elsewhere); !os.IsNotExist(err) {
		t.Errorf("%s was written: %v", elsewhere, err)
	}
	named := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(elsewhere, named); err != nil {
		t.Fatal(err)
	}
	harness.StartOn(t, data, "--kubeconfig-out", named)
	if _, err := os.Stat(elsewhere); err != nil {
		t.Error(err)
	}
}
