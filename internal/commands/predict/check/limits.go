package check

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gatehouse-dev/gatehouse/internal/commands/predict/stage"
	"github.com/gatehouse-dev/gatehouse/internal/readers/report"
)

// freeAddresses removes from a service the cluster IPs that this server cannot allocate, if the range of the cluster is
// unknown: in its own cluster the service has them. It also removes a second address family.
func (r *run) freeAddresses(t *task) {
	spec, isObject := t.sent.Object["spec"].(map[string]any)
	if !isObject || t.sent.GroupVersionKind() != corev1.SchemeGroupVersion.WithKind("Service") || r.ServiceRange != "" || r.Snapshot != nil && r.Snapshot.ServiceRange() != "" {
		return
	}
	listed, _ := spec["clusterIPs"].([]any)
	var outside []string
	for _, value := range append([]any{spec["clusterIP"]}, listed...) {
		text, _ := value.(string)
		if ip, err := netip.ParseAddr(text); err == nil && !stage.ServiceRange.Contains(ip) && !slices.Contains(outside, text) {
			outside = append(outside, text)
		}
	}
	if len(outside) == 0 {
		return
	}
	for _, field := range []string{"clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"} {
		delete(spec, field)
	}
	r.report.Notes = append(r.report.Notes, fmt.Sprintf("Service %s/%s at %s:%d asks for %s, and the range of the cluster is not known: name it by --service-cluster-ip-range, or the cluster",
		cmp.Or(t.namespace, r.Namespace), t.name, t.object.File, t.object.Line, strings.Join(outside, " and ")))
}

// tooLongForApply reports whether kubectl apply cannot store an object because its copy in an annotation is too long.
func tooLongForApply(sent *unstructured.Unstructured) bool {
	total := len(corev1.LastAppliedConfigAnnotation) + len(stage.Encode(sent.Object))
	for key, value := range sent.GetAnnotations() {
		total += len(key) + len(value)
	}
	return total > validation.TotalAnnotationSizeLimitB
}

// needServerSide reports the objects that are too long for kubectl apply, as one finding.
func (r *run) needServerSide() {
	long := slices.DeleteFunc(slices.Clone(r.tasks), func(t *task) bool { return !t.serverSide })
	if len(long) == 0 {
		return
	}
	others := ""
	if len(long) > 1 {
		others = fmt.Sprintf(", and %d more,", len(long)-1)
	}
	r.report.find(long[0], report.Error, ruleServerSide, "",
		fmt.Sprintf("this object%s cannot be applied without --server-side: kubectl apply keeps a copy in an annotation, which may have %d KiB", others, validation.TotalAnnotationSizeLimitB>>10))
}
