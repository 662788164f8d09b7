// Command manifestsdiff compares how gatehouse and kube-apiserver handle manifest files (staticManifestsDir,
// KEP-5793): the message with which an invalid file stops the start, and the answers to requests that valid files
// apply to. It exits with 1 if they differ.
//
//	go run ./cmd/manifestsdiff -binaries DIR
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"

	"k8s.io/client-go/rest"

	"github.com/gatehouse-dev/gatehouse/bench/internal/peer"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	binaries := flag.String("binaries", "", "`directory` of the programs (default: in the user's cache)")
	flag.Parse()
	if err := run(ctx, *binaries); err != nil {
		fmt.Fprintln(os.Stderr, "manifestsdiff:", err)
		os.Exit(1)
	}
}

var kinds = []peer.Kind{peer.KubeAPIServer, peer.Gatehouse}

func run(ctx context.Context, binaries string) error {
	b, err := peer.Build(ctx, ".", binaries)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "manifestsdiff-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	different := 0
	for i, c := range bad {
		same, err := c.compare(ctx, b, filepath.Join(dir, fmt.Sprint("bad-", i)))
		if err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
		if !same {
			different++
		}
	}
	n, err := compareAnswers(ctx, b, filepath.Join(dir, "good"))
	if err != nil {
		return err
	}
	if different += n; different > 0 {
		return fmt.Errorf("%d cases differ", different)
	}
	fmt.Printf("%d bad sets and %d requests: no difference\n", len(bad), len(requests))
	return nil
}

// report prints the outcome of a case.
func report(name, kube, gatehouse string) bool {
	if kube == gatehouse {
		fmt.Printf("ok    %s: %s\n", name, kube)
		return true
	}
	fmt.Printf("DIFF  %s\n  kube-apiserver: %s\n  gatehouse:      %s\n", name, kube, gatehouse)
	return false
}

const (
	group   = "apiVersion: admissionregistration.k8s.io/v1\n"
	policy  = group + "kind: ValidatingAdmissionPolicy\nmetadata: {name: a.static.k8s.io}\nspec:\n  matchConstraints: {resourceRules: [{apiGroups: [\"\"], apiVersions: [v1], operations: [CREATE], resources: [configmaps]}]}\n  validations: [{expression: \"object.metadata.name != 'denied'\", message: not this name}]\n"
	binding = group + "kind: ValidatingAdmissionPolicyBinding\nmetadata: {name: a.static.k8s.io}\nspec: {policyName: a.static.k8s.io, validationActions: [Deny]}\n"
	hooks   = group + "kind: ValidatingWebhookConfiguration\nmetadata: {name: h.static.k8s.io}\nwebhooks:\n- name: h.example.com\n  sideEffects: None\n  admissionReviewVersions: [v1]\n  clientConfig: {url: \"https://127.0.0.1:1/\"}\n  rules: [{apiGroups: [\"\"], apiVersions: [v1], operations: [CREATE], resources: [endpoints]}]\n"
	label   = group + "kind: MutatingAdmissionPolicy\nmetadata: {name: l.static.k8s.io}\nspec:\n  matchConstraints: {resourceRules: [{apiGroups: [\"\"], apiVersions: [v1], operations: [CREATE], resources: [configmaps]}]}\n  reinvocationPolicy: Never\n  mutations: [{patchType: ApplyConfiguration, applyConfiguration: {expression: \"Object{metadata: Object.metadata{labels: {'set': 'static'}}}\"}}]\n---\n" +
		group + "kind: MutatingAdmissionPolicyBinding\nmetadata: {name: l.static.k8s.io}\nspec: {policyName: l.static.k8s.io}\n"
	protect = group + "kind: ValidatingAdmissionPolicy\nmetadata: {name: p.static.k8s.io}\nspec:\n  matchConstraints: {resourceRules: [{apiGroups: [admissionregistration.k8s.io], apiVersions: [\"*\"], operations: [DELETE], resources: [\"*\"]}]}\n  validations: [{expression: \"oldObject.metadata.name != 'keep'\", message: it is protected}]\n---\n" +
		group + "kind: ValidatingAdmissionPolicyBinding\nmetadata: {name: p.static.k8s.io}\nspec: {policyName: p.static.k8s.io, validationActions: [Deny]}\n"

	validating = "ValidatingAdmissionPolicy"
	mutating   = "MutatingAdmissionPolicy"
	webhooks   = "ValidatingAdmissionWebhook"
)

var configurations = map[string]string{
	validating: "ValidatingAdmissionPolicyConfiguration", mutating: "MutatingAdmissionPolicyConfiguration", webhooks: "WebhookAdmissionConfiguration",
}

// badSet is a directory of manifests that prevents the start.
type badSet struct {
	name, plugin, content string
	// kind is the kind of the plugin's configuration, and dir the directory; empty for the correct ones.
	kind, dir string
}

var bad = []badSet{
	{name: "an older version", plugin: webhooks, content: strings.Replace(hooks, "/v1\n", "/v1beta1\n", 1)},
	{name: "a kind of another plugin", plugin: validating, content: label},
	{name: "a kind that is not a registration", plugin: validating, content: "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a.static.k8s.io}\n"},
	{name: "an unknown field", plugin: validating, content: strings.Replace(policy, "  validations:", "  validationz: []\n  validations:", 1)},
	{name: "a repeated field", plugin: validating, content: policy + "spec: {}\n"},
	{name: "an expression of another type", plugin: validating, content: strings.Replace(policy, "object.metadata.name != 'denied'", "1", 1)},
	{name: "another name", plugin: validating, content: strings.Replace(policy, "a.static.k8s.io", "a.example.com", 1)},
	{name: "a name twice", plugin: validating, content: policy + "---\n" + policy},
	{name: "paramKind", plugin: validating, content: strings.Replace(policy, "spec:\n", "spec:\n  paramKind: {apiVersion: v1, kind: ConfigMap}\n", 1)},
	{name: "paramRef", plugin: validating, content: policy + "---\n" + strings.Replace(binding, "policyName", "paramRef: {name: p, parameterNotFoundAction: Deny}, policyName", 1)},
	{name: "a binding to a policy of the API", plugin: validating, content: policy + "---\n" + strings.Replace(binding, "policyName: a.static.k8s.io", "policyName: a.example.com", 1)},
	{name: "a binding to nothing", plugin: validating, content: binding},
	{name: "a service", plugin: webhooks, content: strings.Replace(hooks, `{url: "https://127.0.0.1:1/"}`, "{service: {namespace: ns, name: svc}}", 1)},
	{name: "a webhook that the API refuses", plugin: webhooks, content: strings.Replace(hooks, "sideEffects: None", "sideEffects: Some", 1)},
	{name: "no YAML", plugin: validating, content: "a: ["},
	{name: "comments only", plugin: validating, content: "# a comment\n---\n" + policy},
	{name: "a relative directory", plugin: validating, dir: "manifests"},
	{name: "a directory that is not there", plugin: validating, dir: "/nonexistent/manifests"},
	{name: "a directory that is a file", plugin: validating, dir: "/dev/null"},
}

// start starts a server with manifest directories for plugins.
func start(ctx context.Context, b peer.Binaries, kind peer.Kind, dir, config string) (*peer.Server, error) {
	return peer.Start(ctx, b, kind, dir, "--admission-control-config-file="+config)
}

// configure writes an AdmissionConfiguration.
func configure(dir string, dirs map[string]string) (string, error) {
	var plugins []any
	for plugin, manifests := range dirs {
		plugins = append(plugins, map[string]any{"name": plugin, "configuration": map[string]any{
			"apiVersion": "apiserver.config.k8s.io/v1", "kind": configurations[plugin], "staticManifestsDir": manifests,
		}})
	}
	data, err := json.Marshal(map[string]any{"apiVersion": "apiserver.config.k8s.io/v1", "kind": "AdmissionConfiguration", "plugins": plugins})
	if err != nil {
		return "", err
	}
	file := filepath.Join(dir, "admission.yaml")
	return file, os.WriteFile(file, data, 0o600)
}

// told matches the message about a bad set in the output of a server that does not start.
var told = regexp.MustCompile(`(failed to load static \w+ manifests from|staticManifestsDir: Invalid value).*`)

// scheme matches the source location of upstream's scheme, which is a part of its message.
var scheme = regexp.MustCompile(`in scheme \\*"[^"]*"`)

func (c badSet) compare(ctx context.Context, b peer.Binaries, dir string) (same bool, err error) {
	manifests := filepath.Join(dir, "manifests")
	if err := os.MkdirAll(manifests, 0o700); err != nil {
		return false, err
	}
	if err := os.WriteFile(filepath.Join(manifests, "a.yaml"), []byte(c.content), 0o600); err != nil {
		return false, err
	}
	if c.dir != "" {
		manifests = c.dir
	}
	config, err := configure(dir, map[string]string{c.plugin: manifests})
	if err != nil {
		return false, err
	}
	messages := make([]string, len(kinds))
	for i, kind := range kinds {
		s, err := start(ctx, b, kind, filepath.Join(dir, fmt.Sprint(i)), config)
		if err == nil {
			messages[i] = "it starts"
			if err := s.Stop(); err != nil {
				return false, err
			}
			continue
		}
		// The log quotes the message once or twice.
		text := strings.NewReplacer(`\\\"`, `"`, `\"`, `"`, `\\n`, " ", `\n`, " ", `\t`, " ", "\n", " ").Replace(err.Error())
		if messages[i] = strings.TrimRight(strings.Join(strings.Fields(told.FindString(text)), " "), `"> `); messages[i] == "" {
			return false, fmt.Errorf("%s says something else: %w", kind, err)
		}
		messages[i] = scheme.ReplaceAllString(messages[i], "in scheme S")
	}
	return report(c.name, strings.ReplaceAll(messages[0], dir, "DIR"), strings.ReplaceAll(messages[1], dir, "DIR")), nil
}

// request is a request that is sent to both servers.
type request struct {
	name, method, path, body string
}

const (
	registrations = "/apis/admissionregistration.k8s.io/v1/"
	configMaps    = "/api/v1/namespaces/default/configmaps"
)

func configMap(name string) string { return `{"metadata":{"name":"` + name + `"}}` }

// apiPolicy returns an API policy that matches nothing.
func apiPolicy(name string) string {
	return `{"metadata":{"name":"` + name + `"},"spec":{"matchConstraints":{"resourceRules":[{"apiGroups":["none.example.com"],"apiVersions":["v1"],"operations":["CREATE"],"resources":["nothings"]}]},"validations":[{"expression":"true"}]}}`
}

var requests = []request{
	{name: "a static policy denies", method: "POST", path: configMaps, body: configMap("denied")},
	{name: "a static mutating policy changes", method: "POST", path: configMaps, body: configMap("changed")},
	{name: "static policies are not in the API", method: "GET", path: registrations + "validatingadmissionpolicies/a.static.k8s.io"},
	{name: "none is listed", method: "GET", path: registrations + "mutatingadmissionpolicies"},
	{name: "their names are reserved for policies", method: "POST", path: registrations + "validatingadmissionpolicies", body: apiPolicy("a.static.k8s.io")},
	{name: "for bindings", method: "POST", path: registrations + "validatingadmissionpolicybindings", body: `{"metadata":{"name":"a.static.k8s.io"},"spec":{"policyName":"x","validationActions":["Deny"]}}`},
	{name: "for webhooks", method: "POST", path: registrations + "validatingwebhookconfigurations", body: configMap("a.static.k8s.io")},
	{name: "a static webhook that cannot be reached", method: "POST", path: "/api/v1/namespaces/default/endpoints", body: configMap("a")},
	{name: "a policy to keep", method: "POST", path: registrations + "validatingadmissionpolicies", body: apiPolicy("keep")},
	{name: "a static policy protects it", method: "DELETE", path: registrations + "validatingadmissionpolicies/keep"},
	{name: "a policy to delete", method: "POST", path: registrations + "validatingadmissionpolicies", body: apiPolicy("other")},
	{name: "it does not protect that one", method: "DELETE", path: registrations + "validatingadmissionpolicies/other"},
	{name: "a configuration to keep", method: "POST", path: registrations + "validatingwebhookconfigurations", body: configMap("keep")},
	{name: "a static policy protects webhooks", method: "DELETE", path: registrations + "validatingwebhookconfigurations/keep"},
	{name: "reviews are exempt", method: "POST", path: "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", body: `{"apiVersion":"authorization.k8s.io/v1","kind":"SelfSubjectAccessReview","spec":{"nonResourceAttributes":{"path":"/","verb":"get"}}}`},
}

func compareAnswers(ctx context.Context, b peer.Binaries, dir string) (different int, err error) {
	dirs := map[string]string{}
	for plugin, content := range map[string]string{validating: policy + "---\n" + binding + "---\n" + protect, mutating: label, webhooks: hooks} {
		dirs[plugin] = filepath.Join(dir, plugin)
		if err := os.MkdirAll(dirs[plugin], 0o700); err != nil {
			return 0, err
		}
		if err := os.WriteFile(filepath.Join(dirs[plugin], "a.yaml"), []byte(content), 0o600); err != nil {
			return 0, err
		}
	}
	config, err := configure(dir, dirs)
	if err != nil {
		return 0, err
	}
	servers := make([]*peer.Server, len(kinds))
	for i, kind := range kinds {
		if servers[i], err = start(ctx, b, kind, filepath.Join(dir, fmt.Sprint(i)), config); err != nil {
			return 0, err
		}
		defer func() { err = errors.Join(err, servers[i].Stop()) }()
	}
	for _, r := range requests {
		answers := make([]string, len(servers))
		for i, s := range servers {
			if answers[i], err = ask(ctx, s, r); err != nil {
				return 0, err
			}
		}
		if !report(r.name, answers[0], answers[1]) {
			different++
		}
	}
	metrics := make([]string, len(servers))
	for i, s := range servers {
		if metrics[i], err = reloadMetrics(ctx, s); err != nil {
			return 0, err
		}
	}
	if !report("metrics", metrics[0], metrics[1]) {
		different++
	}
	return different, nil
}

func send(ctx context.Context, s *peer.Server, method, path, body string) (*http.Response, []byte, error) {
	client, err := rest.HTTPClientFor(s.Config)
	if err != nil {
		return nil, nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, s.Config.Host+path, bytes.NewReader([]byte(body)))
	if err != nil {
		return nil, nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Authorization", "Bearer "+peer.Token)
	resp, err := client.Do(req)
	if err != nil {
		return nil, nil, err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	return resp, data, err
}

// more matches the text that gatehouse appends to the message of a webhook that cannot be called.
var more = regexp.MustCompile(`; \w+WebhookConfiguration "[^"]*", webhook \d+; failurePolicy is .*$`)

// ask returns the parts of an answer that must be equal: code, reason, message, causes, labels and warnings.
func ask(ctx context.Context, s *peer.Server, r request) (string, error) {
	resp, data, err := send(ctx, s, r.method, r.path, r.body)
	if err != nil {
		return "", err
	}
	var content struct {
		Kind, Reason, Message string
		Metadata              struct{ Labels map[string]string }
		Items                 []any
		Details               struct {
			Causes []struct{ Reason, Message, Field string }
		}
	}
	if err := json.Unmarshal(data, &content); err != nil {
		return "", fmt.Errorf("%s %s: %w in %s", r.method, r.path, err, data)
	}
	message := more.ReplaceAllString(content.Message, "")
	for i := range content.Details.Causes {
		content.Details.Causes[i].Message = more.ReplaceAllString(content.Details.Causes[i].Message, "")
	}
	return fmt.Sprintf("%d %s %s %q causes %+v labels %v items %d warnings %q", resp.StatusCode, content.Kind, content.Reason, message,
		content.Details.Causes, content.Metadata.Labels, len(content.Items), resp.Header.Values("Warning")), nil
}

// reloadMetrics returns the metrics of manifests, without values that differ between two servers.
func reloadMetrics(ctx context.Context, s *peer.Server) (string, error) {
	_, data, err := send(ctx, s, http.MethodGet, "/metrics", "")
	if err != nil {
		return "", err
	}
	var series []string
	for line := range strings.Lines(string(data)) {
		if !strings.HasPrefix(line, "apiserver_manifest_admission_config_controller_") {
			continue
		}
		line = regexp.MustCompile(`apiserver_id_hash="sha256:[0-9a-f]{64}"`).ReplaceAllString(strings.TrimSpace(line), `apiserver_id_hash="H"`)
		if strings.Contains(line, "timestamp") {
			line, _, _ = strings.Cut(line, "} ")
		}
		series = append(series, line)
	}
	slices.Sort(series)
	return strings.Join(series, " "), nil
}
