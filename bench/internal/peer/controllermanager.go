package peer

import (
	"context"
	"os"
	"path/filepath"
)

// BuildControllerManager builds kube-controller-manager into dir, if it is missing, and returns its path. It is built
// in the module of the end-to-end suite, which has the required dependencies.
func BuildControllerManager(ctx context.Context, module, dir string) (string, error) {
	module, err := filepath.Abs(module)
	if err != nil {
		return "", err
	}
	if dir, err = directory(dir); err != nil {
		return "", err
	}
	path := filepath.Join(dir, "kube-controller-manager")
	return path, buildAll(ctx, []program{
		{path, filepath.Join(module, "conformance"), "k8s.io/kubernetes/cmd/kube-controller-manager", own().stamp(), kubernetesModule},
	})
}

// StartControllerManager starts a kube-controller-manager next to a gatehouse, as described in docs/controllers.md.
// dir is the directory of the server; the kubeconfig and the log of the program are also written to it.
func StartControllerManager(path string, s *Server, dir string, flags ...string) (*Process, error) {
	kubeconfig, err := s.WriteKubeconfig(dir)
	if err != nil {
		return nil, err
	}
	pki := filepath.Join(dir, "data", "pki")
	return launch(dir, path, nil, append([]string{
		"--kubeconfig=" + kubeconfig, "--authentication-kubeconfig=" + kubeconfig, "--authorization-kubeconfig=" + kubeconfig,
		"--service-account-private-key-file=" + filepath.Join(pki, "service-account.key"),
		"--root-ca-file=" + filepath.Join(dir, "tls.crt"),
		"--cluster-signing-cert-file=" + filepath.Join(pki, "ca.crt"), "--cluster-signing-key-file=" + filepath.Join(pki, "ca.key"),
		"--use-service-account-credentials", "--secure-port=0",
		"--flex-volume-plugin-dir=" + filepath.Join(dir, "flexvolumes"),
	}, flags...)...)
}

// StartNamespaceControllers starts a kube-controller-manager next to a kube-apiserver, as one of its helpers. It runs
// only the controllers of namespaces: they empty a deleted namespace, and create the service account and the
// ConfigMap of a new one. dir is the directory of the server.
func (s *Server) StartNamespaceControllers(path, dir string) error {
	kubeconfig, err := s.WriteKubeconfig(dir)
	if err != nil {
		return err
	}
	p, err := launch(dir, path, nil,
		"--kubeconfig="+kubeconfig, "--authentication-kubeconfig="+kubeconfig, "--authorization-kubeconfig="+kubeconfig,
		"--controllers=namespace-controller,serviceaccount-controller,root-ca-certificate-publisher-controller",
		"--root-ca-file="+filepath.Join(dir, "tls.crt"), "--leader-elect=false", "--secure-port=0", "--cert-dir="+dir,
	)
	if err == nil {
		s.Helpers = append(s.Helpers, p)
	}
	return err
}

// Log returns the output of the process on standard error.
func (p *Process) Log() (string, error) {
	data, err := os.ReadFile(p.log)
	return string(data), err
}
