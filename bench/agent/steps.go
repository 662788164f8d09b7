package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/gatehouse-dev/gatehouse/bench/internal/peer"
)

// alice returns the kubeconfig and a token of alice, a ServiceAccount with roles in the namespace shop.
func (s *session) alice(ctx context.Context) (kubeconfig, token string, err error) {
	token, err = s.kubectl(ctx, "", "create", "token", "alice", "-n", "shop", "--duration=1h")
	if err != nil {
		return "", "", err
	}
	token = strings.TrimSpace(token)
	return filepath.Join(s.dir, "alice", "kubeconfig"), token, s.userConfig("alice", token)
}

// console opens the console as the administrator and as alice, and checks the visible traces.
func (s *session) console(ctx context.Context) error {
	alice, _, err := s.alice(ctx)
	if err != nil {
		return err
	}
	const traces = "/apis/gatehouse.dev/v1alpha1/%sadmissiontraces%s"
	for kubeconfig, want := range map[string]map[string]int{
		s.kubeconfig: {fmt.Sprintf(traces, "", "?limit=5"): http.StatusOK, fmt.Sprintf(traces, "namespaces/bank/", ""): http.StatusOK},
		alice:        {fmt.Sprintf(traces, "", ""): http.StatusForbidden, fmt.Sprintf(traces, "namespaces/bank/", ""): http.StatusForbidden, fmt.Sprintf(traces, "namespaces/shop/", ""): http.StatusOK},
	} {
		if err := s.open(ctx, kubeconfig, func(get func(path string) (*http.Response, error)) error {
			for path, code := range want {
				res, err := get(path)
				if err != nil {
					return err
				}
				res.Body.Close()
				if res.StatusCode != code {
					return fmt.Errorf("the console answers %s with %s, want %d", path, res.Status, code)
				}
			}
			// The page of the console watches the traces.
			res, err := get(fmt.Sprintf(traces, "namespaces/shop/", "?watch=true"))
			if err != nil {
				return err
			}
			defer res.Body.Close()
			if _, err := s.kubectl(ctx, "", "create", "configmap", "seen", "-n", "shop", "--dry-run=server"); err != nil {
				return err
			}
			for lines := bufio.NewScanner(res.Body); lines.Scan(); {
				if strings.Contains(lines.Text(), `"seen"`) {
					return nil
				}
			}
			return errors.New("the console shows no new trace")
		}); err != nil {
			return err
		}
	}
	fmt.Println("gatehouse console shows the traces, to alice only the traces of her namespace, and new ones as they come")
	return nil
}

// open runs gatehouse console, and calls use with a function that reads from it.
func (s *session) open(ctx context.Context, kubeconfig string, use func(func(path string) (*http.Response, error)) error) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, s.program, "console", "--no-browser", "--kubeconfig", kubeconfig)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	defer func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}()
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		return err
	}
	parts := regexp.MustCompile(`(http://[^/]+)/console/#token=(\S+)`).FindStringSubmatch(line)
	if parts == nil {
		return fmt.Errorf("gatehouse console says %q", line)
	}
	res, err := do(ctx, http.MethodPost, parts[1]+"/console/session", "", fmt.Sprintf(`{"token":%q}`, parts[2]))
	if err != nil {
		return err
	}
	defer res.Body.Close()
	var answer struct{ Session string }
	if err := json.NewDecoder(res.Body).Decode(&answer); err != nil {
		return err
	}
	return use(func(path string) (*http.Response, error) {
		return do(ctx, http.MethodGet, parts[1]+path, answer.Session, "")
	})
}

func do(ctx context.Context, method, url, token, body string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	return http.DefaultClient.Do(req)
}

// own reads traces at the address of each agent with the token of alice.
func (s *session) own(ctx context.Context) error {
	_, token, err := s.alice(ctx)
	if err != nil {
		return err
	}
	for i, port := range s.ports {
		config := clientcmdapi.NewConfig()
		config.Clusters["agent"] = &clientcmdapi.Cluster{Server: fmt.Sprintf("https://127.0.0.1:%d", port), CertificateAuthority: filepath.Join(s.dir, "agent", "ca.crt")}
		config.AuthInfos["alice"] = &clientcmdapi.AuthInfo{Token: token}
		config.Contexts["agent"] = &clientcmdapi.Context{Cluster: "agent", AuthInfo: "alice", Namespace: "shop"}
		config.CurrentContext = "agent"
		path := filepath.Join(s.dir, fmt.Sprintf("agent-%d", i))
		if err := clientcmd.WriteToFile(*config, path); err != nil {
			return err
		}
		// Each agent has all traces, although the API server sends its events to one of them.
		out, err := s.gatehouse(ctx, "trace", "--kubeconfig", path)
		if err != nil || !strings.Contains(out, "pods web") {
			return fmt.Errorf("at the address of agent %d alice sees %s: %w", i, out, err)
		}
		if out, err := s.gatehouse(ctx, "trace", "-n", "bank", "--kubeconfig", path); err == nil || !strings.Contains(err.Error(), "forbidden") {
			return fmt.Errorf("at the address of agent %d alice sees %s: %w", i, out, err)
		}
	}
	fmt.Printf("at the addresses of %d agents alice sees the traces of her namespace, by her token, and no others\n", len(s.ports))
	return nil
}

// namespace deletes namespaces with the agents, without them, and without the APIService.
func (s *session) namespace(ctx context.Context) error {
	client, err := kubernetes.NewForConfig(s.Config)
	if err != nil {
		return err
	}
	remove := func(name string, patience time.Duration) (gone bool, last string, took time.Duration, err error) {
		if _, err := s.kubectl(ctx, "", "create", "namespace", name); err != nil {
			return false, "", 0, err
		}
		if _, err := s.kubectl(ctx, "", "create", "configmap", "left", "-n", name); err != nil {
			return false, "", 0, err
		}
		if err := client.CoreV1().Namespaces().Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
			return false, "", 0, err
		}
		begin := time.Now()
		last, gone, err = s.await(ctx, client, name, patience)
		return gone, last, time.Since(begin), err
	}
	gone, last, took, err := remove("with", time.Minute)
	if err != nil || !gone {
		return fmt.Errorf("a namespace does not end with the agents: %s: %w", last, err)
	}
	fmt.Printf("with the agents, a namespace ends after %s\n", took.Round(100*time.Millisecond))
	s.kill()
	// The API server detects this within 30 s.
	if err := eventually(ctx, "the APIService is unavailable", func() error {
		out, err := s.kubectl(ctx, "", "get", "apiservice", "v1alpha1.gatehouse.dev", "-o", `jsonpath={.status.conditions[?(@.type=="Available")].status}`)
		if err == nil && out != "False" {
			err = errors.New(out)
		}
		return err
	}); err != nil {
		return err
	}
	gone, last, _, err = remove("without", 45*time.Second)
	if err != nil || gone {
		return fmt.Errorf("a namespace ends without the agents: %t %w", gone, err)
	}
	if !strings.Contains(last, "NamespaceDeletionDiscoveryFailure") || !strings.Contains(last, "gatehouse.dev") {
		return fmt.Errorf("the namespace without agents has the conditions %s", last)
	}
	if _, err := s.kubectl(ctx, "", "get", "configmap", "left", "-n", "without"); err == nil || !strings.Contains(err.Error(), "not found") {
		return fmt.Errorf("an object of the namespace is left: %w", err)
	}
	fmt.Println("without the agents, a namespace loses its objects, and stays 45 s and more:", last)
	if err := s.start(ctx); err != nil {
		return err
	}
	begin := time.Now()
	if last, gone, err = s.await(ctx, client, "without", 3*time.Minute); err != nil || !gone {
		return fmt.Errorf("it does not end with the agents: %s %w", last, err)
	}
	fmt.Printf("with the agents again, it ends after %s\n", time.Since(begin).Round(time.Second))
	s.kill()
	service, err := s.kubectl(ctx, "", "get", "apiservice", "v1alpha1.gatehouse.dev", "-o", "yaml")
	if err != nil {
		return err
	}
	if _, err := s.kubectl(ctx, "", "delete", "apiservice", "v1alpha1.gatehouse.dev"); err != nil {
		return err
	}
	if gone, last, took, err = remove("left-out", 3*time.Minute); err != nil || !gone {
		return fmt.Errorf("it does not end without the APIService: %s %w", last, err)
	}
	fmt.Printf("without the agents and the APIService, a namespace ends after %s\n", took.Round(100*time.Millisecond))
	if err := s.start(ctx); err != nil {
		return err
	}
	_, err = s.kubectl(ctx, regexp.MustCompile(`(?m)^  (resourceVersion|uid|creationTimestamp): .*\n`).ReplaceAllString(service, ""), "apply", "-f", "-")
	return err
}

// await waits until a namespace is deleted. last lists the conditions that delay the deletion.
func (s *session) await(ctx context.Context, client kubernetes.Interface, name string, patience time.Duration) (last string, gone bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		ns, err := client.CoreV1().Namespaces().List(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + name})
		switch {
		case ctx.Err() != nil:
			return last, false, nil
		case err != nil:
			return last, false, err
		case len(ns.Items) == 0:
			return last, true, nil
		}
		var holds []string
		for _, c := range ns.Items[0].Status.Conditions {
			if c.Status == "True" {
				holds = append(holds, fmt.Sprintf("%s: %s", c.Type, c.Message))
			}
		}
		last = strings.Join(holds, "; ")
		select {
		case <-tick.C:
		case <-ctx.Done():
			return last, false, nil
		}
	}
}

// creates compares the CPU time of kube-apiserver for a create in two setups: with an audit webhook to the agents and
// an APIService, and with only an audit webhook that answers immediately. Blocks of creates alternate.
func (s *session) creates(ctx context.Context) error {
	sink := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer sink.Close()
	kubeconfig := clientcmdapi.NewConfig()
	kubeconfig.Clusters["sink"] = &clientcmdapi.Cluster{Server: sink.URL, InsecureSkipTLSVerify: true}
	kubeconfig.Contexts["sink"] = &clientcmdapi.Context{Cluster: "sink"}
	kubeconfig.CurrentContext = "sink"
	path := filepath.Join(s.dir, "sink.yaml")
	if err := clientcmd.WriteToFile(*kubeconfig, path); err != nil {
		return err
	}
	other, err := peer.Start(ctx, s.binaries, peer.KubeAPIServer, filepath.Join(s.dir, "other"), "--audit-webhook-config-file="+path,
		"--audit-policy-file="+filepath.Join(s.dir, "pki", "audit-policy.yaml"), "--audit-webhook-batch-max-wait=500ms")
	if err != nil {
		return err
	}
	defer func() { _ = other.Stop() }()
	const block = 300
	kinds := []struct {
		name   string
		server *peer.Server
		each   []time.Duration
	}{{name: "with agents", server: s.Server}, {name: "without", server: other}}
	for round := range s.rounds + 1 {
		for i := range kinds {
			k := &kinds[i]
			client, err := rest.HTTPClientFor(k.server.Config)
			if err != nil {
				return err
			}
			before, err := k.server.Process.CPU()
			if err != nil {
				return err
			}
			for n := range block {
				body := fmt.Sprintf(`{"metadata":{"name":"c-%d-%d"},"spec":{"replicas":0,"selector":{"matchLabels":{"a":"b"}},"template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"c","image":"example.com/c"}]}}}}`, round, n)
				code, err := post(ctx, client, k.server.Config.Host+"/apis/apps/v1/namespaces/default/deployments", "", body)
				if err != nil || code != http.StatusCreated {
					return fmt.Errorf("a create %s: %d %w", k.name, code, err)
				}
			}
			// The events of the block are sent within a second.
			select {
			case <-time.After(1500 * time.Millisecond):
			case <-ctx.Done():
				return ctx.Err()
			}
			after, err := k.server.Process.CPU()
			if err != nil {
				return err
			}
			// The first round is a warm-up.
			if round > 0 {
				k.each = append(k.each, (after-before)/block)
			}
		}
	}
	load, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return err
	}
	for _, k := range kinds {
		sum, least, most := time.Duration(0), k.each[0], k.each[0]
		for _, d := range k.each {
			sum, least, most = sum+d, min(least, d), max(most, d)
		}
		fmt.Printf("CPU of kube-apiserver for a create of a Deployment, %s: %s, from %s to %s in %d rounds of %d\n", k.name,
			(sum / time.Duration(len(k.each))).Round(10*time.Microsecond), least.Round(10*time.Microsecond), most.Round(10*time.Microsecond), len(k.each), block)
	}
	fmt.Printf("load of the machine %s", load)
	return nil
}
