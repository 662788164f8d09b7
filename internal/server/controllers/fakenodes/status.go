package fakenodes

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"
)

const (
	// outcomeAnnotation of a pod is the outcome of its containers: Succeeded, Failed, or Running if
	// they do not end.
	outcomeAnnotation = "gatehouse.dev/fake-outcome"
	// runtimeAnnotation of a pod is how long its containers run before they end.
	runtimeAnnotation = "gatehouse.dev/fake-runtime"
)

// plan is the simulated run of a pod's containers: the phase at the end, and the time until then.
type plan struct {
	outcome corev1.PodPhase
	runtime time.Duration
}

// planOf reads the annotations of a pod. Without them the pod of a Job succeeds at once, and others
// run.
func planOf(pod *corev1.Pod) (plan, error) {
	p := plan{outcome: corev1.PodRunning}
	if owner := metav1.GetControllerOf(pod); owner != nil && owner.Kind == "Job" && strings.HasPrefix(owner.APIVersion, "batch/") {
		p.outcome = corev1.PodSucceeded
	}
	if given, ok := pod.Annotations[outcomeAnnotation]; ok {
		switch p.outcome = corev1.PodPhase(given); p.outcome {
		case corev1.PodRunning, corev1.PodSucceeded, corev1.PodFailed:
		default:
			return p, fmt.Errorf("annotation %s: %q is none of Running, Succeeded, Failed", outcomeAnnotation, given)
		}
	}
	if given, ok := pod.Annotations[runtimeAnnotation]; ok {
		d, err := time.ParseDuration(given)
		if err != nil || d < 0 {
			return p, fmt.Errorf("annotation %s: %q is not a duration, such as 10s", runtimeAnnotation, given)
		}
		p.runtime = d
	}
	return p, nil
}

// ends reports whether a container that ends is not started again.
func (p plan) ends(policy corev1.RestartPolicy) bool {
	return policy == corev1.RestartPolicyNever || (policy == corev1.RestartPolicyOnFailure && p.outcome == corev1.PodSucceeded)
}

const (
	// firstBackoff and lastBackoff bound how much longer a container runs after each restart.
	// This replaces the time that a kubelet waits before a restart.
	firstBackoff, lastBackoff = 10 * time.Second, 5 * time.Minute
)

// lasts returns how long a container runs after a number of restarts.
func (p plan) lasts(restarts int32) time.Duration {
	if restarts == 0 {
		return p.runtime
	}
	return p.runtime + min(firstBackoff<<min(restarts-1, 5), lastBackoff)
}

// missing reports whether an image does not exist, by its name.
func missing(image string) bool {
	return strings.Contains(image, "nonexistent") || strings.Contains(image, "non-existent") ||
		strings.HasPrefix(image, "invalid.") || strings.HasSuffix(image, ":404")
}

// observation is the state of a pod at a moment.
type observation struct {
	pod  *corev1.Pod
	plan plan
	now  metav1.Time
	// after is the time until the status changes next; 0 means never.
	after time.Duration
}

// due notes that the status changes after some time.
func (o *observation) due(after time.Duration) {
	if after > 0 && (o.after == 0 || after < o.after) {
		o.after = after
	}
}

// observe writes the status of a pod as a kubelet would, and returns the time after which the
// caller must call it again; 0 means when the pod changes.
func (n *Nodes) observe(pod *corev1.Pod, now time.Time) (after time.Duration) {
	s := &pod.Status
	s.ObservedGeneration = pod.Generation
	o := &observation{pod: pod, now: metav1.NewTime(now)}
	var err error
	if o.plan, err = planOf(pod); err != nil {
		s.Phase, s.Reason, s.Message = corev1.PodFailed, "InvalidAnnotation", err.Error()
		return 0
	}
	if s.StartTime == nil {
		s.StartTime = &o.now
	}
	s.HostIP = hostIP(pod.Spec.NodeName)
	s.HostIPs = []corev1.HostIP{{IP: s.HostIP}}
	if s.PodIP == "" && pod.Spec.HostNetwork {
		s.PodIP = s.HostIP
	} else if s.PodIP == "" {
		// A pod has no address when all are taken.
		if ip, err := n.addresses.AllocateNext(); err == nil {
			s.PodIP = ip.String()
		}
	}
	s.PodIPs = []corev1.PodIP{{IP: s.PodIP}}
	initialized := o.containers()
	s.Phase = o.phase(initialized)
	o.conditions(initialized)
	return o.after
}

// containers writes the statuses of containers, and reports whether no init container waits any
// more.
func (o *observation) containers() (initialized bool) {
	spec, s := &o.pod.Spec, &o.pod.Status
	before := map[string]corev1.ContainerStatus{}
	for _, list := range [][]corev1.ContainerStatus{s.InitContainerStatuses, s.ContainerStatuses, s.EphemeralContainerStatuses} {
		for _, c := range list {
			before[c.Name] = c
		}
	}
	s.InitContainerStatuses, s.ContainerStatuses, s.EphemeralContainerStatuses = nil, nil, nil
	initialized = true
	for i := range spec.InitContainers {
		c := &spec.InitContainers[i]
		status := o.first(c, before[c.Name], initialized)
		initialized = initialized && status.State.Waiting == nil
		s.InitContainerStatuses = append(s.InitContainerStatuses, status)
	}
	ended := initialized
	for i := range spec.Containers {
		c := &spec.Containers[i]
		status := waiting(c, before[c.Name], "PodInitializing")
		if initialized {
			status = o.container(c, before[c.Name])
		}
		ended = ended && status.State.Terminated != nil
		s.ContainerStatuses = append(s.ContainerStatuses, status)
	}
	for i := range s.InitContainerStatuses {
		// A sidecar ends with the pod.
		if c := &s.InitContainerStatuses[i]; ended && c.State.Running != nil {
			c.State = corev1.ContainerState{Terminated: o.terminated("Completed", 0, *c)}
			c.Ready, c.Started = true, new(false)
		}
	}
	for i := range spec.EphemeralContainers {
		c := corev1.Container(spec.EphemeralContainers[i].EphemeralContainerCommon)
		status := o.running(&c, before[c.Name])
		status.Ready = false
		s.EphemeralContainerStatuses = append(s.EphemeralContainerStatuses, status)
	}
	return initialized
}

// first returns the status of an init container. turn reports whether the init containers before
// it are done; until then it waits.
func (o *observation) first(c *corev1.Container, before corev1.ContainerStatus, turn bool) corev1.ContainerStatus {
	switch {
	case before.State.Terminated != nil:
		return before
	case !turn:
		return waiting(c, before, "PodInitializing")
	case c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways:
		status := o.running(c, before)
		status.Ready = status.State.Running != nil
		return status
	case missing(c.Image):
		return o.withoutImage(c, before)
	}
	status := statusOfContainer(c, before)
	status.State = corev1.ContainerState{Terminated: o.terminated("Completed", 0, before)}
	status.Ready, status.Started = true, new(false)
	return status
}

// container returns the status of a container of the pod's spec.containers, which follow the
// plan.
func (o *observation) container(c *corev1.Container, before corev1.ContainerStatus) corev1.ContainerStatus {
	if before.State.Terminated != nil {
		return before
	}
	status := o.running(c, before)
	if status.State.Running == nil || o.plan.outcome == corev1.PodRunning {
		return status
	}
	started := status.State.Running.StartedAt
	if left := started.Add(o.plan.lasts(status.RestartCount)).Sub(o.now.Time); left > 0 {
		o.due(left)
		return status
	}
	code, reason := int32(0), "Completed"
	if o.plan.outcome == corev1.PodFailed {
		code, reason = 1, "Error"
	}
	end := corev1.ContainerState{Terminated: o.terminated(reason, code, status)}
	if o.plan.ends(o.pod.Spec.RestartPolicy) {
		status.State, status.Ready, status.Started = end, false, new(false)
		return status
	}
	o.restart(c, &status, end)
	o.due(o.plan.lasts(status.RestartCount))
	return status
}

// running returns the status of a container that runs, unless its image is missing.
func (o *observation) running(c *corev1.Container, before corev1.ContainerStatus) corev1.ContainerStatus {
	if missing(c.Image) {
		return o.withoutImage(c, before)
	}
	status := statusOfContainer(c, before)
	switch {
	case before.State.Running == nil:
		status.State = corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: o.now}}
	case before.Image != c.Image || o.resizeRestarts(c, before):
		o.restart(c, &status, corev1.ContainerState{Terminated: o.terminated("Completed", 0, before)})
	}
	o.judge(c, &status)
	return status
}

// restart starts a container again after its end.
func (o *observation) restart(c *corev1.Container, status *corev1.ContainerStatus, end corev1.ContainerState) {
	status.LastTerminationState = end
	status.RestartCount++
	status.State = corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: o.now}}
	o.judge(c, status)
}

// judge sets the readiness of a running container. It is ready after the initial delay of its
// readiness probe.
func (o *observation) judge(c *corev1.Container, status *corev1.ContainerStatus) {
	status.Started, status.Ready = new(true), true
	if c.ReadinessProbe == nil {
		return
	}
	wait := time.Duration(c.ReadinessProbe.InitialDelaySeconds) * time.Second
	if left := status.State.Running.StartedAt.Add(wait).Sub(o.now.Time); wait > 0 && left > 0 {
		status.Ready = false
		o.due(left)
	}
}

// resizeRestarts reports whether a change of resources requires a restart of the container.
func (o *observation) resizeRestarts(c *corev1.Container, before corev1.ContainerStatus) bool {
	if before.Resources == nil {
		return false
	}
	for _, p := range c.ResizePolicy {
		if p.RestartPolicy != corev1.RestartContainer {
			continue
		}
		was, is := before.Resources, c.Resources
		if !was.Requests.Name(p.ResourceName, "").Equal(*is.Requests.Name(p.ResourceName, "")) ||
			!was.Limits.Name(p.ResourceName, "").Equal(*is.Limits.Name(p.ResourceName, "")) {
			return true
		}
	}
	return false
}

// withoutImage returns the status of a container whose image does not exist.
func (o *observation) withoutImage(c *corev1.Container, before corev1.ContainerStatus) corev1.ContainerStatus {
	reason := "ErrImagePull"
	if w := before.State.Waiting; w != nil && (w.Reason == reason || w.Reason == "ImagePullBackOff") {
		reason = "ImagePullBackOff"
	}
	status := waiting(c, before, reason)
	status.State.Waiting.Message = fmt.Sprintf("the name of image %q says that it is not there", c.Image)
	if before.State.Running != nil {
		status.LastTerminationState = corev1.ContainerState{Terminated: o.terminated("Completed", 0, before)}
	}
	return status
}

// terminated is the state of a container that ends now.
func (o *observation) terminated(reason string, code int32, before corev1.ContainerStatus) *corev1.ContainerStateTerminated {
	started := o.now
	if before.State.Running != nil {
		started = before.State.Running.StartedAt
	}
	return &corev1.ContainerStateTerminated{Reason: reason, ExitCode: code, StartedAt: started, FinishedAt: o.now, ContainerID: before.ContainerID}
}

// waiting is the status of a container that does not run.
func waiting(c *corev1.Container, before corev1.ContainerStatus, reason string) corev1.ContainerStatus {
	return corev1.ContainerStatus{
		Name: c.Name, Image: c.Image, RestartCount: before.RestartCount, LastTerminationState: before.LastTerminationState,
		State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason}}, Started: new(false),
	}
}

// statusOfContainer returns the status of a container with its current spec and its state before.
func statusOfContainer(c *corev1.Container, before corev1.ContainerStatus) corev1.ContainerStatus {
	return corev1.ContainerStatus{
		Name: c.Name, Image: c.Image, ImageID: "fake://" + c.Image, ContainerID: "fake://" + c.Name,
		State: before.State, LastTerminationState: before.LastTerminationState, RestartCount: before.RestartCount,
		AllocatedResources: c.Resources.Requests.DeepCopy(), Resources: c.Resources.DeepCopy(),
	}
}

// phase derives the phase of the pod from the statuses of its containers.
func (o *observation) phase(initialized bool) corev1.PodPhase {
	ended, failed := true, false
	for _, c := range o.pod.Status.ContainerStatuses {
		if c.State.Waiting != nil && c.LastTerminationState.Terminated == nil {
			return corev1.PodPending
		}
		ended = ended && c.State.Terminated != nil
		failed = failed || (c.State.Terminated != nil && c.State.Terminated.ExitCode != 0)
	}
	switch {
	case !initialized:
		return corev1.PodPending
	case ended && failed:
		return corev1.PodFailed
	case ended:
		return corev1.PodSucceeded
	}
	return corev1.PodRunning
}

// conditions writes the conditions of a pod.
func (o *observation) conditions(initialized bool) {
	is := func(kind corev1.PodConditionType, ok bool, reason string) {
		c := corev1.PodCondition{Type: kind, Status: corev1.ConditionFalse, Reason: reason, ObservedGeneration: o.pod.Generation}
		if ok {
			c.Status = corev1.ConditionTrue
		}
		podutil.UpdatePodCondition(&o.pod.Status, &c)
	}
	why := ""
	switch o.pod.Status.Phase {
	case corev1.PodSucceeded:
		why = "PodCompleted"
	case corev1.PodFailed:
		why = "PodFailed"
	}
	is(corev1.PodReadyToStartContainers, true, "")
	if initialized {
		is(corev1.PodInitialized, true, why)
	} else {
		is(corev1.PodInitialized, false, "ContainersNotInitialized")
	}
	is(corev1.PodScheduled, true, "")
	ready := true
	for _, c := range o.pod.Status.ContainerStatuses {
		ready = ready && c.Ready
	}
	if !ready {
		why = cmp.Or(why, "ContainersNotReady")
	}
	is(corev1.ContainersReady, ready, why)
	if ready && !gatesOpen(o.pod) {
		ready, why = false, cmp.Or(why, "ReadinessGatesNotReady")
	}
	is(corev1.PodReady, ready, why)
}

// gatesOpen reports whether the conditions of the readiness gates, which clients write, are true.
func gatesOpen(pod *corev1.Pod) bool {
	for _, gate := range pod.Spec.ReadinessGates {
		if _, c := podutil.GetPodCondition(&pod.Status, gate.ConditionType); c == nil || c.Status != corev1.ConditionTrue {
			return false
		}
	}
	return true
}
