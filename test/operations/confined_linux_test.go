package operations

import (
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/gatehouse-dev/gatehouse/test/harness"
	"github.com/gatehouse-dev/gatehouse/test/speed"
)

// The program starts as in each manifest: with the same user, arguments and volumes, and without other
// writable directories. Its probes then succeed.
func TestTheServersOfTheManifestsStart(t *testing.T) {
	t.Parallel()
	for _, folder := range speed.Some(t, 1, []string{"base", "three"}) {
		t.Run(folder, func(t *testing.T) {
			t.Parallel()
			set := statefulSet(t, filepath.Join(deployed(t), "kustomize", folder))
			pod, container := set.Spec.Template.Spec, set.Spec.Template.Spec.Containers[0]
			if root := container.SecurityContext.ReadOnlyRootFilesystem; root == nil || !*root {
				t.Fatal("the root of the container can be written")
			}
			data, err := os.MkdirTemp("", "data-")
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { os.RemoveAll(data) })
			var args []string
			for _, arg := range container.Args[1:] {
				name, value, _ := strings.Cut(arg, "=")
				switch name {
				case "--data-dir":
					if !mounted(container, set.Spec.VolumeClaimTemplates, value) {
						t.Errorf("%s is in no volume that lasts", value)
					}
					continue
				case "--bind-address":
					value = "127.0.0.1"
				case "--advertise-address":
					value = "192.0.2.1"
				case "--secure-port":
					continue
				case "--etcd-servers":
					value = harness.StartEtcd(t).URL
				case "--etcd-cafile", "--etcd-certfile", "--etcd-keyfile":
					// The etcd of this test has no certificates.
					continue
				}
				args = append(args, name+"="+value)
			}
			s := harness.StartConfined(t, data, int(*pod.SecurityContext.RunAsUser), args...)
			h := s.HTTP(t, nil)
			for _, probe := range []*corev1.Probe{container.StartupProbe, container.ReadinessProbe, container.LivenessProbe} {
				h.Must(http.StatusOK, "GET", probe.HTTPGet.Path, "")
			}
			h.Must(http.StatusCreated, "POST", namespaces, `{"metadata":{"name":"written"}}`)
		})
	}
}

// The systemd unit starts the program likewise, with a separate user and one writable directory.
func TestTheServerOfTheUnitStarts(t *testing.T) {
	speed.Long(t)
	t.Parallel()
	unit, err := os.ReadFile(filepath.Join(deployed(t), "systemd", "gatehouse.service"))
	if err != nil {
		t.Fatal(err)
	}
	command := regexp.MustCompile(`(?m)^ExecStart=\S+ serve --data-dir \$\{STATE_DIRECTORY\} (.*) \$GATEHOUSE_FLAGS$`).FindSubmatch(unit)
	if command == nil {
		t.Fatal("the unit starts no server with its data in the directory that systemd makes")
	}
	data, err := os.MkdirTemp("", "data-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(data) })
	const user = 61184 // the first UID of DynamicUser
	s := harness.StartConfined(t, data, user, strings.Fields(strings.ReplaceAll(string(command[1]), "0.0.0.0", "127.0.0.1"))...)
	s.HTTP(t, nil).Must(http.StatusCreated, "POST", namespaces, `{"metadata":{"name":"written"}}`)
}

// statefulSet returns the StatefulSet in kustomize's output for a folder.
func statefulSet(t *testing.T, folder string) *appsv1.StatefulSet {
	t.Helper()
	r := harness.Run(t, "kubectl", "kustomize", folder)
	if r.Code != 0 {
		t.Fatal(r.Err)
	}
	decoder := yaml.NewYAMLOrJSONDecoder(strings.NewReader(r.Out), 4096)
	for {
		set := &appsv1.StatefulSet{}
		if err := decoder.Decode(set); errors.Is(err, io.EOF) {
			t.Fatalf("no StatefulSet in %s", r.Out)
		} else if err != nil {
			t.Fatal(err)
		}
		if set.Kind == "StatefulSet" {
			return set
		}
	}
}

// mounted reports whether a directory is the mount point of a volume claim.
func mounted(c corev1.Container, claims []corev1.PersistentVolumeClaim, dir string) bool {
	for _, m := range c.VolumeMounts {
		for _, claim := range claims {
			if m.Name == claim.Name && m.MountPath == dir && !m.ReadOnly {
				return true
			}
		}
	}
	return false
}
