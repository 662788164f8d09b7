package replay

import (
	"encoding/json"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gatehouse-dev/gatehouse/internal/commands/predict/offline"
	"github.com/gatehouse-dev/gatehouse/internal/commands/predict/order"
	"github.com/gatehouse-dev/gatehouse/internal/commands/predict/requestlog"
	"github.com/gatehouse-dev/gatehouse/internal/readers/manifests"
	"github.com/gatehouse-dev/gatehouse/internal/readers/report"
)

// ReadRegistrations reads files with policies and webhook configurations. Errors are about the contents of the files.
func ReadRegistrations(paths []string) (*manifests.Set, error) {
	set, err := manifests.Read(paths, nil)
	if err != nil {
		return nil, err
	}
	for _, p := range set.Problems {
		if !p.Warning {
			return nil, fmt.Errorf("%s: %s", report.Place(p.File, p.Line, 0), p.Message)
		}
	}
	for _, o := range set.Objects {
		u := o.Unstructured()
		if u.GetName() == "" && len(order.Judging([]*unstructured.Unstructured{u})) > 0 {
			return nil, fmt.Errorf("%s: the %s has no metadata.name that is a text; quote a name such as \"no\"", report.Place(o.File, o.Line, 0), u.GetKind())
		}
	}
	if len(set.Objects) == 0 {
		return nil, fmt.Errorf("no Kubernetes objects were found in %s", strings.Join(paths, ", "))
	}
	return set, nil
}

// Known returns a lookup of the cluster's objects, which are needed to evaluate patches and updates of a log. The
// lookup returns nil if there is no such object.
func (c *Cluster) Known() func(requestlog.Key) json.RawMessage {
	var list []*unstructured.Unstructured
	if c.Snapshot != nil {
		list = c.Snapshot.Objects()
	}
	kinds := kindsOf(list)
	found := map[requestlog.Key]*unstructured.Unstructured{}
	for _, u := range list {
		found[requestlog.Key{Resource: kinds.Of(u.GroupVersionKind()).Resource.GroupResource(), Namespace: u.GetNamespace(), Name: u.GetName()}] = u
	}
	return func(key requestlog.Key) json.RawMessage {
		u := found[key]
		if u == nil {
			return nil
		}
		data, err := json.Marshal(u.Object)
		if err != nil {
			return nil
		}
		return data
	}
}

// kindsOf returns the built-in kinds and the kinds of the CRDs among the objects.
func kindsOf(objects []*unstructured.Unstructured) *offline.Kinds {
	kinds := offline.Builtin()
	for _, u := range objects {
		if u.GetKind() == "CustomResourceDefinition" {
			_ = kinds.Define(u)
		}
	}
	return kinds
}

// titleOf names an object in messages.
func titleOf(u *unstructured.Unstructured) string {
	return report.Title(u.GetKind(), u.GetNamespace(), u.GetName())
}
