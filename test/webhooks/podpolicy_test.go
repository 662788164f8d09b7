package webhooks

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/test/harness"
	"github.com/gatehouse-dev/gatehouse/test/speed"
)

// TestPodPolicy runs the example as a separate process and lets it validate objects applied with kubectl:
// registered in either version, by URL and through a service.
func TestPodPolicy(t *testing.T) {
	t.Parallel()
	s := harness.Sole(t, "--admission-consistency", "strict")
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	pods, err := os.ReadFile(filepath.Join(root, "examples", "podpolicy", "pods.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range speed.Some(t, 1, []struct {
		name    string
		version string
		service bool
	}{
		{"v1", "v1", false},
		{"v1beta1", "v1beta1", false},
		{"S8.4 through a service of type ExternalName", "v1", true},
	}) {
		t.Run(c.name, func(t *testing.T) {
			ns := s.Namespace(t)
			k := s.Kubectl(t, ns)
			args := []string{"--kubeconfig", s.Kubeconfig, "--registration-version", c.version, "--unregister-on-exit",
				"--namespace-selector", "kubernetes.io/metadata.name=" + ns, "--port", "0"}
			if c.service {
				_, port, err := net.SplitHostPort(harness.Refused(t))
				if err != nil {
					t.Fatal(err)
				}
				k.MustWith(toJSON(`{apiVersion: v1, kind: Service, metadata: {name: podpolicy}, spec: {type: ExternalName, externalName: localhost}}`), "apply", "-f", "-")
				args = append(args, "--service", ns+"/podpolicy", "--port", port)
				harness.StartExample(t, "podpolicy", args...)
				for _, kind := range []string{mutating, validating} {
					k.Must("patch", strings.ToLower(kind), "podpolicy", "--type=json", "-p", `[{"op":"add","path":"/webhooks/0/clientConfig/service/port","value":`+port+`}]`)
				}
			} else {
				harness.StartExample(t, "podpolicy", args...)
			}

			r := k.Run(string(pods), "apply", "-f", "-")
			want(t, "exit code", r.Code, 1)
			want(t, "what is created", strings.Fields(r.Out), []string{"pod/plain", "created", "pod/opted-out", "created"})
			for _, part := range []string{`admission webhook "images.podpolicy.gatehouse.dev" denied the request: `, "docker.io/library/nginx:1"} {
				if !strings.Contains(r.Err, part) {
					t.Errorf("error is %q without %q", r.Err, part)
				}
			}
			h, at := s.HTTP(t, nil), "/api/v1/namespaces/"+ns+"/pods/"
			containers := func(pod *harness.Response) (names []any) {
				for _, c := range pod.At("spec", "containers").([]any) {
					names = append(names, harness.At(c, "name"))
				}
				return names
			}
			plain := h.Get(at + "plain")
			want(t, "label", plain.At("metadata", "labels"), any(map[string]any{"podpolicy.gatehouse.dev/injected": "true"}))
			want(t, "containers", containers(plain), []any{"web", "podpolicy-sidecar"})
			want(t, "defaults of the sidecar", plain.Text("spec", "containers", "1", "imagePullPolicy"), "IfNotPresent")
			want(t, "containers", containers(h.Get(at+"opted-out")), []any{"web"})
			h.Must(http.StatusOK, "PATCH", at+"plain", `{"metadata":{"labels":{"a":"b"}}}`, "Content-Type", mergePatch)
			r = k.Run("", "set", "image", "pod/opted-out", "web=docker.io/library/nginx:1")
			if r.Code == 0 || !strings.Contains(r.Err, "images.podpolicy.gatehouse.dev") {
				t.Errorf("a bad image by an update: %d %q", r.Code, r.Err)
			}
			if c.version == "v1beta1" {
				stored := s.HTTP(t, nil).Get(registrationsPath("v1", mutating) + "/podpolicy")
				want(t, "S1.2 read through v1", stored.Text("apiVersion")+" "+stored.Text("webhooks", "0", "name"), "admissionregistration.k8s.io/v1 inject.podpolicy.gatehouse.dev")
			}
		})
		harness.Eventually(t, "the example has unregistered", func() error {
			if r := s.HTTP(t, nil).Do("GET", registrationsPath("v1", validating)+"/podpolicy", ""); r.Code != http.StatusNotFound {
				return fmt.Errorf("%d", r.Code)
			}
			return nil
		})
	}
}
