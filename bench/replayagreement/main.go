// Replayagreement makes random requests to a kube-apiserver with admission policies, and compares what
// came of them with what gatehouse replay says of the same requests: as the audit log of the server has
// them, and as a webhook was sent them. The baseline is a snapshot of the same cluster. It exits with 1
// if a verdict differs.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"encoding/pem"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/client-go/rest"

	"github.com/gatehouse-dev/gatehouse/bench/internal/peer"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	binaries := flag.String("binaries", "", "`directory` of the programs (default: in the user's cache)")
	requests := flag.Int("requests", 3000, "how many requests are made")
	seed := flag.Uint64("seed", 1, "what the requests are made of")
	flag.Parse()
	if err := run(ctx, *binaries, *requests, *seed); err != nil {
		fmt.Fprintln(os.Stderr, "replayagreement:", err)
		os.Exit(1)
	}
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

// setup are the objects of the cluster, in order.
var setup = []struct{ path, body string }{
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
	{"/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicies", `{"metadata":{"name":"stamp"},"spec":{"reinvocationPolicy":"Never","matchConstraints":{"resourceRules":[{"apiGroups":[""],"apiVersions":["v1"],"operations":["CREATE"],"resources":["services"]}]},"matchConditions":[{"name":"blue","expression":"request.namespace == 'red' && has(object.metadata.labels) && 'stamp' in object.metadata.labels"}],"mutations":[{"patchType":"ApplyConfiguration","applyConfiguration":{"expression":"Object{metadata: Object.metadata{labels: {\"owner\": \"stamp\"}}}"}}]}}`},
	{"/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicybindings", `{"metadata":{"name":"stamp"},"spec":{"policyName":"stamp"}}`},
}

const (
	policies       = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"
	policyBindings = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings"
)

func run(ctx context.Context, binaries string, requests int, seed uint64) (err error) {
	if binaries == "" {
		if binaries, err = peer.Dir(); err != nil {
			return err
		}
	}
	b, err := peer.Build(ctx, ".", binaries)
	if err != nil {
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
	s, err := peer.Start(ctx, b, peer.KubeAPIServer, filepath.Join(dir, "server"), "--audit-policy-file="+policy, "--audit-log-path="+log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Stop()) }()
	c, err := newClient(s.Config)
	if err != nil {
		return err
	}
	for _, o := range setup {
		if a, err := c.do(ctx, "", http.MethodPost, o.path, "application/json", o.body); err != nil || a.code != http.StatusCreated {
			return fmt.Errorf("%s: %d %s: %w", o.path, a.code, a.body, err)
		}
	}
	seen := &reviews{}
	hook := httptest.NewTLSServer(seen)
	defer hook.Close()
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: hook.Certificate().Raw})
	registered, err := json.Marshal(map[string]any{"metadata": map[string]any{"name": "000-seen"}, "webhooks": []any{map[string]any{
		"name": "seen.example.com", "clientConfig": map[string]any{"url": hook.URL, "caBundle": ca}, "admissionReviewVersions": []string{"v1"},
		"sideEffects": "None", "failurePolicy": "Ignore", "timeoutSeconds": 5, "matchPolicy": "Exact",
		"namespaceSelector": map[string]any{"matchExpressions": []any{map[string]any{"key": "kubernetes.io/metadata.name", "operator": "In", "values": namespaces}}},
		"rules":             []any{map[string]any{"apiGroups": []string{"*"}, "apiVersions": []string{"*"}, "operations": []string{"*"}, "resources": []string{"*/*"}}},
	}}})
	if err != nil {
		return err
	}
	const hooks = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
	if a, err := c.do(ctx, "", http.MethodPost, hooks, "application/json", string(registered)); err != nil || a.code != http.StatusCreated {
		return fmt.Errorf("the webhook: %d %s: %w", a.code, a.body, err)
	}
	if err := c.awaitForce(ctx, seen); err != nil {
		return err
	}
	answers := map[string]answer{}
	m := &maker{rand.New(rand.NewPCG(seed, 0)), nil}
	rejected := 0
	for i := range requests {
		who := fmt.Sprintf("maker-%d", i)
		q := m.next(i)
		a, err := c.do(ctx, who, q.method, q.path, q.contentType, q.body)
		if err != nil {
			return err
		}
		m.took(q, a)
		answers[who] = a
		if a.code >= 300 {
			rejected++
		}
	}
	fmt.Printf("%d requests, %d rejected by kube-apiserver\n", requests, rejected)
	if a, err := c.do(ctx, "", http.MethodDelete, hooks+"/000-seen", "", ""); err != nil || a.code != http.StatusOK {
		return fmt.Errorf("removing the webhook: %d: %w", a.code, err)
	}
	kubeconfig, snapshot, reviewed := filepath.Join(dir, "kubeconfig"), filepath.Join(dir, "cluster.yaml"), filepath.Join(dir, "reviews.jsonl")
	if err := os.WriteFile(kubeconfig, []byte(c.kubeconfig()), 0o600); err != nil {
		return err
	}
	if out, err := exec.CommandContext(ctx, b.Gatehouse, "snapshot", "--kubeconfig", kubeconfig, "-o", snapshot).CombinedOutput(); err != nil {
		return fmt.Errorf("snapshot: %w: %s", err, out)
	}
	if err := seen.write(reviewed, answers); err != nil {
		return err
	}
	// A change that matches nothing leaves the baseline.
	none := filepath.Join(dir, "none.yaml")
	if err := os.WriteFile(none, []byte("apiVersion: v1\nkind: Namespace\nmetadata: {name: unused}\n"), 0o600); err != nil {
		return err
	}
	made := filepath.Join(dir, "made.log")
	if err := ofMakers(log, made); err != nil {
		return err
	}
	for _, source := range []string{made, reviewed} {
		if err := compare(ctx, b.Gatehouse, source, snapshot, none); err != nil {
			return err
		}
	}
	return nil
}

// ofMakers writes the events of an audit log that are about the requests of makers: the probes were
// judged before the policies were in force.
func ofMakers(log, file string) error {
	data, err := os.ReadFile(log)
	if err != nil {
		return err
	}
	var b bytes.Buffer
	for line := range bytes.Lines(data) {
		if bytes.Contains(line, []byte(`"impersonatedUser"`)) {
			b.Write(line)
		}
	}
	return os.WriteFile(file, b.Bytes(), 0o600)
}

// compare replays a source against the cluster, and says what differs from what was recorded.
func compare(ctx context.Context, program, source, snapshot, none string) error {
	cmd := exec.CommandContext(ctx, program, "replay", source, "--with", none, "--against", snapshot, "-o", "json")
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("replay of %s: %w", filepath.Base(source), err)
	}
	var r struct {
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
	if err := json.Unmarshal(out, &r); err != nil {
		return err
	}
	fmt.Printf("%s: %d judged, %d of them rejected; %d compared, %d differ; %d change\n", filepath.Base(source), r.Judged, r.Before.Rejected, r.Recorded.Compared, r.Recorded.Differ, r.Changed)
	for _, l := range r.Input.LeftOut {
		fmt.Printf("  left out: %d: %s\n", l.Count, l.Reason)
	}
	for _, g := range r.Recorded.Groups {
		fmt.Printf("  %s\n", g)
	}
	if r.Recorded.Differ > 0 || r.Changed > 0 || r.Recorded.Compared == 0 {
		return errors.New("gatehouse replay and kube-apiserver differ")
	}
	return nil
}

// reviews is a webhook that keeps what it is sent.
type reviews struct {
	mu   sync.Mutex
	list []*admissionv1.AdmissionRequest
}

func (r *reviews) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	review := &admissionv1.AdmissionReview{}
	if err := json.NewDecoder(req.Body).Decode(review); err != nil || review.Request == nil {
		http.Error(w, "not a review", http.StatusBadRequest)
		return
	}
	r.mu.Lock()
	r.list = append(r.list, review.Request)
	r.mu.Unlock()
	review.Response = &admissionv1.AdmissionResponse{UID: review.Request.UID, Allowed: true}
	review.Request = nil
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(review)
}

func (r *reviews) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.list)
}

// write writes the reviews as recorded requests, each with the answer that its user got.
func (r *reviews) write(file string, answers map[string]answer) error {
	var b bytes.Buffer
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, a := range r.list {
		got, ok := answers[a.UserInfo.Username]
		if !ok {
			continue
		}
		line := map[string]any{"apiVersion": "gatehouse.dev/v1alpha1", "kind": "RecordedRequest", "operation": a.Operation, "resource": a.Resource,
			"subresource": a.SubResource, "namespace": a.Namespace, "name": a.Name, "user": a.UserInfo,
			"response": map[string]any{"allowed": got.code < 300, "code": got.code, "message": string(got.body)}}
		if a.Object.Raw != nil {
			line["object"] = json.RawMessage(a.Object.Raw)
		}
		if a.OldObject.Raw != nil {
			line["oldObject"] = json.RawMessage(a.OldObject.Raw)
		}
		if err := json.NewEncoder(&b).Encode(line); err != nil {
			return err
		}
	}
	return os.WriteFile(file, b.Bytes(), 0o600)
}

// answer is what the server said.
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

// do makes a request, as a user unless that is empty.
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

// awaitForce returns when the policies and the webhook judge.
func (c *client) awaitForce(ctx context.Context, seen *reviews) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for {
		refused, err := c.do(ctx, "", http.MethodPost, "/api/v1/namespaces/red/configmaps?dryRun=All", "application/json", `{"metadata":{"name":"probe"}}`)
		if err != nil {
			return err
		}
		stamped, err := c.do(ctx, "", http.MethodPost, "/api/v1/namespaces/red/services?dryRun=All", "application/json", `{"metadata":{"name":"probe","labels":{"stamp":"y"}},"spec":{"ports":[{"port":1}]}}`)
		if err != nil {
			return err
		}
		if refused.code == http.StatusUnprocessableEntity && stamped.code == http.StatusCreated && seen.count() > 0 {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("policies and the webhook are not in force: %w", context.Cause(ctx))
		}
	}
}

func (c *client) kubeconfig() string {
	return fmt.Sprintf(`{"apiVersion":"v1","kind":"Config","current-context":"c","contexts":[{"name":"c","context":{"cluster":"c","user":"u"}}],"users":[{"name":"u","user":{"token":%q}}],"clusters":[{"name":"c","cluster":{"server":%q,"certificate-authority-data":%s}}]}`,
		c.config.BearerToken, c.config.Host, must(json.Marshal(c.config.CAData)))
}

func must(data []byte, err error) []byte {
	if err != nil {
		panic(err)
	}
	return data
}

// maker makes random requests about objects that it has made.
type maker struct {
	*rand.Rand
	made []made
}

// made is an object that was created.
type made struct{ kind, namespace, name string }

type attempt struct {
	method, path, contentType, body string
	about                           made
}

// paths are where objects are, by their kind.
var paths = map[string]string{
	"configmaps": "/api/v1/namespaces/%s/configmaps", "pods": "/api/v1/namespaces/%s/pods",
	"services": "/api/v1/namespaces/%s/services", "deployments": "/apis/apps/v1/namespaces/%s/deployments",
}

var kinds = []string{"configmaps", "configmaps", "pods", "services", "deployments"}

func (m *maker) labels() map[string]string {
	labels := map[string]string{"n": fmt.Sprint(m.IntN(3))}
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

// next is the next request.
func (m *maker) next(i int) attempt {
	if len(m.made) < 10 || m.IntN(3) == 0 {
		about := made{kinds[m.IntN(len(kinds))], namespaces[m.IntN(len(namespaces))], fmt.Sprintf("o%d", i)}
		object := m.object(about.kind, about.name)
		if m.IntN(10) == 0 {
			// The server makes the name.
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

// took notes what a request has made or removed.
func (m *maker) took(q attempt, a answer) {
	switch {
	case q.method == http.MethodDelete && a.code < 300:
		for i := range m.made {
			if m.made[i] == q.about {
				m.made = append(m.made[:i], m.made[i+1:]...)
				return
			}
		}
	case a.code == http.StatusCreated && q.about.name != "":
		m.made = append(m.made, q.about)
	}
}
