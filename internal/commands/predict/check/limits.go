package check

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"net/netip"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gatehouse-dev/gatehouse/internal/commands/predict/stage"
	"github.com/gatehouse-dev/gatehouse/internal/readers/manifests"
	"github.com/gatehouse-dev/gatehouse/internal/readers/report"
)

// addresses maps the cluster IPs that this server cannot allocate, because the range of the cluster is unknown, to
// addresses of its own range. Each service gets the same address in both versions of the files.
type addresses struct {
	// inPlaceOf maps an address of a file to an address of this server; asked has the addresses of the files.
	inPlaceOf map[string]string
	asked     map[string]bool
	next      netip.Addr
}

// firstAddress is the first address in place of an address of a file. Addresses of this length contain no other one.
var firstAddress = netip.MustParseAddr("10.96.0.100")

// clusterIPs returns the cluster IPs of a service's spec, without repetitions.
func clusterIPs(spec map[string]any) (list []netip.Addr) {
	listed, _ := spec["clusterIPs"].([]any)
	for _, value := range append([]any{spec["clusterIP"]}, listed...) {
		text, _ := value.(string)
		if ip, err := netip.ParseAddr(text); err == nil && !slices.Contains(list, ip) {
			list = append(list, ip)
		}
	}
	return list
}

// newAddresses reads the cluster IPs of the services of the sets.
func newAddresses(sets ...*manifests.Set) *addresses {
	a := &addresses{inPlaceOf: map[string]string{}, asked: map[string]bool{}, next: firstAddress}
	for _, set := range sets {
		for _, u := range set.Unstructured() {
			if spec, ok := u.Object["spec"].(map[string]any); ok && u.GetKind() == "Service" {
				for _, ip := range clusterIPs(spec) {
					a.asked[ip.String()] = true
				}
			}
		}
	}
	return a
}

// of returns the address in place of a cluster IP.
func (a *addresses) of(ip string) string {
	if own, ok := a.inPlaceOf[ip]; ok {
		return own
	}
	for {
		own := a.next
		a.next = a.next.Next()
		if last := own.As4()[3]; last >= 100 && last < 255 && !a.asked[own.String()] {
			a.inPlaceOf[ip] = own.String()
			return own.String()
		}
	}
}

// replaceAddresses replaces the cluster IPs of a service that this server cannot allocate, if the range of the cluster
// is unknown: in its own cluster the service has them. It removes a second address family.
func (r *run) replaceAddresses(t *task) {
	spec, isObject := t.sent.Object["spec"].(map[string]any)
	if !isObject || t.sent.GroupVersionKind() != corev1.SchemeGroupVersion.WithKind("Service") || r.ServiceRange != "" || r.Snapshot != nil && r.Snapshot.ServiceRange() != "" {
		return
	}
	outside := slices.DeleteFunc(clusterIPs(spec), stage.ServiceRange.Contains)
	if len(outside) == 0 {
		return
	}
	if r.addresses == nil {
		r.addresses = newAddresses(r.Set, r.Old)
	}
	t.addresses = map[string]string{}
	own := func(value any) any {
		text, _ := value.(string)
		ip, err := netip.ParseAddr(text)
		if err != nil || stage.ServiceRange.Contains(ip) {
			return value
		}
		given := r.addresses.of(text)
		t.addresses[given] = text
		return given
	}
	if value, ok := spec["clusterIP"]; ok {
		spec["clusterIP"] = own(value)
	}
	if listed, _ := spec["clusterIPs"].([]any); len(listed) > 0 {
		spec["clusterIPs"] = []any{own(listed[0])}
	}
	delete(spec, "ipFamilies")
	delete(spec, "ipFamilyPolicy")
	if t.removed {
		return
	}
	var names []string
	for _, ip := range outside {
		names = append(names, ip.String())
	}
	r.report.Notes = append(r.report.Notes, fmt.Sprintf("Service %s/%s at %s:%d asks for %s, and the range of the cluster is not known: name it by --service-cluster-ip-range, or the cluster",
		cmp.Or(t.namespace, r.Namespace), t.name, t.object.File, t.object.Line, strings.Join(names, " and ")))
}

// restoreAddresses puts the cluster IPs of the file back into a response.
func (t *task) restoreAddresses(a *stage.Answer) {
	for given, written := range t.addresses {
		pattern := regexp.MustCompile(`\b` + regexp.QuoteMeta(given) + `\b`)
		restore := func(text string) string { return pattern.ReplaceAllLiteralString(text, written) }
		a.Body, t.current = pattern.ReplaceAllLiteral(a.Body, []byte(written)), pattern.ReplaceAllLiteral(t.current, []byte(written))
		for i := range a.Warnings {
			a.Warnings[i] = restore(a.Warnings[i])
		}
		if a.Status == nil {
			continue
		}
		a.Status.Message = restore(a.Status.Message)
		if a.Status.Details != nil {
			for i := range a.Status.Details.Causes {
				a.Status.Details.Causes[i].Message = restore(a.Status.Details.Causes[i].Message)
			}
		}
	}
}

// secondAddresses rejects changes of the second cluster IP of a service, which this server does not have.
func (r *run) secondAddresses() {
	of := func(t *task) []string {
		list, _, _ := unstructured.NestedStringSlice(t.object.Content, "spec", "clusterIPs")
		return list
	}
	for _, t := range r.tasks {
		if !t.accepted() || !t.stored || len(t.addresses) == 0 || len(of(t)) < 2 {
			continue
		}
		for _, old := range r.old {
			if before := of(old); old.kind != nil && old.key() == t.key() && len(before) == 2 && before[1] != of(t)[1] {
				list, _ := json.Marshal(of(t))
				message := fmt.Sprintf("Invalid value: %s: may not change once set", list)
				r.report.refuse(t, ruleInvalid, "spec.clusterIPs[1]", message)
				t.result.Code, t.result.Reason = http.StatusUnprocessableEntity, string(metav1.StatusReasonInvalid)
			}
		}
	}
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
	r.report.addFinding(long[0], report.Error, ruleServerSide, "",
		fmt.Sprintf("this object%s cannot be applied without --server-side: kubectl apply keeps a copy in an annotation, which may have %d KiB", others, validation.TotalAnnotationSizeLimitB>>10))
}
