package watch

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/pager"
	"k8s.io/klog/v2"

	"github.com/gatehouse-dev/gatehouse/internal/readers/report"
)

const (
	// Label is the label of an agent's reports; its value is the source.
	Label = "gatehouse.dev/agent"
	// contentAnnotation has a hash of the content of a report.
	contentAnnotation = "gatehouse.dev/content"
	// reason is the reason of events.
	reason = "AdmissionFinding"
	// maxEvents bounds the events of one run. The next run writes the others.
	maxEvents = 100
	// reportPage is the number of reports per page of a list, each up to a MiB.
	reportPage = 10
)

// plurals are the resources of the report kinds.
var plurals = map[report.Reports][2]string{report.OpenReports: {"reports", "clusterreports"}, report.PolicyReports: {"policyreports", "clusterpolicyreports"}}

// tell writes the events, reports and metrics for the findings of a source.
func (w *Watcher) tell(ctx context.Context, of source, found []finding) error {
	w.telling.Lock()
	defer w.telling.Unlock()
	setFindings(of, found)
	w.events(ctx, of, found)
	kinds, err := w.reportKinds()
	if err != nil {
		return err
	}
	if len(kinds) == 0 && !w.missing && len(found) > 0 {
		w.missing = true
		klog.FromContext(ctx).Info("The cluster has neither OpenReports nor PolicyReports: findings are events and metrics only")
	}
	list := make([]report.Resource, len(found))
	for i := range found {
		list[i] = found[i].Resource
	}
	var problems []error
	for i, kind := range kinds {
		var wanted []map[string]any
		if i == 0 {
			wanted = kind.Of("gatehouse-agent-"+string(of), map[string]any{Label: string(of), "app.kubernetes.io/managed-by": "gatehouse-agent"}, list)
		}
		problems = append(problems, w.write(ctx, kind, of, wanted))
	}
	return errors.Join(problems...)
}

// reportKinds returns the report kinds that the cluster has. The first one is written.
func (w *Watcher) reportKinds() (kinds []report.Reports, err error) {
	for _, kind := range []report.Reports{report.OpenReports, report.PolicyReports} {
		served, err := w.client.Discovery().ServerResourcesForGroupVersion(kind.APIVersion)
		if err != nil && !apierrors.IsNotFound(err) {
			return nil, fmt.Errorf("asking whether the cluster has reports: %w", err)
		}
		if err == nil && len(served.APIResources) > 0 {
			kinds = append(kinds, kind)
		}
		here := 0.0
		if len(kinds) == 1 && kinds[0] == kind {
			here = 1
		}
		reportKind.WithLabelValues(kind.APIVersion).Set(here)
	}
	return kinds, nil
}

// resourcesOf returns the two resources of a report kind: namespaced, and cluster-scoped.
func resourcesOf(kind report.Reports) [2]schema.GroupVersionResource {
	// The versions are constants.
	gv, _ := schema.ParseGroupVersion(kind.APIVersion)
	return [2]schema.GroupVersionResource{gv.WithResource(plurals[kind][0]), gv.WithResource(plurals[kind][1])}
}

// write creates, updates and deletes reports of a source, so that exactly the wanted ones exist. It does not touch
// reports of other owners, even if they have the name of a wanted one.
func (w *Watcher) write(ctx context.Context, kind report.Reports, of source, wanted []map[string]any) error {
	resources := resourcesOf(kind)
	there := map[schema.GroupVersionResource]map[types.NamespacedName]*metav1.PartialObjectMetadata{}
	for _, resource := range resources {
		there[resource] = map[types.NamespacedName]*metav1.PartialObjectMetadata{}
		pages := pager.New(func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			return w.metadata.Resource(resource).List(ctx, o)
		})
		err := pages.EachListItem(ctx, metav1.ListOptions{LabelSelector: Label + "=" + string(of)}, func(object runtime.Object) error {
			one := object.(*metav1.PartialObjectMetadata)
			there[resource][types.NamespacedName{Namespace: one.Namespace, Name: one.Name}] = one
			return nil
		})
		if err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("listing the reports of the agent: %w", err)
		}
	}
	var problems []error
	for _, content := range wanted {
		u := &unstructured.Unstructured{Object: content}
		resource := resources[1]
		if u.GetNamespace() != "" {
			resource = resources[0]
		}
		name := types.NamespacedName{Namespace: u.GetNamespace(), Name: u.GetName()}
		before := there[resource][name]
		delete(there[resource], name)
		if err := w.writeOne(ctx, resource, u, before); err != nil {
			problems = append(problems, fmt.Errorf("%s %s: %w", u.GetKind(), strings.TrimPrefix(name.String(), "/"), err))
		}
	}
	for resource, others := range there {
		for name, one := range others {
			o := metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &one.UID}}
			if err := w.objects.Resource(resource).Namespace(name.Namespace).Delete(ctx, name.Name, o); err != nil && !apierrors.IsNotFound(err) {
				problems = append(problems, err)
			}
		}
	}
	return errors.Join(problems...)
}

// writeOne creates a report, or updates the existing one if its content differs.
func (w *Watcher) writeOne(ctx context.Context, resource schema.GroupVersionResource, u *unstructured.Unstructured, before *metav1.PartialObjectMetadata) error {
	data, err := json.Marshal(u.Object["results"])
	if err != nil {
		return err
	}
	sum := sha256.Sum256(data)
	content := hex.EncodeToString(sum[:16])
	client := w.objects.Resource(resource).Namespace(u.GetNamespace())
	if before == nil {
		u.SetAnnotations(map[string]string{contentAnnotation: content})
		_, err := client.Create(ctx, u, metav1.CreateOptions{FieldManager: "gatehouse-agent"})
		switch {
		case apierrors.IsAlreadyExists(err):
			return errors.New("there is one of somebody else with this name: it is left as it is")
		case apierrors.IsNotFound(err), apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
			// The namespace is being deleted with its contents.
			return nil
		}
		return err
	}
	if before.Annotations[contentAnnotation] == content {
		return nil
	}
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"resourceVersion": before.ResourceVersion, "annotations": map[string]any{contentAnnotation: content}},
		"summary":  u.Object["summary"], "results": u.Object["results"],
	})
	if err != nil {
		return err
	}
	_, err = client.Patch(ctx, u.GetName(), types.MergePatchType, patch, metav1.PatchOptions{FieldManager: "gatehouse-agent"})
	return err
}

// remember restores from the reports of an earlier run the findings for which events exist.
func (w *Watcher) remember(ctx context.Context) error {
	kinds, err := w.reportKinds()
	if err != nil || len(kinds) == 0 {
		return err
	}
	for _, resource := range resourcesOf(kinds[0]) {
		pages := pager.New(func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			return w.objects.Resource(resource).List(ctx, o)
		})
		pages.PageSize, pages.PageBufferSize = reportPage, 0
		if err := pages.EachListItem(ctx, metav1.ListOptions{LabelSelector: Label}, func(object runtime.Object) error {
			u := object.(*unstructured.Unstructured)
			known := w.known[source(u.GetLabels()[Label])]
			results, _, _ := unstructured.NestedSlice(u.Object, "results")
			for _, one := range results {
				result, _ := one.(map[string]any)
				if id, _, _ := unstructured.NestedString(result, "properties", report.PropertyID); id != "" && known != nil {
					known[id] = true
				}
			}
			return nil
		}); err != nil {
			return err
		}
	}
	return nil
}

// events writes an event for each new finding, except notes.
func (w *Watcher) events(ctx context.Context, of source, found []finding) {
	told, written := map[string]bool{}, 0
	for i := range found {
		f := &found[i]
		switch {
		case f.level == report.Note:
		case w.known[of][f.ID]:
			told[f.ID] = true
		case written < maxEvents && !told[f.ID]:
			written++
			// The event's name derives from the finding: there is one event per finding, also after a restart.
			err := w.event(ctx, of, f)
			told[f.ID] = err == nil || apierrors.IsAlreadyExists(err) || apierrors.IsNotFound(err) || apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause)
			if !told[f.ID] && ctx.Err() == nil {
				klog.FromContext(ctx).Info("Could not write an event", "object", f.Kind+" "+f.Name, "err", err)
			}
		}
	}
	w.known[of] = told
}

func (w *Watcher) event(ctx context.Context, of source, f *finding) error {
	now := metav1.Now()
	e := &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Namespace: cmp.Or(f.Namespace, metav1.NamespaceDefault), Name: "gatehouse-agent-" + string(of) + "." + f.ID},
		InvolvedObject: corev1.ObjectReference{APIVersion: f.APIVersion, Kind: f.Kind, Namespace: f.Namespace, Name: f.Name, UID: types.UID(f.UID)},
		Type:           corev1.EventTypeWarning, Reason: reason, Message: f.sentence(of), Count: 1,
		FirstTimestamp: now, LastTimestamp: now, Source: corev1.EventSource{Component: "gatehouse-agent"}, ReportingController: "gatehouse-agent",
	}
	_, err := w.client.CoreV1().Events(e.Namespace).Create(ctx, e, metav1.CreateOptions{})
	return err
}
