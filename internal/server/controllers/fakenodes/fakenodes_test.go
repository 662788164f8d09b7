package fakenodes

import (
	"fmt"
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
		return corev1.Container{Name: fmt.Sprint("c", seconds), ReadinessProbe: &corev1.Probe{InitialDelaySeconds: seconds}}
	}
	pod := &corev1.Pod{Spec: corev1.PodSpec{NodeName: prefix + "0", HostNetwork: true, Containers: []corev1.Container{{Name: "a"}, delayed(20), delayed(60), delayed(0)}}}
	n := &Nodes{}
	for _, step := range []struct {
		at    time.Duration
		after time.Duration
		ready []bool
	}{
		{0, 20 * time.Second, []bool{true, false, false, true}},
		{5 * time.Second, 15 * time.Second, []bool{true, false, false, true}},
		{20 * time.Second, 40 * time.Second, []bool{true, true, false, true}},
		{25 * time.Second, 35 * time.Second, []bool{true, true, false, true}},
		{61 * time.Second, 0, []bool{true, true, true, true}},
		{62 * time.Second, 0, []bool{true, true, true, true}},
	} {
		if after := n.observe(pod, start.Add(step.at)); after != step.after {
			t.Errorf("after %s: next after %s, want %s", step.at, after, step.after)
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

func TestPodsEndAsTheirAnnotationsSay(t *testing.T) {
	start := time.Now().Truncate(time.Second)
	const never, onFailure, always = corev1.RestartPolicyNever, corev1.RestartPolicyOnFailure, corev1.RestartPolicyAlways
	for _, tc := range []struct {
		outcome, runtime string
		policy           corev1.RestartPolicy
		job              bool
		at               time.Duration
		phase            corev1.PodPhase
		restarts         int32
		after            time.Duration
	}{
		{"", "", always, false, time.Hour, corev1.PodRunning, 0, 0},
		{"", "", never, true, 0, corev1.PodSucceeded, 0, 0},
		{"Running", "", never, true, time.Hour, corev1.PodRunning, 0, 0},
		{"", "10s", never, true, 9 * time.Second, corev1.PodRunning, 0, time.Second},
		{"", "10s", never, true, 10 * time.Second, corev1.PodSucceeded, 0, 0},
		{"Succeeded", "10s", onFailure, false, 10 * time.Second, corev1.PodSucceeded, 0, 0},
		{"Succeeded", "10s", always, false, 10 * time.Second, corev1.PodRunning, 1, 20 * time.Second},
		{"Failed", "", never, true, 0, corev1.PodFailed, 0, 0},
		{"Failed", "10s", onFailure, true, 10 * time.Second, corev1.PodRunning, 1, 20 * time.Second},
		{"failed", "", never, false, 0, corev1.PodFailed, 0, 0},
		{"", "-1s", never, false, 0, corev1.PodFailed, 0, 0},
	} {
		pod := &corev1.Pod{Spec: corev1.PodSpec{NodeName: prefix + "0", HostNetwork: true, RestartPolicy: tc.policy, Containers: []corev1.Container{{Name: "c"}}}}
		pod.Annotations = map[string]string{}
		if tc.outcome != "" {
			pod.Annotations[outcomeAnnotation] = tc.outcome
		}
		if tc.runtime != "" {
			pod.Annotations[runtimeAnnotation] = tc.runtime
		}
		if tc.job {
			pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: "batch/v1", Kind: "Job", Controller: new(true)}}
		}
		n := &Nodes{}
		after := n.observe(pod, start)
		if tc.at > 0 {
			after = n.observe(pod, start.Add(tc.at))
		}
		var restarts int32
		for _, c := range pod.Status.ContainerStatuses {
			restarts += c.RestartCount
		}
		if pod.Status.Phase != tc.phase || restarts != tc.restarts || after != tc.after {
			t.Errorf("%+v: %s, %d restarts, next after %s", tc, pod.Status.Phase, restarts, after)
		}
	}
}

func TestHowLongPodsStayOnTaintedNodes(t *testing.T) {
	taint := func(effect corev1.TaintEffect, key string) corev1.Taint {
		return corev1.Taint{Key: key, Effect: effect}
	}
	tolerate := func(key string, seconds *int64) corev1.Toleration {
		return corev1.Toleration{Key: key, Operator: corev1.TolerationOpExists, TolerationSeconds: seconds}
	}
	const execute = corev1.TaintEffectNoExecute
	for _, tc := range []struct {
		name    string
		taints  []corev1.Taint
		given   []corev1.Toleration
		limit   time.Duration
		limited bool
	}{
		{"no taint", nil, nil, 0, false},
		{"NoSchedule", []corev1.Taint{taint(corev1.TaintEffectNoSchedule, "a")}, nil, 0, false},
		{"not tolerated", []corev1.Taint{taint(execute, "a")}, nil, 0, true},
		{"tolerated", []corev1.Taint{taint(execute, "a")}, []corev1.Toleration{tolerate("a", nil)}, 0, false},
		{"for a while", []corev1.Taint{taint(execute, "a")}, []corev1.Toleration{tolerate("a", new(int64(30)))}, 30 * time.Second, true},
		{"the shortest", []corev1.Taint{taint(execute, "a"), taint(execute, "b")}, []corev1.Toleration{tolerate("a", new(int64(30))), tolerate("b", new(int64(20)))}, 20 * time.Second, true},
		{"one is not tolerated", []corev1.Taint{taint(execute, "a"), taint(execute, "b")}, []corev1.Toleration{tolerate("a", new(int64(30)))}, 0, true},
		{"negative", []corev1.Taint{taint(execute, "a")}, []corev1.Toleration{tolerate("a", new(int64(-1)))}, 0, true},
	} {
		limit, limited := stays(tc.taints, &corev1.Pod{Spec: corev1.PodSpec{Tolerations: tc.given}})
		if limit != tc.limit || limited != tc.limited {
			t.Errorf("%s: %s, %t", tc.name, limit, limited)
		}
	}
}
