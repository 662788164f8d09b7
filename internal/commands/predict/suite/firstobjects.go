package suite

import (
	"maps"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"github.com/gatehouse-dev/gatehouse/internal/commands/predict/offline"
	"github.com/gatehouse-dev/gatehouse/internal/commands/predict/suite/solve"
)

// baseOf returns a small object of a kind, with the fields that its schema requires. about is nil for an unknown schema.
func baseOf(kind *offline.Kind, about *spec.Schema) map[string]any {
	apiVersion, name := kind.Kind.GroupVersion().String(), kind.Kind.Kind
	object := map[string]any{"apiVersion": apiVersion, "kind": name, "metadata": map[string]any{"name": "test"}}
	spec := func() map[string]any {
		return map[string]any{"containers": []any{map[string]any{"name": "main", "image": "example.com/app:1.0"}}}
	}
	labels := map[string]any{"app": "test"}
	template := func(restart string) map[string]any {
		pod := spec()
		if restart != "" {
			pod["restartPolicy"] = restart
		}
		return map[string]any{"metadata": map[string]any{"labels": labels}, "spec": pod}
	}
	selector := map[string]any{"matchLabels": labels}
	known := map[schema.GroupKind]any{
		{Kind: "Pod"}:                                  spec(),
		{Group: "apps", Kind: "Deployment"}:            map[string]any{"selector": selector, "template": template("")},
		{Group: "apps", Kind: "ReplicaSet"}:            map[string]any{"selector": selector, "template": template("")},
		{Group: "apps", Kind: "DaemonSet"}:             map[string]any{"selector": selector, "template": template("")},
		{Group: "apps", Kind: "StatefulSet"}:           map[string]any{"selector": selector, "serviceName": "test", "template": template("")},
		{Group: "batch", Kind: "Job"}:                  map[string]any{"template": template("Never")},
		{Group: "batch", Kind: "CronJob"}:              map[string]any{"schedule": "0 * * * *", "jobTemplate": map[string]any{"spec": map[string]any{"template": template("Never")}}},
		{Kind: "Service"}:                              map[string]any{"selector": labels, "ports": []any{map[string]any{"port": int64(80)}}},
		{Kind: "PersistentVolumeClaim"}:                map[string]any{"accessModes": []any{"ReadWriteOnce"}, "resources": map[string]any{"requests": map[string]any{"storage": "1Gi"}}},
		{Group: "policy", Kind: "PodDisruptionBudget"}: map[string]any{"minAvailable": int64(1), "selector": selector},
		{Group: "networking.k8s.io", Kind: "Ingress"}: map[string]any{"defaultBackend": map[string]any{
			"service": map[string]any{"name": "test", "port": map[string]any{"number": int64(80)}}}},
		{Group: "networking.k8s.io", Kind: "NetworkPolicy"}:     map[string]any{"podSelector": map[string]any{}},
		{Group: "autoscaling", Kind: "HorizontalPodAutoscaler"}: map[string]any{"maxReplicas": int64(3), "scaleTargetRef": map[string]any{"apiVersion": "apps/v1", "kind": "Deployment", "name": "test"}},
	}
	top := map[schema.GroupKind]map[string]any{
		{Kind: "PodTemplate"}:                                  {"template": template("")},
		{Kind: "ReplicationController"}:                        {"spec": map[string]any{"selector": labels, "template": template("")}},
		{Group: "discovery.k8s.io", Kind: "EndpointSlice"}:     {"addressType": "IPv4", "endpoints": []any{map[string]any{"addresses": []any{"192.0.2.1"}}}},
		{Group: "storage.k8s.io", Kind: "StorageClass"}:        {"provisioner": "csi.example.com"},
		{Kind: "PersistentVolume"}:                             {"spec": map[string]any{"capacity": map[string]any{"storage": "1Gi"}, "accessModes": []any{"ReadWriteOnce"}, "hostPath": map[string]any{"path": "/data"}}},
		{Group: "policy", Kind: "Eviction"}:                    {},
		{Kind: "Binding"}:                                      {"target": map[string]any{"kind": "Node", "name": "node"}},
		{Group: "authentication.k8s.io", Kind: "TokenRequest"}: {"spec": map[string]any{"audiences": []any{"api"}, "expirationSeconds": int64(3600)}},
		{Group: "autoscaling", Kind: "Scale"}:                  {"spec": map[string]any{"replicas": int64(1)}},
		{Group: "apiextensions.k8s.io", Kind: "CustomResourceDefinition"}: {
			"metadata": map[string]any{"name": "tests.example.com"},
			"spec": map[string]any{
				"group": "example.com", "scope": "Namespaced", "names": map[string]any{"kind": "Test", "plural": "tests"},
				"versions": []any{map[string]any{"name": "v1", "served": true, "storage": true, "schema": map[string]any{"openAPIV3Schema": map[string]any{"type": "object"}}}},
			},
		},
	}
	made, ok := known[kind.Kind.GroupKind()]
	content, whole := top[kind.Kind.GroupKind()]
	switch {
	case ok:
		object["spec"] = made
	case whole:
		maps.Copy(object, content)
	default:
		if required, ok := solve.Sample(about, "").(map[string]any); ok {
			delete(required, "metadata")
			delete(required, "status")
			maps.Copy(object, required)
			object["apiVersion"], object["kind"] = apiVersion, name
		}
	}
	if role, ok := strings.CutSuffix(name, "Binding"); ok && kind.Kind.Group == "rbac.authorization.k8s.io" {
		object["roleRef"] = map[string]any{"apiGroup": kind.Kind.Group, "kind": role, "name": "test"}
	}
	if kind.Namespaced {
		object["metadata"].(map[string]any)["namespace"] = "default"
	}
	return runtime.DeepCopyJSON(object)
}
