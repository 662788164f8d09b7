package main

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"k8s.io/client-go/rest"

	"github.com/gatehouse-dev/gatehouse/bench/internal/peer"
)

// guide contains the commands of docs/agent.md, with the addresses and paths of this machine.
type guide struct {
	commands []string
	// flags are the flags of kube-apiserver.
	flags []string
}

// readGuide reads the guide.
func (s *session) readGuide() (*guide, error) {
	data, err := os.ReadFile("../docs/agent.md")
	if err != nil {
		return nil, fmt.Errorf("run this in the folder bench: %w", err)
	}
	chart, err := filepath.Abs("../deploy/agent/chart")
	if err != nil {
		return nil, err
	}
	_, text, _ := strings.Cut(string(data), "\n## From nothing")
	text, _, _ = strings.Cut(text, "\n## ")
	text = strings.NewReplacer(
		"/etc/kubernetes/pki/", s.dir+"/pki/", "10.96.0.100:443", fmt.Sprintf("127.0.0.1:%d", s.ports[0]), "clusterIP=10.96.0.100", "clusterIP=10.0.0.100",
		"deploy/agent/chart", chart,
	).Replace(text)
	g := &guide{}
	for line := range strings.Lines(text) {
		command, ok := strings.CutPrefix(strings.TrimSuffix(line, "\n"), "    ")
		switch {
		case !ok:
		case strings.HasPrefix(command, "- --"):
			g.flags = append(g.flags, command[2:])
		case !strings.HasPrefix(command, "kubectl "):
			g.commands = append(g.commands, command)
		}
	}
	if len(g.commands) != 4 || len(g.flags) != 2 {
		return nil, fmt.Errorf("docs/agent.md has not four commands and two flags from nothing to who changed a pod, but %q and %q", g.commands, g.flags)
	}
	return g, nil
}

// sh runs a command of the guide.
func (s *session) sh(ctx context.Context, command string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "sh", "-c", command)
	cmd.Dir = s.dir
	cmd.Env = append(os.Environ(), "PATH="+filepath.Join(s.dir, "bin")+string(os.PathListSeparator)+os.Getenv("PATH"),
		"KUBECONFIG="+s.kubeconfig, "HOME="+s.dir, "HELM_CACHE_HOME="+s.dir, "COLUMNS=80")
	out, err := cmd.CombinedOutput()
	if err != nil {
		return string(out), fmt.Errorf("%s: %w: %s", command, err, out)
	}
	fmt.Printf("$ %s\n%s", command, out)
	return string(out), nil
}

// prepare runs the steps of the guide before kube-apiserver is started.
func (s *session) prepare(ctx context.Context) (*guide, error) {
	for _, dir := range []string{"bin", "pki"} {
		if err := os.Mkdir(filepath.Join(s.dir, dir), 0o700); err != nil {
			return nil, err
		}
	}
	if s.helm == "" {
		s.helm = filepath.Join(s.dir, "bin", "helm")
		build := exec.CommandContext(ctx, "nice", "go", "build", "-o", s.helm, "helm.sh/helm/v3/cmd/helm")
		build.Dir = "../internal/release/chart"
		if out, err := build.CombinedOutput(); err != nil {
			return nil, fmt.Errorf("building helm: %w: %s", err, out)
		}
	} else if err := os.Symlink(s.helm, filepath.Join(s.dir, "bin", "helm")); err != nil {
		return nil, err
	}
	if err := os.Symlink(s.program, filepath.Join(s.dir, "bin", "gatehouse")); err != nil {
		return nil, err
	}
	g, err := s.readGuide()
	if err != nil {
		return nil, err
	}
	for _, command := range g.commands[:2] {
		if _, err := s.sh(ctx, command); err != nil {
			return nil, err
		}
	}
	return g, nil
}

// manifests are further objects of the cluster: a webhook that changes pods, a policy, and a user with roles in shop.
const manifests = `apiVersion: v1
kind: Namespace
metadata: {name: shop}
---
apiVersion: v1
kind: Namespace
metadata: {name: bank}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: alice, namespace: shop}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: default, namespace: shop}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: traces, namespace: shop}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: gatehouse-trace-reader}
subjects: [{kind: ServiceAccount, name: alice, namespace: shop}, {apiGroup: rbac.authorization.k8s.io, kind: User, name: alice}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: edit, namespace: shop}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: edit}
subjects: [{kind: ServiceAccount, name: alice, namespace: shop}, {apiGroup: rbac.authorization.k8s.io, kind: User, name: alice}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingWebhookConfiguration
metadata: {name: notes}
webhooks:
- name: notes.example.com
  rules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}]
  clientConfig: {url: %s/annotate, caBundle: %s}
  sideEffects: None
  admissionReviewVersions: [v1]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: no-x}
spec:
  matchConstraints: {resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [configmaps]}]}
  validations: [{expression: "!has(object.data) || !('x' in object.data)", message: no x}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: no-x}
spec: {policyName: no-x, validationActions: [Deny]}
`

// install installs the chart, runs the agents in place of its pods, and changes a pod.
func (s *session) install(ctx context.Context, g *guide) error {
	hook, err := peer.StartWebhook(ctx, s.binaries, filepath.Join(s.dir, "webhook"))
	if err != nil {
		return err
	}
	s.Helpers = append(s.Helpers, hook.Process)
	if _, err := s.kubectl(ctx, fmt.Sprintf(manifests, hook.URL, base64.StdEncoding.EncodeToString(hook.CA)), "apply", "-f", "-"); err != nil {
		return err
	}
	if _, err := s.sh(ctx, g.commands[2]); err != nil {
		return err
	}
	// No kubelet and no service proxy runs here.
	for _, args := range [][]string{
		{"patch", "service", "gatehouse-agent", "-n", "gatehouse-agent", "--type=merge", "-p", `{"spec":{"type":"ExternalName","externalName":"localhost","clusterIP":null,"clusterIPs":null,"selector":null}}`},
		{"patch", "apiservice", "v1alpha1.gatehouse.dev", "--type=json", "-p", fmt.Sprintf(`[{"op":"replace","path":"/spec/service/port","value":%d}]`, s.ports[len(s.ports)-1])},
	} {
		if _, err := s.kubectl(ctx, "", args...); err != nil {
			return err
		}
	}
	args, err := s.kubectl(ctx, "", "get", "deployment", "gatehouse-agent", "-n", "gatehouse-agent", "-o", `jsonpath={range .spec.template.spec.containers[0].args[*]}{@}{"\n"}{end}`)
	if err != nil {
		return err
	}
	s.args = append(s.args, "agent")
	for arg := range strings.Lines(args) {
		switch arg = strings.TrimSpace(arg); {
		case strings.HasPrefix(arg, "--credentials="):
			s.args = append(s.args, "--credentials="+filepath.Join(s.dir, "agent"))
		case strings.HasPrefix(arg, "--peer="):
			for _, port := range s.ports {
				s.args = append(s.args, fmt.Sprintf("--peer=127.0.0.1:%d", port))
			}
		case strings.HasPrefix(arg, "--shutdown-delay="):
		default:
			s.args = append(s.args, arg)
		}
	}
	token, err := s.kubectl(ctx, "", "create", "token", "gatehouse-agent", "-n", "gatehouse-agent", "--duration=24h")
	if err != nil {
		return err
	}
	if err := s.userConfig("own", strings.TrimSpace(token)); err != nil {
		return err
	}
	if err := s.start(ctx); err != nil {
		return err
	}
	if _, err := s.kubectl(ctx, "", "run", "web", "-n", "shop", "--image=example.com/web"); err != nil {
		return err
	}
	return eventually(ctx, "gatehouse blame says who changed the pod", func() error {
		out, err := s.sh(ctx, g.commands[3])
		if err == nil && !strings.Contains(out, "notes/notes.example") {
			err = errors.New(out)
		}
		return err
	})
}

// userConfig writes a kubeconfig for a user to the folder with the given name.
func (s *session) userConfig(name, token string) error {
	own := *s.Server
	own.Config = rest.CopyConfig(s.Config)
	own.Config.BearerToken = token
	dir := filepath.Join(s.dir, name)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	_, err := own.WriteKubeconfig(dir)
	return err
}

// start starts the agents, with the flags of the chart and the rights of its ServiceAccount.
func (s *session) start(ctx context.Context) error {
	for i, port := range s.ports {
		cmd := exec.Command(s.program, append(append([]string{}, s.args...), "--kubeconfig", filepath.Join(s.dir, "own", "kubeconfig"), "--bind-address", "127.0.0.1", "--secure-port", strconv.Itoa(port))...)
		cmd.Env = append(os.Environ(), "GOMEMLIMIT=150MiB")
		log, err := os.OpenFile(filepath.Join(s.dir, "agent.log"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
		if err != nil {
			return err
		}
		defer log.Close()
		cmd.Stderr, cmd.SysProcAttr = log, &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		out, err := cmd.StdoutPipe()
		if err != nil {
			return err
		}
		if err := cmd.Start(); err != nil {
			return err
		}
		s.agents[i] = cmd
		line := make([]byte, 100)
		n, err := out.Read(line)
		if !strings.Contains(string(line[:n]), "is ready") {
			text, _ := os.ReadFile(log.Name())
			return fmt.Errorf("the agent says %q: %w\n%s", line[:n], err, text)
		}
	}
	return ctx.Err()
}

// kill kills the agents.
func (s *session) kill() {
	for i, cmd := range s.agents {
		if cmd != nil {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
			s.agents[i] = nil
		}
	}
}
