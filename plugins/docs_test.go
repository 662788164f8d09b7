package plugins_test

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/plugins"
)

var update = flag.Bool("update", false, "rewrite the table of docs/plugins.md")

// The document has the same table as the code.
func TestTheDocumentHasEveryPlugin(t *testing.T) {
	const file, begin, end = "../docs/plugins.md", "<!-- BEGIN plugins: go test ./plugins -run Document -update -->\n", "<!-- END plugins -->\n"
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(data), begin)
	_, after, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		t.Fatalf("%s has no place for the table", file)
	}
	want := before + begin + table() + end + after
	if string(data) == want {
		return
	}
	if !*update {
		t.Fatalf("%s is not what the table of plugins says: run go test ./plugins -run Document -update", file)
	}
	if err := os.WriteFile(file, []byte(want), 0o644); err != nil {
		t.Fatal(err)
	}
}

// table returns the plugins in Markdown, in their order.
func table() string {
	var b strings.Builder
	b.WriteString("| plugin | default | task | needs | as a webhook |\n|---|---|---|---|---|\n")
	for _, p := range plugins.All() {
		on, webhook := "off", "yes"
		if p.Default {
			on = "on"
		}
		if p.NoWebhook != "" {
			webhook = "no: " + p.NoWebhook
		}
		var needs []string
		for _, r := range p.Reads {
			needs = append(needs, r.Resource)
		}
		if p.Asks {
			needs = append(needs, "the authorizer")
		}
		switch {
		case p.NeedsConfiguration:
			needs = append(needs, "a configuration")
		case p.TakesConfiguration:
			needs = append(needs, "a configuration, if you like")
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s |\n", p.Name, on, p.Does, strings.Join(needs, ", "), webhook)
	}
	return b.String()
}
