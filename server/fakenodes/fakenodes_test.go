package fakenodes

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

func podWithPort(uid types.UID, protocol corev1.Protocol, ip string, port int32) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{UID: uid},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Ports: []corev1.ContainerPort{{Protocol: protocol, HostIP: ip, HostPort: port}}}}},
	}
}

func TestAHostPortIsFreeUntilAPodOfTheNodeHasIt(t *testing.T) {
	p := ports{}
	first := podWithPort("first", corev1.ProtocolTCP, "", 80)
	p.take("a", first)
	p.take("b", podWithPort("other", corev1.ProtocolTCP, "198.18.0.1", 81))
	for _, tc := range []struct {
		name, node string
		pod        *corev1.Pod
		want       bool
	}{
		{"the same port", "a", podWithPort("x", corev1.ProtocolTCP, "", 80), false},
		{"the same port at one address", "a", podWithPort("x", corev1.ProtocolTCP, "198.18.0.1", 80), false},
		{"the pod that has it", "a", first, true},
		{"another protocol", "a", podWithPort("x", corev1.ProtocolUDP, "", 80), true},
		{"another port", "a", podWithPort("x", corev1.ProtocolTCP, "", 81), true},
		{"another node", "b", podWithPort("x", corev1.ProtocolTCP, "", 80), true},
		{"the same address", "b", podWithPort("x", corev1.ProtocolTCP, "198.18.0.1", 81), false},
		{"another address", "b", podWithPort("x", corev1.ProtocolTCP, "198.18.0.2", 81), true},
		{"all addresses", "b", podWithPort("x", corev1.ProtocolTCP, "0.0.0.0", 81), false},
		{"no host port", "a", podWithPort("x", corev1.ProtocolTCP, "", 0), true},
	} {
		if got := p.free(tc.node, tc.pod); got != tc.want {
			t.Errorf("%s: free %t, want %t", tc.name, got, tc.want)
		}
	}
	for name, end := range map[string]func(*corev1.Pod){
		"a pod that is gone": func(pod *corev1.Pod) { p.giveBack(pod) },
		"a pod that has ended": func(pod *corev1.Pod) {
			pod.Status.Phase = corev1.PodSucceeded
			p.note(pod)
		},
	} {
		pod := podWithPort("second", corev1.ProtocolTCP, "", 82)
		pod.Spec.NodeName = "a"
		p.note(pod)
		next := podWithPort("x", corev1.ProtocolTCP, "", 82)
		if p.free("a", next) {
			t.Errorf("%s: the port was free before", name)
		}
		end(pod)
		if !p.free("a", next) {
			t.Errorf("%s: the port is not free", name)
		}
	}
}

func TestContainersAreReadyAfterTheirDelay(t *testing.T) {
	start := time.Now().Truncate(time.Second)
	delayed := func(seconds int32) corev1.Container {
		return corev1.Container{ReadinessProbe: &corev1.Probe{InitialDelaySeconds: seconds}}
	}
	pod := &corev1.Pod{Spec: corev1.PodSpec{NodeName: prefix + "0", HostNetwork: true, Containers: []corev1.Container{{}, delayed(20), delayed(60), delayed(0)}}}
	(&Nodes{}).setStatus(pod)
	for i := range pod.Status.ContainerStatuses {
		pod.Status.ContainerStatuses[i].State.Running.StartedAt = metav1.NewTime(start)
	}
	for _, step := range []struct {
		at      time.Duration
		changed bool
		after   time.Duration
		ready   []bool
	}{
		{0, false, 20 * time.Second, []bool{true, false, false, true}},
		{5 * time.Second, false, 15 * time.Second, []bool{true, false, false, true}},
		{20 * time.Second, true, 40 * time.Second, []bool{true, true, false, true}},
		{25 * time.Second, false, 35 * time.Second, []bool{true, true, false, true}},
		{61 * time.Second, true, 0, []bool{true, true, true, true}},
		{62 * time.Second, false, 0, []bool{true, true, true, true}},
	} {
		changed, after := becomeReady(pod, start.Add(step.at))
		if changed != step.changed || after != step.after {
			t.Errorf("after %s: changed %t, next after %s, want %t and %s", step.at, changed, after, step.changed, step.after)
		}
		all := corev1.ConditionTrue
		for i, want := range step.ready {
			if got := pod.Status.ContainerStatuses[i].Ready; got != want {
				t.Errorf("after %s: container %d is ready: %t", step.at, i, got)
			}
			if !want {
				all = corev1.ConditionFalse
			}
		}
		for _, c := range pod.Status.Conditions {
			if (c.Type == corev1.PodReady || c.Type == corev1.ContainersReady) && c.Status != all {
				t.Errorf("after %s: %s is %s, want %s", step.at, c.Type, c.Status, all)
			}
		}
	}
}
