package harness

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// Result is the output and the exit code of a command.
type Result struct {
	Out, Err string
	Code     int
}

// Run runs the gatehouse binary and waits until it ends.
func Run(t testing.TB, args ...string) Result {
	t.Helper()
	return command(t, "", nil, args...)
}

// RunInput is Run with standard input.
func RunInput(t testing.TB, input string, args ...string) Result {
	t.Helper()
	return command(t, input, nil, args...)
}

func command(t testing.TB, input string, env []string, args ...string) Result {
	t.Helper()
	// A build of the binary does not count against the command's time limit.
	binary := Binary(t)
	cmd := exec.CommandContext(contextFor(t, 1), binary, args...)
	cmd.SysProcAttr = tied()
	cmd.Env = append(os.Environ(), env...)
	cmd.Stdin = strings.NewReader(input)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatalf("%s: %v\n%s", cmd, err, errs.String())
	}
	return Result{Out: out.String(), Err: errs.String(), Code: cmd.ProcessState.ExitCode()}
}

// Kubectl runs gatehouse kubectl with the server's kubeconfig, in a home directory of the test.
type Kubectl struct {
	t         testing.TB
	server    *Server
	namespace string
	// Env are additional environment variables, as NAME=value.
	Env []string
}

// Kubectl returns a kubectl with a default namespace.
func (s *Server) Kubectl(t testing.TB, namespace string) *Kubectl {
	return &Kubectl{t: t, server: s, namespace: namespace, Env: []string{"HOME=" + t.TempDir()}}
}

// Run runs a command with standard input. It repeats a command whose discovery exceeded the time limits of client-go,
// 32 s for a request and 10 s for a TLS handshake: a busy machine may need longer, and nothing was written yet.
func (k *Kubectl) Run(input string, args ...string) Result {
	k.t.Helper()
	args = append([]string{"kubectl", "--kubeconfig", k.server.Kubeconfig, "--namespace", k.namespace}, args...)
	for tries := 1; ; tries++ {
		r := command(k.t, input, k.Env, args...)
		late := strings.Contains(r.Err, "Client.Timeout exceeded while awaiting headers") || strings.Contains(r.Err, "TLS handshake timeout")
		if r.Code == 0 || !late || tries == 3 {
			return r
		}
	}
}

// Must runs a command without input and returns its standard output. It fails the test if the command fails.
func (k *Kubectl) Must(args ...string) string {
	k.t.Helper()
	return k.MustWith("", args...)
}

// MustWith is Must with standard input.
func (k *Kubectl) MustWith(input string, args ...string) string {
	k.t.Helper()
	r := k.Run(input, args...)
	if r.Code != 0 {
		k.t.Fatalf("kubectl %s: exit code %d\n%s%s", strings.Join(args, " "), r.Code, r.Out, r.Err)
	}
	return r.Out
}

// For reports failures to a subtest until the returned function is called.
func (k *Kubectl) For(t testing.TB) func() {
	outer := k.t
	k.t = t
	return func() { k.t = outer }
}
