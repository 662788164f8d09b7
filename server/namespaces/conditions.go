package namespaces

import (
	"fmt"
	"slices"
	"sort"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// set writes one condition; its time changes with its status only.
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

// has tells whether a namespace has a condition, whatever its status.
func has(ns *corev1.Namespace, kind corev1.NamespaceConditionType) bool {
	return slices.ContainsFunc(ns.Status.Conditions, func(c corev1.NamespaceCondition) bool { return c.Type == kind })
}

func sameConditions(a, b []corev1.NamespaceCondition) bool {
	return slices.EqualFunc(a, b, func(x, y corev1.NamespaceCondition) bool {
		return x.Type == y.Type && x.Status == y.Status && x.Reason == y.Reason && x.Message == y.Message
	})
}

func counted(finalizers map[string]int) string {
	names := make([]string, 0, len(finalizers))
	for name := range finalizers {
		names = append(names, name)
	}
	sort.Strings(names)
	for i, name := range names {
		names[i] = fmt.Sprintf("%s in %d resource instances", name, finalizers[name])
	}
	return strings.Join(names, ", ")
}
