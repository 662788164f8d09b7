package program

import (
	"strings"
	"testing"
)

func TestHelpIsKnownForPlainQuestions(t *testing.T) {
	for _, c := range []struct {
		name           string
		args           []string
		stdout, stderr string
	}{
		{name: "etcd", args: []string{"--help"}, stdout: "--unsafe-no-fsync", stderr: "etcd [flags]"},
		{name: "kube-apiserver", args: []string{"--help"}, stdout: "--service-account-issuer"},
		{name: "etcd", args: []string{"gateway", "--help"}},
		{name: "etcd"},
		{name: "kube-apiserver", args: []string{"--secure-port=0"}},
		{name: "kubectl", args: []string{"--help"}},
		{name: "gatehouse", args: []string{"--help"}},
	} {
		stdout, stderr, ok := Help(c.name, c.args)
		if ok != (c.stdout != "") || !strings.Contains(stdout, c.stdout) || !strings.Contains(stderr, c.stderr) || c.stderr == "" && stderr != "" {
			t.Errorf("%s %v: %v, %q, %q", c.name, c.args, ok, stdout, stderr)
		}
	}
}
