package offline_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/gatehouse-dev/gatehouse/internal/commands/predict/builtins"
	"github.com/gatehouse-dev/gatehouse/internal/commands/predict/offline"
)

// BenchmarkFiles makes a plan from 5,000 webhooks in a YAML file, of which a sixth applies. The command explain does
// little else.
func BenchmarkFiles(b *testing.B) {
	var text strings.Builder
	for c := range 250 {
		fmt.Fprintf(&text, "---\napiVersion: admissionregistration.k8s.io/v1\nkind: %sWebhookConfiguration\nmetadata:\n  name: c%d\nwebhooks:\n", []string{"Mutating", "Validating"}[c%2], c)
		for w := range 20 {
			resource := []string{"pods", "configmaps", "services", "secrets", "endpoints", "events"}[w%6]
			fmt.Fprintf(&text, `- name: w%d.c%d.example.com
  clientConfig:
    service: {namespace: hooks, name: h%[1]d, path: /validate}
  rules:
  - apiGroups: [""]
    apiVersions: [v1]
    operations: [CREATE, UPDATE]
    resources: [%[3]s]
  admissionReviewVersions: [v1]
  sideEffects: None
  namespaceSelector: {matchLabels: {team: red}}
`, w, c, resource)
		}
	}
	text.WriteString("---\napiVersion: v1\nkind: Namespace\nmetadata: {name: shop, labels: {team: red}}\n")
	file := filepath.Join(b.TempDir(), "all.yaml")
	if err := os.WriteFile(file, []byte(text.String()), 0o600); err != nil {
		b.Fatal(err)
	}
	object := &unstructured.Unstructured{Object: configMap("new", "shop")}
	b.SetBytes(int64(text.Len()))
	b.ReportAllocs()
	for b.Loop() {
		world, err := builtins.Read([]string{file})
		if err != nil {
			b.Fatal(err)
		}
		p, err := world.Plan(b.Context(), &offline.Request{
			Operation: "CREATE", Kind: world.Kinds.Of(object.GroupVersionKind()), Namespace: "shop", Name: "new", Object: object,
			User: &user.DefaultInfo{Name: "alice"},
		})
		if err != nil {
			b.Fatal(err)
		}
		calls := 0
		for range p.Calls() {
			calls++
		}
		if calls != 1000 {
			b.Fatalf("%d webhooks are called, want 1000", calls)
		}
	}
}
