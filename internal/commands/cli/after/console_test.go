package after

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/internal/commands/cli/command"
)

// The command prints an address that works, opens it, and ends with its context.
func TestConsole(t *testing.T) {
	cluster := httptest.NewServer(http.NotFoundHandler())
	defer cluster.Close()
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	text := "apiVersion: v1\nkind: Config\ncurrent-context: a\ncontexts: [{name: a, context: {cluster: a, user: a}}]\nusers: [{name: a, user: {}}]\nclusters: [{name: a, cluster: {server: '" + cluster.URL + "'}}]\n"
	if err := os.WriteFile(kubeconfig, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	var out bytes.Buffer
	opened := ""
	cmd := newConsoleCommand(func(ctx context.Context, o *consoleOptions) error {
		o.open = func(address string) error {
			opened = address
			answer, err := http.Get(address)
			if err != nil {
				t.Error(err)
				return err
			}
			defer answer.Body.Close()
			if body, _ := io.ReadAll(answer.Body); answer.StatusCode != http.StatusOK || !strings.Contains(string(body), "app.js") {
				t.Errorf("the page has status %d: %s", answer.StatusCode, body)
			}
			stop()
			return nil
		}
		return o.run(ctx, command.Streams{Out: &out, Err: &out})
	})
	cmd.SetArgs([]string{"--kubeconfig", kubeconfig})
	if err := cmd.ExecuteContext(ctx); err != nil {
		t.Fatal(err)
	}
	if printed := regexp.MustCompile(`http://127\.0\.0\.1:\d+/console/#token=[A-Z2-7]{26}`).FindString(out.String()); printed == "" || printed != opened {
		t.Errorf("printed %q, opened %q", out.String(), opened)
	}
}
