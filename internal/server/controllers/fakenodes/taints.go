package fakenodes

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1helper "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/klog/v2"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"
)

// repelled reports whether a node has a taint that keeps a pod from being bound to the node.
func repelled(node *corev1.Node, pod *corev1.Pod) bool {
	_, found := v1helper.FindMatchingUntoleratedTaint(klog.Background(), node.Spec.Taints, pod.Spec.Tolerations, func(t *corev1.Taint) bool {
		return t.Effect == corev1.TaintEffectNoSchedule || t.Effect == corev1.TaintEffectNoExecute
	}, false)
	return found
}

// stays returns how long a pod may stay on a node with taints. limited is false if there is no
// limit.
func stays(taints []corev1.Taint, pod *corev1.Pod) (limit time.Duration, limited bool) {
	for _, taint := range taints {
		if taint.Effect != corev1.TaintEffectNoExecute {
			continue
		}
		tolerated := false
		for _, t := range pod.Spec.Tolerations {
			if !t.ToleratesTaint(klog.Background(), &taint, false) {
				continue
			}
			tolerated = true
			if t.TolerationSeconds == nil {
				continue
			}
			if d := time.Duration(max(0, *t.TolerationSeconds)) * time.Second; !limited || d < limit {
				limit, limited = d, true
			}
		}
		if !tolerated {
			return 0, true
		}
	}
	return limit, limited
}

// evicts reports whether a pod must leave its node now, or after how long. 0 means never, unless
// the taints of the node change.
func (n *Nodes) evicts(pod *corev1.Pod, now time.Time) (evict bool, after time.Duration) {
	node, err := n.Nodes.Lister().Get(pod.Spec.NodeName)
	if err != nil {
		return false, 0
	}
	limit, limited := stays(node.Spec.Taints, pod)
	n.binding.Lock()
	defer n.binding.Unlock()
	if !limited {
		delete(n.tainted, pod.UID)
		return false, 0
	}
	since, ok := n.tainted[pod.UID]
	if !ok {
		since = now
		n.tainted[pod.UID] = now
	}
	left := since.Add(limit).Sub(now)
	return left <= 0, max(0, left)
}

// evict deletes a pod, and writes the reason into its status. In a cluster,
// taint-eviction-controller does this.
func (n *Nodes) evict(ctx context.Context, pod *corev1.Pod) error {
	next := pod.DeepCopy()
	podutil.UpdatePodCondition(&next.Status, &corev1.PodCondition{
		Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, ObservedGeneration: pod.Generation,
		Reason: "DeletionByTaintManager", Message: "Taint manager: deleting due to NoExecute taint",
	})
	pods := n.Kubelet.CoreV1().Pods(pod.Namespace)
	if _, err := pods.UpdateStatus(ctx, next, metav1.UpdateOptions{}); err != nil {
		return err
	}
	return pods.Delete(ctx, pod.Name, metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(pod.UID))})
}
