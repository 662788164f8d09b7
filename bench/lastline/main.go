// Lastline compares the last line of gatehouse explain with the answer of a kube-apiserver to the request, for
// requests with many causes of rejection: cases.yaml, in the cluster of world.yaml.
//
// Each request is explained and sent three times: by the administrator, or the user of the case; by a user with the
// role edit, who cannot read policies and webhook configurations; and by a user with the role view. The last line
// must contain the exact answer of the server. If the user cannot read the cause of the rejection, the last line must
// say so, and the lines above must not contain the answer.
package main

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/base64"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/yaml"

	"github.com/gatehouse-dev/gatehouse/bench/internal/peer"
)

var (
	//go:embed world.yaml
	world string
	//go:embed cases.yaml
	requests []byte
)

// request is a case.
type request struct {
	Name        string         `json:"name"`
	Namespace   string         `json:"namespace"`
	Operation   string         `json:"operation"`
	Subresource string         `json:"subresource"`
	As          string         `json:"as"`
	Object      map[string]any `json:"object"`
	// Of is the object whose subresource is requested, if the subresource has another kind.
	Of string `json:"of"`
	// Really sends the request without dry run: a dry run would accept it.
	Really bool `json:"really"`
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	binaries := flag.String("binaries", "", "`directory` of the programs (default: in the user's cache)")
	only := flag.String("run", "", "make only the requests whose names match a `regexp`")
	verbose := flag.Bool("v", false, "print every request with its last line")
	flag.Parse()
	if err := run(ctx, os.Stdout, *binaries, *only, *verbose); err != nil {
		fmt.Fprintln(os.Stderr, "lastline:", err)
		os.Exit(1)
	}
}

var errDifferent = errors.New("last lines of gatehouse explain are wrong")

func run(ctx context.Context, out io.Writer, binaries, only string, verbose bool) (err error) {
	chosen, err := regexp.Compile(only)
	if err != nil {
		return err
	}
	b, err := peer.Build(ctx, ".", binaries)
	if err != nil {
		return err
	}
	var list []request
	if err := yaml.UnmarshalStrict(requests, &list); err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "lastline-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	hook, err := peer.StartWebhook(ctx, b, filepath.Join(dir, "webhook"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, hook.Stop()) }()
	s, err := peer.Start(ctx, b, peer.KubeAPIServer, filepath.Join(dir, "kube-apiserver"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Stop()) }()
	c := &comparison{gatehouse: b.Gatehouse, dir: dir, config: s.Config}
	c.config.WarningHandler = rest.NoWarnings{}
	if err := c.build(ctx, hook); err != nil {
		return err
	}
	began := time.Now()
	wrong := 0
	users := []string{"", "editor", "viewer"}
	right := map[string]int{}
	made := map[string]int{}
	for _, r := range list {
		if !chosen.MatchString(r.Name) {
			continue
		}
		first := ""
		for _, user := range users {
			if user != "" && r.As != "" {
				continue
			}
			answer, err := c.ask(ctx, &r, user)
			if err != nil {
				return fmt.Errorf("%s: %w", r.Name, err)
			}
			if user == "" {
				first = answer
			}
			text, err := c.explain(ctx, &r, user)
			if err != nil {
				return fmt.Errorf("%s: %w", r.Name, err)
			}
			last := text[strings.LastIndex(text, "\n")+1:]
			if i := strings.LastIndex(text, "\n"+rejected); i >= 0 {
				// A message may have several lines.
				last = text[i+1:]
			}
			why := judge(text, last, answer, first, user != "")
			made[user]++
			if why == "" {
				right[user]++
			} else {
				wrong++
			}
			if verbose || why != "" {
				fmt.Fprintf(out, "%s, %s: %s\n    kube-apiserver: %s\n    explained:      %s\n", r.Name, or(user, "administrator"), or(why, "right"), or(answer, "accepted"), last)
			}
		}
	}
	fmt.Fprintf(out, "%s\n", time.Since(began).Round(time.Second))
	for _, user := range users {
		fmt.Fprintf(out, "%s: %d of %d last lines are right\n", or(user, "administrator"), right[user], made[user])
	}
	if wrong > 0 {
		return errDifferent
	}
	return nil
}

func or(text, other string) string {
	if text == "" {
		return other
	}
	return text
}

const rejected, before = "The request would be rejected", "Rejected before admission: "

// judge describes the error in the last line of a text; empty means that it is correct. answer is the server's answer
// to the user, first its answer to the administrator. limited means that the user cannot read everything.
func judge(text, last, answer, first string, limited bool) string {
	text, last, answer, first = normal(text), normal(last), normal(answer), normal(first)
	says := strings.HasPrefix(last, rejected) || strings.HasPrefix(last, before)
	unseen := strings.HasPrefix(last, "Nothing that can be seen rejects the request.") || says && strings.Contains(last, "unless ")
	switch {
	case limited && first != "" && strings.Contains(text, first) && !strings.Contains(last, first):
		return "a cause is hidden"
	case answer == "" && says && !(limited && unseen):
		return "it is accepted"
	case answer == "" || says && strings.Contains(last, answer):
		return ""
	case says && strings.Contains(last, ": the cluster serves no kind "):
		// A client does not send such a request, and a server first checks whether the user may send it.
		return ""
	case strings.HasPrefix(answer, "admission webhook ") || strings.HasPrefix(answer, "Internal error occurred: failed calling webhook"):
		if strings.HasPrefix(last, "Only webhooks") || limited && unseen {
			return ""
		}
	case limited && unseen:
		return ""
	}
	return "another cause"
}

// normal returns a text with errors in a fixed order. The server orders several errors at random.
func normal(text string) string {
	text = strings.Join(strings.Fields(text), " ")
	before, errs, ok := strings.Cut(text, " is invalid: [")
	errs, after, closed := strings.Cut(errs, "]")
	if !ok || !closed {
		return text
	}
	list := strings.Split(errs, ", ")
	slices.Sort(list)
	return before + " is invalid: [" + strings.Join(list, ", ") + "]" + after
}

// comparison is a cluster, and the program that explains.
type comparison struct {
	gatehouse, dir string
	config         *rest.Config
	mapper         meta.RESTMapper
}

// build creates the objects of the cluster, and waits until they are active.
func (c *comparison) build(ctx context.Context, hook *peer.Webhook) error {
	client, err := dynamic.NewForConfig(c.config)
	if err != nil {
		return err
	}
	text := strings.NewReplacer("WEBHOOK", hook.URL, "caBundle: CA", "caBundle: "+base64.StdEncoding.EncodeToString(hook.CA)).Replace(world)
	for document := range strings.SplitSeq(text, "\n---\n") {
		u := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(document), &u.Object); err != nil {
			return err
		}
		if err := c.discover(); err != nil {
			return err
		}
		mapping, err := c.mapper.RESTMapping(u.GroupVersionKind().GroupKind(), u.GroupVersionKind().Version)
		if err != nil {
			return err
		}
		resource := client.Resource(mapping.Resource).Namespace(u.GetNamespace())
		made, err := resource.Create(ctx, u, metav1.CreateOptions{FieldValidation: metav1.FieldValidationStrict})
		if err != nil {
			return fmt.Errorf("%s %s: %w", u.GetKind(), u.GetName(), err)
		}
		if status, ok := u.Object["status"]; ok {
			made.Object["status"] = status
			if _, err = resource.UpdateStatus(ctx, made, metav1.UpdateOptions{}); err != nil {
				return err
			}
		}
	}
	if err := client.Resource(schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}).Delete(ctx, "ending", metav1.DeleteOptions{}); err != nil {
		return err
	}
	for _, probe := range []struct{ name, says string }{
		{"a bad map", "bad map"}, {"a mutation that is not valid", "invalid"}, {"params that reject", "not b"}, {"a scale against a policy", "at most four"},
		{"a webhook that denies", "denied"}, {"a condition that fails", "none"}, {"below a minimum", "spec.size"}, {"a namespace that ends", "being terminated"},
		{"pods over the quota", "exceeded quota"}, {"memory above a limit", "maximum memory"},
	} {
		if err := c.await(ctx, probe.name, probe.says); err != nil {
			return err
		}
	}
	return nil
}

// discover reads the kinds. The resource of a new CRD appears with a short delay.
func (c *comparison) discover() error {
	client, err := discovery.NewDiscoveryClientForConfig(c.config)
	if err != nil {
		return err
	}
	groups, err := restmapper.GetAPIGroupResources(client)
	c.mapper = restmapper.NewDiscoveryRESTMapper(groups)
	return err
}

// await repeats a request until it is rejected.
func (c *comparison) await(ctx context.Context, name, says string) error {
	var list []request
	if err := yaml.Unmarshal(requests, &list); err != nil {
		return err
	}
	i := slices.IndexFunc(list, func(r request) bool { return r.Name == name })
	if i < 0 {
		return fmt.Errorf("there is no request %q", name)
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for {
		if err := c.discover(); err != nil {
			return err
		}
		answer, err := c.ask(ctx, &list[i], "")
		if err == nil && strings.Contains(answer, says) {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("%s: no %q in %q: %w", name, says, answer, errors.Join(err, context.Cause(ctx)))
		}
	}
}

// ask sends a request as a dry run, and returns the message of the rejection.
func (c *comparison) ask(ctx context.Context, r *request, user string) (string, error) {
	config := rest.CopyConfig(c.config)
	config.Impersonate.UserName = or(r.As, user)
	client, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return "", err
	}
	u := &unstructured.Unstructured{Object: r.Object}
	kind, name := u.GroupVersionKind(), u.GetName()
	mapping, err := c.mapper.RESTMapping(kind.GroupKind(), kind.Version)
	if r.Of != "" {
		resource, _, _ := strings.Cut(r.Of, "/")
		if kind, err = c.mapper.KindFor(schema.GroupVersionResource{Resource: resource}); err == nil {
			mapping, err = c.mapper.RESTMapping(kind.GroupKind(), kind.Version)
		}
	}
	if err != nil && !meta.IsNoMatchError(err) {
		return "", err
	}
	path := []string{"apis", kind.Group, kind.Version}
	if kind.Group == "" {
		path = []string{"api", kind.Version}
	}
	if mapping == nil || mapping.Scope.Name() == meta.RESTScopeNameNamespace {
		path = append(path, "namespaces", or(r.Namespace, "plain"))
	}
	if mapping == nil {
		path = append(path, strings.ToLower(kind.Kind)+"s")
	} else {
		path = append(path, mapping.Resource.Resource)
	}
	call := client.RESTClient().Post()
	switch r.Operation {
	case "UPDATE":
		call, path = client.RESTClient().Put(), append(path, name)
	case "DELETE":
		call, path = client.RESTClient().Delete(), append(path, name)
	default:
		if r.Subresource != "" {
			path = append(path, name)
		}
	}
	if r.Subresource != "" {
		path = append(path, r.Subresource)
	}
	if r.Operation != "DELETE" {
		content := u.DeepCopy()
		if mapping != nil && mapping.Scope.Name() == meta.RESTScopeNameNamespace {
			content.SetNamespace(or(r.Namespace, "plain"))
		}
		data, err := json.Marshal(content.Object)
		if err != nil {
			return "", err
		}
		call = call.Body(data).SetHeader("Content-Type", "application/json").Param("fieldValidation", "Strict")
	}
	if !r.Really {
		call = call.Param("dryRun", "All")
	}
	err = call.AbsPath(path...).Do(ctx).Error()
	if status := apierrors.APIStatus(nil); errors.As(err, &status) {
		return status.Status().Message, nil
	}
	return "", err
}

// explain returns the output of the program.
func (c *comparison) explain(ctx context.Context, r *request, user string) (string, error) {
	data, err := json.Marshal(r.Object)
	if err != nil {
		return "", err
	}
	file, kubeconfig := filepath.Join(c.dir, "object.json"), filepath.Join(c.dir, "kubeconfig")
	if err := os.WriteFile(file, data, 0o600); err != nil {
		return "", err
	}
	if err := clientcmd.WriteToFile(clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{"c": {Server: c.config.Host, CertificateAuthorityData: c.config.CAData}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{"u": {Token: c.config.BearerToken, Impersonate: user}},
		Contexts:       map[string]*clientcmdapi.Context{"x": {Cluster: "c", AuthInfo: "u"}},
		CurrentContext: "x",
	}, kubeconfig); err != nil {
		return "", err
	}
	args := []string{"explain", "-f", file, "--kubeconfig", kubeconfig, "-n", or(r.Namespace, "plain"), "--operation", or(r.Operation, "CREATE"), "--expand=false"}
	if r.Subresource != "" {
		args = append(args, "--subresource", r.Subresource)
	}
	if r.Of != "" {
		args = append(args, r.Of)
	}
	if r.As != "" {
		args = append(args, "--as", r.As)
	}
	cmd := exec.CommandContext(ctx, c.gatehouse, args...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil && stdout.Len() == 0 {
		// A request that cannot be explained is an error; the last line of the error is compared.
		return strings.TrimSpace(stderr.String()), nil
	}
	return strings.TrimSpace(stdout.String()), nil
}
