package check

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"

	"golang.org/x/sync/errgroup"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gatehouse-dev/gatehouse/internal/predict/offline"
)

// ofSnapshot returns the objects of the snapshot, and notes what the snapshot does not have.
func (r *run) ofSnapshot() []*unstructured.Unstructured {
	s := r.Snapshot
	r.report.Unseen = r.unseen()
	objects := s.Objects()
	if _, unread := s.HasNot(schema.GroupResource{Resource: "namespaces"}); unread {
		objects = append(objects, r.namespacesOf(objects)...)
	}
	return objects
}

// restore puts objects of the snapshot into the server.
func (r *run) restore(ctx context.Context, objects []*unstructured.Unstructured) error {
	if len(objects) == 0 {
		return nil
	}
	kinds := map[schema.GroupKind]bool{}
	for _, u := range objects {
		if kind, ok := ParamKind(u); ok {
			kinds[kind] = true
		}
	}
	byStage := map[stage][]*unstructured.Unstructured{}
	for _, u := range objects {
		at := stageFor(u, kinds)
		byStage[at] = append(byStage[at], u)
	}
	ctx, cancel := context.WithTimeout(ctx, 10*patience)
	defer cancel()
	for at := definitions; at < stages; at++ {
		notes, refusals := make([]string, len(byStage[at])), make([]string, len(byStage[at]))
		group, groupCtx := errgroup.WithContext(ctx)
		group.SetLimit(parallel)
		for i, u := range byStage[at] {
			group.Go(func() (err error) {
				notes[i], refusals[i], err = r.restoreOne(groupCtx, u)
				return err
			})
		}
		if err := group.Wait(); err != nil {
			return err
		}
		r.report.Notes = append(r.report.Notes, slices.DeleteFunc(notes, func(n string) bool { return n == "" })...)
		var restored []*unstructured.Unstructured
		for i, u := range byStage[at] {
			if refusals[i] != "" {
				r.leftOut(u, refusals[i])
			} else {
				restored = append(restored, u)
			}
		}
		if at == definitions {
			if err := r.awaitRestored(ctx, restored); err != nil {
				return err
			}
		}
	}
	return nil
}

// namespacesOf returns the namespaces that objects of the snapshot and of the set name.
func (r *run) namespacesOf(restored []*unstructured.Unstructured) []*unstructured.Unstructured {
	var list []*unstructured.Unstructured
	seen := map[string]bool{"": true}
	names := make([]string, 0, len(restored)+len(r.Set.Objects))
	for _, u := range restored {
		names = append(names, u.GetNamespace())
	}
	written := r.Set.Objects
	if r.Old != nil {
		written = slices.Concat(written, r.Old.Objects)
	}
	for _, o := range written {
		names = append(names, text(o.Content, "metadata", "namespace"))
	}
	for _, name := range names {
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

// restoreOne stores one object of the snapshot. A note says what happens to it in the cluster,
// refusal why it cannot be stored.
func (r *run) restoreOne(ctx context.Context, u *unstructured.Unstructured) (note, refusal string, err error) {
	if text(u.Object, "status", "phase") == string(corev1.NamespaceTerminating) {
		return fmt.Sprintf("the cluster is deleting the namespace %s", u.GetName()), "", nil
	}
	k := r.kinds.Of(u.GroupVersionKind())
	if k.Guessed {
		return "", "this server does not serve " + u.GetAPIVersion(), nil
	}
	object := u.DeepCopy()
	delete(object.Object, "status")
	if !r.Call && convertsByWebhook(object) {
		object.Object["spec"].(map[string]any)["conversion"] = map[string]any{"strategy": "None"}
	}
	q := request{method: http.MethodPost, path: collection(k, u.GetNamespace()), contentType: jsonType, body: bodyOf(object.Object)}
	a, err := r.admin.do(ctx, q)
	if err != nil {
		return "", "", err
	}
	if a.code == http.StatusConflict {
		// Every cluster has this object.
		q.path += "/" + url.PathEscape(u.GetName())
		current := &unstructured.Unstructured{}
		if err := r.admin.must(ctx, request{method: http.MethodGet, path: q.path}, &current.Object); err != nil {
			return "", "", err
		}
		object.SetResourceVersion(current.GetResourceVersion())
		q.method, q.body = http.MethodPut, bodyOf(object.Object)
		if a, err = r.admin.do(ctx, q); err != nil {
			return "", "", err
		}
	}
	if !a.ok() {
		return "", a.status.Message, nil
	}
	if u.GetKind() == "ResourceQuota" {
		r.mu.Lock()
		r.quotas[u.GetNamespace()] = true
		r.mu.Unlock()
		used := corev1.ResourceList{}
		data, err := json.Marshal(u.Object["status"])
		if err == nil {
			err = json.Unmarshal(data, &struct{ Used *corev1.ResourceList }{&used})
		}
		if err != nil {
			return "", "", fmt.Errorf("the snapshot's %s: %w", title(u.GetKind(), u.GetNamespace(), u.GetName()), err)
		}
		return "", "", r.furnishQuota(ctx, u.GetNamespace(), u.GetName(), used)
	}
	return "", "", nil
}

// awaitRestored returns when the namespaces and custom resources of the snapshot can be used.
func (r *run) awaitRestored(ctx context.Context, restored []*unstructured.Unstructured) error {
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(parallel)
	for _, u := range restored {
		group.Go(func() error {
			switch u.GetKind() {
			case "Namespace":
				if text(u.Object, "status", "phase") == "" {
					return r.furnishNamespace(groupCtx, u.GetName())
				}
			case "CustomResourceDefinition":
				_, err := r.awaitServed(groupCtx, u.GetName())
				return err
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	var err error
	r.kinds, err = offline.Discover(r.server.admin)
	return err
}
