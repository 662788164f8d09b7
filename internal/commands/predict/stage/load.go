package stage

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gatehouse-dev/gatehouse/internal/commands/predict/offline"
	"github.com/gatehouse-dev/gatehouse/internal/commands/predict/order"
	"github.com/gatehouse-dev/gatehouse/internal/commands/predict/rejection"
	"github.com/gatehouse-dev/gatehouse/internal/readers/report"
	"github.com/gatehouse-dev/gatehouse/internal/server/api/catalog"
)

// Patience is the time that the server may take to serve a new kind, or to read a stored object.
const Patience = 20 * time.Second

// Refused is an object that the server rejected.
type Refused struct {
	Object *unstructured.Unstructured
	Status *metav1.Status
	// Unserved reports whether the server does not have the kind of the object.
	Unserved bool
}

// loading is an object that is being loaded into the server.
type loading struct {
	object    *unstructured.Unstructured
	kind      *offline.Kind
	namespace string
	// note describes a difference between the given and the stored object; refused is the rejection if it is not
	// stored.
	note    string
	refused *metav1.Status
	// used is the usage in the status of a quota; nil if there is none.
	used corev1.ResourceList
}

// Load stores objects in the server, before the registrations among them become active, and also creates the objects
// and statuses that controllers would create for them. An object without a namespace is stored in namespace "default".
// If several objects have the same name, the last one counts. validation is the treatment of fields unknown to the
// server, as in metav1.FieldValidationStrict. The refused objects and the notes are in the order of the objects, phase
// by phase.
func (s *Stage) Load(ctx context.Context, validation string, objects []*unstructured.Unstructured) (refused []Refused, notes []string, err error) {
	if len(objects) == 0 {
		return nil, nil, nil
	}
	kinds := order.ParamKinds(objects)
	phases := map[order.Phase][]*loading{}
	for _, u := range objects {
		at := order.PhaseOf(u, kinds)
		phases[at] = append(phases[at], &loading{object: u})
	}
	ctx, cancel := context.WithTimeoutCause(ctx, 10*Patience, fmt.Errorf("the server has not taken the objects within %s", 10*Patience))
	defer cancel()
	for _, at := range order.AsStored {
		batch := phases[at]
		for _, l := range batch {
			l.kind = s.kinds.Of(l.object.GroupVersionKind())
			if l.kind.Namespaced {
				l.namespace = cmp.Or(l.object.GetNamespace(), metav1.NamespaceDefault)
			}
		}
		lane := func(l *loading) string { return s.Lanes.Of(l.kind, l.namespace, l.object.GetName()) }
		if err := order.InLanes(ctx, batch, lane, func(ctx context.Context, l *loading) error { return s.load(ctx, validation, l) }); err != nil {
			return nil, nil, err
		}
		for _, l := range batch {
			if l.note != "" {
				notes = append(notes, l.note)
			}
			if l.refused != nil {
				refused = append(refused, Refused{l.object, l.refused, l.kind.Guessed})
			}
		}
		if err := s.furnish(ctx, at, batch); err != nil {
			return nil, nil, err
		}
	}
	// The usage in the status of a quota does not include the objects that were loaded.
	counted := false
	for _, l := range phases[order.Readings] {
		if l.used == nil {
			continue
		}
		counted = true
		if err := s.FurnishQuota(ctx, l.namespace, l.object.GetName(), l.used); err != nil {
			return nil, nil, err
		}
	}
	if counted {
		err = s.CaughtUp(ctx)
	}
	return refused, notes, err
}

// load stores one object, as an administrator.
func (s *Stage) load(ctx context.Context, validation string, l *loading) error {
	u := l.object
	if phase, _, _ := unstructured.NestedString(u.Object, "status", "phase"); u.GetKind() == "Namespace" && phase == string(corev1.NamespaceTerminating) {
		l.note = fmt.Sprintf("the cluster is deleting the namespace %s", u.GetName())
		return nil
	}
	if l.kind.Guessed {
		l.refused = &metav1.Status{Reason: metav1.StatusReasonNotFound, Message: "this server does not serve " + u.GetAPIVersion() + " " + u.GetKind()}
		return nil
	}
	object := &unstructured.Unstructured{Object: runtime.DeepCopyJSON(u.Object)}
	object.SetNamespace(l.namespace)
	object.SetResourceVersion("")
	if catalog.Scheme.Recognizes(u.GroupVersionKind()) {
		PruneNulls(object.Object)
	} else {
		// The schema of a custom resource decides about nulls.
		PruneNulls(object.Object["metadata"])
	}
	if later := rejection.TakeLater(s.Fields, object.Object, u.GroupVersionKind()); len(later) > 0 && validation == metav1.FieldValidationStrict {
		status := offline.StrictError(u.GroupVersionKind(), "", later).Status()
		l.refused = &status
		return nil
	}
	if s.MayConvert == nil {
		WithoutConversion(object)
	}
	q := HTTPRequest{Method: http.MethodPost, Path: Collection(l.kind, l.namespace), ContentType: JSON, Body: Encode(object.Object)}
	q.Query = map[string][]string{"fieldManager": {"gatehouse"}, "fieldValidation": {validation}}
	a, err := s.Admin().Do(ctx, q)
	if err != nil {
		return err
	}
	if a.Code == http.StatusConflict && u.GetName() != "" {
		// Every cluster has this object, or the objects contain it twice.
		current, err := s.Get(ctx, l.kind, l.namespace, u.GetName())
		if err != nil || current == nil {
			return cmp.Or(err, a.Err(q))
		}
		object.SetResourceVersion(current.GetResourceVersion())
		q.Method, q.Path, q.Body = http.MethodPut, Path(l.kind, l.namespace, u.GetName()), Encode(object.Object)
		if a, err = s.Admin().Do(ctx, q); err != nil {
			return err
		}
	}
	if l.refused = a.Status; l.refused != nil || l.kind.Resource.GroupResource() != (schema.GroupResource{Resource: "resourcequotas"}) {
		return nil
	}
	s.Lanes.Limit(l.namespace)
	var counted struct{ Used corev1.ResourceList }
	data, err := json.Marshal(u.Object["status"])
	if err == nil {
		err = json.Unmarshal(data, &counted)
	}
	if err != nil {
		return fmt.Errorf("the status of %s: %w", report.Title(u.GetKind(), l.namespace, u.GetName()), err)
	}
	if l.used = counted.Used; l.used != nil {
		return nil
	}
	return s.FurnishQuota(ctx, l.namespace, u.GetName(), nil)
}

// furnish completes a phase, so that the objects of the next one can be stored.
func (s *Stage) furnish(ctx context.Context, at order.Phase, batch []*loading) error {
	switch at {
	case order.Definitions:
		lane := func(l *loading) string { return order.Key(l.kind, "", l.object.GetName()) }
		err := order.InLanes(ctx, batch, lane, func(ctx context.Context, l *loading) (err error) {
			switch kind := l.kind.Kind.Kind; {
			case l.refused != nil || l.note != "":
			case kind == "Namespace":
				return s.FurnishNamespace(ctx, l.object.GetName())
			case kind == "CustomResourceDefinition":
				var problem string
				if problem, err = s.AwaitServed(ctx, l.object.GetName()); problem != "" {
					l.refused = &metav1.Status{Reason: metav1.StatusReasonInvalid, Message: problem}
				}
			}
			return err
		})
		if err != nil || len(batch) == 0 {
			return err
		}
		return s.Discover()
	case order.Grants:
		if slices.ContainsFunc(batch, func(l *loading) bool { return l.kind.Resource.Group == order.RBAC }) {
			if err := s.FurnishRoles(ctx); err != nil {
				return err
			}
		}
		return s.CaughtUp(ctx)
	}
	return nil
}

// Undefined returns the kinds of objects, and of the params of policies among them, that neither the server has nor a CRD
// among the objects defines.
func (s *Stage) Undefined(objects []*unstructured.Unstructured) (list []schema.GroupVersionKind) {
	defined := map[schema.GroupKind]bool{}
	for _, u := range objects {
		if u.GroupVersionKind().Group == order.Extensions {
			group, _, _ := unstructured.NestedString(u.Object, "spec", "group")
			kind, _, _ := unstructured.NestedString(u.Object, "spec", "names", "kind")
			defined[schema.GroupKind{Group: group, Kind: kind}] = true
		}
	}
	for _, u := range objects {
		kinds := []schema.GroupVersionKind{u.GroupVersionKind()}
		if _, ok := order.ParamKind(u); ok {
			version, _, _ := unstructured.NestedString(u.Object, "spec", "paramKind", "apiVersion")
			kind, _, _ := unstructured.NestedString(u.Object, "spec", "paramKind", "kind")
			kinds = append(kinds, schema.FromAPIVersionAndKind(version, kind))
		}
		for _, kind := range kinds {
			if !defined[kind.GroupKind()] && !slices.Contains(list, kind) && s.kinds.Of(kind).Guessed {
				list = append(list, kind)
			}
		}
	}
	return list
}

// Hardened returns notes about objects that a kube-apiserver enforces although Gatehouse only warns or audits.
func (s *Stage) Hardened(objects []*unstructured.Unstructured) []string {
	list := make([]runtime.Object, len(objects))
	for i := range objects {
		list[i] = objects[i]
	}
	if note := offline.Hardened(list); note != "" && !s.Gatehouse {
		return []string{note}
	}
	return nil
}

// Named returns the namespaces that objects name, if the namespaces of the snapshot were not read: all namespaces are
// then assumed to exist.
func (s *Stage) Named(objects []*unstructured.Unstructured) []*unstructured.Unstructured {
	if s.Snapshot == nil {
		return nil
	}
	unread := s.Snapshot.Missing(schema.GroupResource{Resource: "namespaces"})
	if unread == nil {
		return nil
	}
	var list []*unstructured.Unstructured
	seen := map[string]bool{"": true}
	for _, name := range unread.Namespaces {
		seen[name] = true
	}
	for _, u := range objects {
		name := u.GetNamespace()
		if seen[name] {
			continue
		}
		seen[name] = true
		list = append(list, &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": name},
		}})
	}
	return list
}

// PruneNulls removes fields without a value, which kubectl omits from creates.
func PruneNulls(value any) {
	switch v := value.(type) {
	case map[string]any:
		for name, member := range v {
			if member == nil {
				delete(v, name)
			} else {
				PruneNulls(member)
			}
		}
	case []any:
		for _, element := range v {
			PruneNulls(element)
		}
	}
}

// Converts reports whether an object is a CRD with a conversion webhook.
func Converts(u *unstructured.Unstructured) bool {
	if u.GetKind() != "CustomResourceDefinition" {
		return false
	}
	strategy, _, _ := unstructured.NestedString(u.Object, "spec", "conversion", "strategy")
	return strategy == "Webhook"
}

// WithoutConversion removes the conversion webhook from a CRD.
func WithoutConversion(u *unstructured.Unstructured) {
	if Converts(u) {
		u.Object["spec"].(map[string]any)["conversion"] = map[string]any{"strategy": "None"}
	}
}

// Alone reports whether a create takes nothing from a pool that other creates of its phase use.
func (s *Stage) Alone(k *offline.Kind, namespace string, u *unstructured.Unstructured) bool {
	if order.IsService(k) {
		// The default range has addresses for all services, and ports are few.
		of, _, _ := unstructured.NestedString(u.Object, "spec", "type")
		if s.ServiceRange != "" || s.Snapshot != nil || of != "" && of != string(corev1.ServiceTypeClusterIP) && of != string(corev1.ServiceTypeExternalName) {
			return false
		}
	}
	return !s.Lanes.Limited(namespace)
}
