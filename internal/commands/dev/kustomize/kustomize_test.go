package kustomize

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// A kustomization of another author does not make the session wait for a named pipe.
func TestKustomizationsReadRegularFiles(t *testing.T) {
	dir := t.TempDir()
	err := errors.Join(os.WriteFile(filepath.Join(dir, "kustomization.yaml"), []byte("resources: [a.yaml]\n"), 0o600), syscall.Mkfifo(filepath.Join(dir, "a.yaml"), 0o600))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Build(dir, func(string) {}); err == nil || !strings.Contains(err.Error(), "is a named pipe: only regular files are read") {
		t.Errorf("got %v", err)
	}
}
