package cli

import (
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// The contents and names of files cannot control a terminal or the host of a job. JSON and SARIF keep them
// unchanged.
func TestOutputCannotAct(t *testing.T) {
	const name = "evil\x1b[2K\u202e\n::error::pwned\n##[error]x"
	dir := t.TempDir()
	quoted, err := json.Marshal(name)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "a\x1b[31m\n::warning::b.yaml")
	content := `{"apiVersion":"admissionregistration.k8s.io/v1","kind":"ValidatingWebhookConfiguration","metadata":{"name":` + string(quoted) + `},"webhooks":[{"name":` + string(quoted) + `,"rules":[]}]}`
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, command := range []string{"lint", "check"} {
		out, problems, _ := execution(t.Context(), "", command, dir)
		if !strings.Contains(out, "evil") {
			t.Errorf("%s does not show the name: %s%s", command, out, problems)
		}
		for _, bad := range []string{"\x1b", "\u202e", "\n:", "##[", "\n##"} {
			if strings.Contains(out+problems, bad) {
				t.Errorf("%s prints %q: %q", command, bad, out+problems)
			}
		}
		exact, problems, _ := execution(t.Context(), "", command, dir, "-o", "json")
		var report any
		if err := json.Unmarshal([]byte(exact), &report); err != nil || !strings.Contains(exact, "\u202e") {
			t.Errorf("%s -o json is not exact: %v\n%s%s", command, err, exact, problems)
		}
	}
	_, problems, _ := execution(t.Context(), "", "lint", filepath.Join(dir, "none\x1b\n::error::"))
	if strings.ContainsAny(problems, "\x1b") || strings.Contains(problems, "\n::") {
		t.Errorf("an error prints %q", problems)
	}
}

// All output for people goes through terminal.Fprintf, which keeps foreign text on one line. The program's own
// texts may be printed by fmt.
func TestPrintersKeepTextOnItsLine(t *testing.T) {
	// Help is the program's own.
	own := []string{"command/section.go"}
	paths, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	below, err := filepath.Glob("*/*.go")
	if err != nil || len(below) < 20 {
		t.Fatal(below, err)
	}
	for _, path := range slices.Concat(paths, below) {
		if strings.HasSuffix(path, "_test.go") || slices.Contains(own, path) {
			continue
		}
		set := token.NewFileSet()
		file, err := parser.ParseFile(set, path, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			function, ok := call.Fun.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			from, ok := function.X.(*ast.Ident)
			if !ok || from.Name != "fmt" || !strings.HasPrefix(function.Sel.Name, "Fprint") {
				return true
			}
			for _, arg := range call.Args[1:] {
				if _, literal := arg.(*ast.BasicLit); !literal {
					t.Errorf("%s: use terminal.Fprintf for what is not text of the program", set.Position(call.Pos()))
				}
			}
			return true
		})
	}
}
