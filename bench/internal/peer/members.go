package peer

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// BuildEtcd builds the released etcd into dir, if it is missing, and returns its path.
func BuildEtcd(ctx context.Context, module, dir string) (string, error) {
	dir, err := directory(dir)
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "etcdmain")
	return path, buildAll(ctx, []program{{path, module, "./cmd/etcdmain", "", etcdModule}})
}

// StartMembers starts an etcd of several members with their data in dir, and returns the value of --etcd-servers.
// etcd is the program of BuildEtcd.
func StartMembers(ctx context.Context, etcd, dir string, members int) (all []*Process, urls string, err error) {
	defer func() {
		if err != nil {
			for _, p := range all {
				_ = p.Stop()
			}
		}
	}()
	var clients, peers, cluster []string
	for i := range members {
		for _, to := range []*[]string{&clients, &peers} {
			port, err := FreePort()
			if err != nil {
				return nil, "", err
			}
			*to = append(*to, fmt.Sprintf("http://127.0.0.1:%d", port))
		}
		cluster = append(cluster, fmt.Sprintf("m%d=%s", i, peers[i]))
	}
	for i := range members {
		p, err := launch(dir, etcd, nil, "--name", fmt.Sprintf("m%d", i), "--data-dir", filepath.Join(dir, fmt.Sprintf("m%d", i)),
			"--listen-client-urls", clients[i], "--advertise-client-urls", clients[i], "--listen-peer-urls", peers[i],
			"--initial-advertise-peer-urls", peers[i], "--initial-cluster", strings.Join(cluster, ","), "--log-level", "error")
		if err != nil {
			return all, "", err
		}
		all = append(all, p)
	}
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	for _, url := range clients {
		for !healthy(ctx, url) {
			select {
			case <-time.After(20 * time.Millisecond):
			case <-ctx.Done():
				return all, "", fmt.Errorf("etcd at %s is not healthy within %s", url, readyTimeout)
			}
		}
	}
	return all, strings.Join(clients, ","), nil
}

func healthy(ctx context.Context, url string) bool {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/health", nil)
	if err != nil {
		return false
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return false
	}
	res.Body.Close()
	return res.StatusCode == http.StatusOK
}

// Follower starts a second gatehouse that joins the cluster of a first one (--cluster), and waits until it is ready.
func (s *Server) Follower(ctx context.Context) (*Process, error) {
	dir := filepath.Join(s.Dir, "follower")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	program := s.Process.cmd.Path
	token, err := exec.CommandContext(ctx, program, "cluster", "token", "create", "--data-dir", filepath.Join(s.Dir, "data")).Output()
	if err != nil {
		return nil, fmt.Errorf("token of a follower: %w", err)
	}
	file := filepath.Join(dir, "join.token")
	if err := os.WriteFile(file, token, 0o600); err != nil {
		return nil, err
	}
	port, err := FreePort()
	if err != nil {
		return nil, err
	}
	peer, err := FreePort()
	if err != nil {
		return nil, err
	}
	p, err := launch(dir, program, nil, "serve", "--data-dir="+filepath.Join(dir, "data"), "--bind-address=127.0.0.1", fmt.Sprintf("--secure-port=%d", port),
		fmt.Sprintf("--peer-address=127.0.0.1:%d", peer), "--join="+s.Config.Host, "--join-token-file="+file, "--service-cluster-ip-range=10.0.0.0/24")
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	// No verification: the process is a child on loopback, and the request contains no secrets.
	client := &http.Client{Timeout: time.Second, Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	for {
		if res, err := client.Get(fmt.Sprintf("https://127.0.0.1:%d/readyz", port)); err == nil {
			res.Body.Close()
			if res.StatusCode == http.StatusOK {
				return p, nil
			}
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-p.exited:
			return nil, p.failure()
		case <-ctx.Done():
			return nil, errors.Join(fmt.Errorf("the follower is not ready within %s", readyTimeout), p.Stop())
		}
	}
}
