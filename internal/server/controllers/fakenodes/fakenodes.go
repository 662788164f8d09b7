package fakenodes

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/klog/v2"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"
	"k8s.io/kubernetes/pkg/registry/core/service/ipallocator"
	nodeutil "k8s.io/kubernetes/pkg/util/node"
	"k8s.io/kubernetes/pkg/util/taints"

	"github.com/gatehouse-dev/gatehouse/internal/kit/survive"
)

// Options are the inputs of Nodes. All must be set.
type Options struct {
	// Count is the number of nodes.
	Count int
	// Kubelet acts as kubelets do, Scheduler as a scheduler does.
	Kubelet, Scheduler kubernetes.Interface
	// Pods and Nodes are started by the caller.
	Pods  coreinformers.PodInformer
	Nodes coreinformers.NodeInformer
}

const (
	// prefix is the prefix of the names of the nodes.
	prefix = "fake-node-"
	// heartbeat is how often the Lease of a node is renewed, and lifetime how long the Lease is
	// valid, as with a kubelet.
	heartbeat, lifetime = 10 * time.Second, 40 * time.Second
	workers             = 4
	// podsPerNode is the pod capacity of a node.
	podsPerNode = 10_000
)

// podRange is the range of pod addresses.
var podRange = &net.IPNet{IP: net.IP{10, 244, 0, 0}, Mask: net.CIDRMask(16, 32)}

// Nodes are fake nodes. They are made by New and run once.
type Nodes struct {
	Options
	queue workqueue.TypedRateLimitingInterface[cache.ObjectName]
	// binding is held while a node is chosen, so that pods are spread.
	binding sync.Mutex
	// bound counts the pods that were bound to each node.
	bound     map[string]int
	ports     ports
	addresses *ipallocator.Range
	// tainted has the times since when pods are on a node with a taint NoExecute that they tolerate
	// only for a while, or not at all.
	tainted map[types.UID]time.Time
}

// New starts nothing. It returns an error if an informer has ended.
func New(o Options) (*Nodes, error) {
	addresses, err := ipallocator.NewInMemory(podRange)
	if err != nil {
		return nil, err
	}
	n := &Nodes{Options: o, addresses: addresses, bound: map[string]int{}, ports: ports{}, tainted: map[types.UID]time.Time{}, queue: workqueue.NewTypedRateLimitingQueue(
		workqueue.NewTypedItemExponentialFailureRateLimiter[cache.ObjectName](10*time.Millisecond, 10*time.Second))}
	enqueue := func(obj any) {
		if pod, ok := obj.(*corev1.Pod); ok {
			n.note(pod)
			n.queue.Add(cache.MetaObjectToName(pod))
		}
	}
	_, err = o.Pods.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    enqueue,
		UpdateFunc: func(_, obj any) { enqueue(obj) },
		DeleteFunc: func(obj any) {
			if gone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
				obj = gone.Obj
			}
			if pod, ok := obj.(*corev1.Pod); ok {
				n.forget(pod)
			}
		},
	})
	if err != nil {
		return nil, err
	}
	_, err = o.Nodes.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(obj any) {
			if node, ok := obj.(*corev1.Node); ok {
				n.lookAgain(node)
			}
		},
		UpdateFunc: func(before, now any) {
			was, ok := before.(*corev1.Node)
			node, also := now.(*corev1.Node)
			if ok && also && !(equality.Semantic.DeepEqual(was.Spec, node.Spec) && maps.Equal(was.Labels, node.Labels)) {
				n.lookAgain(node)
			}
		},
	})
	return n, err
}

// lookAgain queues the pods of a node, and the pods without a node.
func (n *Nodes) lookAgain(node *corev1.Node) {
	pods, err := n.Pods.Lister().List(labels.Everything())
	if err != nil {
		klog.ErrorS(err, "Reading pods for fake nodes")
	}
	for _, pod := range pods {
		if pod.Spec.NodeName == node.Name || pod.Spec.NodeName == "" {
			n.queue.Add(cache.MetaObjectToName(pod))
		}
	}
}

// Run keeps the nodes and their pods alive until ctx ends. The Node objects are not deleted.
func (n *Nodes) Run(ctx context.Context) {
	var running sync.WaitGroup
	defer running.Wait()
	defer n.queue.ShutDown()
	if !cache.WaitForCacheSync(ctx.Done(), n.Pods.Informer().HasSynced, n.Nodes.Informer().HasSynced) {
		return
	}
	pods, err := n.Pods.Lister().List(labels.Everything())
	if err != nil {
		klog.ErrorS(err, "Reading pods for fake nodes")
	}
	for _, pod := range pods {
		// Hosts, and nodes that are not fake, have addresses of other ranges.
		_ = n.addresses.Allocate(net.ParseIP(pod.Status.PodIP))
	}
	for i := range n.Count {
		running.Go(func() { n.keep(ctx, fmt.Sprint(prefix, i)) })
	}
	survive.Work(ctx, n.queue, workers, n.look)
}

// keep makes a node if it is missing, and renews its Lease until ctx ends.
func (n *Nodes) keep(ctx context.Context, name string) {
	wait.UntilWithContext(ctx, func(ctx context.Context) {
		if err := n.live(ctx, name); err != nil && ctx.Err() == nil {
			klog.ErrorS(err, "The heartbeat of a fake node", "node", name)
		}
	}, heartbeat)
}

func (n *Nodes) live(ctx context.Context, name string) error {
	nodes := n.Kubelet.CoreV1().Nodes()
	node, err := nodes.Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		node, err = nodes.Create(ctx, newNode(name), metav1.CreateOptions{})
	}
	if err != nil {
		return err
	}
	if !nodeutil.IsNodeReady(node) {
		node.Status = statusOf(name)
		if node, err = nodes.UpdateStatus(ctx, node, metav1.UpdateOptions{}); err != nil {
			return err
		}
	}
	if kept, removed := taints.DeleteTaintsByKey(node.Spec.Taints, corev1.TaintNodeNotReady); removed {
		// In a cluster, the node controller does this.
		node.Spec.Taints = kept
		if _, err = nodes.Update(ctx, node, metav1.UpdateOptions{}); err != nil {
			return err
		}
	}
	return n.renew(ctx, node)
}

func (n *Nodes) renew(ctx context.Context, node *corev1.Node) error {
	leases := n.Kubelet.CoordinationV1().Leases(corev1.NamespaceNodeLease)
	spec := coordinationv1.LeaseSpec{
		HolderIdentity: &node.Name, LeaseDurationSeconds: new(int32(lifetime / time.Second)), RenewTime: &metav1.MicroTime{Time: time.Now()},
	}
	lease, err := leases.Get(ctx, node.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		_, err = leases.Create(ctx, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{
			Name:            node.Name,
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID}},
		}, Spec: spec}, metav1.CreateOptions{})
		return err
	}
	if err != nil {
		return err
	}
	lease.Spec = spec
	_, err = leases.Update(ctx, lease, metav1.UpdateOptions{})
	return err
}

func newNode(name string) *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{
			corev1.LabelHostname: name, corev1.LabelOSStable: "linux", corev1.LabelArchStable: "amd64",
		}},
		Status: statusOf(name),
	}
}

func statusOf(name string) corev1.NodeStatus {
	room := corev1.ResourceList{
		corev1.ResourceCPU:              resource.MustParse("64"),
		corev1.ResourceMemory:           resource.MustParse("256Gi"),
		corev1.ResourceEphemeralStorage: resource.MustParse("1Ti"),
		corev1.ResourcePods:             *resource.NewQuantity(podsPerNode, resource.DecimalSI),
	}
	now := metav1.Now()
	status := corev1.NodeStatus{
		Capacity: room, Allocatable: room,
		Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: hostIP(name)}, {Type: corev1.NodeHostName, Address: name}},
		NodeInfo:  corev1.NodeSystemInfo{OperatingSystem: "linux", Architecture: "amd64", KubeletVersion: "v0.0.0-fake"},
	}
	for _, c := range []struct {
		kind   corev1.NodeConditionType
		status corev1.ConditionStatus
		reason string
	}{
		{corev1.NodeMemoryPressure, corev1.ConditionFalse, "KubeletHasSufficientMemory"},
		{corev1.NodeDiskPressure, corev1.ConditionFalse, "KubeletHasNoDiskPressure"},
		{corev1.NodePIDPressure, corev1.ConditionFalse, "KubeletHasSufficientPID"},
		{corev1.NodeReady, corev1.ConditionTrue, "KubeletReady"},
	} {
		status.Conditions = append(status.Conditions, corev1.NodeCondition{
			Type: c.kind, Status: c.status, Reason: c.reason, Message: "This node is not real.", LastHeartbeatTime: now, LastTransitionTime: now,
		})
	}
	return status
}

// hostIP returns an address of 198.18.0.0/15, the range for benchmarks, which is not used by hosts.
func hostIP(node string) string {
	var i int
	_, _ = fmt.Sscan(strings.TrimPrefix(node, prefix), &i)
	return netip.AddrFrom4([4]byte{198, 18, byte(i >> 8), byte(i)}).String()
}

func (n *Nodes) look(ctx context.Context, name cache.ObjectName) error {
	pod, err := n.Pods.Lister().Pods(name.Namespace).Get(name.Name)
	if err == nil {
		err = n.handle(ctx, pod)
	}
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil && ctx.Err() == nil && !apierrors.IsConflict(err) && !errors.Is(err, errNoNode) {
		klog.ErrorS(err, "A pod on a fake node", "pod", name)
	}
	return err
}

// handle does the next step for a pod, if there is one for a fake scheduler or kubelet.
func (n *Nodes) handle(ctx context.Context, pod *corev1.Pod) error {
	switch {
	case pod.Spec.NodeName == "":
		if pod.DeletionTimestamp != nil || ended(pod) || len(pod.Spec.SchedulingGates) > 0 || pod.Spec.SchedulerName != corev1.DefaultSchedulerName {
			return nil
		}
		err := n.bind(ctx, pod)
		if errors.Is(err, errNoNode) {
			return cmp.Or(n.say(ctx, pod, unschedulable(pod)), err)
		}
		return err
	case !strings.HasPrefix(pod.Spec.NodeName, prefix):
		return nil
	case pod.DeletionTimestamp != nil:
		return n.Kubelet.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{
			GracePeriodSeconds: new(int64), Preconditions: metav1.NewUIDPreconditions(string(pod.UID)),
		})
	case ended(pod):
		return nil
	}
	now := time.Now()
	evict, after := n.evicts(pod, now)
	if evict {
		return n.evict(ctx, pod)
	}
	n.requeue(pod, after)
	next := pod.DeepCopy()
	n.requeue(pod, n.observe(next, now))
	if equality.Semantic.DeepEqual(pod.Status, next.Status) {
		return nil
	}
	_, err := n.Kubelet.CoreV1().Pods(pod.Namespace).UpdateStatus(ctx, next, metav1.UpdateOptions{})
	if err != nil && pod.Status.PodIP == "" {
		n.giveBack(next)
	}
	return err
}

// requeue queues a pod after some time; 0 means that only a change of the pod queues it.
func (n *Nodes) requeue(pod *corev1.Pod, after time.Duration) {
	if after > 0 {
		n.queue.AddAfter(cache.MetaObjectToName(pod), after)
	}
}

func ended(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

// errNoNode means that a pod is allowed on none of the current nodes.
var errNoNode = errors.New("no fake node has the labels and the free host ports that the pod wants, is schedulable, and has only taints that the pod tolerates")

// unschedulable is the condition that a scheduler sets on a pod without a suitable node.
func unschedulable(pod *corev1.Pod) corev1.PodCondition {
	return corev1.PodCondition{
		Type: corev1.PodScheduled, Status: corev1.ConditionFalse, ObservedGeneration: pod.Generation,
		Reason: corev1.PodReasonUnschedulable, Message: errNoNode.Error(),
	}
}

// say writes a condition of a pod as the scheduler, if the pod does not have it yet.
func (n *Nodes) say(ctx context.Context, pod *corev1.Pod, c corev1.PodCondition) error {
	next := pod.DeepCopy()
	podutil.UpdatePodCondition(&next.Status, &c)
	if equality.Semantic.DeepEqual(pod.Status, next.Status) {
		return nil
	}
	_, err := n.Scheduler.CoreV1().Pods(pod.Namespace).UpdateStatus(ctx, next, metav1.UpdateOptions{})
	return err
}

// bind chooses the node of a pod.
func (n *Nodes) bind(ctx context.Context, pod *corev1.Pod) error {
	node, err := n.choose(pod)
	if err != nil {
		return err
	}
	err = n.Scheduler.CoreV1().Pods(pod.Namespace).Bind(ctx, &corev1.Binding{
		ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID},
		Target:     corev1.ObjectReference{Kind: "Node", Name: node},
	}, metav1.CreateOptions{})
	n.binding.Lock()
	defer n.binding.Unlock()
	switch {
	case err == nil:
		n.bound[node]++
	case apierrors.IsConflict(err):
		// The pod has a node already, or another pod has its name: the informer reports either.
		if now, err := n.Pods.Lister().Pods(pod.Namespace).Get(pod.Name); err == nil && now.UID == pod.UID {
			n.ports.note(now)
			return nil
		}
		n.ports.giveBack(pod)
		return nil
	default:
		n.ports.giveBack(pod)
	}
	return err
}

// note records the host ports that a pod has on its node.
func (n *Nodes) note(pod *corev1.Pod) {
	n.binding.Lock()
	defer n.binding.Unlock()
	n.ports.note(pod)
}

// choose returns a node for a pod, and takes the host ports of the pod there.
func (n *Nodes) choose(pod *corev1.Pod) (string, error) {
	nodes, err := n.Nodes.Lister().List(labels.Everything())
	if err != nil {
		return "", err
	}
	wanted := nodeaffinity.GetRequiredNodeAffinity(pod)
	n.binding.Lock()
	defer n.binding.Unlock()
	best, fewest := "", math.MaxInt
	for _, node := range nodes {
		if !strings.HasPrefix(node.Name, prefix) || node.Spec.Unschedulable {
			continue
		}
		if ok, err := wanted.Match(node); err != nil || !ok || !n.ports.free(node.Name, pod) || repelled(node, pod) {
			continue
		}
		if count := n.bound[node.Name]; count < fewest || (count == fewest && node.Name < best) {
			best, fewest = node.Name, count
		}
	}
	if best == "" {
		return "", errNoNode
	}
	n.ports.take(best, pod)
	return best, nil
}

// giveBack gives back the address of a pod; other addresses are not taken.
func (n *Nodes) giveBack(pod *corev1.Pod) { _ = n.addresses.Release(net.ParseIP(pod.Status.PodIP)) }

// forget removes the records of a deleted pod.
func (n *Nodes) forget(pod *corev1.Pod) {
	n.giveBack(pod)
	n.binding.Lock()
	defer n.binding.Unlock()
	n.ports.giveBack(pod)
	delete(n.tainted, pod.UID)
	if n.bound[pod.Spec.NodeName] > 0 {
		n.bound[pod.Spec.NodeName]--
	}
}

// ports are the host ports of pods, by their nodes.
type ports map[string][]hostPort

type hostPort struct {
	pod      types.UID
	protocol corev1.Protocol
	ip       string
	port     int32
}

func hostPorts(pod *corev1.Pod) []hostPort {
	var list []hostPort
	for _, c := range pod.Spec.Containers {
		for _, p := range c.Ports {
			if p.HostPort > 0 {
				list = append(list, hostPort{pod.UID, p.Protocol, p.HostIP, p.HostPort})
			}
		}
	}
	return list
}

// free reports whether a node has the host ports of a pod.
func (p ports) free(node string, pod *corev1.Pod) bool {
	everywhere := func(ip string) bool { return ip == "" || ip == "0.0.0.0" || ip == "::" }
	for _, wanted := range hostPorts(pod) {
		for _, taken := range p[node] {
			if taken.pod != pod.UID && taken.port == wanted.port && taken.protocol == wanted.protocol &&
				(taken.ip == wanted.ip || everywhere(taken.ip) || everywhere(wanted.ip)) {
				return false
			}
		}
	}
	return true
}

// note takes the ports of a pod on its node, and gives them back when the pod has ended.
func (p ports) note(pod *corev1.Pod) {
	switch {
	case ended(pod):
		p.giveBack(pod)
	case pod.Spec.NodeName != "":
		p.take(pod.Spec.NodeName, pod)
	}
}

func (p ports) take(node string, pod *corev1.Pod) {
	p.giveBack(pod)
	if list := hostPorts(pod); len(list) > 0 {
		p[node] = append(p[node], list...)
	}
}

func (p ports) giveBack(pod *corev1.Pod) {
	if len(hostPorts(pod)) == 0 {
		return
	}
	for node, list := range p {
		p[node] = slices.DeleteFunc(list, func(taken hostPort) bool { return taken.pod == pod.UID })
	}
}
