package encryption

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"

	"github.com/gatehouse-dev/gatehouse/bench/internal/peer"
)

// configuration has a provider of each kind that needs no plugin.
func configuration() string {
	key := func(c string) string { return base64.StdEncoding.EncodeToString([]byte(strings.Repeat(c, 32))) }
	return fmt.Sprintf(`apiVersion: apiserver.config.k8s.io/v1
kind: EncryptionConfiguration
resources:
- resources: [secrets]
  providers: [{secretbox: {keys: [{name: one, secret: %s}]}}, {identity: {}}]
- resources: [configmaps, customresourcedefinitions.apiextensions.k8s.io]
  providers: [{aesgcm: {keys: [{name: two, secret: %s}]}}, {identity: {}}]
- resources: ['*.*']
  providers: [{aescbc: {keys: [{name: three, secret: %s}]}}, {identity: {}}]
`, key("1"), key("2"), key("3"))
}

// objects are the objects that each server writes and the other server reads; %s is the name of the writing server.
var objects = []struct {
	resource schema.GroupVersionResource
	text     string
}{
	{schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}, `{apiVersion: v1, kind: Namespace, metadata: {name: of-%[1]s, annotations: {note: never-in-clear}}}`},
	{schema.GroupVersionResource{Version: "v1", Resource: "secrets"}, `{apiVersion: v1, kind: Secret, metadata: {name: s, namespace: of-%[1]s}, stringData: {a: never-in-clear}}`},
	{schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}, `{apiVersion: v1, kind: ConfigMap, metadata: {name: c, namespace: of-%[1]s}, data: {a: never-in-clear}}`},
	{schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}, `{apiVersion: apps/v1, kind: Deployment, metadata: {name: d, namespace: of-%[1]s, annotations: {note: never-in-clear}}, spec: {selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, spec: {containers: [{name: c, image: i}]}}}}`},
	{schema.GroupVersionResource{Group: "networking.k8s.io", Version: "v1", Resource: "ingresses"}, `{apiVersion: networking.k8s.io/v1, kind: Ingress, metadata: {name: i, namespace: of-%[1]s, annotations: {note: never-in-clear}}, spec: {defaultBackend: {service: {name: s, port: {number: 80}}}}}`},
	{schema.GroupVersionResource{Group: "admissionregistration.k8s.io", Version: "v1", Resource: "validatingwebhookconfigurations"}, `{apiVersion: admissionregistration.k8s.io/v1, kind: ValidatingWebhookConfiguration, metadata: {name: of-%[1]s, annotations: {note: never-in-clear}}}`},
	{schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}, `{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: things.%[1]s.example.com, annotations: {note: never-in-clear}}, spec: {group: %[1]s.example.com, scope: Namespaced, names: {plural: things, singular: thing, kind: Thing}, versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}]}}`},
	{schema.GroupVersionResource{Group: "%s.example.com", Version: "v1", Resource: "things"}, `{apiVersion: %[1]s.example.com/v1, kind: Thing, metadata: {name: t, namespace: of-%[1]s}, a: never-in-clear}`},
}

// S29.1: with one configuration on one etcd, kube-apiserver and Gatehouse read each other's data, and nothing of it
// is stored in clear text.
func TestBothReadWhatTheOtherOneEncrypted(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 8*time.Minute)
	defer cancel()
	binaries, err := peer.Build(ctx, "..", "")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	file := filepath.Join(dir, "encryption.yaml")
	if err := os.WriteFile(file, []byte(configuration()), 0o600); err != nil {
		t.Fatal(err)
	}
	flag := "--encryption-provider-config=" + file
	upstream, err := peer.Start(ctx, binaries, peer.KubeAPIServer, filepath.Join(dir, "kube"), flag)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { upstream.Stop() })
	own, err := upstream.JoinAs(ctx, binaries, peer.Gatehouse, filepath.Join(dir, "gatehouse"), flag)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { own.Stop() })
	for _, turn := range []struct {
		name         string
		writes, read *peer.Server
	}{{"kube", upstream, own}, {"gatehouse", own, upstream}} {
		writer, reader := client(t, turn.writes), client(t, turn.read)
		for _, o := range objects {
			obj := &unstructured.Unstructured{}
			if err := yaml.Unmarshal(fmt.Appendf(nil, o.text, turn.name), obj); err != nil {
				t.Fatal(err)
			}
			resource := o.resource
			if strings.HasPrefix(resource.Group, "%s") {
				resource.Group = fmt.Sprintf(resource.Group, turn.name)
			}
			// A new CRD, or a watch cache that is not filled yet, causes a short delay.
			await(ctx, t, turn.name+" writes "+resource.Resource, func() error {
				_, err := writer.Resource(resource).Namespace(obj.GetNamespace()).Create(ctx, obj, metav1.CreateOptions{})
				return err
			})
			await(ctx, t, "the other one reads "+resource.Resource+" of "+turn.name, func() error {
				got, err := reader.Resource(resource).Namespace(obj.GetNamespace()).Get(ctx, obj.GetName(), metav1.GetOptions{})
				if err == nil && !strings.Contains(fmt.Sprint(got.Object), "never-in-clear") && !strings.Contains(fmt.Sprint(got.Object), base64.StdEncoding.EncodeToString([]byte("never-in-clear"))) {
					err = fmt.Errorf("it has %v", got.Object)
				}
				if err == nil {
					_, err = reader.Resource(resource).List(ctx, metav1.ListOptions{})
				}
				return err
			})
		}
	}
	etcd, err := clientv3.New(clientv3.Config{Endpoints: []string{upstream.EtcdURL()}, Context: ctx})
	if err != nil {
		t.Fatal(err)
	}
	defer etcd.Close()
	all, err := etcd.Get(ctx, "/registry/", clientv3.WithPrefix())
	if err != nil {
		t.Fatal(err)
	}
	encrypted := 0
	for _, kv := range all.Kvs {
		if bytes.Contains(kv.Value, []byte("never-in-clear")) {
			t.Errorf("%s is in clear", kv.Key)
		}
		if bytes.HasPrefix(kv.Value, []byte("k8s:enc:")) {
			encrypted++
		}
	}
	if encrypted < 2*len(objects)-1 {
		t.Errorf("%d of %d values are encrypted", encrypted, len(all.Kvs))
	}
}

func client(t *testing.T, s *peer.Server) dynamic.Interface {
	t.Helper()
	c, err := dynamic.NewForConfig(s.Config)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func await(ctx context.Context, t *testing.T, what string, do func() error) {
	t.Helper()
	var last error
	if err := wait.PollUntilContextTimeout(ctx, 200*time.Millisecond, time.Minute, true, func(context.Context) (bool, error) {
		last = do()
		return last == nil, nil
	}); err != nil {
		t.Fatalf("%s: %v", what, last)
	}
}
