package legacy

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"io"
	"mime"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/golang/protobuf/proto"
	openapi "github.com/googleapis/gnostic/OpenAPIv2"
	"gopkg.in/yaml.v2"
	"k8s.io/api/admissionregistration/v1alpha1"
	"k8s.io/api/core/v1"
	"k8s.io/api/extensions/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
)

var ready = regexp.MustCompile(`^gatehouse is ready at (\S+), kubeconfig (\S+)$`)

// start builds Gatehouse, starts it, and returns its administrator's configuration.
func start(t *testing.T) *rest.Config {
	t.Helper()
	dir := t.TempDir()
	binary := filepath.Join(dir, "gatehouse")
	build := exec.Command("go", "build", "-o", binary, "./cmd/gatehouse")
	build.Dir = "../.."
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	var log bytes.Buffer
	server := exec.Command(binary, "serve", "--data-dir", filepath.Join(dir, "data"), "--secure-port", "0", "--runtime-config", "api/legacy=true",
		"--initializer-timeout", "10m", "--admission-consistency", "strict")
	server.Stderr = &log
	out, err := server.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = server.Process.Signal(syscall.SIGTERM)
		if err := server.Wait(); err != nil {
			t.Errorf("the server ended with %v\n%s", err, log.String())
		}
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	match := ready.FindStringSubmatch(strings.TrimSpace(line))
	if err != nil || match == nil {
		t.Fatalf("%v: %q\n%s", err, line, log.String())
	}
	return config(t, match[1], match[2])
}

// config reads the required fields of a kubeconfig.
func config(t *testing.T, host, kubeconfig string) *rest.Config {
	t.Helper()
	text, err := os.ReadFile(kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	var content struct {
		Clusters []struct {
			Cluster struct {
				CA string `yaml:"certificate-authority-data"`
			}
		}
		Users []struct {
			User struct {
				Cert string `yaml:"client-certificate-data"`
				Key  string `yaml:"client-key-data"`
			}
		}
	}
	if err := yaml.Unmarshal(text, &content); err != nil {
		t.Fatal(err)
	}
	data := func(s string) []byte {
		decoded, err := base64.StdEncoding.DecodeString(s)
		if err != nil || len(decoded) == 0 {
			t.Fatalf("kubeconfig: %v\n%s", err, text)
		}
		return decoded
	}
	return &rest.Config{Host: host, TLSClientConfig: rest.TLSClientConfig{
		CAData: data(content.Clusters[0].Cluster.CA), CertData: data(content.Users[0].User.Cert), KeyData: data(content.Users[0].User.Key),
	}}
}

const protobuf = "application/vnd.kubernetes.protobuf"

// client uses protobuf only.
func client(t *testing.T, c *rest.Config, root string, gv schema.GroupVersion) *rest.RESTClient {
	t.Helper()
	copied := *c
	copied.APIPath, copied.GroupVersion = root, &gv
	copied.ContentType, copied.AcceptContentTypes = protobuf, protobuf
	copied.NegotiatedSerializer = serializer.DirectCodecFactory{CodecFactory: scheme.Codecs}
	client, err := rest.RESTClientFor(&copied)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

func TestTheClientOf2017(t *testing.T) {
	c := start(t)
	core := client(t, c, "/api", v1.SchemeGroupVersion)
	registrations := client(t, c, "/apis", v1alpha1.SchemeGroupVersion)
	extensions := client(t, c, "/apis", v1beta1.SchemeGroupVersion)
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}

	// The client registers an initializer and a hook, in protobuf.
	rules := []v1alpha1.Rule{{APIGroups: []string{"", "extensions"}, APIVersions: []string{"*"}, Resources: []string{"configmaps", "deployments"}}}
	mesh := &v1alpha1.InitializerConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "mesh"}, Initializers: []v1alpha1.Initializer{
		{Name: "a.example.com", Rules: rules}, {Name: "b.example.com", Rules: rules},
	}}
	stored := &v1alpha1.InitializerConfiguration{}
	must(registrations.Post().Resource("initializerconfigurations").Body(mesh).Do().Into(stored))
	if !reflect.DeepEqual(stored.Initializers, mesh.Initializers) {
		t.Errorf("the configuration is %v", stored)
	}
	ignore := v1alpha1.Ignore
	hook := &v1alpha1.ExternalAdmissionHookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "hook"}, ExternalAdmissionHooks: []v1alpha1.ExternalAdmissionHook{{
		Name: "h.example.com", FailurePolicy: &ignore,
		ClientConfig: v1alpha1.AdmissionHookClientConfig{Service: v1alpha1.ServiceReference{Namespace: "ns", Name: "svc"}, CABundle: c.CAData},
		Rules: []v1alpha1.RuleWithOperations{{
			Operations: []v1alpha1.OperationType{"CREATE"},
			Rule:       v1alpha1.Rule{APIGroups: []string{"never.example.com"}, APIVersions: []string{"*"}, Resources: []string{"things"}},
		}},
	}}}
	storedHook := &v1alpha1.ExternalAdmissionHookConfiguration{}
	must(registrations.Post().Resource("externaladmissionhookconfigurations").Body(hook).Do().Into(storedHook))
	if !reflect.DeepEqual(storedHook.ExternalAdmissionHooks[0].Rules, hook.ExternalAdmissionHooks[0].Rules) {
		t.Errorf("the configuration is %v", storedHook)
	}
	hooks := &v1alpha1.ExternalAdmissionHookConfigurationList{}
	must(registrations.Get().Resource("externaladmissionhookconfigurations").Do().Into(hooks))
	if len(hooks.Items) != 1 {
		t.Errorf("listed %v", hooks)
	}

	// A creator waits. The controller receives the object, changes it and removes the initializers from the list, one
	// after the other.
	created := make(chan error, 1)
	go func() {
		got := &v1.ConfigMap{}
		err := core.Post().Namespace("default").Resource("configmaps").Body(&v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "o"}}).Do().Into(got)
		if err == nil && (got.Data["by"] != "b.example.com" || got.Initializers != nil) {
			t.Errorf("the creator got %v", got)
		}
		created <- err
	}()
	w, err := core.Get().Prefix("watch").Namespace("default").Resource("configmaps").Param("includeUninitialized", "true").Watch()
	must(err)
	defer w.Stop()
	deadline := time.After(time.Minute)
	for acted := 0; acted < 2; {
		select {
		case e := <-w.ResultChan():
			o, ok := e.Object.(*v1.ConfigMap)
			if !ok || o.Name != "o" || o.Initializers == nil {
				continue
			}
			name := o.Initializers.Pending[0].Name
			if want := mesh.Initializers[acted].Name; name != want {
				t.Fatalf("it is the turn of %s, want %s", name, want)
			}
			o.Data = map[string]string{"by": name}
			if o.Initializers.Pending = o.Initializers.Pending[1:]; len(o.Initializers.Pending) == 0 {
				o.Initializers = nil
			}
			must(core.Put().Namespace("default").Resource("configmaps").Name("o").Body(o).Do().Error())
			acted++
		case <-deadline:
			t.Fatal("nothing to act on")
		}
	}
	must(<-created)

	// A get and a list return an object that waits for an initializer. A failed result removes it.
	stuck := &v1beta1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "stuck"}, Spec: v1beta1.DeploymentSpec{
		Template: v1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "stuck"}},
			Spec:       v1.PodSpec{Containers: []v1.Container{{Name: "c", Image: "registry.example.com/c:1"}}},
		},
	}}
	deployments := func(r *rest.Request) *rest.Request { return r.Namespace("default").Resource("deployments") }
	must(deployments(extensions.Post()).Param("includeUninitialized", "true").Body(stuck).Do().Into(stuck))
	got := &v1beta1.Deployment{}
	must(deployments(extensions.Get()).Name("stuck").Do().Into(got))
	list := &v1beta1.DeploymentList{}
	must(deployments(extensions.Get()).Param("includeUninitialized", "true").Do().Into(list))
	for _, o := range []*v1beta1.Deployment{stuck, got, &list.Items[0]} {
		if o.Initializers == nil || len(o.Initializers.Pending) != 2 || o.Initializers.Pending[0].Name != "a.example.com" {
			t.Errorf("it waits for %v", o.Initializers)
		}
	}
	must(deployments(extensions.Post()).Name("stuck").SubResource("rollback").
		Body(&v1beta1.DeploymentRollback{Name: "stuck", RollbackTo: v1beta1.RollbackConfig{Revision: 3}}).Do().Error())
	must(deployments(extensions.Get()).Name("stuck").Do().Into(got))
	if got.Spec.RollbackTo == nil || got.Spec.RollbackTo.Revision != 3 {
		t.Errorf("it is to be rolled back to %v", got.Spec.RollbackTo)
	}
	got.Initializers.Result = &metav1.Status{Status: metav1.StatusFailure, Code: 409, Reason: "TooMany", Message: "no more"}
	must(deployments(extensions.Put()).Name("stuck").Body(got).Do().Into(got))
	if got.Initializers == nil || got.Initializers.Result == nil || got.Initializers.Result.Message != "no more" {
		t.Errorf("refused: %v", got.Initializers)
	}
	if err := deployments(extensions.Get()).Name("stuck").Do().Error(); err == nil {
		t.Error("the refused object is still there")
	}

	// kubectl 1.8 reads this document before it creates anything. Its client must be able to parse the media type,
	// and its parser rejects a schema that has both fields and a type.
	transport, err := rest.TransportFor(c)
	must(err)
	res, err := (&http.Client{Transport: transport}).Get(c.Host + "/swagger-2.0.0.pb-v1")
	must(err)
	defer res.Body.Close()
	data, err := io.ReadAll(res.Body)
	must(err)
	if _, _, err := mime.ParseMediaType(res.Header.Get("Content-Type")); err != nil {
		t.Errorf("the media type of OpenAPI: %v", err)
	}
	document := &openapi.Document{}
	must(proto.Unmarshal(data, document))
	found := false
	for _, d := range document.Definitions.AdditionalProperties {
		found = found || strings.HasSuffix(d.Name, "v1beta1.Deployment")
		if len(d.Value.GetProperties().GetAdditionalProperties()) > 0 && len(d.Value.GetType().GetValue()) > 0 {
			t.Errorf("%s has fields and the type %v", d.Name, d.Value.GetType().GetValue())
		}
	}
	if document.Swagger != "2.0" || !found {
		t.Errorf("OpenAPI %q has no Deployment", document.Swagger)
	}
}
