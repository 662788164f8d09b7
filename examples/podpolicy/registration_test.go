package main

import (
	"crypto/tls"
	"crypto/x509"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	admissionv1beta1 "k8s.io/api/admissionregistration/v1beta1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"
)

func registration(version string) Registration {
	return Registration{Version: version, URL: "https://127.0.0.1:9443", CA: []byte("ca"), FailurePolicy: "Fail", NamespaceSelector: "policy=on"}
}

func TestObjectsAreOfTheVersionWanted(t *testing.T) {
	for version, into := range map[string][2]runtime.Object{
		"v1":      {&admissionv1.MutatingWebhookConfiguration{}, &admissionv1.ValidatingWebhookConfiguration{}},
		"v1beta1": {&admissionv1beta1.MutatingWebhookConfiguration{}, &admissionv1beta1.ValidatingWebhookConfiguration{}},
	} {
		t.Run(version, func(t *testing.T) {
			objects, err := registration(version).objects()
			if err != nil {
				t.Fatal(err)
			}
			for i, object := range objects {
				if got, want := object.GetAPIVersion(), "admissionregistration.k8s.io/"+version; got != want {
					t.Errorf("apiVersion = %q, want %q", got, want)
				}
				if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(object.Object, into[i], true); err != nil {
					t.Errorf("%s: %v", object.GetKind(), err)
				}
			}
		})
	}
}

// The manifests equal the configurations that the program registers for their service, except the CA bundle,
// which the user fills in.
func TestManifestsAreWhatIsRegistered(t *testing.T) {
	r := Registration{Version: "v1", Service: "podpolicy/podpolicy", FailurePolicy: "Fail", NamespaceSelector: "kubernetes.io/metadata.name notin (kube-system,podpolicy)"}
	objects, err := r.objects()
	if err != nil {
		t.Fatal(err)
	}
	for i, file := range []string{"mutating.yaml", "validating.yaml"} {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var got map[string]any
		if err := yaml.UnmarshalStrict(data, &got); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		// JSON gives numbers the same type on both sides.
		encoded, err := yaml.Marshal(objects[i].Object)
		if err != nil {
			t.Fatal(err)
		}
		var want map[string]any
		if err := yaml.Unmarshal(encoded, &want); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-registered +file):\n%s", file, diff)
		}
	}
}

func TestCertificatesAreTrustedForTheirHosts(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "certs")
	r := Registration{Service: "team/policy"}
	hosts, err := r.hosts()
	if err != nil {
		t.Fatal(err)
	}
	made, err := certificatesIn(dir, hosts)
	if err != nil {
		t.Fatal(err)
	}
	read, err := certificatesIn(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(made, read); diff != "" {
		t.Errorf("the second start (-made +read):\n%s", diff)
	}
	present, err := read.serve()
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(read.CA)
	var config tls.Config
	present(&config)
	pair, err := config.GetCertificate(nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, trusted := range map[string]bool{
		"policy.team.svc": true, "127.0.0.1": true, "localhost": true, "other.team.svc": false,
	} {
		_, err := pair.Leaf.Verify(x509.VerifyOptions{Roots: roots, DNSName: name})
		if (err == nil) != trusted {
			t.Errorf("verifying for %s: %v, want trusted = %t", name, err, trusted)
		}
	}

	if err := os.Remove(filepath.Join(dir, "tls.key")); err != nil {
		t.Fatal(err)
	}
	if _, err := certificatesIn(dir, hosts); err == nil {
		t.Error("a directory with some of the files was accepted")
	}
}

func TestParseNamesTheWrongFlag(t *testing.T) {
	for _, test := range []struct {
		args []string
		want string
	}{
		{[]string{"--registration-version=v2"}, `-registration-version "v2" is neither v1 nor v1beta1`},
		{[]string{"--failure-policy=Maybe"}, `-failure-policy "Maybe" is neither Fail nor Ignore`},
		{[]string{"--url=https://a", "--service=a/b"}, "-url and -service exclude each other"},
		{[]string{"--port=70000"}, "-port 70000 is not a port"},
		{[]string{"extra"}, `unexpected argument "extra"`},
	} {
		_, err := parse(test.args, t.Output())
		if err == nil || err.Error() != test.want {
			t.Errorf("parse(%q) = %v, want %s", test.args, err, test.want)
		}
	}
}
