package keys

import (
	"os"
	"path/filepath"
	"testing"
)

// Files are whole, also with NoSync, and Write leaves no temporary files behind.
func TestFilesAreReplaced(t *testing.T) {
	for _, files := range []Files{{}, {NoSync: true}} {
		dir := t.TempDir()
		path := filepath.Join(dir, "file")
		for _, text := range []string{"first", "second"} {
			if err := files.Write(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			data, err := os.ReadFile(path)
			if err != nil || string(data) != text {
				t.Errorf("%+v: %q, %v; want %q", files, data, err, text)
			}
			if info, err := os.Stat(path); err != nil || info.Mode() != 0o600 {
				t.Errorf("%+v: mode %v, %v", files, info.Mode(), err)
			}
		}
		if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 {
			t.Errorf("%+v: %v, %v in the directory", files, entries, err)
		}
	}
}
