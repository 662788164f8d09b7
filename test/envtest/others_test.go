package envtest

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	mathrand "math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/gatehouse-dev/gatehouse/test/harness"
	"github.com/gatehouse-dev/gatehouse/test/speed"
)

// suite contains a library's parameters of the programs that it starts.
type suite struct {
	dir                             string
	etcdClient, etcdPeer, apiserver string
	ca, client                      *certificate
}

// library describes how a test library starts and probes the programs. {dir} and other names in braces are
// fields of suite.
type library struct {
	name            string
	etcd, apiserver []string
	etcdHealth      string
	ready           string
	// anonymous probes have no client certificate and do not verify the server's.
	anonymous bool
	// interval is the interval of probes.
	interval time.Duration
	// stop is the signal that ends the programs.
	stop syscall.Signal
}

// Source: fabric8 kubernetes-client, kube-api-test (EtcdProcess, KubeAPIServerProcess and
// its defaults); envtest-js; as of summer 2026.
var libraries = []library{
	{
		name: "kube-api-test for Java",
		etcd: []string{
			"--data-dir", "{dir}/etcd", "--listen-client-urls", "http://0.0.0.0:{etcdClient}", "--advertise-client-urls", "http://0.0.0.0:{etcdClient}",
			"--initial-cluster", "default=http://localhost:{etcdPeer}", "--initial-advertise-peer-urls", "http://localhost:{etcdPeer}",
			"--listen-peer-urls", "http://localhost:{etcdPeer}",
		},
		apiserver: []string{
			"--cert-dir", "{dir}", "--secure-port", "{apiserver}", "--etcd-servers", "http://0.0.0.0:{etcdClient}", "--authorization-mode", "RBAC",
			"--service-account-issuer", "https://localhost", "--service-account-signing-key-file", "{dir}/sa.key", "--service-account-key-file", "{dir}/sa.crt",
			"--service-account-signing-key-file", "{dir}/sa.key", "--service-account-issuer", "https://localhost",
			"--disable-admission-plugins", "ServiceAccount", "--client-ca-file", "{dir}/ca.crt", "--service-cluster-ip-range", "10.0.0.0/24", "--allow-privileged",
		},
		etcdHealth: "http://localhost:{etcdClient}/health", ready: "https://127.0.0.1:{apiserver}/readyz",
		interval: 200 * time.Millisecond, stop: syscall.SIGKILL,
	},
	{
		name: "envtest-js",
		etcd: []string{
			"--data-dir={dir}/etcd", "--listen-client-urls=http://127.0.0.1:{etcdClient}", "--advertise-client-urls=http://127.0.0.1:{etcdClient}",
			"--listen-peer-urls=http://127.0.0.1:{etcdPeer}", "--unsafe-no-fsync=true",
		},
		apiserver: []string{
			"--etcd-servers=http://127.0.0.1:{etcdClient}", "--cert-dir={dir}", "--secure-port={apiserver}", "--bind-address=127.0.0.1",
			"--advertise-address=127.0.0.1", "--tls-cert-file={dir}/apiserver.crt", "--tls-private-key-file={dir}/apiserver.key",
			"--client-ca-file={dir}/ca.crt", "--authorization-mode=RBAC", "--disable-admission-plugins=ServiceAccount",
			"--service-cluster-ip-range=10.0.0.0/24", "--allow-privileged=true", "--service-account-issuer=https://127.0.0.1:{apiserver}/",
			"--service-account-key-file={dir}/sa.crt", "--service-account-signing-key-file={dir}/sa.key",
		},
		etcdHealth: "http://127.0.0.1:{etcdClient}/health", ready: "https://127.0.0.1:{apiserver}/readyz",
		interval: 100 * time.Millisecond, stop: syscall.SIGTERM,
	},
	{
		name: "what operators add to envtest for Go",
		etcd: []string{
			"--advertise-client-urls=http://127.0.0.1:{etcdClient}", "--data-dir={dir}/etcd", "--listen-client-urls=http://127.0.0.1:{etcdClient}",
			"--listen-peer-urls=http://127.0.0.1:{etcdPeer}", "--unsafe-no-fsync=true",
		},
		apiserver: []string{
			"--etcd-servers=http://127.0.0.1:{etcdClient}", "--cert-dir={dir}", "--secure-port={apiserver}", "--bind-address=127.0.0.1",
			"--client-ca-file={dir}/ca.crt", "--authorization-mode=Node,RBAC", "--disable-admission-plugins=ServiceAccount",
			"--service-cluster-ip-range=10.0.0.0/24,fd00::/108", "--allow-privileged=true",
			"--enable-admission-plugins=AlwaysPullImages,ValidatingAdmissionWebhook", "--feature-gates=AllAlpha=false,kube:AllBeta=true",
			"--runtime-config=api/all=true", "--runtime-config=admissionregistration.k8s.io/v1beta1=true", "--service-node-port-range=30000-30010",
			"--audit-log-path={dir}/audit.log", "--goaway-chance=0.01", "--profiling", "-v=0", "--max-requests-inflight=100",
		},
		etcdHealth: "http://127.0.0.1:{etcdClient}/health", ready: "https://127.0.0.1:{apiserver}/healthz", anonymous: true,
		interval: 100 * time.Millisecond, stop: syscall.SIGTERM,
	},
}

// Other test libraries also start Gatehouse with their own command lines, detect its readiness with their own
// probes, and find their data again after a kill.
func TestCommandLinesOfTestLibraries(t *testing.T) {
	programs := assets(t)
	for _, l := range speed.Some(t, 1, libraries) {
		t.Run(l.name, func(t *testing.T) {
			t.Parallel()
			s := newSuite(t)
			for round := range 2 {
				etcd := s.run(t, filepath.Join(programs, "etcd"), l.etcd)
				// The library with the strictest check of the response.
				if body := s.await(t, etcd, l, l.etcdHealth); !strings.Contains(body, `"health":"true"`) {
					t.Errorf("etcd's health is %q", body)
				}
				server := s.run(t, filepath.Join(programs, "kube-apiserver"), l.apiserver)
				s.await(t, server, l, l.ready)
				kubectl := func(args ...string) {
					t.Helper()
					cmd := exec.CommandContext(harness.Context(t), filepath.Join(programs, "kubectl"), append([]string{"--kubeconfig", s.kubeconfig(t)}, args...)...)
					if out, err := cmd.CombinedOutput(); err != nil {
						t.Errorf("kubectl %q: %v\n%s", args, err, out)
					}
				}
				kubectl("get", "ns", "default")
				if round == 0 {
					kubectl("create", "configmap", "kept")
				} else {
					kubectl("get", "configmap", "kept")
				}
				for _, p := range []*program{server, etcd} {
					p.end(t, l.stop)
				}
			}
		})
	}
}

func newSuite(t *testing.T) *suite {
	t.Helper()
	s := &suite{dir: t.TempDir()}
	for _, port := range []*string{&s.etcdClient, &s.etcdPeer, &s.apiserver} {
		*port = freePort(t)
	}
	s.ca = newCertificate(t, "ca", nil, s.ca)
	s.client = newCertificate(t, "tester", []string{"system:masters"}, s.ca)
	for name, c := range map[string]*certificate{
		"ca": s.ca, "client": s.client, "sa": newCertificate(t, "sa-signer", nil, nil), "apiserver": newCertificate(t, "localhost", nil, s.ca),
	} {
		for suffix, data := range map[string][]byte{".crt": c.cert, ".key": c.key} {
			if err := os.WriteFile(filepath.Join(s.dir, name+suffix), data, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	return s
}

func (s *suite) fill(text string) string {
	return strings.NewReplacer("{dir}", s.dir, "{etcdClient}", s.etcdClient, "{etcdPeer}", s.etcdPeer, "{apiserver}", s.apiserver).Replace(text)
}

// program is a process started by a library.
type program struct {
	cmd  *exec.Cmd
	log  strings.Builder
	done chan error
}

func (s *suite) run(t *testing.T, path string, args []string) *program {
	t.Helper()
	filled := make([]string, len(args))
	for i, arg := range args {
		filled[i] = s.fill(arg)
	}
	p := &program{cmd: exec.Command(path, filled...), done: make(chan error, 1)}
	p.cmd.Stdout, p.cmd.Stderr = io.Discard, &p.log
	p.cmd.Env = append(os.Environ(), "TMPDIR="+s.dir)
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { p.done <- p.cmd.Wait() }()
	t.Cleanup(func() {
		if p.done != nil {
			_ = p.cmd.Process.Kill()
			<-p.done
		}
	})
	return p
}

func (p *program) end(t *testing.T, signal syscall.Signal) {
	t.Helper()
	if err := p.cmd.Process.Signal(signal); err != nil {
		t.Error(err)
	}
	select {
	case <-p.done:
	case <-time.After(60 * time.Second):
		t.Fatalf("%s did not end within a minute of %s", p.cmd.Path, signal)
	}
	p.done = nil
}

// await probes a URL like the library until the code is 200, and returns the response.
func (s *suite) await(t *testing.T, p *program, l library, url string) string {
	t.Helper()
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: l.anonymous}}
	if !l.anonymous {
		pair, err := tls.X509KeyPair(s.client.cert, s.client.key)
		if err != nil {
			t.Fatal(err)
		}
		transport.TLSClientConfig.Certificates = []tls.Certificate{pair}
		transport.TLSClientConfig.RootCAs = x509.NewCertPool()
		transport.TLSClientConfig.RootCAs.AppendCertsFromPEM(s.ca.cert)
	}
	defer transport.CloseIdleConnections()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	for last := error(nil); ; {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, s.fill(url), nil)
		if err != nil {
			t.Fatal(err)
		}
		response, err := (&http.Client{Transport: transport}).Do(request)
		if err == nil {
			body, _ := io.ReadAll(response.Body)
			response.Body.Close()
			if response.StatusCode == http.StatusOK {
				return string(body)
			}
			err = fmt.Errorf("%s: %s", response.Status, body)
		}
		if ctx.Err() == nil {
			last = err
		}
		select {
		case err := <-p.done:
			p.done = nil
			t.Fatalf("%s ended: %v\n%s", p.cmd.Path, err, p.log.String())
		case <-ctx.Done():
			t.Fatalf("%s does not get ready: %v", s.fill(url), last)
		case <-time.After(l.interval):
		}
	}
}

func (s *suite) kubeconfig(t *testing.T) string {
	t.Helper()
	c := clientcmdapi.NewConfig()
	c.Clusters["test"] = &clientcmdapi.Cluster{Server: "https://127.0.0.1:" + s.apiserver, CertificateAuthorityData: s.ca.cert}
	c.AuthInfos["test"] = &clientcmdapi.AuthInfo{ClientCertificateData: s.client.cert, ClientKeyData: s.client.key}
	c.Contexts["test"] = &clientcmdapi.Context{Cluster: "test", AuthInfo: "test"}
	c.CurrentContext = "test"
	path := filepath.Join(s.dir, "kubeconfig")
	if err := clientcmd.WriteToFile(*c, path); err != nil {
		t.Fatal(err)
	}
	return path
}

// certificate contains a certificate and its key, in PEM.
type certificate struct {
	cert, key []byte
	parsed    *x509.Certificate
	signer    *ecdsa.PrivateKey
}

func newCertificate(t *testing.T, name string, groups []string, ca *certificate) *certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: name, Organization: groups},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		KeyUsage:              x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
		BasicConstraintsValid: true, IsCA: ca == nil,
		DNSNames: []string{"localhost"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	parent, signer := template, key
	if ca != nil {
		parent, signer = ca.parsed, ca.signer
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return &certificate{
		cert:   pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		key:    pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER}),
		parsed: parsed, signer: key,
	}
}

// suggested contains the ports that freePort has returned.
var suggested sync.Map

// freePort returns an unused port outside the ephemeral range: otherwise an outgoing connection of the
// programs could take the port before they listen.
func freePort(t *testing.T) string {
	t.Helper()
	for range 100 {
		port := strconv.Itoa(20000 + mathrand.IntN(10000))
		if _, again := suggested.LoadOrStore(port, true); again {
			continue
		}
		if l, err := net.Listen("tcp", "127.0.0.1:"+port); err == nil {
			l.Close()
			return port
		}
	}
	t.Fatal("no port is free")
	return ""
}
