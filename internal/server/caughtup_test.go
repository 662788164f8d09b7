package server_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/gatehouse-dev/gatehouse/internal/server"
	"github.com/gatehouse-dev/gatehouse/test/speed"
)

// After CaughtUp, plugins see the objects that were stored before it, although they read caches.
func TestPluginsJudgeByWhatWasStoredOnceCaughtUp(t *testing.T) {
	speed.Server(t)
	s, err := server.New(server.Options{
		DataDir: t.TempDir(), Controllers: []string{"serviceaccount-controller"}, UnsafeNoFsync: true, EndAtOnce: true, MinFreeDisk: -1,
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.CaughtUp(t.Context()); err == nil || !strings.Contains(err.Error(), "not ready") {
		t.Errorf("before the server is ready: %v", err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ready, ended := make(chan server.Address, 1), make(chan error, 1)
	go func() { ended <- s.Run(ctx, func(a server.Address) { ready <- a }) }()
	defer func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	var address server.Address
	select {
	case address = <-ready:
	case err := <-ended:
		ended <- nil
		t.Fatal(err)
	}
	client, err := kubernetes.NewForConfig(address.Admin)
	if err != nil {
		t.Fatal(err)
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	create := metav1.CreateOptions{}
	for i := range speed.Of(6, 20) {
		name := fmt.Sprintf("n%d", i)
		_, err := client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, create)
		must(err)
		_, err = client.SchedulingV1().PriorityClasses().Create(ctx, &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Value: 7}, create)
		must(err)
		_, err = client.CoreV1().LimitRanges(name).Create(ctx, &corev1.LimitRange{
			ObjectMeta: metav1.ObjectMeta{Name: "one"},
			Spec: corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{{
				Type: corev1.LimitTypeContainer, Default: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("2")},
			}}},
		}, create)
		must(err)
		waiting, cancel := context.WithTimeout(ctx, time.Minute)
		err = s.CaughtUp(waiting)
		cancel()
		must(err)
		pod, err := client.CoreV1().Pods(name).Create(ctx, &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: "p"},
			Spec:       corev1.PodSpec{PriorityClassName: name, Containers: []corev1.Container{{Name: "c", Image: "i"}}},
		}, create)
		must(err)
		if cpu := pod.Spec.Containers[0].Resources.Limits.Cpu().String(); cpu != "2" || *pod.Spec.Priority != 7 {
			t.Errorf("%s: cpu %s, priority %d", name, cpu, *pod.Spec.Priority)
		}
		// A cache that already has some objects can be behind, too.
		class, err := client.SchedulingV1().PriorityClasses().Create(ctx, &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: "more-" + name}, Value: 8}, create)
		must(err)
		waiting, cancel = context.WithTimeout(ctx, time.Minute)
		err = s.CaughtUp(waiting)
		cancel()
		must(err)
		_, err = client.CoreV1().Pods(name).Create(ctx, &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: "q"},
			Spec:       corev1.PodSpec{PriorityClassName: class.Name, Containers: []corev1.Container{{Name: "c", Image: "i"}}},
		}, create)
		must(err)
	}
}
