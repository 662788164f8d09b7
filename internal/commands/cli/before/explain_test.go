package before

import (
	"context"
	"errors"
	"io"
	"reflect"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/internal/commands/cli/command"
)

func TestExplainParses(t *testing.T) {
	for _, c := range []struct {
		args []string
		want explainOptions
		err  string
	}{
		{args: []string{"-f", "a.yaml"}, want: explainOptions{file: "a.yaml", operation: "CREATE", output: "text", expand: true}},
		{args: []string{"pod/web"}, want: explainOptions{object: "pod/web", operation: "UPDATE", output: "text", expand: true}},
		{args: []string{"pod/web", "--operation", "delete"}, want: explainOptions{object: "pod/web", operation: "DELETE", output: "text", expand: true}},
		{
			args: []string{"-f", "-", "--operation", "UPDATE", "--old", "b.yaml", "--subresource", "status", "--dry-run", "--all", "-o", "json"},
			want: explainOptions{file: "-", operation: "UPDATE", old: "b.yaml", subresource: "status", dryRun: true, all: true, output: "json", expand: true},
		},
		{
			args: []string{"-f", "a", "--as", "u", "--as-group", "g", "--as-group", "h", "--registrations", "x", "--registrations", "y"},
			want: explainOptions{file: "a", operation: "CREATE", as: "u", asGroups: []string{"g", "h"}, registrations: []string{"x", "y"}, output: "text", expand: true},
		},
		{
			args: []string{"pod/web", "--operation", "CONNECT", "--subresource", "exec"},
			want: explainOptions{object: "pod/web", operation: "CONNECT", subresource: "exec", output: "text", expand: true},
		},
		{args: []string{"pod/web", "--subresource", "exec"}, want: explainOptions{object: "pod/web", operation: "CONNECT", subresource: "exec", output: "text", expand: true}},
		{args: []string{"-f", "a.yaml", "--subresource", "attach"}, want: explainOptions{file: "a.yaml", operation: "CONNECT", subresource: "attach", output: "text", expand: true}},
		{args: []string{"-f", "a.yaml", "--subresource", "eviction"}, want: explainOptions{file: "a.yaml", operation: "CREATE", subresource: "eviction", output: "text", expand: true}},
		{args: []string{"-f", "a.yaml", "--subresource", "scale"}, want: explainOptions{file: "a.yaml", operation: "UPDATE", subresource: "scale", output: "text", expand: true}},
		{args: []string{"pod/web", "--subresource", "status"}, want: explainOptions{object: "pod/web", operation: "UPDATE", subresource: "status", output: "text", expand: true}},
		{args: []string{"pod/web", "--subresource", "eviction"}, err: "a CREATE needs the object"},
		// The path of an existing file is a file, also without -f.
		{args: []string{"explain.go"}, want: explainOptions{file: "explain.go", operation: "CREATE", output: "text", expand: true}},
		{args: []string{"./explain.go"}, want: explainOptions{file: "./explain.go", operation: "CREATE", output: "text", expand: true}},
		{args: []string{"."}, want: explainOptions{file: ".", operation: "CREATE", output: "text", expand: true}},
		{args: []string{"-"}, want: explainOptions{file: "-", operation: "CREATE", output: "text", expand: true}},
		{args: []string{"../before"}, want: explainOptions{file: "../before", operation: "CREATE", output: "text", expand: true}},
		{args: []string{"pod.yaml"}, err: `"pod.yaml" is not of the form KIND/NAME, and there is no file of this name`},
		{args: []string{}, err: "name a request: -f FILE or KIND/NAME"},
		{args: []string{"pod"}, err: `"pod" is not of the form KIND/NAME`},
		{args: []string{"pod/"}, err: "not of the form KIND/NAME"},
		{args: []string{"pod/a/b"}, err: "not of the form KIND/NAME"},
		{args: []string{"pod/a", "pod/b"}, err: `unexpected argument "pod/b"`},
		{args: []string{"-f", "a", "--operation", "PATCH"}, err: `--operation "PATCH" is not one of CREATE, UPDATE, DELETE, CONNECT`},
		{args: []string{"-f", "a", "-o", "wide"}, err: `--output "wide" is not one of`},
		{args: []string{"pod/a", "--operation", "CREATE"}, err: "a CREATE needs the object"},
		{args: []string{"pod/a", "--operation", "CONNECT"}, err: "a CONNECT needs --subresource"},
		{args: []string{"-f", "a", "--old", "b"}, err: "--old is for UPDATE and DELETE, not for CREATE"},
		{args: []string{"-f", "a", "--as-group", "g"}, err: "--as-group needs --as"},
		{args: []string{"-f", "a", "--registrations", "r", "--kubeconfig", "k"}, err: "leave out --kubeconfig"},
		{args: []string{"-f", "a", "--with", "p", "--with", "q"}, want: explainOptions{file: "a", operation: "CREATE", with: []string{"p", "q"}, output: "text", expand: true}},
		{args: []string{"-f", "a", "--registrations", "r", "--with", "p"}, err: "name all files with --registrations"},
	} {
		var got *explainOptions
		cmd := newExplainCommand(func(_ context.Context, o *explainOptions) error { got = o; return nil })
		cmd.SetArgs(c.args)
		cmd.SetOut(io.Discard)
		cmd.SetErr(io.Discard)
		cmd.SilenceErrors, cmd.SilenceUsage = true, true
		err := cmd.Execute()
		if c.err != "" {
			if err == nil || !strings.Contains(err.Error(), c.err) || !errors.As(err, new(command.UsageError)) {
				t.Errorf("%q: %v, want an error about %q", c.args, err, c.err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%q: %v", c.args, err)
			continue
		}
		got.cluster, got.addresses = nil, nil
		if !reflect.DeepEqual(*got, c.want) {
			t.Errorf("%q: %+v, want %+v", c.args, *got, c.want)
		}
	}
}
