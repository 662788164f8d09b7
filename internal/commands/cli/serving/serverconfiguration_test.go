package serving

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/spf13/pflag"
	"sigs.k8s.io/yaml"

	"github.com/gatehouse-dev/gatehouse/internal/commands/cli/command"
	"github.com/gatehouse-dev/gatehouse/internal/server"
)

// printedConfig returns the output of serve --print-config with the given arguments.
func printedConfig(t *testing.T, args ...string) (string, error) {
	t.Helper()
	var out strings.Builder
	cmd := NewServe(command.Streams{Out: &out, Err: io.Discard})
	cmd.SetArgs(append([]string{"--print-config"}, args...))
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	err := cmd.Execute()
	return out.String(), err
}

const serverHead = "apiVersion: gatehouse.dev/v1alpha1\nkind: ServerConfiguration\n"

// A file sets flags, and a flag on the command line overrides it.
func TestServerConfiguration(t *testing.T) {
	t.Setenv(command.DataDirVariable, "")
	file := filepath.Join(t.TempDir(), "server.yaml")
	text := serverHead + `dataDir: /from/file
securePort: 7443
etcdQuota: 2Gi
minFreeDisk: 0
initializerTimeout: 7s
allowPrivileged: false
admissionTraceRedact: true
controllers: ["*", -job]
serviceAccountIssuer: [https://a.example.com, https://b.example.com]
oidcIssuerUrl: https://issuer.example.com
oidcClientId: gatehouse
oidcRequiredClaim: {team: platform, stage: prod}
`
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	out, err := printedConfig(t, "--config", file, "--secure-port", "8443", "--controllers", "-*")
	if err != nil {
		t.Fatal(err)
	}
	var got map[string]any
	if err := yaml.UnmarshalStrict([]byte(out), &got); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]any{
		"dataDir": "/from/file", "securePort": 8443., "etcdQuota": "2Gi", "minFreeDisk": "0", "initializerTimeout": "7s",
		"allowPrivileged": false, "admissionTraceRedact": true, "controllers": []any{"-*"}, "bindAddress": nil,
		"serviceAccountIssuer": []any{"https://a.example.com", "https://b.example.com"},
		"oidcRequiredClaim":    map[string]any{"team": "platform", "stage": "prod"},
	} {
		if diff := cmp.Diff(want, got[name]); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	if !strings.Contains(out, "\n# bindAddress: 127.0.0.1\n") || !strings.Contains(out, "\n# oidcSigningAlgs:\n#   - RS256\n") {
		t.Errorf("defaults are not comments:\n%s", out)
	}
	// The output is a file with the same effect.
	if err := os.WriteFile(file, []byte(out), 0o644); err != nil {
		t.Fatal(err)
	}
	if again, err := printedConfig(t, "--config", file); err != nil || again != out {
		t.Errorf("%v (-first +again):\n%s", err, cmp.Diff(out, again))
	}
}

// Every flag can be a field: the defaults, without the marks of comments, are read back as they
// were.
func TestEveryFlagIsAField(t *testing.T) {
	t.Setenv(command.DataDirVariable, "")
	out, err := printedConfig(t)
	if err != nil {
		t.Fatal(err)
	}
	text := strings.ReplaceAll(out, "\n# ", "\n")
	cmd := NewServe(command.Streams{})
	if err := configure(cmd.Flags(), []byte(text)); err != nil {
		t.Fatal(err)
	}
	var again strings.Builder
	if err := (&serverConfiguration{}).write(&again, cmd.Flags(), &serveOptions{server: server.Options{DataDir: "x"}}); err != nil {
		t.Fatal(err)
	}
	if again.String() != text {
		t.Errorf("(-first +again):\n%s", cmp.Diff(text, again.String()))
	}
	byField, names := configurable(NewServe(command.Streams{}).Flags())
	if len(byField) != len(names) || len(names) < 50 {
		t.Errorf("%d fields for %d flags", len(byField), len(names))
	}
	known := []string{"string", "int", "int64", "bool", "duration", "size", "stringSlice", "stringArray", "mapStringString", "float32", "float64", "portRange", "pattern=N,..."}
	for name, f := range byField {
		if kind := f.Value.Type(); !slices.Contains(known, kind) {
			t.Errorf("%s has the type %s: add it to fieldType if it is not a string", name, kind)
		}
	}
}

// An error of a file is one sentence with the line and the nearest valid name.
func TestServerConfigurationsAreStrict(t *testing.T) {
	for _, tt := range []struct{ text, want string }{
		{"", "is empty"},
		{"- a\n", "line 1: is not a list of fields"},
		{"a: [\n", "yaml"},
		{"kind: ServerConfiguration\n", `in version ""`},
		{serverHead + "kind: ServerConfiguration\n", "line 3: field kind is there twice"},
		{serverHead + "apiVersion: gatehouse.dev/v1\n", "line 3: field apiVersion is there twice"},
		{serverHead + "---\n" + serverHead + "securePort: 1\n", "line 3: is a second document"},
		{serverHead + "---\n\t", "line 4"},
		{"apiVersion: gatehouse.dev/v1\nkind: ServerConfiguration\n", `in version "gatehouse.dev/v1"`},
		{"apiVersion: gatehouse.dev/v1alpha1\nkind: Configuration\n", `is of kind "Configuration"`},
		{serverHead + "securPort: 1\n", "line 3: unknown field securPort (did you mean securePort?)"},
		{serverHead + "secure-port: 1\n", "line 3: unknown field secure-port (did you mean securePort?)"},
		{serverHead + "test: true\n", "unknown field test"},
		{serverHead + "config: x\n", "unknown field config"},
		{serverHead + "securePort: 1\nsecurePort: 2\n", "line 4: field securePort is there twice"},
		{serverHead + "securePort: \"1\"\n", "line 3: field securePort: must be an integer"},
		{serverHead + "securePort: 99999999999999999999\n", "line 3: field securePort: "},
		{serverHead + "allowPrivileged: maybe\n", "field allowPrivileged: must be true or false"},
		{serverHead + "dataDir: [a]\n", "field dataDir: must be a string"},
		{serverHead + "dataDir:\n", "field dataDir: must be a string"},
		{serverHead + "etcdServers: https://a\n", "field etcdServers: must be a list"},
		{serverHead + "etcdServers: [{a: b}]\n", "field etcdServers: must be a list of strings"},
		{serverHead + "etcdQuota: much\n", `field etcdQuota: "much" is not a size`},
		{serverHead + "initializerTimeout: soon\n", "field initializerTimeout: "},
		{serverHead + "oidcRequiredClaim: [a]\n", "field oidcRequiredClaim: must be an object"},
		{serverHead + "securePort: 70000\n", "--secure-port 70000 is not a port"},
	} {
		file := filepath.Join(t.TempDir(), "server.yaml")
		if err := os.WriteFile(file, []byte(tt.text), 0o644); err != nil {
			t.Fatal(err)
		}
		out, err := printedConfig(t, "--config", file)
		if err == nil || !strings.Contains(err.Error(), tt.want) || command.ExitCode(err) != command.ExitUsage || out != "" {
			t.Errorf("%q: got %v, want %q", tt.text, err, tt.want)
		}
	}
	if _, err := printedConfig(t, "--config", "/dev/zero"); err == nil || !strings.Contains(err.Error(), "is a device") {
		t.Errorf("a device: %v", err)
	}
}

// The page and the schema of the configuration have every field.
func TestTheServerConfigurationIsDocumented(t *testing.T) {
	t.Setenv(command.DataDirVariable, "")
	var page strings.Builder
	page.WriteString("# The configuration of a server\n\n<!-- Code generated by go test ./internal/commands/cli/serving -update; DO NOT EDIT. -->\n\n" +
		"`gatehouse serve --config FILE` reads the values of flags from a file. A flag on the command line wins. An unknown field\n" +
		"is an error, and so is a value of another type. Paths are relative to the working directory, as in\n" +
		"flags. `gatehouse serve --print-config` checks the flags and the file, and prints the result as such a file.\n\n" +
		"Editors complete the file and check it with [its schema](server.schema.json):\n\n```yaml\n" +
		"# yaml-language-server: $schema=https://raw.githubusercontent.com/gatehouse-dev/gatehouse/main/docs/reference/server.schema.json\n" + serverExample + "```\n\n" +
		"The fields are the flags of [gatehouse serve](commands.md#gatehouse-serve), which explains them:\n\n| field | type | flag |\n|---|---|---|\n")
	properties := map[string]any{
		"apiVersion": map[string]any{"const": command.ConfigVersion}, "kind": map[string]any{"const": serverConfigurationKind},
	}
	byField, names := configurable(NewServe(command.Streams{}).Flags())
	for _, name := range names {
		f := byField[name]
		_, usage := pflag.UnquoteUsage(f)
		fmt.Fprintf(&page, "| `%s` | %s | `--%s` |\n", name, fieldType(f), f.Name)
		properties[name] = withType(fieldType(f), map[string]any{"description": usage})
	}
	schema, err := json.MarshalIndent(map[string]any{
		"$schema": "http://json-schema.org/draft-07/schema#", "title": "Configuration of gatehouse serve", "type": "object",
		"additionalProperties": false, "required": []string{"apiVersion", "kind"}, "properties": properties,
	}, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"server.md": page.String(), "server.schema.json": string(schema) + "\n"} {
		file := filepath.Join("..", "..", "..", "..", "docs", "reference", name)
		if *update {
			if err := os.WriteFile(file, []byte(want), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		got, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(got), want); diff != "" {
			t.Errorf("docs/reference/%s is not up to date; run go test ./internal/commands/cli/serving -update (-file +code):\n%s", name, diff)
		}
	}
	checkSchema(t, schema)
}

const serverExample = `apiVersion: gatehouse.dev/v1alpha1
kind: ServerConfiguration
dataDir: /var/lib/gatehouse
bindAddress: 0.0.0.0
backupSchedule: 0 */6 * * *
backupDir: /mnt/backups
controllers: ["*", -job]
`

// withType adds the type of a field to its schema.
func withType(kind string, one map[string]any) map[string]any {
	one["type"] = kind
	switch kind {
	case fieldText:
		one["type"] = []string{"string", "integer"}
	case fieldList:
		one["items"] = map[string]any{"type": []string{"string", "number", "boolean"}}
	case fieldObject:
		one["additionalProperties"] = map[string]any{"type": "string"}
	}
	return one
}

// checkSchema verifies that the schema accepts the example and the server's own output, and rejects files that
// the server rejects.
func checkSchema(t *testing.T, text []byte) {
	t.Helper()
	document, err := jsonschema.UnmarshalJSON(strings.NewReader(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	compiler := jsonschema.NewCompiler()
	if err := compiler.AddResource("server.json", document); err != nil {
		t.Fatal(err)
	}
	schema, err := compiler.Compile("server.json")
	if err != nil {
		t.Fatal(err)
	}
	everything, err := printedConfig(t)
	if err != nil {
		t.Fatal(err)
	}
	for text, good := range map[string]bool{
		serverExample: true, everything: true,
		serverHead + "securPort: 1\n": false, serverHead + "securePort: [1]\n": false, "kind: ServerConfiguration\n": false,
	} {
		var object map[string]any
		if err := yaml.Unmarshal([]byte(text), &object); err != nil {
			t.Fatal(err)
		}
		if err := schema.Validate(object); (err == nil) != good {
			t.Errorf("%s\n%v", text, err)
		}
		file := filepath.Join(t.TempDir(), "server.yaml")
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := printedConfig(t, "--config", file); (err == nil) != good {
			t.Errorf("%v\n%v", slices.Sorted(maps.Keys(object)), err)
		}
	}
}
