package spans

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The error about a file that cannot be used is one sentence, which names the flag and the problem.
func TestTracingConfigurationIsChecked(t *testing.T) {
	const head = "apiVersion: apiserver.config.k8s.io/v1\nkind: TracingConfiguration\n"
	for _, c := range []struct{ name, text, says string }{
		{"no fields", head, ""},
		{"an older version", "apiVersion: apiserver.config.k8s.io/v1beta1\nkind: TracingConfiguration\nendpoint: localhost:4317\n", ""},
		{"all fields", head + "endpoint: localhost:4317\nsamplingRatePerMillion: 100\n", ""},
		{"an unknown field", head + "end: localhost:4317\n", `unknown field "end"`},
		{"another kind", "apiVersion: apiserver.config.k8s.io/v1\nkind: EgressSelectorConfiguration\n", "EgressSelectorConfiguration"},
		{"a rate that is too high", head + "samplingRatePerMillion: 1000001\n", "samplingRatePerMillion: Invalid value: 1000001"},
		{"a negative rate", head + "samplingRatePerMillion: -1\n", "samplingRatePerMillion: Invalid value: -1"},
		{"an endpoint with another scheme", head + "endpoint: https://localhost:4317\n", "endpoint: Invalid value"},
	} {
		t.Run(c.name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "tracing.yaml")
			if err := os.WriteFile(file, []byte(c.text), 0o600); err != nil {
				t.Fatal(err)
			}
			read, err := Read(file)
			if c.says == "" {
				if err != nil || read == nil {
					t.Errorf("got %v", err)
				}
				return
			}
			if err == nil || !strings.HasPrefix(err.Error(), "--tracing-config-file") || !strings.Contains(err.Error(), c.says) || strings.Contains(err.Error(), "\n") {
				t.Errorf("got %v, want one sentence with %q", err, c.says)
			}
		})
	}
}
