// Replayagreement sends random requests to a kube-apiserver with admission policies, and compares the outcomes with
// the results of gatehouse replay for the same requests, from the audit log of the server and from a recording of
// gatehouse record. The baseline is a snapshot of the same cluster. Then it replays the requests twice with a change
// of the policies, and prints the duration. It exits with 1 if a verdict differs, or if the two reports differ.
package main

import (
	"bufio"
	"bytes"
	"cmp"
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
	"sync"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"
	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/gatehouse-dev/gatehouse/bench/internal/peer"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	binaries := flag.String("binaries", "", "`directory` of the programs (default: in the user's cache)")
	r := &agreement{}
	flag.IntVar(&r.requests, "requests", 3000, "how many requests are made")
	flag.IntVar(&r.policies, "policies", 40, "how many policies judge, in addition to a few by which the verdicts differ more")
	flag.IntVar(&r.clients, "clients", 4, "how many clients make requests")
	flag.Uint64Var(&r.seed, "seed", 1, "seed of the requests")
	flag.StringVar(&r.keep, "keep", "", "`directory` that keeps the snapshot, the requests and the change")
	flag.Parse()
	if err := r.run(ctx, *binaries); err != nil {
		fmt.Fprintln(os.Stderr, "replayagreement:", err)
		os.Exit(1)
	}
}

// agreement is one comparison.
type agreement struct {
	requests, policies, clients int
	seed                        uint64
	keep                        string

	program string
	client  *client
	corpus  []kind
}

const auditPolicy = `
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: RequestResponse
  namespaces: [red, blue, green]
- level: None
`

var namespaces = []string{"red", "blue", "green"}

// object is an object to create.
type object struct{ path, body string }

// setup contains the objects of the cluster, in order of creation.
var setup = []object{
	{"/api/v1/namespaces", `{"metadata":{"name":"red","labels":{"strict":"yes"}}}`},
	{"/api/v1/namespaces", `{"metadata":{"name":"blue"}}`},
	{"/api/v1/namespaces", `{"metadata":{"name":"green","labels":{"pod-security.kubernetes.io/enforce":"baseline"}}}`},
	{"/api/v1/namespaces/red/serviceaccounts", `{"metadata":{"name":"default"}}`},
	{"/api/v1/namespaces/blue/serviceaccounts", `{"metadata":{"name":"default"}}`},
	{"/api/v1/namespaces/green/serviceaccounts", `{"metadata":{"name":"default"}}`},
	{"/api/v1/namespaces/blue/limitranges", `{"metadata":{"name":"small"},"spec":{"limits":[{"type":"Container","max":{"memory":"1Gi"}}]}}`},
	{"/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", `{"metadata":{"name":"all"},"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"cluster-admin"},"subjects":[{"apiGroup":"rbac.authorization.k8s.io","kind":"Group","name":"makers"}]}`},
	{policies, `{"metadata":{"name":"owner"},"spec":{"matchConstraints":{"resourceRules":[{"apiGroups":["","apps"],"apiVersions":["*"],"operations":["CREATE","UPDATE"],"resources":["configmaps","deployments","services"]}]},"validations":[{"expression":"'owner' in object.metadata.?labels.orValue({})","message":"an owner is needed"}]}}`},
	{policyBindings, `{"metadata":{"name":"owner"},"spec":{"policyName":"owner","validationActions":["Deny"],"matchResources":{"namespaceSelector":{"matchLabels":{"strict":"yes"}}}}}`},
	{policies, `{"metadata":{"name":"keep"},"spec":{"matchConstraints":{"resourceRules":[{"apiGroups":[""],"apiVersions":["v1"],"operations":["UPDATE","DELETE"],"resources":["configmaps","pods"]}]},"validations":[{"expression":"!('keep' in oldObject.metadata.?labels.orValue({})) || request.operation == 'UPDATE' && 'keep' in object.metadata.?labels.orValue({})","messageExpression":"oldObject.metadata.name + ' is kept'"}]}}`},
	{policyBindings, `{"metadata":{"name":"keep"},"spec":{"policyName":"keep","validationActions":["Deny"]}}`},
	{policies, `{"metadata":{"name":"parts"},"spec":{"matchConstraints":{"resourceRules":[{"apiGroups":["*"],"apiVersions":["*"],"operations":["CREATE","UPDATE"],"resources":["pods/binding","pods/eviction","pods/ephemeralcontainers","deployments/scale","serviceaccounts/token"]}]},"validations":[{"expression":"!request.userInfo.username.endsWith('7')","message":"sevens are out"},{"expression":"request.kind.kind != 'Scale' || object.spec.?replicas.orValue(0) <= oldObject.spec.?replicas.orValue(0) + 3","messageExpression":"'from ' + string(oldObject.spec.?replicas.orValue(0))"}]}}`},
	{policyBindings, `{"metadata":{"name":"parts"},"spec":{"policyName":"parts","validationActions":["Deny"]}}`},
	{"/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicies", `{"metadata":{"name":"stamp"},"spec":{"reinvocationPolicy":"Never","matchConstraints":{"resourceRules":[{"apiGroups":[""],"apiVersions":["v1"],"operations":["CREATE"],"resources":["services"]}]},"matchConditions":[{"name":"blue","expression":"request.namespace == 'red' && has(object.metadata.labels) && 'stamp' in object.metadata.labels"}],"mutations":[{"patchType":"ApplyConfiguration","applyConfiguration":{"expression":"Object{metadata: Object.metadata{labels: {\"owner\": \"stamp\"}}}"}}]}}`},
	{"/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicybindings", `{"metadata":{"name":"stamp"},"spec":{"policyName":"stamp"}}`},
}

const (
	policies       = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"
	policyBindings = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings"
)

func (r *agreement) run(ctx context.Context, binaries string) (err error) {
	b, err := peer.Build(ctx, ".", binaries)
	if err != nil {
		return err
	}
	r.program = b.Gatehouse
	if r.corpus, err = readCorpus("differential/cases/kinds"); err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "replayagreement-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	policy, log := filepath.Join(dir, "policy.yaml"), filepath.Join(dir, "audit.log")
	if err := os.WriteFile(policy, []byte(auditPolicy), 0o600); err != nil {
		return err
	}
	s, err := peer.Start(ctx, b, peer.KubeAPIServer, filepath.Join(dir, "server"), "--audit-policy-file="+policy, "--audit-log-path="+log, "--audit-log-maxsize=100000",
		// The random requests create many services, and each needs an address.
		"--service-cluster-ip-range=10.0.0.0/16")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Stop()) }()
	if r.client, err = newClient(s.Config); err != nil {
		return err
	}
	list := slices.Clone(setup)
	for i := range r.policies {
		list = append(list, object{policies, numbered(i, false)}, object{policyBindings, binding(i)})
	}
	for _, o := range list {
		if a, err := r.client.do(ctx, "", http.MethodPost, o.path, "application/json", o.body); err != nil || a.code != http.StatusCreated {
			return fmt.Errorf("%s: %d %s: %w", o.path, a.code, a.body, err)
		}
	}
	if err := r.client.awaitForce(ctx, r.policies-1); err != nil {
		return err
	}
	kubeconfig, err := s.WriteKubeconfig(dir)
	if err != nil {
		return err
	}
	out := cmp.Or(r.keep, dir)
	if err := os.MkdirAll(out, 0o700); err != nil {
		return err
	}
	requests := filepath.Join(dir, "requests")
	stop, err := r.record(ctx, kubeconfig, requests)
	if err != nil {
		return err
	}
	answers, err := r.make(ctx)
	if err := errors.Join(err, stop()); err != nil {
		return err
	}
	snapshot := filepath.Join(out, "cluster.yaml")
	if text, err := exec.CommandContext(ctx, r.program, "snapshot", "--kubeconfig", kubeconfig, "-o", snapshot).CombinedOutput(); err != nil {
		return fmt.Errorf("snapshot: %w: %s", err, text)
	}
	made, recorded := filepath.Join(out, "audit.log"+taken), filepath.Join(out, "recorded.jsonl")
	if err := ofMakers(log, made); err != nil {
		return err
	}
	if err := withAnswers(requests, recorded, answers); err != nil {
		return err
	}
	// A role changes no verdict, but each request is evaluated twice.
	none, change := filepath.Join(dir, "none.yaml"), filepath.Join(out, "change.yaml")
	if err := os.WriteFile(none, []byte("apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata: {name: unused}\n"), 0o600); err != nil {
		return err
	}
	for _, source := range []string{made, recorded} {
		if err := r.compare(ctx, source, snapshot, none); err != nil {
			return err
		}
	}
	if err := r.write(change); err != nil {
		return err
	}
	for _, source := range []string{made, recorded} {
		if err := r.twice(ctx, source, snapshot, change); err != nil {
			return err
		}
	}
	return nil
}

// taken is the suffix of files that contain a part of another file.
const taken = ".jsonl"

// make sends the requests, and returns the answers by the user of the request.
func (r *agreement) make(ctx context.Context) (map[string]answer, error) {
	answers, rejected := map[string]answer{}, 0
	var mu sync.Mutex
	group, ctx := errgroup.WithContext(ctx)
	begin := time.Now()
	for w := range r.clients {
		group.Go(func() error {
			m := &maker{Rand: rand.New(rand.NewPCG(r.seed, uint64(w))), corpus: r.corpus, policies: r.policies}
			for i := w; i < r.requests; i += r.clients {
				who := fmt.Sprintf("maker-%d", i)
				q := m.next(i)
				a, err := r.client.do(ctx, who, q.method, q.path, q.contentType, q.body)
				if err != nil {
					return err
				}
				m.took(q, a)
				// A successful answer contains the object, which may be large.
				if a.code < 300 {
					a.body = nil
				}
				mu.Lock()
				answers[who] = a
				if a.code >= 300 {
					rejected++
				}
				mu.Unlock()
			}
			return nil
		})
	}
	err := group.Wait()
	fmt.Printf("%d requests in %s, %d rejected by kube-apiserver\n", r.requests, time.Since(begin).Round(time.Second), rejected)
	return answers, err
}

// record starts gatehouse record. stop ends it.
func (r *agreement) record(ctx context.Context, kubeconfig, dir string) (stop func() error, err error) {
	cmd := exec.Command(r.program, "record", "--kubeconfig", kubeconfig, "--output", dir, "--untimed", "--namespaces", strings.Join(namespaces, ","), "--max-files", "1000")
	cmd.Stderr, cmd.SysProcAttr = os.Stderr, &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	lines := bufio.NewScanner(out)
	if !lines.Scan() {
		_ = cmd.Process.Kill()
		return nil, errors.Join(errors.New("gatehouse record does not record"), cmd.Wait())
	}
	return func() error {
		if err := cmd.Process.Signal(os.Interrupt); err != nil {
			return err
		}
		for lines.Scan() {
			fmt.Printf("gatehouse record: %s\n", lines.Text())
		}
		return cmd.Wait()
	}, nil
}

// eachLine calls take with each line of files.
func eachLine(files []string, take func([]byte) error) error {
	for _, name := range files {
		f, err := os.Open(name)
		if err != nil {
			return err
		}
		for in := bufio.NewReaderSize(f, 1<<20); err == nil; {
			var line []byte
			if line, err = in.ReadBytes('\n'); len(line) > 0 {
				if err := take(line); err != nil {
					f.Close()
					return err
				}
			}
		}
		f.Close()
		if !errors.Is(err, io.EOF) {
			return err
		}
	}
	return nil
}

// writeLines creates a file, and closes it when fill has returned.
func writeLines(file string, fill func(w io.Writer) error) error {
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	w := bufio.NewWriterSize(f, 1<<20)
	return errors.Join(fill(w), w.Flush(), f.Close())
}

// ofMakers writes the events of an audit log for the requests of makers. It leaves out the probes, which were sent
// before the policies were active.
func ofMakers(log, file string) error {
	return writeLines(file, func(w io.Writer) error {
		return eachLine([]string{log}, func(line []byte) error {
			if !bytes.Contains(line, []byte(`"impersonatedUser"`)) {
				return nil
			}
			_, err := w.Write(line)
			return err
		})
	})
}

// withAnswers writes the recorded requests. To each, it adds the answer that the user received, which a recorder
// cannot see.
func withAnswers(dir, file string, answers map[string]answer) error {
	files, err := filepath.Glob(filepath.Join(dir, "*.jsonl"))
	if err != nil {
		return err
	}
	return writeLines(file, func(w io.Writer) error {
		return eachLine(files, func(line []byte) error {
			var q struct {
				User struct{ Username string }
			}
			if err := json.Unmarshal(line, &q); err != nil {
				return err
			}
			got, ok := answers[q.User.Username]
			if !ok {
				return nil
			}
			response, err := json.Marshal(map[string]any{"allowed": got.code < 300, "code": got.code, "message": string(got.body)})
			if err != nil {
				return err
			}
			_, err = fmt.Fprintf(w, "%s,\"response\":%s}\n", bytes.TrimSuffix(bytes.TrimSpace(line), []byte("}")), response)
			return err
		})
	})
}

// twice replays a source with a change, twice.
func (r *agreement) twice(ctx context.Context, source, snapshot, change string) error {
	var first []byte
	for i := range 2 {
		begin := time.Now()
		cmd := exec.CommandContext(ctx, r.program, "replay", source, "--with", change, "--against", snapshot, "-o", "json")
		cmd.Stderr = os.Stderr
		out, err := cmd.Output()
		if err != nil {
			return fmt.Errorf("replay of %s: %w", filepath.Base(source), err)
		}
		took := time.Since(begin)
		var report struct{ Judged, Changed int }
		if err := json.Unmarshal(out, &report); err != nil {
			return err
		}
		state := cmd.ProcessState
		usage := state.SysUsage().(*syscall.Rusage)
		fmt.Printf("%s with a change of %d policies: %d judged, %d otherwise, in %.1f s (%.1f s of CPU), peak memory %d MiB\n", filepath.Base(source), r.policies, report.Judged, report.Changed,
			took.Seconds(), (state.UserTime() + state.SystemTime()).Seconds(), usage.Maxrss>>10)
		if i == 0 {
			first = out
		} else if !bytes.Equal(first, out) {
			return errors.New("two replays have two reports")
		}
	}
	return nil
}

// numbered returns one of many policies. Each matches one kind, and rejects one value of a label; a changed policy
// also rejects another value.
func numbered(i int, changed bool) string {
	kind := kinds[i%len(kinds)]
	expression := fmt.Sprintf("object.metadata.?labels['p'].orValue('') != 'v%d'", i)
	if changed {
		expression += fmt.Sprintf(" && object.metadata.?labels['p'].orValue('') != 'w%d'", i)
	}
	return string(must(json.Marshal(map[string]any{"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy", "metadata": map[string]any{"name": fmt.Sprintf("p%d", i)},
		"spec": map[string]any{"matchConstraints": map[string]any{"resourceRules": []any{map[string]any{"apiGroups": []string{"", "apps"}, "apiVersions": []string{"*"}, "operations": []string{"CREATE", "UPDATE"}, "resources": []string{kind}}}},
			"validations": []any{map[string]any{"expression": expression, "message": fmt.Sprintf("p%d rejects it", i)}}}})))
}

// binding returns the binding of a numbered policy.
func binding(i int) string {
	return fmt.Sprintf(`{"apiVersion":"admissionregistration.k8s.io/v1","kind":"ValidatingAdmissionPolicyBinding","metadata":{"name":"p%[1]d"},"spec":{"policyName":"p%[1]d","validationActions":["Deny"]}}`, i)
}

// write writes the change: all numbered policies.
func (r *agreement) write(file string) error {
	return writeLines(file, func(w io.Writer) error {
		for i := range r.policies {
			if _, err := fmt.Fprintf(w, "---\n%s\n", numbered(i, true)); err != nil {
				return err
			}
		}
		return nil
	})
}

// compare replays a source against the cluster, and reports differences from the recorded outcomes.
func (r *agreement) compare(ctx context.Context, source, snapshot, none string) error {
	cmd := exec.CommandContext(ctx, r.program, "replay", source, "--with", none, "--against", snapshot, "-o", "json")
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("replay of %s: %w", filepath.Base(source), err)
	}
	var report struct {
		Judged, Changed int
		Before          struct{ Rejected int }
		Input           struct {
			Requests int
			LeftOut  []struct {
				Reason string
				Count  int
			}
		}
		Recorded struct {
			Compared, Differ int
			Groups           []json.RawMessage
		}
	}
	if err := json.Unmarshal(out, &report); err != nil {
		return err
	}
	fmt.Printf("%s: %d judged, %d of them rejected; %d compared, %d differ; %d change\n", filepath.Base(source), report.Judged, report.Before.Rejected, report.Recorded.Compared, report.Recorded.Differ, report.Changed)
	for _, l := range report.Input.LeftOut {
		fmt.Printf("  left out: %d: %s\n", l.Count, l.Reason)
	}
	for _, g := range report.Recorded.Groups {
		fmt.Printf("  %s\n", g)
	}
	if report.Recorded.Differ > 0 || report.Changed > 0 || report.Recorded.Compared == 0 {
		return errors.New("gatehouse replay and kube-apiserver differ")
	}
	return nil
}

// answer is the answer of the server.
type answer struct {
	code int
	body []byte
}

type client struct {
	config *rest.Config
	http   *http.Client
}

func newClient(config *rest.Config) (*client, error) {
	h, err := rest.HTTPClientFor(config)
	return &client{config, h}, err
}

// do sends a request, as the user who if it is not empty.
func (c *client) do(ctx context.Context, who, method, path, contentType, body string) (answer, error) {
	req, err := http.NewRequestWithContext(ctx, method, c.config.Host+path, bytes.NewReader([]byte(body)))
	if err != nil {
		return answer{}, err
	}
	if contentType != "" {
		req.Header.Set("Content-Type", contentType)
	}
	if who != "" {
		req.Header.Set("Impersonate-User", who)
		req.Header.Set("Impersonate-Group", "makers")
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return answer{}, err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	return answer{resp.StatusCode, data}, err
}

// awaitForce waits until the policies are active.
func (c *client) awaitForce(ctx context.Context, last int) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for {
		try := func(path, body string) (int, error) {
			a, err := c.do(ctx, "", http.MethodPost, path+"?dryRun=All", "application/json", body)
			return a.code, err
		}
		refused, err := try("/api/v1/namespaces/red/configmaps", `{"metadata":{"name":"probe"}}`)
		if err != nil {
			return err
		}
		stamped, err := try("/api/v1/namespaces/red/services", `{"metadata":{"name":"probe","labels":{"stamp":"y"}},"spec":{"ports":[{"port":1}]}}`)
		if err != nil {
			return err
		}
		inForce := refused == http.StatusUnprocessableEntity && stamped == http.StatusCreated
		if inForce && last >= 0 {
			// Watches keep the order of writes.
			kind := kinds[last%len(kinds)]
			m := &maker{Rand: rand.New(rand.NewPCG(0, 0))}
			object := m.object(kind, "probe")
			object["metadata"].(map[string]any)["labels"] = map[string]any{"p": fmt.Sprintf("v%d", last)}
			code, err := try(fmt.Sprintf(paths[kind], "blue"), string(must(json.Marshal(object))))
			if err != nil {
				return err
			}
			inForce = code == http.StatusUnprocessableEntity
		}
		if inForce {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("the policies are not in force: %w", context.Cause(ctx))
		}
	}
}

func must(data []byte, err error) []byte {
	if err != nil {
		panic(err)
	}
	return data
}

// maker generates random requests about objects that it has created.
type maker struct {
	*rand.Rand
	made     []made
	corpus   []kind
	policies int
}

// kind is a document of the cases of differential.
type kind struct {
	Resource      string           `json:"resource"`
	ClusterScoped bool             `json:"clusterScoped"`
	Name          string           `json:"name"`
	Object        map[string]any   `json:"object"`
	Invalid       []map[string]any `json:"invalid"`
}

// readCorpus reads the namespaced kinds.
func readCorpus(dir string) ([]kind, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.yaml"))
	if err != nil {
		return nil, err
	}
	var list []kind
	for _, name := range files {
		data, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		for doc := range strings.SplitSeq(string(data), "\n---\n") {
			k := kind{}
			if err := yaml.Unmarshal([]byte(doc), &k); err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
			if k.Object != nil && !k.ClusterScoped {
				list = append(list, k)
			}
		}
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("no kinds in %s: run this in the folder bench", dir)
	}
	return list, nil
}

// ofCorpus returns a dry run of the creation of an object of the corpus, valid or invalid.
func (m *maker) ofCorpus(i int) attempt {
	k := m.corpus[m.IntN(len(m.corpus))]
	namespace := namespaces[m.IntN(len(namespaces))]
	data := must(json.Marshal(k.Object))
	if len(k.Invalid) > 0 && m.IntN(2) == 0 {
		data = must(jsonpatch.MergePatch(data, must(json.Marshal(k.Invalid[m.IntN(len(k.Invalid))]))))
	}
	data = bytes.ReplaceAll(data, []byte("{ns}"), []byte(namespace))
	var object map[string]any
	if err := json.Unmarshal(data, &object); err != nil {
		panic(err)
	}
	meta, _ := object["metadata"].(map[string]any)
	if meta == nil {
		meta = map[string]any{}
		object["metadata"] = meta
	}
	if meta["name"] == nil && meta["generateName"] == nil {
		meta["name"] = cmp.Or(k.Name, fmt.Sprintf("c%d", i))
	}
	if meta["labels"] == nil {
		meta["labels"] = m.labels()
	}
	version, _ := object["apiVersion"].(string)
	path := "/apis/" + version
	if !strings.Contains(version, "/") {
		path = "/api/" + version
	}
	return attempt{http.MethodPost, path + "/namespaces/" + namespace + "/" + k.Resource + "?dryRun=All", "application/json", string(must(json.Marshal(object))), made{}}
}

// made is an object that was created.
type made struct{ kind, namespace, name string }

type attempt struct {
	method, path, contentType, body string
	about                           made
}

// paths are the paths of the collections, by resource.
var paths = map[string]string{
	"configmaps": "/api/v1/namespaces/%s/configmaps", "pods": "/api/v1/namespaces/%s/pods",
	"services": "/api/v1/namespaces/%s/services", "deployments": "/apis/apps/v1/namespaces/%s/deployments",
}

var kinds = []string{"configmaps", "configmaps", "pods", "services", "deployments"}

func (m *maker) labels() map[string]string {
	labels := map[string]string{"n": fmt.Sprint(m.IntN(3))}
	if m.policies > 0 && m.IntN(4) == 0 {
		// A numbered policy for the kind rejects some of these values, either already or only with the change.
		labels["p"] = fmt.Sprintf("%s%d", []string{"v", "w"}[m.IntN(2)], m.IntN(m.policies))
	}
	for _, name := range []string{"owner", "keep", "stamp"} {
		if m.IntN(3) == 0 {
			labels[name] = "y"
		}
	}
	return labels
}

func (m *maker) object(kind, name string) map[string]any {
	meta := map[string]any{"name": name, "labels": m.labels()}
	container := map[string]any{"name": "c", "image": "example.com/image:1"}
	if m.IntN(4) == 0 {
		container["resources"] = map[string]any{"limits": map[string]any{"memory": []string{"100Mi", "2Gi"}[m.IntN(2)]}}
	}
	spec := map[string]any{"containers": []any{container}}
	if m.IntN(5) == 0 {
		spec["hostNetwork"] = true
	}
	switch kind {
	case "configmaps":
		return map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": map[string]any{"k": fmt.Sprint(m.IntN(100))}}
	case "pods":
		return map[string]any{"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}
	case "services":
		return map[string]any{"apiVersion": "v1", "kind": "Service", "metadata": meta, "spec": map[string]any{"ports": []any{map[string]any{"port": 80}}}}
	}
	template := map[string]any{"metadata": map[string]any{"labels": map[string]any{"a": "b"}}, "spec": spec}
	selector := map[string]any{"matchLabels": map[string]any{"a": []string{"b", "b", "b", "c"}[m.IntN(4)]}}
	return map[string]any{"apiVersion": "apps/v1", "kind": "Deployment", "metadata": meta, "spec": map[string]any{"selector": selector, "template": template}}
}

// next returns the next request.
func (m *maker) next(i int) attempt {
	if m.IntN(10) == 0 {
		return m.ofCorpus(i)
	}
	if len(m.made) < 10 || m.IntN(3) == 0 {
		about := made{kinds[m.IntN(len(kinds))], namespaces[m.IntN(len(namespaces))], fmt.Sprintf("o%d", i)}
		object := m.object(about.kind, about.name)
		if m.IntN(10) == 0 {
			// The server generates the name.
			delete(object["metadata"].(map[string]any), "name")
			object["metadata"].(map[string]any)["generateName"], about.name = "made-", ""
		}
		at := fmt.Sprintf(paths[about.kind], about.namespace)
		if m.IntN(8) == 0 && about.name != "" {
			return attempt{http.MethodPatch, at + "/" + about.name + "?fieldManager=maker&force=true", "application/apply-patch+yaml", string(must(json.Marshal(object))), about}
		}
		return attempt{http.MethodPost, at, "application/json", string(must(json.Marshal(object))), about}
	}
	about := m.made[m.IntN(len(m.made))]
	at := fmt.Sprintf(paths[about.kind], about.namespace) + "/" + about.name
	if m.IntN(4) == 0 {
		return m.ofPart(about, at)
	}
	labels := map[string]any{"metadata": map[string]any{"labels": m.labels()}}
	switch m.IntN(5) {
	case 0:
		return attempt{http.MethodDelete, at + "?gracePeriodSeconds=0", "", "", about}
	case 1:
		return attempt{http.MethodPatch, at, "application/merge-patch+json", string(must(json.Marshal(labels))), about}
	case 2:
		return attempt{http.MethodPatch, at, "application/strategic-merge-patch+json", string(must(json.Marshal(labels))), about}
	case 3:
		return attempt{http.MethodPatch, at, "application/json-patch+json", string(must(json.Marshal([]any{map[string]any{"op": "replace", "path": "/metadata/labels", "value": m.labels()}}))), about}
	}
	if about.kind == "configmaps" {
		return attempt{http.MethodPut, at, "application/json", string(must(json.Marshal(m.object(about.kind, about.name)))), about}
	}
	return attempt{http.MethodPatch, at + "?fieldManager=maker&force=true", "application/apply-patch+yaml", string(must(json.Marshal(m.object(about.kind, about.name)))), about}
}

// ofPart returns a request for a subresource of an object. Requests that would delete the object are dry runs.
func (m *maker) ofPart(about made, at string) attempt {
	body := func(kind, apiVersion, more string) string {
		return fmt.Sprintf(`{"apiVersion":%q,"kind":%q,"metadata":{"name":%q,"namespace":%q}%s}`, apiVersion, kind, about.name, about.namespace, more)
	}
	switch {
	case about.kind == "deployments":
		return attempt{http.MethodPatch, at + "/scale", "application/merge-patch+json", fmt.Sprintf(`{"spec":{"replicas":%d}}`, m.IntN(8)), made{}}
	case about.kind != "pods":
		about.name = "default"
		return attempt{http.MethodPost, fmt.Sprintf("/api/v1/namespaces/%s/serviceaccounts/default/token", about.namespace), "application/json", body("TokenRequest", "authentication.k8s.io/v1", `,"spec":{"expirationSeconds":3600}`), made{}}
	}
	switch m.IntN(3) {
	case 0:
		return attempt{http.MethodPost, at + "/binding?dryRun=All", "application/json", body("Binding", "v1", `,"target":{"kind":"Node","name":"n"}`), made{}}
	case 1:
		return attempt{http.MethodPost, at + "/eviction?dryRun=All", "application/json", body("Eviction", "policy/v1", ""), made{}}
	}
	return attempt{http.MethodPatch, at + "/ephemeralcontainers?dryRun=All", "application/strategic-merge-patch+json", fmt.Sprintf(`{"spec":{"ephemeralContainers":[{"name":"d%d","image":"example.com/debug:1"}]}}`, m.IntN(1000)), made{}}
}

// took records the objects that a request created or deleted.
func (m *maker) took(q attempt, a answer) {
	switch {
	case q.method == http.MethodDelete && a.code < 300:
		for i := range m.made {
			if m.made[i] == q.about {
				m.made = append(m.made[:i], m.made[i+1:]...)
				return
			}
		}
	case a.code == http.StatusCreated && q.about.name != "" && q.about.kind != "":
		m.made = append(m.made, q.about)
	}
}
