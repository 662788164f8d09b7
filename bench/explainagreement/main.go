// Explainagreement compares the output of gatehouse explain for requests to a kube-apiserver with the answers of that
// server.
//
// The program creates random namespaces with labels for Pod Security, quotas with their status, limit ranges and
// service accounts; the cluster has priority classes, runtime classes, storage classes and admission policies. For
// each namespace, one run of the command explains some pods, claims and workloads, and the objects that controllers
// create for the workloads. Then each explained request is sent, as a dry run by the explained user. If explain could
// not read something that the request depends on, the request is counted, and compared only if the plan rejects it.
// All other verdicts and messages must be the same as the server's.
//
// In every fourth namespace, the reader lacks a random right.
package main

import (
	"bytes"
	"context"
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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/gatehouse-dev/gatehouse/admission/plan"
	"github.com/gatehouse-dev/gatehouse/bench/internal/peer"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	binaries := flag.String("binaries", "", "`directory` of the programs (default: in the user's cache)")
	gatehouse := flag.String("gatehouse", "", "`program` to use instead of building gatehouse")
	namespaces := flag.Uint64("namespaces", 200, "how many namespaces there are")
	seed := flag.Uint64("seed", 1, "seed of the first namespace; the others follow it")
	verbose := flag.Bool("v", false, "print every request with its verdict")
	flag.Parse()
	if err := run(ctx, os.Stdout, *binaries, *gatehouse, *seed, *namespaces, *verbose); err != nil {
		fmt.Fprintln(os.Stderr, "explainagreement:", err)
		os.Exit(1)
	}
}

var errDifferent = errors.New("gatehouse explain and kube-apiserver differ")

func run(ctx context.Context, out io.Writer, binaries, gatehouse string, seed, namespaces uint64, verbose bool) (err error) {
	if binaries == "" {
		if binaries, err = peer.Dir(); err != nil {
			return err
		}
	}
	b := peer.Binaries{KubeAPIServer: filepath.Join(binaries, "kube-apiserver"), Etcd: filepath.Join(binaries, "etcd"), Gatehouse: gatehouse}
	if gatehouse == "" {
		if b, err = peer.Build(ctx, ".", binaries); err != nil {
			return err
		}
	}
	dir, err := os.MkdirTemp("", "explainagreement-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	s, err := peer.Start(ctx, b, peer.KubeAPIServer, filepath.Join(dir, "kube-apiserver"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Stop()) }()
	c := &comparison{gatehouse: b.Gatehouse, dir: dir, config: s.Config, seen: map[string]int{}}
	if c.admin, err = dynamic.NewForConfig(s.Config); err != nil {
		return err
	}
	for _, o := range cluster() {
		if err := c.create(ctx, o); err != nil {
			return err
		}
	}
	worlds := make([]*world, namespaces)
	for i := range worlds {
		worlds[i] = newWorld(seed + uint64(i))
		for _, o := range worlds[i].objects {
			if err := c.create(ctx, o); err != nil {
				return err
			}
		}
	}
	if err := c.settle(ctx); err != nil {
		return err
	}
	began := time.Now()
	for _, w := range worlds {
		if err := c.play(ctx, w, out, verbose); err != nil {
			return fmt.Errorf("namespace %s: %w", w.namespace, err)
		}
	}
	fmt.Fprintf(out, "%d namespaces, %d requests (%d by controllers): %d rejected by kube-apiserver, %d accepted; %d differences; of %d something was unknown (%d of these rejected); %s\n",
		len(worlds), c.requests, c.dependents, c.rejected, c.requests-c.rejected, len(c.differences), c.unknown, c.unknownRejected, time.Since(began).Round(time.Second))
	for _, by := range slices.Sorted(keys(c.seen)) {
		fmt.Fprintf(out, "    rejected by %s: %d\n", by, c.seen[by])
	}
	for _, d := range c.differences {
		fmt.Fprintln(out, d)
	}
	if len(c.differences) > 0 {
		return errDifferent
	}
	return nil
}

func keys[V any](m map[string]V) func(func(string) bool) {
	return func(yield func(string) bool) {
		for k := range m {
			if !yield(k) {
				return
			}
		}
	}
}

// comparison counts the results.
type comparison struct {
	gatehouse, dir string
	config         *rest.Config
	admin          dynamic.Interface

	requests, dependents, rejected, unknown, unknownRejected int
	// seen counts the rejections by the plugin that rejects according to explain.
	seen        map[string]int
	differences []string
}

// resources maps the kinds that the program creates to their resources.
var resources = map[string]schema.GroupVersionResource{
	"Namespace": {Version: "v1", Resource: "namespaces"}, "ServiceAccount": {Version: "v1", Resource: "serviceaccounts"},
	"LimitRange": {Version: "v1", Resource: "limitranges"}, "ResourceQuota": {Version: "v1", Resource: "resourcequotas"},
	"Pod": {Version: "v1", Resource: "pods"}, "PersistentVolumeClaim": {Version: "v1", Resource: "persistentvolumeclaims"},
	"PriorityClass": {Group: "scheduling.k8s.io", Version: "v1", Resource: "priorityclasses"},
	"RuntimeClass":  {Group: "node.k8s.io", Version: "v1", Resource: "runtimeclasses"},
	"StorageClass":  {Group: "storage.k8s.io", Version: "v1", Resource: "storageclasses"},
	"Deployment":    {Group: "apps", Version: "v1", Resource: "deployments"}, "ReplicaSet": {Group: "apps", Version: "v1", Resource: "replicasets"},
	"StatefulSet": {Group: "apps", Version: "v1", Resource: "statefulsets"}, "DaemonSet": {Group: "apps", Version: "v1", Resource: "daemonsets"},
	"Job": {Group: "batch", Version: "v1", Resource: "jobs"}, "CronJob": {Group: "batch", Version: "v1", Resource: "cronjobs"},
	"ClusterRole":                      {Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "clusterroles"},
	"ClusterRoleBinding":               {Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "clusterrolebindings"},
	"ValidatingAdmissionPolicy":        {Group: "admissionregistration.k8s.io", Version: "v1", Resource: "validatingadmissionpolicies"},
	"ValidatingAdmissionPolicyBinding": {Group: "admissionregistration.k8s.io", Version: "v1", Resource: "validatingadmissionpolicybindings"},
	"MutatingAdmissionPolicy":          {Group: "admissionregistration.k8s.io", Version: "v1", Resource: "mutatingadmissionpolicies"},
	"MutatingAdmissionPolicyBinding":   {Group: "admissionregistration.k8s.io", Version: "v1", Resource: "mutatingadmissionpolicybindings"},
}

// create creates an object, with its status.
func (c *comparison) create(ctx context.Context, content map[string]any) error {
	u := &unstructured.Unstructured{Object: content}
	gvr, ok := resources[u.GetKind()]
	if !ok {
		return fmt.Errorf("no resource of kind %s", u.GetKind())
	}
	client := dynamic.ResourceInterface(c.admin.Resource(gvr).Namespace(u.GetNamespace()))
	made, err := client.Create(ctx, u, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("%s %s: %w", u.GetKind(), u.GetName(), err)
	}
	if status, ok := content["status"]; ok {
		made.Object["status"] = status
		_, err = client.UpdateStatus(ctx, made, metav1.UpdateOptions{})
	}
	return err
}

// settle waits until the policies are active: kube-apiserver polls them.
func (c *comparison) settle(ctx context.Context) error {
	pod := pod("default", "probe", map[string]any{"forbidden": "yes"}, map[string]any{"containers": []any{map[string]any{"name": "c", "image": "i"}}, "serviceAccountName": "probe"})
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	if err := c.create(ctx, object("v1", "ServiceAccount", "default", "probe", nil)); err != nil {
		return err
	}
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		_, err := c.admin.Resource(resources["Pod"]).Namespace("default").Create(ctx, &unstructured.Unstructured{Object: pod}, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err != nil && strings.Contains(err.Error(), "forbidden by the policy") {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("the policies are not in force: %w", errors.Join(err, context.Cause(ctx)))
		}
	}
}

// explanation is the output of the command.
type explanation struct {
	Spec struct {
		Object map[string]any `json:"object"`
		User   string         `json:"user"`
		Groups []string       `json:"groups"`
	} `json:"spec"`
	Status struct {
		Plan plan.Plan `json:"plan"`
	} `json:"status"`
}

// play explains the requests of a world and sends them.
func (c *comparison) play(ctx context.Context, w *world, out io.Writer, verbose bool) error {
	items := make([]any, len(w.requests))
	for i, r := range w.requests {
		items[i] = r
	}
	data, err := json.Marshal(map[string]any{"apiVersion": "v1", "kind": "List", "items": items})
	if err != nil {
		return err
	}
	file := filepath.Join(c.dir, w.namespace+".json")
	if err := os.WriteFile(file, data, 0o600); err != nil {
		return err
	}
	kubeconfig := filepath.Join(c.dir, w.namespace+".kubeconfig")
	if err := writeKubeconfig(kubeconfig, c.config, w.reader); err != nil {
		return err
	}
	args := []string{"explain", "-f", file, "--kubeconfig", kubeconfig, "-o", "json"}
	if w.reader != "" {
		// explain reads the cluster as another user than the user of the requests.
		args = append(args, "--as", "admin", "--as-group", "system:masters")
	}
	cmd := exec.CommandContext(ctx, c.gatehouse, args...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("gatehouse explain: %w: %s", err, stderr.String())
	}
	if stderr.Len() > 0 {
		return fmt.Errorf("gatehouse explain: %s", stderr.String())
	}
	var list struct{ Items []explanation }
	if err := json.Unmarshal(stdout.Bytes(), &list); err != nil {
		return err
	}
	for i := range list.Items {
		if err := c.ask(ctx, w, &list.Items[i], out, verbose); err != nil {
			return err
		}
	}
	return nil
}

// ask sends an explained request, and compares the results.
func (c *comparison) ask(ctx context.Context, w *world, e *explanation, out io.Writer, verbose bool) error {
	u := &unstructured.Unstructured{Object: e.Spec.Object}
	config := rest.CopyConfig(c.config)
	config.WarningHandler = rest.NoWarnings{}
	c.requests++
	if strings.HasPrefix(e.Spec.User, "system:serviceaccount:kube-system:") {
		config.Impersonate = rest.ImpersonationConfig{UserName: e.Spec.User, Groups: e.Spec.Groups}
		c.dependents++
	}
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return err
	}
	_, err = client.Resource(resources[u.GetKind()]).Namespace(w.namespace).Create(ctx, u, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	answer := ""
	if err != nil {
		status := apierrors.APIStatus(nil)
		if !errors.As(err, &status) {
			return err
		}
		answer = status.Status().Message
		c.rejected++
	}
	p := &e.Status.Plan
	unknown := false
	for s := range p.Each() {
		unknown = unknown || s.Effect == plan.Undecided
	}
	if verbose {
		fmt.Fprintf(out, "%s: %s %s%s: %q\n", w.namespace, u.GetKind(), u.GetName(), u.GetGenerateName(), answer)
	}
	if p.Rejection != "" {
		c.seen[p.RejectedBy()]++
	}
	if unknown {
		c.unknown++
	}
	switch {
	case unknown && p.Rejection == "":
		if answer != "" {
			c.unknownRejected++
		}
		return nil
	case unknown && answer != "":
		// An earlier check that explain could not see may reject the request first.
		return nil
	case answer != "" && p.Rejection != "" && several.MatchString(answer) && several.MatchString(p.Rejection):
		// If several limits or quotas are exceeded, kube-apiserver names any of them.
		return nil
	}
	if normal(answer) != normal(p.Rejection) {
		content, _ := json.Marshal(u.Object)
		c.differences = append(c.differences, fmt.Sprintf("%s: %s %s%s\n    kube-apiserver: %s\n    explained:      %s\n    %s", w.namespace, u.GetKind(), u.GetName(), u.GetGenerateName(), or(answer), or(p.Rejection), content))
	}
	return nil
}

func or(message string) string {
	if message == "" {
		return "accepted"
	}
	return message
}

// generated matches the random end of a name that the server generates, and the placeholder of explain.
var generated = regexp.MustCompile(`("[a-z0-9-]+-)([bcdfghjklmnpqrstvwxz2456789]{5})"`)

// several matches the messages of LimitRanger and ResourceQuota about one of several limits and quotas.
var several = regexp.MustCompile(`(usage|ratio) per (Container|Pod|PersistentVolumeClaim) is|exceeded quota: `)

// normal returns a message without its random parts: generated names, and the order of several errors.
func normal(message string) string {
	message = generated.ReplaceAllString(strings.Join(strings.Fields(message), " "), `$1?"`)
	opening, errs, ok := strings.Cut(message, " is invalid: [")
	if !ok {
		return message
	}
	list := strings.Split(strings.TrimSuffix(errs, "]"), ", ")
	slices.Sort(list)
	return opening + " is invalid: " + strings.Join(list, ", ")
}

// writeKubeconfig writes the kubeconfig of a reader, empty for the administrator.
func writeKubeconfig(path string, config *rest.Config, reader string) error {
	return clientcmd.WriteToFile(clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{"c": {Server: config.Host, CertificateAuthorityData: config.CAData}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{"u": {Token: config.BearerToken, Impersonate: reader}},
		Contexts:       map[string]*clientcmdapi.Context{"x": {Cluster: "c", AuthInfo: "u"}},
		CurrentContext: "x",
	}, path)
}
