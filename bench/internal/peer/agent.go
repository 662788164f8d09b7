package peer

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
)

// StartAgent starts gatehouse agent for a cluster. Its credentials are in the directory agent of dir. It returns the
// address that the agent listens on, HOST:PORT.
func StartAgent(ctx context.Context, b Binaries, dir, kubeconfig string) (p *Process, address string, err error) {
	p, line, err := launchAndRead(ctx, dir, b.Gatehouse, "agent", "--credentials", filepath.Join(dir, "agent"), "--kubeconfig", kubeconfig,
		"--bind-address", "127.0.0.1", "--secure-port", "0", "--lint=false")
	if err != nil {
		return nil, "", err
	}
	_, address, ok := strings.Cut(line, "https://")
	if !ok {
		_ = p.Stop()
		return nil, "", fmt.Errorf("the agent prints %q", line)
	}
	return p, address, nil
}
