package emulation

import (
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/yaml"
)

const newPod = `
spec:
  schedulingGroup: {podGroupName: g}
  workloadRef: {name: w, podGroup: g}
  nodeSelector: {schedulingGroup: stays}
  containers:
  - name: c
    volumeMounts: [{name: v, bindMountOptions: [noexec]}]
    livenessProbe: {httpGet: {port: 80, protocol: H2C}}
  volumes:
  - {name: v, emptyDir: {mode: 448}}
`

// S26.12: the fields that a release lacks, at any depth, and below inline fields.
func TestFieldsOfAnotherRelease(t *testing.T) {
	for _, tt := range []struct {
		version string
		later   []string
		gone    bool
	}{
		{version: "1.37"},
		{version: "v1.41.0"},
		{version: "dev"},
		{version: "v1.36.2", later: []string{"spec.containers[0].livenessProbe.httpGet.protocol", "spec.containers[0].volumeMounts[0].bindMountOptions", "spec.volumes[0].emptyDir.mode"}},
		{version: "1.35", gone: true, later: []string{
			"spec.containers[0].livenessProbe.httpGet.protocol", "spec.containers[0].volumeMounts[0].bindMountOptions", "spec.schedulingGroup", "spec.volumes[0].emptyDir.mode",
		}},
		{version: "v1.29.3", later: []string{
			"spec.containers[0].livenessProbe.httpGet.protocol", "spec.containers[0].volumeMounts[0].bindMountOptions", "spec.schedulingGroup", "spec.volumes[0].emptyDir.mode",
		}},
	} {
		t.Run(tt.version, func(t *testing.T) {
			pod := map[string]any{}
			if err := yaml.Unmarshal([]byte(newPod), &pod); err != nil {
				t.Fatal(err)
			}
			later := FieldsOf(tt.version).Remove(pod, reflect.TypeFor[corev1.Pod]())
			if diff := cmp.Diff(tt.later, later); diff != "" {
				t.Errorf("later (-want +got):\n%s", diff)
			}
			spec := pod["spec"].(map[string]any)
			if _, stays := spec["workloadRef"]; stays == tt.gone {
				t.Errorf("spec.workloadRef stays: %t", stays)
			}
			if _, stays := spec["schedulingGroup"]; stays == (len(tt.later) == 4) {
				t.Errorf("spec.schedulingGroup stays: %t", stays)
			}
			if diff := cmp.Diff(map[string]any{"schedulingGroup": "stays"}, spec["nodeSelector"]); diff != "" {
				t.Errorf("a key of a map (-want +got):\n%s", diff)
			}
		})
	}
}

// fieldsText covers the types of this build, and all supported releases.
func TestTheListOfFieldsIsOfThisRelease(t *testing.T) {
	if title := "Kubernetes " + strings.Join(Releases(), ", ") + " differ"; !strings.Contains(fieldsText, title) {
		t.Fatalf("the list has no %q: run it again, as its first line says", title)
	}
	types := map[string]reflect.Type{}
	for _, of := range scheme.Scheme.AllKnownTypes() {
		collect(of, types)
	}
	seen := 0
	for name, list := range changes() {
		of := types[name]
		if of == nil {
			// No server serves the group of the type.
			continue
		}
		members := Members(of)
		last := map[string]bool{}
		for _, c := range list {
			last[c.field] = c.came
		}
		for field, there := range last {
			seen++
			if _, has := members[field]; has != there {
				t.Errorf("%s %s: the list says %t, the type %t", name, field, there, has)
			}
		}
	}
	if seen < 50 {
		t.Errorf("only %d fields were compared", seen)
	}
}

// collect adds a type, and the types of its members.
func collect(of reflect.Type, types map[string]reflect.Type) {
	switch of.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Map:
		collect(of.Elem(), types)
	case reflect.Struct:
		if name := typeName(of); types[name] == nil {
			types[name] = of
			for _, member := range Members(of) {
				collect(member, types)
			}
		}
	}
}
