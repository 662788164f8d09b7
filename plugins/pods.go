package plugins

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/informers/core"
	informersv1 "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	listersv1 "k8s.io/client-go/listers/core/v1"
)

// The types of the informers have other names in Kubernetes 1.36 and older.
type (
	podInformer        = informersv1.TypedPodInformer
	limitRangeInformer = informersv1.TypedLimitRangeInformer
	quotaInformer      = informersv1.TypedResourceQuotaInformer
)

// liveFactory is a factory of informers whose lister of pods reads the pods from the API server
// at each call. Some plugins, PodSecurity among them, want a lister of pods for rare requests,
// such as a new label of a namespace. An informer would keep every pod in memory once more. Its
// listers of limit ranges and quotas sort by name.
type liveFactory struct {
	informers.SharedInformerFactory
	pods livePods
}

// Core overrides the method of SharedInformerFactory.
func (f liveFactory) Core() core.Interface { return liveCore{f.SharedInformerFactory.Core(), f.pods} }

type liveCore struct {
	core.Interface
	pods livePods
}

func (c liveCore) V1() informersv1.Interface { return liveCoreV1{c.Interface.V1(), c.pods} }

type liveCoreV1 struct {
	informersv1.Interface
	pods livePods
}

func (c liveCoreV1) Pods() podInformer {
	return livePodInformer{c.Interface.Pods(), c.pods}
}

func (c liveCoreV1) LimitRanges() limitRangeInformer {
	return orderedLimitRanges{c.Interface.LimitRanges()}
}

func (c liveCoreV1) ResourceQuotas() quotaInformer {
	return orderedQuotas{c.Interface.ResourceQuotas()}
}

type livePodInformer struct {
	podInformer
	pods livePods
}

func (i livePodInformer) Lister() listersv1.PodLister { return i.pods }

// livePods reads pods from the API server. Lists come from the server's watch cache, which has
// the same pods as an informer would have.
type livePods struct{ client kubernetes.Interface }

// List implements PodLister.
func (l livePods) List(selector labels.Selector) ([]*corev1.Pod, error) {
	return l.Pods(metav1.NamespaceAll).List(selector)
}

// Pods implements PodLister.
func (l livePods) Pods(namespace string) listersv1.PodNamespaceLister {
	return livePodsIn{l.client, namespace}
}

type livePodsIn struct {
	client    kubernetes.Interface
	namespace string
}

// List implements PodNamespaceLister.
func (l livePodsIn) List(selector labels.Selector) ([]*corev1.Pod, error) {
	found, err := l.client.CoreV1().Pods(l.namespace).List(context.Background(), metav1.ListOptions{
		LabelSelector: selector.String(), ResourceVersion: "0",
	})
	if err != nil {
		return nil, err
	}
	list := make([]*corev1.Pod, len(found.Items))
	for i := range found.Items {
		list[i] = &found.Items[i]
	}
	return list, nil
}

// Get implements PodNamespaceLister.
func (l livePodsIn) Get(name string) (*corev1.Pod, error) {
	return l.client.CoreV1().Pods(l.namespace).Get(context.Background(), name, metav1.GetOptions{})
}
