package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/gatehouse-dev/gatehouse/admission/trace"
	"github.com/gatehouse-dev/gatehouse/bench/internal/peer"
)

var errDifferent = errors.New("records of the audit log are not what happened")

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	r := &agreement{}
	binaries := flag.String("binaries", "", "`directory` of the programs (default: in the user's cache)")
	server := flag.String("kube-apiserver", "", "`path` of a kube-apiserver in place of the one in the directory")
	flag.IntVar(&r.requests, "requests", 1000, "how many requests are made")
	flag.IntVar(&r.blames, "blames", 50, "how many objects are asked about by gatehouse blame, on gatehouse, too")
	flag.Uint64Var(&r.seed, "seed", 1, "seed of the requests")
	beta := flag.Bool("beta", false, "mutating policies are of v1beta1, which that kube-apiserver serves on demand: 1.34 and 1.35")
	flag.StringVar(&r.keep, "keep", "", "`directory` that keeps the audit logs")
	flag.Parse()
	if *beta {
		r.flags = mutatingPolicies
	}
	if err := r.run(ctx, *binaries, *server); err != nil {
		fmt.Fprintln(os.Stderr, "auditagreement:", err)
		os.Exit(1)
	}
}

// agreement is one comparison.
type agreement struct {
	requests, blames int
	seed             uint64
	keep             string
	program          string
	// flags are additional flags of kube-apiserver.
	flags []string
}

// mutatingPolicies are the flags that make an older kube-apiserver serve mutating policies of v1beta1.
var mutatingPolicies = []string{"--feature-gates=MutatingAdmissionPolicy=true", "--runtime-config=admissionregistration.k8s.io/v1beta1=true"}

// auditPolicy contains a placeholder for the level of the requests of makers.
const auditPolicy = `
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: None
  verbs: [get, list, watch]
- level: %s
  namespaces: [red, blue, green, full, nowhere]
- level: None
`

func (r *agreement) run(ctx context.Context, binaries, server string) (err error) {
	b, err := peer.Build(ctx, ".", binaries)
	if err != nil {
		return err
	}
	if server != "" {
		b.KubeAPIServer = server
	}
	r.program = b.Gatehouse
	dir := r.keep
	if dir == "" {
		if dir, err = os.MkdirTemp("", "auditagreement-"); err != nil {
			return err
		}
		defer os.RemoveAll(dir)
	}
	different := false
	for _, level := range []string{"RequestResponse", "Metadata"} {
		differs, err := r.level(ctx, b, filepath.Join(dir, level), level)
		if err != nil {
			return fmt.Errorf("level %s: %w", level, err)
		}
		different = different || differs
	}
	if different {
		return errDifferent
	}
	return nil
}

// level runs the requests on a kube-apiserver with the given audit level. For level RequestResponse, it also runs
// them on gatehouse.
func (r *agreement) level(ctx context.Context, b peer.Binaries, dir, level string) (different bool, err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return false, err
	}
	policy, log := filepath.Join(dir, "policy.yaml"), filepath.Join(dir, "audit.log")
	if err := os.WriteFile(policy, fmt.Appendf(nil, auditPolicy, level), 0o600); err != nil {
		return false, err
	}
	if err := os.RemoveAll(log); err != nil {
		return false, err
	}
	kube, err := r.play(ctx, b, peer.KubeAPIServer, filepath.Join(dir, "kube-apiserver"), nil, append([]string{"--audit-policy-file=" + policy, "--audit-log-path=" + log, "--audit-log-maxsize=100000"}, r.flags...)...)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, kube.end()) }()
	snapshot := filepath.Join(dir, "cluster.yaml")
	if _, err := r.gatehouse(ctx, "snapshot", "--kubeconfig", kube.kubeconfig, "-o", snapshot); err != nil {
		return false, err
	}
	for _, known := range [][]string{nil, {"--from-cluster", kube.kubeconfig}, {"--snapshot", snapshot}} {
		out, err := r.gatehouse(ctx, append([]string{"trace", "-A", "-o", "jsonl", "--audit-log", log}, known...)...)
		if err != nil {
			return false, err
		}
		records := map[string]*trace.Record{}
		for lines := json.NewDecoder(bytes.NewReader(out)); ; {
			record := &trace.Record{}
			if err := lines.Decode(record); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				return false, err
			}
			records[record.Request.User] = record
		}
		t := &tally{level: level, known: len(known) > 0}
		for i := range kube.done {
			t.compare(&kube.done[i], records[kube.done[i].user])
		}
		t.print(known)
		different = different || len(t.differences) > 0 || t.derived.wrong*100 > t.derived.right
	}
	if level != "RequestResponse" || r.blames == 0 {
		return different, nil
	}
	serve, err := r.play(ctx, b, peer.Gatehouse, filepath.Join(dir, "gatehouse"), kube.done, "--controllers=-*", "--admission-trace-bytes=268435456")
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, serve.end()) }()
	differs, err := r.blame(ctx, kube, serve, log)
	return different || differs, err
}

// played is a server, with the requests that were sent to it.
type played struct {
	*peer.Server
	hooks      *hooks
	kubeconfig string
	done       []done
	// alive are the objects that exist at the end.
	alive []made
}

func (p *played) end() error { return errors.Join(p.Stop(), p.hooks.listener.Close()) }

// done is a request that was sent, with the calls that webhooks received for it, and its answer.
type done struct {
	attempt
	heard   []call
	code    int
	message string
}

// play starts a server, and sends the requests to it one after the other: the requests of another server, or new
// ones.
func (r *agreement) play(ctx context.Context, b peer.Binaries, kind peer.Kind, dir string, again []done, flags ...string) (_ *played, err error) {
	if err := os.RemoveAll(dir); err != nil {
		return nil, err
	}
	p := &played{}
	if p.hooks, err = newHooks(); err != nil {
		return nil, err
	}
	if p.Server, err = peer.Start(ctx, b, kind, dir, flags...); err != nil {
		return nil, errors.Join(err, p.hooks.listener.Close())
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, p.end())
		}
	}()
	if p.kubeconfig, err = p.WriteKubeconfig(dir); err != nil {
		return nil, err
	}
	client, err := rest.HTTPClientFor(p.Config)
	if err != nil {
		return nil, err
	}
	for _, o := range append(setup(), p.hooks.configurations()...) {
		if slices.Contains(flags, mutatingPolicies[0]) {
			o.path = strings.Replace(o.path, "/v1/mutatingadmission", "/v1beta1/mutatingadmission", 1)
		}
		if _, s, err := p.do(ctx, client, &attempt{method: http.MethodPost, path: o.path, contentType: "application/json", body: o.body}); err != nil || s.Code >= 300 {
			return nil, fmt.Errorf("%s: %d %s: %w", o.path, s.Code, s.Message, err)
		}
	}
	quota := &attempt{method: http.MethodPatch, path: "/api/v1/namespaces/full/resourcequotas/none/status", contentType: "application/merge-patch+json", body: `{"status":{"hard":{"count/configmaps":"0"},"used":{"count/configmaps":"0"}}}`}
	if _, s, err := p.do(ctx, client, quota); err != nil || s.Code >= 300 {
		return nil, fmt.Errorf("quota: %d %s: %w", s.Code, s.Message, err)
	}
	if err := p.awaitForce(ctx, client); err != nil {
		return nil, err
	}
	begin, rejected, calls := time.Now(), 0, 0
	m := &maker{Rand: rand.New(rand.NewPCG(r.seed, 0)), hangs: r.requests / 50}
	for i := range r.requests {
		d := done{}
		if again != nil {
			d.attempt = again[i].attempt
		} else {
			d.attempt = m.next(i)
		}
		code, s, err := p.do(ctx, client, &d.attempt)
		if err != nil {
			return nil, err
		}
		m.took(&d.attempt, code)
		d.code, d.message, d.heard = code, s.Message, p.hooks.take(d.user)
		if calls += len(d.heard); code >= 300 {
			rejected++
		}
		p.done = append(p.done, d)
	}
	p.alive = m.made
	fmt.Printf("%s: %d requests in %s, %d rejected, %d calls of webhooks\n", kind, r.requests, time.Since(begin).Round(time.Second), rejected, calls)
	return p, nil
}

// do sends a request, and returns the code and, for a failure, the status.
func (p *played) do(ctx context.Context, client *http.Client, q *attempt) (int, metav1.Status, error) {
	req, err := http.NewRequestWithContext(ctx, q.method, p.Config.Host+q.path, bytes.NewReader([]byte(q.body)))
	if err != nil {
		return 0, metav1.Status{}, err
	}
	if q.contentType != "" {
		req.Header.Set("Content-Type", q.contentType)
	}
	if q.user != "" {
		req.Header.Set("Impersonate-User", q.user)
		req.Header.Set("Impersonate-Group", q.group)
	}
	resp, err := client.Do(req)
	if err != nil {
		return 0, metav1.Status{}, err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	s := metav1.Status{Code: int32(resp.StatusCode)}
	if resp.StatusCode >= 300 && err == nil {
		err = json.Unmarshal(data, &s)
	}
	return resp.StatusCode, s, err
}

// awaitForce waits until the webhook configurations and policies are active.
func (p *played) awaitForce(ctx context.Context, client *http.Client) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for {
		inForce := true
		for i, want := range []struct {
			namespace, labels string
		}{{"red", `"m4":"d"`}, {"red", `"v3":"d"`}, {"blue", `"v4":"d"`}, {"red", `"policy":"x"`}, {"red", `"map":"fail"`}, {"full", ``}} {
			body := fmt.Sprintf(`{"metadata":{"name":"probe","labels":{%s}}}`, want.labels)
			user := fmt.Sprintf("probe-%d", i)
			code, _, err := p.do(ctx, client, &attempt{user: user, group: "makers", method: http.MethodPost, path: fmt.Sprintf(paths["configmaps"], want.namespace) + "?dryRun=All", contentType: "application/json", body: body})
			if err != nil {
				return err
			}
			if code < 300 {
				inForce = false
			}
			p.hooks.take(user)
		}
		if inForce {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("the registrations are not in force: %w", context.Cause(ctx))
		}
	}
}

// gatehouse runs a command.
func (r *agreement) gatehouse(ctx context.Context, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, r.program, args...)
	var notes bytes.Buffer
	cmd.Stderr = &notes
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("gatehouse %s: %w: %s", args[0], err, notes.Bytes())
	}
	return out, nil
}

// blame compares the output of gatehouse blame from the audit log of kube-apiserver with its output on gatehouse, as
// far as changes by webhooks are concerned.
func (r *agreement) blame(ctx context.Context, kube, serve *played, log string) (different bool, err error) {
	asked, changes := 0, 0
	for _, o := range kube.alive {
		if asked >= r.blames {
			break
		}
		// Both servers must have answered all requests for the object with the same code.
		same := slices.ContainsFunc(serve.alive, func(other made) bool {
			return other.kind == o.kind && other.namespace == o.namespace && other.name == o.name
		})
		for i := range kube.done {
			if a, b := &kube.done[i], &serve.done[i]; a.name == o.name && (a.path != b.path || (a.code < 300) != (b.code < 300)) {
				same = false
			}
		}
		if !same {
			continue
		}
		asked++
		args := []string{"blame", o.kind + "/" + o.name, "-n", o.namespace, "-o", "json"}
		written, whole, err := kube.changes(ctx, r, append(args, "--audit-log", log, "--from-cluster", kube.kubeconfig)...)
		if err != nil {
			return false, err
		}
		seen, shown, err := serve.changes(ctx, r, append(args, "--kubeconfig", serve.kubeconfig)...)
		if err != nil {
			return false, err
		}
		// The event of a patch does not contain the object, and so not the previous values.
		for i, w := range whole {
			if w == "" && i < len(shown) {
				shown[i] = ""
			}
		}
		if changes += len(seen); !slices.Equal(written, seen) || !slices.Equal(whole, shown) {
			different = true
			fmt.Printf("blame %s/%s in %s:\n  audit log: %q\n  gatehouse: %q\n", o.kind, o.name, o.namespace, written, seen)
		}
	}
	fmt.Printf("blame of %d objects: %d changes of webhooks\n", asked, changes)
	if asked < r.blames {
		return true, fmt.Errorf("%d objects can be compared, and %d were to be", asked, r.blames)
	}
	return different, nil
}

// changes returns the changes that webhooks made to an object in successful requests, from gatehouse blame: the
// author of each change, and the fields that changed an existing value.
func (p *played) changes(ctx context.Context, r *agreement, args ...string) (list, fields []string, err error) {
	out, err := r.gatehouse(ctx, args...)
	if err != nil {
		return nil, nil, err
	}
	var b struct{ Changes []map[string]any }
	if err := json.Unmarshal(out, &b); err != nil {
		return nil, nil, err
	}
	for _, c := range b.Changes {
		i := slices.IndexFunc(p.done, func(d done) bool { return d.user == c["user"] })
		// A trace of gatehouse does not record that a write was not stored because another write came first. For
		// kube-apiserver, a patch is also a change if the defaults of the object are set with it.
		if c["byKind"] != trace.ByWebhook || i < 0 || p.done[i].code >= 300 || c["value"] == "n" {
			continue
		}
		field := ""
		if c["field"] != nil {
			field = encode([]any{c["field"], c["differences"], c["was"]})
		}
		for _, key := range []string{"trace", "time", "field", "differences", "was", "wasBytes"} {
			delete(c, key)
		}
		list, fields = append(list, encode(c)), append(fields, field)
	}
	return list, fields, nil
}
