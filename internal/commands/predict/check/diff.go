package check

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/rogpeppe/go-internal/diff"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"github.com/gatehouse-dev/gatehouse/admission/trace"
	"github.com/gatehouse-dev/gatehouse/internal/kit/credentials"
)

// diff adds to the report the server's changes to each object, and the step of admission that made each change.
func (r *run) diff(context.Context) error {
	if !r.Diff {
		return nil
	}
	for _, t := range r.tasks {
		r.did(comparing, 1)
		if !t.accepted() || t.skipped {
			continue
		}
		made := map[string]any{}
		if err := json.Unmarshal(t.answer.Body, &made); err != nil {
			return fmt.Errorf("the server's answer about %s: %w", t.result.Title(), err)
		}
		written, err := yaml.Marshal(comparable(t.sent.Object, t.sent.Object))
		if err != nil {
			return err
		}
		stored, err := yaml.Marshal(comparable(made, t.sent.Object))
		if err != nil {
			return err
		}
		if t.sent.GroupVersionKind() == corev1.SchemeGroupVersion.WithKind("Pod") {
			written, stored = drawn.ReplaceAll(written, []byte("${1}*****")), drawn.ReplaceAll(stored, []byte("${1}*****"))
		}
		text := string(diff.Diff("as written", written, "as stored", stored))
		// The first line repeats the names.
		_, text, _ = strings.Cut(text, "\n")
		t.result.Diff = text
		t.result.Changes = t.answer.changes
	}
	return nil
}

// changes returns the changes of a request with the steps that made them, in order.
func changes(record *trace.Record) []Change {
	var list []Change
	for act := range record.Changes() {
		var paths []string
		for i := range act.Patch {
			if p := &act.Patch[i]; p.Op != "test" && !slices.Contains(paths, p.Path) {
				paths = append(paths, p.Path)
			}
		}
		by := act.By
		if act.Kind != trace.ByPlugin {
			by = act.Kind + " " + by
		}
		if len(paths) > 0 {
			list = append(list, Change{By: by, Paths: paths})
		}
	}
	return list
}

// comparable returns an object without the fields that every server sets, and without credentials.
func comparable(content, sent map[string]any) map[string]any {
	u := &unstructured.Unstructured{Object: runtime.DeepCopyJSON(content)}
	for _, field := range []string{"uid", "resourceVersion", "creationTimestamp", "generation", "managedFields", "selfLink"} {
		unstructured.RemoveNestedField(u.Object, "metadata", field)
	}
	if annotations := u.GetAnnotations(); annotations[corev1.LastAppliedConfigAnnotation] != "" {
		delete(annotations, corev1.LastAppliedConfigAnnotation)
		if len(annotations) == 0 {
			unstructured.RemoveNestedField(u.Object, "metadata", "annotations")
		} else {
			u.SetAnnotations(annotations)
		}
	}
	if _, ok := sent["status"]; !ok {
		delete(u.Object, "status")
	}
	if u.GroupVersionKind().Group == "" {
		switch u.GetKind() {
		case "Secret":
			merge(u.Object)
		case "Service":
			allocated(u.Object, sent)
		}
	}
	credentials.Shown.Object(schema.GroupResource{}, "", u.Object)
	return u.Object
}

// anyone replaces values that the server chooses differently each time.
const anyone = "(allocated)"

// allocated replaces the addresses and ports of a service that the file does not set.
func allocated(service, sent map[string]any) {
	spec, _ := service["spec"].(map[string]any)
	asked, _ := sent["spec"].(map[string]any)
	for _, field := range []string{"clusterIP", "clusterIPs", "healthCheckNodePort"} {
		if spec[field] != nil && asked[field] == nil && spec["clusterIP"] != corev1.ClusterIPNone {
			spec[field] = anyone
		}
	}
	ports, _ := spec["ports"].([]any)
	wanted, _ := asked["ports"].([]any)
	for i := range ports {
		port, _ := ports[i].(map[string]any)
		want := map[string]any{}
		if i < len(wanted) {
			want, _ = wanted[i].(map[string]any)
		}
		if port["nodePort"] != nil && want["nodePort"] == nil {
			port["nodePort"] = anyone
		}
	}
}

// drawn matches the name of the volume added by the plugin ServiceAccount, which has a random suffix.
var drawn = regexp.MustCompile(`(?m)( name: kube-api-access-)[a-z0-9]{5}$`)

// merge moves the values in stringData of a secret to data, as the server does.
func merge(secret map[string]any) {
	written, _ := secret["stringData"].(map[string]any)
	delete(secret, "stringData")
	data, ok := secret["data"].(map[string]any)
	if !ok && len(written) > 0 {
		data = map[string]any{}
		secret["data"] = data
	}
	maps.Copy(data, written)
}
