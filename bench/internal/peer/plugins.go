package peer

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// StartPlugins starts a gatehouse webhook that serves plugins to a server, and returns when it has registered them.
// The webhooks may become active slightly later.
func StartPlugins(ctx context.Context, b Binaries, s *Server, dir string, plugins ...string) (*Process, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	kubeconfig, err := s.WriteKubeconfig(dir)
	if err != nil {
		return nil, err
	}
	p, line, err := launchAndRead(ctx, dir, b.Gatehouse, "webhook", "--kubeconfig", kubeconfig, "--plugins", strings.Join(plugins, ","))
	if err != nil {
		return nil, fmt.Errorf("starting gatehouse webhook: %w", err)
	}
	if !strings.HasPrefix(line, "gatehouse serves") {
		_ = p.Stop()
		return nil, fmt.Errorf("gatehouse webhook printed %q", line)
	}
	return p, nil
}

// WriteKubeconfig writes the administrator's credentials to a file in dir.
func (s *Server) WriteKubeconfig(dir string) (string, error) {
	config := clientcmdapi.NewConfig()
	config.Clusters["c"] = &clientcmdapi.Cluster{Server: s.Config.Host, CertificateAuthorityData: s.Config.CAData}
	config.AuthInfos["u"] = &clientcmdapi.AuthInfo{Token: s.Config.BearerToken}
	config.Contexts["x"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "u"}
	config.CurrentContext = "x"
	path := filepath.Join(dir, "kubeconfig")
	return path, clientcmd.WriteToFile(*config, path)
}
