package reporting

import (
	"bufio"
	"fmt"
	"maps"
	"net/http"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/test/harness"
	"github.com/gatehouse-dev/gatehouse/test/speed"
)

// evil is text that, unescaped, prints extra lines, moves the cursor and sends commands to a CI host. No
// output line may begin with pwned.
const evil = "evil\n::error::pwned\npwned\x1b[2K\u202e\tpwned\fpwned\r##[error]pwned"

// acting returns a line of the output in which the text of others has an effect, or looks like the program's
// own text.
func acting(text string) string {
	for line := range strings.Lines(text) {
		if strings.ContainsAny(line, "\x1b\u202e\r\f") || strings.HasPrefix(line, "pwned") || strings.HasPrefix(strings.TrimSpace(line), "::") || strings.Contains(line, "##[") {
			return line
		}
	}
	return ""
}

// TestTextOfOthersStaysText uses names, users, webhook answers and addresses with terminal escapes. Each
// command shows them.
func TestTextOfOthersStaysText(t *testing.T) {
	t.Parallel()
	// Initializers must still be pending at the end.
	s := harness.Start(t, "--initializer-timeout", "1h", "--admission-consistency", "strict", "--token-auth-file",
		writeFile(t, t.TempDir()+"/tokens.csv", `evil-token,"`+evil+`",1,system:masters`+"\n"))
	h := s.HTTP(t, s.WithToken("evil-token"))
	hook := harness.NewWebhookServer(t, nil).Hook("/judge", harness.Respond(map[string]any{"allowed": true, "patchType": "JSONPatch",
		"patch":    []byte(asJSON([]any{map[string]any{"op": "add", "path": "/metadata/annotations", "value": map[string]any{"noted": evil}}})),
		"warnings": []any{evil}, "auditAnnotations": map[string]any{"saw": evil}}))
	const roles = "/apis/rbac.authorization.k8s.io/v1/clusterroles"
	register(t, s, "v1", mutating, webhook("evil", "default", hook, rules(rule("CREATE", "rbac.authorization.k8s.io/v1/clusterroles"))))
	role := func(name string, more map[string]any) string {
		metadata := map[string]any{"name": name}
		for key, value := range more {
			metadata[key] = value
		}
		return asJSON(map[string]any{"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": metadata})
	}
	h.Must(http.StatusCreated, "POST", roles, role(evil, nil))
	h.Must(http.StatusAccepted, "POST", roles+including, role(evil+" waits", map[string]any{"initializers": map[string]any{"pending": []any{map[string]any{"name": "a.example.com"}}}}))
	hook.Answer(harness.Deny(map[string]any{"code": 403, "message": evil}))
	denied := h.Must(http.StatusForbidden, "POST", roles, role(evil+" is denied", nil))
	file := writeFile(t, t.TempDir()+"/role.json", role(evil, nil))
	registrations := writeFile(t, t.TempDir()+"/registrations.json", asJSON(map[string]any{
		"apiVersion": "admissionregistration.k8s.io/v1", "kind": validating, "metadata": map[string]any{"name": "evil"}, "webhooks": []any{map[string]any{
			"name": "evil.example.com", "sideEffects": "None", "admissionReviewVersions": []any{"v1"},
			"clientConfig":    map[string]any{"url": "https://evil.example.com"},
			"rules":           []any{rule("CREATE", "rbac.authorization.k8s.io/v1/clusterroles")},
			"matchConditions": []any{map[string]any{"name": "evil", "expression": "object.metadata.name == " + asJSON(evil)}},
		}},
	}))

	commands := map[string][]string{
		"explain":                 {"explain", "-f", file, "--as", evil},
		"explain with files":      {"explain", "-f", file, "--as", evil, "--registrations", registrations},
		"blame":                   {"blame", "clusterrole/" + evil},
		"trace list":              {"trace", "-A"},
		"trace slowest":           {"trace", "-A", "--slowest", "500"},
		"trace":                   {"trace", denied.Header.Get("Gatehouse-Trace")},
		"initializers list":       {"initializers", "list", "clusterroles", "-A"},
		"initializers complete":   {"initializers", "complete", "clusterrole/" + evil + " waits", evil},
		"wait-in-force":           {"wait-in-force", "validating/" + evil, "--timeout", "5s"},
		"wait-in-force of a hook": {"wait-in-force", evil + "/evil"},
		"lint":                    {"lint", evil},
		"check":                   {"check", evil},
		"an unknown command":      {evil},
		"an unknown flag":         {"serve", "--" + evil},
	}
	for _, name := range speed.Some(t, 3, slices.Sorted(maps.Keys(commands))) {
		args := commands[name]
		harness.Eventually(t, name, func() error {
			given := args
			if args[0] != "lint" && args[0] != "check" && args[0] != evil && args[0] != "serve" && name != "explain with files" {
				given = append(given, "--kubeconfig", s.Kubeconfig)
			}
			r := harness.Run(t, given...)
			if bad := acting(r.Out + r.Err); bad != "" {
				t.Errorf("%s prints %q in\n%s", name, bad, r.Out+r.Err)
				return nil
			}
			if !strings.Contains(r.Out+r.Err, `evil\n`) && !strings.Contains(r.Out+r.Err, "evil\n") {
				// A trace is stored shortly after the response.
				return fmt.Errorf("the text is missing in %s%s", r.Out, r.Err)
			}
			return nil
		})
	}

	following := map[string][]string{
		"initializers watch": {"initializers", "watch", "clusterroles", "-A"},
		"trace --follow":     {"trace", "-A", "--follow"},
	}
	for _, name := range speed.Some(t, 1, slices.Sorted(maps.Keys(following))) {
		args := following[name]
		cmd := exec.CommandContext(harness.Context(t), harness.Binary(t), append(args, "--kubeconfig", s.Kubeconfig)...)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		seen := make(chan string, 1)
		go func() {
			lines := bufio.NewScanner(out)
			for lines.Scan() {
				if text := lines.Text(); strings.Contains(text, "evil") {
					// Following characters could belong to the name.
					seen <- text
					return
				}
			}
			seen <- ""
		}()
		var line string
		harness.Eventually(t, name, func() error {
			h.Do("POST", roles, role(evil+" is denied", nil))
			select {
			case line = <-seen:
				return nil
			default:
				return fmt.Errorf("no line yet")
			}
		})
		if bad := acting(line); bad != "" || !strings.Contains(line, `evil\n::error::pwned\npwned\x1b[2K\u202e\tpwned\fpwned\r`) {
			t.Errorf("%s prints %q", name, line)
		}
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
}
