package manifests

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/test/harness"
	"github.com/gatehouse-dev/gatehouse/test/speed"
)

// commandTime is the time limit of a command in a hostile folder.
const commandTime = 3 * time.Minute

var quoted = regexp.MustCompile("`([a-z-]+)`")

// securityPage returns the commands that SECURITY.md calls safe on untrusted files, and the other commands.
func securityPage(t *testing.T) (safe, others []string) {
	t.Helper()
	page, err := os.ReadFile("../../SECURITY.md")
	if err != nil {
		t.Fatal(err)
	}
	names := func(begin, end string) (list []string) {
		_, text, ok := strings.Cut(string(page), begin)
		text, _, closed := strings.Cut(text, end)
		if !ok || !closed {
			t.Fatalf("SECURITY.md has no text from %q to %q", begin, end)
		}
		for _, m := range quoted.FindAllStringSubmatch(text, -1) {
			list = append(list, m[1])
		}
		return list
	}
	return names("These commands are safe", ". "), append(names("\n| other commands: ", " |"), names("\n| what | because |\n", "\n\n")...)
}

// hostileFolder is an untrusted folder with every kind of file that could start a program, block a command,
// or reach a file or a server outside the folder.
type hostileFolder struct {
	t *testing.T
	// dir is the folder. No command may reach files in outside.
	dir, outside string
	// path is the PATH of commands. The programs in it record their start in the file started.
	path, started string
	server        net.Listener
	connections   atomic.Int32
}

// secret is the content of a file outside the folder.
const secret = "c2VjcmV0LW91dHNpZGU="

func (h *hostileFolder) at(elements ...string) string {
	return filepath.Join(append([]string{h.dir}, elements...)...)
}

func (h *hostileFolder) write(path, text string, mode os.FileMode) {
	h.t.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), mode)); err != nil {
		h.t.Fatal(err)
	}
}

func (h *hostileFolder) pipe(path string) string {
	h.t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		h.t.Fatal(err)
	}
	return pipe(h.t, path)
}

// git runs git as the author of the folder.
func (h *hostileFolder) git(dir string, args ...string) {
	h.t.Helper()
	cmd := exec.Command("git", append([]string{"-C", dir, "-c", "user.name=a", "-c", "user.email=a@example.com", "-c", "protocol.file.allow=always"}, args...)...)
	if out, err := cmd.CombinedOutput(); err != nil {
		h.t.Fatalf("git %v: %v: %s", args, err, out)
	}
}

// payload returns a shell command that records its start.
func (h *hostileFolder) payload(name string) string {
	return fmt.Sprintf("/bin/sh -c 'echo %s >> %s'", name, h.started)
}

// script writes a program that records its start.
func (h *hostileFolder) script(path, then string) {
	h.t.Helper()
	h.write(path, fmt.Sprintf("#!/bin/sh\necho %s \"$@\" >> %s\n%s\n", filepath.Base(path), h.started, then), 0o755)
}

const hostilePolicy = `apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: p}
spec:
  matchConstraints: {resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [configmaps]}]}
  validations: [{expression: "size(object.data) < %d"}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: p}
spec: {policyName: p, validationActions: [Deny]}
`

const hostileTests = `apiVersion: gatehouse.dev/v1alpha1
kind: AdmissionTests
tests:
- name: one entry
  request: {object: {apiVersion: v1, kind: ConfigMap, metadata: {name: a, namespace: default}, data: {a: a}}}
  expect: {allowed: true}
`

// newHostileFolder creates a repository with a branch main and a change of it.
func newHostileFolder(t *testing.T) *hostileFolder {
	real, err := exec.LookPath("git")
	if err != nil {
		t.Skip("there is no git")
	}
	h := &hostileFolder{t: t, dir: filepath.Join(t.TempDir(), "folder"), outside: t.TempDir(), path: t.TempDir()}
	h.started = filepath.Join(h.outside, "started")
	for _, name := range []string{"sh", "bash", "ssh", "diff", "helm", "kustomize", "xdg-open", "kubectl", "vi", "git-remote-ext", "git-upload-pack", "less"} {
		h.script(filepath.Join(h.path, name), "")
	}
	h.script(filepath.Join(h.path, "git"), "exec "+real+` "$@"`)
	if h.server, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { h.server.Close() })
	go func() {
		for {
			c, err := h.server.Accept()
			if err != nil {
				return
			}
			h.connections.Add(1)
			c.Close()
		}
	}()
	h.write(filepath.Join(h.outside, "secret.yaml"), "apiVersion: v1\nkind: Secret\nmetadata: {name: outside}\ndata: {password: "+secret+"}\n", 0o600)
	h.write(filepath.Join(h.outside, "text"), secret+"\n", 0o600)

	h.git(t.TempDir(), "init", "--quiet", "--initial-branch=main", h.dir)
	h.write(h.at("policies", "policy.yaml"), fmt.Sprintf(hostilePolicy, 3), 0o644)
	h.write(h.at("policies", "tests.yaml"), hostileTests, 0o644)
	h.write(h.at("policies", "configmap.yaml"), "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, namespace: default}\ndata: {a: a}\n", 0o644)
	h.write(h.at(".gitattributes"), "* filter=evil diff=evil merge=evil\n", 0o644)
	// A submodule whose configuration starts a program when git reads its working tree.
	module := t.TempDir()
	h.git(module, "init", "--quiet", "--initial-branch=main")
	h.write(filepath.Join(module, "module.yaml"), "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: module}\n", 0o644)
	h.git(module, "add", ".")
	h.git(module, "commit", "--quiet", "-m", "module")
	h.git(h.dir, "submodule", "--quiet", "add", module, "policies/module")
	h.git(h.dir, "add", ".")
	h.git(h.dir, "commit", "--quiet", "-m", "base")
	h.git(h.dir, "checkout", "--quiet", "-b", "change")
	h.write(h.at("policies", "policy.yaml"), fmt.Sprintf(hostilePolicy, 2), 0o644)
	return h
}

// arm adds the hostile files. Afterwards git may run there only in a command under test.
func (h *hostileFolder) arm() {
	h.t.Helper()
	p := h.payload
	config := "[core]\n\trepositoryformatversion = 1\n"
	for _, key := range []string{"fsmonitor", "pager", "sshCommand", "askPass", "gitProxy", "editor", "alternateRefsCommand"} {
		config += fmt.Sprintf("\t%s = \"%s\"\n", key, p("core."+key))
	}
	config += "\texcludesFile = " + h.pipe(h.at(".git", "excludes")) + "\n\tattributesFile = " + h.pipe(h.at(".git", "attributes")) + "\n"
	config += "[include]\n\tpath = " + h.pipe(h.at(".git", "included")) + "\n"
	config += fmt.Sprintf("[filter \"evil\"]\n\tclean = \"%s\"\n\tsmudge = \"%s\"\n\tprocess = \"%s\"\n\trequired = true\n", p("clean"), p("smudge"), p("process"))
	config += fmt.Sprintf("[diff]\n\texternal = \"%s\"\n[diff \"evil\"]\n\tcommand = \"%s\"\n\ttextconv = \"%s\"\n[merge \"evil\"]\n\tdriver = \"%s\"\n", p("diff.external"), p("diff.command"), p("textconv"), p("driver"))
	config += fmt.Sprintf("[remote \"origin\"]\n\turl = \"ext::%s\"\n\tpromisor = true\n\tuploadpack = \"%s\"\n[protocol \"ext\"]\n\tallow = always\n[extensions]\n\tpartialClone = origin\n", p("ext"), p("uploadpack"))
	config += fmt.Sprintf("[credential]\n\thelper = \"!%s\"\n[gpg]\n\tprogram = \"%s\"\n[pager]\n\tls-tree = \"%s\"\n\tcat-file = \"%s\"\n\tconfig = \"%s\"\n", p("credential"), p("gpg"), p("pager"), p("pager"), p("pager"))
	config += "[alias]\n"
	for _, name := range []string{"config", "cat-file", "ls-tree", "merge-base", "diff", "rev-parse"} {
		config += fmt.Sprintf("\t%s = \"!%s\"\n", name, p("alias."+name))
	}
	h.write(h.at(".git", "config"), config, 0o644)
	for _, hook := range []string{"post-index-change", "reference-transaction", "fsmonitor-watchman", "query-watchman", "post-checkout", "pre-auto-gc"} {
		h.script(h.at(".git", "hooks", hook), "")
	}
	h.write(h.at(".git", "modules", "policies", "module", "config"), fmt.Sprintf("[core]\n\trepositoryformatversion = 0\n\tworktree = ../../../../policies/module\n\tfsmonitor = \"%s\"\n", p("submodule")), 0o644)

	// A bare repository among the files, which a pull request may contain.
	fsmonitor := fmt.Sprintf("[core]\n\trepositoryformatversion = 0\n\tbare = false\n\tworktree = ..\n\tfsmonitor = \"%s; false\"\n", p("embedded"))
	for _, dir := range []string{"policies", "bare"} {
		h.write(h.at(dir, "HEAD"), "ref: refs/heads/main\n", 0o644)
		h.write(h.at(dir, "config"), fsmonitor, 0o644)
		for _, below := range []string{"objects/pack", "refs/heads"} {
			if err := os.MkdirAll(h.at(dir, below), 0o755); err != nil {
				h.t.Fatal(err)
			}
		}
		commit, err := os.ReadFile(h.at(".git", "refs", "heads", "main"))
		if err != nil {
			h.t.Fatal(err)
		}
		h.write(h.at(dir, "refs", "heads", "main"), string(commit), 0o644)
	}
	h.write(h.at("policies", "below", ".git"), "gitdir: ../../bare\n", 0o644)
	h.write(h.at("policies", "below", "policy.yaml"), strings.ReplaceAll(fmt.Sprintf(hostilePolicy, 2), "name: p", "name: q"), 0o644)

	// Named pipes, and links to devices and to files outside.
	h.pipe(h.at("pipes", "pipe.yaml"))
	h.pipe(h.at("pipes", "pipe.json"))
	h.write(h.at("pipes", "tests.yaml"), hostileTests, 0o644)
	for name, to := range map[string]string{
		"pipes/zero.yaml": "/dev/zero", "pipes/piped.yaml": "pipe.yaml", "policies/secret.yaml": filepath.Join(h.outside, "secret.yaml"),
		"policies/text.yaml": filepath.Join(h.outside, "text"), "policies/up": "/", "policies/self": ".",
	} {
		if err := os.Symlink(to, h.at(filepath.FromSlash(name))); err != nil {
			h.t.Fatal(err)
		}
	}
	h.write(h.at("policies", "outside-tests.yaml"), hostileTests+fmt.Sprintf("- name: outside\n  request: {object: %q}\n  expect: {allowed: false}\n", filepath.Join(h.outside, "secret.yaml")), 0o644)

	// Files that name programs and servers.
	url := "https://" + h.server.Addr().String()
	h.write(h.at("policies", "programs.yaml"), hostileTests+fmt.Sprintf("programs:\n- service: hooks/evil\n  command: [/bin/sh, -c, \"echo programs >> %s\"]\n", h.started), 0o644)
	h.write(h.at("policies", "webhook.yaml"), fmt.Sprintf("apiVersion: admissionregistration.k8s.io/v1\nkind: ValidatingWebhookConfiguration\nmetadata: {name: w}\nwebhooks:\n- {name: w.example.com, clientConfig: {url: %q}, rules: [{apiGroups: [\"\"], apiVersions: [v1], operations: [CREATE], resources: [configmaps]}], sideEffects: None, admissionReviewVersions: [v1], failurePolicy: Ignore}\n", url+"/hook"), 0o644)
	h.write(h.at("built", "kustomization.yaml"), fmt.Sprintf("resources: [\"%s/remote.yaml\", \"git::ext::%s\", \"%s\"]\npatches: [{path: %q}]\n", url, "sh", filepath.Join(h.outside, "secret.yaml"), filepath.Join(h.outside, "secret.yaml")), 0o644)
	h.write(h.at("chart", "Chart.yaml"), "apiVersion: v2\nname: c\nversion: 1.0.0\n", 0o644)
	h.write(h.at("chart", "templates", "a.yaml"), "{{ .Values.a }}\n", 0o644)
	h.write(h.at("audit.log"), `{"kind":"Event","apiVersion":"audit.k8s.io/v1","level":"RequestResponse","auditID":"1","stage":"ResponseComplete","requestURI":"/api/v1/namespaces/default/configmaps","verb":"create","user":{"username":"u"},"objectRef":{"resource":"configmaps","namespace":"default","name":"a","apiVersion":"v1"},"responseStatus":{"code":201},"requestObject":{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"a","namespace":"default"},"data":{"a":"a"}},"requestReceivedTimestamp":"2026-11-01T00:00:00.000000Z","stageTimestamp":"2026-11-01T00:00:00.100000Z"}`+"\n", 0o644)
	h.pipe(h.at("logs", "audit.log"))
	h.write(h.at("gatehouse.data", "admin.kubeconfig"), fmt.Sprintf("apiVersion: v1\nkind: Config\ncurrent-context: a\ncontexts: [{name: a, context: {cluster: a, user: a}}]\nclusters: [{name: a, cluster: {server: %q, insecure-skip-tls-verify: true}}]\nusers: [{name: a, user: {exec: {apiVersion: client.authentication.k8s.io/v1, command: /bin/sh, args: [-c, \"echo kubeconfig >> %s\"], interactiveMode: Never}}}]\n", url, h.started), 0o600)
	h.write(h.at("gatehouse.data", "etcd", "lock"), fmt.Sprintf("\n1\n%s\nv1\n", url), 0o600)
	// The working directory may be in the user's PATH.
	for _, name := range []string{"kubectl-evil", "gatehouse-evil", "git-ls-tree", "git-cat-file", "gatekeeper", "kyverno"} {
		h.script(h.at(name), "")
	}
}

// clog replaces files that commands find by name with named pipes.
func (h *hostileFolder) clog() {
	h.t.Helper()
	for _, name := range []string{".gatehouse.yaml", ".gatehouseignore", "kustomization.yaml", "policies/.gatehouseignore", "policies/kustomization.yaml", "gatehouse.data/admin.kubeconfig", "gatehouse.data/etcd/lock", ".git/commondir"} {
		if err := os.RemoveAll(h.at(name)); err != nil {
			h.t.Fatal(err)
		}
		h.pipe(h.at(name))
	}
}

// run runs a command in the folder, and fails the test if the command does not end.
func (h *hostileFolder) run(t *testing.T, args ...string) (said string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), commandTime)
	defer cancel()
	cmd := exec.CommandContext(ctx, harness.Binary(t), args...)
	home := filepath.Join(h.outside, "home")
	cmd.Dir, cmd.WaitDelay = h.dir, time.Second
	cmd.Env = []string{"HOME=" + home, "TMPDIR=" + h.outside, "PATH=" + h.path + ":."}
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	if ctx.Err() != nil {
		t.Errorf("gatehouse %s does not end: %v: %s", strings.Join(args, " "), err, out.String())
	}
	return out.String()
}

// TestHostileFolders verifies that no command which SECURITY.md calls safe starts a program, blocks, connects
// to a server named in files, or prints a file outside the folder. The only exception is git, which
// --mutate=changed starts.
func TestHostileFolders(t *testing.T) {
	safe, others := securityPage(t)
	complete := harness.Run(t, "__complete", "")
	for line := range strings.Lines(complete.Out) {
		name, _, ok := strings.Cut(line, "\t")
		if ok && !slices.Contains(safe, name) && !slices.Contains(others, name) && !slices.Contains([]string{"help", "completion", "exit-codes", "environment"}, name) {
			t.Errorf("SECURITY.md does not say whether %q is safe on files of others", name)
		}
	}
	server := harness.StartTest(t)
	kubeconfig := "--kubeconfig=" + server.Kubeconfig
	lines := map[string][][]string{
		"check": {{"check", "."}, {"check", "policies/"}, {"check", "built", "chart"}, {"check", "pipes/"}, {"check", "pipes/pipe.yaml"}, {"check", "--from-cluster", server.Kubeconfig, "policies/"}},
		"lint":  {{"lint", "."}, {"lint", "policies/"}, {"lint", "pipes/"}, {"lint", "pipes/zero.yaml"}, {"lint", kubeconfig}},
		"explain": {
			{"explain", "-f", "policies/configmap.yaml", "--registrations", "policies/"}, {"explain", "-f", "policies/"}, {"explain", "-f", "pipes/", "--registrations", "pipes/"}, {"explain", "-f", "policies/secret.yaml", "--registrations", "policies/"},
			{"explain", "-f", "policies/configmap.yaml", kubeconfig},
		},
		"test": {
			{"test", "policies/"}, {"test", "."}, {"test", "pipes/"}, {"test", "policies/", "--mutate"}, {"test", "policies/", "--coverage"}, {"test", "--init", "pipes/pipe.yaml"},
			{"test", "policies/", "--mutate=changed", "--base", "main"}, {"test", "policies/below", "policies/module", "--mutate=changed"},
		},
		"replay":   {{"replay", "audit.log", "--with", "policies/"}, {"replay", "logs", "--with", "policies/"}, {"replay", "audit.log", "--with", "pipes/"}, {"replay", "logs/audit.log", "--with", "policies/"}},
		"audit":    {{"audit", "policies/"}, {"audit", "pipes/", kubeconfig}, {"audit", "policies/", kubeconfig}},
		"trace":    {{"trace"}, {"trace", "--audit-log", "audit.log", "--registrations", "policies/"}, {"trace", "--audit-log", "logs/audit.log"}, {"trace", kubeconfig}},
		"blame":    {{"blame", "configmap/a"}, {"blame", "configmap/a", "--audit-log", "audit.log", "--registrations", "policies/"}, {"blame", "configmap/a", "--audit-log", "logs/audit.log"}},
		"rollout":  {{"rollout", "status", "validatingadmissionpolicy/p"}, {"rollout", "status", "validatingadmissionpolicy/p", kubeconfig}},
		"snapshot": {{"snapshot"}, {"snapshot", "-o", "-", kubeconfig}},
		"kubectl": {
			{"kubectl", "get", "configmaps"}, {"kubectl", kubeconfig, "apply", "--dry-run=client", "-o", "yaml", "-f", "policies/"}, {"kubectl", kubeconfig, "apply", "--dry-run=client", "-f", "pipes/"}, {"kubectl", kubeconfig, "apply", "--dry-run=server", "-R", "-f", "."}, {"kubectl", kubeconfig, "diff", "-f", "pipes/*.yaml"},
			{"kubectl", kubeconfig, "diff", "-f", "policies/configmap.yaml"}, {"kubectl", kubeconfig, "create", "configmap", "a", "--dry-run=client", "--from-file=a=pipes/pipe.yaml"}, {"kubectl", "evil"},
		},
	}
	for _, name := range safe {
		if len(lines[name]) == 0 {
			t.Errorf("SECURITY.md calls %q safe, and this test does not run it", name)
		}
	}
	for _, state := range speed.Some(t, 1, []string{"armed", "clogged"}) {
		t.Run(state, func(t *testing.T) {
			h := newHostileFolder(t)
			h.arm()
			if state == "clogged" {
				h.clog()
			}
			for _, name := range safe {
				for _, line := range speed.Some(t, 1, lines[name]) {
					said := h.run(t, line...)
					command := strings.ReplaceAll(strings.Join(line, " "), server.Kubeconfig, "KUBECONFIG")
					started, err := os.ReadFile(h.started)
					if err != nil && !errors.Is(err, os.ErrNotExist) {
						t.Fatal(err)
					}
					_ = os.Remove(h.started)
					compares := state == "armed" && strings.Contains(command, "--mutate=changed")
					for program := range strings.Lines(string(started)) {
						first, _, _ := strings.Cut(strings.TrimSpace(program), " ")
						if !(compares && first == "git") && !(first == "diff" && strings.Contains(command, "kubectl --kubeconfig=KUBECONFIG diff")) {
							t.Errorf("gatehouse %s starts %s", command, program)
						}
					}
					if compares && strings.Contains(command, "policies/ ") && !strings.Contains(string(started), "ls-tree") {
						t.Errorf("gatehouse %s does not ask git: %s", command, said)
					}
					if n := h.connections.Swap(0); n > 0 {
						t.Errorf("gatehouse %s connects to a server of the folder: %s", command, said)
					}
					if strings.Contains(said, secret) {
						t.Errorf("gatehouse %s prints a file outside of the folder: %s", command, said)
					}
					if testing.Verbose() {
						t.Logf("gatehouse %s\n%.600s", command, said)
					}
				}
			}
		})
	}
}
