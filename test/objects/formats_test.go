package objects

import (
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/yaml"

	"github.com/gatehouse-dev/gatehouse/test/harness"
)

func TestFormats(t *testing.T) {
	t.Parallel()
	s := harness.Shared(t)
	h := s.HTTP(t, nil)
	path := "/api/v1/namespaces/" + s.Namespace(t) + "/configmaps"

	created := h.Must(http.StatusCreated, "POST", path, "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\ndata:\n  key: value\n",
		"Content-Type", "application/yaml", "Accept", "application/yaml")
	want(t, "type", created.Header.Get("Content-Type"), "application/yaml")
	asJSON, asYAML := h.Get(path+"/a"), h.Get(path+"/a", "Accept", "application/yaml")
	want(t, "type", asJSON.Header.Get("Content-Type"), "application/json")
	if diff := cmp.Diff(asJSON.Body, asYAML.Body); diff != "" {
		t.Errorf("JSON and YAML differ (-JSON +YAML):\n%s", diff)
	}
	h.Must(http.StatusOK, "PUT", path+"/a", string(asYAML.Raw), "Content-Type", "application/yaml")
	binary := h.Get(path+"/a", "Accept", "application/vnd.kubernetes.protobuf")
	want(t, "type", binary.Header.Get("Content-Type"), "application/vnd.kubernetes.protobuf")
	want(t, "magic", string(binary.Raw[:4]), "k8s\x00")
	h.Must(http.StatusOK, "PUT", path+"/a", string(binary.Raw), "Content-Type", "application/vnd.kubernetes.protobuf")
	preferred := h.Get(path+"/a", "Accept", "application/xml;q=0.9, application/yaml;q=0.5, */*;q=0.1")
	want(t, "negotiated", preferred.Header.Get("Content-Type"), "application/yaml")
	pretty := h.Get(path + "/a?pretty=true")
	want(t, "pretty", strings.Contains(string(pretty.Raw), "\n  \"kind\": \"ConfigMap\""), true)

	table := h.Get(path, "Accept", asTable+",application/json")
	want(t, "kind", table.Text("kind"), "Table")
	var columns []string
	for _, c := range table.At("columnDefinitions").([]any) {
		columns = append(columns, harness.At(c, "name").(string))
	}
	want(t, "columns", columns, []string{"Name", "Data", "Age"})
	want(t, "cell", table.Text("rows", "0", "cells", "0"), "a")
	want(t, "row object", table.Text("rows", "0", "object", "kind"), "PartialObjectMetadata")
	want(t, "no object", h.Get(path+"?includeObject=None", "Accept", asTable).At("rows", "0", "object"), nil)
	want(t, "whole object", h.Get(path+"?includeObject=Object", "Accept", asTable).Text("rows", "0", "object", "data", "key"), "value")

	partial := h.Get(path+"/a", "Accept", asMetadata)
	want(t, "kind", partial.Text("apiVersion")+" "+partial.Text("kind"), "meta.k8s.io/v1 PartialObjectMetadata")
	want(t, "data", partial.At("data"), nil)
	want(t, "name", partial.Text("metadata", "name"), "a")
	list := h.Get(path, "Accept", asMetadataList)
	want(t, "kind", list.Text("kind"), "PartialObjectMetadataList")
	want(t, "names", names(list), []string{"a"})
}

// Unsafe deletion, for unreadable objects, is rejected for a readable object, in every format of the
// response.
func TestUnsafeDeletionInAllFormats(t *testing.T) {
	t.Parallel()
	s := harness.Shared(t)
	h := s.HTTP(t, nil)
	path := "/api/v1/namespaces/" + s.Namespace(t) + "/configmaps"
	h.Must(http.StatusCreated, "POST", path, configMap("a"))
	for _, accept := range []string{"application/json", asTable, asMetadata, asTable + ",application/json"} {
		status := h.Do("DELETE", path+"/a?ignoreStoreReadErrorWithClusterBreakingPotential=true", "", "Accept", accept).
			Refusal(http.StatusConflict, metav1.StatusReasonConflict)
		if !strings.Contains(status.Message, "unsafe deletion is not allowed because the object is decodable from storage") {
			t.Errorf("%s: message %q", accept, status.Message)
		}
	}
	h.Get(path + "/a")
}

// TestTypedClients does the same with the typed client in JSON and in protobuf.
func TestTypedClients(t *testing.T) {
	t.Parallel()
	s := harness.Shared(t)
	for name, config := range map[string]*kubernetes.Clientset{
		"JSON":     harness.Client(t, s.Admin),
		"protobuf": harness.Client(t, harness.Protobuf(s.Admin)),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx := harness.Context(t)
			deployments := config.AppsV1().Deployments(s.Namespace(t))
			d := &appsv1.Deployment{}
			if err := yaml.Unmarshal([]byte(deployment("apps/v1", "d")), d); err != nil {
				t.Fatal(err)
			}
			w, err := deployments.Watch(ctx, metav1.ListOptions{})
			if err != nil {
				t.Fatal(err)
			}
			defer w.Stop()
			created, err := deployments.Create(ctx, d, metav1.CreateOptions{})
			if err != nil {
				t.Fatal(err)
			}
			created.Spec.Template.Spec.Containers[0].Image = "example/main:2"
			updated, err := deployments.Update(ctx, created, metav1.UpdateOptions{})
			if err != nil {
				t.Fatal(err)
			}
			want(t, "generation", updated.Generation, int64(2))
			updated.Status.Replicas = 3
			if updated, err = deployments.UpdateStatus(ctx, updated, metav1.UpdateOptions{}); err != nil {
				t.Fatal(err)
			}
			want(t, "status", updated.Status.Replicas, int32(3))
			patched, err := deployments.Patch(ctx, "d", types.StrategicMergePatchType,
				[]byte(`{"spec":{"template":{"spec":{"containers":[{"name":"side","image":"s:1"}]}}}}`), metav1.PatchOptions{})
			if err != nil {
				t.Fatal(err)
			}
			want(t, "containers", len(patched.Spec.Template.Spec.Containers), 2)
			scale, err := deployments.GetScale(ctx, "d", metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			scale.Spec.Replicas = 8
			if _, err := deployments.UpdateScale(ctx, "d", scale, metav1.UpdateOptions{}); err != nil {
				t.Fatal(err)
			}
			list, err := deployments.List(ctx, metav1.ListOptions{})
			if err != nil {
				t.Fatal(err)
			}
			want(t, "replicas", *list.Items[0].Spec.Replicas, int32(8))
			if err := deployments.Delete(ctx, "d", metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
			if _, err := deployments.Get(ctx, "d", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
				t.Errorf("get after delete: %v", err)
			}
			for _, kind := range []string{"ADDED", "MODIFIED", "MODIFIED", "MODIFIED", "MODIFIED", "DELETED"} {
				e := <-w.ResultChan()
				want(t, "event", string(e.Type), kind)
			}

			// Values that an encoding could lose.
			secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "s"}, Data: map[string][]byte{"raw": {0, 1, 0xff}, "empty": {}}}
			got, err := config.CoreV1().Secrets(created.Namespace).Create(ctx, secret, metav1.CreateOptions{})
			if err != nil {
				t.Fatal(err)
			}
			want(t, "data", got.Data, secret.Data)
		})
	}
}
