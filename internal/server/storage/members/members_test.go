package members

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/gatehouse-dev/gatehouse/internal/server/handling/keys"
	"github.com/gatehouse-dev/gatehouse/test/etcdtest"
)

// cluster is a member that servers can ask, without the rest of its server.
type cluster struct {
	t      *testing.T
	client *clientv3.Client
	pki    *keys.PKI
	peers  *keys.Peers
	url    string
}

var judging = map[string]string{"enable-admission-plugins": "A,B", "etcd-prefix": "/registry", "feature-gates": "X=true", DataFormat: "1"}

func newCluster(t *testing.T) *cluster {
	t.Helper()
	c := &cluster{t: t, client: etcdtest.Start(t).Client}
	dir := t.TempDir()
	var err error
	if c.pki, err = keys.LoadPKI(t.Context(), keys.Files{}, dir, nil, nil); err != nil {
		t.Fatal(err)
	}
	c.peers = keys.NewPeers(keys.Files{}, dir)
	if err := c.peers.Prepare("10.0.0.1"); err != nil {
		t.Fatal(err)
	}
	a := NewAdmitter(Admitter{Etcd: c.client, Prefix: "/cluster", Peers: c.peers, Judging: judging})
	server := httptest.NewUnstartedServer(a.Handler(http.NotFoundHandler()))
	cert, key, err := c.pki.Serving(ServerName)
	if err != nil {
		t.Fatal(err)
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	server.TLS = &tls.Config{Certificates: []tls.Certificate{pair}}
	server.StartTLS()
	t.Cleanup(server.Close)
	c.url = server.URL
	return c
}

func (c *cluster) token(uses int) string {
	c.t.Helper()
	text, _, err := TokensOf(c.client, "/cluster").Create(c.t.Context(), c.pki.CA, uses)
	if err != nil {
		c.t.Fatal(err)
	}
	return text
}

// server returns the Join of a server.
func (c *cluster) server(name, address, token string) *Join {
	c.t.Helper()
	dir := c.t.TempDir()
	file := filepath.Join(dir, "token")
	if err := os.WriteFile(file, []byte(token+"\n"), 0o600); err != nil {
		c.t.Fatal(err)
	}
	return &Join{URL: c.url, TokenFile: file, State: &State{Name: name, Address: address, Listen: address}, Peers: keys.NewPeers(keys.Files{}, dir), Judging: judging}
}

func (c *cluster) joins(j *Join, want string) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), time.Minute)
	defer cancel()
	got, err := j.Do(ctx)
	if err != nil || !strings.Contains(got, want) {
		c.t.Errorf("%s: %q, %v; want %q", j.State.Name, got, err, want)
	}
}

func (c *cluster) refused(j *Join, want string) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), time.Minute)
	defer cancel()
	if joins, err := j.Do(ctx); err == nil || !strings.Contains(err.Error(), want) {
		c.t.Errorf("%s: %q, %v; want an error with %q", j.State.Name, joins, err, want)
	}
}

// learners counts the members without a vote.
func (c *cluster) learners() (n int) {
	c.t.Helper()
	list, err := c.client.MemberList(c.t.Context())
	if err != nil {
		c.t.Fatal(err)
	}
	for _, m := range list.Members {
		if m.IsLearner {
			n++
		}
	}
	return n
}

// S31.4: a server that was killed while it joined joins with the same token again, which counts once. S31.5: it is added
// once.
func TestAServerMayAskAgain(t *testing.T) {
	c := newCluster(t)
	token := c.token(1)
	b := c.server("b", "10.0.0.2:2380", token)
	for range 3 {
		c.joins(b, "b=https://10.0.0.2:2380")
	}
	if n := c.learners(); n != 1 {
		t.Errorf("%d learners", n)
	}
	// The same name with another key is another server.
	c.refused(c.server("b", "10.0.0.3:2380", token), "has been used for as many servers")
	// The server has another address now.
	b.State.Address = "10.0.0.9:2380"
	c.joins(b, "b=https://10.0.0.9:2380")
	if n := c.learners(); n != 1 {
		t.Errorf("%d learners after a change of the address", n)
	}
}

// S31.3: an invalid token admits no server, and all invalid tokens get the same answer.
func TestTokensThatAreWrong(t *testing.T) {
	c := newCluster(t)
	good, expired := c.token(5), c.token(5)
	parts := strings.Split(expired, ".")
	tokens := TokensOf(c.client, "/cluster")
	stored, _, err := tokens.check(t.Context(), expired, "")
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Contains(stored.Hash, []byte(parts[2])) {
		t.Error("the secret is stored")
	}
	stored.Expires = time.Now().Add(-time.Second)
	value, err := json.Marshal(stored)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.client.Put(t.Context(), tokens.key(stored.ID), string(value)); err != nil {
		t.Fatal(err)
	}
	revoked := c.token(5)
	if there, err := tokens.Revoke(t.Context(), strings.Split(revoked, ".")[1]); err != nil || !there {
		t.Fatal(there, err)
	}
	good4 := strings.Split(good, ".")
	for name, token := range map[string]string{
		"expired": expired, "revoked": revoked,
		"another secret": strings.Join([]string{good4[0], good4[1], "AAAAAAAAAAAAAAAAAAAAAAAAAA", good4[3]}, "."),
		"no secret":      strings.Join([]string{good4[0], good4[1], "", good4[3]}, "."),
		"nobody's":       strings.Join([]string{good4[0], "aaaaaaaaaa", good4[2], good4[3]}, "."),
		"a path":         strings.Join([]string{good4[0], "tokens/" + good4[1], good4[2], good4[3]}, "."),
	} {
		t.Run(name, func(t *testing.T) {
			c.refused(c.server("b", "10.0.0.2:2380", token), "the token is wrong, has expired, was revoked or has been used")
		})
	}
	if n := c.learners(); n != 0 {
		t.Errorf("%d learners", n)
	}
	// A token that was used up gets the same answer, whatever else is wrong with the request.
	used := c.token(1)
	c.joins(c.server("b", "10.0.0.2:2380", used), "b=")
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: pinned(good4[3])}}
	answer := func(body map[string]any) string {
		t.Helper()
		text, err := json.Marshal(body)
		if err != nil {
			t.Fatal(err)
		}
		res, err := client.Post(c.url+JoinPath, "application/json", bytes.NewReader(text))
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		said, err := io.ReadAll(res.Body)
		if err != nil {
			t.Fatal(err)
		}
		return res.Status + " " + string(said)
	}
	request, err := c.server("d", "10.0.0.4:2380", used).Peers.Request()
	if err != nil {
		t.Fatal(err)
	}
	want := answer(map[string]any{"token": revoked})
	if !strings.HasPrefix(want, "401 ") {
		t.Error(want)
	}
	for _, body := range []map[string]any{
		{"name": "b", "request": []byte("x")}, {"name": "a=b", "request": request},
		{"name": "d", "address": "nowhere", "request": request}, {"name": "d", "address": "10.0.0.4:2380", "request": request},
	} {
		body["token"] = used
		if got := answer(body); got != want {
			t.Errorf("%v: %s, want %s", body, got, want)
		}
	}
}

// S31.3: a token names the CA of its cluster. No other server gets the token.
func TestATokenIsForOneCluster(t *testing.T) {
	c, other := newCluster(t), newCluster(t)
	j := c.server("b", "10.0.0.2:2380", other.token(1))
	if _, err := j.Do(t.Context()); !errors.Is(err, errOtherAuthority) {
		t.Errorf("got %v", err)
	}
	j = c.server("b", "10.0.0.2:2380", "gatehouse1.a.b")
	c.refused(j, "has no token")
	if err := os.Chmod(j.TokenFile, 0o644); err != nil {
		t.Fatal(err)
	}
	c.refused(j, "chmod 600")
}

// S31.5: no server is added for a server that is a member. S31.6: the error names the flag by which servers would
// decide requests differently.
func TestServersThatMayNotJoin(t *testing.T) {
	c := newCluster(t)
	token := c.token(9)
	list, err := c.client.MemberList(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.client.MemberUpdate(t.Context(), list.Members[0].ID, []string{"https://10.0.0.1:2380"}); err != nil {
		t.Fatal(err)
	}
	// S31.5: a second server on a machine has the peer address of the first.
	c.refused(c.server("b", "10.0.0.1:2380", token), "Another server on this machine? Give each its own --peer-address")
	c.refused(c.server("b", "10.0.0.1:2380", token), "Run 'gatehouse cluster remove "+list.Members[0].Name+"'")
	c.refused(c.server(list.Members[0].Name, "10.0.0.2:2380", token), "has a member")
	c.refused(c.server("a=b", "10.0.0.2:2380", token), "cannot be the name")
	c.refused(c.server("b", "10.0.0.2", token), "--peer-address")
	j := c.server("b", "10.0.0.2:2380", token)
	for flag, want := range map[string]string{
		"enable-admission-plugins": `--enable-admission-plugins: the servers of the cluster have "B", and this one has "C": requests would be decided differently`,
		"feature-gates":            `--feature-gates: the servers of the cluster have "X=true", and this one has "A,C"`,
		"etcd-prefix":              `--etcd-prefix: the servers of the cluster have "/registry", and this one has "A,C"`,
	} {
		j.Judging = map[string]string{}
		for name, value := range judging {
			j.Judging[name] = value
		}
		j.Judging[flag] = "A,C"
		c.refused(j, want)
	}
	// The error names the flag of the command line.
	j.Judging = map[string]string{}
	for name, value := range judging {
		j.Judging[name] = value
	}
	j.Judging["enable-admission-plugins"] = "A"
	j.Set = map[string][]Flag{"enable-admission-plugins": {{"disable-admission-plugins", "B"}}}
	c.refused(j, `--disable-admission-plugins: the servers of the cluster have "B", and this one has nothing besides (this one was started with --disable-admission-plugins=B): requests`)
	j.Set = nil
	j.Different, j.Judging = true, map[string]string{"etcd-prefix": "/registry", DataFormat: "2"}
	c.refused(j, `keep data of format "1", and the program of this one has format "2"`)
	j.Judging[DataFormat] = "1"
	if n := c.learners(); n != 0 {
		t.Errorf("%d learners", n)
	}
	c.joins(j, "b=https://10.0.0.2:2380")
}

// S31.5: servers join one at a time. A server that never started makes room for the next one.
func TestALearnerThatNeverCame(t *testing.T) {
	c := newCluster(t)
	token := c.token(3)
	c.joins(c.server("b", "10.0.0.2:2380", token), "b=")
	second := c.server("c", "10.0.0.3:2380", token)
	// The error is the reason why it waited; an overloaded machine answers late.
	for wait := 2 * askAgain; ; wait *= 2 {
		short, cancel := context.WithTimeout(t.Context(), wait)
		_, err := second.Do(short)
		cancel()
		if err != nil && strings.Contains(err.Error(), "10.0.0.2:2380 is joining") {
			break
		}
		if err == nil || wait > joinTimeout {
			t.Fatalf("got %v", err)
		}
	}
	a := &Admitter{Etcd: c.client, Prefix: "/cluster"}
	list, err := c.client.MemberList(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range list.Members {
		if known, err := a.joiningOf(t.Context(), m); err != nil {
			t.Fatal(err)
		} else if known.Name != "" {
			known.Added = time.Now().Add(-2 * neverCame)
			value, err := json.Marshal(known)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := c.client.Put(t.Context(), a.joiningKey(m.ID), string(value)); err != nil {
				t.Fatal(err)
			}
		}
	}
	c.joins(second, "c=")
	// At the same address another server begins again.
	c.joins(c.server("d", "10.0.0.3:2380", token), "d=")
	if n := c.learners(); n != 1 {
		t.Errorf("%d learners", n)
	}
}

// S31.3: a token is for a number of servers, also when they join at the same time.
func TestUsesAreCounted(t *testing.T) {
	c := newCluster(t)
	token, tokens := c.token(3), TokensOf(c.client, "/cluster")
	var asking sync.WaitGroup
	var mu sync.Mutex
	good := 0
	for i := range 12 {
		asking.Go(func() {
			if err := tokens.use(t.Context(), token, string(rune('a'+i))); err == nil {
				mu.Lock()
				good++
				mu.Unlock()
			} else if !errors.Is(err, errToken) {
				t.Error(err)
			}
		})
	}
	asking.Wait()
	list, err := tokens.List(t.Context())
	if err != nil || len(list) != 1 || len(list[0].Used) != 3 || good != 3 {
		t.Errorf("%d joined; %+v, %v", good, list, err)
	}
}

// S31.3: attempts are bounded.
func TestAttemptsAreBounded(t *testing.T) {
	c := newCluster(t)
	j := c.server("b", "10.0.0.2:2380", c.token(1))
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: pinned(strings.Split(c.token(1), ".")[3])}}
	codes := map[int]int{}
	var mu sync.Mutex
	var asking sync.WaitGroup
	// These are more attempts than the limit allows, even on a slow machine.
	for range 2 * asksAtOnce {
		asking.Go(func() {
			for range 10 {
				res, err := client.Post(c.url+JoinPath, "application/json", strings.NewReader(`{"token":"gatehouse1.a.b.c"}`))
				if err != nil {
					t.Error(err)
					return
				}
				res.Body.Close()
				mu.Lock()
				codes[res.StatusCode]++
				mu.Unlock()
			}
		})
	}
	asking.Wait()
	if codes[http.StatusTooManyRequests] == 0 || codes[http.StatusUnauthorized] == 0 {
		t.Errorf("%v", codes)
	}
	res, err := client.Post(c.url+JoinPath, "application/json", strings.NewReader(`{"token":"`+strings.Repeat("x", maxAsk)+`"}`))
	if err != nil || res.StatusCode == http.StatusOK {
		t.Error(res, err)
	}
	// A server waits until it may ask again.
	c.joins(j, "b=")
}

func TestState(t *testing.T) {
	dir := t.TempDir()
	if s, err := ReadState(dir); s != nil || err != nil {
		t.Errorf("%v, %v", s, err)
	}
	want := State{Name: NewName(), Address: "a:1", Listen: "0.0.0.0:1"}
	if err := want.Write(keys.Files{}, dir); err != nil {
		t.Fatal(err)
	}
	if s, err := ReadState(dir); err != nil || *s != want {
		t.Errorf("%v, %v", s, err)
	}
	if err := os.WriteFile(stateFile(dir), []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadState(dir); err == nil || !strings.Contains(err.Error(), stateFile(dir)) {
		t.Error(err)
	}
	if s, err := ReadState(stateFile(dir)); s != nil || err != nil {
		t.Errorf("a file: %v, %v", s, err)
	}
	for address, good := range map[string]bool{"10.0.0.1:2380": true, "[::1]:2380": true, "first.example.com:80": true, "10.0.0.1": false, ":2380": false, "0.0.0.0:1": false, "a:0": false, "a,b:1": false, "a:x1": false} {
		if err := CheckAddress(address); (err == nil) != good {
			t.Errorf("%s: %v", address, err)
		}
	}
	for server, good := range map[string]bool{"https://a:6443": true, "https://a:6443/": true, "http://a:6443": false, "a:6443": false, "https://u:p@a": false, "https://a/b": false} {
		if err := CheckURL(server); (err == nil) != good {
			t.Errorf("%s: %v", server, err)
		}
	}
}

// S31.6: an error about different admission plugins names the flags that were set on either side.
func TestDifferencesNameTheFlagsThatWereSet(t *testing.T) {
	const name = "enable-admission-plugins"
	judged := func(value string, flags ...Flag) Judged {
		return Judged{map[string]string{name: value}, map[string][]Flag{name: flags}}
	}
	disable, enable, legacy := Flag{"disable-admission-plugins", "B"}, Flag{name, "C"}, Flag{"admission-control", "A"}
	for want, c := range map[string][2]Judged{
		"": {judged("A,B", disable), judged("A,B")},
		`--disable-admission-plugins: the servers of the cluster have "B", and this one has nothing besides (this one was started with --disable-admission-plugins=B): `:                                                                             {judged("A,B"), judged("A", disable)},
		`--disable-admission-plugins: the servers of the cluster have nothing besides, and this one has "B" (the server that answers with --disable-admission-plugins=B): `:                                                                          {judged("A,C", disable), judged("A,B,C")},
		`--enable-admission-plugins: the servers of the cluster have nothing besides, and this one has "C": `:                                                                                                                                        {judged("A,B"), judged("A,B,C", enable)},
		`--enable-admission-plugins: the servers of the cluster have "B", and this one has "C" (this one was started with --disable-admission-plugins=B --enable-admission-plugins=C, the server that answers with --admission-control=A): requests`: {judged("A,B", legacy), judged("A,C", disable, enable)},
		`--enable-admission-plugins: the servers of the cluster have "B", and this one has nothing besides: `:                                                                                                                                        {judged("A,B"), judged("A,")},
	} {
		got := ""
		if err := Differ(c[0], c[1]); err != nil {
			got = err.Error()
		}
		if want == "" && got != "" || !strings.HasPrefix(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// The text about a certificate has its file, its flag, its end and the remedy.
func TestCertificatesThatExpireAreNamed(t *testing.T) {
	now := time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC)
	for want, c := range map[string]Certificate{
		"The certificate /p.crt (--peer-cert-file) expires in 3 days, on 2026-01-05T00:00:00Z: replace the file": {Flag: "--peer-cert-file", File: "/p.crt", Expires: now.Add(72 * time.Hour), Advice: "replace the file"},
		"The certificate /s.crt expires within a day, on 2026-01-02T01:00:00Z: restart":                          {File: "/s.crt", Expires: now.Add(time.Hour), Advice: "restart"},
		"The certificate /s.crt has expired, on 2026-01-01T00:00:00Z: restart":                                   {File: "/s.crt", Expires: now.Add(-24 * time.Hour), Advice: "restart"},
	} {
		if got := c.Text(now); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
