package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
)

var constraints = schema.GroupVersionResource{Group: "security.openshift.io", Version: "v1", Resource: "securitycontextconstraints"}

// The annotations of a namespace with its users, groups and SELinux level, and the annotation of a pod with the
// name of its constraint.
const (
	userRange   = "openshift.io/sa.scc.uid-range"
	groupRange  = "openshift.io/sa.scc.supplemental-groups"
	levels      = "openshift.io/sa.scc.mcs"
	chosen      = "openshift.io/scc"
	mustBeRange = "MustRunAsRange"
	mustBe      = "MustRunAs"
	mustNotRoot = "MustRunAsNonRoot"
)

// constraint has the used fields of a SecurityContextConstraints.
type constraint struct {
	metav1.ObjectMeta        `json:"metadata"`
	Priority                 *int32              `json:"priority"`
	Privileged               bool                `json:"allowPrivilegedContainer"`
	HostDirs                 bool                `json:"allowHostDirVolumePlugin"`
	HostNetwork              bool                `json:"allowHostNetwork"`
	HostPorts                bool                `json:"allowHostPorts"`
	HostPID                  bool                `json:"allowHostPID"`
	HostIPC                  bool                `json:"allowHostIPC"`
	Escalation               *bool               `json:"allowPrivilegeEscalation"`
	DefaultEscalation        *bool               `json:"defaultAllowPrivilegeEscalation"`
	ReadOnlyRootFilesystem   bool                `json:"readOnlyRootFilesystem"`
	DefaultAddCapabilities   []corev1.Capability `json:"defaultAddCapabilities"`
	RequiredDropCapabilities []corev1.Capability `json:"requiredDropCapabilities"`
	AllowedCapabilities      []corev1.Capability `json:"allowedCapabilities"`
	Volumes                  []string            `json:"volumes"`
	SeccompProfiles          []string            `json:"seccompProfiles"`
	Users                    []string            `json:"users"`
	Groups                   []string            `json:"groups"`
	RunAsUser                struct {
		Type string `json:"type"`
		UID  *int64 `json:"uid"`
		Min  *int64 `json:"uidRangeMin"`
		Max  *int64 `json:"uidRangeMax"`
	} `json:"runAsUser"`
	SELinux struct {
		Type    string                 `json:"type"`
		Options *corev1.SELinuxOptions `json:"seLinuxOptions"`
	} `json:"seLinuxContext"`
	FSGroup            groups `json:"fsGroup"`
	SupplementalGroups groups `json:"supplementalGroups"`
}

// groups are the allowed groups.
type groups struct {
	Type   string `json:"type"`
	Ranges []span `json:"ranges"`
}

// span is a range of IDs, both ends included.
type span struct {
	Min int64 `json:"min"`
	Max int64 `json:"max"`
}

func (s span) has(id int64) bool { return s.Min <= id && id <= s.Max }

// spanOf parses FIRST/SIZE or FIRST-LAST; ok is false for other texts.
func spanOf(text string) (s span, ok bool) {
	text, _, _ = strings.Cut(text, ",")
	first, rest, sized := strings.Cut(text, "/")
	if !sized {
		first, rest, _ = strings.Cut(text, "-")
	}
	from, err := strconv.ParseInt(first, 10, 64)
	to, other := strconv.ParseInt(rest, 10, 64)
	if err != nil || other != nil {
		return s, false
	}
	if sized {
		to += from - 1
	}
	return span{from, to}, true
}

// securityContext is a webhook for pods. It selects the first constraint, by priority and then by name, that
// the user or the pod's service account may use and that the pod fits. The mutating webhook sets the fields of
// the constraint, and writes its name into the pod.
type securityContext struct {
	client  kubernetes.Interface
	objects dynamic.Interface
	mutates bool
}

// Handle implements admission.Handler.
func (s securityContext) Handle(ctx context.Context, req admission.Request) admission.Response {
	fail := func(err error) admission.Response { return admission.Errored(http.StatusInternalServerError, err) }
	list, err := s.objects.Resource(constraints).List(ctx, metav1.ListOptions{})
	if err != nil {
		return fail(fmt.Errorf("listing the constraints: %w", err))
	}
	if len(list.Items) == 0 {
		return admission.Allowed("no constraints are configured")
	}
	all := make([]constraint, len(list.Items))
	for i := range list.Items {
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(list.Items[i].Object, &all[i]); err != nil {
			return fail(fmt.Errorf("constraint %s: %w", list.Items[i].GetName(), err))
		}
	}
	slices.SortFunc(all, func(a, b constraint) int {
		return cmp.Or(cmp.Compare(value(b.Priority), value(a.Priority)), cmp.Compare(a.Name, b.Name))
	})
	namespace, err := s.client.CoreV1().Namespaces().Get(ctx, req.Namespace, metav1.GetOptions{})
	if err != nil {
		return fail(err)
	}
	var pod, old corev1.Pod
	if err := json.Unmarshal(req.Object.Raw, &pod); err != nil {
		return admission.Errored(http.StatusBadRequest, err)
	}
	if len(req.OldObject.Raw) > 0 {
		if err := json.Unmarshal(req.OldObject.Raw, &old); err != nil {
			return admission.Errored(http.StatusBadRequest, err)
		}
	}
	var why []string
	for i := range all {
		c := &all[i]
		switch usable, err := s.usable(ctx, c, &req, cmp.Or(pod.Spec.ServiceAccountName, "default")); {
		case err != nil:
			return fail(err)
		case !usable:
			continue
		}
		p := &profile{constraint: c, annotations: namespace.Annotations}
		if lacking := p.lacks(); lacking != "" {
			why = append(why, fmt.Sprintf("%s: namespace %s has no annotation %s", c.Name, req.Namespace, lacking))
			continue
		}
		fitted := pod.DeepCopy()
		if s.mutates {
			p.fill(fitted)
		}
		if p.check(fitted, &old); len(p.problems) > 0 {
			why = append(why, c.Name+": "+strings.Join(p.problems, ", "))
			continue
		}
		if !s.mutates {
			return admission.Allowed("")
		}
		if fitted.Annotations == nil {
			fitted.Annotations = map[string]string{}
		}
		fitted.Annotations[chosen] = c.Name
		// The types here may lack fields of the request, so the patch has only the changes.
		before, err := json.Marshal(&pod)
		if err != nil {
			return fail(err)
		}
		after, err := json.Marshal(fitted)
		if err != nil {
			return fail(err)
		}
		return admission.PatchResponseFromRaw(before, after)
	}
	if len(why) == 0 {
		return admission.Denied("neither the user nor the service account may use any security context constraint")
	}
	return admission.Denied("the pod fits no security context constraint: " + strings.Join(why, "; "))
}

func value(p *int32) int32 {
	if p == nil {
		return 0
	}
	return *p
}

// usable reports whether the user of a request or a service account may use a constraint: the constraint names
// the subject, or a role grants the verb use.
func (s securityContext) usable(ctx context.Context, c *constraint, req *admission.Request, account string) (bool, error) {
	const accounts = "system:serviceaccounts"
	type subject struct {
		name   string
		groups []string
	}
	for _, who := range []subject{
		{req.UserInfo.Username, req.UserInfo.Groups},
		{"system:serviceaccount:" + req.Namespace + ":" + account, []string{accounts, accounts + ":" + req.Namespace, "system:authenticated"}},
	} {
		if slices.Contains(c.Users, who.name) || slices.ContainsFunc(who.groups, func(g string) bool { return slices.Contains(c.Groups, g) }) {
			return true, nil
		}
		review, err := s.client.AuthorizationV1().SubjectAccessReviews().Create(ctx, &authorizationv1.SubjectAccessReview{
			Spec: authorizationv1.SubjectAccessReviewSpec{User: who.name, Groups: who.groups, ResourceAttributes: &authorizationv1.ResourceAttributes{
				Verb: "use", Group: constraints.Group, Resource: constraints.Resource, Name: c.Name, Namespace: req.Namespace,
			}},
		}, metav1.CreateOptions{})
		if err != nil {
			return false, fmt.Errorf("asking for the right to use %s: %w", c.Name, err)
		}
		if review.Status.Allowed {
			return true, nil
		}
	}
	return false, nil
}

// profile is a constraint in a namespace, and the pod's violations of it.
type profile struct {
	*constraint
	annotations map[string]string
	problems    []string
}

func (p *profile) finds(format string, args ...any) {
	p.problems = append(p.problems, fmt.Sprintf(format, args...))
}

// lacks returns the annotation of the namespace that the constraint needs and that is missing or invalid; empty
// for none. No pod may use the constraint then.
func (p *profile) lacks() string {
	if _, ok := p.users(); p.RunAsUser.Type == mustBeRange && !ok {
		return userRange
	}
	if must := p.seLinux(); must != nil && must.Level == "" {
		return levels
	}
	for _, g := range []groups{p.FSGroup, p.SupplementalGroups} {
		if g.Type == mustBe && len(p.groups(g)) == 0 {
			return groupRange
		}
	}
	return ""
}

// users returns the allowed users; ok is false if all are allowed.
func (p *profile) users() (s span, ok bool) {
	switch p.RunAsUser.Type {
	case mustBe:
		if p.RunAsUser.UID != nil {
			return span{*p.RunAsUser.UID, *p.RunAsUser.UID}, true
		}
	case mustBeRange:
		if p.RunAsUser.Min != nil && p.RunAsUser.Max != nil {
			return span{*p.RunAsUser.Min, *p.RunAsUser.Max}, true
		}
		return spanOf(p.annotations[userRange])
	}
	return s, false
}

// groups returns the allowed groups; nil if all are allowed. The default is the groups of the namespace, or
// else its users.
func (p *profile) groups(g groups) []span {
	if g.Type != mustBe {
		return nil
	}
	if len(g.Ranges) > 0 {
		return g.Ranges
	}
	for _, annotation := range []string{groupRange, userRange} {
		if s, ok := spanOf(p.annotations[annotation]); ok {
			return []span{s}
		}
	}
	return nil
}

// seLinux returns the required SELinux options of pods; nil if any are allowed.
func (p *profile) seLinux() *corev1.SELinuxOptions {
	if p.SELinux.Type != mustBe {
		return nil
	}
	must := corev1.SELinuxOptions{}
	if p.SELinux.Options != nil {
		must = *p.SELinux.Options
	}
	must.Level = cmp.Or(must.Level, p.annotations[levels])
	return &must
}

// fill sets the fields of the constraint that the pod does not set.
func (p *profile) fill(pod *corev1.Pod) {
	if pod.Spec.SecurityContext == nil {
		pod.Spec.SecurityContext = &corev1.PodSecurityContext{}
	}
	c := pod.Spec.SecurityContext
	if users, ok := p.users(); ok && c.RunAsUser == nil {
		c.RunAsUser = &users.Min
	} else if p.RunAsUser.Type == mustNotRoot && c.RunAsNonRoot == nil {
		c.RunAsNonRoot = new(true)
	}
	if allowed := p.groups(p.FSGroup); len(allowed) > 0 && c.FSGroup == nil {
		c.FSGroup = &allowed[0].Min
	}
	if c.SELinuxOptions == nil {
		c.SELinuxOptions = p.seLinux()
	}
	if len(p.SeccompProfiles) > 0 && p.SeccompProfiles[0] == "runtime/default" && c.SeccompProfile == nil {
		c.SeccompProfile = &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}
	}
	for _, list := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			p.fillContainer(&list[i])
		}
	}
}

func (p *profile) fillContainer(container *corev1.Container) {
	if container.SecurityContext == nil {
		container.SecurityContext = &corev1.SecurityContext{}
	}
	c := container.SecurityContext
	if len(p.RequiredDropCapabilities)+len(p.DefaultAddCapabilities) > 0 && c.Capabilities == nil {
		c.Capabilities = &corev1.Capabilities{Drop: p.RequiredDropCapabilities, Add: p.DefaultAddCapabilities}
	}
	if c.AllowPrivilegeEscalation == nil {
		if p.Escalation != nil && !*p.Escalation {
			c.AllowPrivilegeEscalation = new(false)
		} else if p.DefaultEscalation != nil {
			c.AllowPrivilegeEscalation = p.DefaultEscalation
		}
	}
	if p.ReadOnlyRootFilesystem && c.ReadOnlyRootFilesystem == nil {
		c.ReadOnlyRootFilesystem = new(true)
	}
}

// check collects the violations of a pod. An update is checked for new containers only: everything else was
// checked before.
func (p *profile) check(pod, old *corev1.Pod) {
	c := pod.Spec.SecurityContext
	if c == nil {
		c = &corev1.PodSecurityContext{}
	}
	if old.Name == "" {
		p.checkPod(pod, c)
	}
	known := map[string]bool{}
	for _, one := range containers(old) {
		known[one.Name] = true
	}
	for _, one := range containers(pod) {
		if !known[one.Name] {
			p.checkContainer(&one, c)
		}
	}
}

// containers returns all containers of a pod.
func containers(pod *corev1.Pod) []corev1.Container {
	list := slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers)
	for i := range pod.Spec.EphemeralContainers {
		list = append(list, corev1.Container(pod.Spec.EphemeralContainers[i].EphemeralContainerCommon))
	}
	return list
}

func (p *profile) checkPod(pod *corev1.Pod, c *corev1.PodSecurityContext) {
	for _, host := range []struct {
		name          string
		wants, allows bool
	}{{"hostNetwork", pod.Spec.HostNetwork, p.HostNetwork}, {"hostPID", pod.Spec.HostPID, p.HostPID}, {"hostIPC", pod.Spec.HostIPC, p.HostIPC}} {
		if host.wants && !host.allows {
			p.finds("%s is not allowed", host.name)
		}
	}
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		kind := volumeKind(v)
		if kind == "hostPath" && !p.HostDirs || kind != "hostPath" && !slices.Contains(p.Volumes, kind) && !slices.Contains(p.Volumes, "*") {
			p.finds("volume %s of kind %s is not allowed", v.Name, kind)
		}
	}
	in := func(what string, id int64, allowed []span) {
		if len(allowed) > 0 && !slices.ContainsFunc(allowed, func(s span) bool { return s.has(id) }) {
			p.finds("%s %d is not in the range of the project", what, id)
		}
	}
	if c.FSGroup != nil {
		in("fsGroup", *c.FSGroup, p.groups(p.FSGroup))
	} else if len(p.groups(p.FSGroup)) > 0 {
		p.finds("fsGroup must be set")
	}
	for _, id := range c.SupplementalGroups {
		in("supplementalGroups", id, p.groups(p.SupplementalGroups))
	}
	if len(c.Sysctls) > 0 && !p.Privileged {
		p.finds("sysctls are not allowed")
	}
}

// volumeKind is the name of the field with the source of a volume.
func volumeKind(v *corev1.Volume) string {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&v.VolumeSource)
	if err == nil {
		for kind := range content {
			return kind
		}
	}
	return "emptyDir"
}

func (p *profile) checkContainer(container *corev1.Container, pod *corev1.PodSecurityContext) {
	c := container.SecurityContext
	if c == nil {
		c = &corev1.SecurityContext{}
	}
	finds := func(format string, args ...any) {
		p.finds("container %s: %s", container.Name, fmt.Sprintf(format, args...))
	}
	is := func(b *bool) bool { return b != nil && *b }
	if is(c.Privileged) && !p.Privileged {
		finds("privileged is not allowed")
	}
	if p.Escalation != nil && !*p.Escalation && (c.AllowPrivilegeEscalation == nil || *c.AllowPrivilegeEscalation) {
		finds("allowPrivilegeEscalation must be false")
	}
	if p.ReadOnlyRootFilesystem && !is(c.ReadOnlyRootFilesystem) {
		finds("readOnlyRootFilesystem must be true")
	}
	for _, port := range container.Ports {
		if port.HostPort != 0 && !p.HostPorts {
			finds("host port %d is not allowed", port.HostPort)
		}
	}
	p.checkCapabilities(c.Capabilities, finds)
	user, nonRoot := pod.RunAsUser, is(pod.RunAsNonRoot)
	if c.RunAsUser != nil {
		user = c.RunAsUser
	}
	if c.RunAsNonRoot != nil {
		nonRoot = *c.RunAsNonRoot
	}
	users, limited := p.users()
	switch {
	case limited && user == nil:
		finds("runAsUser must be set")
	case limited && !users.has(*user):
		finds("runAsUser %d is not from %d to %d", *user, users.Min, users.Max)
	case p.RunAsUser.Type == mustNotRoot && (user != nil && *user == 0 || user == nil && !nonRoot):
		finds("it must not run as root")
	}
	seLinux := pod.SELinuxOptions
	if c.SELinuxOptions != nil {
		seLinux = c.SELinuxOptions
	}
	if must := p.seLinux(); must != nil && (seLinux == nil || *seLinux != *must) {
		finds("the SELinux options must be user %q, role %q, type %q, level %q", must.User, must.Role, must.Type, must.Level)
	}
	profile := pod.SeccompProfile
	if c.SeccompProfile != nil {
		profile = c.SeccompProfile
	}
	if len(p.SeccompProfiles) > 0 && !slices.Contains(p.SeccompProfiles, "*") && !slices.Contains(p.SeccompProfiles, seccomp(profile)) {
		finds("the seccomp profile must be one of %s", strings.Join(p.SeccompProfiles, ", "))
	}
}

// seccomp returns the name of a profile in constraints.
func seccomp(p *corev1.SeccompProfile) string {
	switch {
	case p == nil:
		return ""
	case p.Type == corev1.SeccompProfileTypeRuntimeDefault:
		return "runtime/default"
	case p.LocalhostProfile != nil:
		return "localhost/" + *p.LocalhostProfile
	}
	return strings.ToLower(string(p.Type))
}

func (p *profile) checkCapabilities(c *corev1.Capabilities, finds func(string, ...any)) {
	if c == nil {
		c = &corev1.Capabilities{}
	}
	for _, one := range c.Add {
		if !slices.Contains(p.AllowedCapabilities, one) && !slices.Contains(p.AllowedCapabilities, "*") && !slices.Contains(p.DefaultAddCapabilities, one) {
			finds("capability %s is not allowed", one)
		}
	}
	for _, one := range p.RequiredDropCapabilities {
		if !slices.Contains(c.Drop, one) && !slices.Contains(c.Drop, "ALL") {
			finds("capability %s must be dropped", one)
		}
	}
}
