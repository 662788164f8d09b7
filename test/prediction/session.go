package prediction

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/gatehouse-dev/gatehouse/admission/plan"
	"github.com/gatehouse-dev/gatehouse/internal/commands/cli"
	"github.com/gatehouse-dev/gatehouse/internal/server/reporting/replicas/v1alpha1"
)

// patience is the time limit for asynchronous work of the server.
const patience = 2 * time.Minute

// Options configures a Session.
type Options struct {
	// Admin is the configuration of the server's administrator.
	Admin *rest.Config
	// Gatehouse reports whether the server is a Gatehouse server, which can explain requests and calls
	// webhooks ahead of their turn.
	Gatehouse bool
	// Recorder serves the webhooks.
	Recorder *Recorder
	// Dir is an empty directory for files.
	Dir string
}

// Session plays worlds on a server.
type Session struct {
	options Options
	admin   dynamic.Interface
	// user sends requests as User.
	user *http.Client
	ways []way
	// marker is the number of the latest marker.
	marker int
}

// way is one way to explain a request: arguments of the command explain, in addition to the arguments that
// describe the request.
type way struct {
	name string
	args []string
	// files reports whether the command reads files instead of asking a server.
	files bool
}

// Tally counts the results of a Session.
type Tally struct {
	// Requests is the number of requests, Calls the number of reviews, and Again the number of repeated
	// reviews.
	Requests, Calls, Again int
	// Rejected counts requests rejected by admission, Explained the runs of the command explain, and Unknown
	// the explanations with an unknown part.
	Rejected, Explained, Unknown int
	// Equivalent counts reviews in another version or group than the request.
	Equivalent int
	// Differences describe the mispredictions.
	Differences []string
}

// Add adds the counts and differences of another Tally.
func (t *Tally) Add(o *Tally) {
	t.Requests, t.Calls, t.Again = t.Requests+o.Requests, t.Calls+o.Calls, t.Again+o.Again
	t.Rejected, t.Explained, t.Unknown = t.Rejected+o.Rejected, t.Explained+o.Explained, t.Unknown+o.Unknown
	t.Equivalent += o.Equivalent
	t.Differences = append(t.Differences, o.Differences...)
}

// NewSession prepares a server: namespaces, a custom resource, and the rights of User.
func NewSession(ctx context.Context, o Options) (*Session, error) {
	s := &Session{options: o}
	var err error
	if s.admin, err = dynamic.NewForConfig(o.Admin); err != nil {
		return nil, err
	}
	impersonating := rest.CopyConfig(o.Admin)
	impersonating.Impersonate = rest.ImpersonationConfig{UserName: User, Groups: []string{Group}}
	if s.user, err = rest.HTTPClientFor(impersonating); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(s.path("files"), 0o700); err != nil {
		return nil, err
	}
	if err := s.kubeconfigs(); err != nil {
		return nil, err
	}
	s.ways = []way{
		{name: "kubeconfig", args: []string{"--kubeconfig", s.path("user.kubeconfig")}},
		{name: "files", args: []string{"--registrations", s.path("files"), "--as", User, "--as-group", Group}, files: true},
	}
	if o.Gatehouse {
		s.ways = append(s.ways, way{name: "API", args: []string{"--kubeconfig", s.path("admin.kubeconfig"), "--as", User, "--as-group", Group}})
	}
	return s, s.prepare(ctx)
}

func (s *Session) path(name string) string { return filepath.Join(s.options.Dir, name) }

// kubeconfigs writes the kubeconfigs of the administrator and of User.
func (s *Session) kubeconfigs() error {
	admin := s.options.Admin
	c := clientcmdapi.NewConfig()
	c.Clusters["c"] = &clientcmdapi.Cluster{Server: admin.Host, CertificateAuthorityData: admin.CAData, CertificateAuthority: admin.CAFile}
	auth := &clientcmdapi.AuthInfo{
		Token: admin.BearerToken, ClientCertificateData: admin.CertData, ClientKeyData: admin.KeyData,
		ClientCertificate: admin.CertFile, ClientKey: admin.KeyFile,
	}
	c.AuthInfos["c"], c.Contexts["c"], c.CurrentContext = auth, &clientcmdapi.Context{Cluster: "c", AuthInfo: "c"}, "c"
	if err := clientcmd.WriteToFile(*c, s.path("admin.kubeconfig")); err != nil {
		return err
	}
	auth.Impersonate, auth.ImpersonateGroups = User, []string{Group}
	return clientcmd.WriteToFile(*c, s.path("user.kubeconfig"))
}

// resource is a GroupVersionResource constructor.
func resource(group, version, plural string) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: group, Version: version, Resource: plural}
}

var (
	mutatingResource   = resource("admissionregistration.k8s.io", "v1", "mutatingwebhookconfigurations")
	validatingResource = resource("admissionregistration.k8s.io", "v1", "validatingwebhookconfigurations")
)

func (s *Session) prepare(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var files []*unstructured.Unstructured
	create := func(r schema.GroupVersionResource, content map[string]any) error {
		u := &unstructured.Unstructured{Object: content}
		files = append(files, u)
		_, err := s.admin.Resource(r).Create(ctx, u, metav1.CreateOptions{})
		return err
	}
	object := func(apiVersion, kind, name string, labels map[string]any) map[string]any {
		meta := map[string]any{"name": name}
		if labels != nil {
			meta["labels"] = labels
		}
		return map[string]any{"apiVersion": apiVersion, "kind": kind, "metadata": meta}
	}
	for name, labels := range namespaces {
		if err := create(resource("", "v1", "namespaces"), object("v1", "Namespace", name, labels)); err != nil {
			return err
		}
	}
	definition := object("apiextensions.k8s.io/v1", "CustomResourceDefinition", "gadgets."+customGroup, nil)
	definition["spec"] = gadgets()
	if err := create(resource("apiextensions.k8s.io", "v1", "customresourcedefinitions"), definition); err != nil {
		return err
	}
	if err := writeObjects(s.path("files/cluster.json"), files); err != nil {
		return err
	}
	if err := create(resource("", "v1", "namespaces"), object("v1", "Namespace", markers, nil)); err != nil {
		return err
	}
	const rbac = "rbac.authorization.k8s.io"
	role := object(rbac+"/v1", "ClusterRole", "prediction", nil)
	role["rules"] = []any{
		map[string]any{"verbs": []any{"get", "list"}, "apiGroups": []any{"*"}, "resources": []any{"*"}},
		map[string]any{"verbs": []any{"*"}, "apiGroups": []any{"", "apps", "autoscaling", "events.k8s.io", "storage.k8s.io", customGroup}, "resources": []any{"*"}},
	}
	binding := object(rbac+"/v1", "ClusterRoleBinding", "prediction", nil)
	binding["roleRef"] = map[string]any{"apiGroup": rbac, "kind": "ClusterRole", "name": "prediction"}
	binding["subjects"] = []any{map[string]any{"kind": "User", "apiGroup": rbac, "name": User}}
	if err := create(resource(rbac, "v1", "clusterroles"), role); err != nil {
		return err
	}
	if err := create(resource(rbac, "v1", "clusterrolebindings"), binding); err != nil {
		return err
	}
	for r, kind := range map[schema.GroupVersionResource]string{mutatingResource: "MutatingWebhookConfiguration", validatingResource: "ValidatingWebhookConfiguration"} {
		configuration := object("admissionregistration.k8s.io/v1", kind, markerName, nil)
		configuration["webhooks"] = []any{map[string]any{
			"name": markerName + "." + strings.ToLower(kind) + ".example.com", "clientConfig": s.options.Recorder.client(kind),
			"admissionReviewVersions": []any{"v1"}, "sideEffects": "None", "failurePolicy": "Ignore",
			"namespaceSelector": map[string]any{"matchLabels": map[string]any{"kubernetes.io/metadata.name": markers}},
			"rules":             []any{map[string]any{"apiGroups": []any{""}, "apiVersions": []any{"v1"}, "resources": []any{"configmaps"}, "operations": []any{"CREATE"}}},
		}}
		if err := create(r, configuration); err != nil {
			return err
		}
	}
	// The custom resource and the rights take effect shortly after they are written.
	return await(ctx, "the user may list gadgets", func() (bool, error) {
		for _, version := range []string{"v1", "v2"} {
			code, _, err := s.send(ctx, http.MethodGet, "/apis/"+customGroup+"/"+version+"/gadgets", nil)
			if err != nil || code != http.StatusOK {
				return false, err
			}
		}
		return true, nil
	})
}

// gadgets returns the spec of the CRD.
func gadgets() map[string]any {
	version := func(name string, storage bool) any {
		return map[string]any{
			"name": name, "served": true, "storage": storage, "subresources": map[string]any{"status": map[string]any{}},
			"schema": map[string]any{"openAPIV3Schema": map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
		}
	}
	return map[string]any{
		"group": customGroup, "scope": "Namespaced", "versions": []any{version("v1", true), version("v2", false)},
		"names": map[string]any{"plural": "gadgets", "singular": "gadget", "kind": "Gadget", "listKind": "GadgetList"},
	}
}

// markerName is the name of the configurations with the webhooks that receive markers. It sorts before all
// other names.
const markerName = "0-marker"

// settle waits until the current registrations are active. Admission observes each kind of configuration in
// the order of its writes, so the last change of a kind becomes active last.
func (s *Session) settle(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	s.marker++
	name := fmt.Sprintf("marker-%d", s.marker)
	condition := fmt.Sprintf(`[{"op":"add","path":"/webhooks/0/matchConditions","value":[{"name":"m","expression":"request.name == '%s'"}]}]`, name)
	for _, r := range []schema.GroupVersionResource{mutatingResource, validatingResource} {
		if _, err := s.admin.Resource(r).Patch(ctx, markerName, jsonPatch, []byte(condition), metav1.PatchOptions{}); err != nil {
			return err
		}
	}
	marker := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": name}}}
	return await(ctx, "the webhooks are in force", func() (bool, error) {
		_, err := s.admin.Resource(resource("", "v1", "configmaps")).Namespace(markers).Create(ctx, marker, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		seen := s.options.Recorder.saw("MutatingWebhookConfiguration", name) && s.options.Recorder.saw("ValidatingWebhookConfiguration", name)
		return seen, err
	})
}

// jsonPatch is the content type of a JSON patch.
const jsonPatch = "application/json-patch+json"

// Play registers the webhooks of a World, sends its requests, and removes the webhooks. It returns an error
// if it cannot do that; mispredictions are in the Tally.
func (s *Session) Play(ctx context.Context, w *World) (_ *Tally, err error) {
	t := &Tally{}
	for _, u := range w.Stored {
		if _, err := s.objects(u).Create(ctx, u, metav1.CreateOptions{}); err != nil {
			return nil, fmt.Errorf("seed %d: storing %s %q: %w", w.Seed, u.GetKind(), u.GetName(), err)
		}
	}
	var registered []*unstructured.Unstructured
	defer func() {
		for _, u := range registered {
			if deleted := s.objects(u).Delete(ctx, u.GetName(), metav1.DeleteOptions{}); err == nil {
				err = deleted
			}
		}
		if err == nil {
			err = s.settle(ctx)
		}
	}()
	for _, c := range w.Configurations {
		u := c.DeepCopy()
		hooks, _, _ := unstructured.NestedSlice(u.Object, "webhooks")
		for _, h := range hooks {
			hook := h.(map[string]any)
			hook["clientConfig"] = s.options.Recorder.client(hook["name"].(string))
		}
		if err := unstructured.SetNestedSlice(u.Object, hooks, "webhooks"); err != nil {
			return nil, err
		}
		if _, err := s.objects(u).Create(ctx, u, metav1.CreateOptions{}); err != nil {
			return nil, fmt.Errorf("seed %d: registering %s %q: %w", w.Seed, u.GetKind(), u.GetName(), err)
		}
		registered = append(registered, u)
	}
	if err := writeObjects(s.path("files/world.json"), slices.Concat(registered, w.Stored)); err != nil {
		return nil, err
	}
	if err := s.settle(ctx); err != nil {
		return nil, fmt.Errorf("seed %d: %w", w.Seed, err)
	}
	for _, r := range w.Requests {
		if err := s.judge(ctx, w, r, t); err != nil {
			return nil, fmt.Errorf("seed %d: %s: %w", w.Seed, r, err)
		}
	}
	return t, nil
}

// objects returns the administrator's client for objects of the kind of u.
func (s *Session) objects(u *unstructured.Unstructured) dynamic.ResourceInterface {
	gvk := u.GroupVersionKind()
	plural := strings.ToLower(gvk.Kind) + "s"
	if gvk.Kind == "StorageClass" {
		plural = "storageclasses"
	}
	client := s.admin.Resource(resource(gvk.Group, gvk.Version, plural))
	if u.GetNamespace() == "" {
		return client
	}
	return client.Namespace(u.GetNamespace())
}

// judge explains a request in all ways, sends it, and compares the reviews and the verdict.
func (s *Session) judge(ctx context.Context, w *World, r *Request, t *Tally) error {
	sent, old, err := s.content(ctx, r)
	if err != nil {
		return err
	}
	if sent != nil {
		if err := writeObjects(s.path("sent.json"), []*unstructured.Unstructured{sent}); err != nil {
			return err
		}
	}
	if old != nil {
		if err := writeObjects(s.path("old.json"), []*unstructured.Unstructured{old}); err != nil {
			return err
		}
	}
	plans := make([]*plan.Plan, len(s.ways))
	for i, way := range s.ways {
		if plans[i], err = s.explain(ctx, way, r); err != nil {
			return fmt.Errorf("explain, %s: %w", way.name, err)
		}
	}
	s.options.Recorder.begin(w.Answers)
	code, answer, err := s.make(ctx, r, sent)
	if err != nil {
		return err
	}
	calls := s.options.Recorder.received()
	switch code {
	case http.StatusNotFound, http.StatusConflict, http.StatusUnprocessableEntity, http.StatusUnauthorized:
		return fmt.Errorf("the request is none that admission decides about: %d %s", code, answer)
	}
	rejected := code >= http.StatusBadRequest
	t.Requests++
	t.Calls += len(calls)
	if rejected {
		t.Rejected++
	}
	for i, way := range s.ways {
		e := Expect(plans[i], w.Answers)
		differences := e.Compare(calls, rejected, s.options.Gatehouse)
		if !s.options.Gatehouse && len(e.Unknown) == 0 && !e.inOrder(calls) {
			differences = append(differences, fmt.Sprintf("the mutating webhooks are called in another order: %v", calls))
		}
		t.Explained++
		if len(e.Unknown) > 0 {
			t.Unknown++
		}
		if i == 0 {
			t.Again += len(e.Again)
			for step := range plans[i].Calls() {
				if step.As.Equivalent {
					t.Equivalent++
				}
			}
		}
		for _, d := range differences {
			t.Differences = append(t.Differences, fmt.Sprintf("seed %d: %s: explained by %s: %s (answer %d %s); the plan rejects: %q", w.Seed, r, way.name, d, code, answer, plans[i].Rejection))
		}
	}
	return nil
}

// content returns the object that a request sends, and the stored object in the version of the request.
// Either may be nil.
func (s *Session) content(ctx context.Context, r *Request) (sent, old *unstructured.Unstructured, err error) {
	if r.Operation == "CREATE" {
		return r.Object, nil, nil
	}
	client := dynamic.ResourceInterface(s.admin.Resource(r.Resource))
	if r.Namespaced {
		client = s.admin.Resource(r.Resource).Namespace(r.Namespace)
	}
	if old, err = client.Get(ctx, r.Name, metav1.GetOptions{}); err != nil || r.Operation == "DELETE" {
		return nil, old, err
	}
	sent = r.Object.DeepCopy()
	if sent.GetKind() == "" {
		labels := sent.GetLabels()
		sent = old.DeepCopy()
		sent.SetLabels(labels)
		sent.SetManagedFields(nil)
	}
	sent.SetResourceVersion(old.GetResourceVersion())
	return sent, old, nil
}

// explain runs the command explain for a request.
func (s *Session) explain(ctx context.Context, way way, r *Request) (*plan.Plan, error) {
	args := append([]string{"explain", "--operation", r.Operation, "--output", "json"}, way.args...)
	if r.Operation != "CREATE" {
		args = append(args, r.Resource.Resource+"."+r.Resource.Version+"."+r.Resource.Group+"/"+r.Name)
	}
	// Explain the request alone, without the pods that controllers create from a workload.
	args = append(args, "--expand=false")
	if r.Object != nil {
		args = append(args, "--filename", s.path("sent.json"))
	}
	if r.Subresource != "" {
		args = append(args, "--subresource", r.Subresource)
	}
	if r.Namespaced {
		args = append(args, "--namespace", r.Namespace)
	}
	if r.DryRun {
		args = append(args, "--dry-run")
	}
	if way.files && r.StoredAs != "" && r.StoredAs != r.Resource.GroupVersion().String() {
		// The files contain the object in another version.
		args = append(args, "--old", s.path("old.json"))
	}
	var out, errs bytes.Buffer
	if code := cli.Main(ctx, args, cli.Streams{In: strings.NewReader(""), Out: &out, Err: &errs}); code != 0 {
		return nil, fmt.Errorf("%s: exit code %d: %s", strings.Join(args, " "), code, errs.String())
	}
	e := &v1alpha1.AdmissionExplanation{}
	if err := json.Unmarshal(out.Bytes(), e); err != nil {
		return nil, err
	}
	if e.Status.Plan == nil {
		return nil, fmt.Errorf("%s: there is no plan: %s", strings.Join(args, " "), out.String())
	}
	return e.Status.Plan, nil
}

// make sends a request, and returns the code and the body of the response.
func (s *Session) make(ctx context.Context, r *Request, sent *unstructured.Unstructured) (int, string, error) {
	segments := []string{"/apis", r.Resource.Group, r.Resource.Version}
	if r.Resource.Group == "" {
		segments = []string{"/api", r.Resource.Version}
	}
	if r.Namespaced {
		segments = append(segments, "namespaces", r.Namespace)
	}
	segments = append(segments, r.Resource.Resource)
	method := http.MethodPost
	if r.Operation != "CREATE" {
		segments = append(segments, r.Name, r.Subresource)
		method = map[string]string{"UPDATE": http.MethodPut, "DELETE": http.MethodDelete}[r.Operation]
	}
	query := url.Values{}
	if r.DryRun {
		query.Set("dryRun", metav1.DryRunAll)
	}
	var body []byte
	if sent != nil {
		var err error
		if body, err = sent.MarshalJSON(); err != nil {
			return 0, "", err
		}
	}
	return s.send(ctx, method, path.Join(segments...)+"?"+query.Encode(), body)
}

// send sends a request as User.
func (s *Session) send(ctx context.Context, method, path string, body []byte) (int, string, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, method, s.options.Admin.Host+path, bytes.NewReader(body))
	if err != nil {
		return 0, "", err
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Accept", "application/json")
	response, err := s.user.Do(request)
	if err != nil {
		return 0, "", err
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(response.Body, 1<<20))
	if err != nil {
		return 0, "", err
	}
	failure := metav1.Status{}
	if json.Unmarshal(answer, &failure) == nil && failure.Kind == "Status" {
		return response.StatusCode, failure.Message, nil
	}
	return response.StatusCode, "", nil
}

// writeObjects writes objects to a file, as a List.
func writeObjects(file string, objects []*unstructured.Unstructured) error {
	items := make([]any, len(objects))
	for i, u := range objects {
		items[i] = u.Object
	}
	data, err := json.Marshal(map[string]any{"apiVersion": "v1", "kind": "List", "items": items})
	if err != nil {
		return err
	}
	return os.WriteFile(file, data, 0o600)
}
