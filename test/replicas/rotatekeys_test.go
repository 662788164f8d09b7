package replicas

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/gatehouse-dev/gatehouse/test/harness"
	"github.com/gatehouse-dev/gatehouse/test/speed"
)

// rotateKeys runs the command repeatedly and kills it once in each phase that it prints, until it completes.
// It returns the output of the last run.
func rotateKeys(t *testing.T, dir string, flags ...string) string {
	t.Helper()
	killed := map[string]bool{}
	for range 20 {
		cmd := exec.Command(harness.Binary(t), append([]string{"cluster", "rotate-keys", "--data-dir", dir}, flags...)...)
		var errs bytes.Buffer
		cmd.Stderr = &errs
		out, err := cmd.StdoutPipe()
		if err == nil {
			err = cmd.Start()
		}
		if err != nil {
			t.Fatal(err)
		}
		var all strings.Builder
		lines := bufio.NewScanner(out)
		for lines.Scan() {
			fmt.Fprintln(&all, lines.Text())
			if line := lines.Text(); strings.HasPrefix(line, "phase ") && !strings.HasPrefix(line, "phase 4") && !killed[line] {
				killed[line] = true
				_ = cmd.Process.Kill()
			}
		}
		err = cmd.Wait()
		if err == nil {
			t.Logf("rotate-keys %q, killed in %d phases:\n%s", flags, len(killed), all.String())
			return all.String()
		}
		if cmd.ProcessState.Exited() {
			t.Fatalf("rotate-keys %q: %v\n%s%s", flags, err, all.String(), errs.String())
		}
	}
	t.Fatal("rotate-keys does not end")
	return ""
}

// once returns a client that opens a new connection for each request.
func once(t *testing.T, c *rest.Config) *http.Client {
	t.Helper()
	config, err := rest.TLSConfigFor(c)
	if err != nil {
		t.Fatal(err)
	}
	return &http.Client{Timeout: time.Minute, Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: config}}
}

func get(t *testing.T, c *http.Client, url, token string) (int, error) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	res, err := c.Do(req)
	if err != nil {
		return 0, err
	}
	defer res.Body.Close()
	_, err = io.Copy(io.Discard, res.Body)
	return res.StatusCode, err
}

// kubeconfig rereads the administrator's kubeconfig of a server.
func kubeconfig(t *testing.T, s *harness.Server) *rest.Config {
	t.Helper()
	c, err := clientcmd.BuildConfigFromFlags("", s.Kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// S31.17, S31.18, S31.19: the keys of a cluster are replaced while its servers run and clients use old
// credentials; the command may be killed in each phase. Afterwards the old credentials are rejected.
func TestKeysAreReplacedWhileServersRun(t *testing.T) {
	t.Parallel()
	var dirs []string
	for range speed.Of(1, 3) {
		dirs = append(dirs, t.TempDir())
	}
	f := joinedFleet(t, dirs, "", "--controllers", "*")
	dir := f.servers[0].DataDir
	old := make([]*rest.Config, len(f.servers))
	for i, s := range f.servers {
		old[i] = rest.CopyConfig(s.Admin)
	}
	h := f.servers[0].HTTP(t, nil)
	issued := h.Must(http.StatusCreated, "POST", "/api/v1/namespaces/default/serviceaccounts/default/token", `{"spec":{"expirationSeconds":7200}}`).Text("status", "token")
	h.Must(http.StatusCreated, "POST", "/api/v1/namespaces/default/secrets", `{"metadata":{"name":"kept","annotations":{"kubernetes.io/service-account.name":"default"}},"type":"kubernetes.io/service-account-token"}`)
	kept := func(c *rest.Config) (token string) {
		t.Helper()
		harness.Eventually(t, "the Secret has a token", func() error {
			code, body, err := f.servers[0].HTTP(t, c).TryRead(harness.Context(t), "/api/v1/namespaces/default/secrets/kept")
			var secret struct{ Data map[string]string }
			if err == nil {
				err = json.Unmarshal(body, &secret)
			}
			text, _ := base64.StdEncoding.DecodeString(secret.Data["token"])
			if token = string(text); err != nil || token == "" {
				return fmt.Errorf("%d, %v", code, err)
			}
			return nil
		})
		return token
	}
	before := kept(nil)
	authorities := func(c *rest.Config) (n int) {
		t.Helper()
		r := f.servers[0].HTTP(t, c).Must(http.StatusOK, "GET", "/api/v1/namespaces/default/configmaps/kube-root-ca.crt", "")
		return strings.Count(r.Text("data", "ca.crt"), "BEGIN CERTIFICATE")
	}
	awaitAuthorities := func(c *rest.Config, want int) {
		t.Helper()
		harness.Eventually(t, "kube-root-ca.crt has the authorities", func() error {
			if n := authorities(c); n != want {
				return fmt.Errorf("%d authorities", n)
			}
			return nil
		})
	}
	awaitAuthorities(nil, 1)

	// Clients with old credentials see no errors.
	ctx, stop := context.WithCancel(t.Context())
	var using sync.WaitGroup
	for i, s := range f.servers {
		admin, user := once(t, old[i]), once(t, &rest.Config{TLSClientConfig: rest.TLSClientConfig{CAData: old[i].CAData}})
		using.Go(func() {
			n := 0
			for ; ctx.Err() == nil; harness.Breathe(ctx) {
				n++
				if code, err := get(t, admin, s.URL+configMaps, ""); ctx.Err() == nil && (err != nil || code != http.StatusOK) {
					t.Errorf("the old administrator at server %d: %d, %v", i, code, err)
					return
				}
				if code, err := get(t, user, s.URL+"/api", issued); ctx.Err() == nil && (err != nil || code == http.StatusUnauthorized) {
					t.Errorf("the old token at server %d: %d, %v", i, code, err)
					return
				}
			}
			if n == 0 {
				t.Errorf("server %d was not asked", i)
			}
		})
	}
	out := rotateKeys(t, dir)
	stop()
	using.Wait()
	for _, want := range []string{"copies of admin.kubeconfig", "CertificateSigningRequest", "rotate-keys --resume --finish"} {
		if !strings.Contains(out, want) {
			t.Errorf("the command does not say %q:\n%s", want, out)
		}
	}
	awaitAuthorities(nil, 2)
	if r := harness.Run(t, "cluster", "status", "--data-dir", dir); r.Code != 0 || !strings.Contains(r.Out, "in phase 2 of 4") {
		t.Errorf("status: %s%s", r.Out, r.Err)
	}
	for i, s := range f.servers {
		now := kubeconfig(t, s)
		if bytes.Equal(now.CertData, old[i].CertData) {
			t.Errorf("server %d has not written the kubeconfig", i)
		}
		for _, other := range f.servers {
			if code, err := get(t, once(t, now), other.URL+configMaps, ""); err != nil || code != http.StatusOK {
				t.Errorf("the new administrator: %d, %v", code, err)
			}
		}
	}
	out = rotateKeys(t, dir, "--finish", "--end-tokens")
	for _, s := range f.servers {
		if !strings.Contains(out, state(t, s).Name) {
			t.Errorf("the command does not name a server to restart:\n%s", out)
		}
	}
	now := kubeconfig(t, f.servers[0])
	awaitAuthorities(now, 1)
	if after := kept(now); after == before {
		t.Error("the token of the Secret is the old one")
	}
	for i, s := range f.servers {
		if code, err := get(t, once(t, old[i]), s.URL+configMaps, ""); err == nil {
			t.Errorf("the old administrator: %d", code)
		}
		// An attacker does not verify the certificate of the server.
		blind := rest.CopyConfig(old[i])
		blind.CAData, blind.Insecure = nil, true
		if code, err := get(t, once(t, blind), s.URL+configMaps, ""); err != nil || code != http.StatusUnauthorized {
			t.Errorf("the old certificate: %d, %v", code, err)
		}
		for _, token := range []string{issued, before} {
			if code, err := get(t, once(t, &rest.Config{TLSClientConfig: rest.TLSClientConfig{Insecure: true}}), s.URL+"/api", token); err != nil || code != http.StatusUnauthorized {
				t.Errorf("an old token: %d, %v", code, err)
			}
		}
	}
	callers := f.servers[0].HTTP(t, now).Must(http.StatusOK, "GET", "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication", "")
	for _, key := range []string{"client-ca-file", "requestheader-client-ca-file"} {
		if n := strings.Count(callers.Text("data", key), "BEGIN CERTIFICATE"); n != 1 {
			t.Errorf("aggregated servers trust %d authorities of %s", n, key)
		}
	}
	for _, s := range f.servers {
		s.Admin = kubeconfig(t, s)
		s.Stop(t)
		s.Restart(t)
	}
	if out = rotateKeys(t, dir, "--resume"); !strings.Contains(out, "all keys of the cluster are replaced") || !strings.Contains(out, "secrets-encryption rotate") {
		t.Errorf("after the restarts:\n%s", out)
	}
	if r := harness.Run(t, "cluster", "status", "--data-dir", dir); r.Code != 0 || strings.Contains(r.Out, "phase") {
		t.Errorf("status: %s%s", r.Out, r.Err)
	}
	// Another server joins with the new keys.
	s := harness.Start(t, joins(f.servers[0], newToken(t, f.servers[0], 1), newPeer(t), "--controllers", "*")...)
	s.HTTP(t, nil).Must(http.StatusOK, "GET", configMaps, "")
}
