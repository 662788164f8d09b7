package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/gatehouse-dev/gatehouse/bench/internal/peer"
)

func newReader(data []byte) *bufio.Reader { return bufio.NewReader(bytes.NewReader(data)) }

// stageOf contains the kinds that other objects need, with the stage in which they are created.
var stageOf = map[string]int{
	"Namespace": 1, "CustomResourceDefinition": 1, "APIService": 1,
	"ServiceAccount": 2, "LimitRange": 2, "ResourceQuota": 2, "PriorityClass": 2, "RuntimeClass": 2, "StorageClass": 2,
	"VolumeAttributesClass": 2, "IngressClass": 2, "DeviceClass": 2, "CSIDriver": 2, "ServiceCIDR": 2, "Node": 2, "Role": 2, "ClusterRole": 2,
	"RoleBinding": 3, "ClusterRoleBinding": 3,
	"ValidatingAdmissionPolicy": 5, "MutatingAdmissionPolicy": 5,
	"ValidatingAdmissionPolicyBinding": 6, "MutatingAdmissionPolicyBinding": 6,
}

// webhookKinds are only dry runs and are not created: no webhook server would answer.
var webhookKinds = []string{"ValidatingWebhookConfiguration", "MutatingWebhookConfiguration"}

const (
	paramsStage   = 4
	policiesStage = 5
	bindingsStage = 6
	lastStage     = 7
)

// stages returns the indexes of the objects of a set by stage.
func (s *set) stages() [][]int {
	params := map[string]bool{}
	for _, o := range s.objects {
		spec, _ := o.content["spec"].(map[string]any)
		if kind, ok := spec["paramKind"].(map[string]any); ok {
			params[fmt.Sprint(kind["kind"])] = true
		}
	}
	stages := make([][]int, lastStage+1)
	for i, o := range s.objects {
		kind := fmt.Sprint(o.content["kind"])
		at, ok := stageOf[kind]
		if version := fmt.Sprint(o.content["apiVersion"]); version != "v1" && !strings.Contains(version, ".k8s.io/") {
			// A custom resource of the same name.
			ok = false
		}
		switch {
		case ok:
		case params[kind]:
			at = paramsStage
		case slices.Contains(webhookKinds, kind):
			at = policiesStage
		default:
			at = lastStage
		}
		stages[at] = append(stages[at], i)
	}
	return stages
}

// serviceRange contains the cluster IPs on both sides.
const serviceRange = "10.96.0.0/12"

// inForce is the time in which policies, and the objects that plugins read, must become active.
const inForce = 4 * time.Second

// kubeAPIServer is a running kube-apiserver.
type kubeAPIServer struct {
	kubectl    string
	kubeconfig string
	dir        string
	client     *kubernetes.Clientset
	config     *rest.Config
}

// kubeAPIServer starts a kube-apiserver and evaluates a set on it.
func (a asked) kubeAPIServer(ctx context.Context, s *set, dir string) (_ map[string]answer, _ map[string]schemaVerdict, _ really, err error) {
	server, err := peer.Start(ctx, a.binaries, peer.KubeAPIServer, filepath.Join(dir, "kube-apiserver"), "--service-cluster-ip-range="+serviceRange)
	if err != nil {
		return nil, nil, nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, server.Stop())
		}
	}()
	k := &kubeAPIServer{kubectl: a.binaries.Gatehouse, kubeconfig: filepath.Join(dir, "kubeconfig"), dir: dir, config: server.Config}
	if err := writeKubeconfig(k.kubeconfig, server.Config); err != nil {
		return nil, nil, nil, err
	}
	if k.client, err = kubernetes.NewForConfig(server.Config); err != nil {
		return nil, nil, nil, err
	}
	if err := k.furnish(ctx); err != nil {
		return nil, nil, nil, err
	}
	answers := map[string]answer{}
	for at, stage := range s.stages() {
		if len(stage) == 0 {
			continue
		}
		found, err := k.apply(ctx, s, stage, fmt.Sprintf("stage-%d", at), "--dry-run=server")
		if err != nil {
			return nil, nil, nil, err
		}
		var accepted []int
		for _, i := range stage {
			answers[fileOf(i)] = found[fileOf(i)]
			if kind := fmt.Sprint(s.objects[i].content["kind"]); !found[fileOf(i)].rejected && !slices.Contains(webhookKinds, kind) {
				accepted = append(accepted, i)
			}
		}
		if at == lastStage || len(accepted) == 0 {
			continue
		}
		if _, err := k.apply(ctx, withoutConversion(s), accepted, fmt.Sprintf("stage-%d-real", at)); err != nil {
			return nil, nil, nil, err
		}
		if err := k.settle(ctx, at); err != nil {
			return nil, nil, nil, err
		}
	}
	schemas, err := k.schemas(ctx, s)
	if err != nil {
		return nil, nil, nil, err
	}
	// Only a real request is rejected for some reasons.
	return answers, schemas, func(ids []int) (found map[string]answer, err error) {
		if len(ids) > 0 {
			found, err = k.apply(ctx, withoutConversion(s), ids, "real")
		}
		return found, errors.Join(err, server.Stop())
	}, nil
}

// really applies objects without dry run, and stops the server.
type really func(ids []int) (map[string]answer, error)

// withoutConversion returns a copy of a set whose CRDs have no conversion webhook: no server would answer.
func withoutConversion(s *set) *set {
	out := *s
	out.objects = slices.Clone(s.objects)
	for i, o := range out.objects {
		if o.content["kind"] != "CustomResourceDefinition" {
			continue
		}
		data, _ := json.Marshal(o.content)
		content := map[string]any{}
		_ = json.Unmarshal(data, &content)
		if spec, ok := content["spec"].(map[string]any); ok {
			if conversion, _ := spec["conversion"].(map[string]any); conversion["strategy"] == "Webhook" {
				delete(spec, "conversion")
			}
		}
		out.objects[i].content = content
	}
	return &out
}

func writeKubeconfig(path string, config *rest.Config) error {
	return clientcmd.WriteToFile(clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{"c": {Server: config.Host, CertificateAuthorityData: config.CAData}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{"u": {Token: config.BearerToken}},
		Contexts:       map[string]*clientcmdapi.Context{"x": {Cluster: "c", AuthInfo: "u"}},
		CurrentContext: "x",
	}, path)
}

// sentinel is an invalid object, so that kubectl always reports several errors: it does not print the file of a
// single error.
const sentinel = `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"sentinel","namespace":"default"},"spec":{"containers":[]}}`

const sentinelFile = "999999.json"

// about matches the file name in a line of kubectl's errors; the message follows.
var about = regexp.MustCompile(`"?[^" ]*/(\d{5,6}\.json)"?: `)

// starts matches the beginning of a new message of kubectl.
var starts = regexp.MustCompile(`^(Error from server|error:|Error:|Warning:|The |unable to |resource mapping not found|\[?error (parsing|validating|when retrieving))`)

// apply runs kubectl apply on objects and returns its message about each file.
func (k *kubeAPIServer) apply(ctx context.Context, s *set, which []int, name string, flags ...string) (map[string]answer, error) {
	dir := filepath.Join(k.dir, name)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	answers := map[string]answer{}
	for _, i := range which {
		if err := writeObject(filepath.Join(dir, fileOf(i)), s.objects[i].content); err != nil {
			return nil, err
		}
		answers[fileOf(i)] = answer{}
	}
	if err := os.WriteFile(filepath.Join(dir, sentinelFile), []byte(sentinel), 0o644); err != nil {
		return nil, err
	}
	var problems strings.Builder
	cmd := exec.CommandContext(ctx, k.kubectl, append([]string{"kubectl", "--kubeconfig", k.kubeconfig, "--cache-dir", filepath.Join(k.dir, "cache"), "apply", "-R", "-f", dir}, flags...)...)
	cmd.Stderr = &problems
	var failed *exec.ExitError
	if err := cmd.Run(); !errors.As(err, &failed) {
		return nil, fmt.Errorf("kubectl apply must refuse %s: %v", sentinelFile, err)
	}
	current := ""
	for line := range strings.Lines(problems.String()) {
		if matches := about.FindAllStringSubmatchIndex(line, -1); matches != nil {
			for _, m := range matches[:len(matches)-1] {
				// kubectl validates kinds that it cannot apply against the schemas of the server. It continues in the
				// same line.
				if said := line[m[1]:]; strings.HasPrefix(said, "error validating data: ") {
					answers[line[m[2]:m[3]]] = answer{rejected: true, message: strings.TrimSpace(said)}
				}
			}
			m := matches[len(matches)-1]
			current = line[m[2]:m[3]]
			answers[current] = answer{rejected: true, message: strings.TrimSpace(line[m[1]:])}
			continue
		}
		if strings.HasPrefix(line, `The Pod "sentinel" is invalid: `) {
			// There is no other error.
			answers[sentinelFile] = answer{rejected: true}
			continue
		}
		if starts.MatchString(line) {
			if !strings.HasPrefix(line, "Warning:") && !strings.Contains(line, "applying patch") && !strings.Contains(line, "retrieving current configuration") {
				return nil, fmt.Errorf("kubectl says something about no file: %s", line)
			}
			current = ""
			continue
		}
		if current != "" {
			a := answers[current]
			a.message += "\n" + strings.TrimRight(line, "\n")
			answers[current] = a
		}
	}
	if !answers[sentinelFile].rejected {
		return nil, fmt.Errorf("kubectl apply does not refuse %s: %s", sentinelFile, problems.String())
	}
	long := slices.DeleteFunc(slices.Clone(which), func(i int) bool { return !strings.Contains(answers[fileOf(i)].message, tooLong) })
	if len(long) == 0 || slices.Contains(flags, "--server-side") {
		return answers, nil
	}
	more, err := k.apply(ctx, s, long, name+"-server-side", append(slices.Clone(flags), "--server-side")...)
	maps.Copy(answers, more)
	return answers, err
}

// tooLong is a part of the error about an object that only server-side apply can apply. gatehouse check evaluates the
// object with server-side apply, and reports that it needs --server-side.
const tooLong = "metadata.annotations: Too long: "

// furnish creates the service account of each namespace. In a cluster, a controller creates it.
func (k *kubeAPIServer) furnish(ctx context.Context) error {
	namespaces, err := k.client.CoreV1().Namespaces().List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for _, ns := range namespaces.Items {
		cmd := serviceAccount(ns.Name)
		if _, err := k.client.CoreV1().ServiceAccounts(ns.Name).Create(ctx, cmd, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) && !strings.Contains(err.Error(), " denied request: ") {
			// A policy may deny it. The account was created earlier.
			return err
		}
	}
	return nil
}

// settle waits until the created objects are active.
func (k *kubeAPIServer) settle(ctx context.Context, at int) error {
	if err := k.furnish(ctx); err != nil {
		return err
	}
	quotas, err := k.client.CoreV1().ResourceQuotas("").List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for i := range quotas.Items {
		q := &quotas.Items[i]
		if q.Status.Hard != nil {
			continue
		}
		q.Status.Hard, q.Status.Used = q.Spec.Hard, zero(q.Spec.Hard)
		if _, err := k.client.CoreV1().ResourceQuotas(q.Namespace).UpdateStatus(ctx, q, metav1.UpdateOptions{}); err != nil {
			return err
		}
	}
	select {
	case <-time.After(inForce):
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	return nil
}
