package operations

import (
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/gatehouse-dev/gatehouse/test/harness"
	"github.com/gatehouse-dev/gatehouse/test/speed"
)

// machines are the three machines of the page, each with its directory, etcd member and server. They have
// loopback addresses.
type machines struct {
	t testing.TB
	// one is the administrator of the first machine, with the names of the page.
	one     *harness.Administrator
	network string
	// balancer is the address for clients: HAProxy, or the second server if HAProxy is not installed.
	balancer string
	members  [3]func()
	servers  [3]func()
	existing *harness.Server
}

// at returns the administrator of machine i, counted from 0.
func (m *machines) at(i int) *harness.Administrator {
	n, letter := fmt.Sprint(i+1), string(rune('a'+i))
	address := m.network + n
	other := *m.one
	other.Dir = filepath.Join(m.one.Dir, letter)
	if err := os.MkdirAll(other.Dir, 0o700); err != nil {
		m.t.Fatal(err)
	}
	return other.On(
		// This flag contains all members.
		"--initial-cluster a=https://10.0.0.1:2380,b=https://10.0.0.2:2380,c=https://10.0.0.3:2380",
		strings.ReplaceAll("--initial-cluster a=https://10.0.0.1:2380,b=https://10.0.0.2:2380,c=https://10.0.0.3:2380", "10.0.0.", m.network),
		"--etcd-servers https://10.0.0.1:2379,https://10.0.0.2:2379,https://10.0.0.3:2379",
		strings.ReplaceAll("--etcd-servers https://10.0.0.1:2379,https://10.0.0.2:2379,https://10.0.0.3:2379", "10.0.0.", m.network),
		"--name a ", "--name "+letter+" ", "a.etcd", letter+".etcd", "/var/lib/gatehouse", m.data(i), "0.0.0.0", address,
		"10.0.0.1", address, "10.0.0.2", address, "balancer.example.com:6440", m.balancer,
	)
}

// data returns the data directory of the server on machine i.
func (m *machines) data(i int) string {
	if i == 0 {
		return m.existing.DataDir
	}
	return filepath.Join(m.one.Dir, string(rune('a'+i)), "data")
}

// startEtcd starts the members with the page's command and additional flags.
func (m *machines) startEtcd(flags string) {
	for i := range m.members {
		// The command ends with this flag.
		const last = "--peer-client-cert-auth"
		a := m.at(i)
		if flags != "" {
			a = a.On(last, last+" "+flags)
		}
		m.members[i] = a.Begin(m.t, "Three servers on an external etcd", "etcd --name a")
	}
}

// startServer starts the server of a machine, and waits until it is ready.
func (m *machines) startServer(i int) {
	m.servers[i] = m.at(i).Begin(m.t, "Three servers on an external etcd", "--etcd-cafile")
	m.ready(i)
}

func (m *machines) ready(i int) {
	h := m.http(i)
	harness.Eventually(m.t, fmt.Sprintf("server %d is ready", i+1), func() error {
		code, err := h.Try(harness.Context(m.t), "GET", "/readyz", "")
		if err == nil && code != http.StatusOK {
			err = fmt.Errorf("/readyz: %d", code)
		}
		return err
	})
}

// http returns a client of the server on machine i, with the credentials of the original server.
func (m *machines) http(i int) *harness.HTTP {
	s := *m.existing
	s.URL = fmt.Sprintf("https://%s%d:6443", m.network, i+1)
	s.Admin = rest.CopyConfig(s.Admin)
	s.Admin.Host = s.URL
	return s.HTTP(m.t, nil)
}

// every runs a check on every server.
func (m *machines) every(check func(h *harness.HTTP)) {
	m.t.Helper()
	for i := range m.servers {
		check(m.http(i))
	}
}

// balance starts HAProxy with the page's configuration, if it is installed.
func (m *machines) balance() {
	program, err := exec.LookPath("haproxy")
	if err != nil {
		m.t.Log("HAProxy is not installed: no balancer")
		return
	}
	m.balancer = m.network + "9:6440"
	a := m.one.On("10.0.0.", m.network, "bind :6440", "bind "+m.balancer)
	config := ""
	for _, with := range []string{"mode tcp", "default_backend", "balance leastconn"} {
		config += a.Block(m.t, "Three servers on an external etcd", with) + "\n"
	}
	a.Write(m.t, "haproxy.cfg", []byte(config))
	a.Launch(m.t, program+" -db -f haproxy.cfg")
}

// One server becomes three on an etcd of three members, with the page's commands: its objects are kept, its
// webhook is active on all servers, its kubeconfig and its tokens stay valid. Then the servers are upgraded
// one after the other, one server is killed, and etcd is backed up and restored.
func TestFromOneServerToThree(t *testing.T) {
	speed.Long(t)
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("three machines need three addresses, which the loopback of Linux has")
	}
	const section, three, backups, upgrade = "From one server to three on an external etcd", "Three servers on an external etcd", "Back up and restore", "Upgrade"
	var random [2]byte
	if _, err := rand.Read(random[:]); err != nil {
		t.Fatal(err)
	}
	m := &machines{t: t, one: harness.NewAdministrator(t), network: fmt.Sprintf("127.%d.%d.", 64+random[0]/2, random[1])}
	m.one.EtcdTools(t)
	m.balancer = m.network + "2:6443"
	m.existing = harness.StartOn(t, filepath.Join(m.one.Dir, "gatehouse.data"))
	m.one.Of(m.existing)

	// The original server, with objects that must be kept.
	in := fmt.Sprintf(configMaps, "default")
	create(t, m.existing, http.StatusCreated, in, named("before"))
	hooks := harness.NewWebhookServer(t, nil)
	register(t, m.existing, validating, "policy", hooks.Hook("/", harness.Deny(map[string]any{"message": "no"})).ClientConfig())
	create(t, m.existing, http.StatusBadRequest, in, named("denied"))
	m.existing.Stop(t)
	a := m.at(0)
	a.Follow(t, section, "backup save")
	database, err := os.ReadFile(filepath.Join(a.Dir, "etcd.db"))
	if err != nil {
		t.Fatal(err)
	}

	// Three members with the data of the original server.
	authority := harness.NewAuthority(t, "etcd")
	// Members connect to each other from 127.0.0.1, which must be in their certificates.
	cert, key := authority.Pair(t, m.network+"1", m.network+"2", m.network+"3", "127.0.0.1")
	clientCert, clientKey := authority.Pair(t, "gatehouse")
	for i := range 3 {
		a := m.at(i)
		for name, content := range map[string][]byte{
			"etcd.db": database, "ca.crt": authority.Bundle, "etcd.crt": cert, "etcd.key": key, "client.crt": clientCert, "client.key": clientKey,
		} {
			a.Write(t, name, content)
		}
		a.Follow(t, section, "etcdutl snapshot restore")
	}
	m.startEtcd("")
	for i := range 3 {
		m.startServer(i)
		m.at(i).Follow(t, section, "until gatehouse kubectl")
	}
	whole := func(h *harness.HTTP) {
		t.Helper()
		h.Get(in + "/before")
		h.Must(http.StatusBadRequest, "POST", in, named("denied"))
	}
	m.every(whole)
	out := m.at(0).Follow(t, section, "until gatehouse kubectl")
	harness.Contains(t, "the states", out, "validatingwebhookconfigurations.policy", "3/3")

	m.balance()
	// Clients reach the servers through the balancer, which has another name.
	credentials, err := os.ReadFile(m.existing.Kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	m.at(0).Write(t, "admin.kubeconfig", credentials)
	m.at(0).Follow(t, three, "config set-cluster")
	balanced := func() error {
		if r := harness.Run(t, "kubectl", "--kubeconfig", filepath.Join(m.at(0).Dir, "admin.kubeconfig"), "get", "namespaces"); r.Code != 0 {
			return errors.New(r.Err)
		}
		return nil
	}
	harness.Eventually(t, "the balancer leads to a server", balanced)

	// Each server is replaced while the others serve.
	m.http(0).Must(http.StatusOK, "DELETE", registrations+"validatingwebhookconfigurations/policy", "")
	for i := range 3 {
		m.servers[i]()
		other := m.http((i + 1) % 3)
		harness.Eventually(t, "the others serve", func() error {
			code, err := other.Try(harness.Context(t), "POST", in, named(fmt.Sprintf("without-%d", i+1)))
			if err == nil && code != http.StatusCreated {
				err = fmt.Errorf("%d", code)
			}
			return err
		})
		if m.balancer != m.network+"2:6443" {
			harness.Eventually(t, "the balancer leads to another server", balanced)
		}
		m.servers[i] = m.at(i).Begin(t, three, "--etcd-cafile")
		m.at(i).Follow(t, upgrade, "until gatehouse kubectl")
	}

	// The etcd cluster is backed up, and restored while everything is stopped.
	m.at(0).Follow(t, backups, "snapshot save")
	saved, err := os.ReadFile(filepath.Join(m.at(0).Dir, "backup.db"))
	if err != nil {
		t.Fatal(err)
	}
	m.http(1).Must(http.StatusCreated, "POST", in, named("after"))
	seen := m.http(2).Get(in).Text("metadata", "resourceVersion")
	for i := range 3 {
		m.servers[i]()
	}
	for i := range 3 {
		m.members[i]()
		m.at(i).Write(t, "backup.db", saved)
		m.at(i).Follow(t, backups, "etcdutl snapshot restore")
	}
	m.startEtcd("--initial-cluster-token restored-1")
	for i := range 3 {
		m.startServer(i)
	}
	m.every(func(h *harness.HTTP) {
		h.Get(in + "/before")
		h.Get(in + "/without-3")
		h.Must(http.StatusNotFound, "GET", in+"/after", "")
		h.Must(http.StatusGone, "GET", in+"?resourceVersionMatch=Exact&resourceVersion="+seen, "")
	})
}

// The key of service account tokens is replaced on two servers, one after the other: neither rejects a valid
// token.
func TestRotateTheKeyOfTokens(t *testing.T) {
	speed.Long(t)
	t.Parallel()
	const section = "Certificates"
	if _, err := exec.LookPath("openssl"); err != nil {
		t.Skip("openssl is not installed, which makes keys on the page")
	}
	etcd := harness.StartEtcd(t)
	var servers []*harness.Server
	for range 2 {
		servers = append(servers, harness.Start(t, "--etcd-servers", etcd.URL))
	}
	a := harness.NewAdministrator(t).On("/var/lib/gatehouse", servers[0].DataDir)
	const account = "/api/v1/namespaces/default/serviceaccounts"
	servers[0].HTTP(t, nil).Must(http.StatusCreated, "POST", account, named("robot"))
	var tokens []string
	issue := func(s *harness.Server) {
		t.Helper()
		tokens = append(tokens, s.HTTP(t, nil).Must(http.StatusCreated, "POST", account+"/robot/token", `{"spec":{}}`).Text("status", "token"))
	}
	all := func() {
		t.Helper()
		for at, s := range servers {
			for i, token := range tokens {
				if got := harness.WhoIs(t, s, token); got != "system:serviceaccount:default:robot" {
					t.Errorf("server %d takes token %d for that of %q", at, i, got)
				}
			}
		}
	}
	restart := func(section string, flags ...string) {
		t.Helper()
		if text := strings.Join(flags, " "); !strings.Contains(section, text) {
			t.Fatalf("the page does not have %q", text)
		}
		for _, s := range servers {
			issue(s)
			all()
			s.Stop(t)
			given := []string{"--etcd-servers", etcd.URL}
			for i, flag := range flags {
				if i%2 == 1 {
					flag = filepath.Join(a.Dir, flag)
				}
				given = append(given, flag)
			}
			s.Flags(given...)
			s.Restart(t)
			issue(s)
			all()
		}
	}
	page := harness.OperationsPages(t)
	a.Follow(t, section, "openssl ecparam")
	restart(page, "--service-account-key-file", "new-tokens.pub")
	old := tokens[0]
	restart(page, "--service-account-signing-key-file", "new-tokens.key", "--service-account-key-file", "old-tokens.crt")
	// Tokens of the old key have expired.
	tokens = nil
	issue(servers[0])
	restart(page, "--service-account-signing-key-file", "new-tokens.key")
	for i, s := range servers {
		if r := s.HTTP(t, s.WithToken(old)).Do("GET", "/api/v1/namespaces", ""); r.Code != http.StatusUnauthorized {
			t.Errorf("server %d answers %d to a token of the old key", i, r.Code)
		}
	}
}

// The page's commands make three servers on one machine a cluster.
func TestThreeServersOnOneMachine(t *testing.T) {
	speed.Long(t)
	t.Parallel()
	const section = "Three servers"
	var ports []string
	var listeners []net.Listener
	for range 6 {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		listeners = append(listeners, l)
		_, port, err := net.SplitHostPort(l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		ports = append(ports, port)
	}
	for _, l := range listeners {
		l.Close()
	}
	a := harness.NewAdministrator(t).On("6443", ports[0], "6444", ports[1], "6445", ports[2], "2380", ports[3], "2381", ports[4], "2382", ports[5])
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true}}
	ready := func(port string) {
		harness.Eventually(t, "the server at port "+port+" is ready", func() error {
			res, err := client.Get("https://127.0.0.1:" + port + "/readyz")
			if err != nil {
				return err
			}
			res.Body.Close()
			if res.StatusCode != http.StatusOK {
				return errors.New(res.Status)
			}
			return nil
		})
	}
	a.Begin(t, section, "--cluster --peer-address")
	ready(ports[0])
	a.Follow(t, section, "cluster token create --data-dir one")
	a.Begin(t, section, "--data-dir two")
	ready(ports[1])
	a.Begin(t, section, "--data-dir three")
	ready(ports[2])
	if out := a.Follow(t, section, "cluster status --data-dir one"); strings.Count(out, "127.0.0.1:") != 3 || strings.Contains(out, "down") {
		t.Error(out)
	}
}
