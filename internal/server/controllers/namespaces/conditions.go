package namespaces

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// set writes one condition. Its LastTransitionTime changes only with its status.
func set(ns *corev1.Namespace, kind corev1.NamespaceConditionType, bad bool, badReason, badMessage, goodReason, goodMessage string) {
	c := corev1.NamespaceCondition{Type: kind, Status: corev1.ConditionFalse, Reason: goodReason, Message: goodMessage, LastTransitionTime: metav1.Now()}
	if bad {
		c.Status, c.Reason, c.Message = corev1.ConditionTrue, badReason, badMessage
	}
	i := slices.IndexFunc(ns.Status.Conditions, func(old corev1.NamespaceCondition) bool { return old.Type == kind })
	if i < 0 {
		ns.Status.Conditions = append(ns.Status.Conditions, c)
		return
	}
	if old := ns.Status.Conditions[i]; old.Status == c.Status {
		c.LastTransitionTime = old.LastTransitionTime
	}
	ns.Status.Conditions[i] = c
}

// describe writes all conditions that a kube-controller-manager writes, in its words.
func (r *remaining) describe(ns *corev1.Namespace) {
	objects, failures := slices.Sorted(slices.Values(r.objects)), slices.Sorted(slices.Values(r.failures))
	set(ns, corev1.NamespaceDeletionDiscoveryFailure, r.undiscovered != "",
		"DiscoveryFailed", r.undiscovered, "ResourcesDiscovered", "All resources successfully discovered")
	// The server has its own list of kinds: there is no text to parse.
	set(ns, corev1.NamespaceDeletionGVParsingFailure, false,
		"", "", "ParsedGroupVersions", "All legacy kube types successfully parsed")
	set(ns, corev1.NamespaceDeletionContentFailure, len(failures) > 0,
		"ContentDeletionFailed", fmt.Sprintf("Failed to delete all resource types, %d remaining: %s", len(failures), strings.Join(failures, ", ")),
		"ContentDeleted", "All content successfully deleted, may be waiting on finalization")
	set(ns, corev1.NamespaceContentRemaining, len(objects) > 0,
		"SomeResourcesRemain", "Some resources are remaining: "+strings.Join(objects, ", "), "ContentRemoved", "All content successfully removed")
	set(ns, corev1.NamespaceFinalizersRemaining, len(r.finalizers) > 0,
		"SomeFinalizersRemain", "Some content in the namespace has finalizers remaining: "+counted(r.finalizers), "ContentHasNoFinalizers", "All content-preserving finalizers finished")
}

// instances reports how many objects of a resource remain. A resource of the core group ends in a
// dot, as in kube-controller-manager.
func instances(gr schema.GroupResource, n int) string {
	return fmt.Sprintf("%s.%s has %d resource instances", gr.Resource, gr.Group, n)
}

func sameConditions(a, b []corev1.NamespaceCondition) bool {
	return slices.EqualFunc(a, b, func(x, y corev1.NamespaceCondition) bool {
		return x.Type == y.Type && x.Status == y.Status && x.Reason == y.Reason && x.Message == y.Message
	})
}

func counted(finalizers map[string]int) string {
	names := slices.Sorted(maps.Keys(finalizers))
	for i, name := range names {
		names[i] = fmt.Sprintf("%s in %d resource instances", name, finalizers[name])
	}
	return strings.Join(names, ", ")
}
