package program

import (
	_ "embed"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// Variable is the environment variable with the name that overrides the name of the program file.
// The scripts of a release's archive for setup-envtest set it: that archive cannot have links.
const Variable = "GATEHOUSE_PROGRAM"

// The programs that test libraries start. This program replaces them under these names.
const (
	KubeAPIServer = "kube-apiserver"
	Etcd          = "etcd"
	Kubectl       = "kubectl"
)

// Name returns the name under which the program was started.
func Name() string {
	if name := os.Getenv(Variable); name != "" {
		return name
	}
	if len(os.Args) == 0 {
		return ""
	}
	return strings.TrimSuffix(filepath.Base(os.Args[0]), ".exe")
}

// Help texts of programs, on standard output and on standard error. The tests of package cli write
// these files.
var (
	//go:embed help/kube-apiserver.txt
	kubeAPIServerHelp string
	//go:embed help/etcd.txt
	etcdHelp string
	//go:embed help/etcd-stderr.txt
	etcdUsage string
)

// Help returns the help of a program on standard output and on standard error. ok is false if args
// do not request help, or if the help is not known in advance.
func Help(name string, args []string) (stdout, stderr string, ok bool) {
	if len(args) != 1 || args[0] != "--help" {
		return "", "", false
	}
	switch name {
	case KubeAPIServer:
		return kubeAPIServerHelp, "", true
	case Etcd:
		return etcdHelp, etcdUsage, true
	}
	return "", "", false
}

func init() {
	if len(os.Args) != 2 {
		return
	}
	if stdout, stderr, ok := Help(Name(), os.Args[1:]); ok {
		fmt.Fprint(os.Stderr, stderr)
		if _, err := io.WriteString(os.Stdout, stdout); err != nil {
			os.Exit(1)
		}
		os.Exit(0)
	}
}
