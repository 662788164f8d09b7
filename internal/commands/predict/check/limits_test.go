package check_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/internal/commands/predict/check"
	"github.com/gatehouse-dev/gatehouse/internal/readers/manifests"
)

// CRDs that kubectl apply cannot store are one finding, and their custom resources are checked.
func TestObjectsThatAreTooLongForApply(t *testing.T) {
	definition := func(plural, kind string, length int) string {
		return fmt.Sprintf(`apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: %s.long.example.com}
spec:
  group: long.example.com
  names: {kind: %s, plural: %[1]s}
  scope: Namespaced
  versions:
  - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, description: %[3]q, properties: {spec: {type: object, properties: {count: {type: integer}}}}}}}
---
`, plural, kind, strings.Repeat("d", length))
	}
	objects := definition("ones", "One", 260<<10) + definition("twos", "Two", 261<<10) + definition("threes", "Three", 10) +
		"{apiVersion: long.example.com/v1, kind: One, metadata: {name: right}, spec: {count: 1}}\n---\n" +
		"{apiVersion: long.example.com/v1, kind: Two, metadata: {name: wrong}, spec: {count: many}}\n"
	file := filepath.Join(t.TempDir(), "all.yaml")
	if err := os.WriteFile(file, []byte(objects), 0o600); err != nil {
		t.Fatal(err)
	}
	const long = "1 needs-server-side this object, and 1 more, cannot be applied without --server-side: kubectl apply keeps a copy in an annotation, which may have 256 KiB"
	for _, serverSide := range []bool{false, true} {
		set, err := manifests.Read([]string{file}, nil)
		if err != nil {
			t.Fatal(err)
		}
		found, err := check.Run(t.Context(), check.Options{Set: set, Namespace: "default", ServerSide: serverSide})
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, f := range found.Findings {
			got = append(got, fmt.Sprintf("%d %s %s", f.Line, f.Rule, f.Text()))
		}
		if !serverSide && (len(got) == 0 || got[0] != long) {
			t.Errorf("got %q, want %s first", got, long)
		}
		if len(got) != 1 && serverSide || len(got) != 2 && !serverSide || !strings.Contains(got[len(got)-1], "33 invalid ") || found.Summary.Accepted != 4 {
			t.Errorf("server-side %t: %d accepted, %q", serverSide, found.Summary.Accepted, got)
		}
	}
}
