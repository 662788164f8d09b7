package replay

import (
	"encoding/json"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gatehouse-dev/gatehouse/internal/commands/predict/requestlog"
)

// scalable lists the built-in kinds with a scale.
var scalable = map[schema.GroupResource]schema.GroupVersionKind{
	{Resource: "replicationcontrollers"}:      {Version: "v1", Kind: "ReplicationController"},
	{Group: "apps", Resource: "deployments"}:  {Group: "apps", Version: "v1", Kind: "Deployment"},
	{Group: "apps", Resource: "replicasets"}:  {Group: "apps", Version: "v1", Kind: "ReplicaSet"},
	{Group: "apps", Resource: "statefulsets"}: {Group: "apps", Version: "v1", Kind: "StatefulSet"},
}

// storedObject returns the stored object that a request acts on; nil for none. This is the object shown by the log, or else
// OldObject. For a request to a scale, OldObject is a scale: found builds the parent object from the data in the scale.
func storedObject(q *requestlog.Entry) (json.RawMessage, error) {
	switch {
	case q.Stored != nil:
		return q.Stored, nil
	case q.OldObject == nil || q.Subresource != "scale":
		return q.OldObject, nil
	}
	scale := decoded(q.OldObject)
	if scale == nil {
		return nil, unjudged("the object before the request is not readable")
	}
	kind, ok := scalable[q.GVR().GroupResource()]
	if !ok {
		return nil, unjudged("the object whose scale the request changes is not known")
	}
	// A scale omits zero replicas.
	replicas := func(of string) any {
		n, ok, _ := unstructured.NestedFieldNoCopy(scale.Object, of, "replicas")
		if !ok {
			return 0
		}
		return n
	}
	text, _, _ := unstructured.NestedString(scale.Object, "status", "selector")
	labels, selector := selected(text)
	spec := map[string]any{
		"replicas": replicas("spec"), "selector": selector,
		"template": map[string]any{"metadata": map[string]any{"labels": labels}, "spec": map[string]any{"containers": []any{map[string]any{"name": "unknown", "image": "unknown"}}}},
	}
	if kind.Group == "" {
		spec["selector"] = labels
	}
	return json.Marshal(map[string]any{
		"apiVersion": kind.GroupVersion().String(), "kind": kind.Kind, "metadata": scale.Object["metadata"], "spec": spec, "status": map[string]any{"replicas": replicas("status")},
	})
}

// selected parses a selector in the form of a scale's status, and returns labels that it selects.
func selected(text string) (labels map[string]any, selector *metav1.LabelSelector) {
	labels = map[string]any{}
	selector, err := metav1.ParseToLabelSelector(text)
	if err != nil || len(selector.MatchLabels)+len(selector.MatchExpressions) == 0 {
		selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "unknown"}}
	}
	for key, value := range selector.MatchLabels {
		labels[key] = value
	}
	for _, e := range selector.MatchExpressions {
		switch e.Operator {
		case metav1.LabelSelectorOpIn:
			labels[e.Key] = e.Values[0]
		case metav1.LabelSelectorOpExists:
			labels[e.Key] = ""
		}
	}
	return labels, selector
}
