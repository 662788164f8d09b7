package main

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/big"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/keyutil"

	"github.com/gatehouse-dev/gatehouse/bench/internal/peer"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	s := &session{}
	binaries := flag.String("binaries", "", "`directory` of the programs (default: in the user's cache)")
	only := flag.String("steps", "read,console,own,watch,namespace,kill,load,creates", "the steps, one after the other")
	flag.StringVar(&s.helm, "helm", "", "`path` of Helm's program (default: it is built)")
	flag.IntVar(&s.kills, "kills", 20, "how often the agents are killed while requests are made")
	flag.IntVar(&s.rate, "rate", 2000, "events that are sent in a second")
	flag.DurationVar(&s.load, "load", time.Minute, "how long they are sent")
	flag.IntVar(&s.replicas, "replicas", 2, "how many agents run")
	flag.IntVar(&s.rounds, "rounds", 8, "how often blocks of creates are made with the agent, and without")
	flag.Parse()
	if err := s.run(ctx, *binaries, strings.Split(*only, ",")); err != nil {
		fmt.Fprintln(os.Stderr, "agent:", err)
		os.Exit(1)
	}
}

// session is a kube-apiserver with agents.
type session struct {
	kills, rate, replicas, rounds int
	load                          time.Duration
	helm                          string

	*peer.Server
	binaries                 peer.Binaries
	program, dir, kubeconfig string
	// ports are the ports of the agents. The API server sends events to the first agent, and requests traces from the
	// last one.
	ports  []int
	agents []*exec.Cmd
	// args are the flags of the agents in the chart.
	args []string
}

func (s *session) run(ctx context.Context, binaries string, only []string) (err error) {
	if s.binaries, err = peer.Build(ctx, ".", binaries); err != nil {
		return err
	}
	manager := ""
	if slices.Contains(only, "namespace") {
		if manager, err = peer.BuildControllerManager(ctx, ".", binaries); err != nil {
			return err
		}
	}
	s.program = s.binaries.Gatehouse
	if s.dir, err = os.MkdirTemp("", "agent-"); err != nil {
		return err
	}
	defer os.RemoveAll(s.dir)
	for range s.replicas {
		port, err := peer.FreePort()
		if err != nil {
			return err
		}
		s.ports = append(s.ports, port)
	}
	s.agents = make([]*exec.Cmd, s.replicas)
	commands, err := s.prepare(ctx)
	if err != nil {
		return err
	}
	front, frontKey, err := frontProxy(s.dir)
	if err != nil {
		return err
	}
	dir := filepath.Join(s.dir, "kube-apiserver")
	flags := append([]string{
		"--audit-webhook-batch-max-wait=500ms", "--audit-webhook-initial-backoff=500ms",
		"--client-ca-file=" + front, "--requestheader-client-ca-file=" + front, "--requestheader-allowed-names=front", "--requestheader-username-headers=X-Remote-User",
		"--requestheader-group-headers=X-Remote-Group", "--requestheader-extra-headers-prefix=X-Remote-Extra-",
		"--proxy-client-cert-file=" + front, "--proxy-client-key-file=" + frontKey,
	}, commands.flags...)
	if s.Server, err = peer.Start(ctx, s.binaries, peer.KubeAPIServer, dir, flags...); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Stop()) }()
	if s.kubeconfig, err = s.WriteKubeconfig(s.dir); err != nil {
		return err
	}
	if manager != "" {
		if err := s.StartNamespaceControllers(manager, dir); err != nil {
			return err
		}
	}
	defer s.kill()
	if err := s.install(ctx, commands); err != nil {
		return err
	}
	for _, step := range []struct {
		name string
		run  func(context.Context) error
	}{
		{"read", s.read}, {"console", s.console}, {"own", s.own}, {"watch", s.watch}, {"namespace", s.namespace}, {"kill", s.killing}, {"load", s.generate}, {"creates", s.creates},
	} {
		if !slices.Contains(only, step.name) {
			continue
		}
		if err := step.run(ctx); err != nil {
			return fmt.Errorf("%s: %w", step.name, err)
		}
	}
	return nil
}

// gatehouse runs a command, with a timeout of two minutes.
func (s *session) gatehouse(ctx context.Context, args ...string) (string, error) {
	return s.with(ctx, "", args...)
}

func (s *session) with(ctx context.Context, input string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, s.program, args...)
	var notes bytes.Buffer
	cmd.Stdin, cmd.Stderr = strings.NewReader(input), &notes
	out, err := cmd.Output()
	if err != nil {
		return string(out), fmt.Errorf("gatehouse %s: %w: %s", strings.Join(args, " "), err, notes.Bytes())
	}
	return string(out), nil
}

// kubectl runs kubectl as the administrator.
func (s *session) kubectl(ctx context.Context, input string, args ...string) (string, error) {
	return s.with(ctx, input, append([]string{"kubectl", "--kubeconfig", s.kubeconfig}, args...)...)
}

// eventually repeats try until it returns no error, for up to a minute.
func eventually(ctx context.Context, what string, try func() error) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	tick := time.NewTicker(500 * time.Millisecond)
	defer tick.Stop()
	for {
		err := try()
		if err == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("%s: %w", what, err)
		}
	}
}

// read reads the traces through kube-apiserver, as the administrator and as alice.
func (s *session) read(ctx context.Context) error {
	for _, namespace := range []string{"shop", "bank"} {
		if _, err := s.kubectl(ctx, "", "create", "configmap", "good", "-n", namespace); err != nil {
			return err
		}
		if _, err := s.kubectl(ctx, "", "create", "configmap", "bad", "-n", namespace, "--from-literal=x=1"); err == nil {
			return errors.New("a ConfigMap with x is made")
		}
	}
	if _, err := s.kubectl(ctx, "", "create", "secret", "generic", "s", "-n", "shop", "--from-literal=password=hunter2-hunter2"); err != nil {
		return err
	}
	var all string
	err := eventually(ctx, "the traces are there", func() (err error) {
		if all, err = s.gatehouse(ctx, "trace", "-A", "--kubeconfig", s.kubeconfig); err == nil && (strings.Count(all, "configmaps good") < 2 || strings.Count(all, "configmaps bad") < 2) {
			err = fmt.Errorf("gatehouse trace -A shows %s", all)
		}
		return err
	})
	if err != nil {
		return err
	}
	fmt.Print("gatehouse trace -A:\n", all)
	for _, q := range []struct {
		args          []string
		shows, hides  string
		mayNotBeAsked bool
	}{
		{args: []string{"kubectl", "get", "admissiontraces", "-A"}, shows: "Denied"},
		{args: []string{"kubectl", "get", "admissiontraces", "-n", "shop", "--as", "alice"}, shows: "configmaps bad", hides: "bank"},
		{args: []string{"kubectl", "get", "admissiontraces", "-n", "bank", "--as", "alice"}, mayNotBeAsked: true},
		{args: []string{"kubectl", "get", "admissiontraces", "-A", "--as", "alice"}, mayNotBeAsked: true},
		{args: []string{"kubectl", "get", "admissiontraces", "-A", "-o", "yaml"}, shows: "no-x", hides: "hunter2"},
		{args: []string{"kubectl", "explain", "admissiontraces.audit"}, shows: "rejectedBy"},
		{args: []string{"trace", "--outcome", "Denied", "-n", "shop"}, shows: "configmaps bad", hides: "good"},
		{args: []string{"blame", "configmap/good", "-n", "shop"}},
	} {
		text, err := s.gatehouse(ctx, append(q.args, "--kubeconfig", s.kubeconfig)...)
		switch {
		case q.mayNotBeAsked && (err == nil || !strings.Contains(err.Error(), "forbidden")):
			return fmt.Errorf("%s is answered: %s %w", q.args, text, err)
		case q.mayNotBeAsked:
		case err != nil:
			return err
		case !strings.Contains(text, q.shows), q.hides != "" && strings.Contains(text, q.hides):
			return fmt.Errorf("%s shows %s", q.args, text)
		}
	}
	fmt.Println("the administrator sees all traces, alice only the traces of her namespace, and neither sees the values of a Secret")
	return nil
}

// killing kills the agent while requests are sent.
func (s *session) killing(ctx context.Context) error {
	client, err := rest.HTTPClientFor(s.Config)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var made, failed atomic.Int64
	var slowest time.Duration
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for i := 0; ctx.Err() == nil; i++ {
			begin := time.Now()
			code, err := post(context.WithoutCancel(ctx), client, s.Config.Host+"/api/v1/namespaces/shop/configmaps", "", fmt.Sprintf(`{"metadata":{"name":"k%d"}}`, i))
			slowest = max(slowest, time.Since(begin))
			if made.Add(1); code != http.StatusCreated || err != nil {
				failed.Add(1)
				fmt.Println("a request failed:", code, err)
			}
		}
	}()
	for range s.kills {
		s.kill()
		if err := s.start(ctx); err != nil {
			return err
		}
	}
	cancel()
	<-ended
	fmt.Printf("%d requests, one after the other, while the agent was killed %d times: %d failed, the slowest took %s\n", made.Load(), s.kills, failed.Load(), slowest.Round(time.Millisecond))
	if failed.Load() > 0 {
		return errors.New("requests of the cluster failed")
	}
	return nil
}

// event is the audit event of a pod's creation, at level RequestResponse.
const event = `{"kind":"Event","apiVersion":"audit.k8s.io/v1","level":"RequestResponse","auditID":"a%[1]d","stage":"ResponseComplete","requestURI":"/api/v1/namespaces/shop/pods","verb":"create","user":{"username":"system:serviceaccount:kube-system:replicaset-controller","groups":["system:serviceaccounts"]},"sourceIPs":["192.0.2.1"],"userAgent":"kube-controller-manager","objectRef":{"resource":"pods","namespace":"shop","name":"web-%[1]d","apiVersion":"v1"},"responseStatus":{"code":201},"requestObject":%[2]s,"responseObject":%[2]s,"requestReceivedTimestamp":"%[3]s","stageTimestamp":"%[3]s","annotations":{"authorization.k8s.io/decision":"allow","mutation.webhook.admission.k8s.io/round_0_index_0":"{\"configuration\":\"sidecars\",\"webhook\":\"inject.example.com\",\"mutated\":true}","patch.webhook.admission.k8s.io/round_0_index_0":"{\"configuration\":\"sidecars\",\"webhook\":\"inject.example.com\",\"patch\":[{\"op\":\"add\",\"path\":\"/metadata/labels/injected\",\"value\":\"yes\"}],\"patchType\":\"JSONPatch\"}","pod-security.kubernetes.io/enforce-policy":"privileged:latest"}}`

const pod = `{"kind":"Pod","apiVersion":"v1","metadata":{"name":"web-%d","namespace":"shop","uid":"6c1f0c6b-2a9e-4d37-8b1e-0123456789ab","creationTimestamp":"2026-01-02T03:04:05Z","labels":{"app":"web","pod-template-hash":"abc"},"ownerReferences":[{"apiVersion":"apps/v1","kind":"ReplicaSet","name":"web","uid":"0c1f0c6b-2a9e-4d37-8b1e-0123456789ab","controller":true}]},"spec":{"volumes":[{"name":"token","projected":{"sources":[{"serviceAccountToken":{"expirationSeconds":3607,"path":"token"}}],"defaultMode":420}}],"containers":[{"name":"c","image":"example.com/image:1","resources":{"limits":{"memory":"1Gi"},"requests":{"cpu":"100m"}},"volumeMounts":[{"name":"token","readOnly":true,"mountPath":"/var/run/secrets/kubernetes.io/serviceaccount"}],"terminationMessagePath":"/dev/termination-log","imagePullPolicy":"IfNotPresent"}],"restartPolicy":"Always","terminationGracePeriodSeconds":30,"dnsPolicy":"ClusterFirst","serviceAccountName":"default","securityContext":{},"schedulerName":"default-scheduler","tolerations":[{"key":"node.kubernetes.io/not-ready","operator":"Exists","effect":"NoExecute","tolerationSeconds":300}],"priority":0,"enableServiceLinks":true},"status":{"phase":"Pending","qosClass":"Burstable"}}`

// generate sends events at a fixed rate, and measures the CPU and memory of the agent.
func (s *session) generate(ctx context.Context) error {
	credentials := filepath.Join(s.dir, "agent")
	ca, err := os.ReadFile(filepath.Join(credentials, "ca.crt"))
	if err != nil {
		return err
	}
	token, err := os.ReadFile(filepath.Join(credentials, "audit-token"))
	if err != nil {
		return err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca)
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}}}
	defer client.CloseIdleConnections()
	pid := s.agents[0].Process.Pid
	before, err := cpu(pid)
	if err != nil {
		return err
	}
	begin, sent, refused, size := time.Now(), 0, 0, 0
	most := int64(0)
	const batch = 400
	tick := time.NewTicker(time.Second * batch / time.Duration(s.rate))
	defer tick.Stop()
	for time.Since(begin) < s.load {
		var b strings.Builder
		b.WriteString(`{"kind":"EventList","apiVersion":"audit.k8s.io/v1","items":[`)
		for i := range batch {
			if i > 0 {
				b.WriteByte(',')
			}
			fmt.Fprintf(&b, event, sent+i, fmt.Sprintf(pod, sent+i), time.Now().UTC().Format("2006-01-02T15:04:05.000000Z"))
		}
		b.WriteString("]}")
		size += b.Len()
		code, err := post(ctx, client, fmt.Sprintf("https://127.0.0.1:%d/audit", s.ports[0]), strings.TrimSpace(string(token)), b.String())
		if err != nil {
			return err
		}
		if sent += batch; code != http.StatusOK {
			refused++
		}
		own, _, err := memory(pid)
		if err != nil {
			return err
		}
		most = max(most, own)
		<-tick.C
	}
	took := time.Since(begin)
	after, err := cpu(pid)
	if err != nil {
		return err
	}
	_, all, err := memory(pid)
	if err != nil {
		return err
	}
	load, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("https://127.0.0.1:%d/metrics", s.ports[0]), nil)
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer "+peer.Token)
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	metrics, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(metrics)) {
		if strings.HasPrefix(line, "gatehouse_agent_") {
			fmt.Print(line)
		}
	}
	fmt.Printf("%d events of %d bytes in %s (%.0f/s), %d batches refused: %.2f cores, %d MiB of memory at most, and %d MiB with pages of the program's file; load of the machine %s", sent, size/sent, took.Round(time.Second),
		float64(sent)/took.Seconds(), refused, (after-before).Seconds()/took.Seconds(), most>>20, all>>20, load)
	return nil
}

// post sends a body, and returns the code of the answer.
func post(ctx context.Context, client *http.Client, url, token, body string) (int, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		return 0, err
	}
	req.Header.Set("Content-Type", "application/json")
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := client.Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode, err
}

// cpu returns the CPU time that a process has used.
func cpu(pid int) (time.Duration, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	fields := strings.Fields(string(data[bytes.LastIndexByte(data, ')')+1:]))
	var sum time.Duration
	for _, field := range fields[11:13] {
		ticks, err := strconv.Atoi(field)
		if err != nil {
			return 0, err
		}
		sum += time.Duration(ticks) * 10 * time.Millisecond
	}
	return sum, nil
}

// memory returns the resident memory of a process in bytes: own without pages of files, all with them.
func memory(pid int) (own, all int64, err error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, 0, err
	}
	for line := range strings.Lines(string(data)) {
		for name, to := range map[string]*int64{"RssAnon:": &own, "VmRSS:": &all} {
			if rest, ok := strings.CutPrefix(line, name); ok {
				if _, err := fmt.Sscan(rest, to); err != nil {
					return 0, 0, err
				}
				*to <<= 10
			}
		}
	}
	return own, all, nil
}

// frontProxy writes the self-signed client certificate of kube-apiserver for the agent.
func frontProxy(dir string) (cert, key string, err error) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return "", "", err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "front"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
		IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		return "", "", err
	}
	secret, err := keyutil.MarshalPrivateKeyToPEM(private)
	if err != nil {
		return "", "", err
	}
	cert, key = filepath.Join(dir, "front.crt"), filepath.Join(dir, "front.key")
	return cert, key, errors.Join(
		os.WriteFile(cert, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600), os.WriteFile(key, secret, 0o600))
}
